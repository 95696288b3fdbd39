from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from envkit.wrappers.pictures.arithmetic import grayscale, resize

SIDES = st.integers(1, 12)
SEEDS = st.integers(0, 2**16)


def noise(seed, *shape):
    # Many points at the ends of the range, and many halves among the means.
    values = np.array([0, 1, 2, 3, 128, 254, 255], np.uint8)
    return np.random.default_rng(seed).choice(values, shape)


def test_colours_are_as_bright_as_opencv_says():
    colours = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255], [10, 200, 30]]

    gray = grayscale(np.array([colours], np.uint8))

    assert [[76, 150, 29, 255, 124]] == gray.tolist()


@given(seed=SEEDS)
def test_brightness_is_the_weighted_mean_of_the_colours(seed):
    picture = np.random.default_rng(seed).integers(0, 256, (5, 4, 3), np.uint8)
    weights = np.array([0.299, 0.587, 0.114])

    # The weights are those of OpenCV, which have a little over four digits.
    assert np.abs(grayscale(picture) - picture @ weights).max() <= 0.51


def test_points_of_equal_colours_keep_their_brightness():
    picture = np.arange(256, dtype=np.uint8)[:, np.newaxis, np.newaxis]

    assert np.array_equal(picture[..., 0], grayscale(picture.repeat(3, axis=2)))


@given(seed=SEEDS, old=st.tuples(SIDES, SIDES), new=st.tuples(SIDES, SIDES))
def test_a_smaller_picture_has_the_means_of_the_areas(seed, old, new):
    new = tuple(map(min, old, new))
    picture = noise(seed, *old)

    small = resize(picture, new)

    # As many equal points as both sizes go into; each new one is so many of them.
    fine = picture.repeat(new[0], axis=0).repeat(new[1], axis=1).astype(np.int64)
    sums = fine.reshape(new[0], old[0], new[1], old[1]).sum(axis=(1, 3))
    means = sums / (old[0] * old[1])
    # OpenCV rounds halves up where it halves both sizes, else to the even grade.
    is_halved = old == (2 * new[0], 2 * new[1])
    assert np.array_equal(np.floor(means + 0.5) if is_halved else np.rint(means), small)


@given(seed=SEEDS, old=st.tuples(SIDES, SIDES), new=st.tuples(SIDES, SIDES))
def test_a_larger_picture_has_points_on_lines_between_the_old_ones(seed, old, new):
    new = tuple(map(max, old, new))
    picture = noise(seed, *old)

    large = resize(picture, new)

    points = [(np.arange(n) + 0.5) * o / n - 0.5 for n, o in zip(new, old, strict=True)]
    lines = picture.astype(float)
    for axis in (0, 1):
        lines = np.apply_along_axis(
            lambda line, axis=axis: np.interp(points[axis], np.arange(old[axis]), line),
            axis,
            lines,
        )
    assert np.abs(large - lines).max() <= 0.5 + 1e-9


@given(seed=SEEDS, old=st.tuples(SIDES, SIDES), new=st.tuples(SIDES, SIDES), rows=SIDES)
def test_pictures_come_out_the_same_alone_and_in_a_batch(seed, old, new, rows):
    pictures = noise(seed, 2, rows, *old, 3)

    batch = resize(pictures, new, channels=True)

    assert (2, rows, *new, 3) == batch.shape
    for index in np.ndindex(2, rows):
        alone = resize(pictures[index], new, channels=True)
        assert np.array_equal(alone, batch[index])
        gray = resize(grayscale(pictures[index]), new)
        assert np.array_equal(gray, resize(grayscale(pictures), new)[index])


@given(seed=SEEDS, old=st.tuples(SIDES, SIDES), new=st.tuples(SIDES, SIDES))
def test_channels_are_resized_one_by_one(seed, old, new):
    picture = noise(seed, *old, 4)

    together = resize(picture, new, channels=True)

    alone = [resize(picture[..., channel], new) for channel in range(4)]
    assert np.array_equal(np.stack(alone, axis=-1), together)


@given(seed=SEEDS, old=st.tuples(SIDES, SIDES), new=st.tuples(SIDES, SIDES))
def test_brighter_pictures_do_not_become_darker(seed, old, new):
    picture = noise(seed, *old)
    brighter = np.maximum(picture, noise(seed + 1, *old))

    assert (resize(picture, new) <= resize(brighter, new)).all()


@pytest.mark.parametrize(
    ("old", "new"), [((210, 160), (84, 84)), ((257, 271), (256, 9))]
)
def test_large_pictures_have_exact_means_too(old, new):
    """The second has sums that are too large for float32."""
    picture = noise(1, *old)

    small = resize(picture, new)

    rows = picture.repeat(new[0], axis=0).reshape(new[0], *old).sum(axis=1)
    sums = rows.repeat(new[1], axis=1).reshape(*new, old[1]).sum(axis=2)
    assert np.array_equal(np.rint(sums / (old[0] * old[1])), small)


def test_many_pictures_are_resized_block_by_block():
    pictures = noise(1, 40, 100, 100)

    small = resize(pictures, (50, 50))

    assert np.array_equal(resize(pictures[37], (50, 50)), small[37])


def test_pictures_of_the_right_size_are_copied():
    picture = noise(1, 4, 5)

    same = resize(picture, (4, 5))

    assert np.array_equal(picture, same)
    assert not np.shares_memory(picture, same)


def test_pictures_that_are_not_contiguous_are_resized_as_they_look():
    wide = noise(1, 6, 8)

    assert np.array_equal(resize(wide[::-1].copy(), (3, 2)), resize(wide[::-1], (3, 2)))


def test_no_pictures_become_no_pictures():
    assert (0, 2, 3) == resize(np.zeros((0, 4, 4), np.uint8), (2, 3)).shape


def test_halved_pictures_round_halves_up_as_opencv_does():
    """And to the even grade in all other sizes."""
    picture = np.array([[0, 1, 2, 3], [0, 1, 2, 3]], np.uint8)

    assert [[1, 3]] == resize(picture, (1, 2)).tolist()
    assert [[0, 2]] == resize(picture[:1], (1, 2)).tolist()
