"""`SessionCounts`: the steps and episodes of sessions, also for `envkit.progress`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import numpy as np

from envkit.sessions.session import Turn

__all__ = ["SessionCounts"]


class SessionCounts:
    """Counts the steps and episodes of sessions, from `start` to `stop`.

    Attributes:
        unit: What a total counts: episodes.
        rows: `None`: sessions come and go.
        steps: The steps so far.
        episodes: How many episodes have ended, without the lost ones.
        returns: The totals of the last 100.
        lost: How many were lost with their environments.
        restarts: How many losses there were, those in resets included.
    """

    unit = "episodes"
    rows = None

    def __init__(self, counting: list[SessionCounts]) -> None:
        """Takes the list of those that count, to which it adds itself."""
        self._counting = counting
        self.steps = self.episodes = self.lost = self.restarts = 0
        self.returns: deque[float] = deque(maxlen=100)
        self._tell: Callable[[], float] = lambda: np.inf
        self._due = np.inf

    def start(self, tell: Callable[[], float]) -> None:
        """Begins to count."""
        if self not in self._counting:
            self._counting.append(self)
            self._tell, self._due = tell, 0.0

    def stop(self) -> None:
        """Ends counting."""
        if self in self._counting:
            self._counting.remove(self)

    def add(self, turn: Turn, losses: int) -> None:
        """Counts a turn, and the losses that came with it."""
        self.steps += turn.steps > 0
        self.restarts += losses
        if turn.is_lost:
            self.lost += 1
        elif turn.end is not None:
            self.episodes += 1
            self.returns.append(float(np.sum(turn.total)))
        if time.monotonic() >= self._due:
            self._due = self._tell()
