"""PySC2 imports on today's Python, and its maps have names."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading

import numpy as np
import pytest

pytest.importorskip("pysc2", reason="pysc2 is not installed")

import envkit
from envkit.adapters.pysc2 import load, prepare
from envkit.errors import ConstructorError
from envkit.parallel import ParallelPyEnvironment
from envkit.wrappers import TimeLimit
from tests.adapters.pysc2_games import FORMATS, mock
from tests.waiting import PATIENCE


def run(program, *options):
    """Runs a program in a fresh interpreter and returns what it prints."""
    result = subprocess.run(
        [sys.executable, *options, "-c", program], capture_output=True, text=True
    )
    assert (0, "") == (result.returncode, result.stderr)
    return result.stdout


@pytest.mark.slow
def test_prepare_imports_pysc2_and_changes_nothing_else():
    program = """
import os, random, sys, warnings
def now():
    ours = [type(one) for one in sys.meta_path if "envkit" in type(one).__module__]
    return dict(os.environ), random.shuffle, ours, list(warnings.filters)
from google.protobuf.internal import api_implementation
from envkit.adapters.pysc2 import prepare
try:
    import pysc2.env.sc2_env
except Exception:
    pass
before = now(), api_implementation.Type()
prepare()
prepare()
from pysc2.env import mock_sc2_env, sc2_env
from pysc2.bin import play
assert before == (now(), api_implementation.Type())
print("done")
"""

    assert "done\n" == run(program, "-W", "error")


@pytest.mark.slow
def test_prepare_works_with_protobuf_in_python_too():
    program = """
