"""Action encodings: from arrays to key and pointer events, and back.

An encoding defines the action spec, turns actions into events, and turns a person's
events into the closest action, so that people can record demonstrations. It tracks the
keys and buttons that are down, and releases them before the next episode.
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
    """Turns actions into key and pointer events, and back.

    An encoding may also have a method `fitting(events)`. It returns how many of the
    oldest events fit into one action without losing an event or changing the order; the
    rest waits for the next action.
    """

    def spec(self) -> NestedSpec:
        """Returns the action spec."""

    def begin(self) -> list[Event]:
        """Starts an episode: returns the events that release all keys and buttons."""

    def events(self, action: NestedArray) -> list[Event]:
        """Returns the events of an action."""

    def array(self, events: Iterable[Event]) -> NestedArray:
        """Returns the action closest to what a person did in one step."""


def fitting(actions: Any, events: Sequence[Event]) -> int:
    """Returns how many of the oldest events fit into one action of an encoding.

    All of them do, unless the encoding has a method `fitting`.

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
    """Tracks which keys and buttons are down, and where the pointer is."""

    def __init__(self, size: Size | None = None) -> None:
        self.keys: dict[int, None] = {}
        self.buttons = 0
        # The pointer starts in the middle.
        self.x, self.y = (size[0] // 2, size[1] // 2) if size else (0, 0)

    def hold(self, keys: Sequence[int]) -> list[Event]:
        """Returns the events that press these keys and release all others."""
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
        """Returns the event for this position and these buttons, if any changed."""
        if (x, y, buttons) == (self.x, self.y, self.buttons):
            return []
        self.x, self.y, self.buttons = x, y, buttons
        return [PointerEvent(x, y, buttons)]

    def release(self) -> list[Event]:
        """Returns the events that release all keys and buttons."""
        return [*self.hold(()), *self.point(self.x, self.y, 0)]

    def apply(self, event: Event) -> None:
        """Updates the state with an event."""
        if isinstance(event, PointerEvent):
            self.x, self.y, self.buttons = event
        elif event.down:
            self.keys[event.key] = None
        else:
            self.keys.pop(event.key, None)

    def fitting(self, events: Sequence[Event]) -> int:
        """Returns how many of the oldest events fit into one action that holds keys.

        Such an action releases a key, presses a modifier, presses a key, moves the
        pointer and changes its buttons, in this order. Releasing a key and pressing it
        again takes two actions, because in one it would seem to stay down.
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
                continue  # a repeated press, or a release without a press
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


# The order in which one action applies its changes.
_RELEASE, _MODIFIER, _PRESS, _POINTER = range(4)


class Controls:
    """Holds keys, a pointer and buttons for as long as the action says so.

    An action has a flag for each key, the pointer's position from -1 (left, top) to 1,
    and a flag for each button. Differences from the previous action become events, so a
    held key is one bit, and a lost event cannot leave a key stuck.

    | leaf        | spec                        | if                                 |
    |-------------|-----------------------------|------------------------------------|
    | `"keys"`    | `bool[n]`                   | `keys` is not empty                |
    | `"pointer"` | `float32[2]` from -1 to 1   | `pointer` is true                  |
    | `"buttons"` | `bool[n]`                   | `buttons` is above 0               |

    Attributes:
        keys: The keysyms of the keys.

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
            keys: The names of the keys.
            size: The width and height of the screen; a pointer or buttons need it.
            pointer: Whether actions move the pointer.
            buttons: The number of pointer buttons: 1 is the left one, 3 adds the middle
                and the right one, 5 adds the wheel.
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
        """Returns the action spec: a dictionary with the leaves in use."""
        specs: dict[str, ArraySpec] = {}
        if self.keys:
            specs["keys"] = ArraySpec((len(self.keys),), np.bool_, "keys")
        if self._has_pointer:
            specs["pointer"] = BoundedArraySpec((2,), np.float32, -1.0, 1.0, "pointer")
        if self._buttons:
            specs["buttons"] = ArraySpec((self._buttons,), np.bool_, "buttons")
        return specs

    def begin(self) -> list[Event]:
        """Starts an episode: returns the events that release all keys and buttons."""
        self._seen = InputState(self._size)
        return self._held.release()

    def events(self, action: Any) -> list[Event]:
        """Returns the events that lead from the previous action to this one."""
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
        """Returns how many of the oldest events fit into one action, in order."""
        return self._seen.fitting(events)

    def array(self, events: Iterable[Event]) -> dict[str, Array]:
        """Returns the action for what a person did in a step.

        A key or button that was pressed counts as held, even if it was released before
        the end of the step; the next action releases it. If a button was pressed or
        released, the pointer is where that happened, and the next action moves it on.
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
        # A key that was already held and is released in this step counts as up.
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
    """Sends the events that the action lists, one after the other.

    Each leaf has `limit` elements; elements of kind 0 do nothing.

    | leaf        | spec                                                          |
    |-------------|---------------------------------------------------------------|
    | `"kind"`    | `int32`: 0 for nothing, 1 for a key, 2 for the pointer        |
    | `"key"`     | `int32`: an index into `keys`                                 |
    | `"down"`    | `bool`: whether the key goes down                             |
    | `"pointer"` | `int32[limit, 2]`: x and y in pixels                          |
    | `"buttons"` | `int32`: the buttons that are down, one bit each              |

    Attributes:
        keys: The keysyms of the keys.
        limit: The largest number of events in a step.

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
        """Chooses the possible events.

        Args:
            keys: The names of the keys.
            size: The width and height of the screen.
            limit: The largest number of events in a step.
            buttons: The number of pointer buttons.
        """
        self.keys = keysyms(keys)
        self._size = checked_screen(size)
        self.limit = checked_size("limit", limit)
        self._buttons = _checked_buttons(buttons)
        self._held = InputState(self._size)
        # The buttons that the person holds.
        self._down = 0

    def spec(self) -> dict[str, ArraySpec]:
        """Returns the action spec."""
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
        """Starts an episode: returns the events that release all keys and buttons."""
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
        """Returns how many of the oldest events fit into one action: up to `limit`."""
        return min(len(events), self.limit)

    def array(self, events: Iterable[Event]) -> dict[str, Array]:
        """Returns the action that sends these events.

        It drops a pointer move if the next event is another move, and keys that are not
        in `keys`.

        Raises:
            ValueError: More than `limit` events remain.
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
    """Offers a menu: an action is the index of an entry.

    | entry                       | effect                                             |
    |-----------------------------|----------------------------------------------------|
    | `None`                      | releases all keys                                  |
    | `"Left"`, `"ctrl-t"`        | holds its keys until the next action               |
    | a list of events and names  | sends the events; presses and releases each chord  |

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
        """Creates the menu from its entries."""
        if isinstance(menu, str) or not menu:
            raise ValueError(
                f"menu must be a list of at least one entry, got {describe(menu)}."
            )
        self._menu = [_entry(entry) for entry in menu]
        self._held, self._seen = InputState(), InputState()

    def spec(self) -> BoundedArraySpec:
        """Returns the action spec: an index into the menu."""
        return BoundedArraySpec((), np.int64, 0, len(self._menu) - 1, "macro")

    def begin(self) -> list[Event]:
        """Starts an episode: returns the events that release all keys and buttons."""
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
        """Returns how many of the oldest events fit into one action, in order.

        An entry that is a list of events takes one action if all its events are there.
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
        """Returns the entry whose keys are down; of several, the one with most keys.

        Raises:
            ValueError: No entry fits, and the menu has no `None`.
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
                f"No entry of the menu stands for {names}. Add None to the menu for "
                "steps without a key."
            )
        return np.array(-max(fitting)[1], np.int64)


