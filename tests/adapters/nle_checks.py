"""NLE's tasks, beside NLE without envkit.

pytest collects this file only if it is told to: `make test-text-games` installs NLE in
an environment of its own.
"""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest

import envkit
from envkit import BoundedArraySpec
from envkit.adapters import NleWrapper, suite_nle
from envkit.sessions import Sessions
from envkit.testing import check_environment
from tests.sessions.running import in_loop

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("nle")

SCORE = "NetHackScore-v0"
KEYS = ("blstats", "glyphs")
MOVES = [random.Random(3).randrange(23) for _ in range(200)]


def screen_of(observation):
    rows = [bytes(row).decode("latin-1").rstrip() for row in observation["tty_chars"]]
    return "\n".join(rows).rstrip()


def played_directly(seeds, moves):
    """Returns what NLE alone shows, rewards and ends with."""
    env = gymnasium.make(SCORE, disable_env_checker=True, fix_moon_phase=True)
    env.unwrapped.seed(*seeds, reseed=False)
    observation, _ = env.reset()
    seen = [(screen_of(observation), observation["glyphs"].tobytes(), 0.0, False)]
    for move in moves:
        observation, reward, ended, _, _ = env.step(move)
        glyphs = observation["glyphs"].tobytes()
        seen.append((screen_of(observation), glyphs, np.float32(reward), ended))
        if ended:
            break
    env.close()
    return seen


@pytest.mark.parametrize("seed", [0, 7])
def test_an_episode_is_that_of_nle_with_the_seed(seed):
    with envkit.make(f"nle:{SCORE}", observation_keys=KEYS) as env:
        env.seed(seed)
        steps = [env.reset()]
        for move in MOVES:
            steps.append(env.step(move))
            if steps[-1].is_last():
                break
        expected = played_directly((seed, seed), MOVES)
        assert len(expected) == len(steps)
        for (screen, glyphs, reward, ended), step in zip(expected, steps, strict=True):
            assert screen in str(step.observation["text"])
            assert glyphs == step.observation["glyphs"].tobytes()
            assert (reward, ended) == (step.reward, step.is_last())


def test_the_observation_has_the_arrays_that_are_asked_for_and_the_text():
    with envkit.make(f"nle:{SCORE}", observation_keys=KEYS) as env:
        assert {*KEYS, "text"} == set(env.observation_spec())
        assert BoundedArraySpec((), np.int64, 0, 22) == env.action_spec()
        assert ("more", "north") == env.action_names[:2]
    with envkit.make(f"nle:{SCORE}", observation_keys=()) as env:
        assert {"text"} == set(env.reset().observation)


def test_a_message_longer_than_a_line_is_in_the_text():
    screen = np.full((24, 80), ord(" "), np.uint8)
    message = np.zeros(256, np.uint8)
    said = b"Many words. " * 12
    message[: len(said)] = list(said)
    text = suite_nle._screen_text(screen, message)
    assert said.decode().strip() == text.strip()


def test_later_episodes_are_reproducible_and_differ():
    def texts():
        with envkit.make(f"nle:{SCORE}", observation_keys=()) as env:
            env.seed(5)
            return [str(env.reset().observation["text"]) for _ in range(3)]

    first = texts()
    assert first == texts()
    assert 3 == len(set(first))


def test_the_step_limit_truncates_and_shows_the_last_screen():
    expected = played_directly((7, 7), MOVES[:5])
    with envkit.make(f"nle:{SCORE}", max_episode_steps=5) as env:
        env.seed(7)
        env.reset()
        for move in MOVES[:5]:
            last = env.step(move)
        assert (True, 1.0) == (last.is_last(), last.discount)
        assert expected[-1][0] in str(last.observation["text"])
        assert env.get_info()["truncated"]


def test_a_limit_of_nle_itself_is_a_truncation():
    env = envkit.make(gymnasium.make(SCORE, max_episode_steps=None).unwrapped)
    assert isinstance(env, NleWrapper)
    env.unwrapped._max_episode_steps = 3
    env.reset()
    steps = [env.step(1) for _ in range(3)]
    assert [False, False, True] == [bool(step.is_last()) for step in steps]
    assert steps[-1].discount == 1.0
    env.close()


def test_the_usual_limits_are_those_of_nle():
    with envkit.make(f"nle:{SCORE}") as env:
        assert 5000 == env.duration
    with envkit.make("nle:NetHackChallenge") as env:
        assert 1_000_000 == env.duration


def test_names_and_keys_are_actions():
    def last_text(*actions, **options):
        with envkit.make(f"nle:{SCORE}", observation_keys=(), **options) as env:
            env.seed(7)
            env.reset()
            return [str(env.step(each).observation["text"]) for each in actions][-1]

    by_number = last_text(1, 2)
    assert by_number == last_text("north", "East", text_actions=True)
    assert by_number == last_text("k", "l", text_actions=True)


def test_any_other_text_is_explained_and_is_no_step_in_the_game():
    with envkit.make(f"nle:{SCORE}", text_actions=True, observation_keys=()) as env:
        env.seed(7)
        before = str(env.reset().observation["text"])
        step = env.step("go nroth" * 100)
        text = str(step.observation["text"])
        assert text.startswith("There is no action 'go nroth")
        assert "north, east, south" in text
        assert text.endswith(before)
        assert step.reward == 0.0


def test_the_challenge_says_that_it_allows_no_seed():
    with envkit.make("nle:NetHackChallenge-v0") as env:
        with pytest.raises(NotImplementedError, match="NLE forbids it"):
            env.seed(7)
        assert env.reset().is_first()


def test_an_unknown_task_is_named_with_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'NetHackGold-v0'"):
        envkit.make("nle:NetHackGlod-v0")
    assert SCORE in suite_nle.names()


def test_it_draws_pictures():
    with envkit.make(f"nle:{SCORE}", render_mode="rgb_array") as env:
        env.reset()
        assert (336, 1264, 3) == env.render().shape


@pytest.mark.parametrize("options", [{}, {"text_actions": True}])
def test_it_passes_check_environment(options):
    make = functools.partial(envkit.make, f"nle:{SCORE}", **options)
    check_environment(make, steps=40, require=["seed", "info"])


@pytest.mark.parametrize("backend", ["thread", "process"])
@in_loop
async def test_sessions_of_one_seed_are_equal_and_others_are_not(backend):
    async def attempt(session):
        turns = [await session.reset()]
        for move in MOVES[:60]:
            if turns[-1].end is None:
                turns.append(await session.step(move))
        return tuple(turn.text for turn in turns)

    async with Sessions(
        f"nle:{SCORE}", 4, backend=backend, observation_keys=()
    ) as sessions:
        for seed in (7, 8):
            played = await sessions.group(seed=seed, size=6).run(attempt)
            expected = [
                screen for screen, *_ in played_directly((seed,) * 2, MOVES[:60])
            ]
            assert 1 == len(set(played))
            for screen, text in zip(expected, played[0], strict=True):
                assert screen in text
