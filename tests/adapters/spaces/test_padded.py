"""Sequences and graphs with a declared maximum: padded arrays, there and back."""

from __future__ import annotations

import functools
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from envkit import BatchedPyEnvironment, nest
from envkit.adapters import (
    GymnasiumWrapper,
    PaddedGraph,
    PaddedSequence,
    PaddedStack,
    PyToGymnasium,
    PyToGymnasiumVector,
    space_from_spec,
    spec_from_gym_space,
)
from envkit.adapters.spaces.checked_members import action_converter
from envkit.adapters.spaces.from_members import from_member
from envkit.adapters.spaces.members import to_member
from envkit.errors import SpecError
from envkit.parallel import ParallelPyEnvironment
from envkit.specs import sample_spec_nest
from envkit.testing import check_environment

BOX, CHOICE = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(4, start=3)
SPACES = {
    "sequence": spaces.Sequence(CHOICE),
    "stack": spaces.Sequence(BOX, stack=True),
    "texts": spaces.Sequence(spaces.Text(4)),
    "records": spaces.Sequence(spaces.Dict(a=CHOICE, b=BOX)),
    "stacked records": spaces.Sequence(spaces.Dict(a=CHOICE, b=BOX), stack=True),
    "sequences": spaces.Sequence(spaces.Sequence(CHOICE)),
    "graph": spaces.Graph(BOX, CHOICE),
    "nodes": spaces.Graph(CHOICE, None),
    "graphs": spaces.Sequence(spaces.Graph(CHOICE, BOX)),
    "within": spaces.Dict(path=spaces.Sequence(BOX), map=spaces.Graph(BOX, BOX)),
    "one of": spaces.OneOf([spaces.Sequence(CHOICE), BOX]),
}


def same(first, second):
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(
            same(first[key], second[key]) for key in first
        )
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return np.array_equal(first, second)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_members_come_back_as_they_were(space):
    spec = spec_from_gym_space(space, max_lengths=120)
    read, write = from_member(space, spec, bounded=True), to_member(space, spec)
    check = action_converter(space, spec, subject="It", root="action")
    space.seed(7)
    for _ in range(10):
        member = space.sample()
        value = read(member)

        assert all(
            leaf.check_array(part)
            for leaf, part in zip(nest.flatten(spec), nest.flatten(value), strict=True)
        )
        assert same(member, write(value))
        assert same(member, check(value))
        assert space.contains(write(value))


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_the_space_comes_back_as_it_was(space):
    spec = spec_from_gym_space(space, max_lengths=5)

    assert space == space_from_spec(spec)
    assert spec == pickle.loads(pickle.dumps(spec))
    assert not any(leaf.dtype.hasobject for leaf in nest.flatten(spec))


def test_what_is_beyond_the_length_is_zero_or_what_fits():
    read = from_member(
        SPACES["sequence"], spec_from_gym_space(SPACES["sequence"], max_lengths=4)
    )
    value = read((6, 4))

    assert [6, 4, 3, 3] == value.values.tolist()
    assert (PaddedSequence, 2) == (type(value), int(value.length))


def test_a_graph_is_nodes_edges_and_links():
    space = SPACES["graph"]
    spec = spec_from_gym_space(space, max_lengths=(3, 2))
    graph = spaces.GraphInstance(
        np.ones((2, 2), np.float32), np.array([4]), np.array([[0, 1]], np.int32)
    )
    value = from_member(space, spec)(graph)
    bare = from_member(space, spec)(spaces.GraphInstance(graph.nodes, None, None))

    assert isinstance(value, PaddedGraph)
    assert isinstance(value.nodes, PaddedStack)
    assert [[1, 1], [1, 1], [0, 0]] == value.nodes.values.tolist()
    assert ([4, 3], 1) == (value.edges.values.tolist(), int(value.edges.length))
    assert [[0, 1], [0, 0]] == value.edge_links.tolist()
    assert 0 == int(bare.edges.length)


def test_without_a_maximum_they_stay_objects():
    spec = spec_from_gym_space(SPACES["within"], max_lengths={"map": (4, 5)})

    assert spec["path"].dtype.hasobject
    assert isinstance(spec["map"], PaddedGraph)


def test_elements_without_arrays_stay_objects():
    class Odd(spaces.Space):
        pass

    spec = spec_from_gym_space(spaces.Sequence(Odd()), max_lengths=3)

    assert spec.dtype.hasobject


