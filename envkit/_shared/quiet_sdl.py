"""Tells SDL, which pygame uses, to be quiet, and where to show and play nothing.

SDL reads its settings only from environment variables. Variables that are already set
are kept.
"""

from __future__ import annotations

import glob
import os
import sys

__all__ = ["chosen_driver", "has_display", "has_sound", "prepare_sdl"]

_ALWAYS = {
    # Otherwise pygame prints a greeting when it is imported.
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
    # SDL would treat SIGTERM as a click on a window's close button, and a worker that
    # should end would continue.
    "SDL_NO_SIGNAL_HANDLERS": "1",
}
_DRIVER = "SDL_VIDEODRIVER"
_NO_WINDOW = {_DRIVER: "dummy"}
# Without a sound card, ALSA and PulseAudio print a page of complaints.
_NO_SOUND = {"SDL_AUDIODRIVER": "dummy"}
_SOUND_SERVERS = ("pulse/native", "pipewire-0")
# Set beside the driver; unlike a variable of Python, worker processes inherit it.
_HIDDEN = "ENVKIT_HIDES_WINDOWS"


def prepare_sdl(shows_window: bool | None = None) -> None:
    """Sets SDL's environment variables that are not set yet.

    Args:
        shows_window: Whether the game should be visible; `None` if unknown: then it is
            not, on a machine without a display.
    """
    settings = dict(_ALWAYS)
    is_seen = has_display() if shows_window is None else shows_window
    if not is_seen:
        settings.update(_NO_WINDOW)
    if not is_seen or not has_sound():
        settings.update(_NO_SOUND)
    if _DRIVER in settings and _DRIVER not in os.environ:
        settings[_HIDDEN] = "1"
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def has_display() -> bool:
    """Returns True if there is a screen for windows."""
    if sys.platform != "linux":
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def chosen_driver() -> str:
    """Returns the user's choice of where windows are shown; "" for none."""
    return "" if _HIDDEN in os.environ else os.environ.get(_DRIVER, "")


def has_sound() -> bool:
    """Returns True if there may be something to play sound on."""
    if sys.platform != "linux" or os.environ.get("PULSE_SERVER"):
        return True
    folder = os.environ.get("XDG_RUNTIME_DIR")
    servers = [os.path.join(folder, name) for name in _SOUND_SERVERS] if folder else []
    return any(map(os.path.exists, servers)) or bool(glob.glob("/dev/snd/pcm*p"))
