"""Hundreds of sessions at once, of an environment that waits in each step.

    python benchmarks/sessions.py

Each session plays one episode. They begin one after the other within the time of a
step, as agents do that wait for a model. `Sessions` has the environments in threads, or
at `envkit serve` in a process each; beside it are Python's own threads, and OpenEnv's
client with envkit's server and with OpenEnv's own. The CPU is that of all processes
that take part, client and server. Without OpenEnv's package its client is not measured.

A session that fails, or is not done after two minutes, is not complete; the steps that
it lacks count as that long. "Sessions a core" are those that one core can step at the
pace of the environment.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import importlib.util
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from side_by_side import Report, options

from envkit import ArraySpec, BoundedArraySpec, PyEnvironment
from envkit.remote import offers
from envkit.sessions import Sessions
from envkit.time_step import TimeStep, restart, transition

HERE = Path(__file__).parent
SIZES = [64, 256, 512, 1024]
PATIENCE = 120.0
# What is asked of envkit, with so many sessions.
ASKED, SESSIONS_A_CORE, LONGEST = 512, 512, 1.3
ACTION = {"way": 1}

# Makes a session: `async with it as session`, which has `reset` and `step`.
MakeSession = Callable[[], Any]
# The number of sessions, the seconds of a step, and whose CPU counts too.
Contender = Callable[[int, float], "contextlib.AbstractAsyncContextManager[Open]"]
Open = tuple[MakeSession, "subprocess.Popen[str] | None"]


class Waiting(PyEnvironment):
    """Waits in each step, and counts them."""

    def __init__(self, seconds: float = 0.25) -> None:
        super().__init__()
        self._seconds = seconds
        self._count = 0

    def observation_spec(self) -> dict[str, ArraySpec]:
        return {"count": ArraySpec((), np.int64)}

    def action_spec(self) -> dict[str, BoundedArraySpec]:
        return {"way": BoundedArraySpec((), np.int64, 0, 1)}

    def _reset(self) -> TimeStep:
        self._count = 0
        return restart({"count": np.int64(0)})

    def _step(self, action: Any) -> TimeStep:
        time.sleep(self._seconds)
        self._count += 1
        return transition({"count": np.int64(self._count)}, 1.0)


# The contenders.


@contextlib.asynccontextmanager
async def in_threads(size: int, seconds: float) -> AsyncIterator[Open]:
    async with Sessions(functools.partial(Waiting, seconds), size) as sessions:
        yield sessions.lease, None


@contextlib.asynccontextmanager
async def over_network(size: int, seconds: float) -> AsyncIterator[Open]:
    words = ["-m", "envkit", "serve", "waiting=sessions:Waiting", "--port=0"]
    words += [f"--arg=seconds={seconds}", f"--max-sessions={2 * size}"]
    words += ["--sessions-per-process=256"]
    with serving(words) as (server, address):
        async with Sessions("waiting", size, backend=address) as sessions:
            yield sessions.lease, server


@contextlib.asynccontextmanager
async def by_to_thread(size: int, seconds: float) -> AsyncIterator[Open]:
    class Session:
        async def __aenter__(self) -> Session:
            self._env = await asyncio.to_thread(Waiting, seconds)
            return self

        async def __aexit__(self, *_: Any) -> None:
            await asyncio.to_thread(self._env.close)

        async def reset(self) -> Any:
            return await asyncio.to_thread(self._env.reset)

        async def step(self, action: Any) -> Any:
            return await asyncio.to_thread(self._env.step, action)

    executor = ThreadPoolExecutor(size)
    asyncio.get_running_loop().set_default_executor(executor)
    yield Session, None


@contextlib.asynccontextmanager
async def openenv(size: int, seconds: float, *, whose: str = "") -> AsyncIterator[Open]:
    from openenv.core.generic_client import GenericEnvClient

    words = [__file__, "--serve", whose, "--sizes", str(size), f"--step={seconds}"]
    with serving(words) as (server, address):
        yield functools.partial(GenericEnvClient, base_url=address), server


THREADS, NETWORK = "Sessions, threads", "Sessions, envkit serve"
OURS = "envkit's OpenEnv server"
PLAIN, THEIRS = "asyncio.to_thread", "OpenEnv's own server"
CONTENDERS: dict[str, Contender] = {
    THREADS: in_threads,
    PLAIN: by_to_thread,
    NETWORK: over_network,
    OURS: functools.partial(openenv, whose="envkit"),
    THEIRS: functools.partial(openenv, whose="openenv"),
}
WITH_OPENENV = {OURS, THEIRS}


# The servers.


@contextlib.contextmanager
def serving(words: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Runs a server in a process of its own; gives it and its address."""
    paths = [str(HERE), *sys.path[1:]]
    with subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    ) as server:
        try:
            assert server.stdout is not None  # it is a pipe
            address = re.search(r"(tcp|http)://\S+", server.stdout.readline())
            assert address is not None  # it serves
            yield server, address[0]
        finally:
            server.terminate()


