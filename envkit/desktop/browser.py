"""`BrowserServer`: a web page in which people watch and play desktops.

The page, `browser.html`, is a VNC viewer of our own. What follows the password is the
remote framebuffer protocol, so a `DesktopServer` treats browsers as all its viewers:

```
browser ── GET /NAME ─────────────────────▶ the page
        ── WebSocket /NAME: the password ─▶ judged, all of it
        ◀═ RFB in binary messages ════════▶ DesktopServer.adopt, by a pair of sockets
```

What the browser has not taken yet waits in the buffers of the system, and the next
update is sent when the page asks for it, so a slow browser costs no memory.

Pages of others get nothing: a WebSocket must have our own `Origin`, and without a
certificate, which they cannot have, the `Host` must be ours.
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
# Seconds to log in, of which a verdict may take eight; and for all to be told the end.
_PATIENCE, _TO_CLOSE = 20.0, 4.0
# How far the usual port is below that of VNC: 5800 and 5900, as VNC has it.
_BELOW = 100
# Of WebSockets: why they are closed, and kinds of messages.
_GOING_AWAY, _WRONG_PASSWORD = 1001, 1008
_CONTINUED, _TEXT, _BINARY = 0, 1, 2
# Seconds of silence after which a browser must say that it is there.
_SILENCE = 30.0
_INDEX = """<!doctype html><html lang="en"><meta charset="utf-8"><title>envkit</title>
<link rel="icon" href="data:,"><h1>envkit</h1><ul>{}</ul></html>"""


class BrowserServer(Closable):
    """Lets people watch and play desktops in browsers, beside VNC viewers.

    It needs the package websockets. Browsers need the password of the desktop, and
    observe with that of observers; they count as its viewers. A password after `#`
    stays in the browser: the page removes it from the address and keeps it for its tab.
    Keys and buttons go up when the page loses the focus or is closed.

    Attributes:
        address: The host and the port that it listens at.
        url: Where the pages are: that of the only desktop, or a list of all.

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
        """Listens.

        Args:
            desktops: What it shows, each at a page of this name.
            host: The address to listen at.
            port: The port; 0 for any that is free, and `None` for the one that is 100
                below that of the first desktop, or any if that is taken.
            tls: What encrypts connections.
            hints: What the pages say below the pictures, by the names of the desktops.

        Raises:
            MissingDependencyError: The package websockets is not installed.
            ValueError: There is no desktop.
        """
        if not desktops:
            raise ValueError("desktops must have a DesktopServer at least.")
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
        self._reason = ""  # until it is closed
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
            password: What stands after `#`, which browsers send nobody: who opens this
                address need not type it.
        """
        path = quote(name, ":") if len(self._desktops) > 1 else ""
        return self.url + path + (f"#{quote(password)}" if password else "")

    def ended(self) -> str | None:
        """Returns why it has ended unasked; `None` as long as it serves."""
        return self._threads.ended()

    def close(self, reason: str = "The server has ended.") -> None:
        """Tells browsers the reason, and stops listening."""
        self._reason = reason or "The server has ended."
        for link in list(self._links):
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        self._threads.close(reason, time.monotonic() + _TO_CLOSE)

    # A connection, in its thread.

    def serve(self, connection: Connection) -> None:
        """Answers a request, or serves a viewer until it leaves."""
        with contextlib.suppress(EOFError):  # Browsers also connect without a request.
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

        It returns when it is time to say so.
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

    def refusal(self, reason: str) -> bytes:
        """Returns what a connection is sent that was no request."""
        return HealthAnswer(400, f"{reason}\n", reason).data()

    def _answer(
        self, connection: Connection, protocol: ServerProtocol, request: Request
    ) -> Response:
        """Returns the answer to a request: a page, or that a WebSocket is accepted."""
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
        """Returns the desktop of a path; the root is that of the only one."""
        name = unquote(path.partition("?")[0][1:])
        if not name and len(self._desktops) == 1:
            return next(iter(self._desktops))
        return name if name in self._desktops else None

    def _index(self) -> str:
        """Returns a page with links to those of all desktops."""
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
    """Returns headers that let a page do what it does itself, and nothing else."""
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

    It ends where the socket would have to wait, and must not.

    Raises:
        EOFError: The browser has left.
        OSError: The connection is lost.
        ValueError: It has sent something else.
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


def _carry(
    sock: socket.socket,
    protocol: ServerProtocol,
    events: Iterator[Any],
    link: socket.socket,
) -> None:
    """Carries bytes between a browser and its desktop until one of them has left.

    Raises:
        EOFError: The browser has left.
        OSError: It has left otherwise, is silent, or does not read what it asks for.
    """
    sock.setblocking(False)
    out, is_asked = b"", False
    while not protocol.close_expected():
        poller = select.poll()
        poller.register(sock, select.POLLIN | (select.POLLOUT if out else 0))
        if not out:  # Otherwise the desktop waits with the next update.
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
        for frame in events:  # at first those that came with the password
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
    """Closes a WebSocket unless its browser has done so."""
    if not protocol.close_expected():
        protocol.send_close(code, reason)
        connection.send_last(b"".join(protocol.data_to_send()))
