"""An environment of gymnax, or one that looks like it, keeps envkit's contract."""

from __future__ import annotations

import functools

import numpy as np
import pytest

pytest.importorskip("jax", reason="jax is not installed")

from envkit import ArraySpec, BoundedArraySpec, ParallelPyEnvironment
from envkit.adapters import GymnaxWrapper
from envkit.testing import check_environment
from tests.adapters.functional_games import Circle, Line

# What JAX has to compile takes its time.
pytestmark = pytest.mark.slow


def kinds(env, steps):
    return [int(env.step(1).step_type) for _ in range(steps)]


def test_done_is_a_termination():
    env = GymnaxWrapper(Line())
    env.reset()
    env.step(1), env.step(1)

    time_step = env.step(1)

    assert (2, 0.0, 3) == (
        time_step.step_type,
        time_step.discount,
        time_step.observation,
    )


def test_a_self_resetting_step_keeps_its_final_observation():
    env = GymnaxWrapper(Circle())
    env.reset()
    observations = [int(env.step(1).observation) for _ in range(5)]
    assert [1, 2, 3, 0, 1] == observations
    assert {"turns", "terminated", "truncated"} == set(env.get_info())


def test_bounds_come_from_the_space_and_dtypes_from_the_observations():
    env = GymnaxWrapper(Circle())
    assert BoundedArraySpec((), np.int32, 0, 3, "observation") == env.observation_spec()


def test_observation_bounds_can_be_left_out():
    env = GymnaxWrapper(Circle(), observation_bounds=False)
    assert ArraySpec((), np.int32, "observation") == env.observation_spec()


def test_parameters_may_be_passed_as_one_object():
    assert [0, 1, 2] == kinds(GymnaxWrapper(Line(), 2), 3)


def test_attributes_of_the_environment_are_accessible():
    line = Line()
    env = GymnaxWrapper(line)
    assert (3, line) == (env.default_params, env.gymnax)


def test_the_pair_that_gymnax_make_returns_is_refused(message_of):
    assert (
        "GymnaxWrapper was given a pair; gymnax.make returns the environment and its "
        "parameters: GymnaxWrapper(*gymnax.make(...))."
    ) == message_of(TypeError, lambda: GymnaxWrapper((Line(), 3)))


def test_a_class_in_place_of_an_environment_is_refused(message_of):
    assert (
        "GymnaxWrapper was given the class Line, which is not an environment of "
        "gymnax. gymnax.make(...) makes one."
    ) == message_of(TypeError, lambda: GymnaxWrapper(Line))


def test_unknown_parameters_are_refused(message_of):
    gymnax = pytest.importorskip("gymnax", reason="gymnax is not installed")
    env, _ = gymnax.make("FrozenLake-misc")
    assert message_of(
        ValueError, lambda: GymnaxWrapper(env, {"slippery": False})
    ).startswith("FrozenLake has no parameter 'slippery'. Its parameters are ")


def test_a_wrapper_of_gymnax_is_refused(message_of):
    gymnax = pytest.importorskip("gymnax", reason="gymnax is not installed")
    from gymnax.wrappers import FlattenObservationWrapper

    env, _ = gymnax.make("CartPole-v1")
    assert (
        "GymnaxWrapper was given the wrapper FlattenObservationWrapper. gymnax's "
        "wrappers see the next episode instead of an episode's end. Pass the "
        "environment itself, and use the wrappers of envkit.wrappers."
    ) == message_of(TypeError, lambda: GymnaxWrapper(FlattenObservationWrapper(env)))


@pytest.mark.parametrize("game", [Line, Circle])
def test_the_environment_passes_check_environment(game):
    env = game()
    check_environment(functools.partial(GymnaxWrapper, env, batch_size=2), steps=30)


def make_line(rows):
    return GymnaxWrapper(Line(), batch_size=rows)


def test_a_pool_can_hold_batches_of_different_sizes():
    with ParallelPyEnvironment(
        [functools.partial(make_line, 2), functools.partial(make_line, 3)],
        backend="inline",
    ) as env:
        env.reset()
        assert [1] * 5 == env.step(np.ones(5, int)).observation.tolist()
