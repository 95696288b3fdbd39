"""Observers: connections that watch the rows of another client's session.

`observe` returns an `Observed`, the client's end. `SessionObserver` is the session's
end; the session never waits for it.
"""

from __future__ import annotations

import math
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit._shared.closing import Closable
from envkit._shared.text import escaped
from envkit.distributed.link import HEAD, Link
from envkit.errors import ClosedError
from envkit.parallel.slab_layout import SlabLayout
from envkit.remote.client_connection import ServerAddress, dial, peer_of
from envkit.remote.plain_values import ProtocolError, specs_from_plain
from envkit.remote.protocol import (
    SHOWN,
    EndMessage,
    ObserverConversation,
    Side,
    frame_of,
)
from envkit.time_step import TimeStep
from envkit.types import Array

__all__ = ["Observed", "SessionObserver", "observe"]

# Seconds for a dismissed observer to read the reason.
_FAREWELL = 0.25


# The client's end.


def observe(address: str, session: str = "", **how: Any) -> Observed:
    """Watches a session of a server that allows observers (`--observers`).

    Args:
        address: The server's address: `"tcp://gpu-box:7600"`.
        session: The session's name, which is the `session` attribute of the environment
            that `connect` returned. May be omitted if the server has only one session.
        **how: `token`, `token_file`, `cafile` and `tls`, as for `connect`.

    Example:
        >>> from envkit import connect
        >>> from envkit.remote.server import serve
        >>> from envkit.remote.offers import Menu, Offer, ServeOptions
        >>> menu, options = Menu([Offer("Catch")]), ServeOptions(port=0, observers=1)
        >>> server = serve(menu, options)
        >>> with connect(server.address, num_envs=2) as env:
        ...     with observe(server.address) as observed:
        ...         _ = env.reset()
        ...         observed.recv().step_type.tolist()
        [0, 0]
        >>> server.close("the example is over")
    """
    where = ServerAddress.parse(address)
    request = {"observe": {"session": session}}
    sock, facts, _ = dial([where], request, peer_of([where], **how))
    try:
        return Observed(sock, facts)
    except BaseException:
        sock.close()
        raise


class Observed(Closable):
    """The time steps of a session, as its client receives them.

    An observer that reads too slowly misses some; the session never waits for it.

    Attributes:
        batch_size: The number of rows.
        facts: The server's description of the session.
    """

    def __init__(self, sock: socket.socket, facts: dict[str, Any]) -> None:
        """Takes over a connection; use `observe` instead."""
        spec, info = specs_from_plain(facts.get("specs"))
        sizes = facts.get("batch_sizes")
        if not isinstance(sizes, list) or not sizes:
            raise ProtocolError("The server did not report the number of rows.")
        self.facts = facts
        self.batch_size = sum(1 if size is None else int(size) for size in sizes)
        layout = SlabLayout(spec, ((0, self.batch_size),), info)
        self._structure: nest.Structure = layout.time_step
        sock.setblocking(False)
        self._link = Link(sock)
        self._conversation = ObserverConversation(Side.CLIENT)
        self._reason = ""
        self._head = bytearray(HEAD.size)
        # What the current frame is read into: the leaves of its rows, or its message.
        self._leaves: list[Array] = []
        self._message: bytearray | None = None
        self._link.want(self._head)

    def recv(self, timeout: float | None = None) -> TimeStep | None:
        """Returns the next time step of all rows; `None` if the timeout passes.

        Raises:
            ClosedError: The session is over; the message gives the server's reason.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        poller = select.poll()
        while True:
            if self._reason:
                raise ClosedError(f"The observed session is over: {self._reason}")
            try:
                while self._link.fill():
                    time_step = self._handle_part()
                    if time_step is not None:
                        return time_step
                    if self._reason:
                        break
            except (EOFError, ProtocolError) as error:
                self._reason = self._reason or str(error)
            if self._reason:
                continue
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            poller.register(self._link.fileno(), select.POLLIN)
            poller.poll(None if left is None else 1000 * left)

    def __iter__(self) -> Iterator[TimeStep]:
        """Yields time steps until the session is over."""
        while True:
            try:
                time_step = self.recv()
            except ClosedError:
                return
            assert time_step is not None  # there is no timeout
            yield time_step

    def _handle_part(self) -> TimeStep | None:
        """Handles a part of a frame that has arrived."""
        if self._leaves:
            leaves, self._leaves = self._leaves, []
            self._link.want(self._head)
            return self._structure.unflatten(leaves)  # type: ignore[no-any-return]
        if self._message is None:
            self._handle_head()
            return None
        message = self._conversation.receive(self._message)
        assert isinstance(message, EndMessage)  # the only one
        self._reason = escaped(message.reason)
        return None

    def _handle_head(self) -> None:
        kind, _, _, rows, length = HEAD.unpack(self._head)
        self._conversation.check_head(kind, length)
        if kind != SHOWN:
            self._message = bytearray(length)
            self._link.want(self._message)
            return
        specs = self._structure.leaves
        row = sum(math.prod(spec.shape) * spec.dtype.itemsize for spec in specs)
        if (rows, length) != (self.batch_size, self.batch_size * row):
            raise ProtocolError("the server sent rows of a different size")
        self._leaves = [np.empty((rows, *spec.shape), spec.dtype) for spec in specs]
        self._link.want(*(leaf.reshape(-1).view(np.uint8) for leaf in self._leaves))

    def close(self) -> None:
        """Ends the connection; calling it again does nothing."""
        self._reason = self._reason or "it was closed here"
        self._link.shut()
        self._link.close()


# The session's end.


class SessionObserver:
    """A connection that receives the time steps of a session, and asks for nothing.

    If it reads too slowly it misses some, so that the session never waits for it.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._link = Link(sock)
        self._conversation = ObserverConversation(Side.SERVER)
        self._lock = threading.Lock()
        self.is_over = False

    def greet(self, message: dict[str, Any], others: list[SessionObserver]) -> None:
        """Sends the first message, and then joins the other observers."""
        with self._lock:
            others.append(self)
            self._link.send(frame_of(message))

    def show(self, leaves: Sequence[Array]) -> None:
        """Sends the time steps of all rows, if the previous ones have been sent."""
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
        """Sends the reason if it fits in the buffer, and ends the connection."""
        with self._lock:
            if not self.is_over:
                self._link.send(self._conversation.send(EndMessage(reason)))
                self._link.push(_FAREWELL)
                self._end()

    def _end(self) -> None:
        self.is_over = True
        self._link.shut()
        self._link.close()
