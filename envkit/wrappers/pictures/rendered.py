"""What `render("rgb_array")` returns: looked at, and put side by side."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from envkit.errors import SpecError
from envkit.specs.validation import describe
from envkit.types import Array

__all__ = ["check_picture", "tiled"]

# So that dark pictures do not run into one another.
_GAP = 2
_GREY = 96


def check_picture(picture: Any, dims: tuple[int, ...], source: str) -> None:
    """Raises unless `source` returned a picture, or a batch one for each row.

    Example:
        >>> check_picture(np.zeros((4, 6, 3)), (), "render()")
        Traceback (most recent call last):
        envkit.errors.SpecError: render() did not return a picture.
        <BLANKLINE>
          expected   uint8 array of shape (height, width, 3)
          got        array of shape (4, 6, 3), dtype float64, values 0.0 … 0.0
        <BLANKLINE>
        Colours last, values from 0 to 255.
    """
    if (
        isinstance(picture, np.ndarray)
        and picture.dtype == np.uint8
        and picture.ndim == len(dims) + 3
        and picture.shape[: len(dims)] == dims
        and picture.shape[-1] == 3
        and picture.size
    ):
        return
    rows = f"{dims[0]}, " if dims else ""
    each = "One picture for each row, colours last" if dims else "Colours last"
    raise SpecError(
        f"{source} did not return a picture.\n\n"
        f"  expected   uint8 array of shape ({rows}height, width, 3)\n"
        f"  got        {describe(picture)}\n\n"
        f"{each}, values from 0 to 255."
    )


def tiled(pictures: Array) -> Array:
    """Returns pictures of one size side by side, in lines from the top left.

    As many stand beside as above one another, or one more. Thin bars part them, and
    places without a picture are grey.

    Example:
        >>> tiled(np.zeros((3, 10, 20, 3), np.uint8)).shape
        (22, 42, 3)
    """
    count, height, width, colours = pictures.shape
    columns = math.isqrt(count - 1) + 1
    lines = -(-count // columns)
    cells = np.full(
        (lines, height + _GAP, columns, width + _GAP, colours), _GREY, np.uint8
    )
    for place, picture in enumerate(pictures):
        line, column = divmod(place, columns)
        cells[line, :height, column, :width] = picture
    canvas = cells.reshape(lines * (height + _GAP), columns * (width + _GAP), colours)
    return canvas[:-_GAP, :-_GAP]
