"""OpenEnv's protocol: what a server answers, and what a client plays.

The genuine client, validator and server are in `openenv_checks.py`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import envkit
from envkit import nest
from envkit.errors import SpecError
from envkit.remote.offers import Menu, Offer, ServeOptions
from envkit.specs import ArraySpec, BoundedArraySpec
from envkit.specs.special import ObjectSpec, Strings
from envkit.testing import check_environment
from tests import waiting
from tests.remote import games
from tests.remote.serving import certificate_in

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("websockets", reason="websockets is not installed")

from websockets.frames import Frame, Opcode
from websockets.sync.client import connect

from envkit.remote.openenv import OpenEnvServer
from envkit.remote.openenv_client import OpenEnvError, OpenEnvWrapper

WALK = "tests.remote.games:Walk"
SECRET = "a secret of some length"


@contextlib.contextmanager
def serving(target, *, num_workers=None, arguments=None, port=0, **options):
    offer = Offer(target, arguments, num_workers=num_workers)
    options = {"token": None, **options}
    chosen = ServeOptions(port=port, **options)
    server = OpenEnvServer(Menu([offer]), chosen)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def walks():
    with serving(WALK) as server:
        yield server


class Session:
    """A client that sends what it is told."""

    def __init__(self, server):
        url = server.url.replace("http", "ws", 1)
        connecting = connect(f"{url}/ws", open_timeout=waiting.PATIENCE)
        self.socket = connecting.__enter__()

    def send(self, text):
        self.socket.send(text)
        return json.loads(self.socket.recv(timeout=waiting.PATIENCE))

    def ask(self, kind, **data):
        return self.send(json.dumps({"type": kind, "data": data}))

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@pytest.fixture
def session(walks):
    with Session(walks) as made:
        yield made


def fetched(server, path, body=None, **headers):
    """Returns the status and the content of an answer."""
    data = (
        body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    )
    if data is not None:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(f"{server.url}{path}", data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=waiting.PATIENCE) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def expect_same(expected, actual):
    for one, other in zip(nest.flatten(expected), nest.flatten(actual), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert (one.dtype, one.tolist()) == (other.dtype, other.tolist())


def play_both(first, second, steps=60, seed=5):
    """Plays two environments with the same actions, and compares what they return."""
    rng = np.random.default_rng(1)
    for env in (first, second):
        env.seed(seed)
    expect_same(first.reset(), second.reset())
    for _ in range(steps):
        action = {
            "push": rng.uniform([-1, 0], 1).astype(np.float32),
            "jump": rng.random() < 0.5,
        }
        expect_same(first.step(action), second.step(action))


# The server.


def test_a_client_can_reset_step_and_read_the_state(session):
    told = session.ask("reset", seed=7, episode_id="mine")
    env = games.Walk()
    env.seed(7)
    first = env.reset()
    assert {
        "type": "observation",
        "data": {
            "observation": {
                "place": first.observation["place"].tolist(),
                "left": int(first.observation["left"]),
                "word": str(first.observation["word"]),
            },
            "reward": None,
            "done": False,
            "metadata": {
                "discount": 1.0,
                "terminated": False,
                "truncated": False,
                "left": int(first.observation["left"]),
                "place": first.observation["place"].tolist(),
            },
        },
    } == told
    session.ask("step", push=[0, 1], jump=False)
    assert {
        "type": "state",
        "data": {"episode_id": "mine", "step_count": 1},
    } == session.ask("state")
    session.socket.send('{"type": "close"}')
    with pytest.raises(Exception, match="1000"):
        session.socket.recv(timeout=waiting.PATIENCE)


def test_the_metadata_tell_how_an_episode_ended(session):
    ends = set()
    session.ask("reset", seed=3)
    while len(ends) < 2:
        told = session.ask("step", push=[0, 1], jump=False)["data"]
        if told["done"]:
            metadata = told["metadata"]
            ends.add(
                (metadata["discount"], metadata["terminated"], metadata["truncated"])
            )
            refused = session.ask("step", push=[0, 1], jump=False)
            assert {
                "message": "The episode has ended: reset comes before step.",
                "code": "EXECUTION_ERROR",
            } == refused["data"]
            session.ask("reset")
    assert {(0.0, True, False), (1.0, False, True)} == ends


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("{", "INVALID_JSON", "Invalid JSON: "),
        ("[" * 20_000, "INVALID_JSON", "Invalid JSON: "),
        (b"\0", "INVALID_JSON", "A message must be text, not bytes."),
        ("[]", "VALIDATION_ERROR", "A message must be an object, got "),
        ("{}", "UNKNOWN_TYPE", "Unknown message type: None."),
        ('{"type": "jump"}', "UNKNOWN_TYPE", "Unknown message type: 'jump'. The types"),
        ('{"type": ["reset"]}', "UNKNOWN_TYPE", "Unknown message type: ['reset']."),
        ('{"type": "step"}', "VALIDATION_ERROR", "data of 'step' must be an object."),
        ('{"type": "state", "no": 1}', "VALIDATION_ERROR", "not 'no'."),
        (
            '{"type": "reset", "data": {"seed": -1}}',
            "VALIDATION_ERROR",
            "seed must be an integer of at least 0",
        ),
        (
            '{"type": "reset", "data": {"seed": true}}',
            "VALIDATION_ERROR",
            "seed must be an integer of at least 0",
        ),
        (
            '{"type": "reset", "data": {"episode_id": 3}}',
            "VALIDATION_ERROR",
            "episode_id must be a text of at most 255 characters.",
        ),
        (
            '{"type": "reset", "data": {"task": 3}}',
            "VALIDATION_ERROR",
            "reset: options: Walk takes no reset options, and was given 'task'",
        ),
        (
            '{"type": "step", "data": {"push": [2, 0], "jump": true}}',
            "VALIDATION_ERROR",
            "1 of 2 elements is above the maximum 1.0: 2.0 at index (0,).",
        ),
        (
            '{"type": "step", "data": {"push": [0, 0]}}',
            "VALIDATION_ERROR",
            "Key 'jump' is missing",
        ),
        (
            '{"type": "step", "data": {"push": [0, 0], "jump": true}}',
            "EXECUTION_ERROR",
            "No episode has begun: reset comes before step.",
        ),
    ],
)
def test_an_impossible_request_is_an_error_and_the_session_continues(
    session, text, code, message
):
    told = session.send(text)
    assert ("error", code) == (told["type"], told["data"]["code"])
    assert message in told["data"]["message"]
    assert "observation" == session.ask("reset")["type"]


def test_an_exception_of_the_environment_is_reported():
    with serving("tests.remote.games:Echo") as server, Session(server) as session:
        session.ask("reset", task="speak")
        assert {
            "type": "error",
            "data": {
                "message": "The environment was lost (raised): ArithmeticError: was "
                "told to raise. Send reset to begin another episode.",
                "code": "ENVIRONMENT_LOST",
                "kind": "raised",
            },
        } == session.ask("step", value="raise")
        assert (
            "The environment was lost: reset"
            in (session.ask("step", value="more")["data"]["message"])
        )
        session.ask("reset")
        told = session.ask("step", value="hal\ud83d \0 \U0001f600")["data"]
        assert "hal\ud83d \0 \U0001f600" == told["observation"]["value"]


def test_each_connection_has_its_own_environment(walks):
    with Session(walks) as first, Session(walks) as second:
        begun = first.ask("reset", seed=1)
        assert begun != second.ask("reset", seed=2)
        assert begun == second.ask("reset", seed=1)


def test_a_full_server_says_so_and_later_has_room_again():
    with serving(WALK, max_sessions=1) as server:
        with Session(server) as first:
            assert "observation" == first.ask("reset")["type"]
            with Session(server) as second:
                told = json.loads(second.socket.recv(timeout=waiting.PATIENCE))
            assert {
                "type": "error",
                "data": {
                    "message": "The server has room for 1 session, and all are taken. "
                    "Try again when one has ended.",
                    "code": "CAPACITY_REACHED",
                },
            } == told
            assert 503 == fetched(server, "/reset", {})[0]
        assert waiting.until(lambda: fetched(server, "/reset", {})[0] == 200)


def test_a_failed_constructor_is_reported():
    games.Unmade.made = 0
    # The first one, which is made for its specs, serves the first client.
    with serving("tests.remote.games:Unmade") as server, Session(server) as first:
        assert "observation" == first.ask("reset")["type"]
        with Session(server) as second:
            told = json.loads(second.socket.recv(timeout=waiting.PATIENCE))
        assert {
            "message": "The environment could not be made: OSError: the second one "
            "breaks",
            "code": "FACTORY_ERROR",
        } == told["data"]


def test_a_hanging_session_delays_no_other():
    games.GO_ON.clear()
    games.IS_STUCK.clear()
    with (
        serving("tests.remote.games:Stuck") as server,
        Session(server) as stuck,
        Session(server) as free,
    ):
        stuck.ask("reset")
        stuck.ask("step", value=0)
        stuck.socket.send('{"type": "step", "data": {"value": 0}}')
        assert games.IS_STUCK.wait(waiting.PATIENCE)
        assert "observation" == free.ask("reset")["type"]
        assert "observation" == free.ask("step", value=0)["type"]
        games.GO_ON.set()
        told = json.loads(stuck.socket.recv(timeout=waiting.PATIENCE))
        assert "observation" == told["type"]


def test_a_server_reads_little_ahead_of_a_busy_environment():
    """Otherwise its memory would hold all that a client sends."""
    games.GO_ON.clear()
    games.IS_STUCK.clear()
    with serving("tests.remote.games:Stuck") as server, Session(server) as session:
        session.ask("reset")
        session.ask("step", value=0)
        session.socket.send('{"type": "step", "data": {"value": 0}}')
        assert games.IS_STUCK.wait(waiting.PATIENCE)
        message = Frame(Opcode.TEXT, bytes(1 << 15)).serialize(mask=True)
        left, raw = memoryview(message * (1 << 11)), session.socket.socket
        while left and select.select([], [raw], [], 0.3)[1]:
            left = left[raw.send(left, socket.MSG_DONTWAIT) :]
        assert left
        raw.shutdown(socket.SHUT_RDWR)
        games.GO_ON.set()


@pytest.fixture
def short_grace(monkeypatch):
    """Shortens the wait for environments that hang for good."""
    for module in ("env_threads", "openenv"):
        monkeypatch.setattr(f"envkit.remote.{module}._GRACE", 0.1)


@pytest.mark.usefixtures("short_grace")
def test_a_server_closes_even_if_an_environment_hangs():
    games.GO_ON.clear()
    games.IS_STUCK.clear()
    with serving("tests.remote.games:Stuck") as server:
        session = Session(server)
        session.ask("reset")
        session.ask("step", value=0)
        session.socket.send('{"type": "step", "data": {"value": 0}}')
        assert games.IS_STUCK.wait(waiting.PATIENCE)
    games.GO_ON.set()
    session.close()


def test_sixty_four_sessions_step_at_once():
    """No step of theirs ends before all of them have begun one."""
    with (
        serving("tests.remote.games:Gathering") as server,
        contextlib.ExitStack() as stack,
    ):
        sessions = [stack.enter_context(Session(server)) for _ in range(64)]
        for session in sessions:
            session.ask("reset")
        for session in sessions:
            session.socket.send('{"type": "step", "data": {"value": 0}}')
        for session in sessions:
            told = json.loads(session.socket.recv(timeout=waiting.PATIENCE))
            assert "observation" == told["type"]


def env_threads():
    return {one for one in threading.enumerate() if one.name == "envkit-environment"}


def leave_in_a_step(session):
    session.ask("step", value=0)
    session.socket.send('{"type": "step", "data": {"value": 0}}')
    assert games.IS_STUCK.wait(waiting.PATIENCE)
    session.socket.socket.shutdown(socket.SHUT_RDWR)
    games.GO_ON.set()


LEAVING = {
    "close": lambda session: session.socket.send('{"type": "close"}'),
    "the connection is closed": Session.close,
    "the connection is lost": lambda session: session.socket.socket.shutdown(2),
    "a message that is too long": lambda session: session.socket.send("x" * (1 << 20)),
    "in a step": leave_in_a_step,
}


@pytest.mark.parametrize("how", LEAVING)
def test_an_environment_and_its_thread_end_with_the_session(how):
    games.GO_ON.clear()
    games.IS_STUCK.clear()
    before = env_threads()
    with serving("tests.remote.games:Leaving") as server, Session(server) as session:
        session.ask("reset")
        assert 1 == len(games.Leaving.there)
        LEAVING[how](session)
        assert waiting.until(lambda: not games.Leaving.there)
        assert waiting.until(lambda: env_threads() <= before)


def test_an_environment_and_its_thread_end_with_a_silent_session():
    games.GO_ON.clear()
    games.IS_STUCK.clear()
    before = env_threads()
    with (
        serving("tests.remote.games:Leaving", idle_timeout=0.05) as server,
        Session(server),
    ):
        assert waiting.until(lambda: not games.Leaving.there)
        assert waiting.until(lambda: env_threads() <= before)


@pytest.mark.usefixtures("short_grace")
def test_environments_and_their_threads_end_with_the_server():
    games.GO_ON.clear()
    games.IS_STUCK.clear()
    before = env_threads()
    with serving("tests.remote.games:Leaving") as server:
        stuck, idle = Session(server), Session(server)
        stuck.ask("reset")
        stuck.ask("step", value=0)
        stuck.socket.send('{"type": "step", "data": {"value": 0}}')
        assert games.IS_STUCK.wait(waiting.PATIENCE)
        idle.ask("reset")
        assert 200 == fetched(server, "/reset", {})[0]
    games.GO_ON.set()
    assert waiting.until(lambda: env_threads() <= before)
    assert [] == games.Leaving.there
    stuck.close()
    idle.close()


def test_a_tool_call_is_refused_and_the_session_continues(session):
    for request, code in [
        ({"jsonrpc": "2.0", "method": "tools/list", "id": 5}, -32601),
        ({"jsonrpc": "2.0", "method": "tools/call", "params": {}, "id": 5}, -32601),
        ({"method": "tools/list", "id": 5}, -32600),
    ]:
        told = session.ask("mcp", **request)
        assert ("mcp", 5) == (told["type"], told["data"]["id"])
        assert code == told["data"]["error"]["code"]
    assert "observation" == session.ask("reset")["type"]


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ("exit", "ENVIRONMENT_LOST"),
        ("half", "ENVIRONMENT_LOST"),
        ("huge", "EXECUTION_ERROR"),
    ],
)
def test_neither_values_outside_json_nor_sys_exit_end_a_session(action, code):
    with serving("tests.remote.games:Breaking") as server:
        with Session(server) as session:
            session.ask("reset")
            told = session.ask("step", value=action)
            assert ("error", code) == (told["type"], told["data"]["code"])
            assert "observation" == session.ask("reset")["type"]
        body = {"action": {"value": action}}
        assert 500 == fetched(server, "/step", body)[0]
        assert 200 == fetched(server, "/health")[0]


def test_a_silent_session_ends_with_a_reason():
    with serving(WALK, idle_timeout=0.05) as server, Session(server) as session:
        told = json.loads(session.socket.recv(timeout=waiting.PATIENCE))
        assert {
            "message": "The session has ended: there was no request for 0.05 s.",
            "code": "SESSION_ERROR",
        } == told["data"]


def test_an_oversized_message_ends_only_its_own_session(walks):
    with Session(walks) as large, Session(walks) as other:
        other.ask("reset")
        with pytest.raises(Exception, match="1009"):
            large.send('{"type": "reset", "data": {"task": "' + "x" * (1 << 20) + '"}}')
        assert "observation" == other.ask("reset")["type"]
    status, told = fetched(walks, "/reset", b"x" * (1 << 20))
    assert (413, "TOO_LARGE") == (status, told["code"])


def test_the_http_endpoints_answer_as_openenvs_do(walks):
    get = functools.partial(fetched, walks)
    assert (200, {"status": "healthy"}) == get("/health")
    assert {"name", "description", "version"} <= get("/metadata")[1].keys()
    assert {"action", "observation", "state"} == get("/schema")[1].keys()
    paths = get("/openapi.json")[1]["paths"].keys()
    assert {"/reset", "/step", "/state", "/mcp", "/health", "/schema"} <= paths
    empty = {"episode_id": None, "step_count": 0}
    assert [(200, empty)] * 2 == [get("/state"), get("/state", {})]
    status, begun = get("/reset", {"seed": 3})
    assert (200, False, None) == (status, begun["done"], begun["reward"])
    status, told = get("/step", {"action": {"push": [0, 0], "jump": False}})
    assert (200, float) == (status, type(told["reward"]))
    status, told = get("/step", {"action": {"push": [0, 9], "jump": False}})
    assert (422, ["action", "['push']"]) == (status, told["detail"][0]["loc"])
    assert 422 == get("/step", {})[0]
    assert 422 == get("/step", b"\xff")[0]
    assert -32600 == get("/mcp", {})[1]["error"]["code"]
    asked = {"jsonrpc": "2.0", "method": "tools/list", "id": 5}
    assert [5, -32601] == [(m := get("/mcp", asked)[1])["id"], m["error"]["code"]]


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("CartPole", "CartPole"),
        ("CartPole-v1", "CartPole"),
        ("maze=GridWorld", "Maze"),
        ("call_tool=GridWorld", "CallToolEnv"),
        (WALK, "Walk"),
    ],
)
def test_a_schema_is_short_and_named_after_its_environment(target, name):
    """Trainers put it into prompts, and take `Action` for that of tools."""
    with serving(target) as server:
        schemas = fetched(server, "/schema")[1]
    titles = schemas["action"]["title"], schemas["observation"]["title"]
    assert (f"{name}Action", f"{name}Observation") == titles
    text = json.dumps(schemas)
    assert "x-envkit" not in text
    assert "e+38" not in text


def test_the_schema_of_an_action_has_no_needless_entries():
    with serving("CartPole") as server:
        schemas = fetched(server, "/schema")[1]
    assert {
        "title": "CartPoleAction",
        "type": "object",
        "properties": {"value": {"type": "integer", "minimum": 0, "maximum": 1}},
        "required": ["value"],
        "additionalProperties": False,
    } == schemas["action"]


def test_the_task_api_lists_the_tasks_of_an_environment(walks):
    """By an environment in a worker as by one in the server; see OpenEnv's Task API."""
    post = "tests.remote.games:Tasks"
    for workers in (None, 1):
        with serving(post, num_workers=workers) as server:
            assert (200, [post]) == fetched(server, "/list_environments")
            splits = [{"name": "train", "type": "train"}, {"name": "x", "type": "test"}]
            assert (200, splits) == fetched(server, f"/{post}/splits")
            for path, body, answer in [
                ("num_tasks", {"split": "x"}, {"num_tasks": 3}),
                ("tasks", {"split": "x"}, {"tasks": ["x0", "x1", "x2"]}),
                ("task", {"split": "x", "index": 2}, {"task": "x2"}),
                ("task_range", {"split": "x", "start": 1}, {"tasks": ["x1", "x2"]}),
            ]:
                status, found = fetched(server, f"/{post}/{path}", body)
                assert (200, answer) == (status, {key: found[key] for key in answer})
            for path, body, status in [
                ("task", {"split": "x", "index": 9}, 400),
                ("task", {"split": "x", "index": "9"}, 422),
                ("task", {"split": "y", "index": 0}, 422),
                ("num_tasks", {"split": "x", "more": 1}, 422),
            ]:
                assert status == fetched(server, f"/{post}/{path}", body)[0]
    assert 501 == fetched(walks, "/tests.remote.games:Walk/splits")[0]
    assert 404 == fetched(walks, "/Pong/splits")[0]


