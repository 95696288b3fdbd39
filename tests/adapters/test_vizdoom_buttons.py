"""Buttons become a vector or a menu; any game that knows its buttons will do."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from envkit import BoundedArraySpec
from envkit.adapters.vizdoom.suite import _button_spec, _menu_of, _menu_spec

MOST = np.finfo(np.float32).max


def game(*names, largest=0.0):
    return SimpleNamespace(
        get_available_buttons=lambda: [SimpleNamespace(name=name) for name in names],
        get_button_max_value=lambda button: largest,
    )


def test_binary_buttons_are_zeros_and_ones():
    assert BoundedArraySpec((2,), np.int8, 0, 1) == _button_spec(game("USE", "ATTACK"))


@pytest.mark.parametrize(("largest", "bound"), [(0.0, MOST), (5.0, 5.0)])
def test_a_delta_button_is_a_float(largest, bound):
    spec = _button_spec(game("USE", "TURN_LEFT_RIGHT_DELTA", largest=largest))
    assert BoundedArraySpec((2,), np.float32, [0, -bound], [1, bound]) == spec


def test_a_number_of_buttons_makes_a_menu_in_vizdooms_order():
    """`itertools.product`, of which those with too many buttons are left out."""
    menu = _menu_of(game("LEFT", "RIGHT", "ATTACK"), 1)
    assert [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]] == menu.tolist()


def test_all_combinations_have_the_order_of_binary_numbers():
    menu = _menu_of(game("LEFT", "RIGHT", "ATTACK"), 7)
    assert list(range(8)) == (menu @ [4, 2, 1]).tolist()


def test_a_number_of_buttons_leaves_delta_buttons_at_zero():
    menu = _menu_of(game("LOOK_UP_DOWN_DELTA", "ATTACK"), 1)
    assert [[0, 0], [0, 1]] == menu.tolist()


def test_a_limit_on_simultaneous_buttons_keeps_the_menu_small():
    assert (1 + 40 + 780, 40) == _menu_of(game(*map(str, range(40))), 2).shape


def test_a_menu_accepts_button_names_and_numbers():
    choices = [[], "attack", ["LEFT", "ATTACK"], [0.5, 0]]
    menu = _menu_of(game("LEFT", "ATTACK"), choices)
    assert [[0, 0], [0, 1], [1, 1], [0.5, 0]] == menu.tolist()
    assert BoundedArraySpec((), np.int64, 0, 3) == _menu_spec(menu)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (
            [["JUMP"]],
            "actions has the button 'JUMP', and the game has LEFT, ATTACK. Its "
            "configuration says which buttons there are: available_buttons.",
        ),
        (
            [[1, 0, 0]],
            "actions has a choice of 3 numbers, and the game has 2 buttons: LEFT, "
            "ATTACK.",
        ),
        (
            0,
            "actions is 0; a number is the most buttons that are down together, so "
            "it must be at least 1.",
        ),
    ],
)
def test_invalid_choices_are_refused(actions, message, message_of):
    assert message == message_of(
        ValueError, lambda: _menu_of(game("LEFT", "ATTACK"), actions)
    )


@pytest.mark.parametrize("actions", ["all", [], None])
def test_a_value_other_than_a_menu_is_refused(actions):
    with pytest.raises(
        TypeError, match="actions must be 'buttons', a number of buttons, or"
    ):
        _menu_of(game("LEFT"), actions)
