"""What there is to see, and how a terminal shows it."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from envkit import ArraySpec, BoundedArraySpec
from envkit.envs.random_py_environment import RandomPyEnvironment
from envkit.play.pictures import observed_picture
from envkit.play.scene import fitted, half_blocks, view_of
from envkit.testing import CountingEnv
from tests.cli.play.acting import choice


class Rendering(CountingEnv):
    """Renders what it is told to."""

    def __init__(self, **modes):
        super().__init__()
        self._modes = modes

    def render(self, mode="rgb_array"):
        if mode not in self._modes:
            raise NotImplementedError(f"There is no {mode}.")
        return self._modes[mode]


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        ({"rgb_array": np.full((2, 2, 3), 7, np.uint8), "ansi": "@"}, (2, 2, 3)),
        ({"rgb_array": "no picture", "ansi": "@"}, "@"),
        ({"ansi": "@"}, "@"),
        ({}, "0"),
    ],
    ids=["picture", "no picture", "text", "nothing"],
)
def test_a_picture_comes_before_text_and_text_before_numbers(modes, expected):
    env = Rendering(**modes)
    look, why = view_of(env)
    seen = look(env.reset())
    assert expected == (seen if isinstance(seen, str) else seen.shape)
    assert ("" if modes else "There is no rgb_array.") == why


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        (ArraySpec((8, 9, 3), np.uint8), (8, 9, 3)),
        (ArraySpec((8, 9, 4), np.uint8), (8, 9, 3)),
        (ArraySpec((4, 84, 84), np.uint8), (84, 84, 3)),
        (BoundedArraySpec((3, 8, 9), np.float32, 0.0, 1.0), (8, 9, 3)),
        (BoundedArraySpec((5, 6), np.int8, 0, 3), (5, 6, 3)),
        (
            {"a": ArraySpec((4,), np.float32), "b": ArraySpec((8, 8), np.uint8)},
            (8, 8, 3),
        ),
    ],
    ids=str,
)
def test_pictures_in_observations_are_seen(spec, shape):
    env = RandomPyEnvironment(spec, choice(2), seed=1)
    picture = observed_picture(spec)(env.reset().observation)
    assert (shape, np.uint8) == (picture.shape, picture.dtype)


@pytest.mark.parametrize(
    "spec",
    [
        ArraySpec((4,), np.float32),
        ArraySpec((8, 9), np.float32),
        BoundedArraySpec((2, 9), np.float32, 0.0, 1.0),
    ],
    ids=str,
)
def test_numbers_are_not_taken_for_pictures(spec):
    assert observed_picture(spec) is None


def test_each_character_has_the_colours_of_two_points():
    picture = np.array([[[1, 2, 3]], [[4, 5, 6]]], np.uint8)
    (block, _) = half_blocks(picture).segments
    assert "▀" == block.text
    assert ((1, 2, 3), (4, 5, 6)) == (
        tuple(block.style.color.triplet),
        tuple(block.style.bgcolor.triplet),
    )


@given(*[st.integers(1, 60)] * 4)
def test_a_picture_fits_into_its_room(height, width, room_height, room_width):
    picture = fitted(np.zeros((height, width, 3), np.uint8), room_height, room_width)
    assert picture.shape[0] <= room_height
    assert picture.shape[1] <= room_width
    # It is not much smaller than it could be.
    assert 2 * picture.shape[0] >= room_height or 2 * picture.shape[1] >= room_width
