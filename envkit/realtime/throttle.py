"""`Throttle`: an agent that acts so many times a second, and not more often."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from envkit.realtime.schedule import Schedule
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray
from envkit.wrappers.base import PyEnvironmentBaseWrapper

__all__ = ["Throttle"]


class Throttle(PyEnvironmentBaseWrapper):
    """Keeps an agent at `hz` steps a second.

    A `step` that comes too early waits before it hands the action on, so what it
    returns is as new as the environment makes it. One that comes too late is not made
    up for: the rhythm begins anew with it, and `late_steps` counts it.

    Example:
        >>> from envkit.envs import Catch
        >>> from envkit.testing import ManualClock
        >>> clock = ManualClock()
        >>> env = Throttle(Catch(), hz=10, now=clock, sleep=clock.sleep)
        >>> _ = env.reset()
        >>> _ = [env.step(1) for _ in range(5)]
        >>> round(clock.now(), 6)
        0.5
    """

    _shown = ("hz",)

    def __init__(
        self,
        env: Any,
        hz: float,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = time.sleep,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment.
            hz: The most steps per second.
            now: The clock.
            sleep: What waits, given seconds.
        """
        super().__init__(env)
        self._schedule = Schedule(hz, overrun="stretch")
        self._hz = hz
        self._now = now
        self._sleep = sleep
        self._late_steps = 0
        self._schedule.begin(now())

    @property
    def hz(self) -> float:
        """The most steps per second."""
        return self._hz

    @property
    def late_steps(self) -> int:
        """How many steps came later than they were due, by a whole one or more."""
        return self._late_steps

    def _reset(self) -> TimeStep:
        time_step = super()._reset()
        self._schedule.begin(self._now())
        return time_step

    def _step(self, action: NestedArray) -> TimeStep:
        self._pace()
        return super()._step(action)

    def _reset_rows(self, mask: Array) -> TimeStep:
        return super()._reset_rows(mask)

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        self._pace()
        return super()._step_rows(action, stepping, beginning)

    def _pace(self) -> None:
        while (early := self._schedule.due - self._now()) > 0:
            self._sleep(early)
        late, _ = self._schedule.start(self._now())
        self._late_steps += late * self._hz >= 1
