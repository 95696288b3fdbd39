"""Listening sockets, and the addresses at both ends."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from typing import Any

__all__ = ["ListenError", "host_and_port", "is_loopback", "listener", "place_of"]

# How many clients may have come before the server has accepted them.
_BACKLOG = 1024
_REASONS = {
    errno.EADDRINUSE: "Port {port} is in use by another program.",
    errno.EADDRNOTAVAIL: "{host} is not an address of this machine.",
    errno.EACCES: "Port {port} needs rights that this account does not have.",
    socket.EAI_NONAME: "{host} is not an address of this machine.",
}


_PLACE = re.compile(r"(?:\[([^][]+)\]|([^][:]+))(?::([0-9]{1,5}))?")


class ListenError(OSError):
    """A server cannot listen on an address."""

    def __str__(self) -> str:
        """Returns the message without the error number."""
        return str(self.strerror)


def listener(host: str, port: int | socket.socket) -> socket.socket:
    """Listens at an address.

    Args:
        host: The address.
        port: The port, 0 for any free one; or a socket that listens there already.

    Raises:
        ListenError: Listening failed; the message says why.
    """
    if isinstance(port, socket.socket):
        return port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        place = host.strip("[]"), port
        return socket.create_server(place, family=family, backlog=_BACKLOG)
    except OSError as error:
        if error.errno not in _REASONS:
            raise
        reason = _REASONS[error.errno].format(host=host, port=port)
        raise ListenError(error.errno, reason) from error


def is_loopback(host: str) -> bool:
    """Returns True if only this machine can reach an address.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def place_of(address: Any) -> str:
    """Returns a socket's address in the notation of logs and clients.

    Example:
        >>> place_of(("127.0.0.1", 7600)), place_of(("::1", 7600, 0, 0))
        ('127.0.0.1:7600', '[::1]:7600')
        >>> place_of(None)
        'a client that has left'
    """
    if not address:
        return "a client that has left"
    host, port = address[0].strip("[]"), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_and_port(place: str, default: int | None = None) -> tuple[str, int] | None:
    """Reads the host and port of a `place_of`; returns `None` if it is neither.

    Example:
        >>> host_and_port("[::1]:80"), host_and_port("box", default=7600)
        (('::1', 80), ('box', 7600))
        >>> print(host_and_port("box"), host_and_port("::1:80"))
        None None
    """
    match = _PLACE.fullmatch(place)
    port = match[3] or default if match else None
    if match is None or port is None or int(port) > 65535:
        return None
    return match[1] or match[2], int(port)
