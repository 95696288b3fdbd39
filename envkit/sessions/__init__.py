"""Hundreds of slow environments, each used by a coroutine of its own: `Sessions`.

A program that trains a language model plays many episodes at once, and each of them
waits: for the model, for a browser, for a game. `Sessions` holds environments in
workers and leases them to coroutines, one episode or more at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit.extend import lazy_names

if TYPE_CHECKING:
    from envkit.sessions.leases import Group as Group
    from envkit.sessions.leases import Lease as Lease
    from envkit.sessions.leases import LeaseTimeout as LeaseTimeout
    from envkit.sessions.nemo import to_nemo as to_nemo
    from envkit.sessions.session import Session as Session
    from envkit.sessions.session import SessionEnded as SessionEnded
    from envkit.sessions.session import SessionLost as SessionLost
    from envkit.sessions.session import Turn as Turn
    from envkit.sessions.sessions import Sessions as Sessions
    from envkit.sessions.sessions import SessionStatistics as SessionStatistics
    from envkit.sessions.skyrl import to_skyrl as to_skyrl
    from envkit.sessions.tools import Tool as Tool
    from envkit.sessions.tools import ToolEnvironment as ToolEnvironment
    from envkit.sessions.tools import tool as tool
    from envkit.sessions.trl import to_trl as to_trl
    from envkit.sessions.verifiers import to_verifiers as to_verifiers

_HOMES = {
    "Group": "envkit.sessions.leases",
    "Lease": "envkit.sessions.leases",
    "LeaseTimeout": "envkit.sessions.leases",
    "Session": "envkit.sessions.session",
    "SessionEnded": "envkit.sessions.session",
    "SessionLost": "envkit.sessions.session",
    "SessionStatistics": "envkit.sessions.sessions",
    "Sessions": "envkit.sessions.sessions",
    "Tool": "envkit.sessions.tools",
    "ToolEnvironment": "envkit.sessions.tools",
    "Turn": "envkit.sessions.session",
    "to_nemo": "envkit.sessions.nemo",
    "to_skyrl": "envkit.sessions.skyrl",
    "to_trl": "envkit.sessions.trl",
    "to_verifiers": "envkit.sessions.verifiers",
    "tool": "envkit.sessions.tools",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
