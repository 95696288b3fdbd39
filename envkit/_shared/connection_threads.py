"""`ConnectionThreads`: accepts connections, and serves each in its own thread.

```
listener ── a thread ── accepts ──▶ a thread for each connection ── TLS ──▶ handler
```

`Admission` decides what a connection must prove, and logs the reason if it fails.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from typing import Protocol

from envkit._shared.admission import Admission, Stranger, WrongSecretError
from envkit._shared.server_secret import Holder

__all__ = [
    "Connection",
    "ConnectionThreads",
    "Handler",
    "await_end",
    "reason_of",
    "tls_mismatch",
]

_POLL_INTERVAL = 0.25
# Seconds for a client to read a refusal, and bytes to read from it meanwhile.
_TO_READ, _MOST_READ = 1.0, 1 << 16
# The first byte of a TLS handshake.
_TLS_HANDSHAKE = b"\x16"


def tls_mismatch(first: bytes, is_tls: bool) -> str:
    """Returns why a connection with this first byte is refused; "" if it is not.

    Example:
        >>> tls_mismatch(bytes([22, 3, 1]), is_tls=False)
        'The client uses TLS, and this server has no certificate.'
        >>> tls_mismatch(b"GET / HTTP/1.1", is_tls=False)
        ''
    """
    if not first or first.startswith(_TLS_HANDSHAKE) is is_tls:
        return ""
    if is_tls:
        return (
            "This server uses TLS, and the client does not: the address begins with "
            "tls:// or https://."
        )
    return "The client uses TLS, and this server has no certificate."


class Connection:
    """A client's connection, in its thread.

    Attributes:
        sock: The socket, encrypted if the server uses TLS.
        stranger: The stranger that it was before it proved itself.
        client: The client's name in the log.
    """

    def __init__(
        self, sock: socket.socket, stranger: Stranger, admission: Admission
    ) -> None:
        """Takes a newly accepted socket."""
        self.sock, self.stranger = sock, stranger
        self.client = stranger.place
        self._admission = admission
        self._is_ours = True

    def admit(self, holder: Holder) -> None:
        """Turns the stranger into a client that has shown a holder's secret.

        Raises:
            ConnectionError: The server has dropped the connection in the meantime.
        """
        self.client = holder.at(self.stranger.place)
        if not self._admission.leave(self.stranger.place):
            raise ConnectionError("The server has dropped the connection.")

    def release(self) -> socket.socket:
        """Returns the socket; the new owner closes it."""
        self._is_ours = False
        return self.sock

    def read(self, count: int) -> bytes:
        """Reads exactly `count` bytes.

        Raises:
            OSError: The connection is lost, or the client takes too long.
        """
        data = b""
        while len(data) < count:
            part = self.sock.recv(count - len(data))
            if not part:
                raise ConnectionError("The other end has closed the connection.")
            data += part
        return data

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Encrypts the connection.

        Raises:
            OSError: The handshake failed.
        """
        # Whoever cuts the connection needs the socket before the handshake.
        self.sock = context.wrap_socket(
            self.sock, server_side=True, do_handshake_on_connect=False
        )
        self.sock.do_handshake()

    def send_last(self, data: bytes) -> None:
        """Sends the last bytes, and lets the client read them."""
        with contextlib.suppress(OSError, ValueError):
            self.sock.settimeout(_TO_READ)
            self.sock.sendall(data)
            # Closing a socket with unread bytes would make the system drop the answer
            # on its way.
            self.sock.shutdown(socket.SHUT_WR)
            until = time.monotonic() + _TO_READ
            while time.monotonic() < until and self.sock.recv(_MOST_READ):
                pass

    def cut(self, _: str = "") -> None:
        """Ends the connection; may be called from another thread."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the socket unless it was released."""
        if self._is_ours:
            self.sock.close()


class Handler(Protocol):
    """A server's protocol."""

    def serve(self, connection: Connection) -> None:
        """Serves a connection until it ends.

        An `OSError` or `ValueError` that it raises is the reason for refusing the
        client.
        """

    def refusal(self, error: Exception) -> bytes:
        """Returns the bytes to send to a client that is refused with an error."""


