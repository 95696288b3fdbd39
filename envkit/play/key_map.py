"""Maps keys to actions of an environment: `KeyMap`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from envkit.play.action_axes import ActionAxes, Axis
from envkit.play.action_names import (
    attribute_of,
    button_names,
    chord_of,
    declared_keys,
    is_idle,
    names_of,
)
from envkit.play.keys import key_text
from envkit.types import NestedArray

__all__ = ["Binding", "KeyMap", "key_map", "pace_of"]

# Keys that let time pass without an action.
WAIT = "."
# Alternatives to the arrow keys, unless they have another meaning.
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
_OPPOSITES = {
    frozenset({"left", "right"}): ("left", "right"),
    frozenset({"up", "down"}): ("down", "up"),
}
# Digits first, because actions are numbers; without letters for arrows and controls.
_SINGLE = tuple("0123456789zxcvbnmfghjkltyuioe-=[];',/")
# Letters for names; the others end the game and begin it again.
_LETTERS = frozenset("abcdefghijklmnopstuvwxyz")


class Binding(NamedTuple):
    """Binds a combination of keys to a value.

    Attributes:
        keys: The keys.
        axis: The index of the number in the action.
        value: The value.
        label: The name of the value, for people.
    """

    keys: frozenset[str]
    axis: int
    value: float
    label: str


class KeyMap:
    """Maps keys to the numbers of an action.

    Attributes:
        bindings: The keys with their values, in the order of the actions.
        idle: The value of each number while no key sets it; `None` if a key must set
            it.
        is_named: Whether the environment says what its actions mean.

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
        *,
        is_named: bool = True,
    ) -> None:
        """Takes the keys of each number."""
        self.is_named = is_named
        self.bindings = tuple(bindings)
        self.idle = tuple(idle)
        self._parts = parts
        self.keys = frozenset(key for one in self.bindings for key in one.keys)

    @property
    def has_idle(self) -> bool:
        """Whether there is an action for no key."""
        return None not in self.idle

    def axes(self, pressed: Sequence[str]) -> set[int]:
        """Returns the numbers of the action that these keys set together."""
        keys = {self._canonical(key) for key in pressed}
        return {one.axis for one in self.bindings if one.keys <= keys}

    def action(self, pressed: Sequence[str]) -> NestedArray:
        """Returns the action of the pressed keys, or `None` for none.

        Args:
            pressed: The keys that are down together, the newest last. Bindings of more
                keys take precedence, then newer keys.
        """
        keys = [self._canonical(key) for key in pressed]
        values = list(self.idle)
        is_known = WAIT in keys and self.has_idle
        for axis in range(len(values)):
            matching = [
                one for one in self.bindings if one.axis == axis and one.keys <= {*keys}
            ]
            if matching:
                values[axis] = max(matching, key=lambda one: _weight(one, keys)).value
                is_known = True
        if not is_known or None in values:
            return None
        return self._parts.action([value for value in values if value is not None])

    def knows(self, key: str) -> bool:
        """True if a key belongs to an action, alone or in a combination."""
        return self._canonical(key) in self.keys or (key == WAIT and self.has_idle)

    def idle_action(self) -> NestedArray:
        """Returns the action for no key; `None` if there is none."""
        values = [value for value in self.idle if value is not None]
        return self._parts.action(values) if self.has_idle else None

    def table(self) -> list[tuple[str, str]]:
        """Returns the keys and their actions, as text for players."""
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
    """Returns an environment's keys: its own, if it has a `key_map` method.

    Raises:
        ValueError: Its actions cannot be expressed by keys.
    """
    own = attribute_of(env, "key_map")
    if hasattr(own, "idle_action"):  # it has everything that a KeyMap has
        return own  # type: ignore[no-any-return]
    parts = ActionAxes(env.action_spec(), most=len(_SINGLE))
    if len(parts.axes) == 1 and parts.axes[0].is_choice:
        return _menu(env, parts)
    return _several(env, parts)


def _menu(env: Any, parts: ActionAxes) -> KeyMap:
    """Assigns a separate key to every action, and its digit."""
    (axis,) = parts.axes
    count = len(axis.values)
    numbers = [int(value) for value in axis.values]
    names = names_of(env, count) or ("",) * count
    declared = declared_keys(env, count)
    chords: list[list[frozenset[str]]] = [
        [chord for chord, action in declared.items() if action == index]
        for index in range(count)
    ]
    free = _Free(declared)
    # Better keys are assigned first: arrows before letters before other keys. A key for
    # an action that already has one would take it from one that has none.
    for find in (_arrows, _initial):
        for index, name in enumerate(names):
            if not chords[index] and (chord := find(name, index, count, free)):
                chords[index].append(chord)
    for number, own in zip(numbers, chords, strict=True):
        if digit := free.digit(number):
            own.append(frozenset({digit}))
    for own in chords:
        if not own and (key := free.single()):
            own.append(frozenset({key}))
    bindings = [
        Binding(chord, 0, value, f"{number} {name}" if name else f"action {number}")
        for value, number, name, own in zip(
            axis.values, numbers, names, chords, strict=True
        )
        for chord in own
    ]
    idle = [
        value for value, name in zip(axis.values, names, strict=True) if is_idle(name)
    ]
    is_named = any(names) or bool(declared)
    return KeyMap(parts, bindings, [idle[0] if idle else None], is_named=is_named)


def _arrows(name: str, index: int, count: int, free: _Free) -> frozenset[str] | None:
    """Claims arrows and the space bar for an action."""
    chord = chord_of(name)
    if not name:
        # A few numbers mean the same nearly everywhere: left and right, with something
        # between them.
        between = {2: ("left", "right"), 3: ("left", "down", "right")}.get(count)
        chord = frozenset({between[index]}) if between else frozenset()
    return chord if chord and free.claim(chord) else None


