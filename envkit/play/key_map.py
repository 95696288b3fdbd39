"""The keys of a game: their names, the actions they stand for, and the controls."""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.types import NestedArray, NestedSpec

__all__ = [
    "NAMED",
    "PLAYING",
    "WATCHING",
    "ActionAxes",
    "Axis",
    "Binding",
    "Controls",
    "KeyMap",
    "Pointed",
    "as_key",
    "button_names",
    "chord_of",
    "decode",
    "key_map",
    "key_text",
    "names_of",
    "pace_of",
    "parse_keys",
    "told_keys",
]

_CHARACTERS = {
    " ": "space",
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x1b": "esc",
}
# The keys that are no characters.
NAMED = {*_CHARACTERS.values(), "left", "right", "up", "down"}
_SHOWN = {"left": "←", "right": "→", "up": "↑", "down": "↓"}
_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
# What a terminal sends for keys that are no characters: ESC [ A, ESC O A, ESC [ 3 ~.
_SEQUENCE = re.compile(r"\x1b(?:\[|O)([0-9;]*)([A-Za-z~])")
_BEGUN = re.compile(r"\x1b(?:\[|O)?[0-9;]*")


def as_key(character: str) -> str:
    """Returns what the key of a character is called.

    Example:
        >>> as_key("D"), as_key(" ")
        ('d', 'space')
    """
    return _CHARACTERS.get(character, character.lower())


def decode(typed: str) -> tuple[list[str], str]:
    r"""Returns the keys that a terminal has sent, and the begin of the next one.

    Example:
        >>> decode("a\x1b[C ")
        (['a', 'right', 'space'], '')
        >>> decode("x\x1b[")
        (['x'], '\x1b[')
    """
    keys: list[str] = []
    while typed:
        sequence = _SEQUENCE.match(typed)
        if sequence:
            typed = typed[sequence.end() :]
            numbers, last = sequence.groups()
            if last in _ARROWS and not numbers:
                keys.append(_ARROWS[last])
        elif _BEGUN.fullmatch(typed):
            break
        elif typed[0].isprintable() or typed[0] in _CHARACTERS:
            keys.append(as_key(typed[0]))
            typed = typed[1:]
        else:
            typed = typed[1:]
    return keys, typed


def parse_keys(text: str) -> list[tuple[str, ...]]:
    """Reads keys to press: "dda", "a<left><up+space>q".

    Example:
        >>> parse_keys("d<left+space>")
        [('d',), ('left', 'space')]
        >>> parse_keys("d<lef>")
        Traceback (most recent call last):
        ValueError: There is no key 'lef' in 'd<lef>'. Keys are characters, and in \
angle brackets backspace, down, enter, esc, left, right, space, tab, up.
    """
    pressed: list[tuple[str, ...]] = []
    for chord, character in re.findall(r"<([^<>]+)>|(.)", text, re.DOTALL):
        names = chord.split("+") if chord else [character]
        keys = [name if name in NAMED else as_key(name) for name in names]
        for name, key in zip(names, keys, strict=True):
            if len(key) != 1 and key not in NAMED:
                raise ValueError(
                    f"There is no key {name!r} in {text!r}. Keys are characters, and "
                    f"in angle brackets {', '.join(sorted(NAMED))}."
                )
        pressed.append(tuple(keys))
    return pressed


def key_text(key: str) -> str:
    """Returns how a key is shown: arrows as arrows."""
    return _SHOWN.get(key, key)


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


class Pointed(NamedTuple):
    """What a player did with the pointer.

    Attributes:
        x: How far it is to the right on the picture, from 0 to 1.
        y: How far down, from 0 to 1.
        buttons: A bit for each button that is down: 1 left, 2 middle, 4 right, 8 and 16
            the wheel up and down.
    """

    x: float
    y: float
    buttons: int


class Binding(NamedTuple):
    """Keys that are pressed together, and the value that they set.

    Attributes:
        keys: The keys.
        axis: The index of the number of the action that they set.
        value: The value.
        label: The name of the value, for people.
    """

    keys: frozenset[str]
    axis: int
    value: float
    label: str


