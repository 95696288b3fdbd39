"""Encodes pictures as PNG, and decodes them, without a package for pictures."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from envkit._shared.pixels import LARGEST_SIZE, resize
from envkit.types import Array

__all__ = ["pixels_of", "png_of", "png_size", "shrunk"]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Length, "IHDR", width, height, depth, kind of colours, and three zeros.
_HEADER = struct.Struct(">I4sIIBBBBB")
_GRAY, _COLOURS = 0, 2
_UP = 2  # the filter: each row as its difference from the row above


def png_of(picture: Array) -> bytes:
    """Encodes a picture of uint8, with the colours last; loses nothing.

    Example:
        >>> picture = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
        >>> bool((pixels_of(png_of(picture)) == picture).all())
        True
    """
    height, width = picture.shape[:2]
    is_gray = bool((picture == picture[..., :1]).all())
    points = picture[..., :1] if is_gray else picture
    rows = np.ascontiguousarray(points).reshape(height, -1)
    lines = np.full((height, rows.shape[1] + 1), _UP, np.uint8)
    lines[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=lines[1:, 1:])
    kind = _GRAY if is_gray else _COLOURS
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines.tobytes(), 4)),
        (b"IEND", b""),
    ]
    parts = [
        struct.pack(">I", len(data))
        + name
        + data
        + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    ]
    return _SIGNATURE + b"".join(parts)


def png_size(data: bytes) -> tuple[int, int]:
    """Returns the height and width of a picture that `png_of` has encoded.

    Raises:
        ValueError: It is no such picture.
    """
    height, width, _ = _shape(data)
    return height, width


def _shape(data: bytes) -> tuple[int, int, int]:
    start = len(_SIGNATURE)
    if data[:start] != _SIGNATURE or len(data) < start + _HEADER.size:
        raise ValueError("it is not a PNG picture")
    _, name, width, height, depth, kind, *rest = _HEADER.unpack_from(data, start)
    is_ours = name == b"IHDR" and depth == 8 and kind in (_GRAY, _COLOURS)
    sizes = 0 < width <= LARGEST_SIZE and 0 < height <= LARGEST_SIZE
    if not (is_ours and sizes) or any(rest):
        raise ValueError("it is a PNG picture that envkit has not written")
    return height, width, 1 if kind == _GRAY else 3


def pixels_of(data: bytes) -> Array:
    """Decodes a picture that `png_of` has encoded.

    Raises:
        ValueError: It is no such picture.
    """
    height, width, depth = _shape(data)
    start = len(_SIGNATURE) + _HEADER.size + 4  # the checksum
    (length,) = struct.unpack_from(">I", data, start)
    packed = data[start + 8 : start + 8 + length]
    expected = height * (width * depth + 1)
    # A damaged picture may unpack to any number of bytes.
    unpacked = zlib.decompressobj().decompress(packed, expected + 1)
    if data[start + 4 : start + 8] != b"IDAT" or len(unpacked) != expected:
        raise ValueError("it is a PNG picture that envkit has not written")
    lines = np.frombuffer(unpacked, np.uint8).reshape(height, -1)
    if (lines[:, 0] != _UP).any():
        raise ValueError("it is a PNG picture that envkit has not written")
    rows = np.add.accumulate(lines[:, 1:], axis=0, dtype=np.uint8)
    points = rows.reshape(height, width, depth)
    return points if depth == 3 else np.repeat(points, 3, axis=-1)


def shrunk(picture: Array, side: int) -> Array:
    """Returns a picture whose longer side has at most `side` pixels.

    Example:
        >>> shrunk(np.zeros((40, 1280, 3), np.uint8), 640).shape
        (20, 640, 3)
    """
    height, width = picture.shape[:2]
    factor = side / max(height, width)
    if factor >= 1:
        return picture
    smaller = max(1, round(height * factor)), max(1, round(width * factor))
    return resize(picture, smaller, channels=True)
