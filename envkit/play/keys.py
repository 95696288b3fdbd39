"""Players' keys: their names, their codes in terminals, and the pointer."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = [
    "MODIFIERS",
    "NAMED",
    "Pointed",
    "as_key",
    "decode",
    "key_text",
    "parse_keys",
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
# The keys that are not characters.
NAMED = {*_CHARACTERS.values(), "left", "right", "up", "down"}
# Keys that change others, as pygame names them; alone they mean nothing.
MODIFIERS = frozenset(
    f"{side} {key}"
    for side in ("left", "right")
    for key in ("alt", "ctrl", "gui", "meta", "shift", "super")
) | {"alt gr", "caps lock", "numlock", "scroll lock"}
_SHOWN = {"left": "←", "right": "→", "up": "↑", "down": "↓"}
# By the last character of their codes, and by the number before a "~".
_ENDINGS = {"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end"}
_ENDINGS |= {"P": "f1", "Q": "f2", "R": "f3", "S": "f4", "Z": "tab"}
_NUMBERS = {1: "home", 2: "insert", 3: "delete", 4: "end", 5: "page up", 6: "page down"}
_NUMBERS |= {11: "f1", 12: "f2", 13: "f3", 14: "f4", 15: "f5", 17: "f6", 18: "f7"}
_NUMBERS |= {19: "f8", 20: "f9", 21: "f10", 23: "f11", 24: "f12"}
# Terminals' codes for keys that are not characters: ESC [ A, ESC O A, ESC [ 3 ~.
_SEQUENCE = re.compile(r"\x1b(?:\[|O)([0-9;]*)([A-Za-z~])")
_BEGUN = re.compile(r"\x1b(?:\[|O)?[0-9;]*")


def as_key(character: str) -> str:
    """Returns the key's name for a character.

    Example:
        >>> as_key("D"), as_key(" ")
        ('d', 'space')
    """
    return _CHARACTERS.get(character, character.lower())


def decode(typed: str) -> tuple[list[str], str]:
    r"""Returns the keys that a terminal has sent, and the rest of its text.

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
            first = numbers.partition(";")[0]
            number = int(first) if first and last == "~" else 0
            if key := _NUMBERS.get(number) or _ENDINGS.get(last):
                keys.append(key)
        elif _BEGUN.fullmatch(typed):
            break
        elif typed[0].isprintable() or typed[0] in _CHARACTERS:
            keys.append(as_key(typed[0]))
            typed = typed[1:]
        else:
            if "\x00" < typed[0] < " ":
                keys.append(f"ctrl+{chr(ord(typed[0]) + 96)}")
            typed = typed[1:]
    return keys, typed


def parse_keys(text: str) -> list[tuple[str, ...]]:
    """Parses keys to press: "dda", "a<left><up+space>q".

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
    """Returns a key as shown to players: arrows as arrows."""
    return _SHOWN.get(key, key)


class Pointed(NamedTuple):
    """Records a pointer event.

    Attributes:
        x: The horizontal position in the picture, from 0 to 1.
        y: The vertical position from the top, from 0 to 1.
        buttons: A bit for each button that is down: 1 left, 2 middle, 4 right, 8 and 16
            for the wheel up and down.
    """

    x: float
    y: float
    buttons: int
