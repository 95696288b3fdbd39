"""Which keys stand for which actions."""

from __future__ import annotations

import enum

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from envkit import ArraySpec, BoundedArraySpec, make
from envkit.play.action_names import chord_of
from envkit.play.key_map import key_map
from envkit.play.keys import decode, parse_keys
from envkit.specs import TextSpec
from tests.cli.play.acting import Acting, choice


def table(spec, **told):
    return key_map(Acting(spec, **told)).table()


def test_few_actions_without_names_have_arrows_and_digits():
    assert [("←, a, 0", "action 0"), ("→, d, 1", "action 1")] == table(choice(2))


def test_more_actions_have_digits_then_letters():
    keys = [key for key, _ in table(choice(14))]
    assert [*"0123456789", "z", "x", "c", "v"] == keys


def test_actions_that_do_not_begin_with_0_have_their_own_digits():
    assert ["3", "4", "5", "6"] == [key for key, _ in table(choice(4, first=3))]


def test_built_in_environments_name_their_actions():
    assert [
        ("↑, w, 0", "0 up"),
        ("→, d, 1", "1 right"),
        ("↓, s, 2", "2 down"),
        ("←, a, 3", "3 left"),
    ] == key_map(make("GridWorld")).table()


def test_action_meanings_become_arrows_and_the_space_bar_together():
    meanings = ["NOOP", "FIRE", "UP", "RIGHT", "UPRIGHT", "UPRIGHTFIRE"]

    assert [
        ("0", "0 NOOP"),
        ("space, 1", "1 FIRE"),
        ("↑, w, 2", "2 UP"),
        ("→, d, 3", "3 RIGHT"),
        ("→ ↑, 4", "4 UPRIGHT"),
        ("→ ↑ space, 5", "5 UPRIGHTFIRE"),
        (".", "wait: no key"),
    ] == table(choice(6), get_action_meanings=lambda: meanings)


def test_the_environments_own_keys_are_used_and_arrows_are_aliases():
    told = {("e",): 0, (ord("d"), ord(" ")): 1, "d": 2}
    found = key_map(Acting(choice(3), get_keys_to_action=lambda: told))
    assert [0, 1, 2, 2, None] == [
        None if action is None else int(action)
        for action in (
            found.action(keys)
            for keys in (("e",), ("right", "space"), ("d",), ("right",), ("x",))
        )
    ]


def test_an_enumeration_names_the_actions():
    class Actions(enum.IntEnum):
        left = 0
        right = 1
        forward = 2
        toggle = 3

    assert [
        ("←, a, 0", "0 left"),
        ("→, d, 1", "1 right"),
        ("↑, w, 2", "2 forward"),
        ("space, 3", "3 toggle"),
    ] == table(choice(4), actions=Actions)


def test_other_names_have_the_first_letter_that_is_free():
    names = ("hit", "hold", "quit", "left", "drop", "no-op", "up")
    assert [
        ("h, 0", "0 hit"),
        ("o, 1", "1 hold"),
        ("u, 2", "2 quit"),
        ("←, a, 3", "3 left"),
        ("p, 4", "4 drop"),
        ("5", "5 no-op"),
        ("↑, w, 6", "6 up"),
        (".", "wait: no key"),
    ] == table(choice(7), action_names=names)


def test_a_menu_of_buttons_is_played_with_their_keys():
    menu = ({}, {"TURN_LEFT": 1.0}, {"TURN_LEFT": 1.0, "ATTACK": 1.0})
    assert [
        ("0", "0 noop"),
        ("←, a, 1", "1 TURN_LEFT"),
        ("← space, 2", "2 TURN_LEFT ATTACK"),
        (".", "wait: no key"),
    ] == table(choice(3), menu=menu)