class KeyMap:
    """The keys of an environment.

    Attributes:
        bindings: The keys with their values, in the order of the actions.
        idle: The value of each number of the action while no key sets it; `None`
            where a key must set it.

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

    def knows(self, key: str) -> bool:
        """True if a key is one of an action, alone or with others."""
        return self._canonical(key) in self.keys or (key == WAIT and self.has_idle)

    def idle_action(self) -> NestedArray:
        """Returns the action for no key at all; `None` if there is none."""
        values = [value for value in self.idle if value is not None]
        return self._parts.action(values) if self.has_idle else None

    def table(self) -> list[tuple[str, str]]:
        """Returns the keys and their actions, for people."""
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
    """Returns the keys for an environment: its own, if it has a method `key_map`.

    Raises:
        ValueError: Its actions cannot be said with keys.
    """
    own = _attribute(env, "key_map")
    if hasattr(own, "idle_action"):  # It has all that a KeyMap has.
        return own  # type: ignore[no-any-return]
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
        chords += [chord for chord in suggested if free.claim(chord)]
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


# An environment that is faster is not meant for people.
_FASTEST_TOLD = 240.0


def pace_of(env: Any, keys: KeyMap) -> float:
    """Returns the number of steps in a second; 0 if each waits for a key.

    It is that of the environment, if there is an action for no key.
    """
    pace = getattr(keys, "pace", None)
    if pace is not None:
        return float(pace)
    metadata = getattr(env, "metadata", None)
    told = metadata.get("render_fps") if isinstance(metadata, dict) else None
    if isinstance(told, int | float) and 0 < told <= _FASTEST_TOLD and keys.has_idle:
        return float(told)
    return 0.0


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
    """The keys that have no meaning yet."""

    def __init__(self, chords: Iterable[frozenset[str]]) -> None:
        self._chords = set(chords)
        self._taken = {key for chord in self._chords for key in chord}

    def claim(self, chord: frozenset[str]) -> bool:
        if chord in self._chords:
            return False
        self._chords.add(chord)
        self._taken |= chord
        return True

    def single(self, number: int) -> str | None:
        """Claims the key of a number's digit if it can, or else the next one."""
        wanted = [str(number)] if 0 <= number <= 9 else []
        for key in (*wanted, *_SINGLE):
            if key not in self._taken:
                self.claim(frozenset({key}))
                return key
        return None


def _order(key: str) -> tuple[bool, str]:
    return len(key) == 1 or key == "space", key


def _weight(binding: Binding, pressed: list[str]) -> tuple[int, int]:
    newest = max(len(pressed) - pressed[::-1].index(key) for key in binding.keys)
    return len(binding.keys), newest


# What an action is called that does nothing.
IDLE_NAMES = {"noop", "no_op", "nothing", "none", "stay", "idle", "wait", "still"}
_WORDS = {
    "up": "up",
    "down": "down",
    "left": "left",
    "right": "right",
    "forward": "up",
    "backward": "down",
    "fire": "space",
    "attack": "space",
    "jump": "space",
}
_PART = re.compile("|".join(_WORDS))


def names_of(env: Any, count: int) -> tuple[str, ...]:
    """Returns the names of the actions; none where the environment has no names.

    Args:
        env: The environment.
        count: The number of actions, which wrappers may have changed.
    """
    for found in (
        _attribute(env, "get_action_meanings"),
        _attribute(env, "action_meanings"),
        _attribute(env, "action_names"),
        _of_enum(_attribute(env, "actions")),
        _of_menu(_attribute(env, "menu")),
    ):
        if isinstance(found, Mapping):
            found = [found.get(number) for number in range(len(found))]
        if (
            isinstance(found, list | tuple)
            and len(found) == count
            and all(isinstance(name, str) for name in found)
        ):
            return tuple(found)
    return ()


def button_names(env: Any, count: int) -> tuple[str, ...]:
    """Returns the names of an action's numbers, such as ViZDoom's buttons."""
    found = _attribute(env, "buttons")
    if isinstance(found, list | tuple) and len(found) == count:
        return tuple(map(str, found))
    return ()


