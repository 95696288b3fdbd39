"""`Guesses`: when the passwords of viewers are judged, so that guessing is slow."""

from __future__ import annotations

import ipaddress

__all__ = ["Guesses", "peer_of"]

# Seconds from a wrong password to the next verdict: at first, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 4.0
# Longest wait for a verdict, and seconds after which wrong passwords are forgotten.
_LONGEST_WAIT, _FORGIVEN = 8.0, 300.0
# Addresses whose wrong passwords are counted.
_MOST_ADDRESSES = 1024


class Guesses:
    """When guesses at the password are judged: one after the other for each address.

    Each wrong one makes the next one wait longer, whatever connection it comes by. A
    right one waits as well: otherwise no answer would be as good as a refusal.

    Example:
        >>> guesses = Guesses()
        >>> [guesses.judged_at("10.0.0.1", 5.0, is_right=False) for _ in range(3)]
        [5.0, 6.0, 8.0]
        >>> guesses.judged_at("10.0.0.2", 5.0, is_right=True)
        5.0
    """

    def __init__(self) -> None:
        """Begins without wrong ones."""
        # By address: how many were wrong, and when the next one is judged.
        self._wrong: dict[str, tuple[int, float]] = {}

    def judged_at(self, host: str, now: float, *, is_right: bool) -> float:
        """Returns when a guess is judged that comes now, and counts it if wrong.

        Args:
            host: The address that it comes from.
            now: The time, in seconds.
            is_right: Whether it is the password.
        """
        peer = peer_of(host)
        count, free_at = self._wrong.pop(peer, (0, now))
        if now - free_at > _FORGIVEN:
            count = 0
        # The wait has an end, so that guesses of others lock no viewer out.
        latest = now + _LONGEST_WAIT
        due = min(max(now, free_at), latest)
        if not is_right:
            pause = min(_FIRST_PAUSE * 2.0 ** min(count, 32), _LONGEST_PAUSE)
            count, free_at = count + 1, min(due + pause, latest)
        if count:
            self._wrong[peer] = count, free_at
        while len(self._wrong) > _MOST_ADDRESSES:
            del self._wrong[next(iter(self._wrong))]
        return due


def peer_of(host: str) -> str:
    """Returns what stands for all addresses that one machine may easily have.

    Example:
        >>> peer_of("127.0.0.1"), peer_of("127.3.2.1"), peer_of("2001:db8::7")
        ('loopback', 'loopback', '2001:db8::/64')
    """
    host = host.partition("%")[0]
    address = ipaddress.ip_address(host)
    if address.is_loopback:
        return "loopback"
    if address.version == 4:
        return host
    return str(ipaddress.ip_network(f"{host}/64", strict=False))
