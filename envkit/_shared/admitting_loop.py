"""`AdmittingLoop`: puts asyncio servers of other libraries behind an `Admission`.

```
listener ── accepted ── first byte ── TLS ──▶ the library's protocol
```

Such a server only hears of a connection after its TLS handshake, and never of a failed
one. Here every connection is counted, has a deadline, and is refused with a reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from envkit._shared.admission import Admission, Stranger
from envkit._shared.connection_threads import reason_of, tls_mismatch

__all__ = ["AdmittingLoop"]

# Seconds without accepting connections when the process has no descriptor left.
_DEAF = 0.25
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class AdmittingLoop(asyncio.SelectorEventLoop):
    """An event loop whose servers accept connections through an `Admission`."""

    def __init__(self, admission: Admission) -> None:
        """Starts without servers."""
        super().__init__()
        self._admission = admission

    async def create_server(  # type: ignore[override]  # only with a socket
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: None = None,
        port: None = None,
        *,
        sock: socket.socket,
        ssl: ssl.SSLContext | None = None,
        **_: Any,
    ) -> asyncio.AbstractServer:
        """Serves on a listening socket."""
        return _LoopServer(self, self._admission, protocol_factory, sock, ssl)

    def close(self) -> None:
        """Cancels remaining tasks, waits for connections to close, and closes."""
        if not self.is_closed():
            tasks = asyncio.all_tasks(self)
            for task in tasks:
                task.cancel()
            if tasks:
                self.run_until_complete(asyncio.wait(tasks))
            self.run_until_complete(asyncio.sleep(0))
        super().close()


class _LoopServer(asyncio.AbstractServer):
    """Accepts connections for an asyncio protocol."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        admission: Admission,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        sock: socket.socket,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._loop, self._admission = loop, admission
        self._make_protocol, self._tls = make_protocol, tls
        self.sockets = (sock,)
        self._sock = sock
        self._entering: set[asyncio.Task[None]] = set()
        self._is_serving = True
        sock.setblocking(False)
        self._listen()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        return self._is_serving

    async def start_serving(self) -> None:
        """Does nothing: the server has been serving since it was made."""

    async def serve_forever(self) -> None:
        await self._loop.create_future()

    def close(self) -> None:
        if self._is_serving:
            self._is_serving = False
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
            for task in self._entering:
                task.cancel()

    async def wait_closed(self) -> None:
        if self._entering:
            await asyncio.wait(self._entering)

    def _listen(self) -> None:
        if self._is_serving:
            self._loop.add_reader(self._sock.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            sock, address = self._sock.accept()
        except OSError as error:
            if error.errno in _FULL:  # the listener remains ready
                self._admission.make_room()
                self._loop.remove_reader(self._sock.fileno())
                self._loop.call_later(_DEAF, self._listen)
            return
        sock.setblocking(False)

        def cut(_: str) -> None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

        stranger = self._admission.meet(address, cut)
        self._loop.call_at(
            self._loop.time() + self._admission.patience, self._drop_late
        )
        task = self._loop.create_task(self._enter(sock, stranger))
        self._entering.add(task)
        task.add_done_callback(self._entering.discard)

    def _drop_late(self) -> None:
        self._admission.drop_late(time.monotonic())

    async def _enter(self, sock: socket.socket, stranger: Stranger) -> None:
        """Hands a connection to its protocol after a valid beginning."""
        try:
            reason = tls_mismatch(await self._first_byte(sock), self._tls is not None)
            if reason:
                raise ConnectionError(reason)
            await self._loop.connect_accepted_socket(
                lambda: self._protocol_of(stranger), sock, ssl=self._tls
            )
        except (OSError, asyncio.CancelledError) as error:
            if self._admission.leave(stranger.place):
                self._admission.refuse(stranger.place, reason_of(error))
            sock.close()

    def _protocol_of(self, stranger: Stranger) -> asyncio.BaseProtocol:
        """Makes a connection's protocol, and hooks into its end."""
        protocol = self._make_protocol()
        end = protocol.connection_lost

        def connection_lost(error: Exception | None) -> None:
            end(error)  # it may know the reason better
            self._admission.lose(stranger)

        # Both libraries' protocols are plain objects.
        protocol.connection_lost = connection_lost  # type: ignore[assignment, method-assign]
        return protocol

    async def _first_byte(self, sock: socket.socket) -> bytes:
        """Returns the first byte without consuming it; empty if the client has left."""
        ready = asyncio.Event()
        self._loop.add_reader(sock.fileno(), ready.set)
        try:
            await ready.wait()
        finally:
            self._loop.remove_reader(sock.fileno())
        return sock.recv(1, socket.MSG_PEEK)
