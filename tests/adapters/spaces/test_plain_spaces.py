"""Members of spaces travel as what they are."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from envkit.adapters.spaces.members import to_members
from envkit.adapters.spaces.plain_spaces import Places, plain_spec
from envkit.errors import SpecError
from envkit.specs import ArraySpec
from envkit.specs.object_spec import ObjectSpec

SPACES = [
    spaces.Box(-1.0, 1.0, (2, 3), np.float32),
    spaces.Box(0, 255, (), np.uint8),
    spaces.Discrete(3, start=2),
    spaces.MultiBinary((2, 2)),
    spaces.MultiDiscrete([2, 3], dtype=np.int32),
    spaces.Text(5),
    spaces.Sequence(spaces.Discrete(3)),
    spaces.Graph(spaces.Box(0.0, 1.0, (2,)), None),
    spaces.OneOf((spaces.Discrete(2), spaces.Text(3))),
    spaces.Dict(
        b=spaces.Discrete(2),
        a=spaces.Tuple((spaces.Text(3), spaces.Box(0.0, 1.0, (2,)))),
    ),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_members_arrive_as_gymnasium_puts_them_together(space):
    space.seed(3)
    members = [space.sample() for _ in range(3)]
    spec = plain_spec(space)
    places = Places(spec, rows=3)
    for row, member in enumerate(members):
        places.put(row, member)

    batch = to_members(space, spec)(places.copy())

    expected = concatenate(space, members, create_empty_array(space, n=3))
    assert data_equivalence(expected, batch, exact=True)
    assert batch_space(space, 3).contains(batch)


def test_bounds_do_not_matter():
    assert ArraySpec((2,), np.float32) == plain_spec(spaces.Box(0, 1, (2,), np.float32))
    assert ObjectSpec() == plain_spec(spaces.Text(4))


def test_what_is_put_later_does_not_change_a_copy():
    places = Places(ArraySpec((), np.int64), rows=2)
    before = places.copy()

    places.put(0, 7)

    assert ([0, 0], [7, 0]) == (before.tolist(), places.copy().tolist())


def test_nothing_is_broadcast(message_of):
    places = Places({"at": (ArraySpec((2,), np.float32),)}, rows=2)

    assert (
        "The observation does not fit its spec at observation['at'][0].\n\n"
        "  expected   ArraySpec(shape=(2,), dtype=float32)\n"
        "  got        array of shape (1,), dtype float64, values 0.0 … 0.0\n\n"
        "The shape is not that of the observation_space."
    ) == message_of(SpecError, lambda: places.put(0, {"at": (np.zeros(1),)}))


def test_lists_will_do_for_arrays():
    places = Places(ArraySpec((2,), np.float32), rows=1)

    places.put(0, [1, 2])

    assert [[1.0, 2.0]] == places.copy().tolist()
