"""`observe`: what the rows of another client's session show, without touching them."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import numpy as np

from envkit import nest
from envkit._shared.text import escaped
from envkit.distributed.link import HEAD, MESSAGE, Link
from envkit.errors import ClosedError
from envkit.parallel.slab_layout import SlabLayout
from envkit.remote.client_connection import ServerAddress, dial, peer_of
from envkit.remote.plain_values import ProtocolError, specs_from_plain
from envkit.remote.protocol import MOST_BEFORE, SHOWN, message_of
from envkit.time_step import TimeStep

__all__ = ["Observed", "observe"]


def observe(address: str, session: str = "", **how: Any) -> Observed:
    """Watches a session of a server that lets connections watch (`--observers`).

    Args:
        address: Where the server listens: `"tcp://gpu-box:7600"`.
        session: Which session: the `session` of the environment that `connect` has
            returned. Not needed where the server has only one.
        **how: `token`, `token_file`, `cafile` and `tls`, as those of `connect`.

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
    wants = {"observe": {"session": session}}
    sock, facts, _ = dial([where], wants, peer_of([where], **how))
    try:
        return Observed(sock, facts)
    except BaseException:
        sock.close()
        raise


class Observed:
    """The time steps of a session, as its client gets them.

    An observer that reads too slowly misses some; the session never waits for it.

    Attributes:
        batch_size: How many rows there are.
        facts: What the server has said of the session.
    """

    def __init__(self, sock: socket.socket, facts: dict[str, Any]) -> None:
        """Takes a connection over; `observe` makes these."""
        spec, info = specs_from_plain(facts.get("specs"))
        sizes = facts.get("batch_sizes")
        if not isinstance(sizes, list) or not sizes:
            raise ProtocolError("The server does not say how many rows there are.")
        self.facts = facts
        self.batch_size = sum(1 if size is None else int(size) for size in sizes)
        layout = SlabLayout(spec, ((0, self.batch_size),), info)
        self._structure: nest.Structure = layout.time_step
        sock.setblocking(False)
        self._link = Link(sock)
        self._reason = ""
        self._head = bytearray(HEAD.size)
        self._body: list[Any] | None = None
        self._kind = 0
        self._link.want(self._head)

    def recv(self, timeout: float | None = None) -> TimeStep | None:
        """Returns the next time step of all rows; `None` if none comes in time.

        Raises:
            ClosedError: The session is over; the message has the server's reason.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        poller = select.poll()
        while True:
            if self._reason:
                raise ClosedError(
                    f"The session that was observed is over: {self._reason}"
                )
            try:
                while self._link.fill():
                    time_step = self._take_part()
                    if time_step is not None:
                        return time_step
                    if self._reason:
                        break
            except EOFError as error:
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

    def _take_part(self) -> TimeStep | None:
        """Handles the part of a frame that has come."""
        if self._body is None:
            self._kind, _, _, rows, length = HEAD.unpack(self._head)
            if self._kind == SHOWN and rows == self.batch_size:
                self._body = [
                    np.empty((rows, *spec.shape), spec.dtype)
                    for spec in self._structure.leaves
                ]
                if sum(leaf.nbytes for leaf in self._body) != length:
                    raise EOFError("the server has sent rows of another size")
                self._link.want(
                    *(leaf.reshape(-1).view(np.uint8) for leaf in self._body)
                )
            elif self._kind == MESSAGE and length <= MOST_BEFORE:
                self._body = [bytearray(length)]
                self._link.want(*self._body)
            else:
                raise EOFError("the server has sent an unknown frame")
            return None
        body, self._body = self._body, None
        self._link.want(self._head)
        if self._kind == SHOWN:
            return self._structure.unflatten(body)  # type: ignore[no-any-return]
        reason = message_of(body[0]).get("end", "the server has left")
        self._reason = escaped(str(reason))
        return None

    def close(self) -> None:
        """Ends the connection; calling it again does nothing."""
        self._reason = self._reason or "it was closed here"
        self._link.shut()
        self._link.close()

    def __enter__(self) -> Observed:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