def _initial(name: str, _: int, __: int, free: _Free) -> frozenset[str] | None:
    """Claims the first letter of a name that is free; none for doing nothing."""
    for letter in () if is_idle(name) else name.lower():
        if letter in _LETTERS and free.letter(letter):
            return frozenset({letter})
    return None


# A faster environment is not meant for people.
_FASTEST_PACE = 240.0


def pace_of(env: Any, keys: KeyMap) -> float:
    """Returns the number of steps per second; 0 if each step waits for a key.

    It is the environment's own, if there is an action for no key.
    """
    pace = getattr(keys, "pace", None)
    if pace is not None:
        return float(pace)
    metadata = getattr(env, "metadata", None)
    pace = metadata.get("render_fps") if isinstance(metadata, dict) else None
    if isinstance(pace, int | float) and 0 < pace <= _FASTEST_PACE and keys.has_idle:
        return float(pace)
    return 0.0


def _several(env: Any, parts: ActionAxes) -> KeyMap:
    """Assigns keys to each number of the action, for all values except the idle one."""
    names = button_names(env, len(parts.axes)) or ("",) * len(parts.axes)
    idle = [_idle_value(axis) for axis in parts.axes]
    free, pairs = _Free(()), list(_PAIRS)
    keys = [
        _keys_by_name(axis, name, free, still)
        for axis, name, still in zip(parts.axes, names, idle, strict=True)
    ]
    bindings = []
    for number, (axis, name, still) in enumerate(
        zip(parts.axes, names, idle, strict=True)
    ):
        found = keys[number] or _keys_of(axis, free, pairs, still)
        shown = name or f"action{axis.label}"
        is_plain = len(keys[number]) == 1 or axis.values == (0, 1)
        bindings += [
            Binding(
                frozenset({key}),
                number,
                value,
                shown if is_plain else _label(shown, axis, value),
            )
            for value, key in found
        ]
    # Members of a dictionary have names.
    is_named = any(names) or any("'" in axis.label for axis in parts.axes)
    return KeyMap(parts, bindings, idle, is_named=is_named)


def _idle_value(axis: Axis) -> float:
    if axis.is_choice and axis.values[0] <= 0 <= axis.values[-1]:
        return 0.0
    return axis.values[0 if axis.is_choice else 1]


_Keys = list[tuple[float, str]]


def _keys_by_name(axis: Axis, name: str, free: _Free, idle: float) -> _Keys:
    """Returns the keys that the name of a number suggests, with their values."""
    others = [value for value in axis.values if value != idle]
    ends = [chord_of(part) for part in name.split("/")]
    if len(ends) == 1 and ends[0] in _OPPOSITES:  # such as TURN_LEFT_RIGHT_DELTA
        ends = [frozenset({key}) for key in _OPPOSITES[ends[0]]]
    if len(ends) == 2 and len(others) >= 2:
        values = [others[0], others[-1]]
    elif len(ends) == 1 and (len(others) == 1 or not axis.is_choice):
        values = others[-1:]
    else:
        return []
    if any(len(chord) != 1 for chord in ends) or not all(map(free.claim, ends)):
        return []
    return [(value, key) for value, (key,) in zip(values, ends, strict=True)]


def _keys_of(
    axis: Axis, free: _Free, pairs: list[tuple[str, str]], idle: float
) -> _Keys:
    """Returns a key for each value of a number except the idle one."""
    others = [value for value in axis.values if value != idle]
    if not axis.is_choice or len(axis.values) == 3:
        while pairs:
            pair = pairs.pop(0)
            if free.claim(frozenset({pair[0]})) and free.claim(frozenset({pair[1]})):
                return list(zip((others[0], others[-1]), pair, strict=True))
    digits = enumerate(others, 1)
    keys = ((value, free.digit(number) or free.single()) for number, value in digits)
    return [(value, key) for value, key in keys if key]


def _label(name: str, axis: Axis, value: float) -> str:
    """Describes a value of a number, such as `steer left`, or `action[0] = -1`."""
    ends = name.split("/")
    if len(ends) == 2 and value in (axis.values[0], axis.values[-1]):
        return ends[value == axis.values[-1]].strip()
    return f"{name} = {value:g}"


class _Free:
    """Tracks the keys that have no meaning yet."""

    def __init__(self, chords: Iterable[frozenset[str]]) -> None:
        self._chords = set(chords)
        self._used = {key for chord in self._chords for key in chord}

    def claim(self, chord: frozenset[str]) -> bool:
        if chord in self._chords:
            return False
        self._chords.add(chord)
        self._used |= chord
        return True

    def letter(self, letter: str) -> str | None:
        """Claims a letter that means nothing, and is no arrow if some are in use."""
        has_arrows = letter in _ALSO and not self._used.isdisjoint(_BACK)
        if letter in self._used or has_arrows:
            return None
        return self._claimed(letter)

    def digit(self, number: int) -> str | None:
        """Claims the digit of a number."""
        free = 0 <= number <= 9 and str(number) not in self._used
        return self._claimed(str(number)) if free else None

    def single(self) -> str | None:
        """Claims the next key that means nothing."""
        key = next((key for key in _SINGLE if key not in self._used), None)
        return None if key is None else self._claimed(key)

    def _claimed(self, key: str) -> str:
        self.claim(frozenset({key}))
        return key


def _order(key: str) -> tuple[bool, str]:
    return len(key) == 1 or key == "space", key


def _weight(binding: Binding, pressed: list[str]) -> tuple[int, int]:
    newest = max(len(pressed) - pressed[::-1].index(key) for key in binding.keys)
    return len(binding.keys), newest
