"""Serves environments over a network, and connects to served ones.

Nothing here unpickles data from a network: a peer names environments, and sends numbers
and plain data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit.extend import lazy_names

if TYPE_CHECKING:
    from envkit.remote.client import RemoteEnvironment as RemoteEnvironment
    from envkit.remote.client import connect as connect
    from envkit.remote.client import servers as servers
    from envkit.remote.observers import observe as observe
    from envkit.remote.plugins import ServeProtocol as ServeProtocol

_HOMES = {
    "RemoteEnvironment": "envkit.remote.client",
    "ServeProtocol": "envkit.remote.plugins",
    "connect": "envkit.remote.client",
    "observe": "envkit.remote.observers",
    "servers": "envkit.remote.client",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
