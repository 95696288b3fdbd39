"""The members of a space that has no arrays."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from gymnasium import spaces

from envkit.adapters.spaces.object_spaces import MembersOf
from tests.adapters.gym_spaces import Interval


def sequence():
    return spaces.Sequence(spaces.Discrete(3))


def test_it_knows_the_members():
    members = MembersOf(sequence())

    assert members.contains((0, 2, 1))
    assert not members.contains((0, 3))


def test_a_value_of_which_the_space_cannot_tell_is_none():
    assert not MembersOf(Interval(3)).contains(("a", "b"))


@pytest.mark.parametrize(
    "make_rng",
    [np.random.default_rng, np.random.RandomState],
    ids=["Generator", "RandomState"],
)
def test_equal_generators_draw_equal_members(make_rng):
    first, second = (
        [MembersOf(sequence()).sample(rng) for _ in range(5)]
        for rng in (make_rng(3), make_rng(3))
    )

    assert first == second
    assert all(sequence().contains(member) for member in first)


def test_drawing_leaves_the_space_alone_of_which_it_was_made():
    space = sequence()
    space.seed(3)
    ahead = [space.sample() for _ in range(3)]
    space.seed(3)

    MembersOf(space).sample(np.random.default_rng(0))

    assert ahead == [space.sample() for _ in range(3)]


def test_the_space_that_it_returns_is_equal_and_another():
    space = sequence()

    assert space == MembersOf(space).as_space()
    assert space is not MembersOf(space).as_space()


def test_equal_spaces_have_equal_members():
    seeded = sequence()
    seeded.seed(3)

    assert MembersOf(sequence()) == MembersOf(seeded)
    assert MembersOf(sequence()) != MembersOf(Interval(2))
    assert MembersOf(sequence()) != 3


def test_it_looks_like_the_space():
    assert "Interval(2)" == repr(MembersOf(Interval(2)))


def test_it_travels():
    members = pickle.loads(pickle.dumps(MembersOf(Interval(2))))

    assert MembersOf(Interval(2)) == members
    assert members.contains((0, 2))


def test_arriving_imports_no_library():
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


def test_a_space_that_does_not_pickle_says_so_when_it_is_to_travel():
    class Local(Interval):
        pass

    members = MembersOf(Local(2))

    assert members.contains((0, 2))
    with pytest.raises((AttributeError, pickle.PicklingError), match="Local"):
        pickle.dumps(members)