class ClickGrid:
    """Clicks on the cells of a grid; action 0 does nothing.

    The cells are numbered from 1, row by row from the top left. A cell whose middle is
    in a region of `without` is left out.

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
        """Creates the grid.

        Args:
            size: The width and height of the screen.
            rows: The number of rows.
            columns: The number of columns.
            button: The button: "left", "middle", "right", "wheel up" or "wheel down".
            without: Regions without cells: left, top, width and height in pixels.
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
            raise ValueError(
                "without must leave at least one cell; it covers all of them."
            )

    def spec(self) -> BoundedArraySpec:
        """Returns the action spec: the number of a cell, or 0."""
        return BoundedArraySpec((), np.int64, 0, len(self.places), "click")

    def begin(self) -> list[Event]:
        """Starts an episode: returns no event, as clicks leave no button down."""
        self._is_down = False
        return []

    def events(self, action: Any) -> list[Event]:
        """Returns the events of an action: move, press, release."""
        place = int(action)
        if not place:
            return []
        x, y = self.places[place - 1]
        return [PointerEvent(x, y, buttons) for buttons in (0, self._mask, 0)]

    def fitting(self, events: Sequence[Event]) -> int:
        """Returns how many of the oldest events fit into one action: up to a click."""
        is_down = self._is_down
        for count, event in enumerate(events):
            if isinstance(event, PointerEvent):
                if event.buttons & self._mask and not is_down:
                    return count + 1
                is_down = bool(event.buttons & self._mask)
        return len(events)

    def array(self, events: Iterable[Event]) -> Array:
        """Returns the cell nearest to the last click, or 0.

        A click happens where and when the button goes down. Clicks in a region of
        `without` do not count.
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
    """Moves the pointer by two axes, and holds buttons.

    `"axes"` has two numbers from -1 to 1, `"buttons"` a flag for each button.

    Example:
        >>> import numpy as np
        >>> stick = Joystick((640, 480), speed=20, buttons=1)
        >>> half = {"axes": np.array([0.5, 0.0]), "buttons": np.array([True])}
        >>> stick.events(half), stick.events(half)[0].x
        ([PointerEvent(x=330, y=240, buttons=1)], 340)
    """

    def __init__(self, size: Size, *, speed: float = 16.0, buttons: int = 0) -> None:
        """Creates the joystick.

        Args:
            size: The width and height of the screen.
            speed: The pixels by which an axis at 1 moves the pointer in a step.
            buttons: The number of buttons.
        """
        self._size = checked_screen(size)
        if not speed > 0:
            raise ValueError(
                f"speed must be a positive number of pixels, got {describe(speed)}."
            )
        self._speed = float(speed)
        self._buttons = checked_size("buttons", buttons, least=0)
        self._held, self._seen = InputState(self._size), InputState(self._size)
        # The pointer's unrounded position: after actions, and after events.
        self._place = self._shown = np.array([self._held.x, self._held.y], float)

    def spec(self) -> dict[str, ArraySpec]:
        """Returns the action spec."""
        specs: dict[str, ArraySpec] = {}
        specs["axes"] = BoundedArraySpec((2,), np.float32, -1.0, 1.0, "axes")
        if self._buttons:
            specs["buttons"] = ArraySpec((self._buttons,), np.bool_, "buttons")
        return specs

    def begin(self) -> list[Event]:
        """Starts an episode: centers the pointer, and releases all buttons."""
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
        """Returns how many of the oldest events fit into one action, in order."""
        return self._seen.fitting(events)

    def array(self, events: Iterable[Event]) -> dict[str, Array]:
        """Returns the action that moves the pointer to where the person moved it.

        If that is too far for one step, the next actions continue.
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
        """Returns the pointer's position after a step."""
        axes = np.clip(np.asarray(axes, float), -1.0, 1.0)
        highest = np.array(self._size) - 1
        moved: Array = np.clip(place + self._speed * axes, 0, highest)
        return moved


