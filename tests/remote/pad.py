"""An environment whose rewards are the actions, so that they tell which keys came."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from envkit import PyEnvironment, restart, termination, transition, truncation
from envkit.specs import BoundedArraySpec

NOOP, LEFT, RIGHT, FIRE, UP = range(5)


class Pad(PyEnvironment):
    """Goes on until `fire` ends it, or `up` cuts it off; the picture is the action.

    Attributes:
        gate: What a reset waits for.
        seeds: The seeds that it was given.
    """

    action_names = ("noop", "left", "right", "fire", "up")

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.seeds: list[Any] = []
        self.resets = 0
        self._width, self._shown = width, 0

    def observation_spec(self):
        return BoundedArraySpec((), np.int32, 0, 255)

    def action_spec(self):
        return BoundedArraySpec((), np.int32, 0, 4)

    def seed(self, seed):
        self.seeds.append(seed)
        return seed

    def _reset(self):
        self.resets += 1
        self.gate.wait()
        self._shown = 100 + self.resets % 100
        return restart(np.array(self._shown, np.int32))

    def _step(self, action):
        self._shown = int(action)
        seen = np.array(self._shown, np.int32)
        reward = float(action)
        if action == FIRE:
            return termination(seen, reward)
        if action == UP:
            return truncation(seen, reward)
        return transition(seen, reward)

    def render(self, mode="rgb_array"):
        return np.full((6, self._width, 3), self._shown, np.uint8)


class Fragile(Pad):
    """Breaks where `Pad` ends."""

    def _step(self, action):
        if action == FIRE:
            raise RuntimeError("the fire is out")
        return super()._step(action)


class Crashing(Pad):
    """Crashes its process where `Pad` ends, and draws only in an episode."""

    def _step(self, action):
        if action == FIRE:
            os.abort()
        return super()._step(action)

    def render(self, mode="rgb_array"):
        if not self.resets:
            raise ValueError("there is no picture before the first episode")
        return super().render(mode)


class Slow(Pad):
    """Stays in a step while it may not go on.

    Attributes:
        going_on: What a step waits for.
        is_stuck: Whether one does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.going_on, self.is_stuck = threading.Event(), threading.Event()
        self.going_on.set()

    def _step(self, action):
        if not self.going_on.is_set():
            self.is_stuck.set()
            self.going_on.wait()
        return super()._step(action)


class Superstitious(Pad):
    """Does not take every seed."""

    def seed(self, seed):
        if seed == 13:
            raise ValueError("that is an unlucky number")
        return super().seed(seed)


class Wheel(PyEnvironment):
    """Is steered by two numbers; the reward is 100 times the first, and the second."""

    def observation_spec(self):
        return BoundedArraySpec((), np.float32, -1, 1)

    def action_spec(self):
        return BoundedArraySpec((2,), np.float32, [-1, 0], [1, 1])

    def _reset(self):
        return restart(np.float32(0))

    def _step(self, action):
        return transition(np.float32(action[0]), float(100 * action[0] + action[1]))

    def render(self, mode="rgb_array"):
        return np.zeros((6, 8, 3), np.uint8)
