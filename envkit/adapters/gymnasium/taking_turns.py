"""`TakingTurns`: two environments of Gymnasium that play a row's episodes in turn."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from envkit.adapters.gymnasium.wrapper import set_attribute
from envkit.adapters.reset_arguments import known_to_reset
from envkit.adapters.state import layers_of
from envkit.batches import copied_arrays
from envkit.seeding import seed_of_standby
from envkit.wrappers.standby import ResetAhead, close_both

__all__ = ["TakingTurns"]


class TakingTurns:
    """Resets one of two environments while the other one plays.

    Attributes:
        env: The one that plays; at first the one that is going to.
        times: How many resets were over before, and for how many nanoseconds of all
            resets the caller has not waited, and has.
    """

    def __init__(self, make_env: Callable[[], Any]) -> None:
        """Makes both."""
        self.env = make_env()
        self._pair = [self.env]
        try:
            self._pair.append(make_env())
            if self._pair[0] is self._pair[1]:
                raise ValueError(
                    f"It returned the same {type(self.env).__name__} twice, and the "
                    "one that stands by has to be another. Make a new one each time."
                )
        except BaseException:
            with contextlib.suppress(Exception):
                self.close()
            raise
        self._known: Mapping[str, None] = known_to_reset(layers_of(self.env))
        self._next = 0
        self._ahead: ResetAhead | None = None
        self.times = np.zeros(3, np.int64)

    @property
    def both(self) -> list[Any]:
        """Both, in the order in which they were made."""
        return list(self._pair)

    def reset(self, told: Mapping[str, Any]) -> Any:
        """Lets the next one play; returns what its reset returns, or has returned.

        Args:
            told: A seed or options for this one reset.
        """
        env, ahead = self._pair[self._next], self._ahead
        if ahead is None or told:
            self._settle()
            self._ahead = None  # It has begun ahead without these.
            began = time.perf_counter_ns()
            result = env.reset(**{**self._known, **told})
            self.times += 0, 0, time.perf_counter_ns() - began
        else:
            self.times += ahead.awaited()
            self._ahead = None  # Not before: Ctrl-C may have ended the wait.
            result = ahead.result()
        self.env, self._next = env, 1 - self._next
        self._begin_ahead(told.get("seed"))
        return result

    def _begin_ahead(self, seed: int | None) -> None:
        env, known = self._pair[self._next], dict(self._known)
        if seed is not None:
            known["seed"] = seed_of_standby(seed)
        self._ahead = ResetAhead(env, lambda: copied_arrays(env.reset(**known)))

    def _settle(self) -> None:
        if self._ahead is not None:
            self._ahead.wait()

    def set_attr(self, name: str, value: Any) -> None:
        """Sets an attribute of both."""
        self._settle()
        for env in self._pair:
            set_attribute(env, name, value)

    def close(self) -> None:
        """Closes both; waits for a reset that is under way."""
        pair, self._pair = self._pair, []
        ahead, self._ahead = self._ahead, None
        close_both(pair, ahead)
