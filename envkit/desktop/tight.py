"""The tight encoding: filtered pixels in four zlib streams, or JPEG.

| control byte          | the rectangle                                            |
|-----------------------|----------------------------------------------------------|
| bits 0 to 3           | which streams start again                                |
| 8 in the upper half   | one colour                                               |
| 9 in the upper half   | JPEG                                                     |
| 0 to 7                | stream 0 to 3; plus 4 if a byte names the filter: 0 none,|
|                       | 1 a palette, 2 differences from a prediction             |

A pixel of 32 bits whose colours are bytes is sent as three bytes: red, green, blue.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from envkit.desktop.errors import DesktopError
from envkit.desktop.pixels import Packer, PixelFormat, Unpacker, bits_of, colours_of
from envkit.errors import MissingDependencyError
from envkit.extend import install_command
from envkit.types import Array

__all__ = ["Tight", "check_jpeg", "has_jpeg"]

# The protocol has no wider rectangles.
WIDEST = 2048
# Shorter parts are not compressed.
_SHORT = 12
_FILL, _JPEG, _NAMED = 8, 9, 4
_COPY, _PALETTE, _GRADIENT = 0, 1, 2
# The quality of JPEG for the levels 0 to 9, as in other servers.
_QUALITIES = (15, 29, 41, 42, 62, 77, 79, 86, 92, 100)
# Pictures with more colours become JPEG, if that is allowed.
_MOST_COLOURS = 96
# Rows of differences that are added up together.
_BAND = 64


def has_jpeg() -> bool:
    """Returns True if Pillow is installed, which encodes and decodes JPEG."""
    from importlib.util import find_spec

    return find_spec("PIL") is not None


def check_jpeg() -> None:
    """Checks that Pillow is installed.

    Raises:
        MissingDependencyError: It is not.
    """
    if not has_jpeg():
        raise MissingDependencyError.needed_by("JPEG", package="pillow", extra="vnc")


class Tight:
    """Encodes and decodes rectangles; each end of a connection has one."""

    def __init__(self) -> None:
        """Starts the streams."""
        self._packers = [Packer() for _ in range(4)]
        self._unpackers = [Unpacker() for _ in range(4)]

    def encode(
        self, pixel_format: PixelFormat, picture: Array, quality: int | None
    ) -> bytes:
        """Returns the data of a rectangle with these pixels, without its header."""
        numbers = pixel_format.numbers(picture)
        flat = numbers.reshape(-1)
        changes = np.flatnonzero(flat[1:] != flat[:-1])
        if not len(changes):
            return bytes([_FILL << 4]) + _pixels(pixel_format, picture[:1, :1])
        palette, places = np.unique(
            flat[np.concatenate([[0], changes + 1])], return_index=True
        )
        if quality is not None and len(palette) > _MOST_COLOURS:
            return _as_jpeg(picture, _QUALITIES[quality])
        if len(palette) > min(256, flat.size // 4):
            return bytes([0]) + self._packed(0, _pixels(pixel_format, picture))
        where = np.concatenate([[0], changes + 1])[places]
        colours = picture.reshape(-1, 3)[where][None]
        indices = np.searchsorted(palette, numbers)
        stream = 1 if len(palette) == 2 else 2
        data = (
            bits_of(indices, 1)
            if len(palette) == 2
            else indices.astype(np.uint8).tobytes()
        )
        head = bytes([(_NAMED | stream) << 4, _PALETTE, len(palette) - 1])
        return head + _pixels(pixel_format, colours) + self._packed(stream, data)

    def decode(
        self, pixel_format: PixelFormat, width: int, height: int
    ) -> Generator[int, bytes, Array]:
        """Reads a rectangle, and returns its picture.

        Raises:
            DesktopError: The bytes do not fit the encoding.
        """
        if width > WIDEST:
            raise DesktopError(
                f"A tight rectangle must be at most {WIDEST} wide, got {width}."
            )
        size = _size_of(pixel_format)
        (control,) = yield 1
        for number in range(4):
            if control >> number & 1:
                self._unpackers[number] = Unpacker()
        kind = control >> 4
        if kind == _FILL:
            pixel = _picture(pixel_format, (yield size), 1, 1)
            return np.broadcast_to(pixel, (height, width, 3))
        if kind == _JPEG:
            length = yield from _length()
            return _of_jpeg((yield length), width, height)
        if kind > _JPEG:
            raise DesktopError(
                f"A tight rectangle must be of a known kind, got {kind}."
            )
        unpacker = self._unpackers[kind & 3]
        filtered = (yield 1)[0] if kind & _NAMED else _COPY
        if filtered == _PALETTE:
            count = (yield 1)[0] + 1
            palette = _picture(pixel_format, (yield count * size), count, 1)[0]
            row = -(-width // 8) if count <= 2 else width
            data = yield from _unpacked(unpacker, row * height)
            return _by_palette(palette, data, width, height)
        if filtered not in (_COPY, _GRADIENT):
            raise DesktopError(f"A tight filter must be 0, 1 or 2, got {filtered}.")
        data = yield from _unpacked(unpacker, width * height * size)
        if filtered == _GRADIENT:
            return _summed(pixel_format, data, width, height)
        return _picture(pixel_format, data, width, height)

    def _packed(self, stream: int, data: bytes) -> bytes:
        if len(data) < _SHORT:
            return data
        packed = self._packers[stream].pack(data)
        return _length_bytes(len(packed)) + packed


def _length_bytes(length: int) -> bytes:
    """Encodes a length: seven bits in each of two bytes, and eight in a third."""
    if length < 1 << 7:
        return bytes([length])
    if length < 1 << 14:
        return bytes([length & 127 | 128, length >> 7])
    return bytes([length & 127 | 128, length >> 7 & 127 | 128, length >> 14])


def _length() -> Generator[int, bytes, int]:
    (byte,) = yield 1
    length = byte & 127
    if byte & 128:
        (byte,) = yield 1
        length |= (byte & 127) << 7
        if byte & 128:
            (byte,) = yield 1
            length |= byte << 14
    return length


def _unpacked(unpacker: Unpacker, size: int) -> Generator[int, bytes, bytes]:
    if size < _SHORT:
        return (yield size)
    length = yield from _length()
    data = yield from unpacker.read(length, size, "tight")
    return data


def _is_short(pixel_format: PixelFormat) -> bool:
    """Returns True for pixels that are sent as three bytes: red, green, blue."""
    of_bytes = pixel_format.maxima == (255, 255, 255)
    return of_bytes and pixel_format.bits == 32 and pixel_format.depth == 24


def _size_of(pixel_format: PixelFormat) -> int:
    return 3 if _is_short(pixel_format) else pixel_format.size


def _pixels(pixel_format: PixelFormat, picture: Array) -> bytes:
    if _is_short(pixel_format):
        return picture.tobytes()
    return pixel_format.encode(picture)


def _picture(pixel_format: PixelFormat, data: bytes, width: int, height: int) -> Array:
    if _is_short(pixel_format):
        return np.frombuffer(data, np.uint8).reshape(height, width, 3)
    return pixel_format.decode(data, width, height)


def _by_palette(palette: Array, data: bytes, width: int, height: int) -> Array:
    indices: Array = np.frombuffer(data, np.uint8).reshape(height, -1)
    if len(palette) <= 2:
        indices = np.unpackbits(indices, axis=1)[:, :width]
    return colours_of(palette, indices, "A tight rectangle")


def _summed(pixel_format: PixelFormat, data: bytes, width: int, height: int) -> Array:
    """Adds the predictions of the gradient filter to differences.

    The filter predicts that a pixel differs from the one above it as its left neighbour
    differs from the pixel above that. So all pixels of a diagonal, from the lower left
    to the upper right, follow at once from the diagonals before it.
    """
    if _is_short(pixel_format):
        bands: Array = np.frombuffer(data, np.uint8).reshape(height, width, 3)
        most = np.array((255, 255, 255), np.int32)
    else:
        numbers = np.frombuffer(data, pixel_format.dtype).reshape(height, width)
        bands = pixel_format.bands(numbers)
        most = np.array(pixel_format.maxima, np.int32)
    picture = np.empty((height, width, 3), np.int32)
    last = np.zeros((width, 3), np.int32)
    for y in range(0, height, _BAND):
        picture[y : y + _BAND] = _summed_band(bands[y : y + _BAND], last, most)
        last = picture[min(y + _BAND, height) - 1]
    return pixel_format.of_bands(picture)


def _summed_band(bands: Array, before: Array, most: Array) -> Array:
    """Adds predictions to the differences of some rows; `before` is the row above."""
    height, width, _ = bands.shape
    # Diagonals as rows: pixel (y, x) is in row y + x + 2 and column y + 1, so that
    # every pixel has one above it and one to its left.
    sums = np.zeros((height + width + 1, height + 1, 3), np.int32)
    sums[1 : width + 1, 0] = before
    slanted = np.zeros((height + width - 1, height, 3), np.int32)
    for y in range(height):
        slanted[y : y + width, y] = bands[y]
    for number in range(height + width - 1):
        first, last = max(0, number - width + 1), min(height, number + 1)
        here = slice(first + 1, last + 1)
        left, above = sums[number + 1, here], sums[number + 1, first:last]
        expected = np.clip(left + above - sums[number, first:last], 0, most)
        sums[number + 2, here] = (slanted[number, first:last] + expected) & most
    return np.stack([sums[y + 2 : y + 2 + width, y + 1] for y in range(height)])


def _as_jpeg(picture: Array, quality: int) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(picture))
    image.save(file, "JPEG", quality=quality)
    data = file.getvalue()
    return bytes([_JPEG << 4]) + _length_bytes(len(data)) + data


def _of_jpeg(data: bytes, width: int, height: int) -> Array:
    if not has_jpeg():
        raise DesktopError(
            "The server sent JPEG, which needs the package pillow. "
            f'{install_command("vnc")}, or leave "tight" out of encodings.'
        )
    from PIL import Image

    open_image: Callable[..., Any] = Image.open
    try:
        with open_image(io.BytesIO(data), formats=["JPEG"]) as image:
            # Check before its pixels take memory.
            if image.size != (width, height):
                raise DesktopError(
                    f"A JPEG picture must be {width} x {height}, like its rectangle, "
                    f"got {image.size[0]} x {image.size[1]}."
                )
            return np.asarray(image.convert("RGB"))
    except DesktopError:
        raise
    except Exception as error:  # Pillow raises many kinds.
        raise DesktopError(f"A JPEG picture is damaged: {error}.") from error
