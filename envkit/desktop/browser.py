"""`BrowserServer`: a web page in which people watch and play desktops.

The page, `browser.html`, contains our own VNC viewer. After the password it speaks the
remote framebuffer protocol, so a `DesktopServer` treats browsers like other viewers:

```
browser ── GET /NAME ─────────────────────▶ the page
        ── WebSocket /NAME: the password ─▶ checked, every character
        ◀═ RFB in binary messages ════════▶ DesktopServer.adopt, through a socket pair
```

Unread data waits in the system's buffers, and the next update is sent only when the
page asks for it, so a slow browser costs no memory.

Pages of other sites get nothing: the `Origin` of a WebSocket must be ours, and so must
the `Host` unless there is a certificate, which other sites cannot have.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import html
import http
import re
import select
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from envkit._shared.admission import Admission
from envkit._shared.closing import Closable
from envkit._shared.connection_threads import Connection, ConnectionThreads, await_end
from envkit._shared.health import HEALTH_PATH, HealthAnswer
from envkit._shared.listening import ListenError, listener, place_of
from envkit._shared.server_secret import Holder
from envkit._shared.web_pages import foreign_host, foreign_origin
from envkit.desktop.nonblocking_socket import keep_alive
from envkit.desktop.server import DesktopServer
from envkit.errors import MissingDependencyError

if TYPE_CHECKING:
    from websockets.http11 import Request, Response
    from websockets.server import ServerProtocol

__all__ = ["BrowserServer"]

_PART, _LONGEST_MESSAGE, _MOST_UNSENT = 1 << 16, 1 << 12, 1 << 18
# Seconds to log in (checking a password may take eight of them), and seconds to tell
# all browsers that the server has ended.
_PATIENCE, _TO_CLOSE = 20.0, 4.0
# The default port is this far below the VNC port: 5800 and 5900, VNC's convention.
_BELOW = 100
# Close codes and message types of WebSockets.
_GOING_AWAY, _WRONG_PASSWORD = 1001, 1008
_CONTINUED, _TEXT, _BINARY = 0, 1, 2
# Seconds of silence after which a browser is pinged.
_SILENCE = 30.0
_INDEX = """<!doctype html><html lang="en"><meta charset="utf-8"><title>envkit</title>
<link rel="icon" href="data:,"><h1>envkit</h1><ul>{}</ul></html>"""


class BrowserServer(Closable):
    """Lets people watch and play desktops in browsers, beside VNC viewers.

    It needs the package websockets. Browsers count as viewers of the desktop and use
    its passwords: with the observers' password they can only watch. A password after
    `#` stays in the browser: the page removes it from the address and keeps it for its
    tab. Keys and buttons go up when the page loses the focus or is closed.

    Attributes:
        address: The host and port of the server.
        url: The page of the only desktop, or a page that lists all of them.

    Example:
        >>> from envkit.desktop import DesktopServer
        >>> with DesktopServer((64, 48)) as desktop:
        ...     with BrowserServer({"pong": desktop}) as browsers:
        ...         print(browsers.url)  # doctest: +ELLIPSIS
        http://127.0.0.1:.../
    """

    def __init__(
        self,
        desktops: Mapping[str, DesktopServer],
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        tls: ssl.SSLContext | None = None,
        hints: Mapping[str, str] | None = None,
    ) -> None:
        """Starts the server.

        Args:
            desktops: The desktops, by the name of their page.
            host: The address to listen on.
            port: The port; 0 picks a free one. `None` takes the one 100 below the first
                desktop's, or a free one if that is taken.
            tls: The TLS context that encrypts connections; `None` for plain HTTP.
            hints: The texts below the pictures, by the names of the desktops.

        Raises:
            MissingDependencyError: The package websockets is not installed.
            ValueError: There is no desktop.
        """
        if not desktops:
            raise ValueError("desktops must have at least one DesktopServer.")
        try:
            import websockets.server  # noqa: F401
        except ImportError as error:
            raise MissingDependencyError.needed_by(
                "A page for browsers", package="websockets", extra="vnc"
            ) from error
        self._desktops, self._hints = dict(desktops), dict(hints or {})
        self._host, self._is_encrypted = host, tls is not None
        self._page = files("envkit.desktop").joinpath("browser.html").read_text("utf-8")
        self._links: set[socket.socket] = set()
        self._reason = ""  # empty until it is closed
        sock = _listener(host, port, next(iter(self._desktops.values())).address[1])
        self.address: tuple[str, int] = sock.getsockname()[:2]
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://{place_of(self.address)}/"
        self._admission = Admission("vnc", patience=_PATIENCE)
        self._threads = ConnectionThreads(
            sock,
            self._admission,
            self,
            name="envkit browsers",
            tls=tls,
            may_be_silent=True,
        )

    def page(self, name: str, password: str | None = None) -> str:
        """Returns the address of a desktop's page.

        Args:
            name: The name of the desktop.
            password: The password, which goes after the `#`: browsers never send that
                part, and people who open this address need not type the password.
        """
        path = quote(name, ":") if len(self._desktops) > 1 else ""
        return self.url + path + (f"#{quote(password)}" if password else "")

    def ended(self) -> str | None:
        """Returns why the server ended without `close`; `None` while it runs."""
        return self._threads.ended()

    def close(self, reason: str = "The server has ended.") -> None:
        """Tells browsers the reason, and stops listening."""
        self._reason = reason or "The server has ended."
        for link in list(self._links):
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        self._threads.close(reason, time.monotonic() + _TO_CLOSE)

    # One connection, in its thread.

    def serve(self, connection: Connection) -> None:
        """Answers a request, or serves a viewer until it leaves."""
        with contextlib.suppress(EOFError):  # Browsers may connect and send nothing.
            self._serve(connection)

    def _serve(self, connection: Connection) -> None:
        from websockets.server import ServerProtocol

        sock, protocol = connection.sock, ServerProtocol(max_size=_LONGEST_MESSAGE)
        events = _events(sock, protocol)
        request: Request | None = next(events, None)
        if request is None:
            raise EOFError
        response = self._answer(connection, protocol, request)
        protocol.send_response(response)
        data = b"".join(protocol.data_to_send())
        if response.status_code != http.HTTPStatus.SWITCHING_PROTOCOLS:
            connection.send_last(data)
            return
        sock.sendall(data)
        desktop = self._desktops[self._name_of(request.path) or ""]
        message = next(events, None)
        if message is None or message.opcode != _TEXT:
            raise EOFError
        controls = self._judge(connection, desktop, bytes(message.data))
        if controls is None:
            _hang_up(connection, protocol, _WRONG_PASSWORD, "The password is wrong.")
        else:
            self._view(connection, protocol, events, desktop, controls)

    def _judge(
        self, connection: Connection, desktop: DesktopServer, password: bytes
    ) -> bool | None:
        """Returns whether a viewer may control; `None` if its password is wrong.

        It returns when the verdict is due, which is later after wrong passwords.
        """
        controls = _may_control(desktop, password)
        host = connection.stranger.host
        due = desktop.judged_at(host, is_right=controls is not None)
        await_end(connection.sock, max(0.0, due - time.monotonic()))
        if controls is None:
            self._admission.refuse(connection.client, "the password is wrong")
        else:
            connection.admit(Holder())
        return controls

    def _view(
        self,
        connection: Connection,
        protocol: ServerProtocol,
        events: Iterator[Any],
        desktop: DesktopServer,
        controls: bool,
    ) -> None:
        """Serves a viewer until it leaves, or its desktop drops it."""
        with contextlib.suppress(OSError):  # It may leave at any time.
            keep_alive(connection.sock)
            address = connection.sock.getpeername()
            link, theirs = socket.socketpair()
            with link:
                desktop.adopt(theirs, address, controls=controls)
                self._links.add(link)
                try:
                    if not self._reason:
                        _carry(connection.sock, protocol, events, link)
                finally:
                    self._links.discard(link)
            reason = "The server has ended the connection."
            if desktop.is_closed:
                reason = "The environment has ended."
            _hang_up(connection, protocol, _GOING_AWAY, self._reason or reason)

    def refusal(self, error: Exception) -> bytes:
        """Returns the answer to a connection that sent no request."""
        return HealthAnswer(400, f"{error}\n", str(error)).data()

    def _answer(
        self, connection: Connection, protocol: ServerProtocol, request: Request
    ) -> Response:
        """Returns the answer to a request: a page, a WebSocket, or an error."""
        headers = [(name.lower(), one) for name, one in request.headers.raw_items()]
        is_socket = "upgrade" in request.headers
        fault = "" if self._is_encrypted else foreign_host(headers, self._host)
        if fault:
            fault += ": use its address, or serve with a certificate."
        elif is_socket and (fault := foreign_origin(headers)):
            fault += ": only the page of this server may connect."
        if fault:
            self._admission.refuse(connection.client, fault)
            return protocol.reject(403, f"{fault}\n")
        self._admission.excuse(connection.stranger.place)  # Pages need no password.
        if request.path == HEALTH_PATH and not is_socket:
            report = self._admission.health()
            answer = HealthAnswer.to(request.path, headers, self._host, report)
            response = protocol.reject(answer.status, answer.body)
            del response.headers["Content-Type"]
            response.headers["Content-Type"] = answer.content_type
            return response
        name = self._name_of(request.path)
        if name is None and (is_socket or request.path != "/"):
            return protocol.reject(404, "There is no such page.\n")
        if is_socket:
            return protocol.accept(request)
        text = self._index() if name is None else self._filled(name)
        response = protocol.reject(200, text)
        del response.headers["Content-Type"]
        response.headers.update(_headers_of(text))
        return response

    def _name_of(self, path: str) -> str | None:
        """Returns the desktop's name in a path; the root path is the only desktop."""
        name = unquote(path.partition("?")[0][1:])
        if not name and len(self._desktops) == 1:
            return next(iter(self._desktops))
        return name if name in self._desktops else None

    def _index(self) -> str:
        """Returns a page with links to all desktops."""
        names = [f'"/{quote(one, ":")}">{html.escape(one)}' for one in self._desktops]
        return _INDEX.format("".join(f"<li><a href={name}</a>" for name in names))

    def _filled(self, name: str) -> str:
        """Returns the page of a desktop."""
        is_open = self._desktops[name].passwords[0] is None
        filled = {
            "TITLE": html.escape(name),
            "HINT": html.escape(self._hints.get(name, "")),
            "SECRET": "no" if is_open else "yes",
        }
        return re.sub(r"\b(TITLE|HINT|SECRET)\b", lambda at: filled[at[0]], self._page)


