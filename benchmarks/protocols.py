"""Steps by other people's protocols, beside their own servers.

    python benchmarks/protocols.py

All step one environment that shows the same 4 numbers again and again, by the client
that comes with the protocol, and by envkit's. `envkit serve` has it in a process of its
own, so that a crash ends nothing else; the others have it in a thread, as envkit's
server has where a Python program starts it. The other server is OpenEnv's own; the
library of dm_env_rpc has none, so there it is the loop that its documentation shows,
which does as much as that asks and no more. Without OpenEnv's package, which is in no
extra but `test-openenv`, its rows stay empty.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import Contender, Report, opened, options, take_turns

import envkit
from envkit import ArraySpec, BoundedArraySpec, PyEnvironment
from envkit.remote import offers
from envkit.time_step import TimeStep, restart, transition

HERE = Path(__file__).parent
SHOWN = [0.25, -0.5, 0.125, 1.0]


class Still(PyEnvironment):
    """Shows the same numbers again and again."""

    def observation_spec(self) -> dict[str, ArraySpec]:
        return {"shown": ArraySpec((4,), np.float32)}

    def action_spec(self) -> dict[str, BoundedArraySpec]:
        return {"way": BoundedArraySpec((), np.int64, 0, 1)}

    def _reset(self) -> TimeStep:
        return restart({"shown": np.array(SHOWN, np.float32)})

    def _step(self, action: Any) -> TimeStep:
        return transition({"shown": np.array(SHOWN, np.float32)}, 1.0)


def openenv_server() -> None:
    """Serves the same by OpenEnv's own server."""
    import socket

    import uvicorn
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State

    class Way(Action):
        way: int

    class Shown(Observation):
        shown: list[float]

    class Theirs(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def reset(self, seed: Any = None, episode_id: Any = None, **_: Any) -> Any:
            return Shown(shown=SHOWN)

        def step(self, action: Any, timeout_s: Any = None, **_: Any) -> Any:
            return Shown(shown=SHOWN, reward=1.0)

        @property
        def state(self) -> Any:
            return State()

    # Their module's names are what annotations of a class in a function are read by.
    app = create_fastapi_app(Theirs, Way, Shown, max_concurrent_envs=4)
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"openenv: http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, log_config=None, lifespan="off")
    uvicorn.Server(config).run(sockets=[listening])


def dm_env_rpc_server() -> None:
    """Serves the same by the library of dm_env_rpc alone."""
    from concurrent.futures import ThreadPoolExecutor

    import grpc
    from dm_env_rpc.v1 import (
        dm_env_rpc_pb2,
        dm_env_rpc_pb2_grpc,
        spec_manager,
        tensor_utils,
    )

    specs = dm_env_rpc_pb2.ActionObservationSpecs()
    way, shown, reward = specs.actions[1], specs.observations[1], specs.observations[2]
    way.name, way.dtype = "way", dm_env_rpc_pb2.DataType.INT64
    shown.name, shown.dtype = "shown", dm_env_rpc_pb2.DataType.FLOAT
    shown.shape[:] = [4]
    reward.name, reward.dtype = "reward", dm_env_rpc_pb2.DataType.FLOAT

    class Servicer(dm_env_rpc_pb2_grpc.EnvironmentServicer):
        def Process(self, requests: Any, context: Any) -> Any:
            actions = spec_manager.SpecManager(specs.actions)
            values = np.array(SHOWN, np.float32)
            for request in requests:
                kind = request.WhichOneof("payload")
                answer = dm_env_rpc_pb2.EnvironmentResponse()
                part = getattr(answer, kind)
                part.SetInParent()
                if kind in ("join_world", "reset"):
                    part.specs.CopyFrom(specs)
                if kind == "step":
                    actions.unpack(request.step.actions)
                    part.state = dm_env_rpc_pb2.EnvironmentStateType.RUNNING
                    pack = tensor_utils.pack_tensor
                    both = {1: pack(values), 2: pack(np.float32(1))}
                    for number in request.step.requested_observations:
                        part.observations[number].CopyFrom(both[number])
                yield answer

    server = grpc.server(ThreadPoolExecutor(2))
    dm_env_rpc_pb2_grpc.add_EnvironmentServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"dm_env_rpc: 127.0.0.1:{port}", flush=True)
    server.wait_for_termination()


