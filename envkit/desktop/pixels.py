"""Rectangles, pixel formats, bits and zlib streams, which all encodings share.

A picture is a uint8 array of height, width, and red, green, blue.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Generator
from typing import NamedTuple

import numpy as np

from envkit.desktop.errors import DesktopError
from envkit.types import Array

__all__ = [
    "MOST_PIXELS",
    "Packer",
    "PixelFormat",
    "Rectangle",
    "Unpacker",
    "bits_of",
    "colours_of",
]

# No real desktop is larger; a larger one would only take memory.
MOST_PIXELS = 1 << 26


class Rectangle(NamedTuple):
    """Describes a part of a picture."""

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

    def check_inside(self, picture: Array) -> None:
        """Checks that the rectangle is inside a picture.

        Raises:
            DesktopError: A part of it is outside.
        """
        height, width = picture.shape[:2]
        if self.x + self.width > width or self.y + self.height > height:
            raise DesktopError(
                f"A rectangle must be inside the desktop of {width} x {height}, got "
                f"{self.width} x {self.height} at {self.x}, {self.y}."
            )


class PixelFormat(NamedTuple):
    """Describes the bits of a pixel on the wire.

    Attributes:
        bits: The bits of a pixel: 8, 16 or 32.
        depth: The number of bits that carry colour.
        big_endian: Whether the most significant byte comes first.
        maxima: The largest values of red, green and blue.
        shifts: The positions of their lowest bits.

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
    # Red comes first, as in a picture: no byte changes its place, and clients that
    # never choose a format get the colours in that order.
    shifts: tuple[int, int, int] = (0, 8, 16)

    @classmethod
    def unpack(cls, data: bytes) -> PixelFormat:
        """Reads a format from the 16 bytes of the protocol.

        Raises:
            DesktopError: They describe pixels that envkit does not support.
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
        """Returns the 16 bytes of the protocol."""
        return _FORMAT.pack(
            self.bits, self.depth, self.big_endian, True, *self.maxima, *self.shifts
        )

    @property
    def size(self) -> int:
        """The number of bytes of a pixel."""
        return self.bits // 8

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The dtype of a pixel."""
        return np.dtype(f"{'>' if self.big_endian else '<'}u{self.size}")

    @property
    def kept(self) -> slice:
        """The bytes of a pixel that ZRLE sends: three of four if one is always 0."""
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
        places = _places_of(self)
        if places is not None:
            pixels = np.zeros((*picture.shape[:2], 4), np.uint8)
            for band, place in enumerate(places):
                pixels[..., place] = picture[..., band]
            return pixels.view(self.dtype)[..., 0]
        # Rounded, so that 255 becomes the largest value.
        red, green, blue = (
            (picture[..., band].astype("u4") * most + 127) // 255
            for band, most in enumerate(self.maxima)
        )
        first, second, third = self.shifts
        numbers: Array = (red << first) | (green << second) | (blue << third)
        return numbers.astype(self.dtype)

    def colours(self, numbers: Array) -> Array:
        """Returns the colours of pixels, in a new last axis of three."""
        places = _places_of(self)
        if places is not None:
            pixels = np.ascontiguousarray(numbers).view(np.uint8)
            pixels = pixels.reshape(*numbers.shape, 4)
            # Band by band, because NumPy is slow with three bytes at a time.
            colours: Array = np.empty((*numbers.shape, 3), np.uint8)
            for band, place in enumerate(places):
                colours[..., band] = pixels[..., place]
            return colours
        return self.of_bands(self.bands(numbers))

    def bands(self, numbers: Array) -> Array:
        """Returns red, green and blue of pixels, in the ranges of the format."""
        values = numbers.astype("u4")
        pairs = zip(self.maxima, self.shifts, strict=True)
        return np.stack([values >> shift & most for most, shift in pairs], axis=-1)

    def of_bands(self, bands: Array) -> Array:
        """Scales red, green and blue from the ranges of the format to 0 to 255."""
        if self.maxima != (255, 255, 255):
            most = np.array(self.maxima, "u4")
            bands = (bands * np.uint32(255) + most // 2) // most
        return bands.astype(np.uint8)

    def encode(self, picture: Array) -> bytes:
        """Returns the bytes of a picture."""
        return self.numbers(picture).tobytes()

    def decode(self, data: bytes, width: int, height: int) -> Array:
        """Decodes the bytes of a picture."""
        return self.colours(np.frombuffer(data, self.dtype).reshape(height, width))


_FORMAT = struct.Struct(">BB??HHHBBBxxx")


@functools.lru_cache(maxsize=16)
def _places_of(pixel_format: PixelFormat) -> list[int] | None:
    """Returns the bytes of red, green and blue; `None` unless they are whole bytes."""
    if pixel_format.maxima != (255, 255, 255) or pixel_format.bits != 32:
        return None
    if any(shift % 8 for shift in pixel_format.shifts):
        return None
    places = [shift // 8 for shift in pixel_format.shifts]
    return [3 - place for place in places] if pixel_format.big_endian else places


class Packer:
    """Compresses one zlib stream, part by part."""

    def __init__(self) -> None:
        """Begins the stream."""
        self._stream = zlib.compressobj(1)

    def pack(self, data: bytes) -> bytes:
        """Returns the next part, which the other end can unpack at once."""
        return self._stream.compress(data) + self._stream.flush(zlib.Z_SYNC_FLUSH)


class Unpacker:
    """Decompresses one zlib stream, part by part, up to a given size."""

    def __init__(self) -> None:
        """Begins the stream."""
        self._stream = zlib.decompressobj()

    def read(
        self, length: int, most: int, exact: str = ""
    ) -> Generator[int, bytes, bytes]:
        """Reads and unpacks the next part.

        Args:
            length: The length of the part.
            most: The largest number of bytes that it may unpack to.
            exact: The name of an encoding whose rectangles unpack to exactly `most`
                bytes.

        Raises:
            DesktopError: The part is longer than `most` bytes can be when compressed,
                is damaged, or unpacks to another size.
        """
        # Incompressible data grows by five bytes per block of a few kilobytes.
        if length > most + most // 64 + 1024:
            raise DesktopError(
                f"A compressed rectangle must have no more bytes than its pixels need, "
                f"{most}, got {length}."
            )
        packed = yield length
        try:
            data = self._stream.decompress(packed, most + 1)
        except zlib.error as error:
            raise DesktopError(
                f"A compressed rectangle is damaged: {error}."
            ) from error
        if len(data) > most or self._stream.unconsumed_tail or self._stream.eof:
            raise DesktopError(
                f"A compressed rectangle must unpack to no more than {most} bytes."
            )
        if exact and len(data) != most:
            raise DesktopError(
                f"A rectangle of {exact} must have {most} bytes, got {len(data)}."
            )
        return data


def colours_of(palette: Array, indices: Array, what: str) -> Array:
    """Looks up colours in a palette.

    Args:
        palette: The colours.
        indices: The index of each pixel's colour.
        what: The thing with the palette, for the error message.

    Raises:
        DesktopError: An index is outside the palette.
    """
    if int(indices.max()) >= len(palette):
        raise DesktopError(
            f"{what} must choose from its {len(palette)} colours, got number "
            f"{indices.max()}."
        )
    colours: Array = palette[indices]
    return colours


def bits_of(indices: Array, bits: int) -> bytes:
    """Packs numbers into `bits` bits each; each row starts with a new byte.

    Example:
        >>> bits_of(np.array([[1, 0, 1], [0, 1, 1]]), 1).hex()
        'a060'
    """
    single = (indices[..., None] >> np.arange(bits - 1, -1, -1)) & 1
    rows = single.reshape(len(indices), -1).astype(np.uint8)
    return np.packbits(rows, axis=1).tobytes()
