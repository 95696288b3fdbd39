"""`Observer`: a connection that is shown a session, on the side of the server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.distributed.link import HEAD, Link
from envkit.remote.protocol import SHOWN, frame_of
from envkit.types import Array

__all__ = ["Observer"]

# Seconds that an observer that is sent away has for reading why.
_FAREWELL = 0.25


class Observer:
    """A connection that is shown the time steps of a session, and asks nothing.

    One that reads too slowly misses some, so that the session never waits for it.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._link = Link(sock)
        self._lock = threading.Lock()
        self.is_over = False

    def greet(self, message: dict[str, Any], others: list[Observer]) -> None:
        """Sends what comes first, and joins the others; nothing is shown between."""
        with self._lock:
            others.append(self)
            self._link.send(frame_of(message))

    def show(self, leaves: Sequence[Array]) -> None:
        """Sends the time steps of all rows, if the one before is through."""
        with self._lock:
            if self.is_over:
                return
            self._link.push()
            if self._link.fault:
                self._end()
            elif not self._link.unsent:
                body = [np.ascontiguousarray(leaf).tobytes() for leaf in leaves]
                head = HEAD.pack(SHOWN, 0, 0, len(leaves[0]), sum(map(len, body)))
                self._link.send([head, *body])

    def close(self, reason: str) -> None:
        """Tells the reason, as far as there is room, and ends the connection."""
        with self._lock:
            if not self.is_over:
                self._link.send(frame_of({"end": reason}))
                self._link.push(_FAREWELL)
                self._end()

    def _end(self) -> None:
        self.is_over = True
        self._link.shut()
        self._link.close()
