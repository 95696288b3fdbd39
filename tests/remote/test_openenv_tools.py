"""Tools of an environment, in OpenEnv's steps and by JSON-RPC.

The genuine client is in `openenv_checks.py`.
"""

from __future__ import annotations

import contextlib
import json
import socket
import urllib.request

import pytest

from envkit.remote.offers import Menu, Offer, ServeOptions
from tests import waiting

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("websockets", reason="websockets is not installed")

from websockets.sync.client import connect

from envkit.remote.openenv import OpenEnvServer

CELLAR = "tests.remote.tool_games:Cellar"
TAKE = {"type": "call_tool", "tool_name": "take", "arguments": {"thing": "key"}}


@contextlib.contextmanager
def serving(target, num_workers=None):
    menu = Menu([Offer(target, num_workers=num_workers)])
    with OpenEnvServer(menu, ServeOptions(port=0, token=None)) as server:
        yield server


@pytest.fixture(scope="module", params=[None, 1], ids=["threads", "processes"])
def cellars(request):
    with serving(CELLAR, request.param) as server:
        yield server


@pytest.fixture
def ask(cellars):
    """Returns a function that sends a message, and returns the type and the data."""
    url = cellars.url.replace("http", "ws", 1)
    with connect(f"{url}/ws", open_timeout=waiting.PATIENCE) as link:

        def ask(kind, **data):
            link.send(json.dumps({"type": kind, "data": data}))
            told = json.loads(link.recv(timeout=waiting.PATIENCE))
            return told["type"], told["data"]

        yield ask


def rpc(method, **params):
    return {"jsonrpc": "2.0", "id": 5, "method": method, "params": params}


def take(**arguments):
    return rpc("tools/call", name="take", arguments=arguments)


def test_a_step_lists_the_tools_even_before_a_reset(ask):
    kind, told = ask("step", type="list_tools")
    assert ("observation", None, False) == (kind, told["reward"], told["done"])
    tools = {one["name"]: one for one in told["observation"]["tools"]}
    assert {"take", "go", "fall", "trip"} == tools.keys()
    assert ["thing"] == tools["take"]["input_schema"]["required"]
    assert "Takes something." == tools["take"]["description"]


def test_a_call_is_a_step(ask):
    ask("reset", seed=3)
    kind, told = ask("step", **TAKE)
    assert ("observation", 0.25, False) == (kind, told["reward"], told["done"])
    observation = told["observation"]
    assert ("take", None) == (observation["tool_name"], observation["error"])
    assert "You have 1 key." == observation["result"]["data"]
    # A model may leave out the type, which has a default.
    go = {"tool_name": "go", "arguments": {"direction": "north"}}
    _, told = ask("step", **go)
    assert (1.0, True, True) == (
        told["reward"],
        told["done"],
        told["metadata"]["terminated"],
    )
    assert 2 == ask("state")[1]["step_count"]
    assert "EXECUTION_ERROR" == ask("step", **TAKE)[1]["code"]


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("fly", {}, "tool_not_found"),
        ("begin", {}, "tool_not_found"),
        ("take", {"think": 1}, "invalid_args"),
        ("take", {}, "invalid_args"),
    ],
)
def test_a_wrong_call_is_explained_and_is_no_step(ask, name, arguments, error):
    ask("reset")
    kind, told = ask("step", type="call_tool", tool_name=name, arguments=arguments)
    assert "observation" == kind
    assert error == told["observation"]["error"]["error_type"]
    kind, told = ask("mcp", **rpc("tools/call", name=name, arguments=arguments))
    assert ("mcp", -32602, 5) == (kind, told["error"]["code"], told["id"])
    assert 0 == ask("state")[1]["step_count"]


@pytest.mark.parametrize(
    "wrong",
    [{"tool_name": 3}, {"tool_name": "take", "arguments": 3}, {"type": "call_tool"}],
)
def test_a_step_that_is_no_call_is_refused(ask, wrong):
    ask("reset")
    kind, told = ask("step", **wrong)
    assert ("error", "VALIDATION_ERROR") == (kind, told["code"])


def test_the_text_of_a_call_is_an_action_as_well(ask):
    ask("reset")
    call = json.dumps({"name": "take", "arguments": {"thing": "lamp"}})
    _, told = ask("step", value=call)
    assert {"value": "You have 1 lamp."} == told["observation"]


def test_json_rpc_lists_and_calls_tools(ask):
    _, told = ask("mcp", **rpc("tools/list"))
    (one,) = [each for each in told["result"]["tools"] if each["name"] == "take"]
    assert ["thing"] == one["inputSchema"]["required"]
    # The first call begins an episode.
    _, told = ask("mcp", **take(thing="key", count=2))
    result = told["result"]
    assert [{"type": "text", "text": "You have 2 key."}] == result["content"]
    assert (False, 0.5, False) == (
        result["isError"],
        result["_meta"]["reward"],
        result["_meta"]["done"],
    )
    _, told = ask(
        "mcp", **rpc("tools/call", name="go", arguments={"direction": "south"})
    )
    assert "The door is locked." == told["result"]["data"]
    north = rpc("tools/call", name="go", arguments={"direction": "north"})
    _, told = ask("mcp", **north)
    assert (True, 1.0) == tuple(told["result"]["_meta"][k] for k in ("done", "reward"))
    # After the end of the episode, the next one begins with a reset.
    _, told = ask("mcp", **north)
    assert -32603 == told["error"]["code"]
    assert "reset comes before step" in told["error"]["message"]
    _, told = ask("mcp", **rpc("tools/think"))
    assert -32601 == told["error"]["code"]


