"""Spaces of functional environments become specs; they need not be Gymnasium's."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from envkit import ArraySpec, BoundedArraySpec
from envkit.adapters.jax.functional import spec_of_shapes
from envkit.adapters.jax.gymnax import action_spec_from_space, with_bounds


def box(low, high, shape, dtype=np.float32):
    return SimpleNamespace(low=low, high=high, shape=shape, dtype=dtype)


def discrete(n, dtype=np.int32):
    return SimpleNamespace(n=n, shape=(), dtype=dtype)


def several(spaces):
    return SimpleNamespace(spaces=spaces)


def test_a_discrete_space_becomes_a_bounded_integer():
    spec = action_spec_from_space(discrete(3))
    assert BoundedArraySpec((), np.int32, 0, 2, "action") == spec


def test_a_box_keeps_bounds_by_element():
    spec = action_spec_from_space(box([-1, 0], [1, 2], (2,)))
    assert BoundedArraySpec((2,), np.float32, [-1, 0], [1, 2], "action") == spec


def test_nested_spaces_become_nests():
    space = several({"go": discrete(2), "turn": several([box(-1, 1, (1,))])})
    spec = action_spec_from_space(space)
    assert {
        "go": BoundedArraySpec((), np.int32, 0, 1, "action['go']"),
        "turn": (BoundedArraySpec((1,), np.float32, -1, 1, "action['turn'][0]"),),
    } == spec


def test_booleans_have_no_bounds():
    spec = action_spec_from_space(box(0, 1, (2,), np.bool_))
    assert ArraySpec((2,), np.bool_, "action") == spec


def test_a_value_other_than_a_space_is_refused(message_of):
    assert (
        "The space of action['go'] is 3 of type int; it has neither `spaces`, like a "
        "composite space, nor `shape` and `dtype`."
    ) == message_of(TypeError, lambda: action_spec_from_space(several({"go": 3})))


def test_shapes_become_specs_without_bounds():
    shapes = {"near": SimpleNamespace(shape=(2,), dtype=np.float32)}
    spec = spec_of_shapes(shapes, "observation")
    assert {"near": ArraySpec((2,), np.float32, "observation")} == spec


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_infinite_bounds_of_integers_become_their_limits(dtype):
    spec = with_bounds(ArraySpec((), dtype), box(-np.inf, np.inf, ()))
    info = np.iinfo(dtype)
    assert BoundedArraySpec((), dtype, info.min, info.max) == spec


def test_bounds_reach_their_leaves_in_a_nest():
    spec = {"a": ArraySpec((2,), np.float32), "b": (ArraySpec((), np.int32),)}
    space = several({"a": box(0, 1, (2,)), "b": several([discrete(5)])})
    bounded = with_bounds(spec, space)
    assert {
        "a": BoundedArraySpec((2,), np.float32, 0, 1),
        "b": (BoundedArraySpec((), np.int32, 0, 4),),
    } == bounded


@pytest.mark.parametrize(
    "space",
    [box(np.zeros(3), np.ones(3), (3,)), several([]), None, SimpleNamespace()],
    ids=["another shape", "another nest", "none", "nothing known"],
)
def test_a_mismatched_space_adds_no_bounds(space):
    spec = ArraySpec((2,), np.float32)
    assert spec is with_bounds(spec, space)


def test_a_tuple_of_another_length_adds_no_bounds():
    spec = (ArraySpec((), np.float32),)
    assert spec is with_bounds(spec, several([discrete(2), discrete(2)]))
