"""What there is to see of an environment: a picture, its own text, or numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from envkit import nest
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.time_step import TimeStep
from envkit.types import Array, NestedSpec

__all__ = ["Scene", "is_picture", "observed_picture", "short", "view_of"]

# A picture, or text.
Scene = Any
_TEXT_MODES = ("ansi", "text")
_LONGEST = 60


def view_of(env: Any) -> tuple[Callable[[TimeStep], Scene], str]:
    """Returns what shows an environment that has begun, and why it is no picture.

    That is what it renders, as a picture or as text; otherwise a picture that it
    observes; otherwise its observation in short.
    """
    why = ""
    try:
        if is_picture(env.render("rgb_array")):
            return lambda _: env.render("rgb_array"), ""
        why = "render('rgb_array') returned no picture."
    except Exception as error:  # whatever it is, there are other ways
        why = " ".join(str(error).split())
    for mode in _TEXT_MODES:
        if _renders_text(env, mode):
            return lambda _, mode=mode: env.render(mode), ""
    look = observed_picture(env.observation_spec())
    if look is not None:
        return lambda time_step: look(time_step.observation), why
    return lambda time_step: short(time_step.observation), why


def is_picture(picture: Any) -> bool:
    """Says whether it is a picture, with the colours last."""
    return (
        isinstance(picture, np.ndarray)
        and picture.dtype == np.uint8
        and picture.ndim == 3
        and picture.shape[-1] == 3
        and picture.size > 0
    )


def observed_picture(spec: NestedSpec) -> Callable[[Any], Array] | None:
    """Returns what makes a picture of an observation, if there is one in it.

    Example:
        >>> from envkit.envs import Catch
        >>> env = Catch(seed=1)
        >>> observed_picture(env.observation_spec())(env.reset().observation).shape
        (10, 5, 3)
    """
    for number, (_, leaf) in enumerate(nest.flatten_with_paths(spec)):
        change = _as_picture(leaf)
        if change is not None:
            return lambda observation, number=number, change=change: change(  # type: ignore[misc]  # likewise
                np.asarray(nest.flatten(observation)[number])
            )
    return None


def short(observation: Any) -> str:
    """Writes an observation, a line for each leaf.

    Example:
        >>> print(short({"board": np.eye(2), "turn": np.array(1)}))
        board  [[1. 0.] [0. 1.]]
        turn   1
    """
    lines = []
    for path, leaf in nest.flatten_with_paths(observation):
        name = path.removeprefix("['").replace("']['", ".").removesuffix("']")
        lines.append((name, _shortened(leaf)))
    width = max((len(name) for name, _ in lines), default=0)
    return "\n".join(f"{name:{width}}  {text}".strip() for name, text in lines)


def _shortened(leaf: Any) -> str:
    array = np.asarray(leaf)
    text = np.array2string(array, precision=3, threshold=30, edgeitems=2)
    text = " ".join(text.split()) if array.dtype != object else repr(leaf)
    if array.size > 30:
        text = f"{array.dtype} {array.shape}: {text}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _renders_text(env: Any, mode: str) -> bool:
    try:
        return isinstance(env.render(mode), str)
    except Exception:  # likewise
        return False


def _as_picture(spec: Any) -> Callable[[Array], Array] | None:
    """Returns what makes a picture of a leaf; `None` if it is none."""
    if not isinstance(spec, BoundedArraySpec):
        is_bytes = isinstance(spec, ArraySpec) and spec.dtype == np.uint8
        if not is_bytes:
            return None
        spec = BoundedArraySpec(spec.shape, np.uint8)
    if spec.dtype.kind not in "iuf" or len(spec.shape) not in (2, 3):
        return None
    low, high = float(spec.minimum.min()), float(spec.maximum.max())
    # Without limits it is a matrix of something else.
    if not 0.0 < high - low <= 65535.0:
        return None
    place = _place_of_colours(spec.shape)
    if place is None:
        return None

    def change(leaf: Array) -> Array:
        if leaf.ndim == 3:
            leaf = np.moveaxis(leaf, place, -1)
            # Beyond colours it is a stack of pictures, the newest last.
            leaf = leaf[..., :3] if leaf.shape[-1] in (3, 4) else leaf[..., -1]
        if spec.dtype != np.uint8:
            share = (leaf.astype(np.float64) - low) / (high - low)
            leaf = np.clip(share * 255.0, 0.0, 255.0).astype(np.uint8)
        if leaf.ndim == 2:
            leaf = np.repeat(leaf[..., np.newaxis], 3, axis=-1)
        return np.ascontiguousarray(leaf)

    return change


def _place_of_colours(shape: tuple[int, ...]) -> int | None:
    """Returns which axis has the colours, or the pictures of a stack."""
    if len(shape) == 2:
        return -1 if min(shape) >= 3 else None
    for place in (-1, 0):
        sides = shape[:-1] if place else shape[1:]
        if shape[place] <= 8 and min(sides) >= 3:
            return place
    return None
