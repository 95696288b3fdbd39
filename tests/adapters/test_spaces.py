"""Gymnasium's spaces as specs, and what fits them as members of the spaces."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec, nest
from envkit.adapters.spaces import action_converter, spec_from_gym_space
from envkit.adapters.values import Converter, array_leaf, map_specs
from envkit.errors import SpecError
from envkit.specs import check_fits, is_bounded
from tests import strategies

SPACES = [
    spaces.Box(-1.0, 1.0, (2, 3), np.float32),
    spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, np.inf]), dtype=np.float64),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Box(-5, 5, (), np.float16),
    spaces.Box(0, 1, (0,), np.float32),
    spaces.Box(0, 1, (3,), np.bool_),
    spaces.Discrete(3),
    spaces.Discrete(3, start=-1),
    spaces.MultiDiscrete([2, 3, 4]),
    spaces.MultiDiscrete([[2, 3], [4, 5]], dtype=np.int32),
    spaces.MultiDiscrete([2, 3], start=[-1, 10]),
    spaces.MultiBinary(5),
    spaces.MultiBinary((2, 3)),
    spaces.Text(7),
    spaces.Text(3, min_length=0, charset="ab"),
    spaces.Dict(b=spaces.Discrete(2), a=spaces.Box(0, 1, (2,), np.float32)),
    spaces.Tuple((spaces.Discrete(2), spaces.Text(3))),
    spaces.Dict(
        pair=spaces.Tuple((spaces.MultiBinary(2), spaces.Dict(x=spaces.Discrete(2)))),
        empty=spaces.Dict(),
        none=spaces.Tuple(()),
    ),
]


def converter(space):
    spec = spec_from_gym_space(space, name="action")
    return action_converter(space, spec, subject="It", root="action")


def test_a_box_keeps_dtype_shape_and_the_bounds_of_every_element():
    space = spaces.Box(
        np.array([0.0, -2.0], np.float32), np.array([1.0, np.inf], np.float32)
    )

    assert BoundedArraySpec(
        (2,), np.float32, [0.0, -2.0], [1.0, np.finfo(np.float32).max]
    ) == spec_from_gym_space(space)


@given(data=st.data())
@settings(max_examples=50)
def test_the_box_of_a_spec_gives_the_spec_back(data):
    spec = data.draw(strategies.bounded_specs())
    low, high = (
        np.broadcast_to(bound, spec.shape) for bound in (spec.minimum, spec.maximum)
    )
    space = spaces.Box(low, high, spec.shape, spec.dtype)

    assert spec == spec_from_gym_space(space)


def test_bounds_that_are_all_the_same_become_numbers():
    spec = spec_from_gym_space(spaces.Box(-1.0, 1.0, (2, 3), np.float32))

    assert ((), ()) == (spec.minimum.shape, spec.maximum.shape)


def test_bounds_stay_arrays_if_only_one_is_all_the_same():
    space = spaces.Box(np.float32([0, 0]), np.float32([1, 2]))
    spec = spec_from_gym_space(space)

    assert ((2,), (2,)) == (spec.minimum.shape, spec.maximum.shape)


def test_bounds_stay_arrays_if_that_is_asked_for():
    space = spaces.Box(-1.0, 1.0, (2, 3), np.float32)
    spec = spec_from_gym_space(space, simplify_box_bounds=False)

    assert ((2, 3), (2, 3)) == (spec.minimum.shape, spec.maximum.shape)


def test_a_box_of_booleans_has_no_bounds():
    spec = spec_from_gym_space(spaces.Box(0, 1, (2,), np.bool_))

    assert ArraySpec((2,), np.bool_) == spec


def test_a_discrete_space_keeps_its_start():
    assert BoundedArraySpec((), np.int64, -1, 1) == spec_from_gym_space(
        spaces.Discrete(3, start=-1)
    )


def test_a_multi_discrete_space_keeps_its_dtype_and_its_starts():
    space = spaces.MultiDiscrete([2, 3], np.int32, start=[-1, 10])

    assert BoundedArraySpec((2,), np.int32, [-1, 10], [0, 12]) == spec_from_gym_space(
        space
    )


def test_a_multi_binary_space_is_of_small_integers():
    assert BoundedArraySpec((2, 3), np.int8, 0, 1) == spec_from_gym_space(
        spaces.MultiBinary((2, 3))
    )


def test_a_text_is_as_wide_as_its_longest():
    assert ArraySpec((), "<U7") == spec_from_gym_space(spaces.Text(7))


def test_a_text_that_is_always_empty_has_a_width_all_the_same():
    assert ArraySpec((), "<U1") == spec_from_gym_space(spaces.Text(0, min_length=0))


def test_a_dict_space_becomes_a_dictionary_in_the_order_of_the_space():
    space = spaces.Dict([("b", spaces.Discrete(2)), ("a", spaces.Discrete(3))])

    spec = spec_from_gym_space(space)

    assert dict is type(spec)
    assert ["b", "a"] == list(spec)


def test_a_class_derived_from_a_space_is_that_space():
    class Angle(spaces.Box):
        pass

    assert BoundedArraySpec((), np.float64, -4, 4) == spec_from_gym_space(
        Angle(-4, 4, (), np.float64)
    )


def test_names_say_where_in_the_nest_a_spec_is():
    space = spaces.Dict(
        arm=spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))),
        hand=spaces.MultiBinary(1),
    )

    def names(name):
        return [
            leaf.name for leaf in nest.flatten(spec_from_gym_space(space, name=name))
        ]

    assert ["top/arm/tuple_0", "top/arm/tuple_1", "top/hand"] == names("top")
    assert ["arm/tuple_0", "arm/tuple_1", "hand"] == names(None)


def test_a_space_by_itself_has_the_name_that_is_given_or_none():
    space = spaces.Discrete(2)

    assert "action" == spec_from_gym_space(space, name="action").name
    assert spec_from_gym_space(space).name is None


@pytest.mark.parametrize(
    ("space", "path", "shown"),
    [
        (
            spaces.Sequence(spaces.Discrete(2)),
            "",
            "The space is Sequence(Discrete(2), stack=False)",
        ),
        (
            spaces.Dict(a=spaces.Tuple((spaces.Graph(spaces.Discrete(2), None),))),
            "['a'][0]",
            "The space at ['a'][0] is Graph(Discrete(2), None)",
        ),
    ],
    ids=["Sequence", "Graph"],
)
def test_a_space_without_a_spec_is_named_with_its_place(space, path, shown):
    with pytest.raises(SpecError) as caught:
        spec_from_gym_space(space)

    assert (
        f"{shown}, which is not supported yet: there are specs for Box, Dict, "
        "Discrete, MultiBinary, MultiDiscrete, Text and Tuple. A wrapper of "
        "Gymnasium's, such as TransformObservation, can make one of these of it."
    ) == str(caught.value)
    assert path == caught.value.path


def test_a_space_of_somebody_elses_is_named_with_its_place():
    class Mission(spaces.Space):
        def __repr__(self):
            return "Mission()"

    with pytest.raises(SpecError) as caught:
        spec_from_gym_space(spaces.Dict(goal=Mission()), name="observation")

    assert str(caught.value).startswith(
        "The space at observation['goal'] is Mission(), which is not supported yet: "
    )


def test_what_is_no_space_is_a_type_error():
    with pytest.raises(TypeError) as caught:
        spec_from_gym_space([3])

    assert (
        "The space is a list of 1 element, which is not a space of Gymnasium."
    ) == str(caught.value)


@pytest.mark.parametrize("space", SPACES, ids=str)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=5)
def test_a_member_of_a_space_fits_its_spec_and_comes_back_as_a_member(space, seed):
    space.seed(seed)
    member = space.sample()
    spec = spec_from_gym_space(space)
    read = Converter(spec, map_specs(array_leaf, spec), subject="It", root="value")

    array = read(member)
    action = converter(space)(array)

    check_fits(array, spec)
    assert space.contains(action)
    for expected, actual in zip(
        nest.flatten(member), nest.flatten(action), strict=True
    ):
        np.testing.assert_array_equal(expected, actual)
        assert type(expected) is type(actual)


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
    with pytest.raises(SpecError) as caught:
        converter(spaces.Text(3))("left")

    assert (
        "It does not fit its spec.\n\n"
        "  expected   ArraySpec(shape=(), dtype=<U3, name='action')\n"
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


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_every_number_of_a_space_has_bounds(space):
    leaves = nest.flatten(spec_from_gym_space(space))

    assert all(is_bounded(leaf) for leaf in leaves if leaf.dtype.kind in "iuf")
