"""Shows scenes and reads keys: in a terminal, `Screen`, or in a `Window`."""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.style import Style
from rich.text import Text

from envkit.envs.drawing import shades
from envkit.play.console import SafeConsole
from envkit.play.keys import NAMED, Pointed, as_key, decode
from envkit.play.pressed_keys import PressedKeys
from envkit.play.scene import Scene, columns_of, fitted, half_blocks, side_by_side
from envkit.play.window import (
    BACKGROUND,
    draw_picture,
    open_display,
    surface,
    window_size,
)

__all__ = [
    "Pressed",
    "Screen",
    "Window",
    "display_is_taken",
    "is_terminal",
    "open_screen",
    "open_window",
]

# How long a lone ESC may be the beginning of an arrow key's code.
_ESCAPE_DELAY = 0.05
# Python misses an interrupt that comes just as a wait begins.
_LONGEST_WAIT = 0.5


def is_terminal() -> bool:
    """True if standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class Screen:
    """Shows a scene with lines of text below it, and reads keys."""

    def __init__(self, console: Console, screen: Any, descriptor: int) -> None:
        """Takes a terminal that `open_screen` has prepared."""
        self._console, self._screen = console, screen
        self._descriptor = descriptor
        self._typed = ""

    def show(self, scene: Scene, *lines: str) -> None:
        """Shows a picture, or text, with lines below it."""
        below = Text("\n".join(lines))
        width, height = self._console.size
        room = max(1, height - len(lines) - 1)
        if isinstance(scene, str):
            # Coloured text usually fits into the available lines.
            text = scene if "\x1b" in scene else side_by_side(scene, room)
            # Colours are kept, but links are not: they may lead anywhere.
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
        """Waits for keys, and returns those pressed; none after the timeout.

        Raises:
            EOFError: The terminal is closed.
        """
        keys: list[str] = []
        while not keys:
            wait = _LONGEST_WAIT if timeout is None else min(timeout, _LONGEST_WAIT)
            if not self._has_typed(_ESCAPE_DELAY if self._typed else wait):
                if self._typed:  # nothing follows: it was the ESC key itself
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
    """Takes over the terminal, and always restores it."""
    try:
        import termios
        import tty
    except ImportError:
        raise NotImplementedError(
            "Playing in the terminal works only on Linux and macOS. Play in a window."
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
    """Disables Ctrl-Z, which would leave the terminal in playing mode."""
    import termios

    settings = termios.tcgetattr(descriptor)
    settings[6][termios.VSUSP] = b"\0"
    termios.tcsetattr(descriptor, termios.TCSANOW, settings)


_TEXT_SIZE = 18
_LINE = 22
_MARGIN = 8
_WITHOUT_ARROWS = str.maketrans(
    {"←": "left", "→": "right", "↑": "up", "↓": "down", "…": "..."}
)
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_INK = (220, 220, 220)
# Held keys repeat, in milliseconds: after the first press, and after each repeat.
_REPEAT = 250, 60
_WAIT = 200  # at most, in milliseconds, so that Ctrl-C is noticed
_BUTTONS = 5  # of the pointer, including those for the wheel


class Pressed(NamedTuple):
    """Holds the keys that were pressed.

    Attributes:
        chords: For each key that went down, all keys that were down with it, itself
            last.
        keys: The keys that are down, and those that were down briefly.
        down: The keys that are down now.
        closed: Whether the window has been closed.
        pointed: The pointer's movements and clicks on the picture.
    """

    chords: list[tuple[str, ...]]
    keys: list[str]
    down: tuple[str, ...]
    closed: bool
    pointed: list[Pointed]


class Window:
    """Shows a scene with lines of text below it, and reads keys."""

    def __init__(self, pygame: Any, title: str, *, repeats: bool) -> None:
        """Prepares a window, which opens with the first scene.

        Args:
            pygame: The library.
            title: The title of the window.
            repeats: Whether a held key repeats.
        """
        self._pygame, self._title = pygame, title
        self._repeats = repeats
        self._surface: Any = None
        self._font: Any = None
        self._names: dict[int, str] = {}
        self._keys = PressedKeys()
        # The position of the picture, if the scene is one.
        self._area: Any = None
        self._buttons = 0
        self._clock = pygame.time.Clock()

    def show(self, scene: Scene, *lines: str) -> None:
        """Shows a picture, or text, with lines below it."""
        pygame = self._pygame
        if self._surface is None:
            self.open(scene, len(lines))
        room = self._surface.get_height() - len(lines) * _LINE - _MARGIN
        self._surface.fill(BACKGROUND)
        self._area = None
        if isinstance(scene, str):
            left = _MARGIN
            for column in columns_of(scene, (room - _MARGIN) // _LINE):
                left += self._write(column, left, _MARGIN) + 2 * _LINE
        else:
            self._area = draw_picture(pygame, self._surface, scene, room)
        self._write(lines, _MARGIN, room + _MARGIN // 2)
        pygame.display.flip()

    def wait(self) -> Pressed:
        """Waits for keys, for a short time."""
        first = self._pygame.event.wait(_WAIT)
        events = [] if first.type == self._pygame.NOEVENT else [first]
        return self._read([*events, *self._pygame.event.get()])

    def tick(self, fps: float) -> Pressed:
        """Waits until the next step is due; returns the keys pressed until then."""
        self._clock.tick(fps)
        return self._read(self._pygame.event.get())

    def press(self, chords: Sequence[Sequence[str]]) -> None:
        """Presses keys as a player would, and closes the window."""
        pygame = self._pygame
        for chord in chords:
            for kind in (pygame.KEYDOWN, pygame.KEYUP):
                for key in chord:
                    pygame.event.post(pygame.event.Event(kind, **self._event(key)))
        pygame.event.post(pygame.event.Event(pygame.QUIT))

    def _event(self, key: str) -> dict[str, Any]:
        name = {"enter": "RETURN", "esc": "ESCAPE"}.get(key, key.upper())
        if key in NAMED:
            return {"key": getattr(self._pygame, f"K_{name}"), "unicode": ""}
        return {"key": ord(key), "unicode": key}

    def _read(self, events: Sequence[Any]) -> Pressed:
        pygame = self._pygame
        chords: list[tuple[str, ...]] = []
        pointed: list[Pointed] = []
        closed = False
        for event in events:
            if event.type == pygame.QUIT:
                closed = True
            elif event.type == pygame.KEYDOWN:
                key = self._name(event)
                self._names[event.key] = key
                self._keys.press(key)
                chords.append(self._keys.down)
            elif event.type == pygame.KEYUP:
                self._keys.release(self._names.pop(event.key, ""))
            elif event.type == pygame.WINDOWFOCUSLOST:
                self._keys.clear()  # their release is not reported to this window
            elif self._area and event.type in (
                pygame.MOUSEMOTION,
                pygame.MOUSEBUTTONDOWN,
                pygame.MOUSEBUTTONUP,
            ):
                pointed += self._point(event)
        return Pressed(chords, self._keys.tick(), self._keys.down, closed, pointed)

    def _point(self, event: Any) -> list[Pointed]:
        """Returns the pointer's actions, unless it is outside the picture."""
        button = getattr(event, "button", 0)
        is_down = event.type == self._pygame.MOUSEBUTTONDOWN
        within = self._area.collidepoint(event.pos)
        # Buttons go down only on the picture, but are released anywhere.
        if not within and (is_down or not self._buttons):
            return []
        if 0 < button <= _BUTTONS:
            bit = 1 << button - 1
            self._buttons = self._buttons & ~bit | bit * is_down
        left, top, width, height = self._area
        x, y = (event.pos[0] - left) / width, (event.pos[1] - top) / height
        return [Pointed(min(max(x, 0.0), 1.0), min(max(y, 0.0), 1.0), self._buttons)]

    def _name(self, event: Any) -> str:
        typed = getattr(event, "unicode", "")
        if typed.isprintable() and typed.strip():
            return as_key(typed)
        name: str = self._pygame.key.name(event.key)
        return {"return": "enter", "escape": "esc"}.get(name, name)

    def open(self, scene: Scene, lines: int) -> None:
        """Opens the window, large enough for a scene and some lines below it."""
        pygame = self._pygame
        size = (640, 320) if isinstance(scene, str) else window_size(scene.shape)
        self._surface = pygame.display.set_mode(
            (max(size[0], 480), size[1] + lines * _LINE + _MARGIN), pygame.RESIZABLE
        )
        pygame.display.set_caption(self._title)
        if self._repeats:
            pygame.key.set_repeat(*_REPEAT)
        self._font = pygame.font.Font(None, _TEXT_SIZE)

    def _write(self, lines: Sequence[str], left: int, top: int) -> int:
        """Writes lines below each other; returns their width."""
        widest = 0
        for number, text in enumerate(lines):
            # The font has neither arrows nor colours.
            plain = _ESCAPES.sub("", text).translate(_WITHOUT_ARROWS)
            drawn = self._font.render(plain, True, _INK)
            self._surface.blit(drawn, (left, top + number * _LINE))
            widest = max(widest, drawn.get_width())
        return widest


@contextlib.contextmanager
def open_window(title: str, *, repeats: bool, seen: bool = True) -> Iterator[Window]:
    """Opens a window, and always closes it.

    Args:
        title: The title of the window.
        repeats: Whether a held key repeats.
        seen: Whether it needs a display; if not, nothing is shown.
    """
    pygame = open_display(
        "A window to play in", instead="--terminal plays in the terminal.", seen=seen
    )
    try:
        pygame.font.init()
        yield Window(pygame, title, repeats=repeats)
    finally:
        pygame.display.quit()


def display_is_taken() -> bool:
    """True if an environment draws on pygame's display, as PLE's games do."""
    return surface() is not None
