"""Where the pointer's place and buttons are in an action."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.desktop import Controls, Joystick
from envkit.play.pointer import ActionNumbers, ActionPointer
from envkit.specs import ArraySpec, BoundedArraySpec
from envkit.specs.special import ObjectSpec

PAIR = BoundedArraySpec((2,), np.float32, -1, 1)
NUMBER = BoundedArraySpec((), np.float32, 0, 1)
SIZES = [640, 480]

POINTERS = {
    "two floats": (PAIR, (0, 1), ()),
    "two large integers": (BoundedArraySpec((2,), np.int64, 0, SIZES), (0, 1), ()),
    "and a choice": (BoundedArraySpec((3,), np.int64, 0, [*SIZES, 1]), (0, 1), (2,)),
    "a name among others": (
        {"arm": PAIR, "pointer": PAIR, "buttons": ArraySpec((3,), np.bool_)},
        (5, 6),
        (2, 3, 4),
    ),
    "a name of a spec": (
        [PAIR, BoundedArraySpec((2,), np.float32, -1, 1, "mouse")],
        (2, 3),
        (),
    ),
    "x and y": ({"x": NUMBER, "y": NUMBER, "click": ArraySpec((), bool)}, (1, 2), (0,)),
    "as desktops have it": (
        Controls(["a"], size=(64, 48), pointer=True, buttons=2).spec(),
        (3, 4),
        (0, 1),
    ),
}
NONE = {
    "a choice": BoundedArraySpec((), np.int64, 0, 5),
    "choices": BoundedArraySpec((2,), np.int64, 0, 4),
    "one float": BoundedArraySpec((1,), np.float32, -1, 1),
    "three floats": BoundedArraySpec((3,), np.float32, -1, 1),
    "two pairs": {"left": PAIR, "right": PAIR},
    "three large integers": BoundedArraySpec((3,), np.int64, 0, [*SIZES, 99]),
    "a matrix": BoundedArraySpec((2, 2), np.float32, -1, 1),
    "an object": ObjectSpec(),
}


@pytest.mark.parametrize(("spec", "place", "buttons"), POINTERS.values(), ids=POINTERS)
def test_an_action_spec_with_a_pointer_is_recognised(spec, place, buttons):
    pointer = ActionPointer.of(spec)
    assert (place, buttons) == (pointer.place, pointer.buttons)


@pytest.mark.parametrize("spec", NONE.values(), ids=NONE)
def test_ambiguous_actions_are_no_pointer(spec):
    assert ActionPointer.of(spec) is None


def test_a_joystick_is_an_ordinary_pair():
    assert ActionPointer.of(Joystick((64, 48)).spec()).place == (0, 1)


@given(
    st.lists(st.integers(16, 5000), min_size=2, max_size=2),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_the_edges_of_the_picture_are_the_bounds_of_the_place(most, shares):
    spec = BoundedArraySpec((2,), np.int64, [-5, 7], np.array([-5, 7]) + most)
    pointer = ActionPointer.of(spec)
    action = pointer.pointed(
        np.array([0, 7]), tuple(2 * share - 1 for share in shares), 0
    )
    for low, size, share, number in zip(
        [-5, 7], most, shares, action.tolist(), strict=True
    ):
        assert low <= number <= low + size
        assert abs(low + share * size - number) <= 0.5 + 1e-6


BUTTONS = {
    "flags": (ArraySpec((3,), np.bool_), 0b101, [True, False, True]),
    "one flag": (ArraySpec((), np.bool_), 0b101, True),
    "one flag of another button": (ArraySpec((), np.bool_), 0b100, False),
    "a mask": (BoundedArraySpec((), np.int32, 0, 7), 0b10101, 0b101),
    "a number with room for two bits": (BoundedArraySpec((), np.int32, 0, 4), 7, 3),
    "a float": (BoundedArraySpec((), np.float32, 0, 1), 1, 1.0),
}


@pytest.mark.parametrize(("spec", "mask", "expected"), BUTTONS.values(), ids=BUTTONS)
def test_buttons_match_the_action(spec, mask, expected):
    pointer = ActionPointer.of({"pointer": PAIR, "buttons": spec})
    action = {"pointer": np.zeros(2, np.float32), "buttons": np.zeros((), spec.dtype)}
    if spec.shape:
        action["buttons"] = np.zeros(spec.shape, spec.dtype)
    pointed = pointer.pointed(action, None, mask)
    assert expected == pointed["buttons"].tolist()
    assert [0, 0] == pointed["pointer"].tolist()


def test_numbers_without_bounds_are_from_minus_1_to_1():
    numbers = ActionNumbers(ArraySpec((2,), np.float32))
    moved = numbers.moved(np.zeros(2, np.float32), {0: -1.0, 1: 0.5})
    assert ([0, 1], [-1.0, 0.5]) == (numbers.floats, moved.tolist())
