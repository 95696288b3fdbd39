"""`DesktopError`: what goes wrong with a desktop."""

from __future__ import annotations

from envkit._shared.peer_errors import PeerError

__all__ = ["DesktopError"]


class DesktopError(PeerError, ConnectionError):
    """A connection to a desktop was refused or lost, or broke the protocol.

    Attributes:
        refused: Whether the other end has refused the password, or asks for one.
    """

    refused: bool = False
