"""What keys do to a game."""

from __future__ import annotations

import numpy as np
import pytest

from envkit import BoundedArraySpec
from envkit.play.game import Game
from envkit.play.key_map import key_map, pace_of
from envkit.play.keys import parse_keys
from tests.cli.play.acting import Acting, choice


def game(spec=None, **more):
    env = Acting(choice(2) if spec is None else spec)
    return env, Game(env, key_map(env), **more)


def press(played, keys):
    for chord in parse_keys(keys):
        played.press(chord)


def test_the_key_after_the_end_begins_the_next_episode():
    _, played = game()
    press(played, "add")
    assert "episode 1   step 3   reward 1   return 1   terminated" == played.status()
    press(played, "d")
    assert "episode 2   step 0   reward 0   return 0" == played.status()
    press(played, "dq")
    assert played.over
    assert "1 whole episode, 4 steps, mean return 1" == played.summary()


def test_a_key_without_a_meaning_says_so_and_shows_the_keys():
    _, played = game()
    press(played, "x<up>.xx")
    assert (
        "episode 1   step 0   reward 0   return 0",
        "x means nothing here.  ← action 0  → action 1  ? keys",
    ) == played.lines()
    press(played, "d")
    assert "space pause   r reset   ? keys   q quit" == played.lines()[1]


def test_as_many_keys_are_shown_as_fit():
    _, played = game(choice(12))
    press(played, "#")
    assert (
        "# means nothing here.  0 action 0  1 action 1  2 action 2  …  ? keys"
    ) == played.lines()[1]
    press(played, "?")
    assert played.explaining


def test_time_passes_as_without_a_key_while_an_unknown_key_is_down():
    env, played = game(BoundedArraySpec((2,), np.float32, -1.0, 1.0))
    for fresh in (["x"], [], []):
        played.tick(["x"], fresh)
    assert (3, [0, 0]) == (played.steps, env.last.tolist())
    assert played.lines()[1].startswith("x means nothing here.")


def test_keys_that_change_others_mean_nothing_alone():
    _, played = game(explaining=True)
    played.press(("left shift",))
    assert played.explaining
    press(played, " ")
    played.press(("left ctrl",))
    assert "" == played.notice


def test_reset_begins_a_new_episode():
    _, played = game()
    press(played, "ddr")
    assert "episode 2   step 0   reward 0   return 0" == played.status()


def test_nothing_happens_during_a_pause():
    _, played = game()
    press(played, "d<space>dd")
    played.tick(("d",), ("d",))
    assert "episode 1   step 1   reward 0   return 0   paused" == played.status()


def test_keys_are_explained_until_one_is_pressed():
    _, played = game(explaining=True)
    press(played, "d")
    assert (False, 0) == (played.explaining, played.steps)
    press(played, "d?")
    assert (True, 1) == (played.explaining, played.steps)


def test_time_passes_with_the_action_for_no_key():
    env, played = game(BoundedArraySpec((2,), np.float32, -1.0, 1.0))
    played.tick(("left",), ("left",))
    held = env.last.tolist()
    played.tick(())
    assert ([-1.0, 0.0], [0.0, 0.0]) == (held, env.last.tolist())


def test_without_such_an_action_the_last_one_is_repeated():
    env, played = game()
    played.tick(())
    waited = played.steps
    played.tick(("d",), ("d",))
    played.tick(())
    assert (0, 2, 1) == (waited, played.steps, int(env.last))


def test_the_end_is_shown_for_a_while():
    _, played = game(BoundedArraySpec((2,), np.float32, -1.0, 1.0), pause_after=2)
    seen = []
    for _ in range(7):
        played.tick(())
        seen.append(played.status().split()[3])
    assert ["1", "2", "3", "3", "3", "0", "1"] == seen


@pytest.mark.parametrize(
    ("told", "spec", "pace"),
    [
        (
            {"metadata": {"render_fps": 30}},
            BoundedArraySpec((1,), np.float32, -1, 1),
            30,
        ),
        ({"metadata": {"render_fps": 30}}, choice(2), 0),
        ({"metadata": {}}, BoundedArraySpec((1,), np.float32, -1, 1), 0),
        ({}, BoundedArraySpec((1,), np.float32, -1, 1), 0),
    ],
    ids=["told", "no action for no key", "not told", "no metadata"],
)
def test_steps_wait_for_keys_unless_the_environment_has_a_pace(told, spec, pace):
    env = Acting(spec, **told)
    assert pace == pace_of(env, key_map(env))