def test_a_client_needs_the_token():
    with serving(WALK, token=SECRET.encode()) as server:
        assert 401 == fetched(server, "/schema")[0]
        with pytest.raises(Exception, match="401"):
            Session(server)
        assert 200 == fetched(server, "/schema", Authorization=f"Bearer {SECRET}")[0]
        with pytest.raises(OpenEnvError, match=r"401.*needs a token"):
            OpenEnvWrapper(server.url)
        with OpenEnvWrapper(server.url, token=SECRET) as env:
            assert env.reset().is_first()


def test_each_of_several_environments_has_its_name_in_the_address():
    menu = Menu([Offer("Catch"), Offer("pole=CartPole")])
    with OpenEnvServer(menu, ServeOptions(port=0, token=None)) as server:
        assert f"openenv: {server.url}/Catch {server.url}/pole" == server.line
        assert (200, ["Catch", "pole"]) == fetched(server, "/list_environments")
        for name, shape in (("Catch", (10, 5)), ("pole", (4,))):
            assert name == fetched(server, f"/{name}/metadata")[1]["name"]
            with OpenEnvWrapper(f"{server.url}/{name}") as env:
                assert shape == env.reset().observation.shape
        assert 501 == fetched(server, "/pole/splits")[0]
        assert 200 == fetched(server, "/health")[0]
        told = (
            "There is nothing at /Pong/health. The environments are at /Catch, /pole."
        )
        assert (404, {"detail": told}) == fetched(server, "/Pong/health")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "data", "seed", "push", "jump", "x"]),
            children,
            max_size=3,
        )
    ),
    max_leaves=6,
)
MESSAGES = st.text(max_size=20) | st.binary(max_size=20) | JSON.map(json.dumps)
MESSAGES |= st.builds(
    lambda kind, data: json.dumps({"type": kind, "data": data}),
    st.sampled_from(["reset", "step", "state", "mcp", "none"]),
    JSON,
)


