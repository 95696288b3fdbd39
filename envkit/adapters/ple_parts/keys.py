"""The keys that a game of PLE understands, and what they are called."""

from __future__ import annotations

import sys
from typing import Any

from envkit.specs.validation import describe

__all__ = ["key_name", "keys_of"]


def keys_of(ple: Any, name: str) -> list[int | None]:
    """Returns the keys in the order in which PLE tells them; `None` for no key."""
    try:
        keys = list(ple.getActionSet())
    except NameError as error:
        raise TypeError(
            f"{name} has its actions in {describe(ple.game.actions)}; PLE plays games "
            'that have them in a dictionary, such as {"left": K_a}.'
        ) from error
    if not keys:
        raise ValueError(
            f"{name} has no actions: neither keys, nor the no-op that PLE adds unless "
            "it is made with add_noop_action=False."
        )
    return keys


def key_name(key: int | None) -> str:
    """Returns what a key is called."""
    if key is None:
        return "noop"
    pygame = sys.modules.get("pygame")
    # It knows names only while there is a display.
    if pygame is None or not pygame.display.get_init():
        return f"key {key}"
    return pygame.key.name(key) or f"key {key}"
