"""The space of a spec that no space of Gymnasium's describes."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from gymnasium.vector.utils import batch_space

from envkit import ArraySpec
from envkit.adapters.spaces.spec_space import spec_space
from envkit.specs import TextSpec

SPEC = TextSpec((2,), "<U3", letters="ab")


def test_its_members_are_what_fits_the_spec():
    space = spec_space(SPEC)

    assert space.contains(np.array(["ab", ""], "<U3"))
    assert not space.contains(np.array(["ab", "c"], "<U3"))


def test_its_samples_are_members():
    space = spec_space(SPEC)

    assert all(space.contains(space.sample()) for _ in range(20))


def test_equal_seeds_give_equal_samples():
    spaces = spec_space(SPEC), spec_space(SPEC)
    for space in spaces:
        space.seed(5)

    first, second = ([space.sample().tolist() for _ in range(5)] for space in spaces)

    assert first == second


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda space: pickle.loads(pickle.dumps(space))],
    ids=["copied", "pickled"],
)
def test_a_copy_is_equal_and_goes_on_with_the_samples(copied):
    space = spec_space(SPEC)
    space.seed(5)
    space.sample()

    other = copied(space)

    assert space == other
    assert space.sample().tolist() == other.sample().tolist()


def test_it_has_the_shape_and_the_dtype_of_the_spec():
    space = spec_space(SPEC)

    assert ((2,), np.dtype("<U3")) == (space.shape, space.dtype)
    assert not space.is_np_flattenable


def test_it_is_equal_to_no_other_space():
    assert spec_space(SPEC) != spec_space(ArraySpec((2,), "<U3"))
    assert spec_space(SPEC) != 3


def test_gymnasium_makes_batches_of_its_members():
    assert 3 == len(batch_space(spec_space(SPEC), 3))
