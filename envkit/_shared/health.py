"""`/healthz`: reports over HTTP, without a secret, whether a server is serving.

The report reveals only what anyone who reaches the port can tell: that a server is
there, and its protocol. Web pages get no answer (`web_pages`), and a connection that
asks is a stranger like any other, limited in bytes and seconds.
"""

from __future__ import annotations

import http
import json
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from envkit._shared.admission import Admission
from envkit._shared.connection_threads import Connection, ConnectionThreads
from envkit._shared.listening import place_of
from envkit._shared.web_pages import foreign_host, foreign_origin

__all__ = ["HEALTH_PATH", "HealthAnswer", "HealthServer", "answer_http", "is_http"]

HEALTH_PATH = "/healthz"
# The maximum size of a request's head.
_MOST_OF_A_REQUEST = 1 << 13
_ENDS = (b"\r\n\r\n", b"\n\n")
_ALLOWED = ("GET", "HEAD")
_METHODS = (*_ALLOWED, "POST", "PUT", "DELETE", "OPTIONS", "PATCH")


def is_http(begun: bytes) -> bool:
    r"""Returns True if a connection begins with an HTTP request.

    Example:
        >>> is_http(b"HEAD /he"), is_http(b"envkit\x02\n")
        (True, False)
    """
    return begun.partition(b" ")[0].decode("latin-1") in _METHODS


class HealthAnswer(NamedTuple):
    """The answer to a request.

    Attributes:
        status: The HTTP status.
        body: The text; JSON unless the request is refused.
        refused: The reason for a refusal, or "".
        is_head: True if the client wants only the head.
    """

    status: int
    body: str
    refused: str = ""
    is_head: bool = False

    @property
    def content_type(self) -> str:
        """The content type of the body."""
        return "text/plain; charset=utf-8" if self.refused else "application/json"

    @classmethod
    def to(
        cls,
        path: str,
        headers: Sequence[tuple[str, str]],
        bound: str,
        report: Mapping[str, Any],
    ) -> HealthAnswer:
        r"""Answers a request.

        Args:
            path: The path of the request.
            headers: Its headers, with names in lower case.
            bound: The host that the server listens on.
            report: The facts to report; "status" is "ok" if all is well.

        Example:
            >>> answer = HealthAnswer.to("/healthz", [], "", {"status": "ok"})
            >>> answer.status, answer.body
            (200, '{"status": "ok"}\n')
            >>> HealthAnswer.to("/x", [], "", {"status": "ok"}).status
            404
        """
        if fault := foreign_host(headers, bound) or foreign_origin(headers):
            refused = f"{fault}: web pages get no answer here."
            return cls(403, f"{refused}\n", refused)
        if path.partition("?")[0] != HEALTH_PATH:
            refused = f"There is only {HEALTH_PATH} here for HTTP, not {path[:80]!r}."
            return cls(404, f"{refused}\n", refused)
        return cls(
            200 if report.get("status") == "ok" else 503, f"{json.dumps(report)}\n"
        )

    @classmethod
    def of(cls, head: bytes, bound: str, report: Mapping[str, Any]) -> HealthAnswer:
        r"""Answers the head of a raw HTTP request.

        Example:
            >>> HealthAnswer.of(b"GET /healthz HTTP/1.1\r\n\r\n", "", {}).status
            503
        """
        first, *lines = head.decode("latin-1").splitlines() or [""]
        method, *words = first.split(" ")
        if not any(end in head for end in _ENDS) or not words:
            told = f"This port answers 'GET {HEALTH_PATH}', with a short head."
            return cls(400, f"{told}\n", told)
        if method not in _ALLOWED:
            told = f"This port answers GET and HEAD, not {method[:80]!r}."
            return cls(405, f"{told}\n", told)
        named = [line.partition(":") for line in lines if line]
        headers = [(name.strip().lower(), value.strip()) for name, _, value in named]
        answer = cls.to(words[0], headers, bound, report)
        return answer._replace(is_head=method == "HEAD")

    def data(self) -> bytes:
        """Returns the raw HTTP answer, after which the connection ends."""
        body = self.body.encode()
        head = (
            f"HTTP/1.1 {self.status} {http.HTTPStatus(self.status).phrase}\r\n"
            f"Content-Type: {self.content_type}\r\nContent-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n"
        )
        if self.status == http.HTTPStatus.METHOD_NOT_ALLOWED:
            head += f"Allow: {', '.join(_ALLOWED)}\r\n"
        return f"{head}\r\n".encode() + (b"" if self.is_head else body)


def answer_http(
    connection: Connection,
    admission: Admission,
    begun: bytes,
    bound: str,
    report: Mapping[str, Any],
) -> None:
    """Reads an HTTP request at another protocol's port, and answers it.

    Args:
        connection: The connection.
        admission: Logs a refused request.
        begun: The bytes received so far.
        bound: The host that the server listens on.
        report: The facts to report.
    """
    answer = HealthAnswer.of(_head(connection, begun), bound, report)
    place = connection.stranger.place
    if answer.refused:
        admission.refuse(place, answer.refused)
    admission.excuse(place)
    connection.send_last(answer.data())


def _head(connection: Connection, begun: bytes) -> bytes:
    """Reads the head of a request, up to the size limit."""
    head = bytearray(begun)
    while not any(end in head for end in _ENDS) and len(head) < _MOST_OF_A_REQUEST:
        part = connection.sock.recv(_MOST_OF_A_REQUEST)
        if not part:
            break
        head += part
    return bytes(head)


class HealthServer:
    """Reports the health of all services on a separate port."""

    def __init__(
        self,
        sock: socket.socket,
        report: Callable[[], Mapping[str, Any]],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Starts answering.

        Args:
            sock: The listening socket.
            report: Returns the facts to report; may be called from any thread.
            tls: Encrypts connections.
        """
        self._report = report
        address = sock.getsockname()
        self._host: str = address[0]
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://{place_of(address)}{HEALTH_PATH}"
        self._admission = Admission("health")
        self._connections = ConnectionThreads(
            sock, self._admission, self, name="envkit-health", tls=tls
        )

    def serve(self, connection: Connection) -> None:
        """Answers one request."""
        report = self._report()
        answer_http(connection, self._admission, b"", self._host, report)

    def refusal(self, error: Exception) -> bytes:
        """Returns the bytes to send to a refused client."""
        return HealthAnswer(400, f"{error}\n", str(error)).data()

    def close(self) -> None:
        """Stops answering."""
        self._connections.close("the server is stopping", time.monotonic() + 1.0)
