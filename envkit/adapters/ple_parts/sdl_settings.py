"""What SDL, on which pygame stands, is to know before it starts.

SDL reads its settings from environment variables only. Those that somebody has set
stay as they are.
"""

from __future__ import annotations

import os
import sys

__all__ = ["has_display", "prepare_sdl"]

_ALWAYS = {
    # Otherwise pygame greets whoever imports it.
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
    # SDL would take SIGTERM for a click on a window's close button, and a worker that
    # is to end would go on.
    "SDL_NO_SIGNAL_HANDLERS": "1",
}
_WITHOUT_WINDOW = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}


def prepare_sdl(shows_window: bool | None) -> None:
    """Sets the variables of this process that are not set yet.

    Args:
        shows_window: Whether somebody is to see the game. `None` if that is not known:
            then a machine without a display is taken not to show any.
    """
    settings = dict(_ALWAYS)
    if not (has_display() if shows_window is None else shows_window):
        settings.update(_WITHOUT_WINDOW)
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def has_display() -> bool:
    """Says whether there is a screen to show a window on."""
    if sys.platform != "linux":
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
