"""`Screen`: a terminal that shows pictures, and tells keys as they are pressed."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group
from rich.style import Style
from rich.text import Text

from envkit.cli.play_parts.half_blocks import fitted, half_blocks
from envkit.cli.play_parts.key_names import decode
from envkit.cli.play_parts.scene import Scene
from envkit.cli.play_parts.text_columns import side_by_side
from envkit.cli.terminal import SafeConsole
from envkit.envs.drawing import shades

__all__ = ["Screen", "is_terminal", "open_screen"]

# How long a lone ESC may be the begin of what an arrow key sends.
_ESCAPE_DELAY = 0.05
# Python overlooks an interrupt that comes just as the waiting begins.
_LONGEST_WAIT = 0.5


def is_terminal() -> bool:
    """Says whether somebody sits there, who sees and has keys."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class Screen:
    """Shows a scene with lines of text below, and reads keys."""

    def __init__(self, console: Console, screen: Any, descriptor: int) -> None:
        """Takes a terminal that `open_screen` has prepared."""
        self._console, self._screen = console, screen
        self._descriptor = descriptor
        self._typed = ""

    def show(self, scene: Scene, *lines: str) -> None:
        """Shows a picture, or text, and what is to be read below."""
        below = Text("\n".join(lines))
        width, height = self._console.size
        room = max(1, height - len(lines) - 1)
        if isinstance(scene, str):
            # What is coloured has no more lines than there are, mostly.
            text = scene if "\x1b" in scene else side_by_side(scene, room)
            # Of escape sequences it takes the colours; links are not for us to follow.
            drawn = Text.from_ansi(text)
            for number, span in enumerate(drawn.spans):
                if isinstance(span.style, Style):
                    plain = span._replace(style=span.style.update_link(None))
                    drawn.spans[number] = plain
            self._screen.update(Group(drawn, Text(), below))
            return
        picture = fitted(scene, 2 * room, max(1, width))
        if self._console.no_color or self._console.color_system is None:
            self._screen.update(Group(Text(shades(picture)), Text(), below))
        else:
            self._screen.update(Group(half_blocks(picture), Text(), below))

    def pressed(self, timeout: float | None = None) -> list[str]:
        """Waits for keys, and returns those that have come; none after the timeout.

        Raises:
            EOFError: The terminal is gone.
        """
        keys: list[str] = []
        while not keys:
            wait = _LONGEST_WAIT if timeout is None else min(timeout, _LONGEST_WAIT)
            if not self._has_typed(_ESCAPE_DELAY if self._typed else wait):
                if self._typed:  # Nothing follows: it was the key itself.
                    self._typed = ""
                    return ["esc"]
                if timeout is not None:
                    return []
                continue
            received = os.read(self._descriptor, 1024)
            if not received:
                raise EOFError
            self._typed += received.decode(errors="ignore")
            keys, self._typed = decode(self._typed)
        return keys

    def _has_typed(self, timeout: float) -> bool:
        return bool(select.select([self._descriptor], [], [], timeout)[0])


@contextlib.contextmanager
def open_screen() -> Iterator[Screen]:
    """Takes the terminal, and gives it back as it was, whatever happens."""
    try:
        import termios
        import tty
    except ImportError:
        raise NotImplementedError(
            "Playing in the terminal needs one of Linux or macOS. Play in a window."
        ) from None

    console = SafeConsole(file=sys.stdout, highlight=False)
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        _forbid_stopping(descriptor)
        with console.screen(hide_cursor=True) as screen:
            yield Screen(console, screen, descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _forbid_stopping(descriptor: int) -> None:
    """Turns Ctrl-Z off, which would leave the terminal as it is while one plays."""
    import termios

    settings = termios.tcgetattr(descriptor)
    settings[6][termios.VSUSP] = b"\0"
    termios.tcsetattr(descriptor, termios.TCSANOW, settings)
