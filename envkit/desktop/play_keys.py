"""Translates between the keys of `envkit play` and those of screens.

`ProgramKeys` lets `envkit play` type into the program of a `Desktop`; `KeyboardActions`
lets a VNC viewer play an environment with the keys of `envkit play`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit._shared.actions_and_rewards import nearest_to_zero
from envkit.desktop.actions import Controls, InputState
from envkit.desktop.keys import Event, KeyEvent, PointerEvent, key_name, keysym
from envkit.desktop.pending_events import PendingEvents
from envkit.play.key_map import KeyMap, key_map
from envkit.play.keys import Pointed, key_text
from envkit.play.pointer import ActionPointer
from envkit.play.pressed_keys import PressedKeys
from envkit.types import NestedArray

__all__ = ["KeyChanges", "KeyboardActions", "ProgramKeys", "encoding_of", "play_name"]

# Keys whose names in `envkit play` differ from those in X11.
_PLAY_NAMES = {"return": "enter", "escape": "esc"}
# This key ends the game; the program has all others.
_QUIT = "esc"
# More keys than this share one line of the table.
_FEW = 20


class KeyChanges:
    """Turns a viewer's events into presses and releases of keys of `envkit play`.

    The left pointer button is the space bar if `has_space` is true.
    """

    def __init__(self, *, has_space: bool = True) -> None:
        """Starts with no button down."""
        self.buttons = 0
        self._has_space = has_space

    def of(self, event: Event) -> tuple[str, bool] | None:
        """Returns the key that changed, and whether it is down; `None` if none did."""
        if isinstance(event, KeyEvent):
            return play_name(event.key), event.down
        changed, self.buttons = event.buttons ^ self.buttons, event.buttons
        is_space = self._has_space and changed & 1
        return ("space", bool(event.buttons & 1)) if is_space else None


def play_name(key: int) -> str:
    """Returns the name of a key in `envkit play`."""
    name = key_name(key).lower().removeprefix("kp_")
    return {**_PLAY_NAMES, "minus": "-", "plus": "+"}.get(name, name)


class KeyboardActions:
    """Plays any environment with a viewer's events, by the keys of `envkit play`.

    If actions have a pointer (`ActionPointer`), it follows the viewer's pointer until
    the episode ends; a key that is down takes precedence.

    Attributes:
        keys: The keys of the environment's actions.

    Example:
        >>> from envkit import make
        >>> from envkit.desktop import keysym
        >>> actions = KeyboardActions(make("Catch"))
        >>> actions.array([KeyEvent(keysym("Right"), True)]), actions.array([])
        (array(2), array(2))
        >>> actions.array([KeyEvent(keysym("Right"), False)]), actions.array([])
        (array(2), array(1))
    """

    def __init__(
        self, env: Any, size: Callable[[], tuple[int, int]] | None = None
    ) -> None:
        """Finds the keys of an environment.

        Args:
            env: The environment.
            size: A function that returns the width and height of the picture under the
                pointer; `None` ignores the pointer.

        Raises:
            ValueError: Keys cannot express the environment's actions.
        """
        self.keys: KeyMap = key_map(env)
        pointer = None if size is None else ActionPointer.of(env.action_spec())
        self._pointer, self._size = pointer, size
        # The pointer on the picture; `None` before it has moved.
        self._pointing: Controls | None = None
        has_space = pointer is None or not pointer.buttons
        self._down, self._changes = PressedKeys(), KeyChanges(has_space=has_space)
        self._last = nearest_to_zero(env.action_spec())

    def begin(self) -> list[Event]:
        """Starts an episode: forgets the keys that are down, and the pointer."""
        self._down.clear()
        self._changes.buttons = 0
        self._pointing = None
        return []

    def pressed(self, events: Iterable[Event]) -> NestedArray:
        """Returns the action for the keys that are down; `None` if there is none."""
        keys = self._tick(events)
        return self.keys.action(keys) if keys else None

    def _tick(self, events: Iterable[Event]) -> list[str]:
        """Returns the keys that count in a tick with these events."""
        for event in events:
            change = self._changes.of(event)
            if change is not None:
                name, is_down = change
                (self._down.press if is_down else self._down.release)(name)
        return self._down.tick()

    def fitting(self, events: Sequence[Event]) -> int:
        """Returns how many of the oldest events fit into one action.

        A key waits for the next action if the keys pressed before it would not count
        beside it, or have been released.
        """
        down, changes = set(self._down.down), copy.copy(self._changes)
        pressed: list[str] = []
        is_over = False
        for count, event in enumerate(events):
            name, is_down = changes.of(event) or ("", False)
            if not is_down:
                is_over |= name in pressed
                down.discard(name)
            elif name not in down and self.keys.knows(name):
                if pressed and (is_over or not self._adds(pressed, name)):
                    return count
                pressed.append(name)
                down.add(name)
        return len(events)

    def _adds(self, pressed: list[str], name: str) -> bool:
        """Returns True if holding all keys together loses none of their meanings."""
        # Asking another kind of map may change it.
        if not isinstance(self.keys, KeyMap):
            return False
        together = [*pressed, name]
        action = self.keys.action(together)
        without = ([key for key in together if key != one] for one in together)
        return action is not None and not any(
            _is_same(action, self.keys.action(others)) for others in without
        )

    def array(self, events: Iterable[Event]) -> NestedArray:
        """Returns the action for a tick with these events.

        If no key with an action is down, it is the action for no key, or else the last
        action again.
        """
        events = list(events)
        keys = self._tick(events)
        action = self.keys.action(keys) if keys else None
        if action is None:
            action = self.keys.idle_action()
        if action is not None:
            self._last = action
        return self._pointed(self._last, events, keys)

    def _pointed(
        self, action: NestedArray, events: Sequence[Event], keys: Sequence[str]
    ) -> NestedArray:
        """Returns an action with the viewer's pointer."""
        pointer = self._pointer
        if pointer is None or self._size is None:
            return action
        moves = [event for event in events if isinstance(event, PointerEvent)]
        if self._pointing is None:
            if not moves:
                return action
            self._pointing = Controls(size=self._size(), pointer=True, buttons=5)
        seen = self._pointing.array(moves)
        x, y = map(float, seen["pointer"])
        buttons = sum(int(flag) << bit for bit, flag in enumerate(seen["buttons"]))
        # Another kind of map does not say which axes its keys set.
        axes = self.keys.axes(keys) if isinstance(self.keys, KeyMap) else set()
        place = (x, y) if axes.isdisjoint(pointer.place) else None
        return pointer.pointed(action, place, buttons)


