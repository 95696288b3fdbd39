"""Floats reach environments of Gymnasium in the dtype of their action space."""

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
        # Its digits, and its dtype: NumPy computes another product with each.
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


def cast(actions):
    return [np.asarray(action, np.float32) for action in actions]


def assert_same_streams(expected, actions, envs):
    for theirs, ours in zip(expected, stream(envs, actions), strict=True):
        np.testing.assert_array_equal(theirs, ours)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("way", WAYS)
def test_floats_of_every_width_are_cast_to_the_spaces_dtype(way, how):
    actions = as_given(how)
    expected = stream(SyncVectorEnv([Given] * ROWS), cast(actions))
    assert_same_streams(expected, actions, WAYS[way]([Given] * ROWS))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["Pendulum-v1", "MountainCarContinuous-v0"])
def test_real_games_get_cast_actions(name, way):
    makers = [functools.partial(gymnasium.make, name)] * ROWS
    actions = as_given("changing", 30)
    expected = stream(SyncVectorEnv(makers), cast(actions))
    assert_same_streams(expected, actions, WAYS[way](makers))


@pytest.mark.slow
def test_worker_processes_get_cast_actions():
    makers = [functools.partial(gymnasium.make, "Pendulum-v1")] * ROWS
    actions = as_given("changing", 150)
    expected = stream(AsyncVectorEnv(makers), cast(actions))
    assert_same_streams(expected, actions, vectorize(makers))
    assert_same_streams(expected, actions, in_a_pool(makers, "process"))


@pytest.mark.parametrize("way", WAYS)
def test_floats_in_nests_are_cast(way):
    makers = [functools.partial(Given, nested_space())] * ROWS
    keys = np.arange(ROWS)
    for how in ("float64", "float32", "lists"):
        pushes = as_given(how, 5)
        expected = stream(
            SyncVectorEnv(makers),
            [{"keys": keys, "push": push} for push in cast(pushes)],
        )
        actions = [{"keys": keys, "push": push} for push in pushes]
        assert_same_streams(expected, actions, WAYS[way](makers))


def test_rows_of_an_asynchronous_pool_get_cast_actions():
    makers = [functools.partial(wrapped, Given)] * 2
    env = AsyncParallelPyEnvironment(makers, backend="inline", num_workers=1)
    env.reset_async()
    env.recv(count=2)

    env.send(np.array([[0.1]]), env_ids=[0])
    env.send(np.array([[0.1]], np.float32), env_ids=[1])
    observation = env.recv(count=2).time_step.observation
    env.close()

    assert [np.float32(0.1)] * 2 == observation[:, 0].tolist()


def test_rows_stepped_alone_get_cast_actions():
    makers = [functools.partial(wrapped, Given)] * 2
    env = ParallelPyEnvironment(makers, backend="inline", num_workers=1)
    env.reset()
    env.step(np.full((2, 1), 0.1), np.array([True, False]))
    env.envs[1].step(np.full(1, 0.3))
    seen = env.current_time_step().observation[:, 0].tolist()
    env.close()

    assert np.float32([0.1, 0.3]).tolist() == seen


def test_the_spec_has_the_spaces_dtype():
    spec = GymnasiumWrapper(Given()).action_spec()
    assert spec.dtype == np.float32
    assert repr(spec) == (
        "BoundedArraySpec(shape=(1,), dtype=float32, minimum=-2.0, maximum=2.0, "
        "name='action')"
    )


def test_single_environments_get_cast_actions():
    game = PyToGymnasium(GymnasiumWrapper(Given()))
    game.reset()
    expected = Given().step(np.array([0.1], np.float32))[0]
    for action in ([0.1], np.array([0.1]), np.array([0.1], np.float32)):
        np.testing.assert_array_equal(expected, game.step(action)[0])


def test_a_recording_has_the_cast_actions(tmp_path):
    makers = [functools.partial(wrapped, Given)] * 2
    env = Record(BatchedPyEnvironment([make() for make in makers]), tmp_path / "game")
    env.reset()
    env.step(np.full((2, 1), 0.1))
    env.close()
    one, other = Recording(tmp_path / "game").episodes()
    cast_action = [np.float32(0.1)]
    assert cast_action == one.action(1).tolist() == other.action(1).tolist()
