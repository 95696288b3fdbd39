"""`DesktopError`: the error of connections to desktops."""

from __future__ import annotations

from envkit._shared.peer_errors import PeerError

__all__ = ["DesktopError"]


class DesktopError(PeerError, ConnectionError):
    """A connection to a desktop was refused or lost, or broke the protocol.

    Attributes:
        refused: Whether the other end refused the password, or asks for one.
    """

    refused: bool = False
