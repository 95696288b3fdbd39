"""OpenEnv's own client, validator and server, with ours.

pytest collects this file only if it is told to: `make test-all` installs the package,
which brings gradio and others, and does.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import re
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import uvicorn
from openenv.cli._validation import validate_running_environment
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction
from openenv.core.env_server.types import Action
from openenv.core.generic_client import GenericEnvClient
from openenv.core.mcp_client import MCPToolClient

import envkit
from envkit import nest
from envkit._shared.secret_files import DRAW
from envkit.remote.offers import Menu, Offer, ServeOptions
from envkit.remote.openenv import OpenEnvServer
from envkit.remote.openenv_client import OpenEnvError, OpenEnvWrapper
from envkit.specs import ArraySpec, BoundedArraySpec
from envkit.specs.special import ObjectSpec, Strings
from tests import waiting
from tests.remote import games, openenv_games

WALK = "tests.remote.games:Walk"
ECHO = openenv_games.EchoAction, openenv_games.EchoObservation


@contextlib.contextmanager
def serving(target, *, num_workers=None, arguments=None, **options):
    offer = Offer(target, arguments, num_workers=num_workers)
    options = {"token": None, **options}
    chosen = ServeOptions(port=0, **options)
    with OpenEnvServer(Menu([offer]), chosen) as server:
        yield server


@contextlib.contextmanager
def client_of(server):
    with GenericEnvClient(
        server.url, message_timeout_s=waiting.PATIENCE
    ).sync() as made:
        yield made


# Our server, their client and validator.


@pytest.mark.parametrize("num_workers", [None, 1])
def test_openenvs_client_plays_the_same_episodes_as_the_environment(num_workers):
    own = games.Walk()
    own.seed(5)
    rng = np.random.default_rng(1)
    with serving(WALK, num_workers=num_workers) as server, client_of(server) as client:
        expected, told, seed = own.reset(), client.reset(seed=5), 5
        for _ in range(40):
            assert {
                "place": expected.observation["place"].tolist(),
                "left": int(expected.observation["left"]),
                "word": str(expected.observation["word"]),
            } == told.observation
            assert bool(expected.is_last()) == told.done
            assert float(expected.discount) == told.metadata["discount"]
            assert told.reward is None or float(expected.reward) == told.reward
            if told.done:
                seed += 1
                own.seed(seed)
                expected, told = own.reset(), client.reset(seed=seed)
                continue
            push, jump = rng.uniform([-1, 0], 1).astype(np.float32), rng.random() < 0.5
            expected = own.step({"push": push, "jump": jump})
            told = client.step({"push": push.tolist(), "jump": jump})
        assert {"episode_id", "step_count"} == client.state().keys()


@pytest.mark.parametrize(
    "target",
    [WALK, "CartPole", "tests.remote.games:Echo", "tests.remote.tool_games:Cellar"],
)
def test_openenvs_validator_finds_all_six_criteria(target):
    with serving(target) as server:
        report = validate_running_environment(server.url, timeout_s=waiting.PATIENCE)
    assert (True, "simulation", "openenv-http/1.x") == (
        report["passed"],
        report["mode"],
        report["standard_profile"],
    )
    assert 6 == report["summary"]["passed_count"] == report["summary"]["total_count"]


CELLAR = "tests.remote.tool_games:Cellar"


@pytest.mark.parametrize("num_workers", [None, 1])
def test_openenvs_client_lists_and_calls_tools(num_workers):
    with serving(CELLAR, num_workers=num_workers) as server:
        client = MCPToolClient(server.url, message_timeout_s=waiting.PATIENCE).sync()
        with client:
            tools = {tool.name: tool for tool in client.list_tools()}
            assert {"take", "go", "fall", "trip"} == tools.keys()
            assert ["thing"] == tools["take"].input_schema["required"]
            client.reset(seed=3)
            assert "You have 2 key." == client.call_tool("take", thing="key", count=2)
            with pytest.raises(RuntimeError, match="There is no tool 'fly'"):
                client.call_tool("fly")
            with pytest.raises(RuntimeError, match="needs thing"):
                client.call_tool("take")
            take = CallToolAction(tool_name="take", arguments={"thing": "lamp"})
            told = client.step(take)
            assert (0.25, False) == (told.reward, told.done)
            assert "You have 1 lamp." == told.observation.result["data"]
            told = client.step(CallToolAction(tool_name="fly"))
            assert "tool_not_found" == told.observation.error.error_type.value
            client.call_tool("take", thing="key")
            told = client.step(
                CallToolAction(tool_name="go", arguments={"direction": "north"})
            )
            assert (1.0, True) == (told.reward, told.done)
        assert waiting.until(lambda: server.health()[0]["sessions"] == 0)


def test_openenvs_client_raises_where_a_tool_loses_the_environment():
    with (
        serving(CELLAR, num_workers=1) as server,
        MCPToolClient(server.url, message_timeout_s=waiting.PATIENCE).sync() as client,
    ):
        for _ in range(2):
            client.reset(seed=3)
            assert "You have 1 key." == client.call_tool("take", thing="key")
            with pytest.raises(RuntimeError, match="was lost"):
                client.call_tool("fall")
            with pytest.raises(RuntimeError, match="reset comes before step"):
                client.call_tool("take", thing="key")


def test_openenvs_validator_passes_on_the_command_line():
    with serving("CartPole") as server:
        program = Path(sys.executable).with_name("openenv")
        command = [program, "validate", "--url", server.url]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (0, 6) == (told.returncode, told.stdout.count(" PASS ")), told.stdout


def test_trainers_do_not_mistake_an_action_for_a_tool_call():
    for_tools = {kind.__name__ for kind in (Action, CallToolAction, ListToolsAction)}
    for target in ("Action=CartPole", "CallTool=CartPole", "list_tools=CartPole"):
        with (
            serving(target) as server,
            urllib.request.urlopen(f"{server.url}/schema") as answer,
        ):
            schema = json.load(answer)["action"]
        assert schema["title"] not in for_tools


def test_openenvs_client_and_validator_send_the_token_in_the_address():
    with serving("CartPole", token=DRAW) as server:
        url = re.search(r"http://\S+(?=,)", server.invitation)[0]
        with GenericEnvClient(url).sync() as client:
            assert not client.reset(seed=1).done
        report = validate_running_environment(url, timeout_s=waiting.PATIENCE)
        assert report["passed"]
        with pytest.raises(ConnectionError, match="HTTP 401"):
            GenericEnvClient(server.url).sync().__enter__()


def test_openenvs_client_gets_an_error_for_an_impossible_request():
    with serving(WALK, max_sessions=1) as server, client_of(server) as client:
        client.reset()
        with pytest.raises(RuntimeError, match="VALIDATION_ERROR"):
            client.step({"push": [0, 7], "jump": True})
        with client_of(server) as second, pytest.raises(RuntimeError, match="CAPACITY"):
            second.reset()
        assert client.step({"push": [0, 0], "jump": True}).reward is not None


@pytest.mark.parametrize(
    ("how", "num_workers"), [("SIGKILL", 1), ("raise", 1), ("raise", None)]
)
def test_openenvs_client_raises_when_the_environment_is_lost(how, num_workers):
    crash = {"crash_at": 2, "how": how}
    target = "envkit.testing:CrashingEnv"
    with (
        serving(target, arguments=crash, num_workers=num_workers) as server,
        client_of(server) as client,
    ):
        client.reset()
        assert not client.step({"value": 0}).done
        with pytest.raises(RuntimeError, match=r"was lost .*ENVIRONMENT_LOST"):
            client.step({"value": 0})
        with pytest.raises(RuntimeError, match="reset comes before step"):
            client.step({"value": 0})
        assert not client.reset().done
        assert not client.step({"value": 0}).done


# Their server, our client.


@contextlib.contextmanager
def their_server(env, action, observation, most=8):
    app = create_fastapi_app(env, action, observation, max_concurrent_envs=most)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))

    def run():
        asyncio.run(server.serve(sockets=[listening]))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


@pytest.fixture(scope="module")
def their_walks():
    kinds = openenv_games.Walk, openenv_games.WalkAction, openenv_games.WalkObservation
    with their_server(*kinds) as url:
        yield url


def test_specs_come_from_openenvs_schema_and_the_first_observation(their_walks):
    with OpenEnvWrapper(their_walks) as env:
        assert {
            "place": ArraySpec((2,), np.float64),
            "left": BoundedArraySpec((), np.int64, 0, 9),
            "word": ObjectSpec(kind=Strings(str)),
        } == env.observation_spec()
        assert {"push": BoundedArraySpec((), np.int64, -1, 1)} == env.action_spec()


def play(env, seed, steps=30):
    """Plays their environment without a server, and returns what it said."""
    rng, told = np.random.default_rng(1), [env.reset(seed=seed)]
    for _ in range(steps):
        push = int(rng.integers(-1, 2))
        if told[-1].done:
            told.append(env.reset())
        else:
            told.append(env.step(openenv_games.WalkAction(push=push)))
    return told


def test_openenvs_server_plays_the_same_episodes_as_its_environment(their_walks):
    expected = play(openenv_games.Walk(), seed=4)
    rng = np.random.default_rng(1)
    with OpenEnvWrapper(their_walks) as env:
        env.seed(4)
        steps = [env.reset()]
        steps += [env.step({"push": rng.integers(-1, 2)}) for _ in range(30)]
        assert {} == env.get_info() or "note" in env.get_info()
    was_done = True
    for theirs, ours in zip(expected, steps, strict=True):
        assert theirs.place == ours.observation["place"].tolist()
        assert theirs.left == ours.observation["left"]
        assert theirs.word == ours.observation["word"][()]
        assert (was_done, theirs.done) == (bool(ours.is_first()), bool(ours.is_last()))
        assert np.float32(theirs.reward or 0) == ours.reward
        if theirs.done:
            assert float("truncated" in theirs.metadata) == ours.discount
        was_done = theirs.done


def test_openenvs_environments_work_in_a_pool(their_walks):
    make_env = functools.partial(OpenEnvWrapper, their_walks, text_length=8)
    with envkit.ParallelPyEnvironment([make_env] * 3, num_workers=2) as pool:
        pool.seed([1, 2, 3])
        batch = [pool.reset()] + [pool.step({"push": [0, 1, -1]}) for _ in range(8)]
    rows = nest.map_structure(lambda *arrays: np.stack(arrays), *batch)
    for row, push in enumerate([0, 1, -1]):
        env = openenv_games.Walk()
        told = env.reset(seed=row + 1)
        for step in range(9):
            assert told.place == rows.observation["place"][step, row].tolist()
            assert told.word == rows.observation["word"][step, row]
            assert told.done == (rows.step_type[step, row] == 2)
            if told.done:
                told = env.reset()
            else:
                told = env.step(openenv_games.WalkAction(push=push))


def test_texts_work_as_actions_and_observations():
    kinds = openenv_games.Echo, *ECHO
    with their_server(*kinds) as url, OpenEnvWrapper(url) as env:
        assert {"message": ObjectSpec(kind=Strings(str))} == env.action_spec()
        assert "hello" == env.reset().observation["echoed"][()]
        step = env.step({"message": "one two"})
        assert ("one two", 2.0) == (step.observation["echoed"][()], step.reward)
        assert ["one", "two"] == step.observation["words"][()]
        with pytest.raises(OpenEnvError, match=r"EXECUTION_ERROR.*told to raise"):
            env.step({"message": "raise"})
        assert not env.repaired


def test_openenvs_full_server_says_so():
    kinds = (
        openenv_games.Lonely,
        openenv_games.EchoAction,
        openenv_games.EchoObservation,
    )
    with their_server(*kinds, most=1) as url, OpenEnvWrapper(url) as first:
        first.reset()
        with pytest.raises(OpenEnvError, match="CAPACITY_REACHED"):
            OpenEnvWrapper(url).reset()
