"""Reads an environment's names for its actions, and the keys it declares for them."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Any

from envkit.play.keys import NAMED, as_key

__all__ = [
    "attribute_of",
    "button_names",
    "chord_of",
    "declared_keys",
    "is_idle",
    "names_of",
]

_IDLE_NAMES = {
    "do_nothing",
    "idle",
    "no_action",
    "no_op",
    "none",
    "noop",
    "nothing",
    "stay",
    "still",
    "wait",
}
_WORDS = {
    "accelerate": "up",
    "attack": "space",
    "backward": "down",
    "brake": "down",
    "done": "enter",
    "down": "down",
    "east": "right",
    "fire": "space",
    "forward": "up",
    "gas": "up",
    "jump": "space",
    "left": "left",
    "north": "up",
    "right": "right",
    "shoot": "space",
    "south": "down",
    "thrust": "up",
    "toggle": "space",
    "up": "up",
    "west": "left",
}
# Words about how something moves, which may be glued to the others: `turnleft`.
_VERBS = ("go", "look", "move", "rotate", "run", "steer", "step", "turn", "walk")
_KNOWN = "|".join(_WORDS)
_GLUED = re.compile(f"(?:{'|'.join(_VERBS)}|{_KNOWN})+")
_PART = re.compile(_KNOWN)
_PICK_UP = re.compile(r"pick[\W_]?up", re.IGNORECASE)  # another meaning of "up"
_TOKEN = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
# pygame's codes of the arrows, before version 2 and since; Gymnasium has both.
_CODES = dict(enumerate(("up", "down", "right", "left"), 273))
_CODES |= dict(enumerate(("right", "left", "down", "up"), 1073741903))


def names_of(env: Any, count: int) -> tuple[str, ...]:
    """Returns the names of the actions; `()` if the environment has none.

    Args:
        env: The environment.
        count: The number of actions, which wrappers may have changed.
    """
    for found in (
        attribute_of(env, "get_action_meanings"),
        attribute_of(env, "action_meanings"),
        attribute_of(env, "action_names"),
        _of_enum(attribute_of(env, "actions")),
        _of_menu(attribute_of(env, "menu")),
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
    """Returns the names of the numbers in an action, such as ViZDoom's buttons."""
    for found in (attribute_of(env, "buttons"), attribute_of(env, "action_names")):
        if isinstance(found, list | tuple) and len(found) == count:
            return tuple(map(str, found))
    return ()


def is_idle(name: str) -> bool:
    """Returns True for the name of an action that does nothing.

    Example:
        >>> is_idle("NOOP"), is_idle("Do nothing"), is_idle("left")
        (True, True, False)
    """
    return re.sub(r"[\W_]+", "_", name.strip().lower()) in _IDLE_NAMES


def declared_keys(env: Any, count: int) -> dict[frozenset[str], int]:
    """Returns the keys that an environment declares for its actions, if any.

    This reads Gymnasium's `get_keys_to_action()`, where keys are characters, codes or
    strings of characters; here they may also be names, such as "left".
    """
    found = attribute_of(env, "get_keys_to_action")
    if not isinstance(found, Mapping):
        return {}
    declared: dict[frozenset[str], int] = {}
    for keys, action in found.items():
        is_one = isinstance(keys, int) or keys in NAMED
        chord = frozenset(map(_as_declared_key, (keys,) if is_one else keys))
        if (
            chord
            and "" not in chord
            and not isinstance(action, bool)
            and _is_number(action, count)
        ):
            declared[chord] = int(action)
    return declared


def chord_of(name: str) -> frozenset[str]:
    """Returns the keys that a name suggests: for `UPFIRE` the arrow and the space bar.

    Example:
        >>> sorted(chord_of("UPRIGHTFIRE")), sorted(chord_of("TURN_LEFT"))
        (['right', 'space', 'up'], ['left'])
        >>> chord_of("pick up"), chord_of("update")
        (frozenset(), frozenset())
    """
    if name in NAMED or len(name) == 1:  # PLE's names are those of keys
        return frozenset({as_key(name)})
    tokens = map(str.lower, _TOKEN.findall(_PICK_UP.sub("", name)))
    words = [
        word
        for token in tokens
        if _GLUED.fullmatch(token)
        for word in _PART.findall(token)
    ]
    return frozenset(_WORDS[word] for word in words)


def attribute_of(env: Any, name: str) -> Any:
    """Returns an attribute of the environment, called if it can be called."""
    try:
        found = getattr(env, name, None)
        is_type = isinstance(found, type)
        return found() if callable(found) and not is_type else found
    except Exception:  # any failure just means that there is nothing to learn
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


def _as_declared_key(key: Any) -> str:
    """Returns the name of a key; "" if it is unknown."""
    if isinstance(key, int):
        key = _CODES.get(key) or (chr(key) if 0 < key < 0x110000 else "")
    if key in NAMED:
        return str(key)
    return as_key(key) if isinstance(key, str) and len(key) == 1 else ""


def _is_number(action: Any, count: int) -> bool:
    try:
        return 0 <= int(action) < count
    except (TypeError, ValueError):
        return False
