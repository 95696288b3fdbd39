"""`Earning`: an environment that pays what a script says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit import ArraySpec, BatchedPyEnvironment, nest
from envkit.py_environment import PyEnvironment
from envkit.time_step import REWARD_SPEC, StepType, TimeStep, restart

# The rewards of an episode, with the discounts that come with them.
Episode = Sequence[tuple[Any, float]]


class Earning(PyEnvironment):
    """Plays some episodes over and over; the last step of each is a `LAST`."""

    def __init__(self, *episodes: Episode, reward_spec: Any = REWARD_SPEC) -> None:
        super().__init__(handle_auto_reset=True)
        self._episodes = episodes
        self._spec = reward_spec
        self._structure = nest.Structure(reward_spec)
        self._number = -1
        self._at = 0

    def observation_spec(self) -> ArraySpec:
        return ArraySpec((2,), np.float64)

    def action_spec(self) -> ArraySpec:
        return ArraySpec((), np.int64)

    def reward_spec(self) -> Any:
        return self._spec

    def _observe(self) -> Any:
        return np.array([self._number, self._at], np.float64)

    def _reset(self) -> TimeStep:
        self._number += 1
        self._at = 0
        return restart(self._observe(), reward_spec=self._spec)

    def _step(self, action: Any) -> TimeStep:
        episode = self._episodes[self._number % len(self._episodes)]
        reward, discount = episode[self._at]
        self._at += 1
        return TimeStep(
            StepType.LAST if self._at == len(episode) else StepType.MID,
            self._structure.map(_array, self._spec, reward),
            np.array(discount, np.float32),
            self._observe(),
        )

    def _get_state(self) -> tuple[int, int]:
        return self._number, self._at

    def _set_state(self, state: tuple[int, int]) -> None:
        self._number, self._at = state


def _array(spec: ArraySpec, reward: Any) -> Any:
    return np.array(reward, spec.dtype)


def earning_batch(*rows: Sequence[Episode], **kwargs: Any) -> BatchedPyEnvironment:
    """Makes a batch whose rows have scripts of their own."""
    envs = [Earning(*episodes, **kwargs) for episodes in rows]
    return BatchedPyEnvironment(envs, multithreading=False)
