"""Environments of Gymnasium by their ids."""

from __future__ import annotations

import contextlib
import pickle

import gymnasium
import numpy as np
import pytest

import envkit
from envkit import BatchedPyEnvironment
from envkit.adapters import (
    GymnasiumWrapper,
    PyToGymnasium,
    PyToGymnasiumVector,
    suite_gymnasium,
)
from envkit.errors import CallOrderError
from envkit.testing import check_environment
from envkit.wrappers import TimeLimit


def length_of_an_episode(env) -> int:
    """Counts the steps of one episode of a pendulum, which never falls."""
    env.reset()
    steps = 1
    while not env.step(np.zeros(1, np.float32)).is_last():
        steps += 1
    return steps


def test_make_knows_the_scheme():
    env = envkit.make("gymnasium:CartPole-v1")
    assert isinstance(env, TimeLimit)
    assert isinstance(env.wrapped_env(), GymnasiumWrapper)
    assert "CartPole-v1" == env.spec.id
    assert env.reset().is_first()


@pytest.mark.parametrize("name", ["CartPole-v1", "Blackjack-v1", "FrozenLake-v1"])
def test_an_environment_from_make_passes_check_environment(name):
    features = ["episodes", "info", "seed", "state"]
    assert () == check_environment(f"gymnasium:{name}", require=features).failed


def test_a_constructor_pickles():
    constructor = envkit.constructor("gymnasium:CartPole-v1", discount=0.5)
    env = pickle.loads(pickle.dumps(constructor))()
    env.reset()
    assert 0.5 == env.step(0).discount


def test_other_keyword_arguments_go_to_gymnasium():
    env = envkit.make("gymnasium:FrozenLake-v1", is_slippery=False, render_mode="ansi")
    env.reset()
    assert "ansi" == env.render_mode
    assert "FHFH" in env.render("ansi")


def test_gym_kwargs_and_render_kwargs_of_tf_agents_are_accepted():
    env = suite_gymnasium.load(
        "FrozenLake-v1",
        gym_kwargs={"map_name": "8x8"},
        render_kwargs={"render_mode": "ansi"},
    )
    assert 63 == env.observation_spec().maximum
    assert "ansi" == env.render_mode


def test_the_limit_of_the_id_applies():
    assert 200 == length_of_an_episode(suite_gymnasium.load("Pendulum-v1"))


def test_max_episode_steps_shortens_episodes():
    env = suite_gymnasium.load("Pendulum-v1", max_episode_steps=3)
    assert 3 == length_of_an_episode(env)
    assert 1.0 == env.current_time_step().discount


@pytest.mark.parametrize(
    "name", ["Pendulum-v1", "gymnasium.envs.classic_control:Pendulum-v1"]
)
def test_a_limit_of_zero_means_none(name):
    env = suite_gymnasium.load(name, max_episode_steps=0)
    env.reset()
    for _ in range(250):
        assert not env.step(np.zeros(1, np.float32)).is_last()


def test_wrappers_of_both_kinds_are_applied_from_the_inside():
    order = []

    def note(name):
        return lambda env: (order.append((name, type(env).__name__)), env)[1]

    suite_gymnasium.load(
        "CartPole-v1",
        gym_env_wrappers=[
            lambda env: gymnasium.wrappers.TimeLimit(env, 7),
            note("gym"),
        ],
        env_wrappers=[note("first"), note("second")],
    )

    assert [
        ("gym", "TimeLimit"),
        ("first", "TimeLimit"),
        ("second", "TimeLimit"),
    ] == order


def test_an_environment_without_a_limit_has_no_wrapper_for_it():
    env = suite_gymnasium.load("Blackjack-v1")
    assert isinstance(env, GymnasiumWrapper)


def test_gymnasiums_own_limit_is_removed():
    layers = str(suite_gymnasium.load("CartPole-v1").gym)
    assert "TimeLimit" not in layers
    assert 500 == gymnasium.spec("CartPole-v1").max_episode_steps


