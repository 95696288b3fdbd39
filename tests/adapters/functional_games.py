"""Functional environments to test with; they import JAX when they are called."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from envkit import BoundedArraySpec

WAY = BoundedArraySpec((), np.int32, 0, 1)
GOAL, LIMIT = 7, 6


def reset(key, params):
    """Begins at a random place, with a Python number in the state."""
    import jax
    import jax.numpy as jnp

    place = jax.random.randint(key, (), 0, 3)
    return _seen(place, jnp.float32(0)), {"place": place, "steps": 0}


def step(key, state, action, params):
    """Goes on by the action; ends at the goal, and is truncated after some steps."""
    import jax

    place = state["place"] + action * 2
    noise = jax.random.uniform(key)
    steps = state["steps"] + 1
    reward = action * noise * (1.0 if params is None else params)
    info = {"steps": steps, "noise": noise}
    state = {"place": place, "steps": steps}
    return _seen(place, noise), state, reward, place >= GOAL, steps >= LIMIT, info


def _seen(place, noise):
    return {"around": (noise, place > 3), "place": place}


class Line:
    """An environment as gymnax's were before 1.0: `done` does not say why."""

    default_params = 3

    def action_space(self, params):
        return SimpleNamespace(n=2, shape=(), dtype=np.int32)

    def reset_env(self, key, params):
        import jax.numpy as jnp

        return jnp.int32(0), jnp.int32(0)

    def step_env(self, key, state, action, params):
        state = state + action
        return state, state, action * 1.0, state >= params, {}

    reset = reset_env
    step = step_env


class Circle:
    """An environment that begins episodes within its `step`, and has only that."""

    default_params = None

    def action_space(self, params):
        return SimpleNamespace(n=2, shape=(), dtype=np.int32)

    def observation_space(self, params):
        return SimpleNamespace(low=0, high=3, shape=(), dtype=np.float32)

    def reset(self, key, params):
        import jax.numpy as jnp

        return jnp.int32(0), jnp.int32(0)

    def step(self, key, state, action, params):
        import jax.numpy as jnp

        after = state + action
        done = after >= 3
        state = jnp.where(done, 0, after)
        info = {"final_observation": after, "turns": after}
        return state, state, 1.0, done, False, info
