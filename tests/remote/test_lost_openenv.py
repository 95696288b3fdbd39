"""OpenEnv's door when an environment is lost: the server, and `OpenEnvWrapper`."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request

import numpy as np
import pytest

import envkit
from tests.waiting import PATIENCE

pytest.importorskip("websockets", reason="websockets is not installed")
pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from envkit.remote import openenv
from envkit.remote.openenv_client import OpenEnvWrapper

# How an environment is lost: in a process of the server, or by an exception with and
# without one.
WAYS = [("SIGKILL", 1, "crashed"), ("raise", 1, "raised"), ("raise", None, "raised")]
ways = pytest.mark.parametrize(("how", "num_workers", "kind"), WAYS)


def first_of(seed):
    return int(np.random.default_rng(seed).integers(1_000_000))


@pytest.fixture
def session():
    """Opens sessions; the result sends messages and returns the answers."""
    with contextlib.ExitStack() as stack:

        def open_session(server):
            url = f"{server.url.replace('http', 'ws', 1)}/ws"
            socket = stack.enter_context(connect(url, open_timeout=PATIENCE))

            def ask(kind, **data):
                socket.send(json.dumps({"type": kind, "data": data}))
                return json.loads(socket.recv(timeout=PATIENCE))

            return ask

        yield open_session


@ways
def test_a_lost_step_is_an_error_and_never_done(
    drawing_served, session, trouble, how, num_workers, kind
):
    ask = session(drawing_served(openenv, num_workers=num_workers))
    ask("reset", seed=3)
    assert not ask("step", value=0)["data"]["done"]
    trouble("step", how)
    lost = ask("step", value=0)
    assert lost["type"] == "error"
    assert lost["data"].keys() == {"message", "code", "kind"}
    assert (lost["data"]["code"], lost["data"]["kind"]) == (
        "ENVIRONMENT_LOST",
        kind,
    )
    assert f"The environment was lost ({kind}): " in lost["data"]["message"]
    assert "\n" not in lost["data"]["message"]

    refused = ask("step", value=0)
    assert (refused["type"], refused["data"]["code"]) == (
        "error",
        "EXECUTION_ERROR",
    )
    again = ask("reset", seed=4)["data"]
    assert again["observation"]["value"] == first_of(4)
    assert not ask("step", value=0)["data"]["done"]


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("how", ["SIGKILL", "raise"])
def test_a_lost_reset_begins_the_episode_of_its_seed(
    drawing_served, session, trouble, how, times
):
    ask = session(drawing_served(openenv, num_workers=1))
    trouble("reset", how, times)
    assert ask("reset", seed=5)["data"]["observation"]["value"] == first_of(5)


@pytest.mark.parametrize(
    ("how", "num_workers", "times", "kind"),
    [
        ("SIGKILL", 1, 20, "crashed"),
        ("raise", 1, 20, "reset_failed"),
        ("raise", None, 1, "reset_failed"),
    ],
)
def test_a_reset_that_cannot_be_repeated_is_an_error(
    drawing_served, session, trouble, how, num_workers, times, kind
):
    ask = session(drawing_served(openenv, num_workers=num_workers))
    trouble("reset", how, times)
    lost = ask("reset", seed=5)
    assert (lost["type"], lost["data"]["kind"]) == ("error", kind)


def test_the_next_client_gets_no_environment_whose_restarts_are_used_up(
    drawing_served, session, trouble
):
    server = drawing_served(openenv, num_workers=1)
    ask = session(server)
    trouble("reset", times=4)
    assert ask("reset", seed=5)["data"]["code"] == "ENVIRONMENT_LOST"
    with pytest.raises(ConnectionClosed):
        ask("close")
    assert session(server)("reset", seed=6)["data"]["observation"]["value"] == first_of(
        6
    )


@ways
def test_a_lost_http_step_has_a_status_and_a_code(
    drawing_served, trouble, how, num_workers, kind
):
    server = drawing_served(openenv, num_workers=num_workers)
    trouble("step", how)
    request = urllib.request.Request(
        f"{server.url}/step",
        data=b'{"action": {"value": 1}}',
        headers={"Content-Type": "application/json"},
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=PATIENCE)
    body = json.load(caught.value)
    assert (caught.value.code, body["code"], body["kind"]) == (
        500,
        "ENVIRONMENT_LOST",
        kind,
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        assert json.load(answer)["done"] is False


def test_an_action_is_delivered_once_though_its_answer_is_lost(
    drawing_served, between, actions
):
    link = between(drawing_served(openenv).url)
    url = link.address.replace("tcp", "http")
    with OpenEnvWrapper(url, connect_timeout=PATIENCE) as env:
        first = env.reset(seed=3)
        with link.cutting_after(lambda: actions() == "1"):
            lost = env.step(1)
        assert (lost.is_last(), lost.reward, lost.discount) == (True, 0, 1)
        assert lost.observation == first.observation
        assert env.repaired
        assert env.current_losses()[0].kind == "link_lost"
        assert env.get_info()["truncated"]
        assert env.step(1).is_first()
        assert not env.repaired
        assert env.step(0).is_mid()
        assert [loss.kind for loss in env.losses()] == ["link_lost"]
    assert actions() == "10"


def test_a_pool_shows_what_its_clients_have_lost(drawing_served, trouble):
    server = drawing_served(openenv, num_workers=1)
    target = f"openenv:{server.url}"
    with envkit.make(target, num_envs=2, num_workers=1) as pool:
        pool.reset()
        pool.step([0, 0])
        trouble("step")
        last = pool.step([0, 0])
        assert sorted(last.is_last()) == [False, True]
        assert pool.repaired.tolist() == last.is_last().tolist()
        ((row, loss),) = pool.current_losses().items()
        assert (row, loss.row, loss.kind) == (row, row, "crashed")
