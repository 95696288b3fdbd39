"""Gym's spaces as specs with TF-Agents' dtypes, and what crosses in both directions."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec, nest
from envkit.adapters.old_gym.gym_spaces import (
    action_converter,
    observation_converter,
    spec_from_gym_space,
)
from envkit.adapters.spaces import specs_from_spaces as gymnasium_spaces
from envkit.errors import SpecError
from envkit.specs.object_spec import ObjectSpec
from tests.adapters.old_gyms import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Tuple,
)


def box(low, high, dtype=np.float32):
    space = Box(0, 1, np.shape(low), dtype)
    space.low, space.high = np.array(low, dtype), np.array(high, dtype)
    return space


def boxes():
    dtypes = st.sampled_from([np.float32, np.float64, np.uint8, np.int64])
    shapes = st.sampled_from([(), (1,), (2, 3), (0,)])
    return st.builds(Box, st.just(0), st.integers(0, 9), shapes, dtypes)


def all_spaces():
    counts = st.integers(1, 9)
    leaves = (
        boxes()
        | st.builds(Discrete, counts)
        | st.builds(MultiDiscrete, st.lists(counts, min_size=1, max_size=3))
        | st.builds(MultiBinary, st.sampled_from([1, 3, (2, 2)]))
    )
    return st.recursive(
        leaves,
        lambda parts: (
            st.lists(parts, max_size=3).map(lambda children: Tuple(*children))
            | st.dictionaries(st.sampled_from("bca"), parts).map(
                lambda children: Dict(**children)
            )
        ),
        max_leaves=5,
    )


def member_of(space, rng):
    """Draws a member as Gym does, in the space's own dtype."""
    if isinstance(space, Dict):
        return {key: member_of(part, rng) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(member_of(part, rng) for part in space.spaces)
    if isinstance(space, Discrete):
        return rng.randint(space.n)
    if isinstance(space, MultiDiscrete):
        return (rng.random_sample(space.shape) * space.nvec).astype(space.dtype)
    if isinstance(space, MultiBinary):
        return rng.randint(2, size=space.shape).astype(space.dtype)
    return np.asarray(rng.uniform(space.low, space.high), space.dtype)


def dtypes_in(space):
    """Lists the dtypes of the members, in the order of `nest.flatten`."""
    if isinstance(space, Dict):
        children = [space.spaces[key] for key in sorted(space.spaces)]
    elif isinstance(space, Tuple):
        children = space.spaces
    else:
        return [int if isinstance(space, Discrete) else space.dtype]
    return [dtype for child in children for dtype in dtypes_in(child)]


@pytest.mark.parametrize(
    ("space", "spec"),
    [
        (Discrete(3), BoundedArraySpec((), np.int64, 0, 2)),
        (MultiDiscrete([2, 3]), BoundedArraySpec((2,), np.int32, 0, [1, 2])),
        (MultiDiscrete([[2], [3]]), BoundedArraySpec((2, 1), np.int32, 0, [[1], [2]])),
        (MultiBinary(4), BoundedArraySpec((4,), np.int32, 0, 1)),
        (MultiBinary((2, 3)), BoundedArraySpec((2, 3), np.int32, 0, 1)),
        (Box(-1, 1, (2,)), BoundedArraySpec((2,), np.float32, -1, 1)),
        (
            box([0, -np.inf], [1, np.inf]),
            BoundedArraySpec(
                (2,),
                np.float32,
                [0, np.finfo(np.float32).min],
                [1, np.finfo(np.float32).max],
            ),
        ),
        (Box(0, 255, (2, 2), np.uint8), BoundedArraySpec((2, 2), np.uint8, 0, 255)),
        (Box(0, 1, (2,), np.bool_), ArraySpec((2,), np.bool_)),
        (Box("", "", (), "<U3"), ArraySpec((), "<U3")),
    ],
)
def test_a_space_becomes_the_spec_that_tf_agents_makes_of_it(space, spec):
    found = spec_from_gym_space(space, name="it")

    assert spec == found
    assert type(spec) is type(found)
    assert "it" == found.name


@pytest.mark.parametrize(
    ("space", "shapes"),
    [
        (box([0, 0], [1, 1]), ((), ())),
        (box([0, 0], [1, 2]), ((2,), (2,))),
        (MultiDiscrete([3, 3]), ((), ())),
        (MultiDiscrete([3, 2]), ((), (2,))),
        (Box(0, 1, (0,)), ((0,), (0,))),
    ],
)
def test_bounds_that_are_all_the_same_become_numbers(space, shapes):
    spec = spec_from_gym_space(space)

    assert shapes == (spec.minimum.shape, spec.maximum.shape)


def test_bounds_of_a_box_stay_arrays_if_that_is_asked_for():
    spec = spec_from_gym_space(Box(0, 1, (2,)), simplify_box_bounds=False)

    assert ((2,), (2,)) == (spec.minimum.shape, spec.maximum.shape)


def test_a_nest_keeps_the_order_of_its_keys_and_names_its_parts():
    space = Dict(b=Tuple(Discrete(2), Discrete(3)), a=Discrete(4))

    named, plain = spec_from_gym_space(space, name="it"), spec_from_gym_space(space)

    assert ["b", "a"] == list(named)
    assert isinstance(named["b"], tuple)
    assert ["it/a", "it/b/tuple_0", "it/b/tuple_1"] == [
        spec.name for spec in nest.flatten(named)
    ]
    assert ["a", "b/tuple_0", "b/tuple_1"] == [
        spec.name for spec in nest.flatten(plain)
    ]


def test_dtypes_can_be_chosen_by_class_of_space():
    class Narrow(Discrete):
        pass

    space = Dict(
        a=Discrete(2),
        b=Narrow(2),
        c=Box(0, 1, (1,)),
        d=MultiDiscrete([2]),
        e=MultiBinary(1),
    )
    chosen = {
        Discrete: np.uint16,
        Narrow: np.uint8,
        Box: np.float64,
        MultiDiscrete: np.int8,
        MultiBinary: np.uint8,
    }

    dtypes = [spec.dtype for spec in nest.flatten(spec_from_gym_space(space, chosen))]

    assert [np.uint16, np.uint8, np.float64, np.int8, np.uint8] == dtypes


def test_early_spaces_need_not_have_all_attributes():
    discrete, multi_binary = Discrete(3), MultiBinary(3)
    box_without, multi_discrete = Box(0, 1, (2,), np.float64), MultiDiscrete([2])
    for space in (discrete, box_without, multi_discrete):
        del space.shape, space.dtype
    multi_binary.dtype = None

    assert BoundedArraySpec((), np.int64, 0, 2) == spec_from_gym_space(discrete)
    assert BoundedArraySpec((2,), np.float32, 0, 1) == spec_from_gym_space(box_without)
    assert BoundedArraySpec((1,), np.int32, 0, 1) == spec_from_gym_space(multi_discrete)
    assert BoundedArraySpec((3,), np.int32, 0, 1) == spec_from_gym_space(multi_binary)


def test_a_class_of_gym_is_known_by_its_name():
    # Without a shape its attributes would speak for Discrete.
    kind = type("MultiBinary", (), {"__module__": "gym.spaces.multi_binary"})
    space = type("Mine", (kind,), {})()
    space.n = (2, 3)

    assert BoundedArraySpec((2, 3), np.int32, 0, 1) == spec_from_gym_space(space)


def test_bounds_outside_of_a_chosen_dtype_are_refused():
    with pytest.raises(ValueError, match="not within the range"):
        spec_from_gym_space(Box(0, 300, (2,)), {Box: np.uint8})


@pytest.mark.parametrize(
    ("space", "name", "message"),
    [
        (None, None, "The space is None, which is not a space of Gym."),
        (
            Dict(a=Tuple("Discrete(2)")),
            "it",
            "The space at it['a'][0] is the string 'Discrete(2)', which is not a space "
            "of Gym.",
        ),
    ],
)
def test_what_is_no_space_is_refused(space, name, message):
    with pytest.raises(ValueError, match=r"^The space ") as caught:
        spec_from_gym_space(space, name=name)

    assert message == str(caught.value)


LATE = gymnasium.spaces.Dict(
    text=gymnasium.spaces.Text(4, charset="ab"),
    list=gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(3)),
)


