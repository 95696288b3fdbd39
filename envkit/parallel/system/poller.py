"""`Poller`: waits for any of several descriptors, of which one matters most."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable
from typing import Any

__all__ = ["Poller"]


class Poller:
    """Waits for any of several descriptors to become readable."""

    def __init__(self) -> None:
        if hasattr(select, "epoll"):
            self._poll: Any = select.epoll()
            self.poll: Callable[[float], list[tuple[int, int]]] = self._poll.poll
        else:
            self._poll = select.poll()
            self.poll = self._poll_milliseconds
        self.bell = -1
        self.is_edge_triggered = False

    def register_bell(self, fd: int) -> None:
        """Registers the descriptor that matters most.

        Where each ring is an event of its own, the bell is not read: one system
        call less for every wake-up.
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
        """Changes what is waited for on a descriptor."""
        self._poll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        """Ends the wait for a descriptor; it may be closed already."""
        with contextlib.suppress(KeyError, OSError):
            self._poll.unregister(fd)

    def close(self) -> None:
        """Gives the poller's own descriptor back."""
        if hasattr(self._poll, "close"):
            self._poll.close()
