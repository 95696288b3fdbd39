"""Draws the pictures of a recording: its environment repeats the recorded actions.

Every time step is compared first, so a picture never shows another course of events.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from envkit.cli.page_pictures import PagePictures
from envkit.cli.target import wants_mode, with_mode
from envkit.cli.terminal import progress_bar
from envkit.recording.pictures import Renderer
from envkit.recording.replaying import (
    Place,
    check,
    foreign_names,
    rebuilt,
)
from envkit.recording.stored import Recording
from envkit.registry import names_in, schemes

__all__ = ["SECONDS", "draw", "rebuilt_to_draw", "unlisted_names"]

# How long to draw unless the user has asked for it.
SECONDS = 30.0
# Paths, addresses and names to import could lead anywhere.
_NOT_PLAIN = ("/", "\\", ":", ".")


def draw(
    recording: Recording, env: Any, pictures: PagePictures, seconds: float | None
) -> None:
    """Repeats a recording on an environment, and adds its pictures to those of a page.

    Args:
        recording: The recording.
        env: The environment, made and seeded as originally.
        pictures: The pictures of the page, which learn why some are missing.
        seconds: How long to draw; `None` for as long as it takes.

    Raises:
        NotImplementedError: The environment does not render.
    """
    renderer = Renderer(env)
    end = None if seconds is None else time.monotonic() + seconds
    with progress_bar() as bar:
        task = bar.add_task("drawing", total=pictures.time_steps)

        def see(places: Mapping[int, Place]) -> bool:
            whole = {row: place for row, place in places.items() if place.is_whole}
            wanted = {
                row: place
                for row, place in whole.items()
                if pictures.wants(place.episode, place.step)
            }
            found = renderer.pictures(list(wanted)) if wanted else []
            for (episode, step), picture in zip(wanted.values(), found, strict=False):
                pictures.add(episode, step, picture, "drawn")
            bar.advance(task, len(whole))
            return end is None or time.monotonic() < end

        outcome = check(recording, env, see)
    missing = "There are no more pictures" if len(pictures) else "There are no pictures"
    if (found := outcome.difference) is not None:
        row = "" if found.row is None else f"row {found.row}, "
        pictures.differs = True
        pictures.problem = (
            f"{missing}, because the environment no longer does what was recorded: "
            f"{row}episode {found.episode}, step {found.step} has {found.recorded} at "
            f"{found.place}, and now it is {found.now}."
        )
    elif outcome.unchecked is not None:
        pictures.problem = f"{missing}. {outcome.unchecked}"
    elif outcome.time_steps < pictures.time_steps:
        pictures.problem = (
            f"{missing}, because drawing them took over {seconds:g} seconds: envkit "
            "replay --html --draw draws them all."
        )


def rebuilt_to_draw(provenance: dict[str, Any]) -> Any:
    """Rebuilds an environment so that it renders, if it supports that."""
    recipe = _with_mode(provenance, always=False)
    single = recipe
    while "environments" in single:
        single = single["environments"][0]
    of_batch = {key: recipe[key] for key in recipe if key != "environments"}
    env, _ = rebuilt({**of_batch, **single})
    wants = wants_mode(env)
    if not wants and single is recipe:
        return env
    env.close()
    return rebuilt(_with_mode(recipe, always=True) if wants else recipe)[0]


def _with_mode(recipe: dict[str, Any], *, always: bool) -> dict[str, Any]:
    """Returns a recipe whose environments render into arrays, and not into windows."""
    if "environments" in recipe:
        inner = [_with_mode(one, always=always) for one in recipe["environments"]]
        return {**recipe, "environments": inner}
    arguments = recipe["arguments"] or {}
    if not always and "render_mode" not in arguments:
        return recipe
    return {**recipe, "arguments": with_mode(arguments)}


def unlisted_names(provenance: dict[str, Any]) -> list[str]:
    """Returns the names to import that neither envkit nor an installed library lists.

    What they list can be made without asking, if its arguments are numbers and words.

    Args:
        provenance: A provenance that has passed `check_provenance`.

    Example:
        >>> from envkit import constructor
        >>> known = constructor("my_game:make_board", size=3).plain_recipe()
        >>> unlisted_names(known)
        ['my_game:make_board']
    """
    names = foreign_names(provenance)
    if names and all(map(_is_listed, names)) and _is_plain(provenance):
        return []
    return names


def _is_listed(name: str) -> bool:
    scheme, _, inner = name.partition(":")
    return scheme in schemes() and inner in (names_in(scheme) or ())


def _is_plain(recipe: dict[str, Any]) -> bool:
    """True if no argument could be a path, an address or a name to import."""
    layers = [recipe, *recipe["wrappers"]]
    texts = (text for layer in layers for text in _texts(layer["arguments"]))
    return not any(mark in text for text in texts for mark in _NOT_PLAIN) and all(
        map(_is_plain, recipe.get("environments", ()))
    )


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for key, item in data.items():
            yield key
            yield from _texts(item)
    elif isinstance(data, list):
        for item in data:
            yield from _texts(item)
