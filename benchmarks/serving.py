"""Environments of a server beside linked workers and a bare socket, and how they begin.

    python benchmarks/serving.py

Each contender has one process on the other side, on this machine. The bare socket
carries as many bytes each way and computes nothing. The environments are batches that
always show the same, and the caller gets views, so the figures are nearly all
transport.

A session begins from `connect` to the environment that it returns, at a server that has
begun one before.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import links
import numpy as np
from links import bare_sockets, bytes_of_a_step
from side_by_side import Contender, Report, opened, options, take_turns

from envkit import ArraySpec, BoundedArraySpec, ParallelPyEnvironment, PyEnvironment
from envkit import connect as connect_with
from envkit.distributed.links import linked
from envkit.time_step import StepType, TimeStep, restart

# Milliseconds in which a session is to begin, and in which so many at once are.
BEGINS_WITHIN, AT_ONCE, ALL_WITHIN = 60.0, 20, 2000.0
SHAPES = {"4 float32": ((4,), np.float32), "84 x 84 bytes": ((84, 84), np.uint8)}


class Same(PyEnvironment):
    """Shows the same again and again: a batch of environments."""

    def __init__(self, rows: int = 64, what: str = "4 float32") -> None:
        super().__init__()
        self._rows = rows
        self._shape, self._dtype = SHAPES[what]
        shown = np.zeros((rows, *self._shape), self._dtype)
        self._first = restart(shown, rows)
        self._next = TimeStep(np.full(rows, StepType.MID, np.int32), *self._first[1:])

    @property
    def batched(self) -> bool:
        return True

    @property
    def batch_size(self) -> int:
        return self._rows

    def observation_spec(self) -> ArraySpec:
        return ArraySpec(self._shape, self._dtype)

    def action_spec(self) -> BoundedArraySpec:
        return BoundedArraySpec((), np.int64, 0, 1)

    def _reset(self) -> TimeStep:
        return self._first

    def _step(self, action: Any) -> TimeStep:
        return self._next


def stepping(env: Any) -> Contender:
    """Steps an environment again and again."""
    env.reset()
    actions = np.zeros(env.batch_size, np.int64)
    return Contender(lambda: env.step(actions), env.close)


def served(rows: int, what: str) -> Contender:
    """Starts a server, and connects with it."""
    os.chdir(Path(__file__).parent)  # The server finds this module there.
    command = [sys.executable, "-m", "envkit", "serve", "same=serving:Same", "--port=0"]
    arguments = [f"--arg=rows={rows}", f"--arg=what={what}"]
    return stepping(connect_with(command=[*command, *arguments], zero_copy=True))


def by_link(rows: int, what: str) -> Contender:
    """Starts a linked worker."""
    backend = linked([links.COMMAND])
    maker = functools.partial(Same, rows, what)
    return stepping(ParallelPyEnvironment([maker], backend=backend, zero_copy=True))


def compare(report: Report, what: str, told: Any) -> None:
    """Lets all take turns, and reports how they compare."""
    shape, dtype = SHAPES[what]
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    down, up = bytes_of_a_step(told.num_envs, size)
    players = {
        "served": functools.partial(served, told.num_envs, what),
        "linked": functools.partial(by_link, told.num_envs, what),
        "bare socket": functools.partial(bare_sockets, down, up, 1),
    }
    with opened(players) as contenders:
        figures = take_turns(contenders, told.rounds, told.seconds)
    title = f"{told.num_envs} x {what}"
    report.table(title, figures)
    report.fact(f"{title}: bytes to the server and back", [down, up])
    for other, bar in (("linked", 1.25), ("bare socket", 2.0)):
        claim = f"{title}: served takes this much of {other}"
        report.ratio(claim, figures["served"], figures[other], at_most=bar)


@contextlib.contextmanager
def serving(target: str) -> Iterator[str]:
    """Runs a server that has begun a session; gives its address."""
    command = [sys.executable, "-m", "envkit", "serve", target, "--port=0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None  # it is a pipe
        address = re.search(r"tcp://\S+", server.stdout.readline())
        assert address is not None  # it serves
        try:
            connect_with(address[0]).close()
            yield address[0]
        finally:
            server.terminate()


def milliseconds_of(begin: Any) -> float:
    """Returns how long environments take to begin, and closes them."""
    before = time.perf_counter()
    envs = begin()
    took = 1e3 * (time.perf_counter() - before)
    for env in envs:
        env.close()
    return took


def beginnings(report: Report, rounds: int) -> None:
    """Reports how long sessions take to begin, one by one and many at once."""
    alone, together = {}, {}
    for target in ("CartPole", "gymnasium:CartPole-v1"):
        with serving(target) as address, ThreadPoolExecutor(AT_ONCE) as clients:
            connect_all = functools.partial(
                clients.map, connect_with, [address] * AT_ONCE
            )
            alone[target] = [
                milliseconds_of(lambda at=address: [connect_with(at)])
                for _ in range(rounds)
            ]
            together[target] = [
                milliseconds_of(lambda all_of=connect_all: [*all_of()])
                for _ in range(rounds)
            ]
    report.table("a session begins", alone, unit="ms")
    report.table(f"{AT_ONCE} sessions that begin at once", together, unit="ms")
    for target in alone:
        for figures, bar, what in (
            (alone, BEGINS_WITHIN, "a session begins"),
            (together, ALL_WITHIN, f"{AT_ONCE} sessions begin"),
        ):
            claim = f"{target}: {what} in this much of {bar:g} ms"
            report.ratio(claim, figures[target], [bar] * rounds, at_most=1.0)


def main() -> None:
    told = options(__doc__, rounds=7, seconds=0.5, num_envs=64).parse_args()
    report = Report("serving")
    for what in SHAPES:
        compare(report, what, told)
    beginnings(report, told.rounds)
    report.finish(told.json)


if __name__ == "__main__":
    main()
