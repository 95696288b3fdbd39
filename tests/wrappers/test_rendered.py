"""What `render` returns: `check_picture` and `tiled`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.wrappers.pictures.rendered import check_picture, tiled


@pytest.mark.parametrize(
    "picture",
    [
        None,
        [[[0, 0, 0]]],
        np.zeros((4, 6, 3)),
        np.zeros((4, 6), np.uint8),
        np.zeros((4, 6, 4), np.uint8),
        np.zeros((0, 6, 3), np.uint8),
        np.zeros((2, 4, 6, 3), np.uint8),
    ],
)
def test_what_is_no_picture_is_refused(picture, message_of):
    message = message_of(ValueError, lambda: check_picture(picture, (), "It"))

    assert message.startswith(
        "It did not return a picture.\n\n"
        "  expected   uint8 array of shape (height, width, 3)\n"
        "  got        "
    )


def test_a_batch_has_one_picture_for_each_row(message_of):
    check_picture(np.zeros((2, 4, 6, 3), np.uint8), (2,), "It")

    assert (
        "It did not return a picture.\n\n"
        "  expected   uint8 array of shape (3, height, width, 3)\n"
        "  got        array of shape (2, 4, 6, 3), dtype uint8, values 0 … 0\n\n"
        "One picture for each row, colours last, values from 0 to 255."
    ) == message_of(
        ValueError,
        lambda: check_picture(np.zeros((2, 4, 6, 3), np.uint8), (3,), "It"),
    )


@given(count=st.integers(1, 40), height=st.integers(1, 5), width=st.integers(1, 5))
def test_tiles_are_as_many_beside_as_above_one_another_or_one_more(
    count, height, width
):
    picture = tiled(np.ones((count, height, width, 3), np.uint8))
    lines, columns = (
        (picture.shape[0] + 2) / (height + 2),
        (picture.shape[1] + 2) / (width + 2),
    )

    assert 3 == picture.shape[-1]
    assert columns - lines in (0, 1)
    assert lines * columns >= count
    assert count * height * width * 3 == (picture == 1).sum()


def test_tiles_go_from_left_to_right_and_then_down():
    pictures = np.arange(3, dtype=np.uint8).reshape(3, 1, 1, 1)
    canvas = tiled(np.broadcast_to(pictures, (3, 1, 1, 3)))[:, :, 0]

    assert [[0, 96, 96, 1], [96] * 4, [96] * 4, [2, 96, 96, 96]] == canvas.tolist()


def test_a_single_tile_is_the_picture():
    picture = np.full((4, 6, 3), 8, np.uint8)

    assert np.array_equal(picture, tiled(picture[None]))
