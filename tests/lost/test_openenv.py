"""Lost episodes of an OpenEnv server: over its socket, and by OpenEnv's own client."""

from __future__ import annotations

import contextlib
import json
import os

import pytest

from envkit.remote.offers import Menu, Offer, ServeOptions
from envkit.testing import chaos
from tests.lost.ledger import Ledger, episodes_to_play
from tests.lost.numbered import RAISING
from tests.lost.players import ENDLESS
from tests.waiting import PATIENCE

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("websockets", reason="websockets is not installed")

from websockets.sync.client import connect

from envkit.remote.openenv import OpenEnvServer


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(Offer, "_policy", lambda offer: ENDLESS)
    offer = Offer("tests.lost.numbered:NumberedEnv", num_workers=1)
    with OpenEnvServer(Menu([offer]), ServeOptions(port=0, token=None)) as made:
        yield made


class Lost(Exception):  # an outcome
    """The server says that the environment was lost; the kind."""


@contextlib.contextmanager
def over_a_socket(server):
    """Yields a function that asks, and returns an observation, reward and ends."""
    url = server.url.replace("http", "ws", 1)
    with connect(f"{url}/ws", open_timeout=PATIENCE) as socket:

        def ask(kind, **data):
            socket.send(json.dumps({"type": kind, "data": data}))
            told = json.loads(socket.recv(timeout=PATIENCE))
            data = told["data"]
            if told["type"] == "error":
                assert data["code"] == "ENVIRONMENT_LOST", data
                raise Lost(data["kind"])
            return data["observation"], data["reward"], data["done"], data["metadata"]

        yield ask


@contextlib.contextmanager
def by_openenvs_client(server):
    client = pytest.importorskip(
        "openenv.core.generic_client", reason="openenv is not installed"
    )
    made = client.GenericEnvClient(server.url, message_timeout_s=PATIENCE).sync()
    with made as env:

        def ask(kind, **data):
            try:
                told = env.reset(**data) if kind == "reset" else env.step(data)
            except RuntimeError as error:
                if "ENVIRONMENT_LOST" not in str(error):
                    raise
                raise Lost("told") from error
            return told.observation, told.reward, told.done, told.metadata

        yield ask


@pytest.mark.parametrize("way", [over_a_socket, by_openenvs_client])
def test_every_lost_episode_is_an_error(server, way):
    ledger = Ledger(1)
    seed = {"seed": RAISING}
    with way(server) as ask, chaos(os.getpid(), seed=1, every_steps=40) as trouble:
        while ledger.resolved < episodes_to_play(60):
            if not ledger.is_playing():
                ledger.begin(ask("reset", **seed)[0]["value"])
                seed = {}
            trouble.count_step()
            try:
                told = ask("step", value=int(ledger.actions[0]))
            except Lost as lost:
                ledger.lose(str(lost))
                continue
            observation, reward, is_done, metadata = told
            ledger.step(observation["value"], reward)
            if is_done:
                ledger.end(is_terminated=metadata["terminated"])
        assert trouble.counts["kill"]
    assert ledger.lost.total() >= 2
    ledger.close()
