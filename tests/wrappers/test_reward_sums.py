from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec
from envkit.wrappers.reward_sums import add_in_rows, sum_spec


def test_bounds_are_those_of_so_many_rewards():
    spec = BoundedArraySpec((2,), np.float32, [-1.0, 0.5], [2.0, 3.0], name="reward")

    summed = sum_spec(spec, 3)

    assert BoundedArraySpec((2,), np.float32, [-3.0, 0.5], [6.0, 9.0]) == summed
    assert summed.name == "reward"


def test_bounds_hold_for_a_single_reward_too():
    assert BoundedArraySpec((), np.int64, -8, -1) == sum_spec(
        BoundedArraySpec((), np.int64, -2, -1), 4
    )


def test_a_spec_without_bounds_stays():
    spec = ArraySpec((), np.float32)

    assert sum_spec(spec, 4) is spec


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8])
def test_bounds_are_never_beyond_their_dtype(dtype):
    spec = BoundedArraySpec((), dtype)

    assert spec == sum_spec(spec, 4)


def test_a_bound_beyond_the_dtype_becomes_its_limit():
    spec = BoundedArraySpec((2,), np.int8, [-100, 3], [30, 40])

    assert BoundedArraySpec((2,), np.int8, [-128, 3], [120, 127]) == sum_spec(spec, 4)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("most", [7, 10, 100])
def test_rewards_at_their_bounds_add_up_to_the_bounds_of_the_sum(dtype, most):
    """Float sums are rounded at each step, and a product only once."""
    spec = BoundedArraySpec((2,), dtype, [-0.1, -0.7], [0.1, 0.3])
    summed = sum_spec(spec, most)
    for reward, bound in [
        (spec.minimum, summed.minimum),
        (spec.maximum, summed.maximum),
    ]:
        total = reward
        for _ in range(most - 1):
            total = add_in_rows(np.array(True), total, reward)

        assert bound.tolist() == total.tolist()


def test_the_sum_of_more_rewards_than_can_be_added_has_no_bounds():
    spec = BoundedArraySpec((), np.float32, -0.1, 0.0)

    summed = sum_spec(spec, 2**62)

    assert BoundedArraySpec((), np.float32, None, 0.0) == summed


def test_integers_are_multiplied_exactly():
    spec = BoundedArraySpec((), np.int64, -(2**53) - 1, 2**61)

    summed = sum_spec(spec, 4)

    assert -4 * (2**53 + 1) == summed.minimum
    assert np.iinfo(np.int64).max == summed.maximum


ROWS = np.array([True, True, True, False])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_a_sum_beyond_the_limits_of_integers_is_the_limit(dtype):
    info = np.iinfo(dtype)
    total = np.array([info.max - 1, info.min, 3, info.max], dtype)
    reward = np.array([2, -1 if info.min else 0, 4, 1], dtype)

    added = add_in_rows(ROWS, total, reward)

    assert dtype == added.dtype
    assert [info.max, info.min, 7, info.max] == added.tolist()


@given(st.data(), st.sampled_from([np.int8, np.uint8, np.int64, np.uint64, ">i2"]))
def test_sums_of_integers_are_exact_within_their_limits(data, dtype):
    dtype = np.dtype(dtype)
    info = np.iinfo(dtype)
    number = st.integers(int(info.min), int(info.max))
    total, reward = data.draw(number), data.draw(number)

    added = add_in_rows(np.array(True), np.array(total, dtype), np.array(reward, dtype))

    assert ((), dtype) == (added.shape, added.dtype)
    assert min(max(total + reward, info.min), info.max) == added


def test_a_sum_of_many_rewards_is_within_its_spec():
    spec = BoundedArraySpec((), np.int8, -100, 100)
    total = reward = np.array(100, np.int8)
    for _ in range(3):
        total = add_in_rows(np.array(True), total, reward)

    assert sum_spec(spec, 4).check_array(total)
    assert 127 == total


def test_floats_overflow_to_infinity_without_a_warning():
    large = np.array([3e38, -3e38, 1.0], np.float32)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        added = add_in_rows(np.array([True] * 3), large, large)
        single = add_in_rows(np.array(True), large[0, ...], large[0, ...])

    assert [np.inf, -np.inf, 2.0] == added.tolist()
    assert np.inf == single


def test_booleans_add_up_to_whether_one_was_true():
    total = np.array([True, False, False, False])
    reward = np.array([True, True, False, True])

    assert [True, True, False, False] == add_in_rows(ROWS, total, reward).tolist()


def test_rewards_are_added_in_the_rows_of_vectors():
    total, reward = (
        np.array([[1, 100], [1, 100]], np.int8),
        np.full((2, 2), 50, np.int8),
    )

    added = add_in_rows(np.array([True, False]), total, reward)

    assert [[51, 127], [1, 100]] == added.tolist()
