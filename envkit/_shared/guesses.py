"""`Guesses`: counts wrong secrets per host, to slow down guessing."""

from __future__ import annotations

import contextlib
import ipaddress
import threading
import time
from collections.abc import Iterator

__all__ = ["Guesses", "peer_of"]

# Seconds that the first wrong guess costs, for a token and for a password; each further
# one doubles the cost, up to the last number.
_FIRST, _FIRST_OF_PASSWORDS, _LONGEST = 0.25, 1.0, 4.0
# Longest wait for a verdict, and seconds after which wrong guesses are forgotten.
_LONGEST_WAIT, _FORGIVEN = 8.0, 300.0
_MOST_HOSTS = 1024


class Guesses:
    """Counts the wrong guesses of each host, and tells how long verdicts wait.

    A token cannot be guessed, so only a wrong one is answered late (`late`), and a
    guesser delays nobody else. A VNC password has 8 characters: a host's guesses are
    judged one after another, whichever connections they use, and a right one waits
    too (`judged_at`). Otherwise a delay would reveal as much as a refusal.

    Example:
        >>> guesses = Guesses()
        >>> [guesses.judged_at("10.0.0.1", 5.0, is_right=False) for _ in range(3)]
        [5.0, 6.0, 8.0]
        >>> with guesses.late("10.0.0.7") as first, guesses.late("10.0.0.7") as second:
        ...     first, second
        (0.25, 0.5)
    """

    def __init__(self, most_waiting: int = 32) -> None:
        """Starts without guesses.

        Args:
            most_waiting: The maximum number of late answers at once, because each holds
                a thread or a connection; further ones are refused at once.
        """
        self._most = most_waiting
        self._lock = threading.Lock()
        # By host: the number of wrong guesses, and the time of the next verdict. The
        # latest host is last.
        self._wrong: dict[str, tuple[int, float]] = {}
        self._waiting = 0

    def judged_at(self, host: str, now: float, *, is_right: bool) -> float:
        """Returns when to answer a guess made now; counts the guess if it is wrong.

        Args:
            host: The address it comes from.
            now: The current time in seconds.
            is_right: Whether the password is right.
        """
        with self._lock:
            count, free_at = self._forget(host, now)
            # The wait is limited, so that an attacker cannot lock viewers out.
            latest = now + _LONGEST_WAIT
            due = min(max(now, free_at), latest)
            if not is_right:
                pause = _pause(_FIRST_OF_PASSWORDS, count)
                count, free_at = count + 1, min(due + pause, latest)
            if count:
                self._keep(host, count, free_at)
        return due

    @contextlib.contextmanager
    def late(self, host: str) -> Iterator[float]:
        """Counts a host's wrong guess, and yields the seconds to wait."""
        now = time.monotonic()
        with self._lock:
            count, _ = self._forget(host, now)
            self._keep(host, count + 1, now)
            may_wait = self._waiting < self._most
            self._waiting += may_wait
        try:
            yield _pause(_FIRST, count) if may_wait else 0.0
        finally:
            with self._lock:
                self._waiting -= may_wait

    def _forget(self, host: str, now: float) -> tuple[int, float]:
        """Removes a host's record, and returns it unless it is too old."""
        count, free_at = self._wrong.pop(peer_of(host), (0, now))
        return (0 if now - free_at > _FORGIVEN else count), free_at

    def _keep(self, host: str, count: int, free_at: float) -> None:
        self._wrong[peer_of(host)] = count, free_at
        if len(self._wrong) > _MOST_HOSTS:
            del self._wrong[next(iter(self._wrong))]


def _pause(first: float, count: int) -> float:
    """Returns the cost of the next wrong guess after `count` of them."""
    return min(first * 2.0 ** min(count, 32), _LONGEST)


def peer_of(host: str) -> str:
    """Returns a key for all addresses that one machine can easily have.

    Example:
        >>> peer_of("127.0.0.1"), peer_of("[::1]"), peer_of("2001:db8::7")
        ('loopback', 'loopback', '2001:db8::/64')
    """
    host = host.strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # a library's own notation
        return host
    if address.is_loopback:
        return "loopback"
    if address.version == 4:
        return host
    return str(ipaddress.ip_network(f"{host}/64", strict=False))
