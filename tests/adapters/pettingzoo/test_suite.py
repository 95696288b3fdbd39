"""Games of PettingZoo by name."""

from __future__ import annotations

import importlib.util
import pickle
import warnings

import pytest

import envkit
from envkit.adapters import (
    PettingZooAECWrapper,
    PettingZooWrapper,
    suite_pettingzoo,
)
from envkit.errors import ConstructorError, MissingDependencyError
from envkit.wrappers import TimeLimit

pettingzoo = pytest.importorskip("pettingzoo", reason="pettingzoo is not installed")
pytest.importorskip("pygame", reason="pygame-ce is not installed")


def test_make_knows_the_scheme():
    with envkit.make("pettingzoo:classic/rps_v2", max_cycles=2) as env:
        assert isinstance(env, PettingZooWrapper)
        assert "rps_v2" == str(env.game)
        env.reset()
        assert [False, True] == [bool(env.step([0, 1]).is_last()) for _ in range(2)]


@pytest.mark.parametrize("name", ["rps_v2", "rps-v2", "classic/rps-v2"])
def test_the_family_is_optional(name):
    assert "rps_v2" == str(suite_pettingzoo.load(name).game)


def test_make_wraps_a_turn_based_game():
    env = envkit.make("pettingzoo:classic/tictactoe_v3")
    assert isinstance(env, PettingZooAECWrapper)


def test_the_api_can_be_chosen(message_of):
    assert isinstance(suite_pettingzoo.load("rps_v2", api="aec"), PettingZooAECWrapper)
    assert message_of(
        ConstructorError, lambda: suite_pettingzoo.load("tictactoe_v3", api="parallel")
    ) == ("'classic/tictactoe_v3' has no api 'parallel'; it has 'aec'.")


def test_arguments_go_to_the_wrapper_or_to_the_game():
    env = suite_pettingzoo.load(
        "rps_v2", agents="dict", discount=0.5, max_cycles=3, max_episode_steps=2
    )
    env.reset()
    time_step = env.step({"player_0": 0, "player_1": 1})
    assert isinstance(env, TimeLimit)
    assert {"player_0": 0.5, "player_1": 0.5} == time_step.discount


def test_a_constructor_pickles():
    constructor = envkit.constructor("pettingzoo:rps_v2", discount=0.5)
    env = pickle.loads(pickle.dumps(constructor))()
    env.reset()
    assert [0.5, 0.5] == env.step([0, 1]).discount.tolist()


def test_games_of_mpe_come_from_the_package_mpe2():
    pytest.importorskip("mpe2", reason="mpe2 is not installed")
    env = envkit.make("pettingzoo:mpe/simple_spread_v3", max_cycles=2)
    assert ["agent_0", "agent_1", "agent_2"] == env.possible_agents


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "tictacto_v3",
            "PettingZoo has no game 'tictacto_v3'. Did you mean "
            "'classic/tictactoe_v3'?",
        ),
        (
            "tictactoe",
            "PettingZoo has no game 'tictactoe'. Versions are part of the name. There "
            "is 'classic/tictactoe_v3'.",
        ),
        (
            "classic/tictactoe_v1",
            "PettingZoo has no game 'classic/tictactoe_v1'. There is "
            "'classic/tictactoe_v3'.",
        ),
        (
            "sisl/tictactoe_v3",
            "PettingZoo has no game 'sisl/tictactoe_v3'. There is "
            "'classic/tictactoe_v3'.",
        ),
    ],
)
def test_a_wrong_name_gets_a_suggestion(name, message, message_of):
    assert message_of(ConstructorError, lambda: suite_pettingzoo.load(name)) == (
        f"{message} envkit.adapters.suite_pettingzoo.names() lists them."
    )


def test_names_include_families_and_versions():
    names = suite_pettingzoo.names()
    assert {"butterfly/pistonball_v6", "sisl/multiwalker_v9"} <= set(names)
    assert sorted(names) == names


def test_names_lists_every_installed_game():
    """Without the registry of newer versions the same games are found in folders."""
    found = {
        game.name
        for family in ("butterfly", "classic", "sisl")
        for game in suite_pettingzoo._in_folder(family, f"pettingzoo.{family}")
    }

    assert found == {
        name
        for name in suite_pettingzoo.names()
        if name.partition("/")[0] in ("butterfly", "classic", "sisl")
    }


def test_games_load_without_a_registry(monkeypatch):
    monkeypatch.delattr(pettingzoo, "parallel_registry", raising=False)
    with warnings.catch_warnings():
        # A version that has a registry warns of its modules.
        warnings.simplefilter("ignore", DeprecationWarning)
        env = suite_pettingzoo.load("rps_v2", max_cycles=2)
    assert isinstance(env, PettingZooWrapper)


@pytest.mark.skipif(
    importlib.util.find_spec("chess") is not None, reason="chess is installed"
)
def test_a_missing_library_of_a_game_is_named(message_of):
    assert message_of(
        MissingDependencyError, lambda: suite_pettingzoo.load("classic/chess_v6")
    ) == (
        "The environment 'classic/chess_v6' needs the package chess, which is not "
        'installed. pip install "pettingzoo[classic]"'
    )
