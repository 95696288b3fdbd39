from __future__ import annotations

import numpy as np
import pytest

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