def serve_envkits(size: int, seconds: float) -> None:
    """Serves the environment by envkit's OpenEnv server, in threads of this process."""
    from envkit.remote import openenv as protocol

    offer = offers.Offer("sessions:Waiting", {"seconds": seconds})
    told = offers.ServeOptions(port=0, token=None, max_sessions=size)
    print(protocol.serve(offers.Menu([offer]), told).line, flush=True)
    signal.pause()


def serve_openenvs(size: int, seconds: float) -> None:
    """Serves the same by OpenEnv's own server."""
    import socket

    import uvicorn
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State

    class Way(Action):
        way: int

    class Shown(Observation):
        count: int

    class Theirs(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self._env = Waiting(seconds)

        def reset(self, seed: Any = None, episode_id: Any = None, **_: Any) -> Any:
            return Shown(count=int(self._env.reset().observation["count"]))

        def step(self, action: Any, timeout_s: Any = None, **_: Any) -> Any:
            shown = self._env.step({"way": action.way})
            count = int(shown.observation["count"])
            return Shown(count=count, reward=float(shown.reward))

        @property
        def state(self) -> Any:
            return State()

    # Their module's names are what annotations of a class in a function are read by.
    app = create_fastapi_app(Theirs, Way, Shown, max_concurrent_envs=size)
    listening = socket.create_server(("127.0.0.1", 0), backlog=size)
    print(f"openenv: http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, log_config=None, lifespan="off")
    uvicorn.Server(config).run(sockets=[listening])


SERVERS = {"envkit": serve_envkits, "openenv": serve_openenvs}


# Measuring, in a process for each.


def used_by(server: subprocess.Popen[str] | None) -> float:
    """Returns the CPU seconds of a server and its processes so far."""
    if server is None:
        return 0.0
    root, total = psutil.Process(server.pid), 0.0
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


async def play(name: str, size: int, seconds: float, steps: int) -> dict[str, float]:
    """Plays all sessions, and returns the figures."""
    began = asyncio.Event()
    ready = 0
    latencies: list[float] = []
    complete = 0

    async def session(number: int) -> None:
        nonlocal ready, complete
        async with make() as env:
            await env.reset()
            ready += 1
            await began.wait()
            await asyncio.sleep(seconds * number / size)
            for count in range(1, steps + 1):
                before = time.perf_counter()
                shown = await env.step(ACTION)
                latencies.append(time.perf_counter() - before)
                assert shown.observation["count"] == count
            complete += 1

    async with CONTENDERS[name](size, seconds) as (make, server):
        tasks = [asyncio.ensure_future(session(number)) for number in range(size)]
        while ready < size and not any(task.done() for task in tasks):
            await asyncio.sleep(0.05)
        servers, own = used_by(server), time.process_time()
        began.set()
        _, late = await asyncio.wait(tasks, timeout=PATIENCE)
        own, servers = time.process_time() - own, used_by(server) - servers
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    lacking = [PATIENCE] * (size * steps - len(latencies))
    cpu = (own + servers) / max(len(latencies), 1)
    return {
        "complete": complete / size,
        "p99": float(np.percentile(latencies + lacking, 99)),
        "cpu": 1e6 * cpu,
        "of the server": servers / (own + servers),
        "sessions a core": seconds / cpu,
    }


FAILED = {
    "complete": 0.0,
    "p99": PATIENCE,
    "cpu": math.inf,
    "of the server": 0.0,
    "sessions a core": 0.0,
}


def measured(name: str, size: int, told: argparse.Namespace) -> dict[str, float]:
    """Returns the figures of a contender, which plays in a process of its own."""
    command = [sys.executable, __file__, "--play", name, "--sizes", str(size)]
    command += [f"--step={told.step}", f"--seconds={told.seconds}"]
    try:
        ended = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=2 * PATIENCE,
        )
    except subprocess.SubprocessError:
        return FAILED
    figures: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return figures


def compare(report: Report, names: Sequence[str], told: argparse.Namespace) -> None:
    """Lets all contenders take turns, with each number of sessions."""
    rounds: dict[str, list[list[dict[str, float]]]] = {
        name: [[] for _ in told.sizes] for name in names
    }
    for _ in range(told.rounds):
        for place, size in enumerate(told.sizes):
            for name in names:
                rounds[name][place].append(measured(name, size, told))

    def of(kind: str) -> dict[str, list[list[float]]]:
        return {
            name: [[each[kind] for each in turns] for turns in by_size]
            for name, by_size in rounds.items()
        }

    for title, kind, unit in (
        ("complete sessions", "complete", "share"),
        (f"99th percentile of a step of {told.step:g} s", "p99", "s"),
        ("CPU per step, client and server", "cpu", "us"),
        ("CPU of the server", "of the server", "share"),
        ("sessions a core", "sessions a core", "sessions"),
    ):
        report.curve(title, "sessions", unit, told.sizes, of(kind))
    for name in (THREADS, NETWORK, OURS):
        for place, size in enumerate(told.sizes):
            if name in names and size <= ASKED:
                ask(report, name, size, rounds[name][place], told)


def ask(
    report: Report,
    name: str,
    size: int,
    turns: Sequence[Mapping[str, float]],
    told: argparse.Namespace,
) -> None:
    """Compares figures with what is asked."""
    who, one = f"{name}, {size} at once", [1.0] * len(turns)
    complete, p99, per_core = (
        [turn[kind] for turn in turns]
        for kind in ("complete", "p99", "sessions a core")
    )
    steps = [told.step] * len(turns)
    report.ratio(f"{who}: share that is complete", complete, one, at_least=1.0)
    report.ratio(f"{who}: 99th percentile over the step", p99, steps, at_most=LONGEST)
    # A core is hardly used by fewer.
    if size == ASKED:
        claim = f"{who}: sessions a core"
        report.ratio(claim, per_core, one, at_least=float(SESSIONS_A_CORE))


def main() -> None:
    parser = options(__doc__, rounds=3, seconds=2.0)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--step", type=float, default=0.25, help="seconds of a step")
    parser.add_argument("--play", choices=CONTENDERS, help="only play")
    parser.add_argument("--serve", choices=SERVERS, help="only serve")
    told = parser.parse_args()
    if told.serve:
        SERVERS[told.serve](told.sizes[0], told.step)
    elif told.play:
        steps = max(round(told.seconds / told.step), 2)
        figures = asyncio.run(play(told.play, told.sizes[0], told.step, steps))
        print(json.dumps(figures))
    else:
        report = Report("sessions", imported_elsewhere=["openenv"])
        has_openenv = importlib.util.find_spec("openenv") is not None
        names = [each for each in CONTENDERS if has_openenv or each not in WITH_OPENENV]
        compare(report, names, told)
        report.finish(told.json)
        for row in report.ratios:
            if row["reached"] is False:
                report.console.print(f"[bold red]missed[/]: {row['claim']}")


if __name__ == "__main__":
    main()
