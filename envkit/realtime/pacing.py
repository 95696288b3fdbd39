"""Wrappers that pace and measure an agent's loop: `Throttle`, `Timer`, `Logger`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit._shared.arguments import checked_seconds
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.extend import describe
from envkit.realtime.loop import Schedule
from envkit.realtime.report import Lag
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray

__all__ = ["Logger", "Throttle", "Timer", "Timing"]

_LOGGER = logging.getLogger("envkit.realtime")
_LAST = int(StepType.LAST)
_COUNTS = ("ticks_merged", "missed_ticks", "overrun_ticks", "episodes_skipped")


class Throttle(PyEnvironmentBaseWrapper):
    """Limits an agent to `hz` steps a second.

    A `step` that comes too early waits before it passes the action on, so its time step
    is as fresh as possible. A late step is not made up for: the rhythm restarts with
    it, and `late_steps` counts it.

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
            hz: The maximum number of steps per second.
            now: The clock.
            sleep: A function that waits for a number of seconds.
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
        """The maximum number of steps per second."""
        return self._hz

    @property
    def late_steps(self) -> int:
        """The number of steps that were late by a whole step or more."""
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


class Timing(NamedTuple):
    """Holds the times of the parts of a loop.

    Attributes:
        steps: The number of steps; a step of a batch is one.
        stepping: Seconds in the environment's `step`.
        resetting: Seconds in its `reset`.
        thinking: Seconds between these calls: the agent's time.
    """

    steps: int = 0
    stepping: float = 0.0
    resetting: float = 0.0
    thinking: float = 0.0

    @property
    def rate(self) -> float:
        """Steps per second of the total time; 0 before the first."""
        total = self.stepping + self.resetting + self.thinking
        return self.steps / total if total else 0.0


