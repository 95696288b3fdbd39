"""What acts when the agent does not, and what an agent may hand in."""

from __future__ import annotations

import re

import numpy as np
import pytest

from envkit import ArraySpec, BoundedArraySpec
from envkit.errors import SpecError
from envkit.realtime.actions import GivenActions, LateActions, no_op_of
from envkit.specs import ObjectSpec

ARM = {
    "move": BoundedArraySpec((2,), np.float32, -1.0, 1.0),
    "grip": ArraySpec((), bool),
}


def test_the_no_op_of_a_batch_has_one_action_per_row():
    late = LateActions("no_op", ARM, {"move": np.ones(2, np.float32), "grip": True}, 3)
    first = late.first()
    assert ((3, 2), np.float32) == (first["move"].shape, first["move"].dtype)
    assert [True] * 3 == first["grip"].tolist()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (BoundedArraySpec((), np.int64, 2, 5), 2),
        (BoundedArraySpec((), np.int64, -5, -2), -2),
        (BoundedArraySpec((), np.float32, -1.0, 1.0), 0.0),
        (ArraySpec((), bool), False),
        (ArraySpec((), "U3"), ""),
    ],
    ids=str,
)
def test_the_action_nearest_to_0_does_nothing(spec, expected):
    no_op = no_op_of(spec)
    assert (expected, spec.dtype) == (no_op.item(), no_op.dtype)


def test_an_object_may_be_the_no_op():
    spec = ObjectSpec()
    late = LateActions("repeat", spec, spec.wrap([("key", 1)]))
    assert [("key", 1)] == late.first().item()


def test_a_function_can_return_any_valid_action():
    late = LateActions(
        lambda tick, last: last + tick, BoundedArraySpec((), np.int8, 0, 9)
    )
    chosen = late.choose(3, np.array(4, np.int8))
    assert (7, np.int8) == (chosen.item(), chosen.dtype)


def test_rows_are_mixed_leaf_by_leaf():
    late = LateActions("repeat", ARM, rows=2)
    ones = {"move": np.ones((2, 2), np.float32), "grip": np.ones(2, bool)}
    mixed = late.mixed(np.array([False, True]), ones, late.first())
    assert [[0.0, 0.0], [1.0, 1.0]] == mixed["move"].tolist()
    assert [False, True] == mixed["grip"].tolist()


def test_rows_that_agree_keep_their_common_action():
    late = LateActions("repeat", ARM, rows=2)
    one, other = late.first(), late.first()
    assert one is late.mixed(np.array([True, True]), one, other)


# What an agent hands in.


@pytest.mark.parametrize("action", [3, np.int8(3), np.array(3), True])
def test_actions_get_the_dtype_of_their_spec(action):
    taken = GivenActions(BoundedArraySpec((), np.int32, 0, 9), None).take(action, "it")
    assert (np.int32, ()) == (taken.dtype, taken.shape)


def test_a_batch_of_actions_may_be_lists():
    taken = GivenActions(ARM, 2).take(
        {"move": [[1, 2], [3, 4]], "grip": [0 > 1] * 2}, ""
    )
    assert (np.float32, (2, 2)) == (taken["move"].dtype, taken["move"].shape)


def test_the_caller_may_change_an_action_afterwards():
    given = np.array([1, 2])
    taken = GivenActions(ArraySpec((), np.int64), 2).take(given, "it")
    given[:] = 9
    assert [1, 2] == taken.tolist()


def test_floats_beyond_their_bounds_are_left_to_the_environment():
    taken = GivenActions(BoundedArraySpec((1,), np.float32, 0, 1), None).take(
        [7.0], "it"
    )
    assert [7.0] == taken.tolist()


@pytest.mark.parametrize("rows", [None, 2])
def test_an_action_of_another_structure_is_refused(rows):
    with pytest.raises(SpecError, match=re.escape("step() was given an action that")):
        GivenActions(ARM, rows).take({"move": np.zeros(2)}, "step()")
