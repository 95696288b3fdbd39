"""Games of TextWorld, beside TextWorld without envkit.

pytest collects this file only if it is told to: `make test-text-games` installs it.
"""

from __future__ import annotations

import functools
import random
import subprocess
import sys
from pathlib import Path

import pytest

import envkit
from envkit.adapters import suite_textworld
from envkit.adapters.text_games import NOTE
from envkit.sessions import Sessions
from envkit.testing import check_environment
from tests.adapters.text_games import COMMANDS, WINS, coin_game
from tests.sessions.running import in_loop

textworld = pytest.importorskip("textworld")
# Jericho's, of games whose score TextWorld itself knows.
pytestmark = pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning")

KIND = "textworld:coin_collector"


@pytest.fixture(scope="module")
def game(tmp_path_factory):
    return coin_game(tmp_path_factory.mktemp("games"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder for generated games, which tests share."""
    return tmp_path_factory.mktemp("generated")


def commands(seed, count=30):
    return random.Random(seed).choices(COMMANDS, k=count)


def played_directly(game, seed, actions, **infos):
    """Returns TextWorld's states."""
    env = textworld.start(game, textworld.EnvInfos(feedback=True, score=True, **infos))
    env.seed(seed)
    states = [env.reset()] + [env.step(action)[0] for action in actions]
    env.close()
    return states


def text_of(step):
    return str(step.observation)


def test_an_episode_is_that_of_textworld(game):
    with envkit.make(f"textworld:{game}", raw=True) as env:
        env.seed(7)
        texts = [text_of(env.reset()), *(text_of(env.step(c)) for c in commands(1))]
    expected = played_directly(game, 7, commands(1))
    assert [state.feedback for state in expected] == texts


def test_the_text_lacks_title_prompt_and_status_line(game):
    with envkit.make(f"textworld:{game}") as env:
        env.seed(7)
        first, second = text_of(env.reset()), text_of(env.step("inventory"))
    (raw, _) = played_directly(game, 7, ["inventory"])
    assert "$$" in raw.feedback
    assert first.partition("\n\n")[0] in raw.feedback
    assert "$$" not in first
    assert "You are carrying nothing." == second


def test_winning_pays_the_score_and_terminates(game):
    with envkit.make(f"textworld:{game}") as env:
        env.reset()
        rewards = [float(env.step(command).reward) for command in ("look", WINS)]
        last = env.current_time_step()
        assert ([0.0, 1.0], True, 0.0) == (rewards, last.is_last(), last.discount)
        info = env.get_info()
        assert (1, 1, True, False) == tuple(
            info[name] for name in ("score", "max_score", "won", "lost")
        )


def test_admissible_commands_are_in_the_info_if_wanted(game):
    with envkit.make(f"textworld:{game}", admissible_commands=True) as env:
        env.reset()
        (state,) = played_directly(game, 7, [], admissible_commands=True)
        assert state.admissible_commands == env.get_info()["admissible_commands"]
        assert WINS in env.get_info()["admissible_commands"]
    with envkit.make(f"textworld:{game}") as env:
        env.reset()
        assert "admissible_commands" not in env.get_info()


@pytest.mark.parametrize("command", ["save", "restart", "tw-print facts", "look. tw-x"])
def test_commands_that_are_no_play_are_refused(command, game):
    with envkit.make(f"textworld:{game}") as env:
        env.reset()
        assert NOTE == text_of(env.step(command))


def test_a_state_continues_in_another_environment(game):
    make = functools.partial(envkit.make, f"textworld:{game}", admissible_commands=True)
    with make() as env, make() as another:
        env.seed(7)
        env.reset()
        env.step("look")
        state = env.get_state()
        another.set_state(state)
        for command in (*commands(2), WINS):
            expected = text_of(env.step(command)), env.get_info()
            assert expected == (text_of(another.step(command)), another.get_info())


def test_a_generated_game_is_the_one_that_tw_make_makes(folder, tmp_path):
    with envkit.make(KIND, games=[0, 3], folder=folder) as env:
        env.seed(1)
        env.reset()
        made = Path(env.file)
    command = [Path(sys.executable).parent / "tw-make", "tw-coin_collector", "--level"]
    command += ["1", "--seed", "3", "--silent", "--output", tmp_path / "game.z8"]
    subprocess.run(command, check=True, timeout=300)
    assert (tmp_path / "game.z8").read_bytes() == made.read_bytes()
    assert sorted([made.name, made.with_suffix(".json").name]) == sorted(
        path.name for path in folder.iterdir()
    )


def test_seeds_choose_among_the_games_of_a_folder(game, folder):
    with envkit.make(KIND, games=[3], folder=folder) as env:
        env.reset()
    with envkit.make(f"textworld:{folder}") as env:
        env.seed(8)
        assert env.reset().is_first()
        assert Path(env.file).parent == folder
    with envkit.make(f"textworld:{Path(game).parent}") as env:
        env.reset()
        assert game == env.file


def test_wrong_names_and_settings_are_explained(tmp_path):
    for target, settings, said in [
        ("simpel", {}, "Did you mean 'tw-simple'"),
        ("simple", {"rewards": "much"}, "invalid choice: 'much'"),
        ("simple", {"reward": "dense"}, "unrecognized arguments: --reward=dense"),
        ("custom", {"nb_room": 3}, "Did you mean 'nb_rooms'"),
        (f"{tmp_path}/zork1.z5", {}, "no game of TextWorld"),
        (f"{tmp_path}", {}, "no game of TextWorld"),
        ("simple", {"games": 0}, "games"),
        ("simple", {"games": [0.5]}, "a number in games must be an integer"),
    ]:
        with pytest.raises((TypeError, ValueError), match=said):
            envkit.make(f"textworld:{target}", **settings)
    assert "tw-cooking" in suite_textworld.names()


def test_it_passes_check_environment(game):
    make = functools.partial(envkit.make, f"textworld:{game}")
    check_environment(make, steps=25, require=["seed", "info", "state"])


@pytest.mark.parametrize("backend", ["thread", "process"])
@in_loop
async def test_sessions_of_one_seed_are_equal(backend, game):
    async def attempt(session):
        texts = [(await session.reset()).text]
        texts += [(await session.step(c)).text for c in (*commands(3), WINS)]
        return texts, session.turn.end, session.turn.total

    with envkit.make(f"textworld:{game}") as env:
        env.seed(7)
        alone = [text_of(env.reset())]
        alone += [text_of(env.step(command)) for command in (*commands(3), WINS)]
    async with Sessions(f"textworld:{game}", 4, backend=backend) as sessions:
        played = await sessions.group(seed=7, size=6).run(attempt)
    assert [(alone, "terminated", 1.0)] * 6 == played
