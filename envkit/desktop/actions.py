"""Encodings of actions: arrays to keys and pointer events, and back.

Each class has the specs of an action, turns an action into events, and turns a person's
events into the closest action, so that demonstrations can be recorded. It keeps track
of the keys and buttons that are down, so that a new episode begins with none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from envkit.desktop.keys import (
    MODIFIERS,
    Event,
    KeyEvent,
    PointerEvent,
    chord,
    key_name,
    keysym,
    keysyms,
)
from envkit.extend import checked_size, describe
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.types import Array, NestedArray, NestedSpec

__all__ = [
    "Actions",
    "ClickGrid",
    "Controls",
    "Events",
    "InputState",
    "Joystick",
    "Macros",
    "Together",
    "checked_screen",
    "fitting",
]

# A screen's width and height in pixels.
Size = tuple[int, int]

_BUTTONS = {"left": 1, "middle": 2, "right": 3, "wheel up": 4, "wheel down": 5}


class Actions(Protocol):
    """An encoding of actions with keys and a pointer.

    It may also have a method `fitting(events)`, which returns how many of the oldest
    events one action can do without losing any or their order; the others are then for
    the next action.
    """

    def spec(self) -> NestedSpec:
        """Returns the specs of an action."""

    def begin(self) -> list[Event]:
        """Forgets the episode, and returns the events that release everything."""

    def events(self, action: NestedArray) -> list[Event]:
        """Returns the events of an action."""

    def array(self, events: Iterable[Event]) -> NestedArray:
        """Returns the action closest to what a person did in a step."""


def fitting(actions: Any, events: Sequence[Event]) -> int:
    """Returns how many of the oldest events one action of an encoding can do.

    That is all of them unless the encoding has a method `fitting`.

    Example:
        >>> from envkit.desktop.keys import KeyEvent, keysym
        >>> typed = [KeyEvent(keysym(key), True) for key in ("shift", "b", "a")]
        >>> fitting(Controls(["a", "b", "shift"]), typed)
        2
    """
    own = getattr(actions, "fitting", None)
    if own is not None:
        return int(own(events))
    return len(events)


class InputState:
    """Which keys and buttons are down, and where the pointer is."""

    def __init__(self, size: Size | None = None) -> None:
        self.keys: dict[int, None] = {}
        self.buttons = 0
        # In the middle, unless it has been anywhere.
        self.x, self.y = (size[0] // 2, size[1] // 2) if size else (0, 0)

    def hold(self, keys: Sequence[int]) -> list[Event]:
        """Returns the events after which these keys are down, and no others."""
        wanted = dict.fromkeys(sorted(keys, key=lambda key: key not in MODIFIERS))
        up = [key for key in self.keys if key not in wanted]
        up.sort(key=lambda key: key in MODIFIERS)
        down = [key for key in wanted if key not in self.keys]
        self.keys = wanted
        return [
            *(KeyEvent(key, False) for key in up),
            *(KeyEvent(key, True) for key in down),
        ]

    def point(self, x: int, y: int, buttons: int) -> list[Event]:
        """Returns the event after which the pointer is there with these buttons."""
        if (x, y, buttons) == (self.x, self.y, self.buttons):
            return []
        self.x, self.y, self.buttons = x, y, buttons
        return [PointerEvent(x, y, buttons)]

    def release(self) -> list[Event]:
        """Returns the events that release everything."""
        return [*self.hold(()), *self.point(self.x, self.y, 0)]

    def apply(self, event: Event) -> None:
        """Applies an event that is sent, or that a person has made."""
        if isinstance(event, PointerEvent):
            self.x, self.y, self.buttons = event
        elif event.down:
            self.keys[event.key] = None
        else:
            self.keys.pop(event.key, None)

    def fitting(self, events: Sequence[Event]) -> int:
        """Returns how many of the oldest events an action can do that holds keys.

        Such an action lets go of a key, presses a modifier, presses a key, moves the
        pointer and changes its buttons, in this order. A key goes up and down again in
        two actions, because one would not show that.
        """
        down, last = set(self.keys), -1
        released: set[int] = set()
        for count, event in enumerate(events):
            if isinstance(event, PointerEvent):
                if event.buttons != self.buttons:
                    return count + 1
                last = _POINTER
                continue
            if event.down == (event.key in down):
                continue  # It repeats, or was not down.
            place = _RELEASE
            if event.down:
                place = _MODIFIER if event.key in MODIFIERS else _PRESS
            if place <= last or event.key in released:
                return count
            last = place
            if event.down:
                down.add(event.key)
            else:
                down.discard(event.key)
                released.add(event.key)
        return len(events)


# The order in which an action that says what is held changes that.
_RELEASE, _MODIFIER, _PRESS, _POINTER = range(4)


class Controls:
    """Keys, a pointer and buttons that are held as long as the action says so.

    An action has a flag for each key, the pointer's place from -1 (left, top) to 1, and
    a flag for each button. What differs from the action before becomes events, so a
    held key is one bit, and a lost event cannot stick.

    | leaf        | spec                        | if                                 |
    |-------------|-----------------------------|------------------------------------|
    | `"keys"`    | `bool[n]`                   | there are `keys`                   |
    | `"pointer"` | `float32[2]` from -1 to 1   | `pointer` is true                  |
    | `"buttons"` | `bool[n]`                   | there are `buttons`                |

    Attributes:
        keys: The keys that there are, as keysyms.

    Example:
        >>> import numpy as np
        >>> controls = Controls(["Left", "space"], size=(640, 480), pointer=True)
        >>> action = {"keys": np.array([True, False]), "pointer": np.zeros(2)}
        >>> controls.events(action)
        [KeyEvent(key=65361, down=True)]
        >>> controls.events({**action, "pointer": np.array([1.0, -1.0])})
        [PointerEvent(x=639, y=0, buttons=0)]
        >>> controls.begin()
        [KeyEvent(key=65361, down=False)]
    """

    def __init__(
        self,
        keys: Sequence[str | int] = (),
        *,
        size: Size | None = None,
        pointer: bool = False,
        buttons: int = 0,
    ) -> None:
        """Chooses the controls.

        Args:
            keys: The keys, by name.
            size: The width and height of the screen, for the pointer.
            pointer: Whether there is one.
            buttons: How many of its buttons: 1 for the left one, 3 for the middle and
                the right one, too, 5 for the wheel.
        """
        self.keys = keysyms(keys)
        self._buttons = _checked_buttons(buttons)
        self._has_pointer = bool(pointer)
        needs_size = self._has_pointer or self._buttons
        if not self.keys and not needs_size:
            raise ValueError("Controls must have keys, a pointer or buttons; got none.")
        self._size = checked_screen(size) if needs_size else (1, 1)
        self._held, self._seen = InputState(self._size), InputState(self._size)

    def spec(self) -> dict[str, ArraySpec]:
        """Returns the specs of an action: a dictionary of the leaves that there are."""
        specs: dict[str, ArraySpec] = {}
        if self.keys:
            specs["keys"] = ArraySpec((len(self.keys),), np.bool_, "keys")
        if self._has_pointer:
            specs["pointer"] = BoundedArraySpec((2,), np.float32, -1.0, 1.0, "pointer")
        if self._buttons:
            specs["buttons"] = ArraySpec((self._buttons,), np.bool_, "buttons")
        return specs

    def begin(self) -> list[Event]:
        """Forgets the episode, and returns the events that release everything."""
        self._seen = InputState(self._size)
        return self._held.release()

    def events(self, action: Any) -> list[Event]:
        """Returns the events that lead from the action before to this one."""
        # Hot: called once per step.
        held = self._held
        events: list[Event] = []
        if self.keys:
            flags = np.asarray(action["keys"]).tolist()
            down = [key for key, flag in zip(self.keys, flags, strict=True) if flag]
            events = held.hold(down)
        x, y, buttons = held.x, held.y, 0
        if self._has_pointer:
            x, y = _pixels(action["pointer"], self._size)
        if self._buttons:
            buttons = _mask_of(action["buttons"])
        return events + held.point(x, y, buttons)

    def fitting(self, events: Sequence[Event]) -> int:
        """Returns how many of the oldest events one action can do in their order."""
        return self._seen.fitting(events)

    def array(self, events: Iterable[Event]) -> dict[str, Array]:
        """Returns the action of a step in which a person did this.

        A key or button that went down counts as held, also if it is up again by the
        end; then it is up in the next step. The pointer is where a button has gone down
        or up, and in the next step where it has gone from there.
        """
        seen = self._seen
        keys, buttons = set(seen.keys), seen.buttons
        down, up = set(keys), buttons
        place: tuple[int, int] | None = None
        is_press = False
        for event in events:
            before = seen.buttons
            seen.apply(event)
            down |= set(seen.keys)
            up |= seen.buttons
            presses = bool(seen.buttons & ~before)
            if presses or (seen.buttons != before and not is_press):
                place, is_press = (seen.x, seen.y), presses
        # A key that was held before and has been let go of is not held in this step.
        pressed = set(seen.keys) | (down - keys)
        mask = seen.buttons | (up & ~buttons)
        action: dict[str, Array] = {}
        if self.keys:
            action["keys"] = np.array([key in pressed for key in self.keys])
        if self._has_pointer:
            x, y = (seen.x, seen.y) if place is None else place
            action["pointer"] = _fractions(x, y, self._size)
        if self._buttons:
            action["buttons"] = _flags_of(mask, self._buttons)
        return action


class Events:
    """A few events in each action, one after the other, as they are.

    Each leaf has `limit` elements, of which those with kind 0 do nothing.

    | leaf        | spec                                                          |
    |-------------|---------------------------------------------------------------|
    | `"kind"`    | `int32`: 0 for nothing, 1 for a key, 2 for the pointer        |
    | `"key"`     | `int32`: which of `keys`                                      |
    | `"down"`    | `bool`: whether that goes down                                |
    | `"pointer"` | `int32[limit, 2]`: x and y in pixels                          |
    | `"buttons"` | `int32`: the buttons that are down, as bits                   |

    Attributes:
        keys: The keys that there are, as keysyms.
        limit: The most events of a step.

    Example:
        >>> from envkit.desktop.keys import KeyEvent, PointerEvent, keysym
        >>> encoding = Events(["a", "b"], size=(640, 480), limit=3)
        >>> action = encoding.array([KeyEvent(keysym("b"), True), PointerEvent(5, 6)])
        >>> action["kind"].tolist(), action["key"].tolist()
        ([1, 2, 0], [1, 0, 0])
        >>> encoding.events(action)
        [KeyEvent(key=98, down=True), PointerEvent(x=5, y=6, buttons=0)]
    """

    def __init__(
        self,
        keys: Sequence[str | int] = (),
        *,
        size: Size,
        limit: int = 4,
        buttons: int = 3,
    ) -> None:
        """Chooses what events there are.

        Args:
            keys: The keys, by name.
            size: The width and height of the screen.
            limit: The most events of a step.
            buttons: How many buttons the pointer has.
        """
        self.keys = keysyms(keys)
        self._size = checked_screen(size)
        self.limit = checked_size("limit", limit)
        self._buttons = _checked_buttons(buttons)
        self._held = InputState(self._size)
        # The buttons that a person holds.
        self._down = 0

    def spec(self) -> dict[str, ArraySpec]:
        """Returns the specs of an action."""
        n = self.limit
        width, height = self._size
        corner = np.array([width - 1, height - 1], np.int32)
        return {
            "kind": BoundedArraySpec((n,), np.int32, 0, 2, "kind"),
            "key": BoundedArraySpec(
                (n,), np.int32, 0, max(len(self.keys) - 1, 0), "key"
            ),
            "down": ArraySpec((n,), np.bool_, "down"),
            "pointer": BoundedArraySpec((n, 2), np.int32, 0, corner, "pointer"),
            "buttons": BoundedArraySpec(
                (n,), np.int32, 0, (1 << self._buttons) - 1, "buttons"
            ),
        }

    def begin(self) -> list[Event]:
        """Forgets the episode, and returns the events that release everything."""
        self._down = 0
        return self._held.release()

    def events(self, action: Any) -> list[Event]:
        """Returns the events of an action."""
        # Hot: called once per step.
        events: list[Event] = []
        columns = (action["kind"], action["key"], action["down"], action["pointer"])
        rows = zip(*map(_plain, (*columns, action["buttons"])), strict=True)
        for kind, key, down, (x, y), buttons in rows:
            if kind == 2:
                events.append(PointerEvent(x, y, buttons))
            elif kind == 1 and self.keys:
                events.append(KeyEvent(self.keys[key], bool(down)))
        for event in events:
            self._held.apply(event)
        return events

    def fitting(self, events: Sequence[Event]) -> int:
        """Returns how many of the oldest events one action can do: `limit` at most."""
        return min(len(events), self.limit)

    def array(self, events: Iterable[Event]) -> dict[str, Array]:
        """Returns the action that has these events.

        Moves of the pointer that another move follows at once are left out, and keys
        that are none of `keys`.

        Raises:
            ValueError: There are more of them than an action has.
        """
        kept: list[Event] = []
        is_move = False
        for event in events:
            if isinstance(event, KeyEvent) and event.key not in self.keys:
                continue
            was_move = is_move
            is_move = isinstance(event, PointerEvent) and event.buttons == self._down
            if was_move and is_move:
                kept[-1] = event
            else:
                kept.append(event)
            if isinstance(event, PointerEvent):
                self._down = event.buttons
        if len(kept) > self.limit:
            raise ValueError(
                f"An action must have at most {self.limit} events, got {len(kept)} in "
                "one step. Make Events with a larger limit."
            )
        action = {
            name: np.zeros(spec.shape, spec.dtype) for name, spec in self.spec().items()
        }
        for place, event in enumerate(kept):
            if isinstance(event, PointerEvent):
                action["kind"][place] = 2
                action["pointer"][place] = np.clip(
                    (event.x, event.y), 0, np.array(self._size) - 1
                )
                action["buttons"][place] = event.buttons & (1 << self._buttons) - 1
            else:
                action["kind"][place] = 1
                action["key"][place] = self.keys.index(event.key)
                action["down"][place] = event.down
        return action


class Macros:
    """A menu: each action is the number of an entry.

    | an entry                    | does                                               |
    |-----------------------------|----------------------------------------------------|
    | `None`                      | nothing: no key is down                            |
    | `"Left"`, `"ctrl-t"`        | its keys are down until the next action            |
    | a list of events and names  | each event, and each chord down and up at once     |

    Example:
        >>> menu = Macros([None, "Left", "ctrl-t"])
        >>> menu.spec().maximum.tolist()
        2
        >>> menu.events(1), menu.events(1)
        ([KeyEvent(key=65361, down=True)], [])
        >>> len(menu.events(2))
        3
    """

    def __init__(self, menu: Sequence[Any]) -> None:
        """Takes the entries."""
        if isinstance(menu, str) or not menu:
            raise ValueError(
                f"menu must be a list of at least one entry, got {describe(menu)}."
            )
        self._menu = [_entry(entry) for entry in menu]
        self._held, self._seen = InputState(), InputState()

    def spec(self) -> BoundedArraySpec:
        """Returns the spec of an action: the number of an entry."""
        return BoundedArraySpec((), np.int64, 0, len(self._menu) - 1, "macro")

    def begin(self) -> list[Event]:
        """Forgets the episode, and returns the events that release everything."""
        self._seen = InputState()
        return self._held.release()

    def events(self, action: Any) -> list[Event]:
        """Returns the events of an action."""
        # Hot: called once per step.
        keys, once = self._menu[int(action)]
        events = self._held.hold(keys)
        if once:
            for event in once:
                self._held.apply(event)
            events += once
        return events

    def fitting(self, events: Sequence[Event]) -> int:
        """Returns how many of the oldest events one action can do in their order.

        A list of events of the menu is done by one action, if it is there as a whole.
        """
        count = self._seen.fitting(events)
        for _, once in self._menu:
            place = _place_of(events, once) if once else None
            if place is not None and place[0] == 0:
                return place[1]
            if place is not None:
                count = min(count, place[0])
        return count

    def array(self, events: Iterable[Event]) -> Array:
        """Returns the entry whose keys are down, of several the one with most keys.

        Raises:
            ValueError: There is none, and no `None` either.
        """
        events = list(events)
        down = set(self._seen.keys)
        for event in events:
            self._seen.apply(event)
        down = set(self._seen.keys) | {
            event.key for event in events if isinstance(event, KeyEvent) and event.down
        }
        for place, (_, once) in enumerate(self._menu):
            if once and _place_of(events, once) is not None:
                return np.array(place, np.int64)
        fitting = [
            (len(keys), -place)
            for place, (keys, once) in enumerate(self._menu)
            if not once and down.issuperset(keys)
        ]
        if not fitting:
            names = ", ".join(map(key_name, down)) or "no key"
            raise ValueError(
                f"No entry of the menu stands for {names}. Put None into the menu, for "
                "steps in which nothing is done."
            )
        return np.array(-max(fitting)[1], np.int64)


class ClickGrid:
    """A grid of places to click at: 0 does nothing, the others are its cells.

    Cells are counted from the top left, row by row. Those with their middle in a region
    that is left out do not count.

    Example:
        >>> grid = ClickGrid((640, 480), rows=2, columns=2, without=[(0, 0, 320, 240)])
        >>> grid.spec().maximum.tolist(), grid.places
        (3, [(480, 120), (160, 360), (480, 360)])
        >>> grid.events(1)[1:]
        [PointerEvent(x=480, y=120, buttons=1), PointerEvent(x=480, y=120, buttons=0)]
    """

    def __init__(
        self,
        size: Size,
        *,
        rows: int,
        columns: int,
        button: str = "left",
        without: Sequence[tuple[int, int, int, int]] = (),
    ) -> None:
        """Chooses the grid.

        Args:
            size: The width and height of the screen.
            rows: How many rows of places.
            columns: How many columns.
            button: The button: "left", "middle", "right", "wheel up" or "wheel down".
            without: Regions that are not clicked at: left, top, width and height in
                pixels.
        """
        width, height = self._size = checked_screen(size)
        rows, columns = checked_size("rows", rows), checked_size("columns", columns)
        if button not in _BUTTONS:
            raise ValueError(
                f"button must be one of {', '.join(map(repr, _BUTTONS))}, got "
                f"{describe(button)}."
            )
        self._mask = 1 << _BUTTONS[button] - 1
        self._without = [tuple(region) for region in without]
        self._is_down = False
        self.places = [
            (x, y)
            for y in [(2 * row + 1) * height // (2 * rows) for row in range(rows)]
            for x in [(2 * col + 1) * width // (2 * columns) for col in range(columns)]
            if not self._is_left_out(x, y)
        ]
        if not self.places:
            raise ValueError("without leaves no place to click at.")

    def spec(self) -> BoundedArraySpec:
        """Returns the spec of an action: the number of a place."""
        return BoundedArraySpec((), np.int64, 0, len(self.places), "click")

    def begin(self) -> list[Event]:
        """Returns no event: no button is down between two actions."""
        self._is_down = False
        return []

    def events(self, action: Any) -> list[Event]:
        """Returns the events of an action: to the place, down, up."""
        place = int(action)
        if not place:
            return []
        x, y = self.places[place - 1]
        return [PointerEvent(x, y, buttons) for buttons in (0, self._mask, 0)]

    def fitting(self, events: Sequence[Event]) -> int:
        """Returns how many of the oldest events one action can do: up to a click."""
        is_down = self._is_down
        for count, event in enumerate(events):
            if isinstance(event, PointerEvent):
                if event.buttons & self._mask and not is_down:
                    return count + 1
                is_down = bool(event.buttons & self._mask)
        return len(events)

    def array(self, events: Iterable[Event]) -> Array:
        """Returns the place that is nearest to the last click, or 0.

        A click counts where and when the button goes down. In a region that is left out
        it does not count.
        """
        clicks = []
        for event in events:
            if isinstance(event, PointerEvent):
                is_down = bool(event.buttons & self._mask)
                if is_down and not self._is_down:
                    clicks.append((event.x, event.y))
                self._is_down = is_down
        if not clicks or self._is_left_out(*clicks[-1]):
            return np.array(0, np.int64)
        away = np.array(self.places) - np.array(clicks[-1])
        return np.array(1 + np.argmin((away**2).sum(axis=1)), np.int64)

    def _is_left_out(self, x: int, y: int) -> bool:
        return any(
            left <= x < left + width and top <= y < top + height
            for left, top, width, height in self._without
        )


class Joystick:
    """Two axes that move the pointer, and buttons that are held.

    `"axes"` has two numbers from -1 to 1, `"buttons"` a flag for each button.

    Example:
        >>> import numpy as np
        >>> stick = Joystick((640, 480), speed=20, buttons=1)
        >>> half = {"axes": np.array([0.5, 0.0]), "buttons": np.array([True])}
        >>> stick.events(half), stick.events(half)[0].x
        ([PointerEvent(x=330, y=240, buttons=1)], 340)
    """

    def __init__(self, size: Size, *, speed: float = 16.0, buttons: int = 0) -> None:
        """Chooses the stick.

        Args:
            size: The width and height of the screen.
            speed: By how many pixels an axis at 1 moves the pointer in a step.
            buttons: How many buttons there are.
        """
        self._size = checked_screen(size)
        if not speed > 0:
            raise ValueError(
                f"speed must be a positive number of pixels, got {describe(speed)}."
            )
        self._speed = float(speed)
        self._buttons = checked_size("buttons", buttons, least=0)
        self._held, self._seen = InputState(self._size), InputState(self._size)
        # The pointer in fractions of pixels: after actions, and after events.
        self._place = self._shown = np.array([self._held.x, self._held.y], float)

    def spec(self) -> dict[str, ArraySpec]:
        """Returns the specs of an action."""
        specs: dict[str, ArraySpec] = {}
        specs["axes"] = BoundedArraySpec((2,), np.float32, -1.0, 1.0, "axes")
        if self._buttons:
            specs["buttons"] = ArraySpec((self._buttons,), np.bool_, "buttons")
        return specs

    def begin(self) -> list[Event]:
        """Puts the pointer into the middle, with no button down."""
        self._seen = InputState(self._size)
        x, y = self._size[0] // 2, self._size[1] // 2
        self._place = self._shown = np.array([x, y], float)
        return self._held.point(x, y, 0)

    def events(self, action: Any) -> list[Event]:
        """Returns the events of an action."""
        # Hot: called once per step.
        self._place = self._moved(self._place, action["axes"])
        x, y = np.rint(self._place).astype(int).tolist()
        buttons = 0
        if self._buttons:
            buttons = _mask_of(action["buttons"])
        return self._held.point(x, y, buttons)

    def fitting(self, events: Sequence[Event]) -> int:
        """Returns how many of the oldest events one action can do in their order."""
        return self._seen.fitting(events)

    def array(self, events: Iterable[Event]) -> dict[str, Array]:
        """Returns the action that moves the pointer to where a person has moved it.

        Where that is too far for a step, the next ones go on.
        """
        seen = self._seen
        mask, pressed = seen.buttons, 0
        for event in events:
            seen.apply(event)
            pressed |= seen.buttons & ~mask
        away = (np.array([seen.x, seen.y]) - self._shown) / self._speed
        action = {"axes": np.clip(away, -1.0, 1.0).astype(np.float32)}
        self._shown = self._moved(self._shown, action["axes"])
        if self._buttons:
            action["buttons"] = _flags_of(seen.buttons | pressed, self._buttons)
        return action

    def _moved(self, place: Array, axes: Any) -> Array:
        """Returns where the pointer is after a step."""
        axes = np.clip(np.asarray(axes, float), -1.0, 1.0)
        highest = np.array(self._size) - 1
        moved: Array = np.clip(place + self._speed * axes, 0, highest)
        return moved


class Together:
    """Several encodings as one: an action has a part for each, by name.

    Example:
        >>> both = Together(
        ...     {
        ...         "keys": Macros([None, "Left"]),
        ...         "mouse": ClickGrid((64, 48), rows=2, columns=2),
        ...     }
        ... )
        >>> sorted(both.spec()), len(both.events({"keys": 1, "mouse": 4}))
        (['keys', 'mouse'], 4)
    """

    def __init__(self, parts: Mapping[str, Actions]) -> None:
        """Takes the encodings, by name."""
        if not isinstance(parts, Mapping) or not parts:
            raise TypeError(
                f"parts must be a dictionary of encodings, got {describe(parts)}."
            )
        self._parts = dict(parts)

    def spec(self) -> dict[str, NestedSpec]:
        """Returns the specs of an action, by part."""
        return {name: part.spec() for name, part in self._parts.items()}

    def begin(self) -> list[Event]:
        """Forgets the episode, and returns the events that release everything."""
        return [event for part in self._parts.values() for event in part.begin()]

    def events(self, action: Any) -> list[Event]:
        """Returns the events of an action, one part after the other."""
        return [
            event
            for name, part in self._parts.items()
            for event in part.events(action[name])
        ]

    def fitting(self, events: Sequence[Event]) -> int:
        """Returns how many of the oldest events one action can do in their order.

        They are of one kind, keys or the pointer, because parts act one after the other
        in an order of their own.
        """
        kinds = [isinstance(event, KeyEvent) for event in events]
        change = kinds.index(not kinds[0]) if len(set(kinds)) == 2 else len(kinds)
        return min(
            change, *(fitting(part, events[:change]) for part in self._parts.values())
        )

    def array(self, events: Iterable[Event]) -> dict[str, NestedArray]:
        """Returns the action of a step in which a person did this."""
        events = list(events)
        return {name: part.array(events) for name, part in self._parts.items()}


def _checked_buttons(buttons: Any) -> int:
    count = checked_size("buttons", buttons, least=0)
    if count > 8:
        raise ValueError(f"buttons must be at most 8, got {buttons}.")
    return count


def checked_screen(size: Any) -> Size:
    """Returns the width and height of a screen, or raises what they must be."""
    try:
        width, height = size
        return checked_size("width", width), checked_size("height", height)
    except (TypeError, ValueError):
        raise ValueError(
            "size must be the width and height of the screen in pixels, such as "
            f"(640, 480), got {size if _is_short(size) else describe(size)}."
        ) from None


def _is_short(size: Any) -> bool:
    return isinstance(size, tuple | list) and len(size) <= 2


def _pixels(fractions: Any, size: Size) -> tuple[int, int]:
    """Returns the pixel of a place from -1 to 1."""
    spans = np.array(size) - 1
    halves = (np.clip(np.asarray(fractions, float), -1.0, 1.0) + 1.0) / 2.0
    x, y = np.rint(halves * spans).astype(int).tolist()
    return x, y


def _fractions(x: int, y: int, size: Size) -> Array:
    """Returns the place from -1 to 1 of a pixel."""
    spans = np.maximum(np.array(size) - 1, 1)
    place: Array = np.clip(2.0 * np.array([x, y]) / spans - 1.0, -1.0, 1.0)
    return place.astype(np.float32)


def _mask_of(flags: Any) -> int:
    """Returns flags as the bits of a number."""
    return sum(1 << bit for bit, flag in enumerate(_plain(flags)) if flag)


def _flags_of(mask: int, count: int) -> Array:
    """Returns the lowest bits of a number as flags."""
    return np.array([bool(mask >> bit & 1) for bit in range(count)])


def _plain(value: Any) -> list[Any]:
    return np.asarray(value).tolist()  # type: ignore[no-any-return]


def _entry(entry: Any) -> tuple[list[int], list[Event]]:
    """Returns the keys that an entry of a menu holds, and the events it sends once."""
    if entry is None:
        return [], []
    if isinstance(entry, str):
        return chord(entry), []
    if isinstance(entry, int) and not isinstance(entry, bool):
        return [keysym(entry)], []
    if isinstance(entry, KeyEvent | PointerEvent):
        return [], [entry]
    if not isinstance(entry, Sequence):
        raise TypeError(
            "An entry of a menu must be None, a chord such as 'ctrl-t', or a list of "
            f"events and chords, got {describe(entry)}."
        )
    once: list[Event] = []
    for part in entry:
        keys, events = _entry(part)
        once += [KeyEvent(key, True) for key in keys]
        once += [KeyEvent(key, False) for key in reversed(keys)]
        once += events
    return [], once


def _place_of(events: Sequence[Event], part: list[Event]) -> tuple[int, int] | None:
    """Returns where a list of events begins and ends in another one.

    Others may be between them; `None` if it is not there.
    """
    places: list[int] = []
    for place, event in enumerate(events):
        if event == part[len(places)]:
            places.append(place)
            if len(places) == len(part):
                return places[0], place + 1
    return None