class Timer(PyEnvironmentBaseWrapper):
    """Measures how long the environment takes, and how long the agent thinks.

    Inside a `Throttle`, its waiting time counts as the agent's.

    Example:
        >>> from envkit.envs import Catch
        >>> env = Timer(Catch())
        >>> _ = env.reset(), env.step(1), env.step(1)
        >>> env.timing().steps, env.timing().stepping > 0
        (2, True)
    """

    def __init__(
        self, env: Any, *, now: Callable[[], float] = time.perf_counter
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment.
            now: The clock.
        """
        super().__init__(env)
        self._now = now
        self._timing = Timing()
        # When the environment last returned.
        self._answered: float | None = None

    def timing(self) -> Timing:
        """Returns the times since the beginning, or since `start_over`."""
        return self._timing

    def start_over(self) -> None:
        """Restarts the measurement."""
        self._timing, self._answered = Timing(), None

    def _reset(self) -> TimeStep:
        return self._measured("resetting", super()._reset)

    def _step(self, action: NestedArray) -> TimeStep:
        return self._measured("stepping", super()._step, action)

    def _reset_rows(self, mask: Array) -> TimeStep:
        return self._measured("resetting", super()._reset_rows, mask)

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        return self._measured(
            "stepping", super()._step_rows, action, stepping, beginning
        )

    def _measured(
        self, what: str, call: Callable[..., TimeStep], *arguments: Any
    ) -> TimeStep:
        asked = self._now()
        time_step = call(*arguments)
        answered = self._now()
        before = self._timing
        thought = 0.0 if self._answered is None else asked - self._answered
        self._timing = before._replace(
            steps=before.steps + (what == "stepping"),
            thinking=before.thinking + thought,
            **{what: getattr(before, what) + answered - asked},
        )
        self._answered = answered
        return time_step


class Logger(PyEnvironmentBaseWrapper):
    """Logs a line about rates, rewards and lags at regular intervals.

    The line shows steps and ticks per second, missed and left-out ticks, the mean
    reaction time (from an observation to the action that follows from it) with its
    parts, rewards, and finished episodes. Around an environment that is not in real
    time, it shows only steps, rewards and episodes.

    Example:
        >>> from envkit.envs import Catch
        >>> from envkit.realtime import RealTimeEnvironment
        >>> from envkit.testing import ManualClock
        >>> clock = ManualClock()
        >>> game = Catch(seed=1)
        >>> env = RealTimeEnvironment(game, 10, host="virtual", think_time=0.25)
        >>> env = Logger(env, every=2.0, log=print, now=clock)
        >>> _ = env.reset()
        >>> for _ in range(4):
        ...     clock.advance(0.5)
        ...     _ = env.step(1)
        2 steps/s, 4.5 ticks/s (3 missed), reaction 338 ms (think 250, action 50, \
observation 37.5), reward 0.5/s, 1 episodes
    """

    _shown = ("every",)

    def __init__(
        self,
        env: Any,
        every: float = 5.0,
        *,
        log: Callable[[str], Any] = _LOGGER.info,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment.
            every: The seconds between two lines.
            log: A function that is called with each line.
            now: The clock.
        """
        super().__init__(env)
        if not callable(log):
            raise TypeError(
                f"log must be a function that takes a line, got {describe(log)}."
            )
        self._every = checked_seconds("every", every, above_zero=True)
        self._log = log
        self._now = now
        self._has_lag = callable(getattr(self._env, "lag", None))
        # Whether the next time step follows an action rather than a reset.
        self._has_acted = False
        # Per row: whether its episode had ended before.
        self._stood_at_end: Any = np.ones(self._dims, bool)
        self._start_over(now())

    @property
    def every(self) -> float:
        """The seconds between two lines."""
        return self._every

    def _start_over(self, now: float) -> None:
        self._began = now
        self._steps = 0
        self._reward = 0.0
        self._episodes = 0
        self._counts = dict.fromkeys(_COUNTS, 0.0)
        self._times: list[tuple[float, float, float]] = []

    def _act(self, action: NestedArray) -> NestedArray:
        self._steps += 1
        self._has_acted = True
        return action

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        chosen: Any = ... if rows is None else rows
        stands = np.asarray(time_step.step_type) == _LAST
        # A LAST after another one is padding.
        self._episodes += int((stands & ~self._stood_at_end)[chosen].sum())
        self._stood_at_end = stands
        self._reward += sum(
            float(np.sum(np.asarray(leaf)[chosen]))
            for leaf in nest.flatten(time_step.reward)
        )
        if self._has_lag and self._has_acted:
            self._add(self._env.lag())
        self._has_acted = False
        now = self._now()
        if now - self._began >= self._every:
            self._log(self._line(now - self._began))
            self._start_over(now)
        return time_step

    def _add(self, lag: Lag) -> None:
        for name in _COUNTS:
            self._counts[name] += float(np.mean(getattr(lag, name)))
        self._times.append(
            (
                float(np.mean(lag.think_time)),
                float(np.mean(lag.action_latency)),
                float(np.mean(lag.observation_age)),
            )
        )

    def _line(self, seconds: float) -> str:
        parts = [f"{self._steps / seconds:.3g} steps/s"]
        if self._times:
            ticks = f"{self._counts['ticks_merged'] / seconds:.3g} ticks/s"
            lost = [
                f"{self._counts[name] / seconds:.2g} {word}"
                for name, word in (
                    ("missed_ticks", "missed"),
                    ("overrun_ticks", "left out"),
                    ("episodes_skipped", "episodes unseen"),
                )
                if self._counts[name]
            ]
            parts.append(f"{ticks} ({', '.join(lost)})" if lost else ticks)
            think, action, observation = 1000 * np.mean(self._times, axis=0)
            parts.append(
                f"reaction {think + action + observation:.3g} ms (think {think:.3g}, "
                f"action {action:.3g}, observation {observation:.3g})"
            )
        parts.append(f"reward {self._reward / seconds:.3g}/s")
        parts.append(f"{self._episodes} episodes")
        return ", ".join(parts)
