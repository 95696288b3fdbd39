"""`NonblockingSocket`: a socket that never waits, and keeps unsent bytes."""

from __future__ import annotations

import socket
import threading

from envkit.desktop.errors import DesktopError

__all__ = ["NonblockingSocket", "keep_alive"]

_AT_ONCE = 1 << 18
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}


class NonblockingSocket:
    """Sends and reads without waiting, and keeps bytes that it could not send yet.

    Any thread may send.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Takes over a socket; `close` closes it."""
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            keep_alive(sock)
        self._socket = sock
        self._out = bytearray()
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """Returns the socket's descriptor."""
        return self._socket.fileno()

    @property
    def unsent(self) -> int:
        """The number of bytes not sent yet."""
        return len(self._out)

    def send(self, data: bytes) -> None:
        """Sends as many bytes as possible now, and keeps the rest for `write`."""
        with self._sending:
            self._out += data
            self._write()

    def write(self) -> None:
        """Sends as many of the kept bytes as possible now."""
        with self._sending:
            self._write()

    def _write(self) -> None:
        while self._out:
            try:
                sent = self._socket.send(memoryview(self._out)[:_AT_ONCE])
            except BlockingIOError:
                return
            except OSError as error:
                raise DesktopError(f"The connection was lost: {error}.") from error
            del self._out[:sent]

    def read(self) -> bytes:
        """Returns the bytes received so far, perhaps none.

        Raises:
            DesktopError: The connection is lost.
        """
        try:
            data = self._socket.recv(_AT_ONCE)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise DesktopError(f"The connection was lost: {error}.") from error
        if not data:
            raise DesktopError("The connection was closed by the other end.")
        return data

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()


def keep_alive(sock: socket.socket) -> None:
    """Makes a socket send at once, and notice a lost machine within half a minute."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, True)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
