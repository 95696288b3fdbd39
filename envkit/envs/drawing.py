"""Draws pictures and texts for `render` with NumPy."""

from __future__ import annotations

import numpy as np

from envkit._shared.pixels import grayscale, resize
from envkit.types import Array

__all__ = [
    "Color",
    "canvas",
    "disc",
    "enlarged",
    "line",
    "rectangle",
    "shaded",
    "shades",
    "written",
]

Color = tuple[int, int, int]
Point = tuple[float, float]

_SHADES = np.array(list(" .:-=+*#%@"))
_SHADES.setflags(write=False)
_WIDTH = 60  # of a picture as text, in characters


def canvas(height: int, width: int, color: Color) -> Array:
    """Returns a picture in one colour.

    Example:
        >>> canvas(1, 2, (0, 128, 255)).tolist()
        [[[0, 128, 255], [0, 128, 255]]]
    """
    return np.full((height, width, 3), color, np.uint8)


def enlarged(cells: Array, size: int) -> Array:
    """Returns a picture in which each pixel of `cells` is a square of `size` pixels."""
    return cells.repeat(size, axis=0).repeat(size, axis=1)


def rectangle(
    picture: Array, center: Point, height: float, width: float, color: Color
) -> None:
    """Draws a filled rectangle; points are (row, column), like array indices."""
    rows, columns = _grid(picture)
    picture[
        (np.abs(rows - center[0]) <= height / 2)
        & (np.abs(columns - center[1]) <= width / 2)
    ] = color


def disc(picture: Array, center: Point, radius: float, color: Color) -> None:
    """Draws a filled circle."""
    line(picture, center, center, 2 * radius, color)


def line(picture: Array, start: Point, end: Point, width: float, color: Color) -> None:
    """Draws a line with round ends."""
    # In the part of the picture around it, because most lines are short.
    part = tuple(
        slice(max(int(min(ends) - width), 0), max(int(max(ends) + width) + 1, 0))
        for ends in zip(start, end, strict=True)
    )
    rows, columns = _grid(picture)
    rows, columns = rows[part[0]], columns[:, part[1]]
    down, right = end[0] - start[0], end[1] - start[1]
    # The position of the nearest point along the line, from 0 to 1.
    length = max(down**2 + right**2, 1e-9)
    along = ((rows - start[0]) * down + (columns - start[1]) * right) / length
    along = np.clip(along, 0.0, 1.0)
    away = (rows - start[0] - along * down) ** 2
    away = away + (columns - start[1] - along * right) ** 2
    picture[part][away <= (width / 2) ** 2] = color


def written(cells: Array) -> str:
    """Returns a grid of characters as text.

    Example:
        >>> print(written(np.array([["X", "."], [".", "O"]])))
        X.
        .O
    """
    return "\n".join("".join(line) for line in cells.tolist())


def shades(picture: Array) -> str:
    """Returns a picture as text: one character for two pixels above each other.

    Example:
        >>> print(shades(np.array([[[0] * 3, [255] * 3]] * 2, np.uint8)).strip())
        @
    """
    gray = grayscale(picture).astype(np.int64)
    if len(gray) % 2:
        gray = np.concatenate([gray, np.zeros_like(gray[:1])])
    mean = (gray[::2] + gray[1::2]) // 2
    return written(_SHADES[mean * len(_SHADES) // 256])


def shaded(picture: Array) -> str:
    """Returns a picture as text that fits a terminal; the background is blank."""
    height, width, _ = picture.shape
    share = min(1.0, _WIDTH / width)
    shape = max(1, round(height * share)), max(1, round(width * share))
    picture = resize(picture, shape, channels=True)
    # A picture on white is inverted.
    bright = np.median(grayscale(picture)) > 127
    lines = shades(255 - picture if bright else picture).splitlines()
    return "\n".join(line.rstrip() for line in lines)


def _grid(picture: Array) -> tuple[Array, Array]:
    height, width, _ = picture.shape
    rows, columns = np.ogrid[0:height, 0:width]
    return rows, columns
