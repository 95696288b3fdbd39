"""Programs on a screen that are played by `envkit play`, key by key."""

from __future__ import annotations

import os
import queue
import subprocess
import sys

import numpy as np
import pytest

from envkit.cli.main import main
from envkit.desktop import Controls, Desktop, DesktopServer, Events, Macros, keysym
from envkit.desktop.keys import PointerEvent
from envkit.desktop.play_keys import ProgramKeys
from envkit.play.key_map import key_map, pace_of
from envkit.play.keys import Pointed
from envkit.recording import Recording
from tests.cli.pseudo_terminal import in_terminal
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


def test_typed_keys_reach_the_program(game, tmp_path, capsys):
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


def test_a_desktop_is_played_with_the_keys_of_its_controls(game):
    with Desktop(display=game.where, keys=["Left", "Return", "A"], reset=None) as env:
        keys = key_map(env)
        assert {"left", "enter", "a"} == keys.keys
        assert 30.0 == pace_of(env, keys)
        assert [True, False, False] == keys.action(["left"])["keys"].tolist()
        assert [False] * 3 == keys.idle_action()["keys"].tolist()


def test_menus_have_a_key_for_each_entry(game):
    menu = Macros([None, "Left", "ctrl-t"])
    with Desktop(display=game.where, actions=menu, reset=None) as env:
        assert {"0", "1", "2"} <= key_map(env).keys


def test_escape_ends_the_game_and_never_reaches_the_program():
    typed = ProgramKeys(Controls(["Escape", "x", "X"]), ["Escape", "x", "X"])
    assert {"x"} == typed.keys
    assert [False, True, False] == typed.action(["x"])["keys"].tolist()
    assert typed.action(["esc"]) is None


@pytest.mark.parametrize("of", [Controls, Events], ids=lambda of: of.__name__)
def test_the_players_pointer_moves_the_programs(of):
    actions = of(["x"], size=(101, 51), **({"pointer": True} if of is Controls else {}))
    typed = ProgramKeys(actions, ["x"], (101, 51))
    typed.point([Pointed(0.0, 0.0, 0), Pointed(0.5, 1.0, 0)])
    assert [PointerEvent(50, 50)] == actions.events(typed.idle_action())
    assert not actions.events(typed.idle_action())


def test_events_that_do_not_fit_into_an_action_wait_for_the_next():
    actions = Events(["x"], size=(11, 11), limit=2)
    typed = ProgramKeys(actions, ["x"], (11, 11))
    typed.point([Pointed(0.1, 0.1, buttons) for buttons in (1, 0, 1)])
    taken = [actions.events(typed.idle_action()) for _ in range(3)]
    assert [[1, 0], [1], []] == [[event.buttons for event in one] for one in taken]


@pytest.mark.slow
def test_a_key_typed_in_a_terminal_without_a_pace_goes_up_again(game):
    with in_terminal("play", game.where, "--terminal", "--hz", "0") as terminal:
        terminal.wait_for("any key: play")
        terminal.type(" ")
        terminal.wait_for("step 0")
        terminal.type("a")
        events = [game.events.get(timeout=PATIENCE) for _ in range(2)]
        terminal.type("\x1b")
        terminal.end()

    assert [(keysym("a"), True), (keysym("a"), False)] == events


IN_A_WINDOW = """
import pygame
from envkit.play.playing import View, in_window
from envkit.play.game import Game
from envkit.desktop import Desktop
from envkit.play.key_map import key_map
from envkit.play.window import window_size

def told(kind, x, y, **more):
    pygame.event.post(pygame.event.Event(kind, pos=(x, y), **more))

_, height = window_size((12, 16, 3))

def look(time_step):
    # The picture is enlarged, and in the middle of a window of 480 pixels.
    if not game.steps and not sent:
        sent.append(True)
        told(pygame.MOUSEMOTION, 1, 1)  # Beside the picture.
        told(pygame.MOUSEBUTTONDOWN, 240, height // 2, button=3)
        told(pygame.MOUSEBUTTONUP, 1, 1, button=3)
    elif game.steps == 3:
        pygame.event.post(pygame.event.Event(pygame.QUIT))
    return env.render("rgb_array")

sent = []
with Desktop(display={where!r}, keys=["a"], pointer=True, buttons=3, reset=None) as env:
    game = Game(env, key_map(env))
    in_window(game, View(look, ""), 200.0, title="")
"""


@pytest.mark.slow
def test_a_click_in_the_window_clicks_on_the_screen(game):
    pytest.importorskip("pygame", reason="pygame is not installed")
    done = subprocess.run(
        [sys.executable, "-c", IN_A_WINDOW.format(where=game.where)],
        capture_output=True,
        text=True,
        env={**os.environ, "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"},
    )
    assert 0 == done.returncode, done.stderr
    # The right button goes down in the middle, and is let go of at the edge.
    assert PointerEvent(8, 6, 4) == game.events.get(timeout=PATIENCE)
    assert PointerEvent(0, 0, 0) == game.events.get(timeout=PATIENCE)
    assert game.events.empty()


WITHOUT_A_PACE = """
import pygame
from envkit.play.playing import View, in_window
from envkit.play.game import Game
from envkit.desktop import Desktop
from envkit.play.key_map import key_map

def key(kind):
    pygame.event.post(pygame.event.Event(kind, key=pygame.K_a, unicode="a"))

def look(time_step):
    if game.steps > len(sent):
        raise AssertionError("There was a step without a key.")
    if game.steps == len(sent):
        sent.append(True)
        kinds = pygame.KEYDOWN, pygame.KEYUP
        key(kinds[game.steps]) if game.steps < 2 else pygame.event.post(
            pygame.event.Event(pygame.QUIT)
        )
    return env.render("rgb_array")

sent = []
with Desktop(display={where!r}, keys=["a"], reset=None) as env:
    game = Game(env, key_map(env))
    in_window(game, View(look, ""), 0.0, title="")
    print(game.steps)
"""


@pytest.mark.slow
def test_a_key_released_in_the_window_without_a_pace_goes_up(game):
    pytest.importorskip("pygame", reason="pygame is not installed")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_PACE.format(where=game.where)],
        capture_output=True,
        text=True,
        env={**os.environ, "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"},
    )
    assert 0 == done.returncode, done.stderr
    assert "2" == done.stdout.split()[-1]
    events = [game.events.get(timeout=PATIENCE) for _ in range(2)]
    assert [(keysym("a"), True), (keysym("a"), False)] == events
