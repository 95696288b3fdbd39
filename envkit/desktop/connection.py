"""`Connection`: a socket that is read by a script, at whatever pace bytes come.

A script is a generator that yields the number of bytes it needs next, and is sent them.
Nothing waits, and a partial message is continued where it stopped.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator

from envkit.desktop.protocol import DesktopError

__all__ = ["Connection", "Script", "skipped"]

Script = Generator[int, bytes, None]

_PART = 1 << 16
_AT_ONCE = 1 << 18
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}


class Connection:
    """A socket that runs a script of reads, and keeps what could not be sent yet.

    No call waits: `read` and `write` do what can be done now. Any thread may send.

    Attributes:
        paused: Whether what has come already is left for the next `read`; the script
            sets it where bytes that come at once could be work for hours.
    """

    def __init__(self, sock: socket.socket, script: Script) -> None:
        """Takes the socket and what reads from it."""
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, True)
            # A machine that has vanished is noticed within half a minute.
            for name, value in _KEEPALIVE.items():
                if hasattr(socket, name):
                    number = getattr(socket, name)
                    sock.setsockopt(socket.IPPROTO_TCP, number, value)
        self._socket = sock
        self._script = script
        self._needed = next(script)
        self._received = bytearray()
        self.paused = False
        self._out = bytearray()
        self._sending = threading.Lock()

    def fileno(self) -> int:
        """Returns the descriptor of the socket."""
        return self._socket.fileno()

    @property
    def unsent(self) -> int:
        """The bytes that wait for the other end."""
        return len(self._out)

    def send(self, data: bytes) -> None:
        """Sends bytes as far as it can now, and keeps the rest for `write`."""
        with self._sending:
            self._out += data
            self._write()

    def write(self) -> None:
        """Sends what was kept, as far as it can now."""
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

    def read(self) -> bool:
        """Reads what is there; returns whether there was anything.

        Where the script has paused, that is what had come before.

        Raises:
            DesktopError: The connection is lost, or the other end breaks the protocol.
        """
        if self.paused:
            self.feed(b"")
            return True
        try:
            data = self._socket.recv(_AT_ONCE)
        except BlockingIOError:
            return False
        except OSError as error:
            raise DesktopError(f"The connection was lost: {error}.") from error
        if not data:
            raise DesktopError("The connection was closed by the other end.")
        self.feed(data)
        return True

    def feed(self, data: bytes) -> None:
        """Runs the script over bytes that have come.

        Raises:
            DesktopError: They break the protocol.
        """
        self._received += data
        self.paused = False
        start = 0
        try:
            while len(self._received) - start >= self._needed:
                if self.paused:
                    return
                part = bytes(self._received[start : start + self._needed])
                start += self._needed
                try:
                    self._needed = self._script.send(part)
                except StopIteration:
                    raise DesktopError("The connection is over.") from None
            self.paused = False
        finally:
            del self._received[:start]

    def close(self) -> None:
        """Closes the socket."""
        self._script.close()
        self._socket.close()


def skipped(count: int) -> Script:
    """Reads bytes that are of no use, a part at a time."""
    while count:
        part = min(count, _PART)
        yield part
        count -= part
