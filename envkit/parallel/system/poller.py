"""`Poller`: waits for any of several descriptors, one of them a bell."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable
from typing import Any

__all__ = ["Poller"]


class Poller:
    """Waits for any of several descriptors to become readable.

    Attributes:
        poll: Waits at most a number of seconds; returns pairs of a descriptor and its
            events, as `select.epoll` does.
        bell: The descriptor of the bell; -1 if there is none.
        is_edge_triggered: True if the bell need not be read after a ring.

    Example:
        >>> from envkit.parallel.system.doorbell import Doorbell
        >>> bell, poller = Doorbell.create(), Poller()
        >>> poller.register_bell(bell.fileno())
        >>> bell.ring()
        >>> [fd == poller.bell for fd, _ in poller.poll(5.0)]
        [True]
        >>> poller.close(), bell.close()
        (None, None)
    """

    def __init__(self) -> None:
        """Makes a poller without descriptors."""
        if hasattr(select, "epoll"):
            self._poll: Any = select.epoll()
            self.poll: Callable[[float], list[tuple[int, int]]] = self._poll.poll
        else:
            self._poll = select.poll()
            self.poll = self._poll_milliseconds
        self.bell = -1
        self.is_edge_triggered = False

    def register_bell(self, fd: int) -> None:
        """Registers the descriptor of the bell.

        If each ring is an event of its own, the bell need not be read, which saves a
        system call per wake-up.
        """
        self.bell = fd
        self.is_edge_triggered = hasattr(select, "EPOLLET")
        edge = select.EPOLLET if self.is_edge_triggered else 0
        self._poll.register(fd, select.POLLIN | edge)

    def _poll_milliseconds(self, timeout: float) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = self._poll.poll(timeout * 1000)
        return found

    def register(self, fd: int) -> None:
        """Begins to wait for a descriptor."""
        self._poll.register(fd, select.POLLIN)

    def watch(self, fd: int, events: int) -> None:
        """Changes the events to wait for on a descriptor.

        Args:
            fd: A registered descriptor.
            events: `select.POLLIN`, with `select.POLLOUT` while there are unsent bytes.
        """
        self._poll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        """Stops waiting for a descriptor, which may be closed already."""
        with contextlib.suppress(KeyError, OSError):
            self._poll.unregister(fd)

    def close(self) -> None:
        """Closes the poller's own descriptor."""
        if hasattr(self._poll, "close"):
            self._poll.close()