def encoding_of(env: Any) -> Any:
    """Returns a copy of a desktop's action encoding; `None` for other environments.

    The original tracks the keys that the environment holds.
    """
    found = getattr(env, "actions", None)
    is_encoding = hasattr(found, "array") and hasattr(found, "begin")
    return copy.deepcopy(found) if is_encoding else None


def _is_same(action: NestedArray, other: NestedArray) -> bool:
    if other is None:
        return False
    leaves = zip(nest.flatten(action), nest.flatten(other), strict=True)
    return all(np.array_equal(leaf, its) for leaf, its in leaves)


class ProgramKeys:
    """Passes the keys of `envkit play` on to a program unchanged.

    It replaces an `envkit.play.key_map.KeyMap`, and adds a pointer for players who see
    the screen in a window.

    Attributes:
        keys: The names of the keys.
        has_idle: True: there is an action for no key.
        pace: The default number of steps per second.

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
        """Names the keys of an action encoding, for a screen of this size."""
        self._actions = actions
        self._size = size
        self._pending = PendingEvents()
        self._keysyms: dict[str, int] = {}
        for key in map(keysym, keys):
            name = key_name(key).lower()
            # Players' keys are lower case, so a letter wins over its capital.
            self._keysyms.setdefault(_PLAY_NAMES.get(name, name), key)
            plain = key_name(key)
            if len(plain) == 1 and plain.islower():
                self._keysyms[plain] = key
        self._keysyms.pop(_QUIT, None)
        self.keys = frozenset(self._keysyms)
        self._held = InputState()
        # The buttons that the last action pressed or held, and those that are down.
        self._clicked = self._buttons = 0

    def action(self, pressed: Sequence[str]) -> NestedArray:
        """Returns the action for keys held together; `None` if there is none."""
        down = [self._keysyms[key] for key in pressed if key in self._keysyms]
        return self._action_of(down) if down else None

    def idle_action(self) -> NestedArray:
        """Returns the action for no key."""
        return self._action_of([])

    def release(self, down: Sequence[str]) -> NestedArray:
        """Returns the action that releases the keys and buttons no longer held.

        It is `None` if the program holds no others.
        """
        kept = [self._keysyms[key] for key in down if key in self._keysyms]
        is_due = (
            not self._held.keys.keys() <= set(kept)
            or self._clicked & ~self._buttons
            or self._pending.has_release()
        )
        return self._action_of(kept) if is_due else None

    def point(self, pointed: Sequence[Pointed]) -> None:
        """Adds moves and clicks of the pointer to the next action."""
        if self._size is None:
            return
        width, height = self._size
        for x, y, down in pointed:
            place = int(x * (width - 1) + 0.5), int(y * (height - 1) + 0.5)
            self._pending.put(PointerEvent(*place, down))
            self._buttons = down

    def knows(self, key: str) -> bool:
        """Returns True if a key is one of the program's."""
        return key in self._keysyms

    def table(self) -> list[tuple[str, str]]:
        """Returns the keys and their meanings, as text for people."""
        rows = [(key_text(key), "is pressed in the program") for key in self._keysyms]
        if len(rows) > _FEW:
            rows = [("a b c …", "are pressed in the program")]
        if self._size is not None:
            rows.append(("pointer", "is the program's, in a window"))
        return rows

    def _action_of(self, down: list[int]) -> NestedArray:
        for event in self._held.hold(down):
            self._pending.put(event)
        # Keys pressed together become one action, if the encoding has no limit.
        most = getattr(self._actions, "limit", None)
        events = self._pending.pop(most)
        self._clicked = self._buttons
        for event in events:
            if isinstance(event, PointerEvent):
                self._clicked |= event.buttons
        return self._actions.array(events)