def _listener(host: str, port: int | None, beside: int) -> socket.socket:
    if port is not None:
        return listener(host, port)
    with contextlib.suppress(ListenError):
        return listener(host, max(beside - _BELOW, 0))
    return listener(host, 0)


def _headers_of(text: str) -> dict[str, str]:
    """Returns headers that allow the page only its own code and styles."""
    allowed = {"script": "", "style": ""}
    for kind, code in re.findall(r"<(script|style)>(.*?)</\1>", text, re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        allowed[kind] = f"; {kind}-src 'sha256-{digest}'"
    return {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": "default-src 'none'; img-src data:; connect-src "
        "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        + "".join(allowed.values()),
        "Cache-Control": "no-store",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def _may_control(desktop: DesktopServer, given: bytes) -> bool | None:
    """Returns whether a password lets its viewer control; `None` if it is wrong."""
    control, observe = desktop.passwords
    if control is None or hmac.compare_digest(given, control.encode()):
        return True
    is_known = observe is not None and hmac.compare_digest(given, observe.encode())
    return False if is_known else None


def _events(sock: socket.socket, protocol: ServerProtocol) -> Iterator[Any]:
    """Yields the request and the messages that a browser sends.

    With a nonblocking socket it ends after one read, so that a browser that never stops
    sending cannot keep the caller from sending and counting the answers.

    Raises:
        EOFError: The browser has left.
        OSError: The connection is lost.
        ValueError: The browser sent something else.
    """
    while not protocol.close_expected():
        try:
            data = sock.recv(_PART)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        if not data:
            raise EOFError
        protocol.receive_data(data)
        if protocol.handshake_exc is not None:
            raise ValueError(f"it has sent no request: {protocol.handshake_exc}")
        yield from protocol.events_received()
        # What TLS has decrypted already wakes no poll.
        has_more = isinstance(sock, ssl.SSLSocket) and sock.pending()
        if not sock.getblocking() and not has_more:
            return


def _carry(
    sock: socket.socket,
    protocol: ServerProtocol,
    events: Iterator[Any],
    link: socket.socket,
) -> None:
    """Carries bytes between a browser and its desktop until one of them leaves.

    Raises:
        EOFError: The browser has left.
        OSError: The connection is lost, or the browser is silent or does not read.
    """
    sock.setblocking(False)
    out, is_asked = b"", False
    while not protocol.close_expected():
        poller = select.poll()
        poller.register(sock, select.POLLIN | (select.POLLOUT if out else 0))
        if not out:  # The desktop waits until the browser has read.
            poller.register(link, select.POLLIN)
        ready = dict(poller.poll(1000 * _SILENCE))
        if len(out) > _MOST_UNSENT or (is_asked and not ready):
            raise ConnectionError("It does not read.")
        if not ready:
            protocol.send_ping(b"")
        is_asked = not ready or (is_asked and sock.fileno() not in ready)
        if link.fileno() in ready:
            part = link.recv(_PART)
            if not part:
                return
            protocol.send_binary(part)
        for frame in events:  # first those that came with the password
            if frame.opcode in (_BINARY, _CONTINUED):
                link.sendall(frame.data)
        events = _events(sock, protocol)
        out += b"".join(protocol.data_to_send())
        if out:
            with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError):
                out = out[sock.send(out) :]


def _hang_up(
    connection: Connection, protocol: ServerProtocol, code: int, reason: str
) -> None:
    """Closes a WebSocket unless its browser already has."""
    if not protocol.close_expected():
        protocol.send_close(code, reason)
        connection.send_last(b"".join(protocol.data_to_send()))
