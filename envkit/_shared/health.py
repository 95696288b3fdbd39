"""`/healthz`: says over HTTP, without a secret, whether a server serves.

It tells what anyone knows who reaches the port: that it serves, and by which protocol.
Web pages get no answer (`web_pages`), and a connection that asks is a stranger like
others: it has few bytes and some seconds.
"""

from __future__ import annotations

import http
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from envkit._shared.web_pages import foreign_host, foreign_origin

__all__ = ["HEALTH_PATH", "MOST_OF_A_REQUEST", "HealthAnswer", "http_answer"]

HEALTH_PATH = "/healthz"
# How long the head of a request may be.
MOST_OF_A_REQUEST = 1 << 13


class HealthAnswer(NamedTuple):
    """What a request is answered with.

    Attributes:
        status: The status of HTTP.
        body: The text; JSON unless the request is refused.
        refused: Why the request is refused; "" if it is not.
    """

    status: int
    body: str
    refused: str = ""

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
            path: What the request asks for.
            headers: The names of its headers in small letters, and their values.
            bound: The host that the server listens at.
            report: What there is to say; its "status" is "ok" if all is well.

        Example:
            >>> HealthAnswer.to("/healthz", [], "127.0.0.1", {"status": "ok"})
            HealthAnswer(status=200, body='{"status": "ok"}\n', refused='')
            >>> HealthAnswer.to("/x", [], "127.0.0.1", {"status": "ok"}).status
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

    def data(self) -> bytes:
        """Returns the answer as HTTP writes it, after which the connection ends."""
        kind = "text/plain; charset=utf-8" if self.refused else "application/json"
        body = self.body.encode()
        head = (
            f"HTTP/1.1 {self.status} {http.HTTPStatus(self.status).phrase}\r\n"
            f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body


def http_answer(
    begun: bytes, read: Callable[[], bytes], bound: str, report: Mapping[str, Any]
) -> HealthAnswer:
    r"""Reads a request of HTTP at a port of another protocol, and answers it.

    Args:
        begun: The bytes that have come.
        read: Returns some more; none at the end.
        bound: The host that the server listens at.
        report: What there is to say.

    Example:
        >>> http_answer(b"GET /healthz HTTP/1.1\r\n\r\n", bytes, "", {}).status
        503
    """
    head = bytearray(begun)
    while b"\r\n\r\n" not in head and b"\n\n" not in head:
        part = read() if len(head) < MOST_OF_A_REQUEST else b""
        if not part:
            told = "A request of HTTP must end with an empty line, and be short."
            return HealthAnswer(400, f"{told}\n", told)
        head += part
    first, *lines = head.decode("latin-1").partition("\r\n\r\n")[0].splitlines()
    words = first.split(" ")
    named = [line.partition(":") for line in lines if line]
    headers = [(name.strip().lower(), value.strip()) for name, _, value in named]
    return HealthAnswer.to(words[1] if words[1:] else "", headers, bound, report)