def test_keys_are_declared_as_characters_strings_names_or_codes():
    up, right = 1073741906, 1073741903  # pygame's
    declared = {"we": 0, "space": 1, (up, right): 2, "left": 3, ("shift", "x"): 1}
    assert [
        ("e w, 0", "action 0"),
        ("space, 1", "action 1"),
        ("→ ↑, 2", "action 2"),
        ("←, a, 3", "action 3"),
    ] == table(choice(4), get_keys_to_action=lambda: declared)


def test_quantities_have_the_keys_that_their_names_suggest():
    spec = BoundedArraySpec((4,), np.float32, -1.0, 1.0)
    names = ("gas", "steer left/steer right", "wing", "LOOK_UP_DOWN_DELTA")
    assert [
        ("↑, w", "gas"),
        ("←, a", "steer left"),
        ("→, d", "steer right"),
        ("j", "wing = -1"),
        ("l", "wing = 1"),
        ("k", "LOOK_UP_DOWN_DELTA = -1"),
        ("i", "LOOK_UP_DOWN_DELTA = 1"),
        (".", "wait: no key"),
    ] == table(spec, action_names=names)


# One of each set of actions that Gymnasium describes in prose.
GYMNASIUM = {
    "FrozenLake-v1": {"left": 0, "down": 1, "right": 2, "up": 3},
    "CliffWalking-v1": {"up": 0, "right": 1, "down": 2, "left": 3},
    "Taxi-v4": {"down": 0, "up": 1, "right": 2, "left": 3, "p": 4, "o": 5},
    "Blackjack-v1": {"s": 0, "h": 1},
    "CartPole-v1": {"left": 0, "right": 1},
    "MountainCar-v0": {"left": 0, ".": 1, "right": 2},
    "MountainCarContinuous-v0": {"left": [-1], ".": [0], "right": [1]},
    "Acrobot-v1": {"left": 0, ".": 1, "right": 2},
    "Pendulum-v1": {"left": [-2], ".": [0], "right": [2]},
    "LunarLander-v3": {".": 0, "left": 1, "up": 2, "right": 3},
    "LunarLanderContinuous-v3": {
        ".": [0, 0],
        "left": [0, -1],
        "up": [1, 0],
        "right": [0, 1],
    },
    "CarRacing-v3": {
        "left": [-1, 0, 0],
        "right": [1, 0, 0],
        "up": [0, 1, 0],
        "down": [0, 0, 1],
    },
}


@pytest.mark.parametrize("name", GYMNASIUM)
def test_gymnasiums_games_are_played_with_the_arrows(name):
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    if name.startswith(("Lunar", "Car")):
        pytest.importorskip("Box2D", reason="Box2D is not installed")
    with make(f"gymnasium:{name}") as env:
        found = key_map(env)
        assert GYMNASIUM[name] == {
            key: found.action((key,)).tolist() for key in GYMNASIUM[name]
        }
        assert found.is_named


@pytest.mark.parametrize("name", ["catch/0", "cartpole_noise/3", "mountain_car/1"])
def test_bsuites_games_are_played_with_the_arrows(name):
    pytest.importorskip("bsuite", reason="bsuite is not installed")
    with make(f"bsuite:{name}") as env:
        assert ("left", "nothing", "right") == env.action_names
        found = key_map(env)
        assert [0, 1, 2] == [
            int(found.action((key,))) for key in ("left", ".", "right")
        ]


def test_an_environments_own_names_come_before_known_ones():
    gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

    from envkit.adapters import GymnasiumWrapper

    class Mirrored(FrozenLakeEnv):
        action_names = ("right", "down", "left", "up")

    class Unknown(gymnasium.Env):
        observation_space = action_space = gymnasium.spaces.Discrete(4)

    assert ("left", "down", "right", "up") == (
        GymnasiumWrapper(FrozenLakeEnv()).action_names
    )
    assert Mirrored.action_names == GymnasiumWrapper(Mirrored()).action_names
    assert not hasattr(GymnasiumWrapper(Unknown()), "action_names")


