"""`KeyMap`: which keys stand for which actions, and what pressed keys come to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from envkit.cli.play_parts.action_names import (
    IDLE_NAMES,
    button_names,
    chord_of,
    names_of,
    told_keys,
)
from envkit.cli.play_parts.axes import ActionAxes, Axis
from envkit.cli.play_parts.key_names import key_text
from envkit.types import NestedArray

__all__ = ["WAIT", "Binding", "KeyMap", "key_map"]

# Time passes, and nothing is pressed.
WAIT = "."
# Who has no arrows within reach has these, unless they mean something else.
_ALSO = {"w": "up", "a": "left", "s": "down", "d": "right"}
_BACK = {arrow: letter for letter, arrow in _ALSO.items()}
_PAIRS = (
    ("left", "right"),
    ("down", "up"),
    ("j", "l"),
    ("k", "i"),
    ("f", "h"),
    ("g", "t"),
    ("v", "n"),
    ("b", "m"),
)
# Digits first, since actions are numbers; without the letters of arrows and controls.
_SINGLE = tuple("0123456789zxcvbnmfghjkltyuioe-=[];',/")


class Binding(NamedTuple):
    """Keys that are pressed together, and what they say.

    Attributes:
        keys: The keys.
        axis: Of which number of the action they say something.
        value: What it becomes.
        label: What that is called.
    """

    keys: frozenset[str]
    axis: int
    value: float
    label: str


class KeyMap:
    """The keys of an environment.

    Attributes:
        bindings: What keys say, in the order of the actions.
        idle: What each number of the action is while no key says it; `None` where
            somebody has to say it.

    Example:
        >>> from envkit import make
        >>> keys = key_map(make("Catch"))
        >>> keys.action(("left",)), keys.action((".",)), keys.action(("x",))
        (array(0), array(1), None)
    """

    def __init__(
        self,
        parts: ActionAxes,
        bindings: Iterable[Binding],
        idle: Sequence[float | None],
    ) -> None:
        """Takes what keys say."""
        self.bindings = tuple(bindings)
        self.idle = tuple(idle)
        self._parts = parts
        self.keys = frozenset(key for one in self.bindings for key in one.keys)

    @property
    def has_idle(self) -> bool:
        """Whether there is an action for no key at all."""
        return None not in self.idle

    def action(self, pressed: Sequence[str]) -> NestedArray:
        """Returns the action that keys stand for, or `None` for none.

        Args:
            pressed: The keys that are down together, the latest last. Those that say
                more at once count more, then those that are newer.
        """
        keys = [self._canonical(key) for key in pressed]
        values = list(self.idle)
        said = WAIT in keys and self.has_idle
        for axis in range(len(values)):
            matching = [
                one for one in self.bindings if one.axis == axis and one.keys <= {*keys}
            ]
            if matching:
                values[axis] = max(matching, key=lambda one: _weight(one, keys)).value
                said = True
        if not said or None in values:
            return None
        return self._parts.action([value for value in values if value is not None])

    def idle_action(self) -> NestedArray:
        """Returns the action for no key at all; `None` if there is none."""
        values = [value for value in self.idle if value is not None]
        return self._parts.action(values) if self.has_idle else None

    def table(self) -> list[tuple[str, str]]:
        """Returns the keys and what they do, for people."""
        shown: dict[str, list[str]] = {}
        for one in self.bindings:
            shown.setdefault(one.label, []).append(self._shown(one.keys))
        lines = [(", ".join(keys), label) for label, keys in shown.items()]
        if self.has_idle and WAIT not in self.keys:
            lines.append((WAIT, "wait: no key"))
        return lines

    def _shown(self, keys: frozenset[str]) -> str:
        shown = " ".join(map(key_text, sorted(keys, key=_order)))
        if len(keys) == 1:
            (key,) = keys
            also = [other for other in (_ALSO.get(key), _BACK.get(key)) if other]
            also = [key_text(other) for other in also if other not in self.keys]
            return ", ".join([shown, *also])
        return shown

    def _canonical(self, key: str) -> str:
        if key in self.keys:
            return key
        return _ALSO.get(key) or _BACK.get(key, key)


def key_map(env: Any) -> KeyMap:
    """Returns the keys for an environment.

    Raises:
        ValueError: Its actions cannot be said with keys.
    """
    parts = ActionAxes(env.action_spec(), most=len(_SINGLE))
    if len(parts.axes) == 1 and parts.axes[0].is_choice:
        return _menu(env, parts)
    return _several(env, parts)


def _menu(env: Any, parts: ActionAxes) -> KeyMap:
    """Gives every action a key of its own."""
    (axis,) = parts.axes
    count = len(axis.values)
    first = int(axis.values[0])
    names = names_of(env, count)
    told = told_keys(env, count)
    free = _Free(told)
    bindings = []
    idle: float | None = None
    for index, value in enumerate(axis.values):
        name = names[index] if names else ""
        label = f"{int(value)} {name}" if name else f"action {int(value)}"
        if name.lower() in IDLE_NAMES and idle is None:
            idle = value
        chords = [chord for chord, action in told.items() if action == index]
        # A letter for an action that the name has said already would take it from
        # one that has none.
        suggested = [] if chords else _suggested(name, index, count)
        chords += [chord for chord in suggested if free.take(chord)]
        # Numbers have their digits, besides.
        if (not chords or not name) and (key := free.single(index + first)):
            chords.append(frozenset({key}))
        bindings += [Binding(chord, 0, value, label) for chord in chords]
    return KeyMap(parts, bindings, [idle])


def _suggested(name: str, index: int, count: int) -> list[frozenset[str]]:
    if name:
        chord = chord_of(name)
        return [chord] if chord else []
    # What few numbers mean is the same nearly everywhere: to the left and to the
    # right, with something between them.
    between = {2: ("left", "right"), 3: ("left", "down", "right")}.get(count, ())
    return [frozenset({between[index]})] if between else []


def _several(env: Any, parts: ActionAxes) -> KeyMap:
    """Gives every number of the action keys for what it is not anyway."""
    buttons = button_names(env, len(parts.axes))
    free, pairs = _Free(()), iter(_PAIRS)
    bindings, idle = [], []
    for number, axis in enumerate(parts.axes):
        name = buttons[number] if buttons else f"action{axis.label}"
        if axis.is_choice and axis.values[0] <= 0 <= axis.values[-1]:
            idle.append(0.0)
        else:
            idle.append(axis.values[0 if axis.is_choice else 1])
        keys = _keys_of(axis, name if buttons else "", free, pairs, idle[-1])
        bindings += [
            Binding(frozenset({key}), number, value, _label(name, axis, value))
            for value, key in keys
        ]
    return KeyMap(parts, bindings, idle)


def _keys_of(
    axis: Axis, name: str, free: _Free, pairs: Any, idle: float
) -> list[tuple[float, str]]:
    """Returns the values of one number that have a key, and the key."""
    others = [value for value in axis.values if value != idle]
    if not axis.is_choice or len(axis.values) == 3:
        while pair := next(pairs, None):
            if free.take(frozenset({pair[0]})) and free.take(frozenset({pair[1]})):
                return list(zip((others[0], others[-1]), pair, strict=True))
    keys = []
    for value in others:
        chord = chord_of(name)
        if len(chord) == 1 and free.take(chord):
            keys.append((value, next(iter(chord))))
        elif key := free.single(len(keys) + 1):
            keys.append((value, key))
    return keys


def _label(name: str, axis: Axis, value: float) -> str:
    if axis.is_choice and axis.values == (0, 1):
        return name
    return f"{name} = {value:g}"


class _Free:
    """The keys that have no meaning yet."""

    def __init__(self, chords: Iterable[frozenset[str]]) -> None:
        self._chords = set(chords)
        self._taken = {key for chord in self._chords for key in chord}

    def take(self, chord: frozenset[str]) -> bool:
        if chord in self._chords:
            return False
        self._chords.add(chord)
        self._taken |= chord
        return True

    def single(self, number: int) -> str | None:
        """Takes the key of a number's digit if it can, or else the next one."""
        wanted = [str(number)] if 0 <= number <= 9 else []
        for key in (*wanted, *_SINGLE):
            if key not in self._taken:
                self.take(frozenset({key}))
                return key
        return None


def _order(key: str) -> tuple[bool, str]:
    return len(key) == 1 or key == "space", key


def _weight(binding: Binding, pressed: list[str]) -> tuple[int, int]:
    newest = max(len(pressed) - pressed[::-1].index(key) for key in binding.keys)
    return len(binding.keys), newest