@given(messages=st.lists(MESSAGES, max_size=4))
def test_no_message_ends_a_session_or_disturbs_another(walks, messages):
    with Session(walks) as bad, Session(walks) as good:
        begun = good.ask("reset", seed=1)
        for message in messages:
            told = bad.send(message)
            if told["type"] == "error":
                assert told["data"]["message"]
        assert begun == good.ask("reset", seed=1)
        assert begun == bad.ask("reset", seed=1)


@given(
    path=st.sampled_from(["/reset", "/step", "/mcp", "/state", "/ws", "/no", "/%00"]),
    body=st.binary(max_size=30) | JSON.map(lambda data: json.dumps(data).encode()),
)
def test_no_http_request_breaks_the_server(walks, path, body):
    request = urllib.request.Request(f"{walks.url}{path}", data=body)
    refusal = 400
    try:
        with urllib.request.urlopen(request, timeout=waiting.PATIENCE) as answer:
            json.load(answer)
    except urllib.error.HTTPError as error:
        error.close()
        refusal = error.code
    assert 400 <= refusal < 500
    assert 200 == fetched(walks, "/health")[0]


@given(data=st.binary(min_size=1, max_size=200))
def test_no_bytes_sent_to_the_port_break_the_server(walks, data):
    address = walks.url.rpartition("/")[2].split(":")
    with socket.create_connection((address[0], int(address[1])), 60) as raw:
        raw.sendall(data)
    assert 200 == fetched(walks, "/health")[0]


