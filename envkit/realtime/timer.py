"""`Timer`: where the time of a loop goes, between environment and agent."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray
from envkit.wrappers.base import PyEnvironmentBaseWrapper

__all__ = ["Timer", "Timing"]


class Timing(NamedTuple):
    """Where the time went.

    Attributes:
        steps: How many steps were taken; a step of a batch is one.
        stepping: Seconds in the environment's `step`.
        resetting: Seconds in its `reset`.
        thinking: Seconds between these: the agent's.
    """

    steps: int = 0
    stepping: float = 0.0
    resetting: float = 0.0
    thinking: float = 0.0

    @property
    def rate(self) -> float:
        """Steps per second of all this time; 0 before there was any."""
        total = self.stepping + self.resetting + self.thinking
        return self.steps / total if total else 0.0


class Timer(PyEnvironmentBaseWrapper):
    """Measures how long the environment takes, and how long the agent thinks.

    Inside a `Throttle` it does not see how long that waits, but as time of the agent.

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
        # When the environment had answered last.
        self._answered: float | None = None

    def timing(self) -> Timing:
        """Returns where the time has gone since the beginning, or `start_over`."""
        return self._timing

    def start_over(self) -> None:
        """Begins to measure anew."""
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
