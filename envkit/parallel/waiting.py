"""`Waiting`: without a timeout a call may wait, but not silently."""

from __future__ import annotations

__all__ = ["FIRST_NOTICE", "Waiting"]

# Seconds after which to say what is being waited for, and then again.
FIRST_NOTICE = 10.0
_NEXT_NOTICE = 60.0


class Waiting:
    """How long something has been waited for, and when to say so next.

    Attributes:
        since: When the waiting began.

    Example:
        >>> waiting = Waiting(since=100.0)
        >>> waiting.timeout(now=103.0, deadline=None)
        7.0
        >>> waiting.is_due(now=110.0), waiting.is_due(now=111.0)
        (True, False)
    """

    def __init__(self, since: float) -> None:
        """Begins to wait."""
        self.since = since
        self._next = since + FIRST_NOTICE

    def timeout(self, now: float, deadline: float | None) -> float:
        """Returns how long to wait now."""
        until = self._next if deadline is None else min(self._next, deadline)
        return max(until - now, 0.0)

    def is_due(self, now: float) -> bool:
        """Says whether it is time to say something, once each time."""
        if now < self._next:
            return False
        self._next = now + _NEXT_NOTICE
        return True