class ConnectionThreads:
    """Accepts connections, and serves each in its own thread."""

    def __init__(
        self,
        listener: socket.socket,
        admission: Admission,
        handler: Handler,
        *,
        name: str,
        tls: ssl.SSLContext | None = None,
        may_be_silent: bool = False,
    ) -> None:
        """Starts accepting.

        Args:
            listener: The listening socket, which is closed at the end.
            admission: Decides which clients are admitted.
            handler: Serves a connection.
            name: The name of the threads.
            tls: Encrypts connections.
            may_be_silent: Whether connections that send nothing are not logged, such as
                those that browsers open in advance.
        """
        self._listener, self._admission, self._handler = listener, admission, handler
        self._tls, self._name, self._may_be_silent = tls, name, may_be_silent
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._is_closing = False
        self._failure: str | None = None
        listener.setblocking(False)
        # A byte wakes the thread that accepts. (The listener may be another process's,
        # too, so it is not shut down.)
        self._wakes, self._is_woken = socket.socketpair()
        self._accepting = threading.Thread(
            target=self._run, name=f"{name}-accept", daemon=True
        )
        self._accepting.start()

    def ended(self) -> str | None:
        """Returns why it stopped without `close`; `None` while it serves."""
        return self._failure

    def close(self, reason: str, until: float) -> None:
        """Stops listening, and waits until a given time for the threads to end."""
        self._is_closing = True
        with self._wakes, self._is_woken:
            self._admission.drop_all(reason)
            with contextlib.suppress(OSError):  # it was closed before
                self._wakes.send(b"\0")
            self._accepting.join(max(0.0, until - time.monotonic()))
        # From here on, new clients are refused by the system or go to the next server.
        self._listener.close()
        while (threads := self._living()) and time.monotonic() < until:
            threads[0].join(max(0.0, until - time.monotonic()))

    def _living(self) -> list[threading.Thread]:
        with self._lock:
            self._threads = {each for each in self._threads if each.is_alive()}
            return list(self._threads)

    def _run(self) -> None:
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        poller.register(self._is_woken, select.POLLIN)
        try:
            while not self._is_closing:
                ready = dict(poller.poll(1000 * _POLL_INTERVAL))
                if self._listener.fileno() in ready:
                    self._accept()
                self._admission.drop_late(time.monotonic())
                self._living()
        except Exception as error:
            self._failure = f"{type(error).__name__}: {error}"
            raise

    def _accept(self) -> None:
        try:
            sock, address = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # no descriptor is left: open connections may still end
            self._admission.make_room()
            time.sleep(_POLL_INTERVAL)
            return
        connection: Connection
        stranger = self._admission.meet(address, lambda reason: connection.cut(reason))
        connection = Connection(sock, stranger, self._admission)
        thread = threading.Thread(
            target=self._serve, args=(connection,), name=self._name, daemon=True
        )
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def _serve(self, connection: Connection) -> None:
        stranger = connection.stranger
        try:
            connection.sock.settimeout(self._admission.patience)
            self._begin(connection)
            self._handler.serve(connection)
        except WrongSecretError as error:
            with self._admission.refusing(stranger.place, error) as seconds:
                await_end(connection.sock, seconds)
            connection.send_last(self._handler.refusal(error))
        except (OSError, ValueError) as error:
            self._refuse(connection, reason_of(error))
            connection.send_last(self._handler.refusal(error))
        finally:
            self._admission.leave(stranger.place)
            connection.close()

    def _refuse(self, connection: Connection, reason: str) -> None:
        stranger = connection.stranger
        if not stranger.is_logged:  # a dropped stranger has its line already
            self._admission.refuse(stranger.place, reason, connection.client)

    def _begin(self, connection: Connection) -> None:
        if self._may_be_silent:
            connection.stranger.is_logged = True
        first = connection.sock.recv(1, socket.MSG_PEEK)
        if self._may_be_silent and first:
            connection.stranger.is_logged = False
        reason = tls_mismatch(first, self._tls is not None)
        if reason:
            raise ConnectionError(reason)
        if self._tls is not None:
            connection.encrypt(self._tls)


def await_end(sock: socket.socket, seconds: float) -> None:
    """Waits until the client leaves, for at most this many seconds."""
    poller = select.poll()
    poller.register(sock, getattr(select, "POLLRDHUP", 0))
    poller.poll(1000 * seconds)


def reason_of(error: BaseException) -> str:
    """Returns the reason to refuse a connection that raised an error.

    Example:
        >>> reason_of(ConnectionResetError(104, "Connection reset by peer"))
        'Connection reset by peer'
    """
    if isinstance(error, ssl.SSLError):
        return f"the TLS handshake has failed: {error.reason or error}"
    if isinstance(error, TimeoutError):
        return "it took too long to say who it is"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
