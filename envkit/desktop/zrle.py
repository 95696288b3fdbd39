"""ZRLE: the encoding of rectangles as compressed tiles of 64 x 64 pixels.

| first byte | tile                                                                |
|------------|---------------------------------------------------------------------|
| 0          | plain pixels                                                        |
| 1          | one colour                                                          |
| 2 to 16    | a palette of that many colours, and indices of 1, 2 or 4 bits       |
| 128        | runs: a colour, and a length                                        |
| 130 to 255 | a palette of that many less 128, and runs: an index, and a length   |

A length is one more than the sum of its bytes; all of them but the last are 255.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from envkit.desktop.errors import DesktopError
from envkit.desktop.pixels import PixelFormat, bits_of, colours_of
from envkit.types import Array

__all__ = ["decode", "encode", "most_bytes"]

_TILE = 64
# Bytes that are searched for runs at first; most tiles have fewer.
_WINDOW = 256
# Runs that are sampled to see whether a tile has too many colours for a palette.
_SAMPLE = 512
# Runs with a colour that are read together.
_STRETCH = 256


def most_bytes(pixel_format: PixelFormat, width: int, height: int) -> int:
    """Returns the maximum size of tiles: each pixel a run, each tile with a palette."""
    tiles = -(-width // _TILE) * -(-height // _TILE)
    return tiles * (1 + 127 * 4) + width * height * (pixel_format.size + 1)


def encode(pixel_format: PixelFormat, picture: Array) -> bytes:
    """Returns the tiles of a picture.

    Example:
        >>> encode(PixelFormat(), np.full((70, 3, 3), 7, np.uint8)).hex()
        '0107070701070707'
    """
    numbers = pixel_format.numbers(picture)
    return b"".join(_encoded(pixel_format, tile) for tile in _tiles(numbers))


def decode(pixel_format: PixelFormat, data: bytes, width: int, height: int) -> Array:
    r"""Returns the picture of tiles.

    Example:
        >>> decode(PixelFormat(), b"\1\7\10\11", 2, 1).tolist()
        [[[7, 8, 9], [7, 8, 9]]]

    Raises:
        DesktopError: The bytes are no tiles, too few, or too many.
    """
    numbers = np.empty((height, width), pixel_format.dtype)
    tiles = _Tiles(pixel_format, data)
    for tile in _tiles(numbers):
        tile[:] = tiles.next(*tile.shape)
    tiles.finish()
    return pixel_format.colours(numbers)


def _tiles(array: Array) -> Iterator[Array]:
    height, width = array.shape[:2]
    for y in range(0, height, _TILE):
        for x in range(0, width, _TILE):
            yield array[y : y + _TILE, x : x + _TILE]


def _encoded(pixel_format: PixelFormat, tile: Array) -> bytes:
    """Encodes a tile in the shortest form that is quick to compute."""
    flat = tile.reshape(-1)
    starts = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    if not len(starts):
        return b"\x01" + _short(pixel_format, flat[:1]).tobytes()
    starts = np.concatenate([[0], starts])
    of_runs = len(starts) * (pixel_format.size + 1)
    of_pixels = flat.size * pixel_format.size
    colours = flat[starts]
    # Counting the colours of a sample saves sorting all of them.
    many = len(set(colours[:_SAMPLE].tolist())) > 127
    palette = colours if many else np.unique(colours)
    if len(palette) <= 16:
        bits = 1 if len(palette) == 2 else 2 if len(palette) <= 4 else 4
        if of_runs > flat.size * bits // 8:
            indices = np.searchsorted(palette, tile)
            named = _short(pixel_format, palette).tobytes()
            return bytes([len(palette)]) + named + bits_of(indices, bits)
    elif of_runs >= of_pixels:
        return b"\x00" + _short(pixel_format, flat).tobytes()
    lengths = np.diff(starts, append=flat.size)
    if len(palette) > 127:
        return b"\x80" + _runs(_short(pixel_format, colours), lengths, lengths > 0)
    indices = np.searchsorted(palette, colours).astype(np.uint8)
    are_long = lengths > 1
    heads = (indices | are_long.astype(np.uint8) << 7)[:, None]
    named = _short(pixel_format, palette).tobytes()
    return bytes([len(palette) | 128]) + named + _runs(heads, lengths, are_long)


def _short(pixel_format: PixelFormat, numbers: Array) -> Array:
    """Returns the bytes of pixels without the byte that ZRLE omits."""
    whole = np.ascontiguousarray(numbers).view(np.uint8)
    return whole.reshape(-1, pixel_format.size)[:, pixel_format.kept]


def _runs(heads: Array, lengths: Array, have_length: Array) -> bytes:
    """Joins the heads of runs with their lengths, if they have one."""
    whole, rest = np.divmod(lengths - 1, 255)
    ends = np.cumsum(heads.shape[1] + np.where(have_length, whole + 1, 0))
    data = np.full(ends[-1], 255, np.uint8)
    starts = np.concatenate([[0], ends[:-1]])
    data[starts[:, None] + np.arange(heads.shape[1])] = heads
    data[ends[have_length] - 1] = rest[have_length]
    return data.tobytes()


class _Tiles:
    """Reads tiles, one after the other."""

    def __init__(self, pixel_format: PixelFormat, data: bytes) -> None:
        self._data: Array = np.frombuffer(data, np.uint8)
        self._at, self._window = 0, _WINDOW
        self._format = pixel_format
        kept = pixel_format.kept
        self._kept, self._size = kept, kept.stop - kept.start

    def next(self, height: int, width: int) -> Array:
        """Returns the pixels of the next tile; one pixel for a tile of one colour."""
        (kind,) = self._read(1).tolist()
        if kind == 1:
            return self._pixels(1).reshape(1, 1)
        if kind == 0:
            return self._pixels(width * height).reshape(height, width)
        if kind <= 16:
            return self._packed(kind, height, width)
        if kind == 128:
            return self._runs(width * height).reshape(height, width)
        if kind >= 130:
            palette = self._pixels(kind - 128)
            return self._palette_runs(palette, width * height).reshape(height, width)
        raise DesktopError(f"A ZRLE tile must be of a known kind, got {kind}.")

    def finish(self) -> None:
        """Raises if there are bytes after the last tile."""
        if self._at != len(self._data):
            raise DesktopError(
                f"A ZRLE rectangle must end with its last tile, got "
                f"{len(self._data) - self._at} bytes more."
            )

    def _read(self, count: int) -> Array:
        data = self._data[self._at : self._at + count]
        if len(data) < count:
            raise self._cut_off()
        self._at += count
        return data

    def _cut_off(self) -> DesktopError:
        return DesktopError(
            f"A ZRLE rectangle must have all its tiles, got {len(self._data)} bytes, "
            "which end within a tile."
        )

    def _pixels(self, count: int) -> Array:
        return self._whole(self._read(count * self._size).reshape(count, self._size))

    def _whole(self, short: Array) -> Array:
        """Restores the byte of each pixel that ZRLE omits."""
        if self._size == self._format.size:
            whole = np.ascontiguousarray(short)
        else:
            whole = np.zeros((len(short), self._format.size), np.uint8)
            whole[:, self._kept] = short
        return whole.view(self._format.dtype).reshape(-1)

    def _packed(self, count: int, height: int, width: int) -> Array:
        palette = self._pixels(count)
        bits = 1 if count == 2 else 2 if count <= 4 else 4
        row = -(-width * bits // 8)
        data = self._read(row * height).reshape(height, row, 1)
        shifts = np.arange(8 - bits, -1, -bits, dtype=np.uint8)
        indices = (data >> shifts & ((1 << bits) - 1)).reshape(height, -1)
        return colours_of(palette, indices[:, :width], "A ZRLE tile")

    def _runs(self, area: int) -> Array:
        """Reads runs with colours.

        Nearly all lengths are one byte, and such runs are read many at a time.
        """
        size = self._size + 1
        colours, lengths, left = [], [], area
        while left:
            count = min((len(self._data) - self._at) // size, _STRETCH)
            rows = self._data[self._at : self._at + count * size].reshape(count, size)
            ends = np.cumsum(rows[:, -1].astype(np.int64) + 1)
            # Up to the first length of several bytes, or the run that fills the tile.
            stops = np.flatnonzero((rows[:, -1] == 255) | (ends >= left))
            stop = int(stops[0]) if len(stops) else count
            if stop:
                colours.append(rows[:stop, :-1])
                lengths.append(rows[:stop, -1].astype(np.int64) + 1)
                left -= int(ends[stop - 1])
                self._at += stop * size
            if stop < count or not count:
                colours.append(self._read(self._size)[None])
                length = self._length(left)
                lengths.append(np.array([length]))
                left -= length
        return np.repeat(self._whole(np.concatenate(colours)), np.concatenate(lengths))

    def _length(self, most: int) -> int:
        length, byte = 1, 255
        while byte == 255:
            (byte,) = self._read(1).tolist()
            length += byte
            if length > most:
                raise _too_long(length, most)
        return length

    def _palette_runs(self, palette: Array, area: int) -> Array:
        """Reads runs with indices of colours.

        Their size is known only when the tile is full, so it searches more and more
        bytes.
        """
        while True:
            window = self._window
            data = self._data[self._at : self._at + window]
            starts, lengths, is_whole = _runs_in(data)
            ends = np.cumsum(lengths)
            last = int(np.searchsorted(ends, area))
            if last < len(ends) and ends[last] > area:
                before = int(ends[last] - lengths[last])
                raise _too_long(int(lengths[last]), area - before)
            if last < len(ends) - (not is_whole):
                break
            if self._at + window >= len(self._data):
                raise self._cut_off()
            self._window *= 4
        indices = data[starts[: last + 1]] & 127
        used = int(starts[last + 1]) if last + 1 < len(starts) else len(data)
        self._at += used
        # Neighbouring tiles are similar.
        self._window = max(_WINDOW, used + used // 4)
        return np.repeat(
            colours_of(palette, indices, "A ZRLE tile"), lengths[: last + 1]
        )


def _runs_in(data: Array) -> tuple[Array, Array, bool]:
    """Finds the runs in bytes that begin with one.

    Each byte is the head of a run or a part of its length. After a byte below 128 comes
    a head, and after 255 a length. After any other byte comes a length if it is a head,
    and a head if it is a length. So the role of a byte depends on the last byte that
    settles it (below 128, or 255), and on the number of other bytes since then.

    Returns:
        Where the runs start, their lengths, and whether the last one is complete.

    Example:
        >>> starts, lengths, is_whole = _runs_in(np.array([5, 130, 255, 9], np.uint8))
        >>> starts.tolist(), lengths.tolist(), is_whole
        ([0, 1], [1, 265], True)
    """
    # The zero in front makes the first byte a head, as after any byte below 128.
    data = np.concatenate([np.zeros(1, np.uint8), data])
    is_open = data == 255
    settles = (data < 128) | is_open
    # An overflow does not change whether a sum is even or odd.
    turned = np.cumsum(~settles, dtype=np.uint8) & 1
    places = np.where(settles, np.arange(len(data), dtype=np.intp), 0)
    settled = np.maximum.accumulate(places)
    opens = ((is_open ^ turned)[settled] ^ turned).view(bool)
    starts = np.flatnonzero(~opens[:-1])
    parts = np.where(opens[:-1], data[1:], 0).astype(np.intp)
    return starts, np.add.reduceat(parts, starts) + 1, not opens[-1]


def _too_long(length: int, most: int) -> DesktopError:
    return DesktopError(
        f"A ZRLE run must end within its tile, got {length} pixels where {most} are "
        "left."
    )
