"""Environments of gymnax by name, with the numbers of gymnax."""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pytest

import envkit
from envkit import ArraySpec, ParallelPyEnvironment
from envkit.adapters.jax import gymnax as suite_gymnax
from envkit.seeding import seed_per_row
from envkit.specs import sample_spec_nest
from envkit.testing import check_environment

gymnax = pytest.importorskip("gymnax", reason="gymnax is not installed")

jax = pytest.importorskip("jax", reason="jax is not installed")

# What JAX has to compile takes its time.
pytestmark = pytest.mark.slow

ROWS = 3


def by_hand(env, params, seeds, moves):
    """Plays gymnax's own functions, mapped over the rows and compiled by hand."""
    begin = jax.jit(jax.vmap(env.reset_env, (0, None)))
    go_on = jax.jit(jax.vmap(env.step_env, (0, 0, 0, None)))
    is_over = jax.jit(jax.vmap(env.is_truncated, (0, None)))
    split = jax.vmap(jax.random.split)
    keys = split(jax.vmap(jax.random.PRNGKey)(np.array(seeds, np.uint32)))
    observation, state = begin(keys[:, 1], params)
    yield np.zeros(ROWS), np.zeros(ROWS), np.ones(ROWS), observation
    ended = np.zeros(ROWS, bool)
    for action in moves:
        keys = split(keys[:, 0])
        seen, after, reward, terminated, _ = go_on(keys[:, 1], state, action, params)
        truncated = is_over(after, params)
        if ended.any():
            first, began = begin(keys[:, 1], params)
            pick = functools.partial(_pick, ended)
            seen = jax.tree.map(pick, first, seen)
            after = jax.tree.map(pick, began, after)
        last = np.array(terminated | truncated) & ~ended
        yield (
            np.where(ended, 0, 1 + last),
            np.where(ended, 0, reward),
            np.where(np.array(terminated) & ~ended, 0, 1),
            seen,
        )
        state, ended = after, last


def _pick(mask, ours, theirs):
    return jax.numpy.where(mask.reshape(-1, *[1] * (ours.ndim - 1)), ours, theirs)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Breakout-MinAtar"])
def test_time_steps_match_gymnax_bit_for_bit(name):
    env = suite_gymnax.load(name, ROWS, seed=3)
    rng = np.random.default_rng(0)
    moves = [sample_spec_nest(env.action_spec(), rng, (ROWS,)) for _ in range(60)]

    bare = by_hand(env.gymnax, env.params, seed_per_row(3, ROWS), moves)
    for index, expected in enumerate(bare):
        time_step = env.step(moves[index - 1]) if index else env.reset()
        for ours, theirs in zip(time_step, expected, strict=True):
            np.testing.assert_array_equal(ours, np.asarray(theirs).astype(ours.dtype))


@pytest.mark.parametrize(
    ("name", "rows"), [("CartPole-v1", ROWS), ("Catch-bsuite", None)]
)
def test_environments_pass_check_environment(name, rows):
    check_environment(functools.partial(suite_gymnax.load, name, rows), steps=60)


def test_observations_that_leave_their_bounds_have_no_bounds():
    env = suite_gymnax.load("GaussianBandit-misc")
    assert ArraySpec((4,), np.float32, "observation") == env.observation_spec()


def test_a_time_limit_of_gymnax_truncates():
    env = suite_gymnax.load("CartPole-v1", params={"max_steps_in_episode": 3})
    env.reset()
    env.step(0), env.step(1)
    time_step = env.step(0)
    assert (2, 1.0) == (time_step.step_type, time_step.discount)


def test_make_knows_the_scheme():
    env = envkit.make("gymnax:FrozenLake-misc", batch_size=2, seed=1)
    assert (2,) == env.reset().observation.shape


def test_load_shares_one_environment_per_name():
    first, second = (suite_gymnax.load("FrozenLake-misc") for _ in range(2))
    assert first.gymnax is second.gymnax


def test_arguments_go_to_the_environment():
    env = suite_gymnax.load("DeepSea-bsuite", size=5)
    assert (5, 5) == env.observation_spec().shape


def test_env_wrappers_are_applied():
    from envkit.wrappers import TimeLimit

    env = suite_gymnax.load(
        "FrozenLake-misc", env_wrappers=[lambda env: TimeLimit(env, 2)]
    )
    assert 2 == env.duration


def test_an_unknown_name_gets_a_suggestion(message_of):
    assert message_of(ValueError, lambda: suite_gymnax.load("CartPole")).startswith(
        "gymnax has no environment 'CartPole'. Did you mean 'CartPole-v1'? It has "
        "Acrobot-v1, "
    )


def test_an_unknown_argument_is_referred_to_params(message_of):
    message = message_of(
        TypeError, lambda: suite_gymnax.load("CartPole-v1", max_steps_in_episode=3)
    )
    assert message == (
        "gymnax does not make 'CartPole-v1' with max_steps_in_episode: "
        "CartPole.__init__() got an unexpected keyword argument "
        "'max_steps_in_episode'. Pass its parameters in params={...}."
    )


def test_worker_processes_return_the_same_stream():
    make_env = envkit.constructor("gymnax:FrozenLake-misc", batch_size=2)
    with (
        ParallelPyEnvironment([make_env] * 2) as there,
        ParallelPyEnvironment([make_env] * 2, backend="inline") as here,
    ):
        for env in (here, there):
            env.seed(5)
        assert here.reset().observation.tolist() == there.reset().observation.tolist()
        for _ in range(6):
            move = np.arange(4)
            ours, theirs = here.step(move), there.step(move)
            assert ours.observation.tolist() == theirs.observation.tolist()


def test_names_lists_gymnax_without_importing_jax():
    program = (
        "import sys; from envkit.adapters import suite_gymnax; "
        "print(*suite_gymnax.names(), 'jax' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert [*sorted(gymnax.registered_envs), "False"] == run.stdout.split()
    assert sorted(gymnax.registered_envs) == suite_gymnax.names()