def told_keys(env: Any, count: int) -> dict[frozenset[str], int]:
    """Returns the keys that an environment names for its actions, if it does.

    That is Gymnasium's `get_keys_to_action()`: keys are characters or their codes.
    """
    found = _attribute(env, "get_keys_to_action")
    if not isinstance(found, Mapping):
        return {}
    told: dict[frozenset[str], int] = {}
    for keys, action in found.items():
        parts = keys if isinstance(keys, tuple | list) else (keys,)
        chord = frozenset(filter(None, map(_as_told_key, parts)))
        if chord and not isinstance(action, bool) and _is_number(action, count):
            told[chord] = int(action)
    return told


def chord_of(name: str) -> frozenset[str]:
    """Returns the keys that a name suggests, `UPFIRE` the arrow and the space bar.

    Example:
        >>> sorted(chord_of("UPRIGHTFIRE")), sorted(chord_of("TURN_LEFT"))
        (['right', 'space', 'up'], ['left'])
        >>> chord_of("toggle")
        frozenset()
    """
    if name in NAMED or len(name) == 1:  # PLE's names are those of keys.
        return frozenset({as_key(name)})
    return frozenset(_WORDS[word] for word in _PART.findall(name.lower()))


def _attribute(env: Any, name: str) -> Any:
    """Returns an attribute of the environment, or what it returns when called."""
    try:
        found = getattr(env, name, None)
        is_type = isinstance(found, type)
        return found() if callable(found) and not is_type else found
    except Exception:  # whatever it is, there is nothing to be learned from it
        return None


def _of_enum(found: Any) -> Any:
    """Returns the names of an enumeration of actions, such as MiniGrid's."""
    if not (isinstance(found, type) and issubclass(found, enum.Enum)):
        return None
    members = {member.value: member.name for member in found}
    return [members.get(number) for number in range(len(members))]


def _of_menu(found: Any) -> Any:
    """Returns the names of combinations of buttons, such as ViZDoom's."""
    if not isinstance(found, tuple | list):
        return None
    if not all(isinstance(choice, Mapping) for choice in found):
        return None
    return [" ".join(map(str, choice)) or "noop" for choice in found]


def _as_told_key(key: Any) -> str | None:
    if isinstance(key, int):
        key = chr(key) if 0 < key < 0x110000 else None
    return as_key(key) if isinstance(key, str) and len(key) == 1 else None


def _is_number(action: Any, count: int) -> bool:
    try:
        return 0 <= int(action) < count
    except (TypeError, ValueError):
        return False


# More choices than that are a quantity: there is one key to lower it, one to raise it.
_MOST_CHOICES = 16


class Axis(NamedTuple):
    """One number of an action.

    Attributes:
        label: The name of it; "" where there is no other.
        values: The values to choose from: all choices from the smallest on, or the
            smallest, a middle and the largest of a quantity.
        is_choice: Whether these are all.
    """

    label: str
    values: tuple[float, ...]
    is_choice: bool


class ActionAxes:
    """The numbers that an action is made of.

    Attributes:
        axes: The numbers, in the order of the nest.

    Example:
        >>> parts = ActionAxes(BoundedArraySpec((2,), np.float32, -1.0, 1.0))
        >>> [axis.values for axis in parts.axes]
        [(-1.0, 0.0, 1.0), (-1.0, 0.0, 1.0)]
        >>> parts.action([1.0, -1.0])
        array([ 1., -1.], dtype=float32)
    """

    def __init__(self, spec: NestedSpec, most: int = 60) -> None:
        """Takes an action apart.

        Args:
            spec: The action's spec.
            most: How many choices an action may have that is nothing but a choice.

        Raises:
            ValueError: Keys cannot say what it is.
        """
        self._structure = nest.Structure(spec)
        leaves = zip(self._structure.paths, self._structure.leaves, strict=True)
        pieces = [(path, _bounds(leaf, path), leaf) for path, leaf in leaves]
        count = sum(leaf.minimum.size for _, leaf, _ in pieces)
        if not count:
            raise ValueError("The action has no numbers, so there is nothing to press.")
        single = count == 1
        self.axes = tuple(
            axis
            for path, leaf, _ in pieces
            for axis in _axes(leaf, path, most if single else _MOST_CHOICES)
        )
        if single and not self.axes[0].is_choice and pieces[0][1].dtype.kind != "f":
            raise ValueError(
                f"The action is one of {_count(pieces[0][1])} numbers, and keys can "
                f"choose from {most}."
            )

    def action(self, values: Sequence[float]) -> NestedArray:
        """Makes an action of these numbers."""
        leaves, start = [], 0
        for spec in self._structure.leaves:
            size = int(np.prod(spec.shape))
            part = np.array(values[start : start + size], object)
            leaves.append(part.reshape(spec.shape).astype(spec.dtype))
            start += size
        return self._structure.unflatten(leaves)


