"""Shows an environment as a picture or text, and pictures in a terminal."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.color import Color
from rich.segment import Segment, Segments
from rich.style import Style

from envkit import nest
from envkit._shared.pixels import resize
from envkit.play.pictures import is_picture, observed_picture
from envkit.time_step import TimeStep
from envkit.types import Array

__all__ = [
    "Scene",
    "columns_of",
    "fitted",
    "half_blocks",
    "short",
    "side_by_side",
    "view_of",
]

# A picture, or text.
Scene = Any
_TEXT_MODES = ("ansi", "text")
_LONGEST = 60


def view_of(env: Any) -> tuple[Callable[[TimeStep], Scene], str]:
    """Returns a function from time steps to scenes, and why they are not rendered.

    A scene is the environment's rendered picture or text; or else a picture in its
    observation; or else the observation as text.
    """
    why = ""
    try:
        if is_picture(env.render("rgb_array")):
            return lambda _: env.render("rgb_array"), ""
        why = "render('rgb_array') returned no picture."
    except Exception as error:  # there are other ways
        why = " ".join(str(error).split())
    for mode in _TEXT_MODES:
        if _renders_text(env, mode):
            return lambda _, mode=mode: env.render(mode), ""
    look = observed_picture(env.observation_spec())
    if look is not None:
        return lambda time_step: look(time_step.observation), why
    return lambda time_step: short(time_step.observation), why


def short(observation: Any) -> str:
    """Writes an observation, one line per leaf.

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


def fitted(picture: Array, height: int, width: int) -> Array:
    """Returns a picture that fills the available space.

    Smaller pictures grow by whole factors, so that squares stay squares.

    Example:
        >>> fitted(np.zeros((10, 5, 3), np.uint8), 40, 160).shape
        (40, 20, 3)
        >>> fitted(np.zeros((210, 160, 3), np.uint8), 42, 80).shape
        (42, 32, 3)
    """
    rows, columns = picture.shape[:2]
    times = min(height // rows, width // columns)
    if times >= 1:
        return picture.repeat(times, axis=0).repeat(times, axis=1)
    share = min(height / rows, width / columns)
    shape = max(1, int(rows * share)), max(1, int(columns * share))
    return resize(picture, shape, channels=True)


def half_blocks(picture: Array) -> Segments:
    """Returns a coloured picture, one character for two pixels above each other.

    Example:
        >>> blocks = half_blocks(np.zeros((3, 4, 3), np.uint8))
        >>> "".join(segment.text for segment in blocks.segments).split()
        ['▀▀▀▀', '▀▀▀▀']
    """
    if len(picture) % 2:
        picture = np.concatenate([picture, np.zeros_like(picture[:1])])
    packed = picture.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
    segments = []
    for upper, lower in zip(packed[::2].tolist(), packed[1::2].tolist(), strict=True):
        for points, run in itertools.groupby(zip(upper, lower, strict=True)):
            length = sum(1 for _ in run)
            segments.append(Segment("▀" * length, _style(*points)))
        segments.append(Segment.line())
    return Segments(segments)


@functools.lru_cache(maxsize=1 << 14)
def _style(upper: int, lower: int) -> Style:
    return Style(color=_color(upper), bgcolor=_color(lower))


def _color(packed: int) -> Color:
    return Color.from_rgb(packed >> 16, packed >> 8 & 255, packed & 255)


_GAP = "    "


def columns_of(text: str, height: int) -> list[list[str]]:
    r"""Splits the lines of a text into columns of at most `height` lines.

    Example:
        >>> columns_of("a\nb\nc", 2)
        [['a', 'b'], ['c']]
    """
    lines = text.splitlines() or [""]
    height = max(1, height)
    return [lines[start : start + height] for start in range(0, len(lines), height)]


def side_by_side(text: str, height: int) -> str:
    r"""Returns a text in columns of at most `height` lines.

    Example:
        >>> print(side_by_side("left\na\nright", 2))
        left    right
        a
    """
    columns = columns_of(text, height)
    widths = [max(map(len, column)) for column in columns]
    rows = []
    for number in range(len(columns[0])):
        cells = [
            (column[number] if number < len(column) else "").ljust(width)
            for column, width in zip(columns, widths, strict=True)
        ]
        rows.append(_GAP.join(cells).rstrip())
    return "\n".join(rows)