# The client.


def test_a_client_plays_the_same_episodes_as_the_environment(walks):
    with OpenEnvWrapper(walks.url) as env:
        own = games.Walk()
        assert own.environment_spec() == env.environment_spec()
        assert own.observation_spec().keys() == env.observation_spec().keys()
        play_both(own, env)


def test_a_client_plays_the_same_episodes_in_worker_processes():
    with serving(WALK, num_workers=1) as server, OpenEnvWrapper(server.url) as env:
        play_both(games.Walk(), env, steps=20)


def test_make_finds_the_client_by_its_scheme_and_it_works_in_a_pool(walks):
    target = f"openenv:{walks.url}"
    with envkit.make(target, num_envs=2, num_workers=1) as pool:
        pool.seed([1, 2])
        own = [games.Walk(), games.Walk()]
        for env, seed in zip(own, [1, 2], strict=True):
            env.seed(seed)
        action = {"push": np.zeros((2, 2), np.float32), "jump": np.zeros(2, bool)}
        one = {"push": np.zeros(2, np.float32), "jump": False}
        for _ in range(12):
            batch = pool.step(action)
            alone = [env.step(one) for env in own]
            expect_same(nest.map_structure(lambda *rows: np.stack(rows), *alone), batch)


@pytest.mark.heavy
def test_the_client_fulfils_the_contract_of_environments(walks):
    check_environment(functools.partial(OpenEnvWrapper, walks.url))


