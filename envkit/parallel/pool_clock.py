"""`PoolClock`: what time it is for a pool, and `Waiting`: when to say what is awaited.

A container may be paused and a laptop closed. Then the workers do not run either, and
no deadline may pass because of that. The pool sees it in two ways:

- A wait ends much later than it was to end. That is certain, so this time does not
  pass on the pool's clock.
- The clock is read much later than before, and between there was no wait. Then the
  program may have computed as well, while a worker hung. So such seconds pass, but
  `away` counts them: a deadline that is over is extended by those since it was set,
  once.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["FIRST_NOTICE", "POLL_INTERVAL", "PoolClock", "Waiting"]

# Seconds after which to say what is being waited for, and then again.
FIRST_NOTICE = 10.0
_NEXT_NOTICE = 60.0
# Where there is a deadline, no wait is longer: one that is over much later than it was
# to be shows that this process has not been running.
POLL_INTERVAL = 0.125
# How much later than expected the clock is read only if this process was not running.
_STANDSTILL = 0.1


class PoolClock:
    """Tells the time without the time in which nothing ran.

    Attributes:
        away: In how many seconds the workers may not have run.

    Example:
        >>> from envkit.testing.clock import ManualClock
        >>> real = ManualClock()
        >>> clock = PoolClock(real.now)
        >>> real.advance(3600.0)  # A wait of a second ends an hour later.
        >>> clock.end_wait(1.0)
        >>> clock.now(), clock.away
        (1.0, 1.0)
        >>> real.advance(60.0)  # The program does something else, or is paused.
        >>> clock.now(), clock.away
        (61.0, 61.0)
    """

    def __init__(self, read: Callable[[], float]) -> None:
        """Takes what tells the real time, on a clock that never goes back."""
        self._read = read
        self._seen = read()
        self._lost = 0.0
        self.away = 0.0

    def now(self, reading: float | None = None) -> float:
        """Returns what time it is, or was when the real time was read."""
        # Hot in asynchronous use: called for every few rows.
        moment = (self._read() if reading is None else reading) - self._lost
        if moment - self._seen > _STANDSTILL:
            self.away += moment - self._seen
        self._seen = moment
        return moment

    def end_wait(self, timeout: float) -> None:
        """Notes that a wait is over, which was to be no longer than that.

        The clock must have been read when it began.
        """
        moment = self._read() - self._lost
        late = moment - self._seen - timeout
        if late > _STANDSTILL:
            self._lost += late
            self.away += timeout
            moment -= late
        self._seen = moment


class Waiting:
    """How long something has been waited for, and when to say so next.

    Attributes:
        since: When the waiting began.

    Example:
        >>> waiting = Waiting(since=100.0)
        >>> waiting.timeout(now=103.0, deadline=None)
        7.0
        >>> waiting.timeout(now=103.0, deadline=105.0)
        0.125
        >>> waiting.is_due(now=110.0), waiting.is_due(now=111.0)
        (True, False)
    """

    def __init__(self, since: float) -> None:
        """Begins to wait."""
        self.since = since
        self._next = since + FIRST_NOTICE

    def timeout(self, now: float, deadline: float | None) -> float:
        """Returns how long to wait now."""
        until = self._next
        if deadline is not None:
            until = min(until, deadline, now + POLL_INTERVAL)
        return max(until - now, 0.0)

    def is_due(self, now: float) -> bool:
        """True if it is time to say something, once each time."""
        if now < self._next:
            return False
        self._next = now + _NEXT_NOTICE
        return True
