"""`DesktopError`: what goes wrong with a desktop."""

from __future__ import annotations

from envkit._shared.text import escaped
from envkit.errors import EnvkitError

__all__ = ["DesktopError"]


class DesktopError(EnvkitError, ConnectionError):
    """A connection to a desktop was refused or lost, or broke the protocol.

    Attributes:
        refused: Whether the other end has refused the password, or asks for one.
    """

    refused: bool = False

    def __init__(self, message: str = "") -> None:
        # The text may be the other end's, and terminals obey control characters.
        super().__init__(escaped(message))