def test_get_info_returns_the_metadata(walks):
    with OpenEnvWrapper(walks.url) as env:
        env.seed(2)
        first = env.reset()
        assert {
            "left": int(first.observation["left"]),
            "place": first.observation["place"].tolist(),
        } == env.get_info()
        action = {"push": np.zeros(2, np.float32), "jump": False}
        while not (step := env.step(action)).is_last():
            pass
        assert bool(step.discount) == env.get_info()["truncated"]


def test_texts_and_options_reach_the_server():
    with serving("tests.remote.games:Echo") as server:
        options = {"task": "sing"}
        with OpenEnvWrapper(server.url, reset_options=options) as env:
            assert ObjectSpec(kind=Strings(str)) == env.action_spec()
            assert "sing" == env.reset().observation[()]
            assert "dance" == env.reset(options={"task": "dance"}).observation[()]
            assert "la" == env.step("la").observation[()]
            with pytest.raises(OpenEnvError, match="ArithmeticError: was told") as told:
                env.step("raise")
            assert ("ENVIRONMENT_LOST", "raised") == (
                told.value.code,
                told.value.kind,
            )
            assert "sing" == env.reset().observation[()]
            with pytest.raises(SpecError, match="given an action that"):
                env.step(3)


def test_given_specs_may_leave_keys_out(walks):
    spec = {"left": ArraySpec((), np.int64)}
    with OpenEnvWrapper(walks.url, observation_spec=spec) as env:
        assert spec == env.observation_spec()
        assert ["left"] == list(env.reset().observation)


