"""`GifFile`: an animation that is whole all the time."""

from __future__ import annotations

import imageio.v3 as imageio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies

from envkit.wrappers.video.gif_file import GifFile, image_of
from tests.wrappers.films import gif

HEADER = b"GIF89a\x06\x00\x04\x00\x70\x00\x00"


def write(path, pictures, fps=10):
    file = GifFile(path, fps, *pictures[0].shape[:2])
    for picture in pictures:
        file.write(picture)
    file.finish()


@given(
    pictures=numpy_strategies.arrays(
        np.uint8,
        st.tuples(
            st.integers(1, 4), st.integers(1, 20), st.integers(1, 20), st.just(3)
        ),
        # So few that each picture has at most 256 of them.
        elements=st.sampled_from([0, 1, 90, 128, 254, 255]),
    )
)
def test_up_to_256_colours_come_out_as_they_were(pictures, tmp_path_factory):
    path = tmp_path_factory.mktemp("films") / "film.gif"
    write(path, pictures)

    assert np.array_equal(pictures, gif(path))


def test_more_colours_come_out_roughly(tmp_path):
    # A slope of colours, as real pictures have them.
    line, column = np.mgrid[:40, :60]
    slope = np.stack([6 * line, 4 * column, line + column], axis=-1).astype(np.uint8)
    write(tmp_path / "film.gif", [slope, slope[::-1]])
    read = gif(tmp_path / "film.gif").astype(int)

    assert np.abs(read - [slope, slope[::-1]]).mean() < 8


def test_a_film_can_be_watched_while_it_is_made(tmp_path):
    path = tmp_path / "film.gif"
    file = GifFile(path, 10, 4, 6)
    lengths = []
    for shade in range(3):
        file.write(np.full((4, 6, 3), shade, np.uint8))
        lengths.append(len(gif(path)))
    file.finish()

    assert [1, 2, 3] == lengths


@pytest.mark.parametrize("fps", [50, 30, 24, 10, 7.5, 1])
def test_the_pictures_of_a_second_last_a_second(tmp_path, fps):
    path = tmp_path / "film.gif"
    count = round(4 * fps)
    write(path, [np.full((2, 2, 3), i % 250, np.uint8) for i in range(count)], fps)
    with imageio.imopen(path, "r", plugin="pillow") as film:
        durations = [film.metadata(index=i)["duration"] for i in range(count)]

    assert 4000 == sum(durations)
    assert max(durations) - min(durations) <= 10


def test_a_film_repeats_for_ever(tmp_path):
    path = tmp_path / "film.gif"
    write(path, [np.zeros((2, 2, 3), np.uint8)] * 2)

    assert 0 == imageio.immeta(path, plugin="pillow", index=0)["loop"]


def test_what_an_interrupted_write_left_is_overwritten(tmp_path):
    path = tmp_path / "film.gif"
    file = GifFile(path, 10, 4, 6)
    file.write(np.full((4, 6, 3), 1, np.uint8))
    file._file.write(b"half a picture")
    file.finish()

    assert 1 == len(gif(path))
    assert path.read_bytes().endswith(b"\x00;")


def test_an_image_with_a_palette_of_its_own_keeps_it():
    alone = imageio.imwrite(
        "<bytes>", np.full((4, 6, 3), 7, np.uint8), extension=".gif", plugin="pillow"
    )
    image = image_of(alone)

    assert image == image_of(HEADER + image + b";")


def test_extensions_before_an_image_are_left_out():
    alone = imageio.imwrite(
        "<bytes>", np.full((4, 6, 3), 7, np.uint8), extension=".gif", plugin="pillow"
    )
    image = image_of(alone)
    control, comment = b"\x21\xf9\x04\x04\x03\x00\x00\x00", b"\x21\xfe\x02hi\x01!\x00"

    assert image == image_of(HEADER + control + comment + image + b";")
