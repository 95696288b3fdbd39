"""Gymnasium's spaces as specs."""

from __future__ import annotations

import collections
import copy
import pickle
import string
import subprocess
import sys
import types

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec, nest
from envkit.adapters.gymnasium.conversion import to_member
from envkit.adapters.gymnasium.spaces import (
    MembersOf,
    OneOf,
    SpecOfKind,
    batch_space_from_spec,
    kind_of_space,
    kind_of_spec,
    neutral_value,
    space_from_spec,
    spec_from_gym_space,
    spec_space,
    usual_kind,
)
from envkit.specs import (
    ObjectSpec,
    TextSpec,
    add_outer_dims_nest,
    check_arrays_nest,
    is_bounded,
    remove_outer_dims_nest,
    sample_spec_nest,
)
from tests import strategies
from tests.adapters.gym_spaces import IS_SETTLED, Interval, gym_spaces

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


class Angle(spaces.Box):
    """A space of somebody else's, which is a box."""


@pytest.mark.parametrize(
    ("space", "spec"),
    [
        (
            spaces.Box(np.float32([0, -2]), np.float32([1, np.inf])),
            BoundedArraySpec((2,), np.float32, [0, -2], [1, np.finfo(np.float32).max]),
        ),
        (spaces.Box(0, 1, (2,), np.bool_), ArraySpec((2,), np.bool_)),
        (
            Angle(-4, 4, (), np.float64),
            BoundedArraySpec((), np.float64, -4, 4),
        ),
        (spaces.Discrete(3, start=-1), BoundedArraySpec((), np.int64, -1, 1)),
        (
            spaces.MultiDiscrete([2, 3], np.int32, start=[-1, 10]),
            BoundedArraySpec((2,), np.int32, [-1, 10], [0, 12]),
        ),
        (spaces.MultiBinary((2, 3)), BoundedArraySpec((2, 3), np.int8, 0, 1)),
        (
            spaces.Text(7, min_length=2, charset="ab"),
            TextSpec((), "<U7", min_length=2, letters="ab"),
        ),
        # Always empty, it has a width all the same.
        (
            spaces.Text(0, min_length=0, charset="ab"),
            TextSpec((), "<U1", max_length=0, letters="ab"),
        ),
    ],
    ids=str,
)
def test_a_space_becomes_a_spec_with_dtype_shape_and_bounds(space, spec):
    found = spec_from_gym_space(space, name="action")
    assert (spec, "action") == (found, found.name)
    assert spec_from_gym_space(space).name is None


@given(data=st.data())
@settings(max_examples=20)
def test_a_spec_survives_a_round_trip_through_its_box(data):
    spec = data.draw(strategies.bounded_specs())
    low, high = (
        np.broadcast_to(bound, spec.shape) for bound in (spec.minimum, spec.maximum)
    )
    space = spaces.Box(low, high, spec.shape, spec.dtype)
    assert spec == spec_from_gym_space(space)


@pytest.mark.parametrize(
    ("space", "options", "shape"),
    [
        (spaces.Box(-1.0, 1.0, (2, 3), np.float32), {}, ()),
        (spaces.Box(np.float32([0, 0]), np.float32([1, 2])), {}, (2,)),
        (
            spaces.Box(-1.0, 1.0, (2, 3), np.float32),
            {"simplify_box_bounds": False},
            (2, 3),
        ),
    ],
    ids=["both the same", "only one", "asked for"],
)
def test_uniform_bounds_become_numbers(space, options, shape):
    spec = spec_from_gym_space(space, **options)
    assert (shape, shape) == (spec.minimum.shape, spec.maximum.shape)


@pytest.mark.parametrize("simplify", [True, False])
def test_a_multi_discrete_space_starting_at_0_has_a_scalar_minimum(simplify):
    """As in TF-Agents, where agents ask whether the minimum is 0."""
    spec = spec_from_gym_space(spaces.MultiDiscrete([2, 3]), simplify)
    same = spec_from_gym_space(spaces.MultiDiscrete([3, 3]), simplify)
    assert (0, ()) == (spec.minimum, spec.minimum.shape)
    assert [1, 2] == spec.maximum.tolist()
    assert (2, ()) == (same.maximum, same.maximum.shape)


def test_a_dict_space_becomes_a_dictionary_in_the_order_of_the_space():
    space = spaces.Dict([("b", spaces.Discrete(2)), ("a", spaces.Discrete(3))])
    spec = spec_from_gym_space(space)
    assert dict is type(spec)
    assert ["b", "a"] == list(spec)


