"""`to_nemo`: what its application answers to NeMo Gym's agent, on a real socket."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import json
import threading

import pytest

from envkit import RestartPolicy
from envkit.sessions import to_nemo
from tests.remote.chat_games import (
    Letters,
    mortal_letters,
    reply_of_model,
    undisturbed,
)
from tests.sessions.environments import Room
from tests.sessions.running import in_loop

pytest.importorskip("starlette", reason="starlette is not installed")
uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed")

_OFTEN = RestartPolicy(max_restarts=100, within=None, backoff=0.0)
_TOKEN = "a-token-of-the-tests-of-nemo"


class Client:
    """An HTTP client with a cookie."""

    def __init__(self, port, **headers):
        self._port = port
        self.headers = {"Host": f"127.0.0.1:{port}", **headers}
        self.set_cookie = ""

    async def post(self, path, data, **headers):
        """Sends a request; returns the status and the content."""
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        every = {
            "Content-Type": "application/json",
            "Content-Length": len(body),
            "Connection": "close",
            **self.headers,
            **headers,
        }
        lines = [f"POST /{path} HTTP/1.1", *(f"{k}: {v}" for k, v in every.items())]
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        answer = await reader.read()
        writer.close()
        head, _, content = answer.partition(b"\r\n\r\n")
        for line in head.decode().split("\r\n"):
            name, _, value = line.partition(": ")
            if name.lower() == "set-cookie":
                self.set_cookie = value
                self.headers["Cookie"] = value.partition(";")[0]
        return int(head.split()[1]), json.loads(content)

    async def step(self, reply, number=None):
        message = {
            "type": "message",
            "content": [{"type": "output_text", "text": reply}],
        }
        body = {"response": {"output": [message]}}
        if number is not None:
            body["_ng_step_request_id"] = number
        return await self.post("step", body)


@contextlib.asynccontextmanager
async def serving(target, size, token=None, **options):
    """Serves an application; yields its port."""
    app = to_nemo(target, size, token=token, **options)
    config = uvicorn.Config(app, port=0, log_config=None, lifespan="on")
    server = uvicorn.Server(config)
    task = asyncio.ensure_future(server.serve())
    while not server.started:
        assert not task.done(), task.result()
        await asyncio.sleep(0.005)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await task


async def play(port, seed):
    """Plays an episode of Letters; returns the last answer, and the sum of rewards."""
    client, total = Client(port), 0.0
    status, told = await client.post("reset", {"seed": seed})
    while status == 200:
        seen = {"value": told["observation"]}
        status, told = await client.step(reply_of_model("Letters", seen))
        if status == 200:
            total += told["reward"]
            if told["terminated"]:
                break
    assert (200, {}) == await client.post("close", {})
    return status, told, total


@in_loop
async def test_exactly_the_rollouts_of_lost_environments_are_failures():
    target = functools.partial(mortal_letters, least=1)
    async with serving(target, 2, backend="process", restart=_OFTEN) as port:
        played = await asyncio.gather(*(play(port, seed) for seed in range(12)))
    lost = 0
    for seed, (status, told, total) in enumerate(played):
        steps, expected, to_live = undisturbed(seed)
        if to_live <= steps:
            lost += 1
            assert 500 == status
            assert (True, "session_lost") == (
                told["mask_sample"],
                told["failure_kind"],
            )
            assert "crashed" in told["failure_reason"]
            assert "reward" not in told
        else:
            assert (200, steps, expected) == (status, told["info"]["steps"], total)
    assert 0 < lost < len(played)


@in_loop
async def test_a_session_belongs_to_a_cookie_that_scripts_cannot_read():
    async with serving(Letters, 2) as port:
        one, other = Client(port), Client(port)
        _, told = await one.post("reset", {"seed": 1})
        assert "Guess one from" in told["observation"]
        assert told["info"]["supports_step_idempotency"]
        assert "HttpOnly" in one.set_cookie
        assert "samesite=strict" in one.set_cookie.lower()
        await other.post("reset", {"seed": 2})
        assert one.headers["Cookie"] != other.headers["Cookie"]
        stranger = Client(port, Cookie="envkit_session=guess")
        status, told = await stranger.step("a")
        assert (404, "session_lost") == (status, told["failure_kind"])
        # A reset gives the environment back, and begins another session.
        before = one.headers["Cookie"]
        await one.post("reset", {"seed": 1})
        assert 404 == (await Client(port, Cookie=before).step("a"))[0]


class Gate(Letters):
    """Counts its steps, which wait until they may go on."""

    def __init__(self):
        super().__init__()
        self.steps = 0

    going, begun = threading.Event(), threading.Event()

    def _step(self, action):
        Gate.begun.set()
        Gate.going.wait(60)
        self.steps += 1
        return super()._step(action)


@in_loop
async def test_a_repeated_step_is_made_once_even_while_it_runs():
    async with serving(Gate, 1) as port:
        client = Client(port)
        await client.post("reset", {"seed": 1})
        asked = [asyncio.ensure_future(client.step("a", "one")) for _ in range(3)]
        await asyncio.to_thread(Gate.begun.wait, 60)
        Gate.going.set()
        answers = [await each for each in asked]
        answers.append(await client.step("a", "one"))
        assert all(answer == answers[0] for answer in answers)
        assert 1 == answers[0][1]["info"]["steps"]
        assert 2 == (await client.step("b", "two"))[1]["info"]["steps"]
        # Without a number, each request is a step.
        for steps in (3, 4):
            assert steps == (await client.step("b"))[1]["info"]["steps"]


@in_loop
async def test_the_last_answer_of_an_episode_is_given_again():
    async with serving("Catch", 1) as port:
        client = Client(port)
        _, told = await client.post("reset", {"seed": 7})
        assert '"maximum":2' in told["observation"]
        _, told = await client.step("left")
        assert told["observation"].startswith("Error: The reply must be JSON")
        assert (0.0, 0) == (told["reward"], told["info"]["steps"])
        answer, number = (200, {"terminated": False}), 0
        while not answer[1]["terminated"]:
            number += 1
            answer = await client.step("1", f"step {number}")
        assert -1.0 == answer[1]["reward"]
        # Its environment is free again.
        other = Client(port)
        assert 200 == (await other.post("reset", {}))[0]
        assert answer == await client.step("1", f"step {number}")
        assert 409 == (await client.step("1", "another"))[0]


@in_loop
async def test_function_calls_of_the_model_use_tools():
    def call(number, name, arguments):
        return {
            "type": "function_call",
            "call_id": number,
            "name": name,
            "arguments": arguments,
        }

    async with serving(Room, 1) as port:
        client = Client(port)
        await client.post("reset", {"seed": 3})
        calls = [
            call("1", "fly", "{}"),
            call("2", "take", "[]"),
            call("half a pair", "take", r'{"thing": "\ud83d"}'),
            call("3", "take", '{"thing": "key"}'),
            call("4", "go", '{"direction": "north"}'),
            call("5", "take", '{"thing": "key"}'),
        ]
        _, told = await client.post("step", {"response": {"output": calls}})
        assert (1.5, True, 3) == (
            told["reward"],
            told["terminated"],
            told["info"]["steps"],
        )
        outputs = {
            one["call_id"]: one["output"] for one in told["info"]["tool_outputs"]
        }
        assert "There is no tool 'fly'" in outputs["1"]
        assert "must be a JSON object" in outputs["2"]
        assert "You have 1 \ud83d." == outputs["half a pair"]
        assert ("You have 1 key.", "You are out.") == (outputs["3"], outputs["4"])
        assert "The episode has ended" in outputs["5"]


@in_loop
async def test_a_forgotten_session_expires():
    async with serving(Letters, 1, idle_timeout=0.2) as port:
        client, other = Client(port), Client(port)
        await client.post("reset", {"seed": 1})
        assert 200 == (await other.post("reset", {"seed": 1}))[0]
        status, told = await client.step("a")
        assert (500, "session_expired") == (status, told["failure_kind"])


@in_loop
async def test_a_reset_without_a_free_environment_is_a_failure():
    async with serving(Letters, 1, lease_timeout=0.05) as port:
        await Client(port).post("reset", {"seed": 1})
        status, told = await Client(port).post("reset", {"seed": 1})
        assert (503, True, "provider_unavailable") == (
            status,
            told["mask_sample"],
            told["failure_kind"],
        )


class Stuck(Room):
    def begin(self, rng):
        raise RuntimeError("It is stuck.")


@in_loop
async def test_a_reset_is_a_failure_if_all_environments_are_lost_for_good():
    async with serving(Stuck, 1, restart=RestartPolicy(max_restarts=0)) as port:
        told = [await Client(port).post("reset", {"seed": 1}) for _ in range(2)]
    assert [500, 503] == [status for status, _ in told]
    kinds = [content["failure_kind"] for _, content in told]
    assert ["session_lost", "provider_unavailable"] == kinds


@in_loop
async def test_an_environment_whose_seed_raises_is_a_failure():
    class Unready(Room):
        def seed(self, seed):
            raise ValueError(f"There is no level {seed}.")

    async with serving(Unready, 1) as port:
        status, told = await Client(port).post("reset", {"seed": 3})
    assert (500, "session_lost") == (status, told["failure_kind"])
    assert told["mask_sample"]
    assert "There is no level 3." in told["detail"]


@in_loop
async def test_the_token_opens_it_and_nothing_else_does():
    basic = base64.b64encode(f"token:{_TOKEN}".encode()).decode()
    async with serving(Letters, 1, token=_TOKEN) as port:
        for authorization in [f"Bearer {_TOKEN}", f"Basic {basic}"]:
            client = Client(port, Authorization=authorization)
            assert 200 == (await client.post("reset", {"seed": 1}))[0]
            assert 200 == (await client.post("close", {}))[0]
        for headers in [{}, {"Authorization": "Bearer another-token-of-tests"}]:
            for path in ("reset", "step", "close", "aggregate_metrics"):
                assert 401 == (await Client(port, **headers).post(path, {}))[0]


def test_a_token_that_can_be_guessed_is_refused():
    with pytest.raises(ValueError, match="token"):
        to_nemo("Catch", 1, token="secret")


@in_loop
async def test_without_a_token_web_pages_are_refused():
    async with serving(Letters, 1) as port:
        client = Client(port)
        for headers in [
            {"Origin": "https://evil.example"},
            {"Host": "evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
        ]:
            assert 403 == (await client.post("reset", {}, **headers))[0]
        form = {"Content-Type": "text/plain"}
        assert 415 == (await client.post("reset", {}, **form))[0]


@in_loop
async def test_wrong_requests_are_refused_with_a_reason():
    async with serving(Letters, 1) as port:
        client = Client(port)
        for body in [b"", b"{", b"[]", b"[" * 100_000]:
            assert 422 == (await client.post("reset", body))[0]
        for row in [{"seed": "x"}, {"seed": True}, {"seed": -1}, {"options": 3}]:
            assert 422 == (await client.post("reset", row))[0]
        assert 200 == (await client.post("reset", {}))[0]
        for body in [{}, {"response": {}}, {"response": 3}]:
            assert 422 == (await client.post("step", body))[0]
        for number in ["", 3, None, "x" * 129]:
            body = {"response": {"output": []}, "_ng_step_request_id": number}
            assert 422 == (await client.post("step", body))[0]


@in_loop
async def test_metrics_leave_out_rollouts_that_are_no_samples():
    rollouts = [
        {"_ng_task_index": 0, "reward": 1.0},
        {"_ng_task_index": 0, "reward": 0.0},
        {"_ng_task_index": 1, "reward": 0.5},
        {"_ng_task_index": 1, "reward": 0.0, "mask_sample": True},
    ]
    async with serving(Letters, 1) as port:
        ask = functools.partial(Client(port).post, "aggregate_metrics")
        status, told = await ask({"verify_responses": rollouts})
        assert (200, 0.5) == (status, told["agent_metrics"]["mean/reward"])
        assert 1 == told["agent_metrics"]["coverage/masked_rollouts"]
        means = [one["mean/reward"] for one in told["group_level_metrics"]]
        assert [0.5, 0.5] == means
        assert {} == (await ask({"verify_responses": []}))[1]["agent_metrics"]
        assert 422 == (await ask({"verify_responses": [3]}))[0]
