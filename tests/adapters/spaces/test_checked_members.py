"""Values of anybody's as members of Gymnasium's spaces, converted and checked."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit.adapters import spec_from_gym_space
from envkit.adapters.spaces.checked_members import action_converter
from envkit.adapters.spaces.from_members import from_member
from envkit.adapters.spaces.one_of import OneOf
from envkit.errors import SpecError
from envkit.specs import ObjectSpec
from tests import strategies
from tests.adapters.gym_spaces import Interval, gym_spaces, members, same


def converter(space):
    spec = spec_from_gym_space(space, name="action")
    return action_converter(space, spec, subject="It", root="action")


def refusal(space, value) -> str:
    with pytest.raises(SpecError) as caught:
        converter(space)(value)
    return str(caught.value)


@given(data=st.data())
@settings(max_examples=50)
def test_a_member_comes_back_from_its_value(data):
    space = data.draw(gym_spaces())
    member = data.draw(members(space))
    value = from_member(space, spec_from_gym_space(space))(member)

    assert same(member, converter(space)(value))


@given(data=st.data())
@settings(max_examples=50)
def test_whatever_fits_the_spec_of_a_box_is_a_member(data):
    spec = data.draw(strategies.bounded_specs())
    space = spaces.Box(
        *(np.broadcast_to(bound, spec.shape) for bound in (spec.minimum, spec.maximum)),
        spec.shape,
        spec.dtype,
    )
    value = data.draw(strategies.values(spec))

    assert space.contains(converter(space)(value))


@pytest.mark.parametrize("action", [6, np.int32(6), np.array(6), np.array(6, np.uint8)])
def test_a_discrete_action_becomes_a_number_of_the_spaces_dtype(action):
    space = spaces.Discrete(3, start=5)

    converted = converter(space)(action)

    assert np.int64 is type(converted)
    assert space.contains(converted)


def test_an_action_is_copied_so_that_an_environment_may_keep_it():
    given_action = np.zeros(2, np.float32)
    action = converter(spaces.Box(-1, 1, (2,), np.float32))(given_action)

    given_action += 1

    np.testing.assert_array_equal(np.zeros(2, np.float32), action)


def test_a_float64_action_becomes_what_the_box_is_made_of():
    action = converter(spaces.Box(-1, 1, (2,), np.float32))(np.array([0.1, 1.0]))

    assert np.float32 == action.dtype


def test_a_boolean_of_numpy_chooses_between_two_as_pythons_does():
    to_action = converter(spaces.Discrete(2))

    assert (1, 1) == (to_action(True), to_action(np.True_))


@pytest.mark.parametrize("action", [4, 8, np.array(8), -(2**70), 6.0, np.array([6])])
def test_a_discrete_action_outside_the_space_is_refused(action):
    with pytest.raises(SpecError, match=r"^It does not fit its spec\."):
        converter(spaces.Discrete(3, start=5))(action)


def test_a_wrong_action_deep_in_a_nest_is_named():
    space = spaces.Dict(
        arm=spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (2,), np.float32))),
        word=spaces.Text(5),
    )

    with pytest.raises(SpecError) as caught:
        converter(space)({"arm": (0, np.float32([0, 2])), "word": "left"})

    assert (
        "It does not fit its spec at action['arm'][1].\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=float32, minimum=-1.0, "
        "maximum=1.0, name='action/arm/tuple_1')\n"
        "  got        array of shape (2,), dtype float32, values 0.0 … 2.0\n\n"
        "1 of 2 elements is above the maximum 1.0: 2.0 at index (1,). The other 2 "
        "leaves fit."
    ) == str(caught.value)
    assert "action['arm'][1]" == caught.value.path


def test_a_text_that_is_too_long_is_refused():
    space = spaces.Text(3)
    letters = repr("".join(space.character_list)[:12] + "…")

    with pytest.raises(SpecError) as caught:
        converter(space)("left")

    assert (
        "It does not fit its spec.\n\n"
        "  expected   TextSpec(shape=(), dtype=<U3, min_length=1, max_length=3, "
        f"letters={letters}, name='action')\n"
        "  got        array of shape (), dtype <U4\n\n"
        "dtype is <U4; the spec says <U3."
    ) == str(caught.value)


@pytest.mark.parametrize("text", ["", "abc"], ids=["too short", "other letters"])
def test_a_text_that_only_the_space_refuses_is_refused(text):
    space = spaces.Dict(word=spaces.Text(3, min_length=1, charset="ab"))

    with pytest.raises(SpecError) as caught:
        converter(space)({"word": text})

    assert (
        "It does not fit its spec at action['word'].\n\n"
        f"  expected   {space['word']!r}\n"
        f"  got        the string {text!r}\n\n"
        "The space leaves out some lengths or letters, and this text has them."
    ) == str(caught.value)


@pytest.mark.parametrize("size", [3, 50], ids=["few", "many"])
@pytest.mark.parametrize("wrong", [1.5, -1.5, np.nan])
def test_one_number_beyond_its_bounds_is_enough(size, wrong):
    space = spaces.Box(-1, 1, (size,), np.float32)
    action = np.zeros(size, np.float32)
    converter(space)(action)

    action[-1] = wrong

    assert refusal(space, action).startswith("It does not fit its spec.")


def test_each_number_has_bounds_of_its_own():
    space = spaces.Box(np.float32([[0, -5], [2, 2]]), np.float32([[1, 0], [2, 3]]))

    np.testing.assert_array_equal(
        [[1, -5], [2, 3]], converter(space)(np.float32([[1, -5], [2, 3]]))
    )
    assert "is above the maximum 1.0: 2.0 at index (0, 0)." in refusal(
        space, np.float32([[2, -5], [2, 3]])
    )


def test_a_choice_of_many_becomes_a_number_too():
    converted = converter(spaces.Discrete(10**6, start=-5))(np.array(10**5))

    assert (np.int64, 10**5) == (type(converted), converted)


def test_an_object_is_a_copy_with_or_without_an_array_around_it():
    member = ([1, 2], [3])

    class Lists(Interval):
        def contains(self, x):
            return isinstance(x, tuple)

    convert = converter(Lists(2))

    for value in (member, ObjectSpec.wrap(member)):
        converted = convert(value)
        assert member == converted
        assert member[0] is not converted[0]


def test_an_object_that_is_no_member_is_refused():
    space = spaces.Dict(a=Interval(4), b=spaces.Discrete(2))

    assert (
        "It does not fit its spec at action['a'].\n\n"
        "  expected   ObjectSpec(shape=(), dtype=object, kind=Interval(4), "
        "name='action/a')\n"
        "  got        a tuple of 2 elements\n\n"
        "It is none of these values."
    ) == refusal(space, {"a": (3, 2), "b": 0})


UNION = spaces.OneOf([spaces.Discrete(4), spaces.Box(0, 1, (2,), np.float32)])


def test_only_the_branch_that_counts_is_looked_at():
    value = OneOf(1, (99, np.float32([0.5, 1])))

    tag, member = converter(UNION)(value)

    assert (np.int64, 1) == (type(tag), tag)
    np.testing.assert_array_equal(np.float32([0.5, 1]), member)


def test_a_wrong_value_of_a_union_is_named():
    space = spaces.Dict(union=UNION)

    assert (
        "It does not fit its spec at action['union'].branches[1].\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=float32, minimum=0.0, "
        "maximum=1.0, name='action/union/branch_1')\n"
        "  got        array of shape (3,), dtype float32, values 0.0 … 0.0\n\n"
        "Axis 0 has size 3 instead of 2."
    ) == refusal(space, {"union": OneOf(1, (0, np.zeros(3, np.float32)))})


@pytest.mark.parametrize(
    "value",
    [OneOf(2, (0, np.zeros(2, np.float32))), (0,), 3, None],
    ids=["no branch", "no pair", "number", "None"],
)
def test_what_is_no_union_is_refused(value):
    assert refusal(UNION, value).startswith("It does not fit its spec")
