"""`PoolClock`, a pool's own time, and `Waiting`, which logs long waits.

A container may be paused and a laptop closed. The workers pause then too, and no
deadline may pass because of that. The pool notices it in two ways:

- A wait ends much later than it should. That is certain proof, so the pool's clock
  leaves out this time.
- The clock is read much later than the last time, with no wait in between. This proves
  nothing: the program may have computed while a worker hung. So such seconds count on
  the clock, but `away` adds them up. A deadline that has passed is extended once, by
  the seconds away since it was set.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["FIRST_NOTICE", "POLL_INTERVAL", "PoolClock", "Waiting"]

# Seconds after which a wait is first logged, and the time between further logs.
FIRST_NOTICE = 10.0
_NEXT_NOTICE = 60.0
# The longest single wait under a deadline. A short wait that ends much too late proves
# that this process was not running.
POLL_INTERVAL = 0.125
# A delay of this many seconds means that this process was not running.
_STANDSTILL = 0.1


class PoolClock:
    """Tells the time, not counting time in which nothing ran.

    Attributes:
        away: Seconds in which the workers may not have run.

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
        """Takes a function that reads a monotonic clock."""
        self._read = read
        self._seen = read()
        self._lost = 0.0
        self.away = 0.0

    def now(self, reading: float | None = None) -> float:
        """Returns the time now, or at an earlier reading of the real clock."""
        # Hot in asynchronous use: called for every few rows.
        moment = (self._read() if reading is None else reading) - self._lost
        if moment - self._seen > _STANDSTILL:
            self.away += moment - self._seen
        self._seen = moment
        return moment

    def end_wait(self, timeout: float) -> None:
        """Records the end of a wait that was limited to `timeout` seconds.

        The clock must have been read when the wait began.
        """
        moment = self._read() - self._lost
        late = moment - self._seen - timeout
        if late > _STANDSTILL:
            self._lost += late
            self.away += timeout
            moment -= late
        self._seen = moment


class Waiting:
    """Tells how long a wait has lasted, and when to log it next.

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
        """Begins the wait."""
        self.since = since
        self._next = since + FIRST_NOTICE

    def timeout(self, now: float, deadline: float | None) -> float:
        """Returns how long the next part of the wait may last."""
        until = self._next
        if deadline is not None:
            until = min(until, deadline, now + POLL_INTERVAL)
        return max(until - now, 0.0)

    def is_due(self, now: float) -> bool:
        """Returns True, once per occasion, when the wait should be logged."""
        if now < self._next:
            return False
        self._next = now + _NEXT_NOTICE
        return True
