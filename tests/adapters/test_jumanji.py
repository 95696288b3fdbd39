"""Environments of Jumanji return its own numbers, and end as envkit's do."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pytest

pytest.importorskip("jax", reason="jax is not installed")
with warnings.catch_warnings():  # It uses what others call old.
    warnings.simplefilter("ignore")
    jumanji = pytest.importorskip("jumanji", reason="jumanji is not installed")
    from jumanji import specs, types, wrappers

import jax
import jax.numpy as jnp

from envkit import BoundedArraySpec
from envkit.adapters import JumanjiWrapper
from envkit.seeding import seed_per_row
from envkit.testing import check_environment

# What JAX has to compile takes its time.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@functools.cache
def game(name):
    return jumanji.make(name)


def test_a_batch_matches_jumanji_bit_for_bit():
    snake = game("Snake-v1")
    ours = JumanjiWrapper(snake, batch_size=2, seed=3)
    split = jax.vmap(jax.random.split)
    keys = jax.vmap(jax.random.PRNGKey)(np.array(seed_per_row(3, 2), np.uint32))
    state, theirs = jax.jit(jax.vmap(snake.reset))(split(keys)[:, 1])
    step = jax.jit(jax.vmap(snake.step))
    time_step = ours.reset()
    ended = np.zeros(2, bool)
    for action in np.random.default_rng(1).integers(0, 4, (400, 2), np.int32):
        assert_same_rows(~ended, theirs.observation, time_step.observation)
        ended |= np.asarray(theirs.step_type == 2)
        if ended.all():
            break
        state, theirs = step(state, action)
        time_step = ours.step(action)
        assert_same_rows(~ended, theirs.reward, time_step.reward)
        assert_same_rows(~ended, theirs.discount, time_step.discount)
        assert_same_rows(~ended, theirs.step_type.astype(int), time_step.step_type)
    assert ended.all()


def assert_same_rows(rows, expected, came):
    """Compares rows until their first episode has ended."""
    expected, came = jax.tree.leaves(expected), jax.tree.leaves(came)
    assert len(expected) == len(came)
    for ours, theirs in zip(expected, came, strict=True):
        np.testing.assert_array_equal(np.asarray(ours)[rows], theirs[rows])


def test_the_next_episode_begins_after_the_last_time_step():
    env = JumanjiWrapper(game("Snake-v1"), seed=1)
    time_step = env.reset()
    while not time_step.is_last():
        time_step = env.step(0)
    assert 0.0 == time_step.discount
    assert {"terminated": True, "truncated": False}.items() <= env.get_info().items()
    assert env.step(0).is_first()


class Cut(jumanji.Environment):
    """Truncates after two steps if its action is 1, and terminates otherwise."""

    def reset(self, key):
        return (key, 0), types.restart(jnp.float32(0))

    def step(self, state, action):
        key, steps = state
        seen = jnp.float32(steps + 1)
        end = jax.lax.cond(
            action == 1,
            lambda: types.truncation(jnp.float32(1), seen),
            lambda: types.termination(jnp.float32(1), seen),
        )
        go_on = types.transition(jnp.float32(0), seen)
        pick = functools.partial(jnp.where, steps + 1 >= 2)
        return (key, steps + 1), jax.tree.map(pick, end, go_on)

    @functools.cached_property
    def observation_spec(self):
        return specs.Array((), np.float32)

    @functools.cached_property
    def action_spec(self):
        return specs.DiscreteArray(2)


def test_a_truncation_keeps_the_discount():
    env = JumanjiWrapper(Cut(), batch_size=2)
    env.reset()
    time_steps = [env.step(np.array([0, 1], np.int32)) for _ in range(3)]
    assert [[1, 1], [2, 2], [0, 0]] == [it.step_type.tolist() for it in time_steps]
    assert [0.0, 1.0] == time_steps[1].discount.tolist()


def test_action_specs_have_bounds():
    snake = JumanjiWrapper(game("Snake-v1"))
    assert BoundedArraySpec((), np.int32, 0, 3, "action") == snake.action_spec()
    assert snake.jumanji is game("Snake-v1")


def test_the_environment_passes_check_environment():
    make = functools.partial(JumanjiWrapper, game("Snake-v1"), batch_size=2)
    check_environment(make, steps=20)


def test_wrappers_that_duplicate_envkit_are_refused(message_of):
    wrapped = wrappers.AutoResetWrapper(game("Snake-v1"))
    assert (
        "JumanjiWrapper was given an environment in Jumanji's AutoResetWrapper. envkit "
        "begins episodes and maps rows itself: pass the environment that "
        "jumanji.make(...) makes."
    ) == message_of(TypeError, lambda: JumanjiWrapper(wrapped))


def test_an_object_other_than_a_jumanji_environment_is_refused(message_of):
    assert (
        "JumanjiWrapper was given the class Environment, which is not an environment "
        "of Jumanji. jumanji.make(...) makes one."
    ) == message_of(TypeError, lambda: JumanjiWrapper(jumanji.Environment))
