"""Games of PLE by their names."""

from __future__ import annotations

import functools
import importlib
import pickle

import numpy as np
import pytest

import envkit
from envkit import nest
from envkit.adapters import suite_ple
from envkit.adapters.ple_parts import building
from envkit.adapters.ple_wrapper import PLEWrapper
from envkit.errors import MissingDependencyError
from envkit.parallel import ParallelPyEnvironment
from envkit.testing import check_environment
from envkit.wrappers import TimeLimit


@pytest.mark.usefixtures("ple_package", "pygame")
def test_make_knows_the_scheme():
    with envkit.make("ple:Catcher") as env:
        assert isinstance(env, PLEWrapper)
        assert "Catcher" == type(env.game).__name__
        assert env.reset().is_first()


@pytest.mark.usefixtures("ple_package", "pygame")
def test_a_constructor_travels_to_a_worker_as_its_string():
    constructor = envkit.constructor("ple:Catcher", discount=0.5)

    assert constructor == pickle.loads(pickle.dumps(constructor))
    with ParallelPyEnvironment([constructor] * 2, num_workers=2) as env:
        env.reset()

        assert [0.5, 0.5] == env.step(np.zeros(2, np.int64)).discount.tolist()


@pytest.mark.usefixtures("ple_package")
def test_keyword_arguments_go_to_the_game_to_ple_and_to_the_wrapper():
    env = suite_ple.load(
        "QuietCatcher",
        game_kwargs={"lives": 9},
        ple_kwargs={"frame_skip": 3},
        state_dtype=np.float32,
    )

    assert 9.0 == env.get_info()["lives"]
    assert 3 == env.frame_skip
    assert np.float32 == env.reset().observation["fruit_x"].dtype


@pytest.mark.usefixtures("ple_package")
def test_episodes_can_be_limited_and_environments_wrapped():
    class Named(envkit.wrappers.PyEnvironmentBaseWrapper):
        pass

    env = suite_ple.load("QuietCatcher", max_episode_steps=2, env_wrappers=[Named])

    assert isinstance(env, Named)
    assert isinstance(env.wrapped_env(), TimeLimit)
    assert [0, 1, 2, 0] == [int(env.step(0).step_type) for _ in range(4)]
    assert 1.0 == env.current_time_step().discount


@pytest.mark.usefixtures("ple_package", "pygame")
def test_the_game_without_a_state_shows_its_screen():
    with suite_ple.load("MonsterKong") as env:
        assert (6, 10, 3) == env.observation_spec().shape


@pytest.mark.usefixtures("ple_package")
def test_an_unknown_game_is_refused_with_what_looks_like_it(message_of):
    assert (
        "PLE has no game named 'Cacher'. Did you mean 'Catcher'? Its games are "
        "Catcher, FlappyBird, MonsterKong, Pixelcopter, Pong, PuckWorld, Snake, "
        "WaterWorld; of one of your own, give the class to PLEWrapper."
    ) == message_of(ValueError, lambda: suite_ple.load("Cacher"))


@pytest.mark.usefixtures("ple_package")
def test_a_game_that_lacks_a_library_says_so_itself():
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        suite_ple.load("Broken")


@pytest.mark.usefixtures("ple_package")
def test_what_ple_prints_about_doom_is_not_repeated(capsys):
    suite_ple.load("QuietCatcher")
    with pytest.raises(TypeError, match="neither a PLE nor a game"):
        suite_ple.load("Loud")

    assert "A game of my own.\n" == capsys.readouterr().out


def without(monkeypatch, package):
    """Lets a package seem to be missing."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == package else find(name, *rest),
    )


@pytest.mark.usefixtures("pygame")
def test_without_ple_the_message_says_where_it_is(monkeypatch, message_of):
    without(monkeypatch, "ple")

    assert (
        "The game 'Catcher' needs PLE, which is not installed, and which no package "
        "registry has. Clone github.com/ntasfi/PyGame-Learning-Environment and install "
        'that folder: pip install "envkit[ple]" -e PyGame-Learning-Environment'
    ) == message_of(MissingDependencyError, lambda: envkit.make("ple:Catcher"))


@pytest.mark.usefixtures("ple_package")
def test_without_pygame_the_message_has_the_command(monkeypatch, message_of):
    without(monkeypatch, "pygame")

    assert (
        "PLEWrapper needs the package pygame, which is not installed. "
        'pip install "envkit[ple]"'
    ) == message_of(MissingDependencyError, lambda: building.require_ple("PLEWrapper"))


def real(test):
    """Marks a test of the real games, which are of the days of Python 2 and NumPy 1."""
    for mark in (
        pytest.mark.parametrize("name", suite_ple.GAMES),
        pytest.mark.slow,
        pytest.mark.filterwarnings("ignore::DeprecationWarning"),
        pytest.mark.filterwarnings("ignore::SyntaxWarning"),
    ):
        test = mark(test)
    return test


@real
@pytest.mark.watchdog(300)
def test_a_real_game_keeps_the_contract_of_environments(name, ple_checkout, pygame):
    report = check_environment(f"ple:{name}", steps=200, require=["info", "seed"])

    assert () == report.failed


@real
def test_a_real_game_has_the_numbers_of_the_bare_library(name, ple_checkout, pygame):
    with suite_ple.load(name, observation="screen") as env:
        keys, actions = env.getActionSet(), []
        env.seed(7)
        shown = [env.reset().observation]
        rewards = []
        while len(actions) < 100 and not env.current_time_step().is_last():
            actions.append(int(np.random.default_rng(len(actions)).integers(len(keys))))
            time_step = env.step(actions[-1])
            shown.append(time_step.observation)
            rewards.append(float(time_step.reward))
    module = importlib.import_module(f"ple.games.{name.lower()}")
    bare = importlib.import_module("ple").PLE(getattr(module, name)())
    bare.init()
    bare.rng = bare.game.rng = np.random.RandomState(7)
    bare.reset_game()
    pictures = [bare.getScreenRGB().swapaxes(0, 1)]
    bare_rewards = []
    for action in actions:
        bare_rewards.append(float(np.float32(bare.act(keys[action]))))
        pictures.append(bare.getScreenRGB().swapaxes(0, 1))

    assert bare_rewards == rewards
    assert all(np.array_equal(*pair) for pair in zip(pictures, shown, strict=True))


@real
def test_real_games_run_in_workers(name, ple_checkout, pygame):
    maker = functools.partial(suite_ple.load, name)
    with ParallelPyEnvironment([maker] * 2, num_workers=2) as env:
        env.seed([3, 3])
        env.reset()
        for _ in range(20):
            time_step = env.step(np.zeros(2, np.int64))

        leaves = nest.flatten(time_step)
        assert all(np.array_equal(leaf[0], leaf[1]) for leaf in leaves)
