"""Rectangle encodings, for both ends of a connection.

Each end has one `Codec`, because its zlib streams continue from one rectangle to the
next. Sizes from the other end are not trusted: each is checked before memory is
allocated, and a compressed rectangle is unpacked only as far as its pixels reach.

| number | encoding       | data after the rectangle's header                          |
|--------|----------------|------------------------------------------------------------|
| 0      | `RAW`          | the pixels                                                 |
| 1      | `COPY`         | the previous position of these pixels in the picture       |
| 6      | `ZLIB`         | a length, and the pixels in one zlib stream                |
| 7      | `TIGHT`        | filtered pixels in four zlib streams, or JPEG              |
| 16     | `ZRLE`         | a length, and tiles of 64 x 64 in another stream           |
| -223   | `DESKTOP_SIZE` | nothing: the header has the new size of the desktop        |
| -239   | `CURSOR`       | the pointer's picture, and which of its pixels are opaque  |
| -307   | `NAME`         | the new name of the desktop                                |
| -20011 | `ROLE`         | nothing: the header's x is 1 if the viewer controls, its y |
|        |                | is 1 if it may; envkit's own, for its browser page         |
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import NamedTuple

import numpy as np

from envkit.desktop import zrle
from envkit.desktop.errors import DesktopError
from envkit.desktop.pixels import Packer, PixelFormat, Rectangle, Unpacker
from envkit.desktop.protocol import checked_name_length
from envkit.desktop.tight import WIDEST, Tight
from envkit.types import Array

__all__ = [
    "COPY",
    "CURSOR",
    "DESKTOP_SIZE",
    "ENCODINGS",
    "NAME",
    "QUALITY",
    "RAW",
    "ROLE",
    "TIGHT",
    "ZLIB",
    "ZRLE",
    "Codec",
    "Cursor",
    "Decoder",
    "blocks_of",
    "read_name",
]

RAW, COPY, ZLIB, TIGHT, ZRLE = 0, 1, 6, 7, 16
DESKTOP_SIZE, CURSOR, NAME, ROLE = -223, -239, -307, -20011
# The first of ten numbers with which a viewer allows JPEG of quality 0 to 9.
QUALITY = -32
# The pixel encodings that a server chooses from.
ENCODINGS = {"raw": RAW, "zlib": ZLIB, "tight": TIGHT, "zrle": ZRLE}

# Yields the number of bytes that it needs next, and is sent them.
Decoder = Generator[int, bytes, None]

_LENGTH = struct.Struct(">I")
_PLACE = struct.Struct(">HH")
# Bytes of raw pixels that are read at a time.
_PART = 1 << 18
_LARGEST_CURSOR = 1 << 16


class Cursor(NamedTuple):
    """Holds the pointer's picture.

    Attributes:
        picture: Height, width, and red, green, blue and opacity: 0 or 255.
        x: The column of the pixel that points.
        y: The row of that pixel.
    """

    picture: Array
    x: int
    y: int


class Codec:
    """Encodes and decodes rectangles; each end of a connection has one.

    Attributes:
        format: The pixel format, which may change between two rectangles.
        quality: The JPEG quality in tight, from 0 to 9; `None` for no JPEG.

    Example:
        >>> picture = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
        >>> sent = Codec(PixelFormat()).encode(ZRLE, picture)
        >>> shown = np.zeros_like(picture)
        >>> reading = Codec(PixelFormat()).decode(ZRLE, Rectangle(0, 0, 2, 2), shown)
        >>> count = next(reading)  # it asks for bytes until it has drawn
        >>> count = reading.send(sent[:count])
        >>> reading.send(sent[4:])
        Traceback (most recent call last):
        StopIteration
        >>> np.array_equal(picture, shown)
        True
    """

    def __init__(self, pixel_format: PixelFormat, quality: int | None = None) -> None:
        """Begins the zlib streams."""
        self.format, self.quality = pixel_format, quality
        self._packers = {number: Packer() for number in (ZLIB, ZRLE)}
        self._unpackers = {number: Unpacker() for number in (ZLIB, ZRLE)}
        self._tight = Tight()

    def encode(self, encoding: int, picture: Array) -> bytes:
        """Returns the data of a rectangle with these pixels, without its header."""
        if encoding == RAW:
            return self.format.encode(picture)
        if encoding == TIGHT:
            return self._tight.encode(self.format, picture, self.quality)
        if encoding == ZLIB:
            return self._packed(ZLIB, self.format.encode(picture))
        return self._packed(ZRLE, zrle.encode(self.format, picture))

    def decode(self, encoding: int, place: Rectangle, picture: Array) -> Decoder:
        """Draws a rectangle; yields how many bytes it needs next, and is sent them.

        Raises:
            DesktopError: The bytes do not fit the encoding.
        """
        _, _, width, height = place
        if not place.area:
            return
        drawn = place.of(picture)
        if encoding == RAW:
            # By rows, so that a large rectangle is not in memory twice.
            row = width * self.format.size
            for y in range(0, height, count := max(1, _PART // row)):
                rows = min(count, height - y)
                data = yield rows * row
                drawn[y : y + rows] = self.format.decode(data, width, rows)
        elif encoding == COPY:
            x, y = _PLACE.unpack((yield _PLACE.size))
            source = Rectangle(x, y, width, height)
            source.check_inside(picture)
            drawn[:] = source.of(picture).copy()
        elif encoding == ZLIB:
            size = place.area * self.format.size
            data = yield from self._unpacked(ZLIB, size, "zlib")
            drawn[:] = self.format.decode(data, width, height)
        elif encoding == ZRLE:
            most = zrle.most_bytes(self.format, width, height)
            data = yield from self._unpacked(ZRLE, most)
            drawn[:] = zrle.decode(self.format, data, width, height)
        elif encoding == TIGHT:
            drawn[:] = yield from self._tight.decode(self.format, width, height)
        else:
            raise DesktopError(
                f"The encoding of a rectangle must be one of those that were asked "
                f"for, got {encoding}."
            )

    def encode_cursor(self, cursor: Cursor) -> bytes:
        """Returns the data of a rectangle with the pointer, without its header."""
        opaque = cursor.picture[..., 3] > 0
        pixels = self.format.encode(cursor.picture[..., :3])
        return pixels + np.packbits(opaque, axis=1).tobytes()

    def decode_cursor(self, place: Rectangle) -> Generator[int, bytes, Cursor]:
        """Reads the pointer's picture.

        Raises:
            DesktopError: The picture is too large.
        """
        x, y, width, height = place
        if place.area > _LARGEST_CURSOR:
            raise DesktopError(
                f"A pointer must have at most {_LARGEST_CURSOR} pixels, got {width} x "
                f"{height}."
            )
        picture: Array = np.zeros((height, width, 4), np.uint8)
        if place.area:
            pixels = yield place.area * self.format.size
            bits = yield -(-width // 8) * height
            rows = np.frombuffer(bits, np.uint8).reshape(height, -1)
            picture[..., :3] = self.format.decode(pixels, width, height)
            picture[..., 3] = np.unpackbits(rows, axis=1)[:, :width] * 255
        return Cursor(picture, x, y)

    def _packed(self, encoding: int, data: bytes) -> bytes:
        packed = self._packers[encoding].pack(data)
        return _LENGTH.pack(len(packed)) + packed

    def _unpacked(
        self, encoding: int, most: int, exact: str = ""
    ) -> Generator[int, bytes, bytes]:
        (length,) = _LENGTH.unpack((yield _LENGTH.size))
        data = yield from self._unpackers[encoding].read(length, most, exact)
        return data


def read_name() -> Generator[int, bytes, str]:
    """Reads the name of a desktop.

    Raises:
        DesktopError: The name is too long.
    """
    length = checked_name_length(*_LENGTH.unpack((yield _LENGTH.size)))
    return (yield length).decode("utf-8", "replace") if length else ""


def blocks_of(encoding: int, place: Rectangle) -> list[Rectangle]:
    """Splits a rectangle into ones that are small enough for the encoding.

    Example:
        >>> blocks_of(RAW, Rectangle(0, 0, 3000, 5))
        [Rectangle(x=0, y=0, width=3000, height=5)]
        >>> [block.width for block in blocks_of(TIGHT, Rectangle(0, 0, 3000, 5))]
        [2048, 952]
    """
    if encoding != TIGHT:
        return [place]
    # Larger blocks could exceed the 22 bits of a length.
    rows = 256
    return [
        Rectangle(
            x,
            y,
            min(WIDEST, place.x + place.width - x),
            min(rows, place.y + place.height - y),
        )
        for y in range(place.y, place.y + place.height, rows)
        for x in range(place.x, place.x + place.width, WIDEST)
    ]
