"""Keeps web pages out of servers that have no secret.

A browser lets every page that its user visits send requests to servers on the user's
machine and network. Headers that the browser adds distinguish these requests from other
programs':

| an attack by a page                             | gives itself away by              |
|-------------------------------------------------|-----------------------------------|
| send a request, open a WebSocket                | `Origin`, `Sec-Fetch-Site`        |
| point its own name at our address (DNS          | `Host`, which is that name        |
| rebinding), to share our origin                 |                                   |
| send a form or plain text, which browsers send  | `Content-Type`, which is not      |
| without asking the server first                 | `application/json`                |

A server with a secret does not need this: pages do not know the secret. A server that
has its own page always refuses other pages.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from envkit._shared.listening import is_loopback

__all__ = ["foreign_host", "foreign_origin", "is_json", "web_page_refusal"]

Headers = Sequence[tuple[str, str]]

# Names without a meaning in the internet's DNS, so no page can have one of them.
_PRIVATE = (".localhost", ".local", ".internal", ".lan", ".home.arpa")
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def web_page_refusal(headers: Headers, bound: str) -> str | None:
    """Returns why a request may come from a web page; `None` if it cannot.

    Args:
        headers: The request's headers, with names in lower case.
        bound: The host that the server listens on.

    Example:
        >>> web_page_refusal([("host", "localhost:8000")], "127.0.0.1")
        >>> told = web_page_refusal([("host", "evil.example:8000")], "127.0.0.1")
        >>> print(told)
        The header Host is 'evil.example:8000', which is not a name of this server: \
use its address, or serve with a token.
    """
    if fault := foreign_host(headers, bound):
        return f"{fault}: use its address, or serve with a token."
    if fault := foreign_origin(headers):
        return f"{fault}: web pages are refused where there is no token."
    return None


def foreign_host(headers: Headers, bound: str) -> str:
    """Returns the header that shows a foreign name for this server, or ""."""
    for host in _values(headers, "host"):
        name, _ = _host_and_port(f"//{host}")
        if name is None or not _is_ours(name, bound):
            return (
                f"The header Host is {host[:80]!r}, which is not a name of this server"
            )
    return ""


def foreign_origin(headers: Headers) -> str:
    """Returns the header that shows that another site's page sent this, or ""."""
    hosts = _values(headers, "host")
    for origin in _values(headers, "origin"):
        if not hosts or not _is_same(origin, hosts[0]):
            return f"The header Origin is {origin[:80]!r}"
    for site in _values(headers, "sec-fetch-site"):
        if site not in ("same-origin", "none"):
            return f"The header Sec-Fetch-Site is {site[:80]!r}"
    return ""


def _values(headers: Headers, name: str) -> list[str]:
    return [value for known, value in headers if known == name]


def is_json(content_type: str) -> bool:
    """Returns True if a content type is JSON.

    Example:
        >>> is_json("application/json; charset=utf-8"), is_json("text/plain")
        (True, False)
    """
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


def _host_and_port(url: str) -> tuple[str | None, int | None]:
    """Returns the host of an address in lower case, and its port."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None, None
    if parts.username is not None or parts.path or parts.query or parts.fragment:
        return None, None
    host = (parts.hostname or "").partition("%")[0].removesuffix(".")
    return host or None, port or _PORTS.get(parts.scheme)


def _is_same(origin: str, host: str) -> bool:
    """Returns True if a page of this origin is one of the server's own.

    Some clients other than browsers send the address that they connect to.
    """
    name, port = _host_and_port(origin)
    scheme = origin.partition(":")[0].lower()
    if name is None or scheme not in _PORTS:
        return False
    return (name, port) == _host_and_port(f"{scheme}://{host}")


def _is_ours(name: str, bound: str) -> bool:
    """Returns True if no page can have an address with this name."""
    if name in ("localhost", bound.strip("[]").lower().removesuffix(".")):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        if is_loopback(bound):
            return False
        # Other machines may use names from their own network, unknown to us.
        is_private = "." not in name or name.endswith(_PRIVATE)
        return is_private or name == socket.gethostname().lower()
    return address.is_loopback or not is_loopback(bound)