def test_names_show_the_place_of_a_spec_in_the_nest():
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


@pytest.mark.parametrize(
    "space",
    [
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Discrete(2), None),
        Interval(4),
    ],
    ids=["Sequence", "Graph", "custom"],
)
def test_members_without_a_fixed_shape_stay_objects(space):
    spec = spec_from_gym_space(spaces.Dict(a=spaces.Tuple((space,))), name="action")

    (leaf,) = nest.flatten(spec)

    assert ObjectSpec is type(leaf)
    assert ((), np.dtype(object), "action/a/tuple_0") == (
        leaf.shape,
        leaf.dtype,
        leaf.name,
    )
    assert space == leaf.kind.as_space()


def test_a_union_becomes_a_number_and_a_value_for_every_branch():
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


@pytest.mark.parametrize(
    "space",
    [
        spaces.OneOf((spaces.Discrete(3), spaces.Sequence(spaces.Discrete(2)))),
        # Arrays cut this letter off.
        spaces.Text(3, charset="a\0"),
    ],
    ids=["union", "text"],
)
def test_members_that_arrays_cannot_hold_are_objects(space):
    spec = spec_from_gym_space(space)
    assert ObjectSpec is type(spec)
    assert space == spec.kind.as_space()


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
def test_a_spec_remembers_an_unusual_kind_of_space(space, kind):
    spec = spec_from_gym_space(space)
    assert SpecOfKind is type(spec)
    assert kind == spec.kind


@pytest.mark.parametrize(
    "space",
    [spaces.Discrete(3, start=4), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)],
    ids=str,
)
def test_a_spec_with_a_usual_kind_of_space_is_plain(space):
    assert BoundedArraySpec is type(spec_from_gym_space(space))


def test_spaces_of_old_gym_start_at_0():
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


def test_other_objects_raise_type_error(message_of):
    assert (
        "The space is a list of 1 element, which is not a space of Gymnasium."
    ) == message_of(TypeError, lambda: spec_from_gym_space([3]))
    assert "3 is not an ArraySpec, so there is no space for it." == message_of(
        TypeError, lambda: space_from_spec({"a": 3})
    )


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_numeric_specs_from_spaces_are_bounded(space):
    leaves = nest.flatten(spec_from_gym_space(space))
    assert all(is_bounded(leaf) for leaf in leaves if leaf.dtype.kind in "iuf")


Pair = collections.namedtuple("Pair", ["left", "right"])


class Even:
    """The even numbers below ten."""

    def contains(self, value):
        return value in range(0, 10, 2)

    def sample(self, rng):
        return 2 * int(rng.integers(5))


@given(space=gym_spaces(), rows=st.integers(1, 3))
@settings(max_examples=25)
def test_a_space_survives_a_round_trip(space, rows):
    spec = spec_from_gym_space(space)
    assert space == space_from_spec(spec)
    travelled = pickle.loads(pickle.dumps(spec))
    assert spec == travelled
    assert space == space_from_spec(travelled)
    assert batch_space(space, rows) == batch_space_from_spec(spec, rows)


@given(spec=strategies.spec_nests(strategies.specs(any_byte_order=True)))
@settings(max_examples=25)
def test_a_spec_survives_a_round_trip(spec):
    space = space_from_spec(spec)
    for back in (space, pickle.loads(pickle.dumps(space))):
        assert nest.flatten(spec) == nest.flatten(spec_from_gym_space(back))
    assert check_arrays_nest(neutral_value(spec), spec)


@given(data=st.data())
@settings(max_examples=20)
def test_values_that_fit_a_spec_are_members_of_its_space(data):
    spec = data.draw(strategies.spec_nests(strategies.specs("biuf")))
    value = data.draw(strategies.values(spec))
    space = space_from_spec(spec)
    assert "SpecSpace" not in repr(space)
    assert space.contains(to_member(space, spec)(value))


