"""`VirtualHost`: time that is only counted, and passes as fast as the machine can."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from envkit.realtime.choices import as_seconds
from envkit.realtime.hosts import LocalHost, MakeLoop, Result
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray

__all__ = ["VirtualHost"]

# Moments that differ by so many seconds are the same one.
_ROUNDING = 1e-9


class VirtualHost(LocalHost):
    """Carries a loop at the speed of the machine, with times that are only counted.

    Ticks take no time themselves, so equal think times give equal ticks.
    """

    def __init__(
        self,
        make_loop: MakeLoop,
        wait: str | float,
        think_time: float | str | Callable[[], float] = 0.0,
        watch: Callable[[], float] = time.monotonic,
    ) -> None:
        """Builds the environment.

        Args:
            make_loop: Returns the environment and its loop.
            wait: For what a step waits.
            think_time: How long the agent thinks before each action, what says so, or
                "measured".
            watch: The clock that measures it.
        """
        super().__init__(wait)
        self._think_time = think_time
        self._now = 0.0
        self._watch = watch
        # When the agent began to think, on that clock.
        self._shown_at = watch()
        self._take_over(*make_loop())

    def reset(self, mask: Array | None, options: Any = None) -> TimeStep:
        """Begins an episode, in all rows or in some, and shows it."""
        with self._noting_errors():
            self.loop.begin(mask, self.loop.reset(mask, options), self._now)
        self._error = None
        return self._shown(mask, self._now)

    def step(self, action: NestedArray) -> TimeStep:
        """Lets time pass as long as the agent thinks, and then as long as it waits."""
        self._raise_error()
        self._pass_until(self._now + self._thinks())
        self.loop.publish(action, self._now)
        return self._wait_and_show(None)

    def next_episode(self, mask: Array | None) -> TimeStep:
        """Waits for the episode after one whose end has been seen, and shows it."""
        self._raise_error()
        self._pass_until(self._now + self._thinks())
        return self._wait_and_show(mask)

    def _wait_and_show(self, mask: Array | None) -> TimeStep:
        wait = self._wait
        end = math.inf if isinstance(wait, str) else self._now + wait
        at_once = wait == "newest"
        while not self.loop.is_ready(mask, at_once=at_once):
            if self.loop.due > end + _ROUNDING and self.loop.is_ready(
                mask, at_once=True
            ):
                self._pass_until(end)
                break
            self._tick()
        return self._shown(mask, self._now)

    def _thinks(self) -> float:
        think_time = self._think_time
        if think_time == "measured":
            return self._watch() - self._shown_at
        return as_seconds(
            "think_time", think_time() if callable(think_time) else think_time
        )

    def _pass_until(self, moment: float) -> None:
        while self.loop.due <= moment + _ROUNDING and not self.loop.is_paused:
            self._tick()
        self._now = max(self._now, moment)

    def _tick(self) -> None:
        # What was due while everything waited at the end of an episode happens now.
        self._now = max(self._now, self.loop.due)
        with self._noting_errors():
            move = self.loop.decide(self._now)
            self.loop.note(move, self.loop.move(move), self._now)

    @contextlib.contextmanager
    def _noting_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._error = error
            raise

    def _shown(self, mask: Array | None, now: float) -> TimeStep:
        time_step = super()._shown(mask, now)
        self._shown_at = self._watch()
        return time_step

    def ask(self, question: Callable[[], Result]) -> Result:
        """Calls a function; time stands still."""
        return question()

    def _go_on_at(self) -> float | None:
        return None

    def _state(self) -> Any:
        return (*super()._state(), self._now)

    def _restore(self, state: Any) -> None:
        *rest, self._now = state
        super()._restore(rest)

    def close(self) -> None:
        """Closes the environment."""
        self.env.close()