THREADS = "envkit's threaded"
OURS = ("envkit's", THREADS)
SERVERS = {"openenv": openenv_server, "dm_env_rpc": dm_env_rpc_server}


def threaded_server(protocol: str) -> None:
    """Serves the same by envkit's server, in threads of this process."""
    module = importlib.import_module(f"envkit.remote.{protocol}")
    menu = offers.Menu([offers.Offer("protocols:Still")])
    server = module.serve(menu, offers.ServeOptions(port=0, token=None))
    print(server.line, flush=True)
    signal.pause()


@contextlib.contextmanager
def running(protocol: str, whose: str) -> Any:
    """Runs a server in a process of its own; gives its address."""
    program = [str(HERE / "protocols.py"), "--serve", protocol]
    program += ["--threaded"] if whose == THREADS else []
    flag = f"--{protocol.replace('_', '-')}"
    # Because the clients of others do not find a drawn token.
    ours = ["-m", "envkit", "serve", "protocols:Still", "--port=0", "--no-token", flag]
    process = subprocess.Popen(
        [sys.executable, *(ours if whose == "envkit's" else program)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=HERE,
    )
    assert process.stdout is not None  # it is a pipe
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.communicate()


def stepping(protocol: str, server: str, client: str) -> Contender:
    """Steps an environment by a client of either side."""
    stack = contextlib.ExitStack()
    address = stack.enter_context(running(protocol, server))
    if client == "envkit's":
        env = stack.enter_context(envkit.make(f"{protocol}:{address}"))
        env.reset()
        action = {"way": np.int64(1)}
        return Contender(lambda: env.step(action), stack.close)
    if protocol == "openenv":
        from openenv.core.generic_client import GenericEnvClient

        client_of = GenericEnvClient(base_url=address).sync()
        theirs: Any = stack.enter_context(client_of)
        theirs.reset()
        return Contender(lambda: theirs.step({"way": 1}), stack.close)
    from dm_env_rpc.v1 import connection, dm_env_adaptor

    channel = connection.create_secure_channel_and_connect(address)
    stack.callback(channel.close)
    adaptor = dm_env_adaptor.create_and_join_world(channel, {}, {}).env
    adaptor.reset()
    return Contender(lambda: adaptor.step({"way": np.int64(1)}), stack.close)


def compare(report: Report, protocol: str, told: argparse.Namespace) -> None:
    """Lets all pairs of servers and clients take turns."""
    own = "OpenEnv's" if protocol == "openenv" else "the library's"
    is_there = importlib.util.find_spec(protocol) is not None
    pairs = [
        (server, client) for server in (*OURS, own) for client in (own, "envkit's")
    ]
    players: dict[str, Callable[[], Contender] | None] = {}
    for server, client in pairs:

        def make(server: str = server, client: str = client) -> Contender:
            return stepping(protocol, server, client)

        name = f"{server} server, {client} client"
        players[name] = make if is_there or own not in (server, client) else None
    with opened(players) as contenders:
        figures = take_turns(contenders, told.rounds, told.seconds)
    report.table(f"{protocol}: one environment of 4 float32", figures)
    for client in (own, "envkit's"):
        for server in OURS:
            ours, theirs = (
                figures[f"{one} server, {client} client"] for one in (server, own)
            )
            claim = f"{protocol}: {server} server takes this much of {own}"
            report.ratio(f"{claim}, {client} client", ours, theirs)
    ours, theirs = (
        figures[f"envkit's server, {one} client"] for one in ("envkit's", own)
    )
    report.ratio(f"{protocol}: envkit's client takes this much of {own}", ours, theirs)


def main() -> None:
    parser = options(__doc__, rounds=7, seconds=0.5)
    parser.add_argument("--serve", choices=SERVERS, help="only serve, by their server")
    parser.add_argument("--threaded", action="store_true", help="by envkit's instead")
    told = parser.parse_args()
    if told.threaded:
        threaded_server(told.serve)
    if told.serve:
        SERVERS[told.serve]()
        return
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *sys.path[1:]])
    report = Report("protocols")
    for protocol in SERVERS:
        compare(report, protocol, told)
    report.finish(told.json)


if __name__ == "__main__":
    main()
