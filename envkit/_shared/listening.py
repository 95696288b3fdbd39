"""Sockets that listen for clients."""

from __future__ import annotations

import errno
import socket

__all__ = ["ListenError", "listener"]

_REASONS = {
    errno.EADDRINUSE: "Port {port} is in use by another program.",
    errno.EADDRNOTAVAIL: "{host} is not an address of this machine.",
    errno.EACCES: "Port {port} needs rights that this account does not have.",
    socket.EAI_NONAME: "{host} is not an address of this machine.",
}


class ListenError(OSError):
    """There can be no server at an address."""

    def __str__(self) -> str:
        """Returns the sentence, without the number of the error."""
        return str(self.strerror)


def listener(host: str, port: int) -> socket.socket:
    """Listens at an address.

    Raises:
        ListenError: That cannot be; the message says why.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family)
    except OSError as error:
        if error.errno not in _REASONS:
            raise
        reason = _REASONS[error.errno].format(host=host, port=port)
        raise ListenError(error.errno, reason) from error
