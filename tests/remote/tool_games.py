"""Environments with tools."""

from __future__ import annotations

import os
import signal

from envkit.sessions import tool
from tests.sessions.environments import Room


class Cellar(Room):
    """A room with dangers."""

    @tool
    def fall(self) -> str:
        """Falls, and kills the process."""
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    @tool
    def trip(self) -> str:
        """Trips, and raises."""
        raise RuntimeError("It was dark.")


class Reserved(Room):
    """A room with a tool that has a name of OpenEnv's."""

    @tool
    def state(self) -> str:
        """Tells the state."""
        return ""
