"""`Level`, an environment that takes options where it is reset."""

from __future__ import annotations

import numpy as np

from envkit import (
    ArraySpec,
    BoundedArraySpec,
    PyEnvironment,
    restart,
    termination,
    transition,
)


class Level(PyEnvironment):
    """Shows the level it was reset to, -1 for none, and a random number."""

    def __init__(self):
        super().__init__(handle_auto_reset=True)
        self._rng = np.random.default_rng()
        self._steps = self._level = 0

    def observation_spec(self):
        return ArraySpec((2,), np.int64)

    def action_spec(self):
        return BoundedArraySpec((), np.int32, 0, 1)

    def seed(self, seed):
        self._rng = np.random.default_rng(seed)

    def _reset(self, options=None):
        self._level, self._steps = (options or {}).pop("level", -1), 0
        return restart(self._observation())

    def _step(self, action):
        self._steps += 1
        make = termination if self._steps == 3 else transition
        return make(self._observation(), reward=1.0)

    def _observation(self):
        return np.array([self._level, self._rng.integers(1000)])

    def _get_state(self):
        return self._level, self._steps, self._rng

    def _set_state(self, state):
        self._level, self._steps, self._rng = state
