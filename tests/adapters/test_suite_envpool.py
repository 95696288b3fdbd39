"""Environments of EnvPool by name."""

from __future__ import annotations

import pytest

import envkit
from envkit import AutoReset
from envkit.adapters import AsyncEnvPool, EnvPoolWrapper, suite_envpool
from envkit.errors import ConstructorError
from envkit.wrappers import TimeLimit

pytest.importorskip("envpool", reason="envpool is not installed")


def test_make_knows_the_scheme():
    with envkit.make("envpool:CartPole-v1", num_envs=3, num_threads=1) as env:
        assert isinstance(env, EnvPoolWrapper)
        assert 3 == env.batch_size
        assert 1 == env.config["num_threads"]
        assert env.reset().is_first().all()


def test_one_row_is_the_default():
    with envkit.make("envpool:CartPole-v1") as env:
        assert (True, 1) == (env.batched, env.batch_size)


def test_a_constructor_makes_a_pool_of_several_rows():
    recipe = envkit.constructor("envpool:CartPole-v1", autoreset="disabled")
    with envkit.make(recipe, num_envs=2) as env:
        assert (2, AutoReset.DISABLED) == (env.batch_size, env.autoreset)


def test_load_passes_other_arguments_to_envpool():
    with suite_envpool.load("CartPole-v1", 2, 0.5, max_episode_steps=1, seed=3) as env:
        env.reset()
        time_step = env.step([0, 0])
    assert [0.5, 0.5] == time_step.discount.tolist()
    assert time_step.is_last().all()


def test_wrappers_are_applied_from_the_inside():
    wrap = [lambda env: TimeLimit(env, 3), lambda env: TimeLimit(env, 2)]
    with suite_envpool.load("CartPole-v1", 2, env_wrappers=wrap) as env:
        assert isinstance(env.wrapped_env().wrapped_env(), EnvPoolWrapper)
        env.reset()
        env.step([0, 0])
        assert env.step([0, 0]).is_last().all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: AsyncEnvPool("Pong-v5", num_envs=64, batch_size=32),
            "AsyncEnvPool has been removed: EnvPoolWrapper('Pong-v5', num_envs=64) "
            "steps the rows together.",
        ),
        (
            lambda: suite_envpool.load_async("Pong-v5", 64),
            "load_async has been removed: suite_envpool.load('Pong-v5', num_envs=64) "
            "steps the rows together.",
        ),
    ],
    ids=["AsyncEnvPool", "load_async"],
)
def test_a_removed_call_names_its_replacement(call, message, message_of):
    assert message == message_of(TypeError, call)


def test_an_environment_that_envpool_cannot_make_is_refused():
    with pytest.raises(ConstructorError, match="does not make 'CartPole-v1'"):
        suite_envpool.load("CartPole-v1", 2, max_num_players=0)


@pytest.mark.parametrize(
    ("arguments", "kind", "expected"),
    [
        (
            {"batch_size": 4},
            ValueError,
            "batch_size must be at most num_envs, which is 1, got 4. The number of "
            "rows is num_envs: write num_envs=4.",
        ),
        (
            {"env_type": "gym"},
            TypeError,
            "EnvPoolWrapper chooses EnvPool's interface, 'gymnasium': leave out "
            "env_type.",
        ),
    ],
)
def test_arguments_of_envpools_own_make_name_what_to_write(arguments, kind, expected):
    with pytest.raises(kind) as error:
        suite_envpool.load("CartPole-v1", **arguments)
    assert expected == str(error.value)