@pytest.mark.parametrize(
    ("spec", "space"),
    [
        (BoundedArraySpec((), np.int64, 5, 7), spaces.Discrete(3, start=5)),
        (
            BoundedArraySpec((), np.uint8, 0, 7),
            spaces.Discrete(8, dtype=np.uint8),
        ),
        (
            BoundedArraySpec((2,), np.int64, [0, -1], [1, 1]),
            spaces.MultiDiscrete([2, 3], start=[0, -1]),
        ),
        (BoundedArraySpec((3,), np.int8, 0, 1), spaces.MultiBinary(3)),
        (BoundedArraySpec((2, 3), np.int8, 0, 1), spaces.MultiBinary((2, 3))),
        (
            BoundedArraySpec((8, 8), np.uint8, 0, 255),
            spaces.Box(0, 255, (8, 8), np.uint8),
        ),
        (
            BoundedArraySpec((2,), np.float32, [0, -1], 1),
            spaces.Box(np.float32([0, -1]), np.float32([1, 1])),
        ),
        (ArraySpec((2,), np.float32), spaces.Box(-np.inf, np.inf, (2,), np.float32)),
        (ArraySpec((), np.int8), spaces.Box(-np.inf, np.inf, (), np.int8)),
        (ArraySpec((2,), np.bool_), spaces.Box(0, 1, (2,), np.bool_)),
        (
            ArraySpec((), "<U5"),
            spaces.Text(5, min_length=0, charset=string.printable),
        ),
        (
            TextSpec((), "<U5", min_length=2, letters="ab"),
            spaces.Text(5, min_length=2, charset="ab"),
        ),
        (
            (BoundedArraySpec((), np.int64, 0, 1), []),
            spaces.Tuple([spaces.Discrete(2), spaces.Tuple([])]),
        ),
        (
            Pair(*[BoundedArraySpec((), np.int64, 0, 1)] * 2),
            spaces.Tuple([spaces.Discrete(2)] * 2),
        ),
        (
            OneOf(
                BoundedArraySpec((), np.int64, 0, 0),
                (BoundedArraySpec((), np.int64, 0, 1),),
            ),
            spaces.OneOf([spaces.Discrete(2)]),
        ),
    ],
    ids=str,
)
def test_each_spec_becomes_a_space(spec, space):
    assert space == space_from_spec(spec)


def test_the_limits_of_a_floating_dtype_are_infinite():
    limits = np.finfo(np.float32)
    spec = BoundedArraySpec((3,), np.float32, [limits.min, 0, -1], [1, limits.max, 1])
    space = space_from_spec(spec)
    np.testing.assert_array_equal(np.float32([-np.inf, 0, -1]), space.low)
    np.testing.assert_array_equal(np.float32([1, np.inf, 1]), space.high)


@pytest.mark.parametrize("widest", [np.finfo(np.float32).max, np.inf])
def test_finite_bounds_stay_finite(widest):
    """As those of CartPole in Gymnasium 0.29."""
    most = np.array([4.8, np.finfo(np.float32).max, widest], np.float32)
    space = spaces.Box(-most, most, dtype=np.float32)
    assert space == space_from_spec(spec_from_gym_space(space))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_unbounded_integers_stay_unbounded(dtype):
    """Gymnasium samples those as it does floats without bounds."""
    for space in (
        spaces.Box(-np.inf, np.inf, (2,), dtype),
        spaces.Box(-5, np.inf, (2,), dtype),
        spaces.Box(np.iinfo(dtype).min, 5, (2,), dtype),
    ):
        back = space_from_spec(spec_from_gym_space(space))

        assert space == back
        for manner in ("below", "above", "both"):
            assert space.is_bounded(manner) == back.is_bounded(manner)
    assert not space_from_spec(ArraySpec((2,), dtype)).is_bounded("below")


def test_booleans_keep_the_bounds_of_their_box():
    low, high = np.array([False, True, False]), np.array([True, True, False])
    space = spaces.Box(low, high, dtype=bool)
    spec = spec_from_gym_space(space)
    samples = sample_spec_nest(spec, np.random.default_rng(3), (50,))
    assert space == space_from_spec(pickle.loads(pickle.dumps(spec)))
    assert all(space.contains(sample) for sample in samples)
    assert {True, False} == set(samples[:, 0].tolist())
    assert ArraySpec((3,), bool) == spec


def test_the_keys_of_a_space_have_the_order_of_the_spec():
    spec = {name: BoundedArraySpec((), np.int64, 0, 1) for name in "cab"}
    assert ["c", "a", "b"] == list(space_from_spec(spec))
    if IS_SETTLED:
        assert ["c", "a", "b"] == list(batch_space_from_spec(spec, 2))


def test_any_mapping_becomes_a_dictionary():
    spec = types.MappingProxyType({"a": BoundedArraySpec((), np.int64, 0, 1)})
    assert spaces.Dict(a=spaces.Discrete(2)) == space_from_spec(spec)