def test_names_that_do_not_fit_the_actions_are_ignored():
    """A wrapper may have changed what the environment takes."""
    assert ["0", "1", "2", "3"] == [
        key for key, _ in table(choice(4), action_names=("left", "right"))
    ]


def test_quantities_have_a_key_for_each_direction():
    spec = BoundedArraySpec((2,), np.float32, [-1.0, 0.0], [1.0, 4.0])
    found = key_map(Acting(spec))
    assert [[0, 0], [1, 0], [1, 4], [-1, 0]] == [
        found.action(keys).tolist()
        for keys in ((".",), ("right",), ("d", "w"), ("right", "left"))
    ]


def test_nests_of_choices_are_one_action():
    spec = {"jump": ArraySpec((), bool), "move": BoundedArraySpec((), np.int8, 0, 2)}
    found = key_map(Acting(spec))

    assert [
        ("1", "action['jump']"),
        ("←, a", "action['move'] = 1"),
        ("→, d", "action['move'] = 2"),
        (".", "wait: no key"),
    ] == found.table()
    action = found.action(("1", "right"))
    assert (np.bool_(True), np.int8(2)) == (action["jump"], action["move"])
    assert (bool, np.int8) == (action["jump"].dtype, action["move"].dtype)


def test_buttons_have_the_keys_that_their_names_suggest():
    spec = BoundedArraySpec((3,), np.int8, 0, 1)
    assert [
        ("←, a", "MOVE_LEFT"),
        ("→, d", "MOVE_RIGHT"),
        ("space", "ATTACK"),
        (".", "wait: no key"),
    ] == table(spec, buttons=("MOVE_LEFT", "MOVE_RIGHT", "ATTACK"))


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"say": TextSpec((), "U8")},
            "The action at ['say'] is TextSpec(shape=(), dtype=<U8, min_length=0, "
            "max_length=8), which keys cannot express: they choose numbers.",
        ),
        (choice(500), "The action is one of 500 numbers, and keys can choose from 37."),
        ((), "The action has no numbers, so there is nothing to press."),
    ],
    ids=["text", "too many", "nothing"],
)
def test_actions_that_keys_cannot_express_are_refused(spec, text, message_of):
    assert text == message_of(ValueError, lambda: key_map(Acting(spec)))


@given(st.integers(1, 36), st.data())
def test_every_choice_has_a_key_that_means_it(count, data):
    found = key_map(Acting(choice(count)))
    value = data.draw(st.integers(0, count - 1))
    (keys, *_) = [one.keys for one in found.bindings if one.value == value]
    assert value == int(found.action(tuple(keys)))


@given(st.sampled_from(["", "UP", "DOWN"]), st.sampled_from(["", "LEFT", "RIGHT"]))
def test_a_combined_name_uses_the_keys_of_its_parts(one, other):
    assert chord_of(one) | chord_of(other) == chord_of(f"{one}{other}")


SENT = ["a", "Q", " ", "\r", "\x7f", "\x1b[A", "\x1bOD", "\x1b[3~", "\x1b[1;5C", "é"]
SENT += ["\x1b[15~", "\x1bOP", "\x1b[H", "\x04"]


@given(st.lists(st.sampled_from(SENT)), st.data())
def test_keys_are_parsed_the_same_in_any_number_of_pieces(parts, data):
    text = "".join(parts)
    cut = data.draw(st.integers(0, len(text)))
    first, rest = decode(text[:cut])
    second, left = decode(rest + text[cut:])
    assert decode(text) == ([*first, *second], left)


def test_keys_have_names():
    names = ["a", "q", "space", "enter", "backspace", "up", "left", "delete", "right"]
    names += ["é", "f5", "f1", "home", "ctrl+d"]
    assert (names, "") == decode("".join(SENT))


def test_an_unknown_key_is_named(message_of):
    assert (
        "There is no key 'hop' in '<hop>'. Keys are characters, and in angle brackets "
        "backspace, down, enter, esc, left, right, space, tab, up."
    ) == message_of(ValueError, lambda: parse_keys("<hop>"))
