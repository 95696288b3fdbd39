"""`Logger`: one line every few seconds about how a loop is going."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit import nest
from envkit.realtime.report import Lag
from envkit.specs.validation import describe
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray
from envkit.wrappers.base import PyEnvironmentBaseWrapper

__all__ = ["Logger"]

_LOGGER = logging.getLogger("envkit.realtime")
_LAST = int(StepType.LAST)
_COUNTS = ("ticks_merged", "missed_ticks", "overrun_ticks", "episodes_skipped")


class Logger(PyEnvironmentBaseWrapper):
    """Logs a line about rates, rewards and lags every so many seconds.

    The line says how many steps and ticks there were a second, how many were missed or
    left out, the mean reaction time (from an observation being made to the action that
    follows from it acting), its parts, and rewards and ends of episodes. Around an
    environment that is not in real time it has what there is.

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
            every: How many seconds lie between two lines.
            log: What takes a line.
            now: The clock.
        """
        super().__init__(env)
        if not callable(log):
            raise TypeError(f"log is {describe(log)}; it is called with each line.")
        if not every > 0:
            raise ValueError(f"every is {describe(every)}; it is a number of seconds.")
        self._every = float(every)
        self._log = log
        self._now = now
        self._has_lag = callable(getattr(env, "lag", None))
        # Whether what is seen next comes of an action, and not of a reset.
        self._has_acted = False
        # By row: whether its episode had ended before.
        self._stood_at_end: Any = np.ones(self._dims, bool)
        self._start_over(now())

    @property
    def every(self) -> float:
        """How many seconds lie between two lines."""
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
        # A LAST after another one only pads.
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
