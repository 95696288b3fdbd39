"""Games in Jericho, beside Jericho without envkit.

pytest collects this file only if it is told to: `make test-text-games` installs
Jericho. It brings no games, so one of TextWorld's is played, without a score.
"""

from __future__ import annotations

import functools
import random
import string
import warnings

import pytest

import envkit
from envkit.adapters.text_games import NOTE
from envkit.sessions import Sessions
from envkit.testing import check_environment
from tests.adapters.text_games import COMMANDS, coin_game
from tests.sessions.running import in_loop

jericho = pytest.importorskip("jericho")
pytestmark = pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning")


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    return coin_game(tmp_path_factory.mktemp("games"))


def commands(seed, count=40):
    return random.Random(seed).choices(COMMANDS, k=count)


def played_directly(story, seed, actions):
    """Returns what Jericho alone says."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = jericho.FrotzEnv(story)
    env.seed(seed)
    texts = [env.reset()[0]] + [env.step(action)[0] for action in actions]
    env.close()
    return [text.strip() for text in texts]


def text_of(step):
    return str(step.observation)


def test_an_episode_is_that_of_jericho_with_the_seed(story):
    with envkit.make(f"jericho:{story}") as env:
        env.seed(7)
        texts = [text_of(env.reset()), *(text_of(env.step(c)) for c in commands(1))]
    assert played_directly(story, 7, commands(1)) == texts


def test_a_command_is_made_plain(story):
    with envkit.make(f"jericho:{story}") as env:
        env.reset()
        expected = text_of(env.step("look"))
        for command in ("  look\n", "lo\u00f6k".replace("\u00f6", "o\u0308"), "look\0"):
            assert (
                expected.partition("\n>")[0]
                == text_of(env.step(command)).partition("\n>")[0]
            )
        assert "verb I" in text_of(env.step("x" * 5000))
        assert env.step("\u4f60\u597d \0").is_mid()


def test_no_text_ends_the_process(story):
    letters, rng = f"{string.printable}\0\x9b\u00e9\u4f60\\", random.Random(1)
    with envkit.make(f"jericho:{story}") as env:
        env.reset()
        for _ in range(500):
            env.step("".join(rng.choices(letters, k=rng.randrange(300))))
        assert env.reset().is_first()


@pytest.mark.parametrize(
    "command",
    [
        "save",
        "\uff33ave",
        "Restore",
        "look. save",
        "me, save",
        "look then script",
        "restart",
    ],
)
def test_commands_that_would_reach_other_episodes_are_refused(
    command, story, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with envkit.make(f"jericho:{story}") as env:
        env.reset()
        step = env.step(command)
        assert (NOTE, 0.0, False) == (text_of(step), step.reward, step.is_last())
    assert [] == list(tmp_path.iterdir())


def test_a_state_continues_in_another_environment(story):
    with envkit.make(f"jericho:{story}") as env, envkit.make(f"jericho:{story}") as two:
        env.seed(7)
        env.reset()
        env.step("look")
        state = env.get_state()
        expected = [text_of(env.step(command)) for command in commands(2)]
        two.set_state(state)
        assert expected == [text_of(two.step(command)) for command in commands(2)]


def test_an_interpreter_that_stops_is_an_error_and_the_next_reset_works(
    story, monkeypatch
):
    with envkit.make(f"jericho:{story}") as env:
        env.seed(7)
        first = text_of(env.reset())
        lib = env.env_instance.frotz_lib
        with monkeypatch.context() as patch:
            patch.setattr(lib, "halted", lambda: 1)
            with pytest.raises(RuntimeError, match="interpreter stopped"):
                env.step("look")
        env.seed(7)
        assert first == text_of(env.reset())


def test_what_is_no_game_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="Jericho brings no games"):
        envkit.make(f"jericho:{tmp_path}/zork1.z5").reset()
    wrong = tmp_path / "wrong.z5"
    wrong.write_text("West of House " * 10)
    with pytest.raises(ValueError, match="no game for the Z-machine"):
        envkit.make(f"jericho:{wrong}").reset()


def test_a_limit_truncates(story):
    with envkit.make(f"jericho:{story}", max_episode_steps=2) as env:
        env.reset()
        env.step("look")
        assert (True, 1.0) == ((last := env.step("look")).is_last(), last.discount)


def test_it_passes_check_environment(story):
    make = functools.partial(envkit.make, f"jericho:{story}")
    check_environment(make, steps=30, require=["seed", "info", "state"])


@pytest.mark.parametrize("backend", ["thread", "process"])
@in_loop
async def test_sessions_play_what_jericho_plays_alone(backend, story):
    async def attempt(session):
        texts = [(await session.reset()).text]
        texts += [(await session.step(command)).text for command in commands(3)]
        return texts

    async with Sessions(f"jericho:{story}", 4, backend=backend) as sessions:
        played = await sessions.group(seed=7, size=6).run(attempt)
    assert [played_directly(story, 7, commands(3))] * 6 == played
