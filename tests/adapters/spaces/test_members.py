"""Values of envkit as members of Gymnasium's spaces."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec
from envkit.adapters import spec_from_gym_space
from envkit.adapters.spaces.from_members import from_member, from_members
from envkit.adapters.spaces.members import to_member, to_members
from envkit.adapters.spaces.one_of import OneOf
from envkit.adapters.spaces.spaces_from_specs import (
    batch_space_from_spec,
    space_from_spec,
)
from envkit.specs import ObjectSpec
from tests.adapters.gym_spaces import gym_spaces, members, same


def converted(space, value):
    return to_member(space, spec_from_gym_space(space))(value)


def converted_batch(space, value):
    return to_members(space, spec_from_gym_space(space))(value)


@given(data=st.data())
@settings(max_examples=50)
def test_a_member_comes_back_from_its_value(data):
    space = data.draw(gym_spaces())
    member = data.draw(members(space))
    value = from_member(space, spec_from_gym_space(space))(member)

    back = converted(space, value)

    assert same(member, back)
    assert space.contains(back)


@given(data=st.data(), rows=st.integers(1, 3))
@settings(max_examples=50)
def test_a_batch_of_members_comes_back_from_its_value(data, rows):
    space = data.draw(gym_spaces())
    batch = concatenate(
        space,
        [data.draw(members(space)) for _ in range(rows)],
        create_empty_array(space, rows),
    )
    spec = spec_from_gym_space(space)
    value = from_members(space, spec, rows)(batch)

    back = converted_batch(space, value)

    assert same(batch, back)
    assert batch_space_from_spec(spec, rows).contains(back)


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (spaces.Box(0, 1, (2,)), np.zeros(2, np.float32)),
        (spaces.Dict(a=spaces.Box(0, 1, (2,))), {"a": np.zeros(2, np.float32)}),
        (spaces.Tuple([spaces.MultiBinary(2)]), (np.zeros(2, np.int8),)),
    ],
    ids=str,
)
def test_what_is_a_member_already_is_passed_on(space, value):
    assert value is converted(space, value)


def test_batches_of_numbers_are_passed_on():
    value = {"a": np.array([1, 0]), "b": np.zeros((2, 3), np.float32)}
    space = spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0, 1, (3,)))

    assert value is converted_batch(space, value)


@pytest.mark.parametrize("value", [np.array(6), np.int64(6), 6])
def test_a_choice_is_a_number_of_numpy(value):
    member = converted(spaces.Discrete(3, start=5), value)

    assert (np.int64, 6) == (type(member), member)


def test_text_is_a_string_and_a_batch_of_it_a_tuple():
    space = spaces.Text(4)

    member = converted(space, np.array("left"))
    batch = converted_batch(space, np.array(["left", "up"]))

    assert (str, "left") == (type(member), member)
    assert same(("left", "up"), batch)


def test_lists_and_namedtuples_become_tuples():
    spec = [BoundedArraySpec((2,), np.float32, 0, 1)]
    value = [np.zeros(2, np.float32)]

    member = to_member(space_from_spec(spec), spec)(value)

    assert tuple is type(member)
    assert value[0] is member[0]


def test_a_union_is_a_pair_of_the_branch_and_its_member():
    space = spaces.OneOf([spaces.Text(3), spaces.Discrete(4)])
    value = OneOf(np.array(1), (np.array("abc"), np.array(2)))

    member = converted(space, value)

    assert (1, 2) == member
    assert (np.int64, np.int64) == tuple(map(type, member))


def test_an_object_is_itself():
    thing = [1, {"b": 2}]
    spec = ObjectSpec()
    space = space_from_spec(spec)

    assert thing is to_member(space, spec)(ObjectSpec.wrap(thing))


def test_a_batch_of_a_space_that_gymnasium_does_not_know_is_a_tuple():
    spec = ArraySpec((2,), np.complex64)
    value = np.zeros((3, 2), np.complex64)

    batch = to_members(space_from_spec(spec), spec)(value)

    assert tuple is type(batch)
    assert batch_space_from_spec(spec, 3).contains(batch)