@pytest.mark.parametrize(
    "spec", [ArraySpec((2,), np.float32), ArraySpec((), "<U5")], ids=str
)
def test_a_spec_without_bounds_or_letters_survives_a_round_trip(spec):
    assert spec == spec_from_gym_space(space_from_spec(spec))


def test_bounds_added_to_a_space_reach_its_spec():
    space = space_from_spec(ArraySpec((2,), np.float32))
    space.low = np.zeros(2, np.float32)
    assert BoundedArraySpec((2,), np.float32, 0) == spec_from_gym_space(space)


@pytest.mark.parametrize(
    "spec",
    [
        ArraySpec((2,), "<U5"),
        ArraySpec((), "S5"),
        ArraySpec((2,), np.complex64),
        TextSpec((), "<U5", min_length=1),
        BoundedArraySpec((2,), np.float32, [0, np.nan], 1),
        ObjectSpec(kind=None),
    ],
    ids=str,
)
def test_a_spec_without_a_matching_space_gets_a_spec_space(spec):
    space = space_from_spec({"a": spec})
    assert f"Dict('a': SpecSpace({spec!r}))" == repr(space)
    assert {"a": spec} == spec_from_gym_space(space)


def test_the_space_of_an_object_spec_contains_the_objects():
    space = space_from_spec(ObjectSpec(kind=Even()))
    space.seed(3)
    assert space.contains(space.sample())
    assert (True, False) == (space.contains(4), space.contains(5))


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (BoundedArraySpec((), np.int64, 0, 5), "Discrete"),
        (BoundedArraySpec((), np.uint8, 250, 255), "Discrete"),
        (BoundedArraySpec((), np.int64, -(2**62), 2**62), "Box"),
        (BoundedArraySpec((), np.int8), "Box"),
        (BoundedArraySpec((), np.int8, 0, 1), "Discrete"),
        (BoundedArraySpec((3,), np.int8, 0, 1), "MultiBinary"),
        (BoundedArraySpec((2, 3), np.int8, 0, 1), "MultiBinary"),
        (BoundedArraySpec((2, 0), np.int8, 0, 1), "Box"),
        (BoundedArraySpec((3,), np.int32, 0, [1, 2, 3]), "MultiDiscrete"),
        (BoundedArraySpec((0,), np.int32, 0, 1), "Box"),
        (BoundedArraySpec((3,), np.int32), "Box"),
        (BoundedArraySpec((3,), np.uint8, 0, 255), "Box"),
        (BoundedArraySpec((3, 3), np.int32, 0, 2), "Box"),
        (BoundedArraySpec((), np.float32, 0, 1), "Box"),
        (ArraySpec((), np.int64), "Box"),
        (ArraySpec((2,), np.bool_), "Box"),
        (ArraySpec((), "<U5"), "Text"),
        (TextSpec((), "<U5"), "Text"),
        (ArraySpec((2,), "<U5"), ""),
        (ArraySpec((), "S5"), ""),
        (ArraySpec((), np.complex64), ""),
        (ObjectSpec(), ""),
    ],
    ids=str,
)
def test_a_spec_has_a_usual_kind_of_space(spec, kind):
    assert kind == usual_kind(spec)
    assert kind == kind_of_spec(spec)


def test_a_spec_with_a_kind_equals_a_plain_spec():
    spec = SpecOfKind((2,), np.int64, 0, [4, 5], "place", kind="Box")
    plain = BoundedArraySpec((2,), np.int64, 0, [4, 5], "place")
    assert "Box" == kind_of_spec(spec)
    assert spec == plain
    assert plain == spec
    assert repr(plain) == repr(spec)


@pytest.mark.parametrize(
    "copied",
    [
        lambda spec: pickle.loads(pickle.dumps(spec)),
        lambda spec: spec.replace(name="other"),
        lambda spec: add_outer_dims_nest(spec, (3,)),
        lambda spec: remove_outer_dims_nest(spec, 1),
    ],
    ids=["pickled", "replaced", "batched", "unbatched"],
)
def test_copies_of_a_spec_keep_the_kind(copied):
    spec = SpecOfKind((2,), np.int64, 0, [4, 5], "place", kind="Box")
    assert "Box" == kind_of_spec(copied(spec))


def test_a_derived_space_has_the_kind_of_its_base():
    assert ("Box", "") == (kind_of_space(Angle(-1, 1)), kind_of_space([3]))


SPEC = TextSpec((2,), "<U3", letters="ab")