@pytest.fixture
def post(cellars):
    """Returns a function that sends a request by JSON-RPC, and returns the answer."""

    def post(body):
        request = urllib.request.Request(
            f"{cellars.url}/mcp",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=waiting.PATIENCE) as answer:
            return json.load(answer)

    return post


def test_an_http_request_is_a_session_of_one_call(post):
    assert 4 == len(post(rpc("tools/list"))["result"]["tools"])
    assert "You have 1 key." == post(take(thing="key"))["result"]["data"]
    assert -32602 == post(take())["error"]["code"]
    assert -32600 == post({"method": "tools/list"})["error"]["code"]


def go_north(session):
    call = {"name": "go", "arguments": {"direction": "north"}, "session_id": session}
    return rpc("tools/call", **call)


def take_key(session):
    call = {"name": "take", "arguments": {"thing": "key"}, "session_id": session}
    return rpc("tools/call", **call)


def test_a_session_outlives_its_requests_until_it_is_closed(cellars, post):
    # Those of the tests before may still end.
    assert waiting.until(lambda: cellars.health()[0]["sessions"] == 0)
    one, two = (
        post(rpc("openenv/session/create"))["result"]["session_id"] for _ in range(2)
    )
    assert one != two
    assert 2 == cellars.health()[0]["sessions"]
    post(take_key(one))
    assert "The door is locked." == post(go_north(two))["result"]["data"]
    assert "You are out." == post(go_north(one))["result"]["data"]
    assert -32603 == post(go_north(one))["error"]["code"]
    for session in (one, two):
        told = post(rpc("openenv/session/close", session_id=session))
        assert {"session_id": session, "closed": True} == told["result"]
        assert -32602 == post(go_north(session))["error"]["code"]
    assert -32602 == post(rpc("openenv/session/close"))["error"]["code"]
    assert 0 == cellars.health()[0]["sessions"]


def test_a_session_may_be_shared_with_a_websocket(cellars, post):
    session = post(rpc("openenv/session/create"))["result"]["session_id"]
    url = f"{cellars.url.replace('http', 'ws', 1)}/ws?session_id={session}"

    def asked(link, kind, **data):
        link.send(json.dumps({"type": kind, "data": data}))
        return json.loads(link.recv(timeout=waiting.PATIENCE))["data"]

    with connect(url, open_timeout=waiting.PATIENCE) as link:
        asked(link, "reset", seed=3)
        post(take_key(session))
        assert 1 == asked(link, "state")["step_count"]
        with connect(url, open_timeout=waiting.PATIENCE) as other:
            told = json.loads(other.recv(timeout=waiting.PATIENCE))["data"]
            assert "The session is in use." == told["message"]
        told = post(rpc("openenv/session/close", session_id=session))["result"]
        assert {"session_id": session, "closed": False, "closing": True} == told
        go = {"tool_name": "go", "arguments": {"direction": "north"}}
        assert asked(link, "step", **go)["done"]
    assert waiting.until(lambda: cellars.health()[0]["sessions"] == 0)
    assert -32602 == post(go_north(session))["error"]["code"]


def test_a_session_that_nobody_uses_ends():
    menu = Menu([Offer(CELLAR)])
    options = ServeOptions(port=0, token=None, idle_timeout=0.2)
    body = json.dumps(rpc("openenv/session/create")).encode()
    head = (
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with OpenEnvServer(menu, options) as server:
        place = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        with socket.create_connection(place) as client:
            client.settimeout(waiting.PATIENCE)
            # At once: a body that comes later than the head may be too late.
            client.sendall(head.encode() + body)
            assert b"session_id" in client.makefile("rb").read()
        assert waiting.until(lambda: server.health()[0]["sessions"] == 0)


def test_trainers_are_told_that_there_are_tools(cellars):
    with urllib.request.urlopen(f"{cellars.url}/schema") as answer:
        assert "CallToolAction" == json.load(answer)["action"]["title"]


def test_a_lost_environment_is_an_error(ask, request):
    in_process = "processes" in request.node.name
    tool, kind = ("fall", "crashed") if in_process else ("trip", "raised")
    ask("reset")
    told = ask("step", type="call_tool", tool_name=tool)
    assert ("error", "ENVIRONMENT_LOST", kind) == (
        told[0],
        told[1]["code"],
        told[1]["kind"],
    )
    # No call is answered until the next reset.
    assert (
        "reset comes before step"
        in ask("mcp", **take(thing="key"))[1]["error"]["message"]
    )
    assert "observation" == ask("reset")[0]
    answer, told = ask("mcp", **rpc("tools/call", name=tool))
    assert ("mcp", 5, -32603) == (answer, told["id"], told["error"]["code"])
    assert ("ENVIRONMENT_LOST", kind) == (
        told["error"]["data"]["code"],
        told["error"]["data"]["kind"],
    )
    assert "result" not in told
    assert "observation" == ask("reset")[0]


def test_a_tool_with_a_name_of_openenvs_is_refused():
    with (
        pytest.raises(ValueError, match="'state': rename it"),
        serving("tests.remote.tool_games:Reserved"),
    ):
        pass
