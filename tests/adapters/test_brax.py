"""Environments of Brax return its own numbers, and end as envkit's do."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest

pytest.importorskip("jax", reason="jax is not installed")
with warnings.catch_warnings():  # It uses what others call old.
    warnings.simplefilter("ignore")
    pytest.importorskip("brax", reason="brax is not installed")
    from brax import envs
    from brax.envs.wrappers import training

import jax

from envkit import BoundedArraySpec
from envkit.adapters import BraxWrapper
from envkit.seeding import seed_per_row
from envkit.testing import check_environment

# What JAX has to compile takes its time.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Brax System:UserWarning"),
]


@functools.cache
def fast():
    """Its environment for tests, which is a point on a line."""
    return envs.get_environment("fast")


@functools.cache
def of_five():
    return training.EpisodeWrapper(fast(), episode_length=5, action_repeat=1)


@functools.cache
def pendulum():
    return envs.get_environment("inverted_pendulum", backend="positional")


def test_a_batch_matches_brax_bit_for_bit():
    ours = BraxWrapper(pendulum(), batch_size=2, seed=3)
    split = jax.vmap(jax.random.split)
    keys = jax.vmap(jax.random.PRNGKey)(np.array(seed_per_row(3, 2), np.uint32))
    state = jax.jit(jax.vmap(pendulum().reset))(split(keys)[:, 1])
    step = jax.jit(jax.vmap(pendulum().step))
    np.testing.assert_array_equal(state.obs, ours.reset().observation)

    for action in np.random.default_rng(1).uniform(-1, 1, (4, 2, 1)):
        state = step(state, action.astype(np.float32))
        time_step = ours.step(action.astype(np.float32))
        np.testing.assert_array_equal(state.obs, time_step.observation)
        np.testing.assert_array_equal(state.reward, time_step.reward)
        np.testing.assert_array_equal(state.done == 1, time_step.is_last())


def test_done_is_a_termination():
    env = BraxWrapper(pendulum(), seed=1)
    time_step = env.reset()
    while not time_step.is_last():
        time_step = env.step(np.ones(1, np.float32))
    assert 0.0 == time_step.discount
    assert {"terminated": True, "truncated": False}.items() <= env.get_info().items()


def test_the_limit_of_episode_wrapper_is_a_truncation():
    env = BraxWrapper(of_five(), batch_size=2)
    env.reset()
    action = np.zeros((2, 1), np.float32)
    time_steps = [env.step(action) for _ in range(7)]
    assert [1, 1, 1, 1, 2, 0, 1] == [int(it.step_type[1]) for it in time_steps]
    assert [1.0, 1.0] == time_steps[4].discount.tolist()


def test_actions_have_bounds_of_minus_1_and_1():
    env = BraxWrapper(fast())
    assert BoundedArraySpec((1,), np.float32, -1, 1, "action") == env.action_spec()
    assert env.brax is fast()


def test_the_environment_passes_check_environment():
    check_environment(functools.partial(BraxWrapper, of_five(), batch_size=2), steps=20)


def test_wrappers_that_duplicate_envkit_are_refused(message_of):
    wrapped = training.AutoResetWrapper(of_five())
    assert (
        "BraxWrapper was given an environment in Brax's AutoResetWrapper. envkit "
        "begins episodes and maps rows itself: pass the environment that "
        "brax.envs.get_environment(...) makes."
    ) == message_of(TypeError, lambda: BraxWrapper(wrapped))


def test_an_object_other_than_a_brax_environment_is_refused(message_of):
    assert (
        "BraxWrapper was given the class PipelineEnv, which is not an environment of "
        "Brax. brax.envs.get_environment(...) makes one."
    ) == message_of(TypeError, lambda: BraxWrapper(envs.PipelineEnv))
