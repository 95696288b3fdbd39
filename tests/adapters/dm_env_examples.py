"""Environments of dm_env for the tests of what is made of them."""

from __future__ import annotations

import collections
import types

import dm_env
import numpy as np
from dm_env import specs

RIGHT = {"way": 1, "speed": np.array([1.0])}


class Walk(dm_env.Environment):
    """Goes right or left, from a random place; ends after three steps."""

    def __init__(self, last_discount=1.0, random=None):
        self.actions = []
        self.closings = 0
        self._last_discount = last_discount
        self._place = np.zeros(2)
        self._left = 0
        if random is not None:
            self.task = types.SimpleNamespace(random=random)

    def observation_spec(self):
        return collections.OrderedDict(
            place=specs.BoundedArray((2,), np.float64, -10, np.inf, name="place"),
            left=specs.Array((), np.int64, name="left"),
        )

    def action_spec(self):
        return {
            "way": specs.DiscreteArray(2, name="way"),
            "speed": specs.BoundedArray((1,), np.float64, 0.0, [2.0]),
        }

    def _observation(self):
        return collections.OrderedDict(place=self._place, left=self._left)

    def reset(self):
        self._left = 3
        is_random = hasattr(self, "task")
        self._place[:] = self.task.random.uniform(size=2) if is_random else 0
        return dm_env.restart(self._observation())

    def step(self, action):
        self.actions.append(action)
        self._left -= 1
        self._place += action["speed"] * (1 if action["way"] else -1)
        if self._left:
            return dm_env.transition(
                reward=np.float64(0.1), observation=self._observation()
            )
        return dm_env.truncation(
            reward=1, observation=self._observation(), discount=self._last_discount
        )

    def close(self):
        self.closings += 1


class Dice(dm_env.Environment):
    """Shows a number from a private generator; ends after three steps."""

    def __init__(self, generator=None):
        self._generator = np.random.RandomState(0) if generator is None else generator
        self._left = 0
        self.info = "dice"

    def _roll(self):
        return np.float64(self._generator.random())

    def reset(self):
        self._left = 3
        return dm_env.restart(self._roll())

    def step(self, action):
        self._left -= 1
        if self._left:
            return dm_env.transition(self._roll(), self._roll())
        return dm_env.termination(self._roll(), self._roll())

    def observation_spec(self):
        return specs.Array((), np.float64)

    def action_spec(self):
        return specs.DiscreteArray(2)


class Noise(dm_env.Environment):
    """Adds something random to rewards, and has whatever the environment has."""

    def __init__(self, env):
        self._env = env
        self._rng = np.random.default_rng(0)

    def reset(self):
        return self._env.reset()

    def step(self, action):
        time_step = self._env.step(action)
        return time_step._replace(reward=time_step.reward + self._rng.random())

    def observation_spec(self):
        return self._env.observation_spec()

    def action_spec(self):
        return self._env.action_spec()

    def __getattr__(self, name):
        return getattr(self._env, name)


class Told(dm_env.Environment):
    """Has the specs and returns the time step that it is told."""

    def __init__(self, time_step=None, **told):
        self.actions = []
        self._time_step = time_step
        self._told = told

    def reset(self):
        return self._time_step

    def step(self, action):
        self.actions.append(action)
        return self._time_step

    def observation_spec(self):
        return self._told.get("observation", specs.Array((), np.float64))

    def action_spec(self):
        return self._told.get("action", specs.DiscreteArray(2))

    def reward_spec(self):
        return self._told.get("reward", super().reward_spec())

    def discount_spec(self):
        return self._told.get("discount", super().discount_spec())
