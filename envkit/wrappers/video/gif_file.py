"""`GifFile`: an animated GIF that grows picture by picture, and is whole all the time.

Pillow writes an animation in one go, from pictures that it has all in memory. So here
it makes a GIF of each picture alone, and the picture in it is moved to the file: its
colours become its own palette instead of that of its file.

    header, "repeat for ever"
    control (how long)   picture (size, palette, data)      for each picture
    ;
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from envkit.errors import MissingDependencyError
from envkit.types import Array

__all__ = ["GifFile", "image_of"]

_NO_PALETTE = 0x70  # for the whole file; colours have 8 bits
_FOR_EVER = b"\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"
_STAYS = 0x04  # until the next picture is drawn over it
_END = b";"

_HEADER_BYTES = 13
_DESCRIPTOR_BYTES = 10
_EXTENSION = 0x21
_HAS_PALETTE = 0x80
_PALETTE_SIZE = 0x07  # the bits that say it: 2 << size colours
_INTERLACED = 0x40


class GifFile:
    """A GIF that is being written; where to, exists already.

    Each picture has a palette of its own, so up to 256 colours come out as they were.
    """

    suffix = ".gif"

    @staticmethod
    def load() -> Any:
        """Returns the function that encodes, or says which package is missing."""
        try:
            from imageio.v3 import imwrite
        except ImportError as error:
            raise MissingDependencyError.needed_by(
                'RecordVideo with format="gif"', package="imageio", extra="video"
            ) from error
        return imwrite

    def __init__(self, path: Path, fps: float, height: int, width: int) -> None:
        """Begins a file for pictures of one size."""
        self._imwrite = self.load()
        self._fps = fps
        self._pictures = 0
        header = struct.pack("<6sHHBBB", b"GIF89a", width, height, _NO_PALETTE, 0, 0)
        self._file = path.open("wb")
        self._end = self._file.write(header + _FOR_EVER)

    def write(self, picture: Array) -> None:
        """Adds a picture; whoever opens the file now sees it."""
        alone = self._imwrite(
            "<bytes>", picture, extension=".gif", plugin="pillow", interlace=False
        )
        delay = self._hundredths(self._pictures + 1) - self._hundredths(self._pictures)
        control = struct.pack("<4BHBB", _EXTENSION, 0xF9, 4, _STAYS, delay, 0, 0)
        self._file.seek(self._end)
        length = self._file.write(control + image_of(alone))
        self._file.write(_END)
        self._file.flush()
        self._end += length
        self._pictures += 1

    def finish(self) -> None:
        """Ends the file."""
        with self._file:
            # What an interrupted write left behind the last picture does not count.
            self._file.truncate(self._end)
            self._file.seek(self._end)
            self._file.write(_END)

    def abandon(self) -> None:
        """Lets go of the file, which another process goes on writing."""
        self._file.close()

    def _hundredths(self, pictures: int) -> int:
        """Returns when so many pictures have been shown, as GIFs count time."""
        return round(pictures * 100 / self._fps)


def image_of(gif: bytes) -> bytes:
    """Returns the picture of a GIF that has a single one, with its palette in it."""
    palette, flags = b"", gif[10]
    if flags & _HAS_PALETTE:
        palette = gif[_HEADER_BYTES : _HEADER_BYTES + _palette_bytes(flags)]
    start = _HEADER_BYTES + len(palette)
    while gif[start] == _EXTENSION:
        start = _after_blocks(gif, start + 2)
    data = start + _DESCRIPTOR_BYTES
    *descriptor, own_flags = gif[start:data]
    if own_flags & _HAS_PALETTE:
        palette, flags = gif[data : data + _palette_bytes(own_flags)], own_flags
        data += len(palette)
    end = _after_blocks(gif, data + 1)
    own_flags = _HAS_PALETTE | own_flags & _INTERLACED | flags & _PALETTE_SIZE
    return bytes([*descriptor, own_flags]) + palette + gif[data:end]


def _palette_bytes(flags: int) -> int:
    return 3 * (2 << (flags & _PALETTE_SIZE))


def _after_blocks(gif: bytes, start: int) -> int:
    """Returns where a chain of blocks ends; each begins with its length, the last 0."""
    while gif[start]:
        start += gif[start] + 1
    return start + 1