def test_members_of_a_spec_space_are_values_that_fit_the_spec():
    space, other = spec_space(SPEC), spec_space(SPEC)
    assert space.contains(np.array(["ab", ""], "<U3"))
    assert not space.contains(np.array(["ab", "c"], "<U3"))
    assert ((2,), np.dtype("<U3")) == (space.shape, space.dtype)
    assert not space.is_np_flattenable
    assert space != spec_space(ArraySpec((2,), "<U3"))
    assert space != 3
    assert 3 == len(batch_space(space, 3))
    space.seed(5)
    other.seed(5)
    for _ in range(20):
        sample = space.sample()
        assert space.contains(sample)
        assert sample.tolist() == other.sample().tolist()


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda space: pickle.loads(pickle.dumps(space))],
    ids=["copied", "pickled"],
)
def test_a_copied_spec_space_is_equal_and_continues_the_samples(copied):
    space = spec_space(SPEC)
    space.seed(5)
    space.sample()
    other = copied(space)
    assert space == other
    assert space.sample().tolist() == other.sample().tolist()


def test_a_union_spec_is_a_nest():
    spec = OneOf(
        BoundedArraySpec((), np.int64, 0, 1),
        (BoundedArraySpec((), np.int64, 0, 4), {"a": TextSpec((), "<U3")}),
    )
    assert ["tag", "branches[0]", "branches[1]['a']"] == [
        path for path, _ in nest.flatten_with_paths(spec)
    ]


def test_a_neutral_number_is_the_nearest_to_zero_within_bounds():
    spec = BoundedArraySpec((3,), np.int64, [5, -1, -9], [9, 1, -7])
    assert [5, 0, -7] == neutral_value(spec).tolist()


def test_a_neutral_text_is_the_shortest_allowed():
    assert "" == neutral_value(TextSpec((), "<U3"))
    assert "bb" == neutral_value(TextSpec((), "<U3", min_length=2, letters="ba"))
    assert "  " == neutral_value(TextSpec((), "<U3", min_length=2))


def sequence():
    return spaces.Sequence(spaces.Discrete(3))


def test_members_of_contains_members_of_the_space():
    members = MembersOf(sequence())
    assert members.contains((0, 2, 1))
    assert not members.contains((0, 3))
    # A value of which the space cannot tell is none.
    assert not MembersOf(Interval(3)).contains(("a", "b"))


@pytest.mark.parametrize(
    "make_rng",
    [np.random.default_rng, np.random.RandomState],
    ids=["Generator", "RandomState"],
)
def test_members_of_draws_equal_samples_from_equal_generators(make_rng):
    first, second = (
        [MembersOf(sequence()).sample(rng) for _ in range(5)]
        for rng in (make_rng(3), make_rng(3))
    )
    assert first == second
    assert all(sequence().contains(member) for member in first)


def test_members_of_leaves_the_generator_of_the_space_alone():
    space = sequence()
    space.seed(3)
    ahead = [space.sample() for _ in range(3)]
    space.seed(3)
    MembersOf(space).sample(np.random.default_rng(0))
    assert ahead == [space.sample() for _ in range(3)]


def test_members_of_returns_a_copy_of_the_space():
    space = sequence()
    assert space == MembersOf(space).as_space()
    assert space is not MembersOf(space).as_space()


def test_members_of_equal_spaces_are_equal():
    seeded = sequence()
    seeded.seed(3)
    assert MembersOf(sequence()) == MembersOf(seeded)
    assert MembersOf(sequence()) != MembersOf(Interval(2))
    assert MembersOf(sequence()) != 3


def test_members_of_has_the_repr_of_the_space():
    assert "Interval(2)" == repr(MembersOf(Interval(2)))


def test_members_of_pickles():
    members = pickle.loads(pickle.dumps(MembersOf(Interval(2))))
    assert MembersOf(Interval(2)) == members
    assert members.contains((0, 2))


def test_unpickling_members_of_imports_no_library():
    pickled = pickle.dumps(MembersOf(sequence()))
    program = f"""
import pickle, sys
members = pickle.loads({pickled!r})
print(repr(members), "gymnasium" in sys.modules)
"""

    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout

    assert "Sequence(Discrete(3), stack=False) False\n" == printed


def test_members_of_an_unpicklable_space_refuses_to_pickle():
    class Local(Interval):
        pass

    members = MembersOf(Local(2))

    assert members.contains((0, 2))
    with pytest.raises((AttributeError, pickle.PicklingError), match="Local"):
        pickle.dumps(members)
