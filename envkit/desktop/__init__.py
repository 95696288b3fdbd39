"""Desktops: any program on a screen as an environment, by keys and pointer."""

from envkit.desktop.actions import (
    Actions,
    ClickGrid,
    Controls,
    Events,
    Joystick,
    Macros,
    Together,
)
from envkit.desktop.client import DesktopClient
from envkit.desktop.demonstration import Demonstration
from envkit.desktop.desktop import Command, Desktop
from envkit.desktop.keys import KeyEvent, PointerEvent, key_name, keysym
from envkit.desktop.person import Person
from envkit.desktop.pixels import PixelFormat
from envkit.desktop.protocol import DesktopError
from envkit.desktop.rewards import Reported, Reporter, RewardChannel
from envkit.desktop.server import DesktopServer
from envkit.desktop.watching import Probe

__all__ = [
    "Actions",
    "ClickGrid",
    "Command",
    "Controls",
    "Demonstration",
    "Desktop",
    "DesktopClient",
    "DesktopError",
    "DesktopServer",
    "Events",
    "Joystick",
    "KeyEvent",
    "Macros",
    "Person",
    "PixelFormat",
    "PointerEvent",
    "Probe",
    "Reported",
    "Reporter",
    "RewardChannel",
    "Together",
    "key_name",
    "keysym",
]