@pytest.mark.parametrize("place", ["path", "['path']"])
def test_a_place_is_a_key_or_what_python_writes(place):
    spec = spec_from_gym_space(SPACES["within"], name="seen", max_lengths={place: 3})

    assert (3, 2) == spec["path"].values.shape


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"way": 3},
            "max_lengths has 'way', where the spaces have no Sequence or Graph. A "
            "place must be written as in Python, such as \"['path']\", or be the key "
            "alone.",
        ),
        (
            0,
            "max_lengths has 0 of type int; it must be an integer of at least 1, or a "
            "pair of those of nodes and edges for a Graph.",
        ),
        (
            {"path": (3, 4)},
            "max_lengths has the pair (3, 4) for a Sequence; it must be one integer.",
        ),
    ],
    ids=["place", "zero", "pair"],
)
def test_wrong_lengths_are_refused(given, text, message_of):
    assert text == message_of(
        ValueError, lambda: spec_from_gym_space(SPACES["within"], max_lengths=given)
    )


class Walk(gymnasium.Env):
    """Observes the path so far and the graph of it; an action is a list of moves."""

    observation_space = spaces.Dict(
        path=spaces.Sequence(spaces.Discrete(10)),
        map=spaces.Graph(spaces.Discrete(10), spaces.Box(0, 9, (1,), np.float32)),
    )
    action_space = spaces.Sequence(spaces.Discrete(10))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._path = [0]
        return self._seen(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self._path = [*self._path, len(action) % 10]
        return self._seen(), float(sum(action)), len(self._path) == 4, False, {}

    def _seen(self):
        nodes = np.array(self._path)
        edges = links = None
        if len(nodes) > 1:
            edges = nodes[1:, None].astype(np.float32)
            links = np.stack([np.arange(len(nodes) - 1), np.arange(1, len(nodes))], 1)
            links = links.astype(np.int32)
        return {
            "path": tuple(self._path),
            "map": spaces.GraphInstance(nodes, edges, links),
        }


make_walk = functools.partial(GymnasiumWrapper, max_lengths=6)


def walk():
    return make_walk(Walk())


def moves(*numbers):
    values = np.zeros(6, np.int64)
    values[: len(numbers)] = numbers
    return PaddedSequence(values, np.array(len(numbers)))


def test_an_environment_with_them_keeps_its_promises():
    check_environment(walk, steps=40, require=["state"])


def test_an_action_is_padded_too():
    env = walk()
    env.reset()
    time_step = env.step(moves(3, 4))

    assert 7.0 == float(time_step.reward)
    assert [0, 2, 0, 0, 0, 0] == time_step.observation["path"].values.tolist()
    assert 2 == int(time_step.observation["path"].length)


@pytest.mark.parametrize("length", [7, -1, 1.5])
def test_a_length_out_of_bounds_is_refused(length):
    env = walk()
    env.reset()

    with pytest.raises(SpecError, match=r"action\.length"):
        env.step(PaddedSequence(np.zeros(6, np.int64), np.array(length)))


def test_a_longer_member_is_refused(message_of):
    env = GymnasiumWrapper(Walk(), max_lengths={"path": 2, "": 6})
    env.reset()
    env.step(moves(1))

    assert (
        "Walk returned an observation that does not fit its spec at "
        "observation['path'].\n\n"
        "  expected   up to 2 elements\n"
        "  got        a tuple of 3 elements\n\n"
        "There are 3 elements and room for 2: max_lengths says how many there may be."
    ) == message_of(SpecError, lambda: env.step(moves(1)))


@pytest.mark.parametrize("pooled", [False, True], ids=["batch", "pool"])
def test_a_batch_has_arrays_of_all_rows(pooled):
    env = (
        ParallelPyEnvironment([walk] * 2, backend="inline")
        if pooled
        else BatchedPyEnvironment([walk(), walk()])
    )
    with env:
        rng = np.random.default_rng(1)
        first = env.reset()
        env.step(sample_spec_nest(env.action_spec(), rng, (2,)))

        assert (2, 6) == first.observation["path"].values.shape
        assert [1, 1] == first.observation["path"].length.tolist()
        assert not any(leaf.dtype.hasobject for leaf in nest.flatten(first))


def test_gymnasium_gets_its_members_back():
    game = PyToGymnasium(walk())
    theirs = Walk()
    ours, _ = game.reset(seed=1)
    expected, _ = theirs.reset(seed=1)

    assert (game.observation_space, game.action_space) == (
        theirs.observation_space,
        theirs.action_space,
    )
    assert same(expected, ours)
    assert same(theirs.step((3, 4))[0], game.step((3, 4))[0])


def test_a_vector_environment_has_a_tuple_of_members():
    envs = PyToGymnasiumVector(BatchedPyEnvironment([walk(), walk()]))
    observations, _ = envs.reset(seed=1)
    observations, *_ = envs.step(((3, 4), (1,)))

    assert envs.observation_space.contains(observations)
    assert ((0, 2), (0, 1)) == observations["path"]
    envs.close()
