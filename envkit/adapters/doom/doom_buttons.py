"""Buttons of ViZDoom: as a vector, or as a menu of combinations.

A button is up or down, 0 or 1, but for those whose name ends in `_DELTA`: they take how
far to turn or to move.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.specs.array_spec import BoundedArraySpec
from envkit.specs.validation import describe
from envkit.types import Array

__all__ = ["button_spec", "menu_of", "menu_spec"]


def button_spec(game: Any) -> BoundedArraySpec:
    """Returns the spec of a vector with a number for each available button."""
    buttons = game.get_available_buttons()
    if not any(map(_is_delta, buttons)):
        return BoundedArraySpec((len(buttons),), np.int8, 0, 1, "action")
    # 0 says that there is no limit.
    largest = [
        (game.get_button_max_value(button) or np.finfo(np.float32).max)
        if _is_delta(button)
        else 1.0
        for button in buttons
    ]
    smallest = [
        -limit if _is_delta(button) else 0.0
        for button, limit in zip(buttons, largest, strict=True)
    ]
    return BoundedArraySpec(
        (len(buttons),),
        np.float32,
        np.array(smallest, np.float32),
        np.array(largest, np.float32),
        "action",
    )


def menu_spec(menu: Array) -> BoundedArraySpec:
    """Returns the spec of a choice from a menu."""
    return BoundedArraySpec((), np.int64, 0, len(menu) - 1, "action")


def menu_of(game: Any, actions: int | Sequence[Any]) -> Array:
    """Returns a menu: a row of numbers, one for each button, for each choice.

    Args:
        game: The game, with its available buttons.
        actions: How many buttons are down together at most, for all these combinations
            in the order of ViZDoom's Gymnasium environments, with the buttons `_DELTA`
            at 0; or the choices themselves, each of them the names of the buttons that
            are down, or numbers for all buttons.
    """
    buttons = game.get_available_buttons()
    if isinstance(actions, int):
        if isinstance(actions, bool) or actions < 1:
            raise ValueError(
                f"actions is {actions!r}; a number says how many buttons are down "
                "together at most, so it is 1 or more."
            )
        return _combinations(buttons, actions)
    if isinstance(actions, str) or not isinstance(actions, Sequence) or not actions:
        raise TypeError(
            f"actions is {describe(actions)}; it is 'buttons', a number of buttons, or "
            "a list of choices such as [[], ['ATTACK'], ['MOVE_LEFT', 'ATTACK']]."
        )
    names = [button.name for button in buttons]
    return np.array([_choice(choice, names) for choice in actions], np.float64)


def _combinations(buttons: Sequence[Any], most: int) -> Array:
    options = [(0,) if _is_delta(button) else (0, 1) for button in buttons]
    # Otherwise twenty buttons would have a million, most of them only to be dropped.
    binary = sum(len(option) == 2 for option in options)
    rows = [
        tuple(int(place in down) for place in range(binary))
        for count in range(min(most, binary) + 1)
        for down in itertools.combinations(range(binary), count)
    ]
    menu = np.zeros((len(rows), len(buttons)))
    menu[:, [len(option) == 2 for option in options]] = sorted(rows)
    return menu


def _choice(choice: Any, names: list[str]) -> list[float]:
    if isinstance(choice, str):
        choice = [choice]
    if all(isinstance(part, str) for part in choice):
        unknown = [part for part in choice if part.upper() not in names]
        if unknown:
            raise ValueError(
                f"actions has the button {unknown[0]!r}, and the game has "
                f"{', '.join(names)}. Its configuration says which buttons there are: "
                "available_buttons."
            )
        down = {part.upper() for part in choice}
        return [float(name in down) for name in names]
    if len(choice) != len(names):
        raise ValueError(
            f"actions has a choice of {len(choice)} numbers, and the game has "
            f"{len(names)} buttons: {', '.join(names)}."
        )
    return [float(part) for part in choice]


def _is_delta(button: Any) -> bool:
    return str(button.name).endswith("_DELTA")
