"""`Doorbell`: how one process wakes another."""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence

from envkit.parallel.system.cpus import available_cpus
from envkit.parallel.system.shared_memory import KEEPS_ORDER

__all__ = ["MESSAGE", "ROWS", "Doorbell", "is_readable", "linger", "may_linger"]

# The meanings of a ring. Rings add up, so the one number of an eventfd holds both
# counts.
ROWS = 1
MESSAGE = 1 << 32

_BYTES = {ROWS: b"r", MESSAGE: b"m"}

# A few times as long as waking a sleeping CPU takes.
_LINGER_NS = 100_000
# On a busy machine, a process that yields may get the CPU back only milliseconds later,
# because Linux schedules in whole slices. A process to which this happens stops
# lingering for a while.
_BUSY_NS, _PAUSE_NS = 1_000_000, 500_000_000
_paused_until = 0


def may_linger(processes: int) -> bool:
    """Returns True if this many processes may linger before they go to sleep.

    Each of them needs a CPU, because otherwise they would keep each other from working.
    And the processor must show its stores in order, because a lingering process reads
    them without a system call.
    """
    return KEEPS_ORDER and hasattr(os, "sched_yield") and processes <= available_cpus()


def linger(has_come: Callable[[], bool]) -> bool:
    """Spins for a moment until `has_come` returns True; returns whether it did.

    Falling asleep and being woken takes longer than most steps. Other processes can
    still get the CPU meanwhile.

    Args:
        has_come: The condition; it must be fast.

    Returns:
        Whether it has come.

    Example:
        >>> linger(lambda: True), linger(lambda: False)
        (True, False)
    """
    # Hot: called once per batch step by parent and workers.
    global _paused_until
    clock, let_others = time.perf_counter_ns, os.sched_yield
    now = clock()
    if now < _paused_until:
        return has_come()
    end = now + _LINGER_NS
    while not (come := has_come()) and now <= end:
        let_others()
        now = clock()
    if now > end + _BUSY_NS:
        _paused_until = now + _PAUSE_NS
    return come


def is_readable(fd: int, timeout: float | None) -> bool:
    """Waits for at most `timeout` seconds until a descriptor is readable."""
    poller = select.poll()  # Not select(), which cannot handle descriptors above 1023.
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(None if timeout is None else timeout * 1000))


class Doorbell:
    """Wakes another process: one side rings, the other waits.

    Rings add up until they are read: a bell rung three times wakes its owner once.
    On Linux it is an eventfd, elsewhere a pair of sockets.

    The system call that rings is also the memory barrier: the woken side sees
    everything written before it.

    Example:
        >>> bell = Doorbell.create()
        >>> bell.ring(), bell.ring(MESSAGE)
        (None, None)
        >>> bell.wait() == ROWS + MESSAGE
        True
        >>> bell.close()
    """

    __slots__ = ("_is_eventfd", "_ring_fd", "_wait_fd")

    def __init__(self, ring_fd: int, wait_fd: int) -> None:
        """Takes over the two ends, which are the same descriptor for an eventfd."""
        self._ring_fd = ring_fd
        self._wait_fd = wait_fd
        self._is_eventfd = ring_fd == wait_fd

    @classmethod
    def create(cls, *, blocking: bool = False) -> Doorbell:
        """Makes a bell.

        Args:
            blocking: Whether its owner only ever waits for it. Then `wait` is one
                system call, and `drain` must not be called.
        """
        if sys.platform == "linux":
            flags = os.EFD_CLOEXEC | (0 if blocking else os.EFD_NONBLOCK)
            fd = os.eventfd(0, flags)
            return cls(fd, fd)
        ring, wait = socket.socketpair()
        ring.setblocking(False)
        wait.setblocking(blocking)
        return cls(ring.detach(), wait.detach())

    @classmethod
    def of(cls, fds: Sequence[int]) -> Doorbell:
        """Makes a bell from descriptors that came from another process."""
        return cls(fds[0], fds[-1])

    @property
    def fds(self) -> tuple[int, ...]:
        """The descriptors to send to another process."""
        return (self._ring_fd,) if self._is_eventfd else (self._ring_fd, self._wait_fd)

    def fileno(self) -> int:
        """Returns the descriptor that becomes readable when the bell is rung."""
        return self._wait_fd

    def ring(self, meaning: int = ROWS) -> None:
        """Wakes the other side.

        Args:
            meaning: `ROWS` or `MESSAGE`, which are counted separately.
        """
        # Hot: called once per worker and batch step.
        while True:
            try:
                if self._is_eventfd:
                    os.eventfd_write(self._ring_fd, meaning)
                else:
                    os.write(self._ring_fd, _BYTES[meaning])
            except InterruptedError:
                continue  # Python retries other calls, but not an eventfd's.
            except BlockingIOError:
                # The bell is full of unread rings, so the other side wakes up without
                # this one. It finds messages even without a ring.
                pass
            return

    def drain(self) -> int:
        """Returns the number of rings so far, 0 if none, and resets it."""
        # Hot: called once per wake-up.
        try:
            if self._is_eventfd:
                return os.eventfd_read(self._wait_fd)
            rings = os.read(self._wait_fd, 1 << 16)
        except (BlockingIOError, InterruptedError):
            return 0
        return rings.count(b"r") * ROWS + rings.count(b"m") * MESSAGE

    def wait(self) -> int:
        """Waits for a ring, without a limit, and returns the number of rings."""
        # Hot: called once per batch step by every worker.
        while not (rings := self.drain()):
            is_readable(self._wait_fd, None)
        return rings

    def close(self) -> None:
        """Closes the descriptors."""
        for fd in {self._ring_fd, self._wait_fd}:
            if fd >= 0:
                os.close(fd)
        self._ring_fd = self._wait_fd = -1
