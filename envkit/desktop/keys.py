"""Keys by name, and the events of keys and the pointer.

A key is a keysym: its number in X11 and VNC. Its name is X11's (`Left`, `Return`, `F5`,
`Control_L`), a single character (`a`, `?`), or a short name from the table below
(`ctrl`, `enter`). Case matters only for single characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from envkit.extend import describe

__all__ = [
    "KEYBOARD",
    "MODIFIERS",
    "Event",
    "KeyEvent",
    "PointerEvent",
    "chord",
    "key_name",
    "keysym",
    "keysyms",
]


class KeyEvent(NamedTuple):
    """A key going down or up.

    Attributes:
        key: The keysym.
        down: Whether it goes down.
    """

    key: int
    down: bool


class PointerEvent(NamedTuple):
    """The position of the pointer, and the buttons that are down.

    Attributes:
        x: Pixels from the left.
        y: Pixels from the top.
        buttons: A bit for each button that is down: 1 left, 2 middle, 4 right, 8 and 16
            the wheel up and down.
    """

    x: int
    y: int
    buttons: int = 0


Event = KeyEvent | PointerEvent

# Keys that are not characters, by X11's names.
_NAMED = {
    "BackSpace": 0xFF08,
    "Tab": 0xFF09,
    "Return": 0xFF0D,
    "Pause": 0xFF13,
    "Scroll_Lock": 0xFF14,
    "Escape": 0xFF1B,
    "Home": 0xFF50,
    "Left": 0xFF51,
    "Up": 0xFF52,
    "Right": 0xFF53,
    "Down": 0xFF54,
    "Page_Up": 0xFF55,
    "Page_Down": 0xFF56,
    "End": 0xFF57,
    "Print": 0xFF61,
    "Insert": 0xFF63,
    "Menu": 0xFF67,
    "Num_Lock": 0xFF7F,
    "KP_Enter": 0xFF8D,
    "KP_Multiply": 0xFFAA,
    "KP_Add": 0xFFAB,
    "KP_Subtract": 0xFFAD,
    "KP_Decimal": 0xFFAE,
    "KP_Divide": 0xFFAF,
    **{f"KP_{digit}": 0xFFB0 + digit for digit in range(10)},
    **{f"F{number}": 0xFFBD + number for number in range(1, 25)},
    "Shift_L": 0xFFE1,
    "Shift_R": 0xFFE2,
    "Control_L": 0xFFE3,
    "Control_R": 0xFFE4,
    "Caps_Lock": 0xFFE5,
    "Meta_L": 0xFFE7,
    "Meta_R": 0xFFE8,
    "Alt_L": 0xFFE9,
    "Alt_R": 0xFFEA,
    "Super_L": 0xFFEB,
    "Super_R": 0xFFEC,
    "Delete": 0xFFFF,
    "space": 0x20,
    "minus": 0x2D,
    "plus": 0x2B,
}
_SHORT = {
    "alt": "Alt_L",
    "backspace": "BackSpace",
    "bksp": "BackSpace",
    "cmd": "Super_L",
    "control": "Control_L",
    "ctrl": "Control_L",
    "del": "Delete",
    "enter": "Return",
    "esc": "Escape",
    "ins": "Insert",
    "meta": "Meta_L",
    "pagedown": "Page_Down",
    "pageup": "Page_Up",
    "pgdn": "Page_Down",
    "pgup": "Page_Up",
    "shift": "Shift_L",
    "super": "Super_L",
    "win": "Super_L",
}
_BY_NAME = {name.lower(): sym for name, sym in _NAMED.items()}
_BY_NAME |= {short: _NAMED[name] for short, name in _SHORT.items()}
_NAME_OF = {sym: name for name, sym in _NAMED.items()}

# The keys of a keyboard, and all characters of ASCII, because viewers send a shifted
# key as the character that it types.
KEYBOARD = [
    *(chr(code) for code in range(0x21, 0x7F)),
    *("space", "Return", "BackSpace", "Tab", "Escape", "Delete", "Insert"),
    *("Left", "Right", "Up", "Down", "Home", "End", "Page_Up", "Page_Down"),
    *("Shift_L", "Shift_R", "Control_L", "Control_R", "Alt_L", "Alt_R", "Super_L"),
    *(f"F{number}" for number in range(1, 13)),
]

# These go down before other keys, and up after them.
MODIFIERS = frozenset(range(0xFFE1, 0xFFED))

# The keysym of a character outside Latin 1 is its code point with this bit.
_UNICODE = 0x01000000


def keysym(name: str | int) -> int:
    """Returns the keysym of a key.

    Args:
        name: A name, one character, or the number.

    Example:
        >>> [hex(keysym(name)) for name in ("Left", "ctrl", "a", "A", "€")]
        ['0xff51', '0xffe3', '0x61', '0x41', '0x10020ac']

    Raises:
        ValueError: No key has that name.
    """
    if isinstance(name, int) and not isinstance(name, bool):
        if 0 < name <= 0x1FFFFFFF:
            return name
    elif isinstance(name, str) and len(name) == 1 and name.isprintable():
        code = ord(name)
        return code if code < 0x100 else _UNICODE + code
    elif isinstance(name, str) and name.lower() in _BY_NAME:
        return _BY_NAME[name.lower()]
    raise ValueError(
        "A key must be a character, an X11 name such as 'Left', 'Return' or 'F5', or "
        f"its number, got {describe(name)}."
    )


def keysyms(names: Sequence[str | int]) -> list[int]:
    """Returns the keysyms of several keys, which must be different.

    Example:
        >>> keysyms(["a", "b"])
        [97, 98]

    Raises:
        ValueError: A key does not exist, or appears twice.
    """
    if isinstance(names, str):
        raise TypeError(f"keys must be a list of names, got {describe(names)}.")
    found = [keysym(name) for name in names]
    if len(set(found)) < len(found):
        twice = next(key for key in found if found.count(key) > 1)
        raise ValueError(f"keys must be different, got {key_name(twice)!r} twice.")
    return found


def key_name(key: int) -> str:
    """Returns the X11 name of a key.

    Example:
        >>> key_name(0xFF51), key_name(97), key_name(0x10020AC), key_name(0xFE20)
        ('Left', 'a', '€', '0xfe20')
    """
    if key in _NAME_OF:
        return _NAME_OF[key]
    code = key - _UNICODE if key >= _UNICODE else key
    is_letter = code < 0x110000 and (key >= _UNICODE or code < 0x100)
    return chr(code) if is_letter and chr(code).isprintable() else hex(key)


def chord(text: str) -> list[int]:
    """Returns the keys of a chord such as "ctrl-t", modifiers first.

    Example:
        >>> [key_name(key) for key in chord("ctrl-shift-Left")], chord("-")
        (['Control_L', 'Shift_L', 'Left'], [45])
    """
    names = re.split(r"(?<=.)[-+](?=.)", text)
    keys = list(dict.fromkeys(map(keysym, names)))
    return sorted(keys, key=lambda key: key not in MODIFIERS)