def test_an_id_without_a_version_means_the_newest():
    env = suite_gymnasium.load("Pendulum")
    assert "Pendulum-v1" == env.spec.id
    assert 200 == env.duration


def test_wrap_env_wraps_an_existing_environment():
    gym_env = gymnasium.make("Pendulum-v1")
    env = suite_gymnasium.wrap_env(gym_env, discount=0.5, max_episode_steps=3)
    assert 3 == length_of_an_episode(env)
    assert 0.5 == env.current_time_step().discount
    assert gym_env is env.gym


@pytest.mark.parametrize("max_episode_steps", [None, 0])
def test_wrap_env_sets_no_limit_by_default(max_episode_steps):
    env = suite_gymnasium.wrap_env(
        gymnasium.make("Pendulum-v1"), max_episode_steps=max_episode_steps
    )
    assert isinstance(env, GymnasiumWrapper)


def test_wrap_env_uses_the_given_limit_wrapper():
    limits = []

    def limit(env, steps):
        limits.append(steps)
        return env

    suite_gymnasium.wrap_env(
        gymnasium.make("Pendulum-v1"), max_episode_steps=7, time_limit_wrapper=limit
    )

    assert [7] == limits


def test_wrap_env_can_disable_auto_reset():
    env = suite_gymnasium.wrap_env(
        gymnasium.make("Pendulum-v1", max_episode_steps=1), auto_reset=False
    )
    env.reset()
    env.step(np.zeros(1, np.float32))
    with pytest.raises(CallOrderError):
        env.step(np.zeros(1, np.float32))


def test_an_unknown_id_raises_gymnasiums_error():
    with pytest.raises(gymnasium.error.NameNotFound, match=r"Did you mean: `CartPole`"):
        envkit.make("gymnasium:Cartpole-v1")


def test_an_unknown_argument_raises_gymnasiums_error():
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'colour'"):
        envkit.make("gymnasium:CartPole-v1", colour="red")


@pytest.mark.parametrize("steps", [9, 10, 11])
def test_flags_match_gymnasium_when_a_fall_meets_the_limit(steps):
    theirs = gymnasium.make("CartPole-v1", max_episode_steps=steps)
    ours = PyToGymnasium(envkit.make("gymnasium:CartPole-v1", max_episode_steps=steps))
    for env in (theirs, ours):
        env.reset(seed=7)
    ends = []
    while not ends or not any(ends[-1][0]):
        ends.append(tuple(env.step(1)[2:4] for env in (theirs, ours)))

    assert all(one == other for one, other in ends)
    assert {9: (False, True), 10: (True, True), 11: (True, False)}[steps] == ends[-1][0]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize(
    "batch",
    [
        lambda: envkit.make(
            "gymnasium:CartPole-v1", max_episode_steps=10, num_envs=2, backend="inline"
        ),
        lambda: TimeLimit(
            envkit.make("gymnasium:CartPole-v1", num_envs=2, backend="inline"), 10
        ),
        lambda: TimeLimit(
            BatchedPyEnvironment([GymnasiumWrapper(gymnasium.make("CartPole-v1"))]), 10
        ),
    ],
    ids=["limited rows", "limited pool", "limited rows in this process"],
)
def test_flags_match_gymnasium_in_batches(batch, mode):
    with contextlib.closing(PyToGymnasiumVector(batch(), mode)) as envs:
        rows = envs.num_envs
        theirs = gymnasium.vector.SyncVectorEnv(
            [lambda: gymnasium.make("CartPole-v1", max_episode_steps=10)] * rows,
            autoreset_mode=gymnasium.vector.AutoresetMode(mode),
        )
        seeds = [7] * rows
        for env in (theirs, envs):
            env.reset(seed=seeds)
        while True:
            results = [env.step(np.ones(rows, np.int64)) for env in (theirs, envs)]
            ends = [np.stack(result[2:4]).tolist() for result in results]
            assert ends[0] == ends[1]
            if results[0][2][0]:
                break

    assert [True, True] == [flags[0] for flags in ends[0]]
