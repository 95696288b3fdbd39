"""`Guesses`: wrong guesses at a secret are answered late, and all else at once."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

__all__ = ["Guesses"]

# Seconds until the first wrong guess is answered; each further one takes twice as long.
_FIRST, _LONGEST = 0.25, 4.0
# Seconds after which the wrong guesses of a host are forgotten.
_MEMORY = 60.0
_MOST_HOSTS = 1024


class Guesses:
    """Counts wrong guesses by host, and says how late to answer each.

    A right secret is never late, so a guesser holds up its own guesses alone. Of those
    that wait at a time there is a limit, because each of them holds a thread or a
    connection: beyond it, wrong guesses are refused at once.

    Example:
        >>> guesses = Guesses()
        >>> with guesses.late("10.0.0.7") as first, guesses.late("10.0.0.7") as second:
        ...     first, second
        (0.25, 0.5)
    """

    def __init__(self, most_waiting: int = 32) -> None:
        """Begins without guesses.

        Args:
            most_waiting: How many of them may wait for their answer at a time.
        """
        self._most = most_waiting
        self._lock = threading.Lock()
        # How many guesses of a host were wrong, and when the last one was; the host of
        # the latest is last.
        self._wrong: dict[str, tuple[int, float]] = {}
        self._waiting = 0

    @contextlib.contextmanager
    def late(self, host: str) -> Iterator[float]:
        """Counts a wrong guess of a host, and yields how many seconds to wait."""
        now = time.monotonic()
        with self._lock:
            count, since = self._wrong.pop(host, (0, now))
            count = 1 if now - since > _MEMORY else count + 1
            self._wrong[host] = count, now
            if len(self._wrong) > _MOST_HOSTS:
                del self._wrong[next(iter(self._wrong))]
            may_wait = self._waiting < self._most
            self._waiting += may_wait
        try:
            pause = min(_FIRST * 2 ** min(count - 1, 16), _LONGEST)
            yield pause if may_wait else 0.0
        finally:
            with self._lock:
                self._waiting -= may_wait
