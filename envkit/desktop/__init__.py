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
from envkit.desktop.keys import KeyEvent, PointerEvent, key_name, keysym
from envkit.desktop.rewards import Reported, Reporter, RewardChannel

__all__ = [
    "Actions",
    "ClickGrid",
    "Controls",
    "Events",
    "Joystick",
    "KeyEvent",
    "Macros",
    "PointerEvent",
    "Reported",
    "Reporter",
    "RewardChannel",
    "Together",
    "key_name",
    "keysym",
]
