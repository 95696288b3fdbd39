"""Pictures in a terminal: two points above one another in each character."""

from __future__ import annotations

import functools
import itertools

import numpy as np
from rich.color import Color
from rich.segment import Segment, Segments
from rich.style import Style

from envkit.types import Array
from envkit.wrappers.pictures.arithmetic import resize

__all__ = ["fitted", "half_blocks"]


def fitted(picture: Array, height: int, width: int) -> Array:
    """Returns a picture that is as large as there is room for.

    What is smaller grows by whole numbers, so that squares stay squares.

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
    """Returns a picture in colours, a character for two points above one another.

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
