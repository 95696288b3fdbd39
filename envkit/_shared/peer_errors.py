"""Errors that may have the text of another program in them."""

from __future__ import annotations

from envkit._shared.text import escaped
from envkit.errors import EnvkitError

__all__ = ["LostError", "PeerError"]


class PeerError(EnvkitError):
    r"""An error of the other end of a connection, or about it.

    Control characters in its message are written out, because terminals obey them.

    Example:
        >>> print(PeerError("The server says \x1b[2J."))
        The server says \u001b[2J.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(escaped(message))


class LostError(PeerError):
    """A connection has ended, or nothing has come for too long."""
