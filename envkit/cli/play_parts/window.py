"""`Window`: a window of pygame that shows pictures, and tells keys."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from envkit.cli.play_parts.key_names import NAMED, as_key
from envkit.cli.play_parts.scene import Scene
from envkit.cli.play_parts.text_columns import columns_of
from envkit.window import (
    BACKGROUND,
    draw_picture,
    open_display,
    surface,
    window_size,
)

__all__ = ["Pressed", "Window", "display_is_taken", "open_window"]

_TEXT_SIZE = 18
_LINE = 22
_MARGIN = 8
_WITHOUT_ARROWS = str.maketrans(
    {"←": "left", "→": "right", "↑": "up", "↓": "down", "…": "..."}
)
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_INK = (220, 220, 220)
# Held keys come again, in milliseconds: after the first, and after each other.
_REPEAT = 250, 60
_WAIT = 200  # no longer, in milliseconds, so that Ctrl-C is noticed


class Pressed(NamedTuple):
    """What has come from the keyboard.

    Attributes:
        chords: For each key that went down, all that were down with it, it last.
        down: The keys that are down now.
        closed: Whether the window has been closed.
    """

    chords: list[tuple[str, ...]]
    down: tuple[str, ...]
    closed: bool


class Window:
    """Shows a scene with lines of text below, and reads keys."""

    def __init__(self, pygame: Any, title: str, *, repeats: bool) -> None:
        """Prepares a window, which opens with the first scene.

        Args:
            pygame: The library.
            title: What stands above it.
            repeats: Whether a key that is held comes again and again.
        """
        self._pygame, self._title = pygame, title
        self._repeats = repeats
        self._surface: Any = None
        self._font: Any = None
        self._names: dict[int, str] = {}
        self._down: list[str] = []
        self._clock = pygame.time.Clock()

    def show(self, scene: Scene, *lines: str) -> None:
        """Shows a picture, or text, and what is to be read below."""
        pygame = self._pygame
        if self._surface is None:
            self.open(scene, len(lines))
        room = self._surface.get_height() - len(lines) * _LINE - _MARGIN
        self._surface.fill(BACKGROUND)
        if isinstance(scene, str):
            left = _MARGIN
            for column in columns_of(scene, (room - _MARGIN) // _LINE):
                left += self._write(column, left, _MARGIN) + 2 * _LINE
        else:
            draw_picture(pygame, self._surface, scene, room)
        self._write(lines, _MARGIN, room + _MARGIN // 2)
        pygame.display.flip()

    def wait(self) -> Pressed:
        """Waits a while for keys."""
        first = self._pygame.event.wait(_WAIT)
        events = [] if first.type == self._pygame.NOEVENT else [first]
        return self._read([*events, *self._pygame.event.get()])

    def tick(self, fps: float) -> Pressed:
        """Waits until it is time for the next step; returns the keys until then."""
        self._clock.tick(fps)
        return self._read(self._pygame.event.get())

    def press(self, chords: Sequence[Sequence[str]]) -> None:
        """Presses keys, as if somebody did, and closes the window."""
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
        chords, closed = [], False
        for event in events:
            if event.type == pygame.QUIT:
                closed = True
            elif event.type == pygame.KEYDOWN:
                key = self._name(event)
                self._names[event.key] = key
                self._down = [*(other for other in self._down if other != key), key]
                chords.append(tuple(self._down))
            elif event.type == pygame.KEYUP:
                key = self._names.pop(event.key, "")
                self._down = [other for other in self._down if other != key]
            elif event.type == pygame.WINDOWFOCUSLOST:
                self._down = []  # Nobody will tell when they are let go of.
        return Pressed(chords, tuple(self._down), closed)

    def _name(self, event: Any) -> str:
        typed = getattr(event, "unicode", "")
        if typed.isprintable() and typed.strip():
            return as_key(typed)
        name: str = self._pygame.key.name(event.key)
        return {"return": "enter", "escape": "esc"}.get(name, name)

    def open(self, scene: Scene, lines: int) -> None:
        """Opens it, large enough for a scene and so many lines below."""
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
        """Writes lines below one another; returns how wide they are."""
        widest = 0
        for number, text in enumerate(lines):
            # The font has no arrows, nor colours.
            plain = _ESCAPES.sub("", text).translate(_WITHOUT_ARROWS)
            drawn = self._font.render(plain, True, _INK)
            self._surface.blit(drawn, (left, top + number * _LINE))
            widest = max(widest, drawn.get_width())
        return widest


@contextlib.contextmanager
def open_window(title: str, *, repeats: bool, seen: bool = True) -> Iterator[Window]:
    """Gives a window, and closes it, whatever happens.

    Args:
        title: What stands above it.
        repeats: Whether a key that is held comes again and again.
        seen: Whether somebody is to see it. Without a display nobody does.
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
    """Says whether an environment draws on pygame's display, as games of PLE do."""
    return surface() is not None
