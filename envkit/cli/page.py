"""`envkit replay --html`: writes a recording as one page for a browser, offline.

The page contains everything: a script element of JSON for each episode, which is parsed
when you open the episode, and one for the list. Columns are base64 of their bytes, so
that even 100,000 time steps open at once.
"""

from __future__ import annotations

import json
import math
import os
from base64 import b64encode
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from envkit import nest
from envkit.cli.output import unwritable
from envkit.cli.page_pictures import PagePictures
from envkit.errors import RecordingError
from envkit.extend import counted
from envkit.play.game import number_text
from envkit.play.pictures import is_picture
from envkit.play.scene import short
from envkit.provenance import envkit_version
from envkit.recording.stored import Episode, Recording
from envkit.types import Array

__all__ = ["check_replaceable", "environment_names", "wrapper_names", "write_page"]

# Up to this many numbers of a leaf get their own lines; otherwise three summarise them.
_MOST_LINES = 64
_LONGEST_TEXT = 2000
# The values in the line below the picture, unless there are too many numbers.
_CAPTION, _MOST_IN_CAPTION = ("reward", "discount", "action"), 8
_NUMBERS = (bool, int, float, np.integer, np.floating, np.bool_)
_GENERATOR = b'<meta name="generator" content="envkit replay">'


def write_page(
    recording: Recording,
    path: str | os.PathLike[str],
    pictures: PagePictures,
) -> None:
    """Writes the page; it replaces an existing page once it is complete.

    Args:
        recording: The recording.
        path: The path of the page.
        pictures: Its pictures, if there are any.

    Raises:
        RecordingError: The path holds something other than such a page.
    """
    template = files("envkit.cli").joinpath("page.html").read_text("utf-8")
    before, after = template.split("<!-- episodes -->\n")
    target = Path(path)
    check_replaceable(target)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        opened = unfinished.open("w", encoding="utf-8")
    except OSError as error:
        raise unwritable(target, error) from error
    try:
        with opened as file:
            file.write(before)
            plots: list[dict[str, Any]] = []
            episodes = list(_episodes(recording, file, pictures, plots))
            shared = {"plots": plots, "hasPictures": len(pictures) > 0}
            _script(file, "overview", {**_overview(recording, episodes), **shared})
            file.write(after)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def check_replaceable(target: Path) -> None:
    """Raises if a path holds something other than such a page."""
    try:
        with target.open("rb") as file:
            is_page = _GENERATOR in file.read(400)
    except FileNotFoundError:
        return
    if not is_page:
        raise RecordingError(
            f"{str(target)!r} exists already and is not a page of envkit replay. "
            "Give --html another path, or remove the file."
        )


def _script(file: TextIO, name: str, data: Any) -> None:
    # Without "<", no text can close the element.
    text = json.dumps(data, allow_nan=False).replace("<", "\\u003c")
    file.write(f'<script type="application/json" id="{name}">{text}</script>\n')