def test_spaces_of_late_versions_become_what_they_become_with_gymnasium():
    spec = spec_from_gym_space(LATE, name="it")

    assert gymnasium_spaces.spec_from_gym_space(LATE, name="it") == spec
    assert isinstance(spec["list"], ObjectSpec)


def test_members_of_late_spaces_cross_in_both_directions():
    spec = spec_from_gym_space(LATE)
    read = observation_converter(LATE, spec, subject="It")
    write = action_converter(LATE, spec, subject="It")
    member = {"text": "ab", "list": (0, 2)}

    value = read(member)

    assert all(
        part.check_array(leaf)
        for part, leaf in zip(nest.flatten(spec), nest.flatten(value), strict=True)
    )
    assert member == write(value)


def test_what_is_no_member_of_a_late_space_is_refused():
    spec = spec_from_gym_space(LATE)
    read = observation_converter(LATE, spec, subject="It")
    write = action_converter(LATE, spec, subject="It")

    for convert in (read, write):
        with pytest.raises(SpecError, match=r"^It does not fit its spec"):
            convert({"text": "abbab", "list": ()})


@given(space=all_spaces(), seed=st.integers(0, 999))
def test_what_a_space_has_fits_its_spec_and_comes_back(space, seed):
    spec = spec_from_gym_space(space)
    member = member_of(space, np.random.RandomState(seed))
    read = observation_converter(space, spec, subject="It")
    write = action_converter(space, spec, subject="It")

    value = read(member)
    back = write(value)

    leaves = [(spec, value), (member, back)]
    for kind, (one, other) in enumerate(leaves):
        pairs = zip(nest.flatten(one), nest.flatten(other), strict=True)
        for left, right in pairs:
            assert np.array_equal(left, right) if kind else left.check_array(right)
    assert dtypes_in(space) == [
        int if type(leaf) is int else leaf.dtype for leaf in nest.flatten(back)
    ]


@given(space=all_spaces(), seed=st.integers(0, 999))
def test_an_observation_that_keeps_its_dtype_is_a_copy(space, seed):
    spec = spec_from_gym_space(space)
    member = member_of(space, np.random.RandomState(seed))

    value = observation_converter(space, spec, subject="It", to_dtype=False)(member)

    for before, after in zip(nest.flatten(member), nest.flatten(value), strict=True):
        assert np.asarray(before).dtype == after.dtype
        np.testing.assert_array_equal(before, after)
        assert not np.shares_memory(np.asarray(before), after)
