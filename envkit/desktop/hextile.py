"""Hextile: tiles of 16 x 16 pixels, plain, or rectangles on a background.

| bit of the first byte | what follows                                             |
|-----------------------|----------------------------------------------------------|
| 1                     | the pixels, and nothing else                             |
| 2                     | the colour of the background, else that of the last tile |
| 4                     | the colour of all rectangles, else that of the last tile |
| 8                     | their number, and each one: its place and its size       |
| 16                    | each one has its colour before its place                 |
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import numpy as np

from envkit.desktop.pixels import PixelFormat
from envkit.desktop.protocol import DesktopError
from envkit.types import Array

__all__ = ["decode", "encode"]

_TILE = 16
_PLAIN, _BACKGROUND, _FOREGROUND, _RECTANGLES, _COLOURED = 1, 2, 4, 8, 16


def encode(pixel_format: PixelFormat, picture: Array) -> bytes:
    """Returns the tiles of a picture.

    Example:
        >>> encode(PixelFormat(), np.full((2, 20, 3), 7, np.uint8)).hex()
        '02070707000207070700'
    """
    numbers = pixel_format.numbers(picture)
    return b"".join(_encoded(pixel_format, tile) for tile in _tiles(numbers))


def decode(
    pixel_format: PixelFormat, width: int, height: int
) -> Generator[int, bytes, Array]:
    """Reads the tiles of a rectangle, and returns its picture.

    Raises:
        DesktopError: They are no tiles.
    """
    numbers = np.empty((height, width), pixel_format.dtype)
    size = pixel_format.size
    background = foreground = np.zeros(1, pixel_format.dtype)
    for tile in _tiles(numbers):
        (kind,) = yield 1
        if kind & _PLAIN:
            data = yield tile.size * size
            tile[:] = np.frombuffer(data, tile.dtype).reshape(tile.shape)
            continue
        if kind & _BACKGROUND:
            background = np.frombuffer((yield size), tile.dtype)
        if kind & _FOREGROUND:
            foreground = np.frombuffer((yield size), tile.dtype)
        tile[:] = background
        if not kind & _RECTANGLES:
            continue
        (count,) = yield 1
        each = 2 + (size if kind & _COLOURED else 0)
        if not count:
            continue
        rows = np.frombuffer((yield count * each), np.uint8).reshape(count, each)
        x, y = rows[:, -2] >> 4, rows[:, -2] & 15
        right, bottom = x + (rows[:, -1] >> 4) + 1, y + (rows[:, -1] & 15) + 1
        if right.max() > tile.shape[1] or bottom.max() > tile.shape[0]:
            raise DesktopError(
                f"A rectangle of hextile must be inside its tile of {tile.shape[1]} x "
                f"{tile.shape[0]}, got one up to {right.max()}, {bottom.max()}."
            )
        colours = np.broadcast_to(foreground, count)
        if kind & _COLOURED:
            colours = np.ascontiguousarray(rows[:, :size]).view(tile.dtype)[:, 0]
        places = zip(*(each.tolist() for each in (x, y, right, bottom)), strict=True)
        for (left, top, end, low), colour in zip(places, colours, strict=True):
            tile[top:low, left:end] = colour
    return pixel_format.colours(numbers)


def _tiles(array: Array) -> Iterator[Array]:
    height, width = array.shape[:2]
    for y in range(0, height, _TILE):
        for x in range(0, width, _TILE):
            yield array[y : y + _TILE, x : x + _TILE]


def _encoded(pixel_format: PixelFormat, tile: Array) -> bytes:
    """Encodes a tile: runs within its rows on a background, or its pixels."""
    palette, counts = np.unique(tile, return_counts=True)
    most = np.argmax(counts)
    background = palette[most : most + 1]  # A scalar would lose the order of its bytes.
    head: bytes = background.tobytes()
    if len(palette) == 1:
        return bytes([_BACKGROUND]) + head
    plain: bytes = bytes([_PLAIN]) + tile.tobytes()
    if len(palette) > tile.size // 2:
        return plain
    starts = np.ones(tile.shape, bool)
    starts[:, 1:] = tile[:, 1:] != tile[:, :-1]
    y, x = np.nonzero(starts)
    ends = np.append(x[1:], tile.shape[1])
    ends[np.append(y[1:] != y[:-1], True)] = tile.shape[1]
    drawn = tile[y, x] != background
    y, x, ends = y[drawn], x[drawn], ends[drawn]
    size = pixel_format.size if len(palette) > 2 else 0
    if len(x) > 255 or len(x) * (2 + size) >= tile.size * pixel_format.size:
        return plain
    colours = tile[y, x]
    rows = np.empty((len(x), size + 2), np.uint8)
    rows[:, -2] = x << 4 | y
    rows[:, -1] = ends - x - 1 << 4
    kind = _BACKGROUND | _RECTANGLES
    if size:
        rows[:, :size] = colours.view(np.uint8).reshape(-1, size)
        kind |= _COLOURED
    else:
        head += colours[:1].tobytes()
        kind |= _FOREGROUND
    return bytes([kind]) + head + bytes([len(x)]) + rows.tobytes()
