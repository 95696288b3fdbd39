"""Reads an environment's names for its actions, and the keys it declares for them."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Any

from envkit.play.keys import NAMED, as_key

__all__ = [
    "IDLE_NAMES",
    "attribute_of",
    "button_names",
    "chord_of",
    "declared_keys",
    "names_of",
]

# Names of actions that do nothing.
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
    found = attribute_of(env, "buttons")
    if isinstance(found, list | tuple) and len(found) == count:
        return tuple(map(str, found))
    return ()


def declared_keys(env: Any, count: int) -> dict[frozenset[str], int]:
    """Returns the keys that an environment declares for its actions, if any.

    This reads Gymnasium's `get_keys_to_action()`, where keys are characters or codes.
    """
    found = attribute_of(env, "get_keys_to_action")
    if not isinstance(found, Mapping):
        return {}
    declared: dict[frozenset[str], int] = {}
    for keys, action in found.items():
        parts = keys if isinstance(keys, tuple | list) else (keys,)
        chord = frozenset(filter(None, map(_as_declared_key, parts)))
        if chord and not isinstance(action, bool) and _is_number(action, count):
            declared[chord] = int(action)
    return declared


def chord_of(name: str) -> frozenset[str]:
    """Returns the keys that a name suggests: for `UPFIRE` the arrow and the space bar.

    Example:
        >>> sorted(chord_of("UPRIGHTFIRE")), sorted(chord_of("TURN_LEFT"))
        (['right', 'space', 'up'], ['left'])
        >>> chord_of("toggle")
        frozenset()
    """
    if name in NAMED or len(name) == 1:  # PLE's names are those of keys
        return frozenset({as_key(name)})
    return frozenset(_WORDS[word] for word in _PART.findall(name.lower()))


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


def _as_declared_key(key: Any) -> str | None:
    if isinstance(key, int):
        key = chr(key) if 0 < key < 0x110000 else None
    return as_key(key) if isinstance(key, str) and len(key) == 1 else None


def _is_number(action: Any, count: int) -> bool:
    try:
        return 0 <= int(action) < count
    except (TypeError, ValueError):
        return False