def test_a_crash_ends_the_episode_marked_and_the_next_one_begins():
    crash = {"crash_at": 3, "how": "SIGKILL"}
    with serving(
        "envkit.testing:CrashingEnv", arguments=crash, num_workers=1
    ) as server:
        with OpenEnvWrapper(server.url) as env:
            steps = [env.step(0) for _ in range(5)]
            assert [0, 1, 1, 2, 0] == [int(step.step_type) for step in steps]
            assert 1.0 == steps[3].discount
            (loss,) = env.losses()
            assert "crashed" == loss.kind
            assert "The environment was lost (crashed): worker 0" in str(loss.error)
            assert not env.repaired
        # The process that replaced the other serves the next client.
        with Session(server) as session:
            assert "observation" == session.ask("reset")["type"]


def test_a_closing_server_truncates_the_episode_and_the_client_reconnects():
    port = games.free_port()
    with serving(WALK, port=port) as server:
        env = OpenEnvWrapper(server.url, connect_timeout=waiting.PATIENCE)
        first = env.reset()
    action = {"push": np.zeros(2, np.float32), "jump": False}
    last = env.step(action)
    assert (True, 0.0, 1.0) == (bool(last.is_last()), last.reward, last.discount)
    expect_same(first.observation, last.observation)
    assert "the server is stopping" in env.get_info()["lost"]
    assert "link_lost" == env.current_losses()[0].kind
    with serving(WALK, port=port):
        assert env.step(action).is_first()
        assert not env.repaired
        env.close()


