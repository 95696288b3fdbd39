"""Maps keys to actions of an environment: `KeyMap`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from envkit.play.action_axes import ActionAxes, Axis
from envkit.play.action_names import (
    IDLE_NAMES,
    attribute_of,
    button_names,
    chord_of,
    declared_keys,
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
# Digits first, because actions are numbers; without letters for arrows and controls.
_SINGLE = tuple("0123456789zxcvbnmfghjkltyuioe-=[];',/")


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
        """Takes the keys of each number."""
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
    """Assigns a separate key to every action."""
    (axis,) = parts.axes
    count = len(axis.values)
    first = int(axis.values[0])
    names = names_of(env, count)
    declared = declared_keys(env, count)
    free = _Free(declared)
    bindings = []
    idle: float | None = None
    for index, value in enumerate(axis.values):
        name = names[index] if names else ""
        label = f"{int(value)} {name}" if name else f"action {int(value)}"
        if name.lower() in IDLE_NAMES and idle is None:
            idle = value
        chords = [chord for chord, action in declared.items() if action == index]
        # A letter for an action that already has a key by its name would take it from
        # one that has none.
        suggested = [] if chords else _suggested(name, index, count)
        chords += [chord for chord in suggested if free.claim(chord)]
        # Digits work for numbers too.
        if (not chords or not name) and (key := free.single(index + first)):
            chords.append(frozenset({key}))
        bindings += [Binding(chord, 0, value, label) for chord in chords]
    return KeyMap(parts, bindings, [idle])


def _suggested(name: str, index: int, count: int) -> list[frozenset[str]]:
    if name:
        chord = chord_of(name)
        return [chord] if chord else []
    # A few numbers mean the same nearly everywhere: left and right, with something
    # between them.
    between = {2: ("left", "right"), 3: ("left", "down", "right")}.get(count, ())
    return [frozenset({between[index]})] if between else []


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
    """Returns the values of one number that get a key, each with its key."""
    others = [value for value in axis.values if value != idle]
    if not axis.is_choice or len(axis.values) == 3:
        while pair := next(pairs, None):
            if free.claim(frozenset({pair[0]})) and free.claim(frozenset({pair[1]})):
                return list(zip((others[0], others[-1]), pair, strict=True))
    keys = []
    for value in others:
        chord = chord_of(name)
        if len(chord) == 1 and free.claim(chord):
            keys.append((value, next(iter(chord))))
        elif key := free.single(len(keys) + 1):
            keys.append((value, key))
    return keys


def _label(name: str, axis: Axis, value: float) -> str:
    if axis.is_choice and axis.values == (0, 1):
        return name
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

    def single(self, number: int) -> str | None:
        """Claims the key of a number's digit if it is free, otherwise the next one."""
        wanted = [str(number)] if 0 <= number <= 9 else []
        for key in (*wanted, *_SINGLE):
            if key not in self._used:
                self.claim(frozenset({key}))
                return key
        return None


def _order(key: str) -> tuple[bool, str]:
    return len(key) == 1 or key == "space", key


def _weight(binding: Binding, pressed: list[str]) -> tuple[int, int]:
    newest = max(len(pressed) - pressed[::-1].index(key) for key in binding.keys)
    return len(binding.keys), newest
