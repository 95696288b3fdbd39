"""The encodings of pictures: both ways, in every format, and broken ones."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.desktop import DesktopError, PixelFormat
from envkit.desktop.encodings import (
    COPY,
    ENCODINGS,
    TIGHT,
    ZLIB,
    ZRLE,
    Codec,
    blocks_of,
)
from envkit.desktop.pixels import Rectangle
from tests.screens import draw, picture_of

FORMATS = {
    "red first": PixelFormat(),
    "blue first": PixelFormat(shifts=(16, 8, 0)),
    "big endian": PixelFormat(big_endian=True, shifts=(16, 8, 0)),
    "high bytes": PixelFormat(shifts=(24, 16, 8)),
    "depth 32": PixelFormat(depth=32),
    "odd shifts": PixelFormat(shifts=(20, 10, 0)),
    "16 bits": PixelFormat(16, 16, False, (31, 63, 31), (11, 5, 0)),
    "16 bits, big endian": PixelFormat(16, 15, True, (31, 31, 31), (10, 5, 0)),
    "8 bits": PixelFormat(8, 8, False, (7, 7, 3), (0, 3, 6)),
}


def drawn(codec, encoding, data, shape):
    """Decodes a rectangle, and returns the picture and what is left of the bytes."""
    picture = np.zeros(shape, np.uint8)
    place = Rectangle(0, 0, shape[1], shape[0])
    return picture, draw(codec, encoding, place, picture, data)


@pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=ENCODINGS)
@pytest.mark.parametrize("pixel_format", FORMATS.values(), ids=FORMATS)
@given(
    seed=st.integers(0, 99),
    width=st.integers(1, 140),
    height=st.integers(1, 70),
    colours=st.sampled_from([1, 2, 3, 4, 5, 16, 17, 90, 127, 128, 4000]),
    run=st.sampled_from([1, 2, 7, 300, 700]),
)
def test_pictures_arrive_as_exactly_as_their_format_allows(
    encoding, pixel_format, seed, width, height, colours, run
):
    picture = picture_of(seed, width, height, colours, run)
    seen = pixel_format.colours(pixel_format.numbers(picture))
    sender, receiver = Codec(pixel_format), Codec(pixel_format)

    for _ in range(2):  # because streams go on from one rectangle to the next
        data = sender.encode(encoding, picture)
        got, left = drawn(receiver, encoding, data, picture.shape)
        assert b"" == left
        assert np.array_equal(seen, got)


@pytest.mark.parametrize("pixel_format", FORMATS.values(), ids=FORMATS)
def test_a_format_survives_packing_and_keeps_black_and_white(pixel_format):
    assert pixel_format == PixelFormat.unpack(pixel_format.pack())
    ends = np.array([[[0, 0, 0], [255, 255, 255]]], np.uint8)
    seen = pixel_format.decode(pixel_format.encode(ends), 2, 1)
    assert np.array_equal(ends, seen)


def test_a_copied_rectangle_comes_from_the_picture_before_the_copy():
    picture = np.arange(27, dtype=np.uint8).reshape(3, 3, 3)
    before = picture.copy()
    data = struct.pack(">HH", 0, 0)

    assert b"" == draw(Codec(PixelFormat()), COPY, Rectangle(1, 1, 2, 2), picture, data)
    assert np.array_equal(before[:2, :2], picture[1:, 1:])


def packed(data, encoding=ZRLE):
    """Compresses bytes, and goes on with the stream, as servers do."""
    packer = zlib.compressobj()
    data = packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)
    if encoding == TIGHT:
        assert len(data) < 1 << 14
        return bytes([len(data) & 127 | 128, len(data) >> 7]) + data
    return struct.pack(">I", len(data)) + data


def test_a_new_format_continues_the_zlib_streams():
    picture = picture_of(1, 70, 30, 9, 2)
    sender, receiver = Codec(PixelFormat()), Codec(PixelFormat())
    for pixel_format in [*FORMATS.values(), PixelFormat()]:
        sender.format = receiver.format = pixel_format
        seen = pixel_format.colours(pixel_format.numbers(picture))
        for encoding in ENCODINGS.values():
            got, left = drawn(
                receiver, encoding, sender.encode(encoding, picture), picture.shape
            )
            assert b"" == left
            assert np.array_equal(seen, got)


BY_HAND = {
    "runs of ZRLE with long lengths": (
        ZRLE,
        (5, 64),
        packed(b"\x80abc\xff\x0exyz\x31"),
        [*[b"abc"] * 270, *[b"xyz"] * 50],
    ),
    "runs of a palette, and single pixels": (
        ZRLE,
        (1, 64),
        packed(b"\x82abcxyz" + b"\1\x80\x3b\0\x81\1"),
        [b"xyz", *[b"abc"] * 61, *[b"xyz"] * 2],
    ),
    "one colour of tight": (TIGHT, (2, 2), b"\x80abc", [b"abc"] * 4),
    "few pixels of tight": (TIGHT, (1, 2), b"\0abcxyz", [b"abc", b"xyz"]),
    "two colours of tight": (
        TIGHT,
        (2, 3),
        b"\x50\1\1abcxyz" + b"\xa0\x40",
        [b"xyz", b"abc", b"xyz", b"abc", b"xyz", b"abc"],
    ),
    "a palette of tight": (
        TIGHT,
        (1, 4),
        b"\x60\1\2abcxyzABC" + b"\2\1\0\1",
        [b"ABC", b"xyz", b"abc", b"xyz"],
    ),
    "tight that begins a stream anew": (
        TIGHT,
        (2, 2),
        b"\1" + packed(b"abcdefghijkl", TIGHT),
        [b"abc", b"def", b"ghi", b"jkl"],
    ),
}


@pytest.mark.parametrize(
    ("encoding", "shape", "data", "pixels"), BY_HAND.values(), ids=BY_HAND
)
def test_handwritten_bytes_are_decoded(encoding, shape, data, pixels):
    got, left = drawn(Codec(PixelFormat()), encoding, data, (*shape, 3))
    assert b"" == left
    assert pixels == [bytes(pixel) for pixel in got.reshape(-1, 3)]


def filtered(bands, most):
    """Returns what the gradient filter makes of red, green and blue: differences."""
    known = np.zeros((bands.shape[0] + 1, bands.shape[1] + 1, 3), int)
    known[1:, 1:] = bands
    expected = known[1:, :-1] + known[:-1, 1:] - known[:-1, :-1]
    return (bands - np.clip(expected, 0, most)) & most


@pytest.mark.parametrize("name", ["red first", "blue first", "16 bits", "8 bits"])
@given(seed=st.integers(0, 99), width=st.integers(1, 90), height=st.integers(1, 140))
def test_tight_gradients_are_decoded(name, seed, width, height):
    pixel_format = FORMATS[name]
    most = np.array(pixel_format.maxima)
    bands = np.random.default_rng(seed).integers(0, most + 1, (height, width, 3))
    differences = filtered(bands, most)
    if pixel_format.bits == 32:
        data = differences.astype(np.uint8).tobytes()
    else:
        numbers = (differences << np.array(pixel_format.shifts)).sum(axis=2)
        data = numbers.astype(pixel_format.dtype).tobytes()
    if len(data) >= 12:
        whole = zlib.compressobj()
        data = whole.compress(data) + whole.flush(zlib.Z_SYNC_FLUSH)
        size = len(data)
        parts = [size & 127 | 128, size >> 7 & 127 | 128, size >> 14]
        data = bytes(parts) + data
    picture = np.zeros((height, width, 3), np.uint8)
    place = Rectangle(0, 0, width, height)
    draw(Codec(pixel_format), TIGHT, place, picture, b"\x40\2" + data)

    assert np.array_equal(pixel_format.of_bands(bands.astype("u4")), picture)


def test_tight_uses_jpeg_for_many_colours_if_allowed():
    image = pytest.importorskip("PIL.Image", reason="pillow is not installed")
    y, x = np.mgrid[:64, :96]
    smooth = np.stack([x * 2, y * 3, x + y], axis=-1).astype(np.uint8)
    exact = Codec(PixelFormat()).encode(TIGHT, smooth)
    data = Codec(PixelFormat(), quality=8).encode(TIGHT, smooth)
    got, left = drawn(Codec(PixelFormat()), TIGHT, data, smooth.shape)

    assert 0x90 == data[0]
    assert 0x90 != exact[0]
    assert b"" == left
    assert np.abs(got.astype(int) - smooth).max() < 16
    # A picture of another size is refused before it takes memory.
    file = io.BytesIO()
    image.new("RGB", (9000, 9000)).save(file, "JPEG", quality=1)
    data = file.getvalue()
    size = bytes([len(data) & 127 | 128, len(data) >> 7 & 127 | 128, len(data) >> 14])
    with pytest.raises(DesktopError, match="must be 96 x 64, like its rectangle, got"):
        drawn(Codec(PixelFormat()), TIGHT, b"\x90" + size + data, smooth.shape)
    with pytest.raises(DesktopError, match="JPEG picture is damaged"):
        drawn(Codec(PixelFormat()), TIGHT, b"\x90\4abcd", smooth.shape)


def test_tight_rectangles_keep_their_size_limit():
    place = Rectangle(5, 7, 5000, 600)
    blocks = blocks_of(TIGHT, place)

    assert place.area == sum(block.area for block in blocks)
    assert 2048 >= max(block.width for block in blocks)
    assert [place] == blocks_of(ZRLE, place)


SHAPE = (2, 2, 3)
BROKEN = {
    "an unknown encoding": (99, b"", "The encoding of a rectangle must be one of"),
    "a copy from outside": (COPY, struct.pack(">HH", 1, 0), "must be inside the"),
    "a length of gigabytes": (ZLIB, b"\xff" * 4, "must have no more bytes than"),
    "no zlib at all": (ZLIB, struct.pack(">I", 3) + b"abc", "is damaged: Error -3"),
    "too few pixels": (ZLIB, packed(b"abc"), "must have 16 bytes, got 3"),
    "a stream that ends": (
        ZLIB,
        b"\0\0\0\x0b" + zlib.compress(b"abc"),
        "must unpack to no more than",
    ),
    "a zip bomb": (ZRLE, packed(bytes(10**6)), "must unpack to no more than"),
    "tiles that end early": (
        ZRLE,
        struct.pack(">I", 0),
        "must have all its tiles, got 0 bytes",
    ),
    "an unknown kind of tight": (TIGHT, b"\xa0", "must be of a known kind, got 10"),
    "an unknown filter of tight": (TIGHT, b"\x40\3", "0, 1 or 2, got 3"),
    "a long part of tight": (TIGHT, b"\0\xff\xff\xff", "must have no more bytes"),
    "a zip bomb of tight": (
        TIGHT,
        b"\0" + packed(bytes(10**6), TIGHT),
        "must unpack to no more than 12 bytes",
    ),
    "a colour that tight has not": (
        TIGHT,
        b"\x40\1\2abcdefghi\0\1\2\3",
        "its 3 colours, got number 3",
    ),
}


@pytest.mark.parametrize(("encoding", "data", "text"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rectangle_is_refused(encoding, data, text, message_of):
    def decode():
        drawn(Codec(PixelFormat()), encoding, data, SHAPE)

    assert text in message_of(DesktopError, decode)


def test_a_tight_rectangle_that_is_too_wide_is_refused():
    picture = np.zeros((1, 2049, 3), np.uint8)
    with pytest.raises(DesktopError, match="must be at most 2048 wide, got 2049"):
        drawn(Codec(PixelFormat()), TIGHT, b"\x80abc", picture.shape)


BROKEN_TILES = {
    "an unknown kind": (b"\x11", "must be of a known kind, got 17"),
    "a palette that another one is to be": (b"\x81", "must be of a known kind"),
    "a run past the tile": (b"\x80abc\x07", "must end within its tile, got 8"),
    "an endless run": (b"\x80abc" + b"\xff" * 40, "must end within its tile"),
    "a run that is cut off": (b"\x80abc", "bytes, which end within a tile"),
    "a run of a palette past the tile": (
        b"\x82abcdef\1\x80\3",
        "got 4 pixels where 3 are left",
    ),
    "an endless run of a palette": (b"\x82abcdef\x81" + b"\xff" * 40, "must end"),
    "runs of a palette that are cut off": (
        b"\x82abcdef\x81",
        "end within a tile",
    ),
    "a colour that is not there": (b"\x83" + b"abc" * 3 + b"\x03" * 4, "got number 3"),
    "a packed colour that is not there": (b"\x03" + b"abc" * 3 + b"\xff\xff", "got"),
    "more than there are": (b"\x01abc\x00", "must end with its last tile, got 1"),
}


@pytest.mark.parametrize(("tile", "text"), BROKEN_TILES.values(), ids=BROKEN_TILES)
def test_a_broken_tile_is_refused(tile, text, message_of):
    def decode():
        drawn(Codec(PixelFormat()), ZRLE, packed(tile), SHAPE)

    assert text in message_of(DesktopError, decode)


@pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=ENCODINGS)
@given(st.data())
def test_any_bytes_are_drawn_or_refused(encoding, data):
    """Within the tiles, too, which are behind the compression."""
    colours, run = data.draw(st.sampled_from([(2, 3), (20, 1), (90, 300), (4000, 2)]))
    picture = picture_of(data.draw(st.integers(0, 9)), 70, 66, colours, run)
    sent = Codec(PixelFormat()).encode(encoding, picture)
    if encoding == ZRLE:
        unpacked = bytearray(zlib.decompressobj().decompress(sent[4:]))
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(0, len(unpacked) - 1))
            unpacked[place] = data.draw(st.integers(0, 255))
        sent = packed(bytes(unpacked))
    else:
        changed = bytearray(sent)
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(0, min(len(changed) - 1, 300)))
            changed[place] = data.draw(st.integers(0, 255))
        sent = bytes(changed)
    try:
        got, _ = drawn(Codec(PixelFormat()), encoding, sent, picture.shape)
    except (DesktopError, EOFError):
        return
    assert picture.shape == got.shape