import os
os.environ["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"
from envkit.adapters.pysc2 import prepare
prepare()
from google.protobuf.internal import api_implementation
from s2clientprotocol import sc2api_pb2
message = sc2api_pb2.RequestCreateGame(random_seed=7)
print(api_implementation.Type(), sc2api_pb2.RequestCreateGame.FromString(
    message.SerializeToString()).random_seed)
"""

    assert "python 7\n" == run(program)


def test_messages_survive_serialization():
    prepare()
    from s2clientprotocol import common_pb2, sc2api_pb2

    info = sc2api_pb2.PlayerInfo(player_id=1, race_requested=common_pb2.Zerg)
    assert info == sc2api_pb2.PlayerInfo.FromString(info.SerializeToString())
    assert ("Zerg", "s2clientprotocol.sc2api_pb2") == (
        common_pb2.Race.Name(info.race_requested),
        type(info).__module__,
    )


def test_colours_match_those_under_older_python_versions():
    prepare()
    from pysc2.lib import colors

    # What Python 3.10 makes of random.shuffle(list(range(9)), lambda: 0.5).
    order = [0, 5, 1, 7, 2, 6, 3, 8, 4]
    hues = list(colors.smooth_hue_palette(9))
    assert [list(hues[i]) for i in order] == [list(c) for c in colors.shuffled_hue(9)]


def test_several_threads_can_call_prepare_at_once():
    threads = [threading.Thread(target=prepare) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert [False] * 4 == [thread.is_alive() for thread in threads]


@pytest.mark.slow
def test_a_failing_import_is_reported_in_one_line():
    program = """
import sys
sys.modules["pygame"] = None
from envkit.adapters.pysc2 import prepare
try:
    prepare()
except ImportError as error:
    print(error)
"""

    assert (
        "PySC2 cannot be imported: ModuleNotFoundError: import of pygame halted; None "
        "in sys.modules\n"
    ) == run(program)


def test_without_pysc2_the_error_says_what_to_install():
    program = """
import sys
sys.modules["pysc2"] = None
import envkit
from envkit.adapters.pysc2 import prepare
for call in (prepare, lambda: envkit.make("pysc2:MoveToBeacon")):
    try:
        call()
    except envkit.errors.MissingDependencyError as error:
        print(error)
"""

    assert (
        "envkit.adapters.pysc2 needs the package pysc2, which is not installed. "
        'pip install "pysc2>=4.0" "absl-py>=1.4"\n'
        "The environment 'pysc2:MoveToBeacon' needs the package pysc2, which is not "
        'installed. pip install "pysc2>=4.0" "absl-py>=1.4"\n'
    ) == run(program)


@pytest.mark.slow
def test_workers_prepare_before_they_load_objects_of_pysc2():
    prepare()
    from pysc2.env.mock_sc2_env import SC2TestEnv
    from pysc2.lib import features

    # Objects of PySC2, which a worker cannot load before it is prepared.
    make_env = functools.partial(
        load,
        "MoveToBeacon",
        env_class=SC2TestEnv,
        agent_interface_format=features.AgentInterfaceFormat(
            feature_dimensions=features.Dimensions(8, 8)
        ),
        observations=["feature_screen"],
    )
    with ParallelPyEnvironment(
        [make_env], worker_setup="envkit.adapters.pysc2:prepare"
    ) as env:
        observation = env.reset().observation

    assert (1, 27, 8, 8) == observation["feature_screen"].shape


def test_an_unprepared_worker_says_how_to_prepare_it(message_of):
    prepare()
    from pysc2.env.mock_sc2_env import SC2TestEnv

    assert message_of(
        ConstructorError,
        lambda: envkit.make("pysc2:MoveToBeacon", num_envs=1, env_class=SC2TestEnv),
    ).endswith(
        "This helps:\n"
        '  - worker_setup="envkit.adapters.pysc2:prepare", before which it does not '
        "import"
    )


def test_make_accepts_names_of_maps():
    with envkit.make("pysc2:MoveToBeacon", env_class=mock) as env:
        time_step = env.reset()
    assert (27, 84, 84) == time_step.observation["feature_screen"].shape


def test_players_and_formats_can_be_plain_values():
    told = {}

    def make_env(**kwargs):
        told.update(kwargs)
        return mock(**kwargs)

    load(
        "Simple64",
        players=["zerg", ("terran", "easy", "rush")],
        agent_interface_format=FORMATS["rgb"],
        env_class=make_env,
        step_mul=4,
    )
    from pysc2.env import sc2_env

    bot = sc2_env.Bot(
        sc2_env.Race.terran, sc2_env.Difficulty.easy, sc2_env.BotBuild.rush
    )
    assert [sc2_env.Agent(sc2_env.Race.zerg), bot] == told["players"]
    assert (4, "Simple64") == (told["step_mul"], told["map_name"])
    assert (32, 24) == tuple(told["agent_interface_format"].rgb_dimensions.screen)


@pytest.mark.parametrize(("map_name", "bots"), [("MoveToBeacon", 0), ("Simple64", 1)])
def test_the_map_decides_the_players(map_name, bots):
    told = {}

    def make_env(**kwargs):
        told.update(kwargs)
        return mock(**kwargs)

    load(map_name, env_class=make_env)

    assert ["Agent"] + ["Bot"] * bots == [
        type(player).__name__ for player in told["players"]
    ]


def test_players_of_pysc2_are_passed_through():
    prepare()
    from pysc2.env import sc2_env

    player = sc2_env.Agent(sc2_env.Race.protoss, "Ada")
    told = {}

    def make_env(**kwargs):
        told.update(kwargs)
        return mock(**kwargs)

    load("MoveToBeacon", [player], env_class=make_env)

    assert [player] == told["players"]


def test_env_wrappers_are_applied():
    env = load(
        "MoveToBeacon",
        env_class=mock,
        env_wrappers=[functools.partial(TimeLimit, duration=3)],
    )
    assert "TimeLimit" == type(env).__name__


def test_an_environment_by_name_can_be_seeded():
    seeds = []

    def make_env(random_seed=None, **kwargs):
        seeds.append(random_seed)
        return mock(**kwargs)

    env = load("MoveToBeacon", env_class=make_env, random_seed=5)
    env.seed([7])
    env.reset()

    assert [5, 7] == seeds


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"map_name": "MoveToBacon"},
            ValueError,
            "PySC2 has no map 'MoveToBacon'. Did you mean 'MoveToBeacon'? python -m "
            "pysc2.bin.map_list lists them.",
        ),
        (
            {"map_name": "Simple64", "players": ["teran"]},
            ValueError,
            "PySC2 has no Race 'teran'. Did you mean 'terran'? There are random, "
            "protoss, terran, zerg.",
        ),
        (
            {"map_name": "Simple64", "players": [np.zeros(2)]},
            TypeError,
            "players has array of shape (2,), dtype float64, values 0.0 … 0.0. An "
            "agent is the name of its race, 'terran'; a bot is a pair of race and "
            "difficulty, ('zerg', 'easy').",
        ),
    ],
)
def test_unknown_maps_and_options_are_refused(arguments, error, message, message_of):
    assert message == message_of(error, lambda: load(env_class=mock, **arguments))


def test_a_missing_game_is_named_with_its_folder(monkeypatch, tmp_path, message_of):
    monkeypatch.setenv("SC2PATH", str(tmp_path))
    assert (
        "StarCraft II was not found: [Errno 2] No such file or directory: "
        f"'{tmp_path}/Versions'. Install the game, and name its folder in the "
        "environment variable SC2PATH unless that is ~/StarCraftII."
    ) == message_of(FileNotFoundError, lambda: load("MoveToBeacon"))
