"""Errors that may contain another program's text."""

from __future__ import annotations

from envkit._shared.text import escaped
from envkit.errors import EnvkitError

__all__ = ["LostError", "PeerError"]


class PeerError(EnvkitError):
    r"""An error from, or about, the other end of a connection.

    Control characters in its message are escaped, because terminals would obey them.

    Example:
        >>> print(PeerError("The server says \x1b[2J."))
        The server says \u001b[2J.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(escaped(message))


class LostError(PeerError):
    """A connection ended, or was silent for too long."""
