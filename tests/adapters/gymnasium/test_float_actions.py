"""Floats reach environments of Gymnasium in the width in which they were given."""

from __future__ import annotations

import functools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from envkit import (
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    ParallelPyEnvironment,
)
from envkit.adapters import (
    GymnasiumVectorWrapper,
    GymnasiumWrapper,
    PyToGymnasium,
    PyToGymnasiumVector,
    vectorize,
)
from envkit.recording import Record, Recording
from envkit.wrappers import TimeLimit

ROWS = 3


class Given(gymnasium.Env):
    """Returns the digits of what it was given, as NumPy computes with it."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def __init__(self, action_space=None):
        self.action_space = action_space or spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2), {}

    def step(self, action):
        if isinstance(action, dict):
            action = action["push"]
        # A number of Python's own leaves the width of float32 as it is.
        seen = np.array([action[0], np.float32(0.1) * action[0]], np.float64)
        return seen, float(seen.sum()), False, False, {}


def nested_space():
    push = spaces.Box(-2.0, 2.0, (1,), np.float32)
    return spaces.Dict(keys=spaces.Discrete(3), push=push)


def wrapped(make):
    return GymnasiumWrapper(make(), reward_dtype=np.float64)


def limited(make):
    return TimeLimit(wrapped(make), duration=1000)


def in_a_batch(makers):
    return PyToGymnasiumVector(BatchedPyEnvironment([wrapped(m) for m in makers]))


def in_a_pool(makers, backend="inline"):
    pool = ParallelPyEnvironment(
        [functools.partial(limited, make) for make in makers], backend=backend
    )
    return PyToGymnasiumVector(pool)


def in_gymnasiums(makers):
    envs = SyncVectorEnv(makers)
    return PyToGymnasiumVector(GymnasiumVectorWrapper(envs, reward_dtype=np.float64))


WAYS = {
    "vectorize": functools.partial(vectorize, backend="inline", num_workers=2),
    "vectorize in threads": functools.partial(vectorize, backend="thread"),
    "batch": in_a_batch,
    "pool": in_a_pool,
    "pool of threads": functools.partial(in_a_pool, backend="thread"),
    "vector environment": in_gymnasiums,
}


def stream(envs, actions):
    envs.reset(seed=7)
    steps = [envs.step(action)[:2] for action in actions]
    envs.close()
    return [np.stack(column) for column in zip(*steps, strict=True)]


HOWS = ["float64", "float32", "float16", "lists", "lists of arrays", "integers"]
HOWS.append("changing")


def as_given(how, count=12):
    actions = np.random.default_rng(3).uniform(-1.0, 1.0, (count, ROWS, 1))
    if how == "lists":
        return actions.tolist()
    if how == "lists of arrays":
        return [list(action.astype(np.float32)) for action in actions]
    if how == "integers":
        return list(np.rint(actions).astype(np.int64))
    if how == "changing":
        widths = [np.float64, np.float32, np.float16]
        return [a.astype(widths[i % 3]) for i, a in enumerate(actions)]
    return list(actions.astype(how))


def assert_same_streams(makers, actions, *others):
    """Compares each vector environment with Gymnasium's, to the last bit."""
    expected = stream(SyncVectorEnv(makers), actions)
    for envs in others:
        for ours, theirs in zip(stream(envs, actions), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("way", WAYS)
def test_streams_are_those_of_gymnasiums_own(way, how):
    assert_same_streams([Given] * ROWS, as_given(how), WAYS[way]([Given] * ROWS))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["Pendulum-v1", "MountainCarContinuous-v0"])
def test_streams_of_real_games_are_those_of_gymnasiums_own(name, way):
    makers = [functools.partial(gymnasium.make, name)] * ROWS
    assert_same_streams(makers, as_given("changing", 30), WAYS[way](makers))


@pytest.mark.slow
def test_streams_of_processes_are_those_of_gymnasiums_own():
    makers = [functools.partial(gymnasium.make, "Pendulum-v1")] * ROWS
    others = AsyncVectorEnv(makers), vectorize(makers), in_a_pool(makers, "process")
    assert_same_streams(makers, as_given("changing", 150), *others)


@pytest.mark.parametrize("way", WAYS)
def test_floats_within_nests_keep_their_width_too(way):
    makers = [functools.partial(Given, nested_space())] * ROWS
    for how in ("float64", "float32", "lists"):
        pushes = as_given(how, 5)
        actions = [{"keys": np.arange(ROWS), "push": push} for push in pushes]
        assert_same_streams(makers, actions, WAYS[way](makers))


def test_each_row_of_an_asynchronous_pool_has_a_width_of_its_own():
    makers = [functools.partial(wrapped, Given)] * 2
    env = AsyncParallelPyEnvironment(makers, backend="inline", num_workers=1)
    env.reset_async()
    env.recv(count=2)

    env.send(np.array([[0.1]]), env_ids=[0])
    env.send(np.array([[0.1]], np.float32), env_ids=[1])
    batch = env.recv(count=2)
    seen = dict(zip(batch.env_ids.tolist(), batch.time_step.observation, strict=True))
    env.close()

    assert [seen[0][0], seen[1][0]] == [0.1, np.float32(0.1)]


def test_rows_that_step_alone_have_the_width_they_are_given():
    makers = [functools.partial(wrapped, Given)] * 2
    env = ParallelPyEnvironment(makers, backend="inline", num_workers=1)
    env.reset()
    env.step(np.full((2, 1), 0.1, np.float32))
    env.step(np.full((2, 1), 0.1, np.float64), np.array([True, False]))
    env.envs[1].step(np.full(1, 0.3))
    seen = env.current_time_step().observation[:, 0].tolist()
    again = env.step(np.full((2, 1), 0.1, np.float32)).observation[:, 0].tolist()
    env.close()

    assert seen == [0.1, 0.3]
    assert again == [np.float32(0.1)] * 2


def test_the_spec_is_of_the_spaces_dtype():
    spec = GymnasiumWrapper(Given()).action_spec()
    assert spec.dtype == np.float32
    assert repr(spec) == (
        "BoundedArraySpec(shape=(1,), dtype=float32, minimum=-2.0, maximum=2.0, "
        "name='action')"
    )


def test_single_environments_get_floats_as_they_are():
    game = PyToGymnasium(GymnasiumWrapper(Given()))
    game.reset()
    for action in ([0.1], np.array([0.1]), np.array([0.1], np.float32)):
        expected = Given().step(action)[0]
        np.testing.assert_array_equal(game.step(action)[0], expected)


def test_a_recording_has_what_the_environment_was_given(tmp_path):
    makers = [functools.partial(wrapped, Given)] * 2
    env = Record(BatchedPyEnvironment([make() for make in makers]), tmp_path / "game")
    env.reset()
    env.step(np.full((2, 1), 0.1))
    env.close()
    one, other = Recording(tmp_path / "game").episodes()
    assert one.action(1).tolist() == other.action(1).tolist() == [0.1]
