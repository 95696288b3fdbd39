"""`ProgramKeys`: what a player types and points at goes to the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envkit.desktop.human import PendingEvents
from envkit.desktop.keys import KeyEvent, PointerEvent, key_name, keysym
from envkit.play.key_map import Pointed, key_text
from envkit.types import NestedArray

__all__ = ["ProgramKeys"]

# It stays the key that ends the game, as the program's keys are all others.
_QUIT = "esc"
_NAMES = {"return": "enter", "escape": "esc"}


class ProgramKeys:
    """The keys of a program, for `envkit play`: each is itself.

    It replaces an `envkit.play.key_map.KeyMap`, and adds a pointer for players who see
    the screen in a window.

    Attributes:
        keys: The names of the keys.
        has_idle: True: there is an action for no key.
        pace: The steps in a second unless the player says so.

    Example:
        >>> from envkit.desktop import Controls
        >>> typed = ProgramKeys(Controls(["Left", "space"]), ["Left", "space"])
        >>> typed.action(["left"])["keys"].tolist()
        [True, False]
        >>> typed.idle_action()["keys"].tolist(), typed.action(["x"])
        ([False, False], None)
    """

    has_idle = True
    pace = 30.0

    def __init__(
        self,
        actions: Any,
        keys: Sequence[str | int],
        size: tuple[int, int] | None = None,
    ) -> None:
        """Takes an encoding of actions, its keys, and the size of the screen."""
        self._actions = actions
        self._size = size
        self._pending = PendingEvents()
        self._keysyms: dict[str, int] = {}
        for key in map(keysym, keys):
            name = key_name(key).lower()
            # Players' keys are lower case, so the first one is the plain one.
            self._keysyms.setdefault(_NAMES.get(name, name), key)
            plain = key_name(key)
            if len(plain) == 1 and plain.islower():
                self._keysyms[plain] = key
        self._keysyms.pop(_QUIT, None)
        self.keys = frozenset(self._keysyms)
        self._down: list[int] = []

    def action(self, pressed: Sequence[str]) -> NestedArray:
        """Returns the action of keys that are down together; `None` for none."""
        down = [self._keysyms[key] for key in pressed if key in self._keysyms]
        return self._held(down) if down else None

    def idle_action(self) -> NestedArray:
        """Returns the action for no key at all."""
        return self._held([])

    def point(self, pointed: Sequence[Pointed]) -> None:
        """Takes what the pointer did, for the next action."""
        if self._size is None:
            return
        width, height = self._size
        for x, y, down in pointed:
            place = int(x * (width - 1) + 0.5), int(y * (height - 1) + 0.5)
            self._pending.put(PointerEvent(*place, down))

    def knows(self, key: str) -> bool:
        """True if a key is one of the program's."""
        return key in self._keysyms

    def table(self) -> list[tuple[str, str]]:
        """Returns the keys, for people."""
        rows = [(key_text(key), "is pressed in the program") for key in self._keysyms]
        if len(rows) > _FEW:
            rows = [("a b c …", "are pressed in the program")]
        if self._size is not None:
            rows.append(("pointer", "is that of the program, in a window"))
        return rows

    def _held(self, down: list[int]) -> NestedArray:
        for key in self._down:
            if key not in down:
                self._pending.put(KeyEvent(key, False))
        for key in down:
            if key not in self._down:
                self._pending.put(KeyEvent(key, True))
        self._down = down
        return self._actions.array(
            self._pending.pop(getattr(self._actions, "limit", None))
        )


_FEW = 20
