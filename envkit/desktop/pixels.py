"""Pixels on the wire: their formats, and the encodings of rectangles, for both ends.

A picture is an array of height, width and red, green, blue, of uint8. Each end of a
connection has one `Codec`, because the streams of zlib go on from one rectangle to the
next. No size that the other end names is trusted: each is checked before memory is
taken for it, and a compressed rectangle is unpacked as far as its pixels reach.

| number | encoding       | what follows the header of the rectangle                   |
|--------|----------------|------------------------------------------------------------|
| 0      | `RAW`          | the pixels                                                 |
| 1      | `COPY`         | where in the picture the rectangle was before              |
| 6      | `ZLIB`         | a length, and the pixels in one stream of zlib             |
| 16     | `ZRLE`         | a length, and tiles of 64 x 64 in another stream: of one   |
|        |                | colour, of a palette, of runs, or plain                    |
| -223   | `DESKTOP_SIZE` | nothing: the header has the new size of the desktop        |
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np

from envkit.desktop.protocol import DesktopError
from envkit.types import Array

__all__ = [
    "COPY",
    "DESKTOP_SIZE",
    "ENCODINGS",
    "RAW",
    "ZLIB",
    "ZRLE",
    "Codec",
    "PixelFormat",
    "Rectangle",
]

RAW, COPY, ZLIB, ZRLE, DESKTOP_SIZE = 0, 1, 6, 16, -223
# Those that a server can choose for pixels.
ENCODINGS = {"raw": RAW, "zlib": ZLIB, "zrle": ZRLE}

_TILE = 64
_LENGTH = struct.Struct(">I")
_PLACE = struct.Struct(">HH")


class Rectangle(NamedTuple):
    """A part of the picture."""

    x: int
    y: int
    width: int
    height: int

    @property
    def area(self) -> int:
        """The number of pixels."""
        return self.width * self.height

    def of(self, picture: Array) -> Array:
        """Returns the part of a picture, as a view."""
        return picture[self.y : self.y + self.height, self.x : self.x + self.width]


class PixelFormat(NamedTuple):
    """The bits of a pixel on the wire.

    Attributes:
        bits: Bits of a pixel: 8, 16 or 32.
        depth: How many of them are of a colour.
        big_endian: Whether the most significant byte comes first.
        maxima: The largest values of red, green and blue.
        shifts: The places of their lowest bits.

    Example:
        >>> PixelFormat().pack().hex()
        '2018000100ff00ff00ff000810000000'
        >>> PixelFormat().encode(np.array([[[1, 2, 3]]], np.uint8)).hex()
        '01020300'
        >>> small = PixelFormat(8, 8, False, (7, 7, 3), (0, 3, 6))
        >>> small.decode(small.encode(np.full((1, 1, 3), 255, np.uint8)), 1, 1)
        array([[[255, 255, 255]]], dtype=uint8)
    """

    bits: int = 32
    depth: int = 24
    big_endian: bool = False
    maxima: tuple[int, int, int] = (255, 255, 255)
    # Red comes first, as in a picture: nothing is moved around, and clients that never
    # set a format of their own have the colours in their order.
    shifts: tuple[int, int, int] = (0, 8, 16)

    @classmethod
    def unpack(cls, data: bytes) -> PixelFormat:
        """Reads the 16 bytes of the protocol.

        Raises:
            DesktopError: They describe pixels that envkit does not have.
        """
        bits, depth, big_endian, true_colour, *rest = _FORMAT.unpack(data)
        maxima, shifts = tuple(rest[:3]), tuple(rest[3:])
        is_right = (
            bits in (8, 16, 32)
            and true_colour
            and all(most > 0 for most in maxima)
            and all(
                shift + most.bit_length() <= bits
                for most, shift in zip(maxima, shifts, strict=True)
            )
        )
        if not is_right:
            raise DesktopError(
                f"A pixel format must have 8, 16 or 32 bits and true colours that fit, "
                f"got {bits} bits, true colour {bool(true_colour)}, maxima {maxima} "
                f"and shifts {shifts}."
            )
        return cls(bits, depth, bool(big_endian), maxima, shifts)

    def pack(self) -> bytes:
        """Writes the 16 bytes of the protocol."""
        return _FORMAT.pack(
            self.bits, self.depth, self.big_endian, True, *self.maxima, *self.shifts
        )

    @property
    def size(self) -> int:
        """The bytes of a pixel."""
        return self.bits // 8

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The type of a pixel."""
        return np.dtype(f"{'>' if self.big_endian else '<'}u{self.size}")

    @property
    def kept(self) -> slice:
        """The bytes of a pixel that tiles of ZRLE have: three of four, if they can."""
        if self.bits != 32 or self.depth > 24:
            return slice(0, self.size)
        tops = [most.bit_length() for most in self.maxima]
        highest = max(map(sum, zip(self.shifts, tops, strict=True)))
        if highest <= 24:
            return slice(1, 4) if self.big_endian else slice(0, 3)
        if min(self.shifts) >= 8:
            return slice(0, 3) if self.big_endian else slice(1, 4)
        return slice(0, 4)

    def numbers(self, picture: Array) -> Array:
        """Returns each pixel of a picture as a number."""
        if self.maxima == (255, 255, 255):
            red, green, blue = (picture[..., band].astype("u4") for band in range(3))
        else:
            # Rounded, so that the largest value is the largest.
            red, green, blue = (
                (picture[..., band].astype("u4") * most + 127) // 255
                for band, most in enumerate(self.maxima)
            )
        first, second, third = self.shifts
        numbers: Array = (red << first) | (green << second) | (blue << third)
        return numbers.astype(self.dtype)

    def colours(self, numbers: Array) -> Array:
        """Returns the colours of pixels, with an axis of three added."""
        bands = [
            (numbers.astype("u4") >> shift) & most
            for most, shift in zip(self.maxima, self.shifts, strict=True)
        ]
        if self.maxima != (255, 255, 255):
            bands = [
                (band * 255 + most // 2) // most
                for band, most in zip(bands, self.maxima, strict=True)
            ]
        return np.stack(bands, axis=-1).astype(np.uint8)

    @property
    def _places(self) -> list[int] | None:
        """The bytes of red, green and blue in a pixel; `None` if they are not bytes."""
        if self.maxima != (255, 255, 255) or self.bits != 32:
            return None
        if any(shift % 8 for shift in self.shifts):
            return None
        places = [shift // 8 for shift in self.shifts]
        return [3 - place for place in places] if self.big_endian else places

    def encode(self, picture: Array) -> bytes:
        """Returns the pixels of a picture."""
        places = self._places
        if places is None:
            return self.numbers(picture).tobytes()
        pixels = np.zeros((*picture.shape[:2], 4), np.uint8)
        pixels[..., places] = picture
        return pixels.tobytes()

    def decode(self, data: bytes, width: int, height: int) -> Array:
        """Returns the picture of pixels."""
        places = self._places
        if places is None:
            numbers = np.frombuffer(data, self.dtype).reshape(height, width)
            return self.colours(numbers)
        pixels = np.frombuffer(data, np.uint8).reshape(height, width, 4)
        return pixels[..., places]


_FORMAT = struct.Struct(">BB??HHHBBBxxx")


class Codec:
    """Encodes and decodes rectangles; each end of a connection has one.

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

    def __init__(self, pixel_format: PixelFormat) -> None:
        """Begins the streams of zlib."""
        self.format = pixel_format
        self._packers = {number: zlib.compressobj(1) for number in (ZLIB, ZRLE)}
        self._unpackers = {number: zlib.decompressobj() for number in (ZLIB, ZRLE)}

    def encode(self, encoding: int, picture: Array) -> bytes:
        """Returns what follows the header of a rectangle with these pixels."""
        if encoding == RAW:
            return self.format.encode(picture)
        if encoding == ZLIB:
            return self._packed(ZLIB, self.format.encode(picture))
        numbers = self.format.numbers(picture)
        tiles = map(self._tile, _tiles(numbers))
        return self._packed(ZRLE, b"".join(tiles))

    def decode(
        self, encoding: int, place: Rectangle, picture: Array
    ) -> Generator[int, bytes, None]:
        """Draws a rectangle; yields how many bytes it needs next, and is sent them.

        Raises:
            DesktopError: The bytes are not those of the encoding.
        """
        if encoding == RAW:
            data = yield place.area * self.format.size
            place.of(picture)[:] = self.format.decode(data, place.width, place.height)
        elif encoding == COPY:
            x, y = _PLACE.unpack((yield _PLACE.size))
            source = Rectangle(x, y, place.width, place.height)
            _check_inside(source, picture)
            place.of(picture)[:] = source.of(picture).copy()
        elif encoding == ZLIB:
            size = place.area * self.format.size
            data = yield from self._unpacked(ZLIB, size)
            if len(data) != size:
                raise DesktopError(
                    f"A rectangle of zlib must have {size} bytes, got {len(data)}."
                )
            place.of(picture)[:] = self.format.decode(data, place.width, place.height)
        elif encoding == ZRLE:
            data = yield from self._unpacked(ZRLE, self._most_of_tiles(place))
            pixels = _Tiles(data, self.format).read(place.width, place.height)
            place.of(picture)[:] = pixels
        else:
            raise DesktopError(
                f"The encoding of a rectangle must be one of those that were asked "
                f"for, got {encoding}."
            )

    def _packed(self, encoding: int, data: bytes) -> bytes:
        packer = self._packers[encoding]
        packed = packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)
        return _LENGTH.pack(len(packed)) + packed

    def _unpacked(self, encoding: int, most: int) -> Generator[int, bytes, bytes]:
        (length,) = _LENGTH.unpack((yield _LENGTH.size))
        # What does not shrink grows by five bytes for each block of some kilobytes.
        if length > most + most // 64 + 1024:
            raise DesktopError(
                f"A compressed rectangle must have no more bytes than its pixels need, "
                f"{most}, got {length}."
            )
        packed = yield length
        unpacker = self._unpackers[encoding]
        try:
            data = unpacker.decompress(packed, most + 1)
        except zlib.error as error:
            raise DesktopError(
                f"A compressed rectangle is damaged: {error}."
            ) from error
        if len(data) > most or unpacker.unconsumed_tail or unpacker.eof:
            raise DesktopError(
                f"A compressed rectangle must unpack to no more than {most} bytes."
            )
        return data

    def _most_of_tiles(self, place: Rectangle) -> int:
        """The bytes of the largest tiles: each pixel a run, each tile a palette."""
        tiles = -(-place.width // _TILE) * -(-place.height // _TILE)
        return tiles * (1 + 127 * 4) + place.area * (self.format.size + 1)

    def _tile(self, numbers: Array) -> bytes:
        """Encodes a tile in the shortest of the ways that are quick to find."""
        flat = numbers.reshape(-1)
        starts = np.flatnonzero(np.diff(flat, prepend=~flat[:1]))
        if len(starts) == 1:
            return b"\x01" + self._short(flat[:1])
        palette = np.unique(flat[starts])
        lengths = np.diff(starts, append=flat.size)
        of_runs = len(starts) * (self.format.size + 1)
        if len(palette) <= 16:
            bits = 1 if len(palette) == 2 else 2 if len(palette) <= 4 else 4
            if of_runs > flat.size * bits // 8:
                return (
                    bytes([len(palette)])
                    + self._short(palette)
                    + _bits_of(np.searchsorted(palette, numbers), bits)
                )
        elif of_runs >= flat.size * self.format.size:
            return b"\x00" + self._short(flat)
        if len(palette) <= 127:
            indices = np.searchsorted(palette, flat[starts]).tolist()
            runs = (
                bytes([index]) if length == 1 else bytes([index | 128]) + _run(length)
                for index, length in zip(indices, lengths.tolist(), strict=True)
            )
            kind = bytes([len(palette) | 128])
            return kind + self._short(palette) + b"".join(runs)
        colours = self._short(flat[starts])
        size = len(colours) // len(starts)
        return b"\x80" + b"".join(
            colours[number * size : (number + 1) * size] + _run(length)
            for number, length in enumerate(lengths.tolist())
        )

    def _short(self, numbers: Array) -> bytes:
        """Returns pixels without the byte that ZRLE leaves out."""
        whole = (
            np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, self.format.size)
        )
        return whole[:, self.format.kept].tobytes()


def _tiles(array: Array) -> Iterator[Array]:
    height, width = array.shape[:2]
    for y in range(0, height, _TILE):
        for x in range(0, width, _TILE):
            yield array[y : y + _TILE, x : x + _TILE]


def _run(length: int) -> bytes:
    """Encodes the length of a run: bytes that add up to one less."""
    whole, rest = divmod(length - 1, 255)
    return b"\xff" * whole + bytes([rest])


def _bits_of(indices: Array, bits: int) -> bytes:
    """Packs the rows of a tile, each from a whole byte on."""
    single = (indices[..., None] >> np.arange(bits - 1, -1, -1)) & 1
    rows = single.reshape(len(indices), -1).astype(np.uint8)
    return np.packbits(rows, axis=1).tobytes()


class _Tiles:
    """Reads the tiles of a rectangle of ZRLE."""

    def __init__(self, data: bytes, pixel_format: PixelFormat) -> None:
        self._data, self._at = data, 0
        self._format = pixel_format
        kept = pixel_format.kept
        self._kept, self._size = kept, kept.stop - kept.start

    def read(self, width: int, height: int) -> Array:
        numbers = np.zeros((height, width), self._format.dtype)
        for tile in _tiles(numbers):
            tile[:] = self._tile(*tile.shape)
        if self._at != len(self._data):
            raise DesktopError(
                f"A rectangle of ZRLE must end with its last tile, got "
                f"{len(self._data) - self._at} bytes more."
            )
        return self._format.colours(numbers)

    def _tile(self, height: int, width: int) -> Array:
        kind = self._take(1)[0]
        if kind == 0:
            return self._pixels(width * height).reshape(height, width)
        if kind == 1:
            return self._pixels(1).reshape(1, 1)
        if kind <= 16:
            return self._packed(kind, height, width)
        if kind == 128:
            return self._plain_runs(width * height).reshape(height, width)
        if kind >= 130:
            runs = self._palette_runs(self._pixels(kind - 128), width * height)
            return runs.reshape(height, width)
        raise DesktopError(f"A tile of ZRLE must be of a known kind, got {kind}.")

    def _take(self, count: int) -> bytes:
        data = self._data[self._at : self._at + count]
        if len(data) < count:
            raise DesktopError(
                f"A rectangle of ZRLE must have all its tiles, got {len(self._data)} "
                "bytes, which end within one."
            )
        self._at += count
        return data

    def _pixels(self, count: int) -> Array:
        short = np.frombuffer(self._take(count * self._size), np.uint8)
        whole = np.zeros((count, self._format.size), np.uint8)
        whole[:, self._kept] = short.reshape(count, self._size)
        return whole.view(self._format.dtype).reshape(count)

    def _packed(self, count: int, height: int, width: int) -> Array:
        palette = self._pixels(count)
        bits = 1 if count == 2 else 2 if count <= 4 else 4
        row = -(-width * bits // 8)
        data = np.frombuffer(self._take(row * height), np.uint8).reshape(height, row)
        single = np.unpackbits(data, axis=1)[:, : width * bits]
        weights = 1 << np.arange(bits - 1, -1, -1)
        indices = single.reshape(height, width, bits) @ weights
        return self._chosen(palette, indices)

    def _chosen(self, palette: Array, indices: Array) -> Array:
        if indices.max() >= len(palette):
            raise DesktopError(
                f"A tile of ZRLE must choose from its {len(palette)} colours, got "
                f"number {indices.max()}."
            )
        chosen: Array = palette[indices]
        return chosen

    def _plain_runs(self, area: int) -> Array:
        colours, lengths, left = [], [], area
        while left:
            colours.append(self._take(self._size))
            lengths.append(self._length(left))
            left -= lengths[-1]
        runs = _Tiles(b"".join(colours), self._format)._pixels(len(colours))
        return np.repeat(runs, lengths)

    def _palette_runs(self, palette: Array, area: int) -> Array:
        indices, lengths, left = [], [], area
        while left:
            index = self._take(1)[0]
            indices.append(index & 127)
            lengths.append(self._length(left) if index & 128 else 1)
            left -= lengths[-1]
        return np.repeat(self._chosen(palette, np.array(indices)), lengths)

    def _length(self, most: int) -> int:
        length, byte = 1, 255
        while byte == 255:
            byte = self._take(1)[0]
            length += byte
            if length > most:
                raise DesktopError(
                    f"A run of ZRLE must end within its tile, got {length} pixels "
                    f"where {most} are left."
                )
        return length


def _check_inside(place: Rectangle, picture: Array) -> None:
    height, width = picture.shape[:2]
    if place.x + place.width > width or place.y + place.height > height:
        raise DesktopError(
            f"A rectangle must be inside the desktop of {width} x {height}, got "
            f"{place.width} x {place.height} at {place.x}, {place.y}."
        )