class _Bounds(NamedTuple):
    """The bounds of a leaf, an element for each number in it."""

    minimum: Any
    maximum: Any
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def _bounds(spec: Any, path: str) -> _Bounds:
    kind = spec.dtype.kind if isinstance(spec, ArraySpec) else ""
    if kind not in ("b", "i", "u", "f"):
        place = f" at {path}" if path else ""
        raise ValueError(
            f"The action{place} is {spec!r:.80}, which keys cannot say: they choose "
            "numbers."
        )
    if kind == "b":
        low: Any = np.zeros(spec.shape, int)
        return _Bounds(low, low + 1, spec.dtype, spec.shape)
    limited = (
        spec
        if isinstance(spec, BoundedArraySpec)
        else BoundedArraySpec(spec.shape, spec.dtype)
    )
    low, high = (
        np.broadcast_to(bound, spec.shape)
        for bound in (limited.minimum, limited.maximum)
    )
    return _Bounds(low, high, spec.dtype, spec.shape)


def _axes(leaf: _Bounds, path: str, most: int) -> list[Axis]:
    axes = []
    for index in np.ndindex(leaf.shape):
        place = f"[{', '.join(map(str, index))}]" if index else ""
        low, high = leaf.minimum[index].item(), leaf.maximum[index].item()
        if leaf.dtype.kind != "f" and high - low < most:
            values: tuple[float, ...] = tuple(range(low, high + 1))
            axes.append(Axis(f"{path}{place}", values, is_choice=True))
        else:
            values = _low_middle_high(low, high, leaf.dtype.kind == "f")
            axes.append(Axis(f"{path}{place}", values, is_choice=False))
    return axes


def _low_middle_high(low: float, high: float, is_float: bool) -> tuple[float, ...]:
    # A missing limit, or that of a dtype, is too far from zero to play with.
    if high - low > 1e6:
        low, high = max(low, -1), min(high, 1)
    middle = 0.0 if low <= 0 <= high else (low + high) / 2
    return (low, middle, high) if is_float else (low, int(middle), high)


def _count(leaf: _Bounds) -> int:
    return int(leaf.maximum.item()) - int(leaf.minimum.item()) + 1


# The meanings of keys, each with its keys, the best first.
PLAYING: Mapping[str, Sequence[str]] = {
    "pause": ("space", "p", "tab"),
    "reset": ("r", "backspace"),
    "keys": ("?",),
    "quit": ("q", "esc"),
}
WATCHING: Mapping[str, Sequence[str]] = {
    "pause": ("space",),
    "forward": ("right",),
    "back": ("left",),
    "next": ("n", "down"),
    "previous": ("p", "up"),
    "quit": ("q", "esc"),
}


class Controls:
    """The keys that are not actions, such as those that pause and quit.

    Example:
        >>> controls = Controls(PLAYING, taken={"space", "q"})
        >>> controls.of("p"), controls.of("space"), controls.of("esc")
        ('pause', None, 'quit')
        >>> controls.text()
        'p pause   r reset   ? keys   esc quit'
    """

    def __init__(
        self, wanted: Mapping[str, Sequence[str]], taken: Collection[str] = ()
    ) -> None:
        """Takes the meanings with their keys, and the keys that are taken."""
        self._keys = {
            what: [key for key in keys if key not in taken]
            for what, keys in wanted.items()
        }
        self._meaning = {key: what for what, keys in self._keys.items() for key in keys}

    def of(self, key: str) -> str | None:
        """Returns the meaning of a key; `None` if it has none."""
        return self._meaning.get(key)

    def text(self) -> str:
        """Returns the keys for people, one for each."""
        return "   ".join(
            f"{key_text(keys[0])} {what}" for what, keys in self._keys.items() if keys
        )
