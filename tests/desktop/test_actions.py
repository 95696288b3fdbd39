"""Actions as arrays, the events that come of them, and the way back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.desktop import (
    ClickGrid,
    Controls,
    Events,
    Joystick,
    KeyEvent,
    Macros,
    PointerEvent,
    Together,
    key_name,
    keysym,
)
from envkit.desktop.keys import chord
from envkit.specs.sampling import sample_spec_nest
from envkit.specs.validation import check_fits

SIZE = (64, 48)
LEFT, SPACE, SHIFT = keysym("Left"), keysym("space"), keysym("shift")


def down(name):
    return KeyEvent(keysym(name), True)


def up(name):
    return KeyEvent(keysym(name), False)


ENCODINGS = {
    "keys": lambda: Controls(["Left", "a", "shift"]),
    "pointer": lambda: Controls(size=SIZE, pointer=True, buttons=3),
    "all controls": lambda: Controls(["Left"], size=SIZE, pointer=True, buttons=5),
    "events": lambda: Events(["a", "b"], size=SIZE, limit=3),
    "macros": lambda: Macros([None, "Left", "ctrl-t", ["a", PointerEvent(1, 2)]]),
    "clicks": lambda: ClickGrid(SIZE, rows=3, columns=2),
    "joystick": lambda: Joystick(SIZE, buttons=2),
    "together": lambda: Together(
        {"keys": Macros([None, "x"]), "mouse": ClickGrid(SIZE, rows=2, columns=2)}
    ),
}


def down_at_the_end(events):
    """Returns the keys that are down after events, and the buttons."""
    keys, buttons = set(), 0
    for event in events:
        if isinstance(event, PointerEvent):
            buttons = event.buttons
        else:
            (keys.add if event.down else keys.discard)(event.key)
    return keys, buttons


@pytest.mark.parametrize("name", ENCODINGS)
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(0, 6))
def test_a_new_episode_begins_with_everything_released(name, seed, steps):
    encoding, rng = ENCODINGS[name](), np.random.default_rng(seed)
    events = []
    for _ in range(steps):
        events += encoding.events(sample_spec_nest(encoding.spec(), rng))
    assert (set(), 0) == down_at_the_end([*events, *encoding.begin()])


@pytest.mark.parametrize("name", ENCODINGS)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_persons_events_become_an_action_of_the_spec(name, seed):
    """Whatever else the person pressed, and wherever the pointer went."""
    encoding, rng = ENCODINGS[name](), np.random.default_rng(seed)
    for _ in range(3):
        names = rng.choice(["Left", "a", "b", "x", "ctrl", "F5"], 2)
        events = [KeyEvent(keysym(str(name)), bool(rng.integers(2))) for name in names]
        x, y, buttons = rng.integers([-9, -9, 0], [90, 90, 8]).tolist()
        events.append(PointerEvent(x, y, buttons))
        check_fits(encoding.array(events), encoding.spec(), subject="array()")


@pytest.mark.parametrize(
    "name",
    ["keys", "pointer", "all controls", "clicks", "macros", "joystick", "together"],
)
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 6))
def test_the_events_of_an_action_lead_back_to_it(name, seed, steps):
    """To actions with the same events, where a pixel stands for many places."""
    there, back, again = (ENCODINGS[name]() for _ in range(3))
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        events = there.events(sample_spec_nest(there.spec(), rng))
        assert events == again.events(back.array(events))


def test_a_held_key_is_pressed_once_and_released_when_its_flag_falls():
    controls = Controls(["Left", "space"])
    flags = [(1, 0), (1, 0), (1, 1), (0, 0)]
    events = [controls.events({"keys": np.array(one, bool)}) for one in flags]

    assert [
        [down("Left")],
        [],
        [down("space")],
        [up("Left"), up("space")],
    ] == events


def test_modifiers_go_down_first_and_up_last():
    controls = Controls(["a", "shift"])
    pressed = controls.events({"keys": np.array([True, True])})
    released = controls.events({"keys": np.array([False, False])})

    assert [down("shift"), down("a")] == pressed
    assert [up("a"), up("shift")] == released


def test_the_pointer_reaches_every_corner_and_rests_where_it_is_told():
    controls = Controls(size=SIZE, pointer=True, buttons=1)

    def events(x, y, button):
        pointer = np.array([x, y], np.float32)
        return controls.events({"pointer": pointer, "buttons": np.array([button])})

    assert [PointerEvent(0, 0, 0)] == events(-1, -1, False)
    assert [PointerEvent(63, 47, 1)] == events(1, 1, True)
    assert [] == events(1, 1, True)
    assert [PointerEvent(63, 47, 0)] == controls.begin()


def test_a_key_that_was_only_touched_counts_as_held_for_one_step():
    controls = Controls(["Left"], size=SIZE, buttons=1)
    click = [PointerEvent(3, 4, 1), PointerEvent(3, 4, 0)]
    touched = controls.array([down("Left"), up("Left"), *click])
    after = controls.array([])

    assert ([True], [True]) == (touched["keys"].tolist(), touched["buttons"].tolist())
    assert ([False], [False]) == (after["keys"].tolist(), after["buttons"].tolist())


def test_events_survive_the_round_trip():
    encoding = Events(["a", "b"], size=SIZE, limit=4)
    events = [down("b"), PointerEvent(9, 8, 1), PointerEvent(9, 8, 0), up("b")]
    assert events == encoding.events(encoding.array(events))


def test_superseded_moves_and_other_keys_are_dropped():
    encoding = Events(["a"], size=SIZE, limit=2)
    moves = [PointerEvent(x, 0) for x in range(9)]
    action = encoding.array([*moves, down("x"), down("a")])
    assert [PointerEvent(8, 0, 0), down("a")] == encoding.events(action)


def test_a_menu_entry_is_held_until_the_next_action():
    menu = Macros([None, "ctrl-t", ["a", PointerEvent(1, 2)]])

    assert [down("ctrl"), down("t")] == menu.events(1)
    assert [] == menu.events(np.int64(1))
    assert [up("t"), up("ctrl"), down("a"), up("a"), PointerEvent(1, 2)] == (
        menu.events(2)
    )
    assert [] == menu.events(0)


def test_held_keys_select_the_largest_matching_menu_entry():
    menu = Macros([None, "a", "ctrl-a", ["F5"]])
    chosen = [
        menu.array([down("a")]),
        menu.array([down("ctrl")]),
        menu.array([up("ctrl"), up("a")]),
        menu.array([down("F5"), down("x"), up("F5"), up("x")]),
    ]
    assert [1, 2, 0, 3] == [int(one) for one in chosen]


def test_a_menu_without_none_says_so():
    with pytest.raises(ValueError, match="Add None to the menu"):
        Macros(["a"]).array([])


def test_a_grid_leaves_out_regions_and_does_nothing_at_0():
    grid = ClickGrid(SIZE, rows=2, columns=2, without=[(0, 0, 32, 24)], button="right")

    assert [(48, 12), (16, 36), (48, 36)] == grid.places
    assert [] == grid.events(0)
    assert [PointerEvent(16, 36, buttons) for buttons in (0, 4, 0)] == grid.events(2)


def test_a_persons_click_selects_the_nearest_cell():
    grid = ClickGrid(SIZE, rows=2, columns=2, without=[(0, 0, 32, 24)])
    clicks = [
        [PointerEvent(2, 3, 0), PointerEvent(x, y, 1)] for x, y in [(9, 9), (60, 40)]
    ]

    assert [0, 3] == [int(grid.array(one)) for one in clicks]
    assert 0 == grid.array([PointerEvent(9, 9, 0)])


def test_an_axis_moves_the_pointer_by_fractions_that_add_up():
    stick = Joystick(SIZE, speed=1.0)
    quarter = {"axes": np.array([0.25, 0.0], np.float32)}
    moves = [stick.events(quarter) for _ in range(8)]
    far = [stick.events({"axes": np.array([1.0, 1.0])}) for _ in range(99)]

    assert [33, 34] == [event.x for events in moves for event in events]
    assert PointerEvent(63, 47, 0) == [one for one in far if one][-1][0]
    assert [PointerEvent(32, 24, 0)] == stick.begin()


def test_a_persons_motion_is_clipped_to_the_range_of_an_axis():
    stick = Joystick(SIZE, speed=10, buttons=1)
    action = stick.array([PointerEvent(37, 24, 1), PointerEvent(37, 0, 0)])

    assert [0.5, -1.0] == action["axes"].tolist()
    assert [True] == action["buttons"].tolist()


def test_keys_have_x11_names_short_names_and_characters():
    names = ["Left", "esc", "ENTER", "space", "a", "ß", "€", 0xFF51]
    syms = [0xFF51, 0xFF1B, 0xFF0D, 0x20, 0x61, 0xDF, 0x10020AC, 0xFF51]

    assert syms == [keysym(name) for name in names]
    assert ["Left", "Escape", "space", "a", "€"] == [
        key_name(key) for key in (0xFF51, 0xFF1B, 0x20, 0x61, 0x10020AC)
    ]
    assert [keysym(name) for name in ("shift", "ctrl", "+")] == chord("shift-ctrl-+")


MESSAGES = {
    "no such key": (lambda: keysym("Lefft"),
        "A key must be a character, an X11 name such as 'Left', 'Return' or 'F5', or "
        "its number, got the string 'Lefft'."),
    "keys in one text": (lambda: Controls("abc"),
        "keys must be a list of names, got the string 'abc'."),
    "a key twice": (lambda: Controls(["a", "b", "a"]),
        "keys must be different, got 'a' twice."),
    "no controls": (Controls,
        "Controls must have keys, a pointer or buttons; got none."),
    "a pointer without a screen": (lambda: Controls(pointer=True),
        "size must be the width and height of the screen in pixels, such as "
        "(640, 480), got None."),
    "nine buttons": (lambda: Controls(size=SIZE, buttons=9),
        "buttons must be at most 8, got 9."),
    "events of nine buttons": (lambda: Events(size=SIZE, buttons=9),
        "buttons must be at most 8, got 9."),
    "an empty menu": (lambda: Macros([]),
        "menu must be a list of at least one entry, got a list of 0 elements."),
    "a strange entry": (lambda: Macros([1.5]),
        "An entry of a menu must be None, a chord such as 'ctrl-t', or a list of "
        "events and chords, got 1.5 of type float."),
    "a strange button": (lambda: ClickGrid(SIZE, rows=1, columns=1, button="up"),
        "button must be one of 'left', 'middle', 'right', 'wheel up', 'wheel down', "
        "got the string 'up'."),
    "no place": (lambda: ClickGrid(SIZE, rows=1, columns=1, without=[(0, 0, 64, 48)]),
        "without must leave at least one cell; it covers all of them."),
    "a standing stick": (lambda: Joystick(SIZE, speed=0),
        "speed must be a positive number of pixels, got 0 of type int."),
    "no parts": (lambda: Together({}),
        "parts must be a dictionary of encodings, got a dict of 0 elements."),
    "too many events": (
        lambda: Events(["a"], size=SIZE, limit=1).array([down("a"), up("a")]),
        "An action must have at most 1 events, got 2 in one step. Make Events with a "
        "larger limit."),
}  # fmt: skip


@pytest.mark.parametrize("case", MESSAGES)
def test_invalid_arguments_are_refused_with_the_requirement(case):
    call, message = MESSAGES[case]
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    assert message == str(caught.value)


def test_a_joystick_follows_a_jumping_pointer_over_several_steps():
    there = Joystick((640, 480), speed=100)
    back = Joystick((640, 480), speed=100)
    places = []
    for events in [[PointerEvent(20, 240)], [], [PointerEvent(20, 250)], [], []]:
        moved = there.events(back.array(events))
        places += [(event.x, event.y) for event in moved]

    assert [(220, 240), (120, 240), (20, 250)] == places


def test_a_click_counts_once_at_the_press():
    grid = ClickGrid(SIZE, rows=1, columns=2, without=[(0, 0, 10, 10)])
    pressed = grid.array([PointerEvent(60, 20, 1)])
    dragged = grid.array([PointerEvent(20, 20, 1)])
    released = grid.array([PointerEvent(20, 20, 0)])
    left_out = grid.array([PointerEvent(5, 5, 1), PointerEvent(5, 5, 0)])
    again = grid.array([PointerEvent(12, 5, 1)])
    grid.begin()  # A new episode begins with no button down.
    new = grid.array([PointerEvent(12, 5, 1)])

    answers = [pressed, dragged, released, left_out, again, new]
    assert [2, 0, 0, 0, 1, 1] == [int(answer) for answer in answers]


def test_a_click_keeps_its_place_when_the_pointer_moves_on():
    there, back = (Controls(size=SIZE, pointer=True, buttons=1) for _ in range(2))
    steps = [
        [PointerEvent(10, 12, 1), PointerEvent(10, 12, 0), PointerEvent(20, 20)],
        [],
        [PointerEvent(30, 30, 1), PointerEvent(40, 40, 1)],  # It is dragged.
        [PointerEvent(50, 40, 1), PointerEvent(50, 40), PointerEvent(60, 40)],
        [],
    ]
    events = [event for step in steps for event in there.events(back.array(step))]

    assert [
        PointerEvent(10, 12, 1),
        PointerEvent(20, 20, 0),
        PointerEvent(30, 30, 1),
        PointerEvent(50, 40, 0),
        PointerEvent(60, 40, 0),
    ] == events