class Together:
    """Combines encodings: an action has a part for each of them, by name.

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
        """Combines encodings, given by name."""
        if not isinstance(parts, Mapping) or not parts:
            raise TypeError(
                f"parts must be a dictionary of encodings, got {describe(parts)}."
            )
        self._parts = dict(parts)

    def spec(self) -> dict[str, NestedSpec]:
        """Returns the action spec, by part."""
        return {name: part.spec() for name, part in self._parts.items()}

    def begin(self) -> list[Event]:
        """Starts an episode: returns the events that release all keys and buttons."""
        return [event for part in self._parts.values() for event in part.begin()]

    def events(self, action: Any) -> list[Event]:
        """Returns the events of an action, one part after the other."""
        return [
            event
            for name, part in self._parts.items()
            for event in part.events(action[name])
        ]

    def fitting(self, events: Sequence[Event]) -> int:
        """Returns how many of the oldest events fit into one action, in order.

        Keys and pointer events never share an action, because the parts act one after
        the other whatever the order of the events.
        """
        kinds = [isinstance(event, KeyEvent) for event in events]
        change = kinds.index(not kinds[0]) if len(set(kinds)) == 2 else len(kinds)
        return min(
            change, *(fitting(part, events[:change]) for part in self._parts.values())
        )

    def array(self, events: Iterable[Event]) -> dict[str, NestedArray]:
        """Returns the action for what a person did in a step."""
        events = list(events)
        return {name: part.array(events) for name, part in self._parts.items()}


def _checked_buttons(buttons: Any) -> int:
    count = checked_size("buttons", buttons, least=0)
    if count > 8:
        raise ValueError(f"buttons must be at most 8, got {buttons}.")
    return count


def checked_screen(size: Any) -> Size:
    """Returns the width and height of a screen, or raises if they are invalid."""
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
    """Converts a position from -1 to 1 into pixels."""
    spans = np.array(size) - 1
    halves = (np.clip(np.asarray(fractions, float), -1.0, 1.0) + 1.0) / 2.0
    x, y = np.rint(halves * spans).astype(int).tolist()
    return x, y


def _fractions(x: int, y: int, size: Size) -> Array:
    """Converts pixels into a position from -1 to 1."""
    spans = np.maximum(np.array(size) - 1, 1)
    place: Array = np.clip(2.0 * np.array([x, y]) / spans - 1.0, -1.0, 1.0)
    return place.astype(np.float32)


def _mask_of(flags: Any) -> int:
    """Packs flags into the bits of a number."""
    return sum(1 << bit for bit, flag in enumerate(_plain(flags)) if flag)


def _flags_of(mask: int, count: int) -> Array:
    """Unpacks the lowest bits of a number into flags."""
    return np.array([bool(mask >> bit & 1) for bit in range(count)])


def _plain(value: Any) -> list[Any]:
    return np.asarray(value).tolist()  # type: ignore[no-any-return]


def _entry(entry: Any) -> tuple[list[int], list[Event]]:
    """Returns the keys that a menu entry holds, and the events it sends once."""
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

    Other events may come in between. `None` means that it is missing.
    """
    places: list[int] = []
    for place, event in enumerate(events):
        if event == part[len(places)]:
            places.append(place)
            if len(places) == len(part):
                return places[0], place + 1
    return None