def test_a_server_killed_in_a_session_truncates_the_episode():
    command = [sys.executable, "-m", "envkit", "serve", "CartPole", "--port=0"]
    process = subprocess.Popen(
        [*command, "--openenv"], stdout=subprocess.PIPE, text=True
    )
    try:
        url = process.stdout.readline().split()[-1]
        env = OpenEnvWrapper(url, connect_timeout=waiting.PATIENCE)
        assert env.step(0).is_first()
        assert env.step(0).is_mid()
        os.kill(process.pid, signal.SIGKILL)
        process.wait(waiting.PATIENCE)
        assert env.step(0).is_last()
        assert env.get_info()["truncated"]
        assert env.repaired
        env.close()
    finally:
        process.kill()
        process.communicate()


def test_tls_encrypts_and_checks_the_certificate(tmp_path):
    cert, key = certificate_in(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    with serving(
        "Catch", tls=context, cert=cert, key=key, token=SECRET.encode()
    ) as server:
        with OpenEnvWrapper(server.url, token=SECRET, cafile=cert) as env:
            assert env.reset().is_first()
        with pytest.raises(OpenEnvError, match="CERTIFICATE_VERIFY"):
            OpenEnvWrapper(server.url, token=SECRET)


def test_a_missing_server_is_an_error_with_its_address(message_of):
    with socket.socket() as silent:  # which does not listen
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        told = message_of(
            OpenEnvError,
            lambda: OpenEnvWrapper(f"http://127.0.0.1:{port}", connect_timeout=0.05),
        )
    assert told.startswith(
        f"The OpenEnv server at http://127.0.0.1:{port} could not be reached within "
        "0.05 s: "
    )


@pytest.mark.parametrize("url", ["ftp://there:1", "http://", ""])
def test_a_malformed_address_is_refused(url):
    with pytest.raises(ValueError, match="must be like 'http://localhost:8000'"):
        OpenEnvWrapper(url)


def test_a_late_answer_truncates_the_episode():
    games.GO_ON.clear()
    games.IS_STUCK.clear()
    with serving("tests.remote.games:Stuck") as server:
        env = OpenEnvWrapper(server.url, timeout=waiting.PATIENCE)
        env.reset()
        env.step(0)
        env._timeout = 0.05
        assert env.step(0).is_last()
        assert "no answer within 0.05 s" in env.get_info()["lost"]
        games.GO_ON.set()
        env.close()


# What a server may answer that is none, or a hostile one.
ANSWERS = st.text(max_size=20) | JSON.map(json.dumps)
ANSWERS |= st.builds(
    lambda observation, rest: json.dumps(
        {"type": "observation", "data": {"observation": observation, **rest}}
    ),
    st.fixed_dictionaries({"value": JSON}) | JSON,
    st.dictionaries(st.sampled_from(["reward", "done", "metadata"]), JSON),
)


@pytest.fixture(scope="module")
def strange_server():
    """A server whose answers are those of a list."""
    from websockets.sync.server import serve

    answers = []

    def converse(connection):
        with contextlib.suppress(Exception):
            for _ in connection:
                connection.send(answers[0])

    with serve(converse, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        port = server.socket.getsockname()[1]
        yield f"http://127.0.0.1:{port}", answers
        server.shutdown()
        thread.join()


@given(answer=ANSWERS)
def test_a_malformed_answer_of_a_server_is_an_error(strange_server, answer):
    url, answers = strange_server
    schema = {
        "action": {},
        "observation": {"properties": {"value": {"type": "number"}}},
    }
    answers[:] = [answer]

    class Shown(OpenEnvWrapper):
        def _schemas(self):
            return schema

    spec = {"value": BoundedArraySpec((), np.float64, -5, 5)}
    env = Shown(url, observation_spec=spec, action_spec={})
    reason = "The OpenEnv server at this address did as it should."
    try:
        for step in (env.reset(), env.step({})):
            assert spec["value"].check_array(step.observation["value"])
            assert np.float32 == step.reward.dtype
    except (OpenEnvError, SpecError) as error:
        reason = str(error)
    finally:
        env._drop()
        env.close()
    assert "OpenEnv server at" in reason


def test_as_many_clients_may_come_at_once_as_there_may_be_sessions():
    with serving(WALK, max_sessions=100) as server, contextlib.ExitStack() as stack:
        host, _, port = server.url.rpartition("/")[2].partition(":")
        come = [socket.create_connection((host, int(port))) for _ in range(100)]
        for client in come:
            stack.enter_context(client)
        for client in come:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert {client.recv(12) for client in come} == {b"HTTP/1.1 200"}
