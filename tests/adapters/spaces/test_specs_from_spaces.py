"""Gymnasium's spaces as specs."""

from __future__ import annotations

import string

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec, nest
from envkit.adapters.spaces.one_of import OneOf
from envkit.adapters.spaces.space_kinds import SpecOfKind
from envkit.adapters.spaces.specs_from_spaces import spec_from_gym_space
from envkit.specs import ObjectSpec, TextSpec, is_bounded
from tests import strategies
from tests.adapters.gym_spaces import Interval

ALPHANUMERIC = string.ascii_letters + string.digits

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


@pytest.mark.parametrize("simplify", [True, False])
def test_a_multi_discrete_space_that_begins_at_0_has_one_minimum(simplify):
    """As in TF-Agents, where agents ask whether the minimum is 0."""
    spec = spec_from_gym_space(spaces.MultiDiscrete([2, 3]), simplify)
    same = spec_from_gym_space(spaces.MultiDiscrete([3, 3]), simplify)

    assert (0, ()) == (spec.minimum, spec.minimum.shape)
    assert [1, 2] == spec.maximum.tolist()
    assert (2, ()) == (same.maximum, same.maximum.shape)


def test_a_multi_binary_space_is_of_small_integers():
    assert BoundedArraySpec((2, 3), np.int8, 0, 1) == spec_from_gym_space(
        spaces.MultiBinary((2, 3))
    )


def test_a_text_is_as_wide_as_its_longest():
    spec = spec_from_gym_space(spaces.Text(7, min_length=2, charset="ab"))

    assert TextSpec((), "<U7", min_length=2, letters="ab") == spec


def test_a_text_that_is_always_empty_has_a_width_all_the_same():
    spec = spec_from_gym_space(spaces.Text(0, min_length=0, charset="ab"))

    assert TextSpec((), "<U1", max_length=0, letters="ab") == spec


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
    "space",
    [
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Discrete(2), None),
        Interval(4),
    ],
    ids=["Sequence", "Graph", "custom"],
)
def test_members_without_a_fixed_shape_stay_the_objects_they_are(space):
    spec = spec_from_gym_space(spaces.Dict(a=spaces.Tuple((space,))), name="action")

    (leaf,) = nest.flatten(spec)

    assert ObjectSpec is type(leaf)
    assert ((), np.dtype(object), "action/a/tuple_0") == (
        leaf.shape,
        leaf.dtype,
        leaf.name,
    )
    assert space == leaf.kind.as_space()


def test_a_union_is_a_number_and_a_value_for_every_branch():
    space = spaces.OneOf((spaces.Discrete(3, start=5), spaces.Tuple((spaces.Text(2),))))

    spec = spec_from_gym_space(space, name="action")

    assert (
        OneOf(
            BoundedArraySpec((), np.int64, 0, 1),
            (
                BoundedArraySpec((), np.int64, 5, 7),
                (TextSpec((), "<U2", min_length=1, letters=ALPHANUMERIC),),
            ),
        )
        == spec
    )
    assert [
        "action/tag",
        "action/branch_0",
        "action/branch_1/tuple_0",
    ] == [leaf.name for leaf in nest.flatten(spec)]


def test_a_union_with_a_branch_that_is_no_array_is_an_object():
    space = spaces.OneOf((spaces.Discrete(3), spaces.Sequence(spaces.Discrete(2))))

    spec = spec_from_gym_space(space)

    assert ObjectSpec is type(spec)
    assert space == spec.kind.as_space()


def test_text_with_a_letter_that_arrays_cut_off_stays_an_object():
    space = spaces.Text(3, charset="a\0")

    assert space == spec_from_gym_space(space).kind.as_space()


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (spaces.Box(0, 5, (), np.int64), "Box"),
        (spaces.Box(0, 5, (2,), np.int64), "Box"),
        (spaces.Box(0, 1, (2,), np.int8), "Box"),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), "MultiDiscrete"),
        (spaces.MultiDiscrete([2, 3], np.uint8), "MultiDiscrete"),
        (spaces.MultiDiscrete([2, 2], np.int8), "MultiDiscrete"),
        (spaces.MultiBinary([4]), "ShapedMultiBinary"),
        (spaces.Box(0, np.finfo(np.float32).max, (2,)), "FiniteBox"),
        (spaces.Box(np.finfo(np.float16).min, 0, (), np.float16), "FiniteBox"),
    ],
    ids=str,
)
def test_a_spec_remembers_a_kind_of_space_that_it_does_not_show(space, kind):
    spec = spec_from_gym_space(space)

    assert SpecOfKind is type(spec)
    assert kind == spec.kind


@pytest.mark.parametrize(
    "space",
    [spaces.Discrete(3, start=4), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)],
    ids=str,
)
def test_a_spec_that_shows_its_kind_of_space_is_a_plain_one(space):
    assert BoundedArraySpec is type(spec_from_gym_space(space))


def test_the_spaces_of_old_gym_have_no_start():
    class Discrete:
        n, shape, dtype = 3, (), np.dtype(np.int64)

    class MultiDiscrete:
        nvec, shape, dtype = np.array([2, 3]), (2,), np.dtype(np.int64)

    for kind in (Discrete, MultiDiscrete):
        kind.__module__ = "gym.spaces"

    assert BoundedArraySpec((), np.int64, 0, 2) == spec_from_gym_space(Discrete())
    assert BoundedArraySpec((2,), np.int64, 0, [1, 2]) == spec_from_gym_space(
        MultiDiscrete()
    )


def test_what_is_no_space_is_a_type_error():
    with pytest.raises(TypeError) as caught:
        spec_from_gym_space([3])

    assert (
        "The space is a list of 1 element, which is not a space of Gymnasium."
    ) == str(caught.value)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_every_number_of_a_space_has_bounds(space):
    leaves = nest.flatten(spec_from_gym_space(space))

    assert all(is_bounded(leaf) for leaf in leaves if leaf.dtype.kind in "iuf")
