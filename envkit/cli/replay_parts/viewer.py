"""Plays a recording in the terminal, until somebody quits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from envkit.cli.play_parts.screen import open_screen
from envkit.cli.replay_parts.viewing import Look, Viewing

if TYPE_CHECKING:
    from envkit.recording.stored import Recording

__all__ = ["view"]


def view(recording: Recording, look: Look, fps: float) -> None:
    """Shows so many time steps in a second."""
    viewing = Viewing(recording)
    with open_screen() as screen:
        due = time.monotonic()
        while not viewing.over:
            screen.show(viewing.scene(look), *viewing.lines())
            due = max(due + 1.0 / fps, time.monotonic())
            try:
                if viewing.paused:
                    keys = screen.pressed()
                else:
                    keys = screen.pressed(max(0.0, due - time.monotonic()))
            except EOFError:  # The terminal is gone, and with it who looked.
                return
            for key in keys:
                viewing.press(key)
            if not keys and time.monotonic() >= due:
                viewing.tick()
