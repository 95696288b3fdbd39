"""Desktops: any program on a screen as an environment, with keys and a pointer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit.extend import lazy_names

if TYPE_CHECKING:
    from envkit.desktop.actions import Actions as Actions
    from envkit.desktop.actions import ClickGrid as ClickGrid
    from envkit.desktop.actions import Controls as Controls
    from envkit.desktop.actions import Events as Events
    from envkit.desktop.actions import Joystick as Joystick
    from envkit.desktop.actions import Macros as Macros
    from envkit.desktop.actions import Together as Together
    from envkit.desktop.browser import BrowserServer as BrowserServer
    from envkit.desktop.client import DesktopClient as DesktopClient
    from envkit.desktop.demonstration import Demonstration as Demonstration
    from envkit.desktop.desktop import Command as Command
    from envkit.desktop.desktop import Desktop as Desktop
    from envkit.desktop.errors import DesktopError as DesktopError
    from envkit.desktop.human import Person as Person
    from envkit.desktop.keys import KeyEvent as KeyEvent
    from envkit.desktop.keys import PointerEvent as PointerEvent
    from envkit.desktop.keys import key_name as key_name
    from envkit.desktop.keys import keysym as keysym
    from envkit.desktop.pixels import PixelFormat as PixelFormat
    from envkit.desktop.rewards import Reported as Reported
    from envkit.desktop.rewards import Reporter as Reporter
    from envkit.desktop.rewards import RewardChannel as RewardChannel
    from envkit.desktop.screen_thread import Probe as Probe
    from envkit.desktop.server import DesktopServer as DesktopServer

_HOMES = {
    "Actions": "envkit.desktop.actions",
    "BrowserServer": "envkit.desktop.browser",
    "ClickGrid": "envkit.desktop.actions",
    "Command": "envkit.desktop.desktop",
    "Controls": "envkit.desktop.actions",
    "Demonstration": "envkit.desktop.demonstration",
    "Desktop": "envkit.desktop.desktop",
    "DesktopClient": "envkit.desktop.client",
    "DesktopError": "envkit.desktop.errors",
    "DesktopServer": "envkit.desktop.server",
    "Events": "envkit.desktop.actions",
    "Joystick": "envkit.desktop.actions",
    "KeyEvent": "envkit.desktop.keys",
    "Macros": "envkit.desktop.actions",
    "Person": "envkit.desktop.human",
    "PixelFormat": "envkit.desktop.pixels",
    "PointerEvent": "envkit.desktop.keys",
    "Probe": "envkit.desktop.screen_thread",
    "Reported": "envkit.desktop.rewards",
    "Reporter": "envkit.desktop.rewards",
    "RewardChannel": "envkit.desktop.rewards",
    "Together": "envkit.desktop.actions",
    "key_name": "envkit.desktop.keys",
    "keysym": "envkit.desktop.keys",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
