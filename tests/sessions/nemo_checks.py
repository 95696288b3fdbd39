"""NeMo Gym's own agent plays what `to_nemo` serves.

pytest collects this file only if it is told to: `make test-nemo` installs NeMo Gym,
which needs Python 3.13.14.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import uvicorn

from envkit import RestartPolicy
from envkit._shared.installed import is_installed
from envkit.sessions import to_nemo
from tests.remote.chat_games import (
    mortal_letters,
    reply_of_model,
    undisturbed,
)

if is_installed("nemo_gym"):  # here, because threads of its own stay
    from nemo_gym.config_types import (
        BaseServerConfig,
        ModelServerRef,
        ResourcesServerRef,
    )
    from nemo_gym.server_utils import ServerClient
    from omegaconf import OmegaConf
    from responses_api_agents.gymnasium_agent import app

pytestmark = pytest.mark.skipif(
    not is_installed("nemo_gym"), reason="NeMo Gym needs Python 3.13.14"
)

TOKEN = "a-token-of-the-tests-of-nemo"
SEEDS = range(16)


class Model(BaseHTTPRequestHandler):
    """Answers the last message."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply = reply_of_model("Letters", {"value": asked["input"][-1]["content"]})
        text = {"type": "output_text", "text": reply, "annotations": []}
        message = {
            "id": "1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [text],
        }
        answer = {
            "id": "1",
            "object": "response",
            "created_at": 1.0,
            "model": "model",
            "output": [message],
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
        }
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Logs nothing."""


@contextlib.contextmanager
def model():
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@contextlib.asynccontextmanager
async def serving(app):
    config = uvicorn.Config(app, port=0, log_config=None)
    server = uvicorn.Server(config)
    task = asyncio.ensure_future(server.serve())
    while not server.started:
        assert not task.done(), task.result()
        await asyncio.sleep(0.005)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await task


def agent_of(env_port, model_port):
    """Returns the agent, whose address of the environments has the token."""
    servers = {
        "env": {
            "resources_servers": {
                "env": {"host": f"token:{TOKEN}@127.0.0.1", "port": env_port}
            }
        },
        "model": {
            "responses_api_models": {"model": {"host": "127.0.0.1", "port": model_port}}
        },
    }
    os.environ["NEMO_GYM_CONFIG_DICT"] = json.dumps(servers)  # it reads it once
    client = ServerClient(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=1),
        global_config_dict=OmegaConf.create(servers),
    )
    config = app.GymnasiumAgentConfig(
        host="",
        port=0,
        entrypoint="",
        name="agent",
        resources_server=ResourcesServerRef(type="resources_servers", name="env"),
        model_server=ModelServerRef(type="responses_api_models", name="model"),
        max_steps=20,
    )
    return app.GymnasiumAgent(config=config, server_client=client)


class Asked:
    """The request that starts a rollout."""

    def __init__(self):
        self.cookies = {}


async def played():
    target = functools.partial(mortal_letters, least=1)
    often = RestartPolicy(max_restarts=100, within=None, backoff=0.0)
    served = to_nemo(target, 3, token=TOKEN, backend="process", restart=often)
    with model() as model_port:
        async with serving(served) as env_port:
            agent = agent_of(env_port, model_port)

            async def play(seed):
                row = {"responses_create_params": {"input": "Guess."}, "seed": seed}
                asked = app.GymnasiumAgentRunRequest.model_validate(row)
                return await agent.run(Asked(), asked)

            found = [play(seed) for seed in SEEDS]
            return await asyncio.gather(*found, return_exceptions=True)


@pytest.mark.filterwarnings("ignore")
def test_exactly_the_rollouts_of_lost_environments_fail():
    lost = 0
    for seed, told in zip(SEEDS, asyncio.run(played()), strict=True):
        steps, total, to_live = undisturbed(seed)
        if to_live <= steps:
            lost += 1
            assert 500 == told.status
            assert "session_lost" == json.loads(told.response_content)["failure_kind"]
        else:
            assert (total, True) == (told.reward, told.terminated)
    assert 0 < lost < len(SEEDS)
