from __future__ import annotations

import numpy as np
import pytest

from envkit import ArraySpec, BoundedArraySpec
from envkit.wrappers.reward_sums import sum_spec


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