def _overview(recording: Recording, episodes: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the page's data besides the episodes."""
    known = recording.provenance
    wrappers = wrapper_names(known)
    steps = counted(sum(episode["last"] for episode in episodes), "step")
    rows = recording.batch_size
    parts = [counted(len(episodes), "episode"), steps]
    parts += [] if rows is None else [counted(rows, "row")]
    dropped = sum(event["event"] == "dropped" for event in recording.events)
    parts += [f"{counted(dropped, 'episode')} dropped"] if dropped else []
    unfinished = len(recording.unfinished)
    parts += [f"{counted(unfinished, 'episode')} unfinished"] if unfinished else []
    has_seed = known["seed"] is not None
    seed = short(known["seed"]) if has_seed else "none known"
    written = f"envkit {recording.facts['envkit']}, Python {known['python']}"
    packages = [f"{name} {version}" for name, version in known["packages"].items()]
    origin = [
        ("environment", environment_names(known)),
        ("arguments", short(known["arguments"] or {})),
        ("wrappers", ", ".join(wrappers) or "none"),
        ("seed", seed),
        ("recorded by", written),
        ("packages", ", ".join(packages)),
        ("machine", ", ".join(map(str, known["machine"].values()))),
        ("directory", str(recording.path)),
        ("page by", f"envkit {envkit_version()}"),
    ]
    return {
        "title": f"{environment_names(known)}, {recording.path.name}",
        "subtitle": ", ".join(parts),
        "origin": [pair for pair in origin if pair[1]],
        "provenance": known,
        "episodes": episodes,
    }


def environment_names(recipe: dict[str, Any]) -> str:
    """Returns the names of environments, without the batches that they are in."""
    within = recipe.get("environments", ())
    names = map(environment_names, within) if within else [recipe["id"]]
    return ", ".join(dict.fromkeys(names))


def wrapper_names(recipe: dict[str, Any]) -> list[str]:
    """Returns the names of the wrappers, from the outside in, and of a batch."""
    around = [layer["class"] for layer in recipe["wrappers"]]
    around += [recipe["class"] or recipe["id"]] if "environments" in recipe else []
    return [name.rpartition(":")[2] for name in around]


def _episodes(
    recording: Recording,
    file: TextIO,
    pictures: PagePictures,
    plots: list[dict[str, Any]],
) -> Iterator[dict[str, Any]]:
    """Writes the episodes; returns the list's facts about each."""
    for number, episode in enumerate(recording.episodes()):
        found = _EpisodeData(recording, episode, plots)
        film = pictures.film(episode)
        data = {"columns": found.columns, "texts": found.texts, "pictures": film}
        _script(file, f"data-{number}", data)
        of = "" if recording.batch_size is None else f"row {episode.row}, "
        yield {
            "name": f"{of}episode {episode.number}",
            "last": len(episode) - 1,
            "length": counted(len(episode) - 1, "step"),
            **_return(recording, episode),
            **_end(recording, episode),
            "repaired": _repaired(recording, episode),
        }


def _return(recording: Recording, episode: Episode) -> dict[str, Any]:
    """Returns the sum of the rewards, as text and as a number to sort by."""
    with np.errstate(invalid="ignore", over="ignore"):  # rewards may be infinite
        sums = [
            np.asarray(episode.column(name)[1:], np.float64).sum(0)
            for name in recording.layout.steps
            if name.startswith("reward")
        ]
        total = float(sum(one.sum() for one in sums))
    number = total if math.isfinite(total) else None
    return {"return": number_text(sums), "number": number}


def _end(recording: Recording, episode: Episode) -> dict[str, Any]:
    """Returns how the episode ended."""
    if episode.ended != "last":
        why = f"cut short by {'close' if episode.ended == 'closed' else episode.ended}"
        sentence = f"The episode was {why}."
        return {"isOver": False, "mark": "left", "ended": why, "sentence": sentence}
    discounts = [
        np.asarray(episode.column(name)[-1])
        for name in recording.layout.steps
        if name.startswith("discount")
    ]
    mark = "truncated" if any(one.any() for one in discounts) else "terminated"
    sentence = f"{mark.capitalize()}: the discount is {number_text(discounts)}."
    return {"isOver": True, "mark": mark, "ended": mark, "sentence": sentence}


def _repaired(recording: Recording, episode: Episode) -> str | None:
    """Returns a sentence about the loss of the environment, if it was lost."""
    loss = recording.loss_of(episode)
    if loss is None:
        return None
    return f"The environment was lost here ({loss.kind}): this end is made up."


class _EpisodeData:
    """Holds an episode's plots and texts for each time step.

    Attributes:
        columns: The data to draw: the number of the plot, a dtype, and bytes as base64.
        texts: By name and time step, values that cannot be plotted.
    """

    def __init__(
        self, recording: Recording, episode: Episode, plots: list[dict[str, Any]]
    ) -> None:
        """Extracts the data of an episode.

        Args:
            recording: The recording.
            episode: One of its episodes.
            plots: The facts about the plots of all episodes; it grows.
        """
        self.columns: list[tuple[int, str, str]] = []
        self._plots = plots
        self.texts: dict[str, dict[int, str]] = {}
        layout = recording.layout
        names = [name for name in layout.steps if name != "step_type"]
        scalars = [name for name in names if name.startswith(("reward", "discount"))]
        others = [name for name in names if name not in scalars]
        for name in (*scalars, *layout.actions, *others):
            self._add(name, episode.column(name))
        self._count = len(episode)
        if episode.has_info:
            for name in layout.infos:
                self._add(name, episode.column(name))
            self._add_sparse("info", enumerate(episode.column("info")))
        self._add_sparse(
            "note", ((step, episode.annotations(step)) for step in range(self._count))
        )

    def _add(self, name: str, column: Array | list[Any]) -> None:
        if isinstance(column, list) or column.dtype.kind not in "biuf":
            lines = {step: _text(value) for step, value in enumerate(column)}
            self.texts[name] = lines
            return
        is_float = column.dtype.kind == "f"
        flat = column.reshape(len(column), -1)
        labels = [""]
        if flat.shape[1] > _MOST_LINES:
            wide = np.float32 if flat.dtype == np.uint8 else np.float64
            with np.errstate(invalid="ignore", over="ignore"):  # they may be infinite
                parts = [flat.mean(1, dtype=wide), flat.min(1), flat.max(1)]
            flat = np.stack(parts, 1).astype(wide)
            labels = ["mean", "least", "greatest"]
        elif column.ndim > 1:
            labels = [str(list(index)) for index in np.ndindex(column.shape[1:])]
        if not labels:
            return
        kept = _as_javascript_has_it(flat)
        plot = {
            "name": name,
            "labels": labels,
            "summary": labels[0] == "mean",
            "steps": not is_float,
            "inCaption": name.startswith(_CAPTION) and len(labels) <= _MOST_IN_CAPTION,
        }
        if plot not in self._plots:
            self._plots.append(plot)
        data = b64encode(kept.tobytes()).decode()
        self.columns.append((self._plots.index(plot), kept.dtype.str[1:], data))

    def _add_sparse(self, name: str, values: Iterable[tuple[int, Any]]) -> None:
        """Adds values that only some time steps have; numbers become plots."""
        numbers: dict[str, dict[int, Any]] = {}
        texts: dict[int, Any] = {}
        for step, value in values:
            for path, leaf in nest.flatten_with_paths(value) if value else ():
                known = numbers.get(path)
                if known is None and len(numbers) < _MOST_LINES and _is_few(leaf):
                    known = numbers[path] = {}
                if known is not None and _is_few(
                    leaf, next(iter(known.values()), leaf)
                ):
                    known[step] = leaf
                elif not is_picture(leaf):
                    texts.setdefault(step, {})[path] = leaf
        for path, found in numbers.items():
            leaves = np.array(list(found.values()), np.float64)
            column = np.full((self._count, *leaves.shape[1:]), np.nan)
            column[list(found)] = leaves
            self._add(f"{name}{path}", column)
        if texts:
            self.texts[name] = {
                step: "\n".join(
                    f"{path}  {_text(leaf)}" for path, leaf in found.items()
                )
                for step, found in texts.items()
            }


def _is_few(leaf: Any, like: Any = None) -> bool:
    """Returns True for few enough numbers to draw as lines."""
    if isinstance(leaf, _NUMBERS):
        return like is None or np.ndim(like) == 0
    return (
        isinstance(leaf, np.ndarray)
        and leaf.dtype.kind in "biuf"
        and leaf.size <= _MOST_LINES
        and (like is None or np.shape(like) == leaf.shape)
    )


def _as_javascript_has_it(column: Array) -> Array:
    """Returns the same numbers in a dtype that JavaScript has arrays of."""
    kind, size = column.dtype.kind, column.dtype.itemsize
    if kind == "b":
        return column.view(np.uint8)
    if kind == "f":
        return column.astype("<f4" if size <= 4 else "<f8")
    if size == 8 and column.size:
        small = np.iinfo(np.int32)
        if column.min() >= small.min and column.max() <= small.max:
            return column.astype("<i4")
    return column.astype(column.dtype.newbyteorder("<"))


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else short(value)
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
