"""Batches of actions, as Gymnasium's vector environments take them."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from envkit import BoundedArraySpec
from envkit.adapters import spec_from_gym_space
from envkit.adapters.gymnasium_vector.vector_actions import VectorActions
from envkit.errors import SpecError


def actions_of(space, rows=2):
    return VectorActions(space, spec_from_gym_space(space), rows)


@settings(max_examples=60)
@given(
    choices=st.integers(1, 5),
    action=arrays.arrays(np.int64, 3, elements=st.integers(-7, 7)),
)
def test_choices_come_back_as_they_are_or_are_refused(choices, action):
    actions = actions_of(spaces.Discrete(choices), rows=3)

    if ((action >= 0) & (action < choices)).all():
        members = actions.members(action)

        assert action.tolist() == members.tolist()
        assert np.int64 == members.dtype
        assert not np.shares_memory(action, members)
    else:
        with pytest.raises(SpecError):
            actions.members(action)


@pytest.mark.parametrize("choices", [3, 1 << 16, (1 << 16) + 1, 1 << 40])
def test_there_may_be_many_choices(choices):
    actions = actions_of(spaces.Discrete(choices))

    assert [0, choices - 1] == actions.members(np.array([0, choices - 1])).tolist()
    for wrong in (-1, choices):
        with pytest.raises(SpecError):
            actions.members(np.array([0, wrong]))


@pytest.mark.parametrize(
    "action",
    [[1, 2], (1, 2), np.array([1, 2], np.int8), np.array([1, 9, 2, 9])[::2]],
    ids=["list", "tuple", "int8", "every other"],
)
def test_choices_may_come_in_other_arrays(action):
    members = actions_of(spaces.Discrete(3)).members(action)

    assert ([1, 2], np.int64) == (members.tolist(), members.dtype)


def test_unused_actions_may_be_anything():
    actions = actions_of(spaces.Discrete(3), rows=3)

    assert [0, 1, 0] == actions.members(np.array([9, 1, -9]), [0, 2]).tolist()


def test_a_batch_of_another_length_is_refused():
    with pytest.raises(SpecError):
        actions_of(spaces.Discrete(3)).members(np.array([0, 1, 2]))


def test_choices_that_do_not_begin_at_0_are_looked_at_as_well():
    actions = VectorActions(
        spaces.Discrete(3, start=5), BoundedArraySpec((), np.int64, 5, 7), rows=2
    )

    assert [5, 7] == actions.members(np.array([5, 7])).tolist()
    with pytest.raises(SpecError):
        actions.members(np.array([0, 5]))
