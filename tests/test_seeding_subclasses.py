"""A subclass may extend seed() by what it makes after the base class's constructor."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from envkit import ArraySpec, RandomPyEnvironment, nest
from envkit.envs import Bandit, CartPole, Catch, GridWorld, TicTacToe


def functional():
    pytest.importorskip("jax")
    import jax

    from envkit import BoundedArraySpec
    from envkit.adapters.jax.functional import FunctionalEnvironment

    def reset(key, params):
        return jax.random.uniform(key), jax.random.uniform(key)

    def step(key, state, action, params):
        return state, state, 1.0, False, {}

    spec = BoundedArraySpec((), np.int32, 0, 1)
    return FunctionalEnvironment, functools.partial(
        dict, reset=reset, step=step, action_spec=spec
    )


def vizdoom():
    pytest.importorskip("vizdoom")
    from envkit.adapters import VizDoomWrapper

    return VizDoomWrapper, functools.partial(dict, game="basic")


def built_in(kind):
    return lambda: (kind, dict)


def random_one():
    spec = ArraySpec((), np.float32)
    return RandomPyEnvironment, functools.partial(dict, observation_spec=spec)


@pytest.mark.parametrize(
    "make",
    [
        *map(built_in, [Bandit, CartPole, Catch, GridWorld, TicTacToe]),
        random_one,
        functional,
        vizdoom,
    ],
)
def test_constructors_call_no_method_that_a_subclass_may_extend(make):
    base, arguments = make()

    class Extended(base):
        def __init__(self, **given):
            super().__init__(**given)
            self.noise = np.random.default_rng(3)

        def seed(self, seed):
            super().seed(seed)
            state = np.random.default_rng(seed).bit_generator.state
            self.noise.bit_generator.state = state

    with Extended(**arguments(), seed=7) as env:
        first = env.reset()
        env.seed(7)

        assert np.random.default_rng(7).random() == env.noise.random()
        again = env.reset().observation
        nest.map_structure(np.testing.assert_array_equal, first.observation, again)
