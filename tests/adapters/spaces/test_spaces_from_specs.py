"""Specs as Gymnasium's spaces, and back."""

from __future__ import annotations

import collections
import pickle
import string
import types

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import ArraySpec, BoundedArraySpec, nest
from envkit.adapters import spec_from_gym_space
from envkit.adapters.spaces.members import to_member
from envkit.adapters.spaces.one_of import OneOf
from envkit.adapters.spaces.spaces_from_specs import (
    batch_space_from_spec,
    space_from_spec,
)
from envkit.specs import ObjectSpec, TextSpec, sample_spec_nest
from tests import strategies
from tests.adapters.gym_spaces import IS_SETTLED, gym_spaces

Pair = collections.namedtuple("Pair", ["left", "right"])


class Even:
    """The even numbers below ten."""

    def contains(self, value):
        return value in range(0, 10, 2)

    def sample(self, rng):
        return 2 * int(rng.integers(5))


@given(space=gym_spaces())
@settings(max_examples=50)
def test_a_space_comes_back_from_its_spec(space):
    assert space == space_from_spec(spec_from_gym_space(space))


@given(space=gym_spaces())
@settings(max_examples=50)
def test_a_space_comes_back_from_a_spec_that_has_travelled(space):
    spec = spec_from_gym_space(space)

    travelled = pickle.loads(pickle.dumps(spec))

    assert spec == travelled
    assert space == space_from_spec(travelled)


@given(spec=strategies.spec_nests(strategies.specs(any_byte_order=True)))
@settings(max_examples=50)
def test_a_spec_comes_back_from_its_space(spec):
    back = spec_from_gym_space(space_from_spec(spec))

    assert nest.flatten(spec) == nest.flatten(back)


@given(spec=strategies.spec_nests())
@settings(max_examples=50)
def test_a_spec_comes_back_from_a_space_that_has_travelled(spec):
    space = pickle.loads(pickle.dumps(space_from_spec(spec)))

    assert nest.flatten(spec) == nest.flatten(spec_from_gym_space(space))


@given(data=st.data())
@settings(max_examples=50)
def test_what_fits_a_spec_is_a_member_of_its_space(data):
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
def test_each_spec_has_a_space(spec, space):
    assert space == space_from_spec(spec)


def test_the_limits_of_a_floating_dtype_are_infinite():
    limits = np.finfo(np.float32)
    spec = BoundedArraySpec((3,), np.float32, [limits.min, 0, -1], [1, limits.max, 1])

    space = space_from_spec(spec)

    np.testing.assert_array_equal(np.float32([-np.inf, 0, -1]), space.low)
    np.testing.assert_array_equal(np.float32([1, np.inf, 1]), space.high)


@pytest.mark.parametrize("widest", [np.finfo(np.float32).max, np.inf])
def test_bounds_that_were_finite_stay_so(widest):
    """As those of CartPole in Gymnasium 0.29."""
    most = np.array([4.8, np.finfo(np.float32).max, widest], np.float32)
    space = spaces.Box(-most, most, dtype=np.float32)

    assert space == space_from_spec(spec_from_gym_space(space))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_integers_without_bounds_stay_so(dtype):
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


def test_the_keys_of_a_space_are_in_the_order_of_the_spec():
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
def test_a_spec_without_bounds_or_letters_stays_one(spec):
    assert spec == spec_from_gym_space(space_from_spec(spec))


def test_a_spec_without_bounds_gets_those_that_somebody_gives_the_space():
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
def test_a_spec_that_no_space_describes_has_one_of_its_own(spec):
    space = space_from_spec({"a": spec})

    assert f"Dict('a': SpecSpace({spec!r}))" == repr(space)
    assert {"a": spec} == spec_from_gym_space(space)


def test_a_spec_of_objects_has_a_space_whose_members_are_the_objects():
    space = space_from_spec(ObjectSpec(kind=Even()))

    space.seed(3)

    assert space.contains(space.sample())
    assert (True, False) == (space.contains(4), space.contains(5))


@given(space=gym_spaces(), rows=st.integers(1, 3))
@settings(max_examples=50)
def test_a_batch_has_the_space_that_gymnasium_gives_it(space, rows):
    spec = spec_from_gym_space(space)

    assert batch_space(space, rows) == batch_space_from_spec(spec, rows)


def test_what_is_no_spec_has_no_space():
    with pytest.raises(TypeError) as caught:
        space_from_spec({"a": 3})

    assert "3 is not an ArraySpec, so there is no space for it." == str(caught.value)
