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

# What a ring means. Rings add up, so an eventfd's one number holds both counts.
ROWS = 1
MESSAGE = 1 << 32

_BYTES = {ROWS: b"r", MESSAGE: b"m"}

# A few times as long as it takes a CPU that sleeps to be woken up.
_LINGER_NS = 100_000
# On a busy machine a process that yields may get the CPU back only milliseconds later,
# because the scheduler of Linux takes a whole slice from it. One that this happens to
# does not linger for a while.
_BUSY_NS, _PAUSE_NS = 1_000_000, 500_000_000
_paused_until = 0


def may_linger(processes: int) -> bool:
    """Returns whether so many processes may linger before they fall asleep.

    There must be a CPU for each of them, because more would keep each other from
    working. And the processor must show its stores in order, because a process that
    lingers reads them without a system call.
    """
    return KEEPS_ORDER and hasattr(os, "sched_yield") and processes <= available_cpus()


def linger(has_come: Callable[[], bool]) -> bool:
    """Looks again and again, for a moment, whether something has come; says so.

    Falling asleep and being woken takes longer than most steps. Others that want the
    CPU get it meanwhile.

    Args:
        has_come: Is called each time; must be quick.

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
    """Waits until a descriptor is readable; says whether it was, in so many seconds."""
    poller = select.poll()  # Not select(), which takes no number above 1023.
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(None if timeout is None else timeout * 1000))


class Doorbell:
    """Something one side rings and the other waits for.

    Rings add up until they are read: a bell rung three times wakes its owner once.
    On Linux it is an eventfd, elsewhere a pair of sockets.

    The system call that rings is the memory barrier between what was written before
    it and the side that wakes up.

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
        """Takes over the two ends, which are one descriptor for an eventfd."""
        self._ring_fd = ring_fd
        self._wait_fd = wait_fd
        self._is_eventfd = ring_fd == wait_fd

    @classmethod
    def create(cls, *, blocking: bool = False) -> Doorbell:
        """Makes a bell.

        Args:
            blocking: Whether its owner does nothing but wait for it. Then `wait` is
                one system call, and `drain` must not be called.
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
        """Makes a bell of the descriptors that came from another process."""
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
            meaning: `ROWS` or `MESSAGE`, which the other side counts apart.
        """
        # Hot: called once per worker and batch step.
        while True:
            try:
                if self._is_eventfd:
                    os.eventfd_write(self._ring_fd, meaning)
                else:
                    os.write(self._ring_fd, _BYTES[meaning])
            except InterruptedError:
                continue  # Python repeats other calls, but not those of an eventfd.
            except BlockingIOError:
                # The bell is full of rings that were not read, so the other side wakes
                # up without this one. A message is found without its ring, too.
                pass
            return

    def drain(self) -> int:
        """Returns the sum of all rings so far, 0 if none, and forgets them."""
        # Hot: called once per wake-up.
        try:
            if self._is_eventfd:
                return os.eventfd_read(self._wait_fd)
            rings = os.read(self._wait_fd, 1 << 16)
        except (BlockingIOError, InterruptedError):
            return 0
        return rings.count(b"r") * ROWS + rings.count(b"m") * MESSAGE

    def wait(self) -> int:
        """Waits for a ring, as long as it takes, and returns what was rung."""
        # Hot: called once per batch step by every worker.
        while not (rings := self.drain()):
            is_readable(self._wait_fd, None)
        return rings

    def close(self) -> None:
        """Gives the descriptors back."""
        for fd in {self._ring_fd, self._wait_fd}:
            if fd >= 0:
                os.close(fd)
        self._ring_fd = self._wait_fd = -1
