"""Environments that do what a benchmark asks: compute, wait, show pictures, or count.

They import nothing but NumPy and envkit, as their workers' memory is measured.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from envkit import (
    ArraySpec,
    BoundedArraySpec,
    PyEnvironment,
    StepType,
    TimeStep,
    restart,
    termination,
    transition,
)

MID = StepType.MID
# What an environment does in a step besides answering.
Work = Callable[[], None]
OBSERVATION = np.zeros(4, np.float32)
TIME_STEP = transition(OBSERVATION, reward=0.0)


class Trivial(PyEnvironment):
    """Does nothing, so that what remains is the share of what is around it."""

    def observation_spec(self) -> ArraySpec:
        return ArraySpec((4,), np.float32)

    def action_spec(self) -> ArraySpec:
        return ArraySpec((), np.int64)

    def _reset(self) -> TimeStep:
        return restart(OBSERVATION)

    def _step(self, action: object) -> TimeStep:
        return TIME_STEP


def spin(nanoseconds: int) -> None:
    """Computes for so long, in time of its own: while others have the CPU, it rests."""
    end = time.thread_time_ns() + nanoseconds
    while time.thread_time_ns() < end:
        pass


def computing(microseconds: float) -> Work | None:
    """Returns the work of computing for so long; none for nothing."""
    return functools.partial(spin, int(1000 * microseconds)) if microseconds else None


class Straggling:
    """Computes, and now and then much longer, each environment at other times."""

    def __init__(self, microseconds: float, share: float, times: float, seed: int):
        """Computes for so long; for a share of the steps, so many times as long."""
        slow = np.random.default_rng(seed).random(4099) < share
        self._nanoseconds = np.where(slow, times, 1) * 1000 * microseconds
        self._step = 0

    def __call__(self) -> None:
        self._step += 1
        spin(int(self._nanoseconds[self._step % len(self._nanoseconds)]))


class Working(PyEnvironment):
    """Does its work in every step and always answers alike; no episode ends.

    Its answer is a time step of its own, as with every environment that does something.
    """

    def __init__(
        self,
        work: Work | None = None,
        shape: Sequence[int] = (4,),
        dtype: str = "float32",
    ) -> None:
        """Makes an environment that shows an array of this shape and dtype."""
        super().__init__()
        self._work = work
        self._observation = picture(shape, dtype)
        _, self._reward, self._discount, _ = transition(self._observation, reward=0.0)

    def observation_spec(self) -> ArraySpec:
        return ArraySpec(self._observation.shape, self._observation.dtype)

    def action_spec(self) -> BoundedArraySpec:
        return BoundedArraySpec((), np.int64, 0, 1)

    def seed(self, seed: object) -> None:
        """Takes a seed, though nothing depends on it."""

    def modules(self) -> list[str]:
        """Names what this process has imported."""
        return sorted(sys.modules)

    def _reset(self) -> TimeStep:
        return restart(self._observation)

    def _step(self, action: object) -> TimeStep:
        if self._work is not None:
            self._work()
        return TimeStep(MID, self._reward, self._discount, self._observation)


def picture(shape: Sequence[int], dtype: str) -> np.ndarray:
    """Returns an array of its own, with some content."""
    return np.random.default_rng(0).integers(0, 256, shape).astype(dtype)


# What a `Telling` environment shows, in this order.
ENV_ID, PID, EPISODE, STEP, ACTION = range(5)


class Telling(PyEnvironment):
    """Shows who it is, where it stands and what it was given.

    So that every answer can be proven right from what came before it.
    """

    def __init__(self, env_id: int) -> None:
        """Makes the environment with this number; its episodes' length is its own."""
        super().__init__()
        self._env_id = env_id
        self._episode = -1
        self._current = 0

    @staticmethod
    def length(env_id: int) -> int:
        """Returns how many steps the episodes of this environment have."""
        return 5 + 7 * env_id % 60

    @staticmethod
    def reward(shown: np.ndarray) -> np.ndarray:
        """Returns what the action earned that led to these observations."""
        return (shown[..., ENV_ID] + 3 * shown[..., STEP] + shown[..., ACTION]) % 251

    def observation_spec(self) -> ArraySpec:
        return ArraySpec((5,), np.int64)

    def action_spec(self) -> BoundedArraySpec:
        return BoundedArraySpec((), np.int64, 0, 1_000_000)

    def _show(self, action: int) -> np.ndarray:
        return np.array(
            [self._env_id, os.getpid(), self._episode, self._current, action], np.int64
        )

    def _reset(self) -> TimeStep:
        self._episode += 1
        self._current = 0
        return restart(self._show(-1))

    def _step(self, action: np.ndarray) -> TimeStep:
        self._current += 1
        shown = self._show(int(action))
        reward = float(self.reward(shown))
        if self._current == self.length(self._env_id):
            return termination(shown, reward)
        return transition(shown, reward)


class Resetting(PyEnvironment):
    """Waits in its resets, and less in its steps; episodes have one length."""

    def __init__(self, reset: float, step: float, steps: int) -> None:
        """Prepares; seconds that a reset and a step take, and steps of an episode."""
        super().__init__(handle_auto_reset=True)
        self._seconds, self._steps, self._left = (reset, step), steps, 0

    def observation_spec(self) -> ArraySpec:
        return ArraySpec((), np.int64)

    def action_spec(self) -> BoundedArraySpec:
        return BoundedArraySpec((), np.int64, 0, 1)

    def _reset(self) -> TimeStep:
        time.sleep(self._seconds[0])
        self._left = self._steps
        return restart(np.array(self._left))

    def _step(self, action: np.ndarray) -> TimeStep:
        time.sleep(self._seconds[1])
        self._left -= 1
        if self._left:
            return transition(np.array(self._left), 0.0)
        return termination(np.array(0), 1.0)
