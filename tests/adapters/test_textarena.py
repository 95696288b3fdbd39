"""TextArena's games, beside the same games played without envkit."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys

import numpy as np
import pytest

import envkit
from envkit import ParallelPyEnvironment, RestartPolicy
from envkit.adapters import suite_textarena
from envkit.errors import SpecError
from envkit.sessions import Sessions
from envkit.testing import chaos, check_environment
from tests.adapters.textarena_words import WORDS, any_square, write_words

textarena = pytest.importorskip(
    "textarena", reason="needs TextArena: pip install textarena"
)
nltk = pytest.importorskip("nltk", reason="needs TextArena: pip install textarena")

REPLAY = RestartPolicy(max_restarts=99, within=None, backoff=0, recover="replay")
MOVES = ("[Hit]", "[Stand]", "nothing", "[4]", "[up]", "[1 1]", "[A 5]")
# With one player and with two; with each of TextArena's wrappers, and without.
GAMES = (
    "2048-v0",
    "Blackjack-v0",
    "Countdown-v0",
    "FrozenLake-v0-train",
    "GuessTheNumber-v0-train",
    "RushHour-v0",
    "Sokoban-v0-raw",
    "Sudoku-v0-train",
    "ConnectFour-v0",
    "KuhnPoker-v0",
    "TicTacToe-v0",
)


@pytest.fixture(scope="module", autouse=True)
def _words(tmp_path_factory):
    """Gives this module's processes a few words of NLTK."""
    folder = tmp_path_factory.mktemp("nltk_data")
    write_words(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NLTK_DATA", str(folder))
        patch.setattr(nltk.data, "path", [str(folder)])
        # Nothing is fetched: it would be another list on each machine.
        patch.setattr(nltk, "download", lambda *_, **__: False)
        yield


def played_directly(name, seed, choices):
    """Returns what TextArena alone shows in one game, and its rewards."""
    before = random.getstate()
    random.seed(seed)  # some games draw before they are seeded
    game = textarena.make(name)
    num_players = 2 if "TicTacToe" in name or "Four" in name or "Poker" in name else 1
    game.reset(num_players=num_players, seed=seed)
    shown, done = [], False
    for choice in choices:
        shown.append(game.get_observation())
        done, _ = game.step(action=MOVES[choice])
        if done:
            break
    rewards = game.close()[0] if done else None
    random.setstate(before)
    return shown, rewards


def played(env, seed, choices):
    """Returns the same of envkit's environment."""
    env.seed(seed)
    time_steps = [env.reset()]
    for choice in choices:
        time_steps.append(env.step(MOVES[choice]))
        if time_steps[-1].is_last():
            break
    return time_steps


def text_of(time_step, part="text"):
    return time_step.observation[part].item()


@pytest.mark.parametrize("name", GAMES)
def test_a_game_shows_what_textarena_shows(name):
    choices = np.random.default_rng(0).integers(len(MOVES), size=40).tolist()
    with envkit.make(f"textarena:{name}") as env:
        for seed in (3, 4):
            shown, rewards = played_directly(name, seed, choices)
            time_steps = played(env, seed, choices)
            for (player, text), time_step in zip(shown, time_steps, strict=False):
                if isinstance(text, str):
                    assert text == text_of(time_step)
                else:
                    assert all(message[1] in text_of(time_step) for message in text)
                assert player == time_step.observation.get("player", 0)
            assert (rewards is not None) == time_steps[-1].is_last()
            if rewards is not None and not isinstance(rewards[0], str):
                assert [*rewards.values()] == pytest.approx(
                    np.atleast_1d(time_steps[-1].reward)[[*rewards]].tolist()
                )
                assert time_steps[-1].discount == 0
            assert not any(np.any(step.reward) for step in time_steps[:-1])


def test_an_invalid_move_gets_the_reward_that_the_game_means():
    """Countdown passes the reward of an invalid move where the reason belongs."""
    with envkit.make("textarena:Countdown-v0") as env:
        time_steps = played(env, 1, [2, 2])
        assert time_steps[-1].is_last()
        assert 0 <= time_steps[-1].reward <= 1
        assert "Invalid action format" in env.get_info()["reason"]


@pytest.mark.parametrize("action", [None, 3, ["[3]"]])
def test_an_action_that_is_no_text_is_refused_and_the_game_goes_on(action):
    with envkit.make("textarena:GuessTheNumber-v0", seed=7) as env:
        env.reset()
        with pytest.raises(SpecError, match=r"step\(\) was given an action"):
            env.step(action)
        assert 0 == env.get_info()["error_count"]
        assert not env.step("[3]").is_last()


def test_new_is_what_the_text_adds():
    with envkit.make("textarena:Wordle-v0") as env:
        env.seed(2)
        before = text_of(env.reset())
        secret = env.state.game_state["secret_word"]
        guess = next(word for word in WORDS if word != secret)
        time_step = env.step(f"[{guess}]")
        assert before + text_of(time_step, "new") == text_of(time_step)
        assert f"You submitted [{guess}]" in text_of(time_step, "new")


def test_the_info_has_what_textarena_says():
    with envkit.make("textarena:Wordle-v0") as env:
        env.seed(2)
        env.reset()
        secret = env.state.game_state["secret_word"]
        env.step("no word")
        assert {"turn": 0, "error_count": 1} == env.get_info()
        time_step = env.step(f"I say [{secret}].")
        info = env.get_info()
    assert (time_step.is_last(), time_step.reward, time_step.discount) == (True, 1, 0)
    assert "Congratulations" in info["reason"]
    assert info["game_info"][0]["turn_count"] == info["turn"] == 1


def test_an_episode_has_nothing_of_the_one_before():
    with envkit.make("textarena:Blackjack-v0") as env:
        first, *_, last = played(env, 5, [0] * 40)
        again = env.reset(seed=5)
    assert len(text_of(last)) > len(text_of(first))
    assert text_of(first) == text_of(again) == text_of(again, "new")


def test_later_games_are_the_same_in_every_run():
    """Sokoban makes its rooms of a generator of its own, unless it gets a seed."""

    def rooms():
        with envkit.make("textarena:Sokoban-v0") as env:
            env.seed(3)
            return [text_of(env.reset()) for _ in range(3)]

    assert rooms() == rooms()
    assert len({*rooms()}) == 3


def test_an_opponent_plays_the_others():
    seen = []

    def opponent(text):
        seen.append(text)
        return any_square(text)

    for player in (0, 1):
        seen.clear()
        with envkit.make(
            "textarena:TicTacToe-v0", player=player, opponent=opponent
        ) as env:
            env.seed(3)
            time_step = env.reset()
            assert len(seen) == player
            assert "player" not in time_step.observation
            while not time_step.is_last():
                time_step = env.step(any_square(text_of(time_step)))
            rewards, _ = env.state.close()
        assert time_step.reward == rewards[player]
        assert all(f"You are Player {1 - player}" in text for text in seen)
        assert f"You are Player {player}" in text_of(time_step)


def test_all_players_play_in_turn():
    with envkit.make("textarena:TicTacToe-v0") as env:
        time_steps = played(env, 1, [])
        for square in (0, 4, 1, 5, 2):
            time_steps.append(env.step(f"[{square}]"))
    players = [int(step.observation["player"]) for step in time_steps]
    assert [0, 1, 0, 1, 0, 0] == players
    assert [1.0, -1.0] == time_steps[-1].reward.tolist()


@pytest.mark.parametrize(
    "name", ["Wordle-v0", "Wordle-v0-raw", "TicTacToe-v0", "FrozenLake-v0-random-train"]
)
def test_games_pass_check_environment(name):
    check_environment(
        lambda: envkit.make(f"textarena:{name}"),
        steps=20,
        require=["seed", "state", "info_spec"],
    )


@pytest.mark.parametrize("kills", [False, True])
def test_games_play_in_one_worker_as_they_do_alone(nothing_left_behind, kills):
    def play(env, seeds):
        env.seed(seeds)
        shown = []
        for step in range(60):
            moves = np.full(np.shape(seeds), MOVES[step % 3 == 2], object)
            time_step = env.step(moves if np.ndim(seeds) else MOVES[step % 3 == 2])
            shown.append((time_step.observation["text"].tolist(), time_step.reward))
        return shown

    def make():
        return envkit.make("textarena:Blackjack-v0")

    alone = [play(make(), seed) for seed in range(8)]
    with ParallelPyEnvironment(
        [make] * 8, num_workers=1, on_worker_failure=REPLAY
    ) as pool:
        if kills:
            with chaos(pool, every_steps=25):
                together = play(pool, list(range(8)))
            assert pool.statistics().restarts
        else:
            together = play(pool, list(range(8)))
    for row, shown in enumerate(alone):
        assert shown == [(texts[row], rewards[row]) for texts, rewards in together]


async def guesses(session):
    turn = await session.reset()
    turns = [turn]
    # By its own numbers, never by those of the game.
    for word in random.Random(session.seed).sample(WORDS, k=8):
        if turn.end is not None:
            break
        turn = await session.step(f"My guess: [{word}]")
        turns.append(turn)
    return [(turn.text, turn.reward, turn.end) for turn in turns]


@pytest.mark.parametrize(("backend", "num_workers"), [("thread", None), ("process", 2)])
def test_256_sessions_of_one_seed_are_one_game(backend, num_workers):
    async def play():
        async with Sessions(
            "textarena:Wordle-v0", 256, backend=backend, num_workers=num_workers
        ) as sessions:
            return await sessions.group(seed=11, size=256).run(guesses)

    async def play_alone():
        async with (
            Sessions("textarena:Wordle-v0", 1, backend=backend) as sessions,
            sessions.lease(seed=11) as session,
        ):
            return await guesses(session)

    alone = asyncio.run(play_alone())
    assert alone[-1][2] == "terminated"
    assert all(game == alone for game in asyncio.run(play()))


def test_names_are_textarenas():
    listed = suite_textarena.names()
    assert {"Wordle-v0", "TicTacToe-v0-train", "Chess-v0"} <= {*listed}


def message_of(call, error):
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"environment_name": "Wordle-v1"}, ValueError, "Did you mean 'Wordle-v0"),
        ({"player": 1}, ValueError, "player is 1, and there is no opponent"),
        ({"player": 2, "opponent": any_square}, ValueError, "must be a number below 2"),
        ({"opponent": "me"}, TypeError, "opponent must be a function of a text"),
        ({"num_players": 7}, ValueError, "does not begin with 7 players"),
        ({"num_players": 0}, ValueError, "num_players must be an integer of at least"),
        (
            {"environment_name": "GuessTheNumber-v0", "min_number": 50},
            RuntimeError,
            "ValueError: empty range",
        ),
        (
            {"environment_name": "Wordle-v0", "opponent": any_square},
            ValueError,
            "The game has one player",
        ),
    ],
)
def test_refusals_say_what_is_wrong(arguments, error, said):
    def make():
        suite_textarena.load(
            **{"environment_name": "TicTacToe-v0", **arguments}
        ).reset()

    assert said in message_of(make, error)


def test_missing_words_are_a_sentence(tmp_path):
    # Without a way to download them.
    settings = {"NLTK_DATA": str(tmp_path), "HOME": str(tmp_path)}
    proxies = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    told = subprocess.run(
        [sys.executable, "-c", "import envkit; envkit.make('textarena:Wordle-v0')"],
        capture_output=True,
        text=True,
        env={**os.environ, **settings, **proxies},
        check=False,
    )
    last = told.stderr.strip().splitlines()[-1]
    assert "MissingDependencyError: TextArena's 'Wordle-v0' needs 'words'" in last
    assert last.endswith("python -m nltk.downloader words")
