"""Pictures as arrays: NumPy arithmetic, and checks."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from envkit.errors import SpecError
from envkit.extend import describe
from envkit.types import Array

__all__ = [
    "LARGEST_SIZE",
    "check_picture",
    "grayscale",
    "grayscale_of_gymnasium",
    "resize",
    "tiled",
]


# The maximum height and width: a larger picture would fill a computer's memory.
LARGEST_SIZE = 2**15

# ITU-R 601 weights in parts of 2**15, as in OpenCV.
_LUMA = np.array([9798, 19235, 3735], np.float32)
_LUMA.setflags(write=False)
_PARTS = 2**15

# Bytes of floats to process at a time: the size of a processor's cache.
_BLOCK = 2**20


def grayscale(pictures: Array) -> Array:
    """Returns the brightness of each pixel, for pictures with colours last.

    Example:
        >>> grayscale(np.array([[[255, 0, 0], [0, 255, 0], [9, 9, 9]]], np.uint8))
        array([[ 76, 150,   9]], dtype=uint8)
    """

    def brightness(block: Array) -> Array:
        sums: Array = block.astype(np.float32) @ _LUMA
        sums += _PARTS // 2  # uint8 truncates; this rounds halves up
        sums *= 1 / _PARTS
        return sums

    return _in_blocks(brightness, pictures, 3, pictures.shape[-3:-1])


def grayscale_of_gymnasium(pictures: Array) -> Array:
    """Returns pictures as Gymnasium's `GrayscaleObservation` does.

    It uses ITU-R 709 weights and truncates fractions.

    Example:
        >>> colours = np.array([[[255, 0, 0], [0, 255, 0], [9, 9, 9]]], np.uint8)
        >>> grayscale_of_gymnasium(colours)
        array([[ 54, 182,   9]], dtype=uint8)
    """

    def brightness(block: Array) -> Array:
        # The order matters: the last digits decide what is truncated.
        red, green, blue = (block[..., colour] for colour in range(3))
        sums: Array = red * 0.2125
        sums += green * 0.7154
        sums += blue * 0.0721
        return sums

    return _in_blocks(brightness, pictures, 3, pictures.shape[-3:-1])


def resize(pictures: Array, shape: tuple[int, int], *, channels: bool = False) -> Array:
    """Resizes pictures.

    When shrinking, each new pixel is the mean of the area that it covers; when
    enlarging, it is interpolated linearly between old ones. These are OpenCV's
    INTER_AREA and INTER_LINEAR, applied to each dimension separately.

    Args:
        pictures: The pictures.
        shape: The new height and width.
        channels: Whether the last dimension is channels, not the width.

    Example:
        >>> resize(np.array([[0, 10, 20], [0, 10, 20]], np.uint8), (1, 2))
        array([[ 3, 17]], dtype=uint8)
        >>> resize(np.array([[0, 100]], np.uint8), (1, 4))
        array([[  0,  25,  75, 100]], dtype=uint8)
    """
    rank = 3 if channels else 2
    height, width, *depth = pictures.shape[-rank:]
    if (height, width) == tuple(shape):
        return pictures.copy()
    new = (*shape, *depth)
    means = _means((height, width), tuple(shape), depth[0] if channels else 1)
    return _in_blocks(means.of, pictures, rank, new)


def _in_blocks(
    function: Callable[[Array], Array], pictures: Array, rank: int, shape: Any
) -> Array:
    """Applies a function to as many pictures at a time as is efficient."""
    dims = pictures.shape[: pictures.ndim - rank]
    flat = pictures.reshape(-1, *pictures.shape[pictures.ndim - rank :])
    results = np.empty((len(flat), *shape), np.uint8)
    each = 4 * math.prod(flat.shape[1:])
    size = max(1, _BLOCK // max(1, each))
    for start in range(0, len(flat), size):
        results[start : start + size] = function(flat[start : start + size])
    return results.reshape(*dims, *shape)


class _Means(NamedTuple):
    """Computes weighted means over the rows and columns of pictures.

    If the old and new sizes have a common divisor, the weights repeat, and a small
    matrix is applied to each part.

    Attributes:
        shape: The new height and width.
        rows: The weights of one part's rows, as integers: new ones times old ones.
        columns: The weights of one part's columns and channels: old ones times new.
        total: The sum of the weights of each new pixel.
        halves: Whether both sizes are halved. OpenCV then rounds halves up, and
            otherwise to even.
    """

    shape: tuple[int, int]
    rows: Array
    columns: Array
    total: int
    halves: bool

    def of(self, block: Array) -> Array:
        """Returns the new pictures for a block of old ones, as floats."""
        new, old = self.rows.shape
        parts = self.shape[0] // new
        sums: Array = block.astype(self.rows.dtype).reshape(-1, len(self.columns))
        sums = (sums @ self.columns).reshape(len(block), parts, old, -1)
        sums = self.rows @ sums
        sums /= self.total
        if self.halves:
            sums += 0.5  # uint8 truncates
        else:
            np.rint(sums, out=sums)
        return sums.reshape(len(block), *self.shape, *block.shape[3:])


@functools.lru_cache(maxsize=256)
def _means(old: tuple[int, int], new: tuple[int, int], depth: int) -> _Means:
    rows, columns = map(_weights, old, new)
    total = int(rows[0].sum() * columns[0].sum())
    # Sums up to 255 * total must be exact, and no other mean may be rounded to a half.
    dtype = np.float32 if total < 2**16 else np.float64
    by_channel = np.kron(columns.T, np.eye(depth, dtype=np.int64))
    matrices = rows.astype(dtype), np.ascontiguousarray(by_channel, dtype)
    for matrix in matrices:
        matrix.setflags(write=False)
    halves = old == (2 * new[0], 2 * new[1])
    return _Means(new, *matrices, total, halves)


def _weights(old: int, new: int) -> Array:
    """Returns the weights of one of several identical parts."""
    if new > old:
        weights = _lines(old, new)
        return np.asarray(weights // np.gcd.reduce(weights, axis=None))
    parts = math.gcd(old, new)
    return _areas(old // parts, new // parts)


def _areas(old: int, new: int) -> Array:
    """Returns how much of each old pixel each new one covers, in parts of 1 / new."""
    ours = np.arange(new)[:, np.newaxis] * old
    theirs = np.arange(old) * new
    overlap = np.minimum(ours + old, theirs + new) - np.maximum(ours, theirs)
    return np.asarray(np.maximum(overlap, 0))


def _lines(old: int, new: int) -> Array:
    """Returns how near each new pixel is to each old one, in parts of 1 / (2 new)."""
    points = np.arange(new)
    left, beyond = np.divmod((2 * points + 1) * old - new, 2 * new)
    weights = np.zeros((new, old), np.int64)
    # At the edges there is only one old pixel, which gets both shares.
    np.add.at(weights, (points, np.clip(left, 0, old - 1)), 2 * new - beyond)
    np.add.at(weights, (points, np.clip(left + 1, 0, old - 1)), beyond)
    return weights


# Keeps dark pictures apart.
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
    """Returns pictures of one size side by side, in rows from the top left.

    The grid has as many columns as rows, or one more. Thin bars separate the pictures,
    and empty places are grey.

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
    for number, picture in enumerate(pictures):
        line, column = divmod(number, columns)
        cells[line, :height, column, :width] = picture
    canvas = cells.reshape(lines * (height + _GAP), columns * (width + _GAP), colours)
    return canvas[:-_GAP, :-_GAP]
