"""Environments that tell what happened to them, for tests of real time."""

from __future__ import annotations

import threading

import numpy as np

from envkit import (
    ArraySpec,
    BoundedArraySpec,
    PyEnvironment,
    nest,
    restart,
    termination,
    transition,
)


class Diary(PyEnvironment):
    """Observes episode, step and the action that led there; rewards are 1.

    Attributes:
        acted: All actions, in their order.
    """

    def __init__(self, length=10**6, discount=1.0, raises_in=()):
        super().__init__()
        self.length, self.discount, self.raises_in = length, discount, raises_in
        self.episode, self.moment, self.acted = 0, 0, []
        self.is_closed = False
        self.made_in = threading.current_thread().name

    def observation_spec(self):
        return ArraySpec((3,), np.int64)

    def action_spec(self):
        return BoundedArraySpec((), np.int64, 0, 99)

    def get_info(self):
        return {"step": self.moment}

    def _observe(self, action=0):
        return np.array([self.episode, self.moment, int(action)])

    def _reset(self):
        self.episode, self.moment = self.episode + 1, 0
        return restart(self._observe())

    def _step(self, action):
        self.moment += 1
        self.acted.append(int(action))
        if self.moment in self.raises_in:
            raise ValueError(f"step {self.moment}")
        if self.moment < self.length:
            return transition(self._observe(action), 1.0, self.discount)
        return termination(self._observe(action), 1.0)

    def seed(self, seed):
        self.seeded = seed

    def render(self, mode="rgb_array"):
        return np.full((1, 1, 3), self.moment, np.uint8)

    def close(self):
        self.is_closed = True

    def _get_state(self):
        return self.episode, self.moment

    def _set_state(self, state):
        self.episode, self.moment = state


class OwnTime(Diary):
    """Keeps its own time: a step returns when somebody lets it."""

    realtime = True

    def __init__(self, length=10**6):
        super().__init__(length)
        self.tick = threading.Semaphore(0)

    def _step(self, action):
        self.tick.acquire()
        return super()._step(action)

    def close(self):
        self.tick.release()
        super().close()


class Paying(Diary):
    """Pays 3 in each step, in whatever form, and discounts what comes by 0.5."""

    def __init__(self, reward, discount):
        super().__init__()
        self._specs = reward, discount

    def reward_spec(self):
        return self._specs[0]

    def discount_spec(self):
        return self._specs[1]

    def _paid(self, time_step):
        pay = 0 if time_step.is_first() else 3
        gamma = 1 if time_step.is_first() else 0.5

        def filled(spec, value):
            return nest.map_structure(
                lambda leaf: np.full(leaf.shape, value, leaf.dtype), spec
            )

        return time_step._replace(
            reward=filled(self._specs[0], pay), discount=filled(self._specs[1], gamma)
        )

    def _reset(self):
        return self._paid(super()._reset())

    def _step(self, action):
        return self._paid(super()._step(action))
