"""Programs on a screen that are played by `envkit play`, key by key."""

from __future__ import annotations

import queue

import numpy as np
import pytest

from envkit.cli.main import main
from envkit.desktop import Controls, Desktop, DesktopServer, Macros, keysym
from envkit.desktop.typed import TypedKeys
from envkit.key_map import key_map, pace_of
from envkit.recording import Recording
from tests.waiting import PATIENCE


@pytest.fixture
def game():
    """A screen that keeps the keys that it is sent."""
    events = queue.Queue()
    with DesktopServer((16, 12), on_event=events.put) as server:
        server.show(np.full((12, 16, 3), 9, np.uint8))
        server.events = events
        server.where = "vnc://{}:{}".format(*server.address)
        yield server


def test_keys_that_are_typed_are_those_of_the_program(game, tmp_path, capsys):
    path = tmp_path / "typed"
    arguments = ["play", game.where, "--keys", "a<left><a+b>", "--record", str(path)]
    assert 0 == main(arguments)
    assert f"recorded in {path}" in capsys.readouterr().out

    events = [game.events.get(timeout=PATIENCE) for _ in range(8)]
    keys = [(event.key, event.down) for event in events]
    a, b, left = map(keysym, ["a", "b", "Left"])
    assert [(a, True), (a, False), (left, True), (left, False)] == keys[:4]
    assert {(a, True), (b, True)} == {*keys[4:6]}
    # What is still down is let go of in the end.
    assert {(a, False), (b, False)} == {*keys[6:]}
    assert game.events.empty()
    episode = next(iter(Recording(path).episodes()))
    flags = [episode.action(step)["keys"].sum() for step in range(1, 4)]
    assert [1, 1, 2] == flags


def test_a_desktop_has_the_keys_of_its_controls_at_a_pace_for_people(game):
    with Desktop(display=game.where, keys=["Left", "Return", "A"], reset=None) as env:
        keys = key_map(env)
        assert {"left", "enter", "a"} == keys.keys
        assert 30.0 == pace_of(env, keys)
        assert [True, False, False] == keys.action(["left"])["keys"].tolist()
        assert [False] * 3 == keys.idle_action()["keys"].tolist()


def test_menus_have_the_keys_of_their_entries(game):
    menu = Macros([None, "Left", "ctrl-t"])
    with Desktop(display=game.where, actions=menu, reset=None) as env:
        assert {"0", "1", "2"} <= key_map(env).keys


def test_escape_ends_the_game_and_is_no_key_of_the_program():
    typed = TypedKeys(Controls(["Escape", "x", "X"]), ["Escape", "x", "X"])
    assert {"x"} == typed.keys
    assert [False, True, False] == typed.action(["x"])["keys"].tolist()
    assert typed.action(["esc"]) is None
