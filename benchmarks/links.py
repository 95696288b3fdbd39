"""Linked workers on this machine beside worker processes and beside a bare socket.

    python benchmarks/links.py

The bare socket carries as many bytes each way to as many processes, which compute
nothing, and copies nothing but into and out of the sockets. Its processes are started
by a command with a session of its own, as workers are, because Linux gives each session
a share of the CPUs; they send from memory that has been written before, and the caller
reads into two buffers by turns, as a step does that leaves the one before intact.

The pictures come from environments that are batches, and the caller gets views, so the
figures are nearly all transport. The last table shows where the time of such a step
goes. Beyond the bare socket's time, workers write the pictures into their rows, and
both ends run some Python.
"""

from __future__ import annotations

import functools
import itertools
import mmap
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from environments import Working
from side_by_side import Contender, Figures, Report, opened, options, take_turns

from envkit import ArraySpec, BoundedArraySpec, ParallelPyEnvironment, PyEnvironment
from envkit.distributed.frames import ANSWERED, HEAD, Frame
from envkit.distributed.links import linked
from envkit.distributed.seal import KEY_SIZE, Seal
from envkit.envs import CartPole
from envkit.time_step import StepType, TimeStep, restart

WORKERS = 2
COMMAND = "envkit worker {address}"
# How many seconds a process may take to connect with a bare socket.
TO_CONNECT = 60.0
# How pools of linked workers listen.
LINKS: dict[str, dict[str, Any]] = {
    "linked": {},
    "linked by Unix socket": {"host": "unix:"},
    "linked by TLS": {"tls": True},
}
# How many times a frame is sealed in a round.
SEALS = 200
PICTURE = (84, 84)


class Pictures(PyEnvironment):
    """Shows the same pictures again and again: a batch of environments."""

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        self._batch_size = batch_size
        self._first = restart(np.ones((batch_size, *PICTURE), np.uint8), batch_size)
        self._next = TimeStep(
            np.full(batch_size, StepType.MID, np.int32), *self._first[1:]
        )

    @property
    def batched(self) -> bool:
        return True

    @property
    def batch_size(self) -> int:
        return self._batch_size

    def observation_spec(self) -> ArraySpec:
        return ArraySpec(PICTURE, np.uint8)

    def action_spec(self) -> BoundedArraySpec:
        return BoundedArraySpec((), np.int64, 0, 1)

    def _reset(self) -> TimeStep:
        return self._first

    def _step(self, action: Any) -> TimeStep:
        return self._next


def pool_of(
    makers: list[Callable[[], PyEnvironment]], kind: str, zero_copy: bool
) -> Contender:
    """Opens a pool of one kind of workers."""
    how = LINKS.get(kind)
    backend = kind if how is None else linked([COMMAND] * WORKERS, **how)
    env = ParallelPyEnvironment(
        makers,
        num_workers=WORKERS,
        backend=backend,
        start_serially=False,
        zero_copy=zero_copy,
    )
    env.reset()
    actions = np.zeros(env.batch_size, np.int64)
    return Contender(lambda: env.step(actions), env.close)


# What a worker of a bare socket runs. It answers from memory that has been written, as
# an environment's picture has: of what was only asked for, a system sends one page of
# zeros again and again.
SERVE = """
import socket, sys
port, down, up = map(int, sys.argv[1:])
sock = socket.create_connection(("127.0.0.1", port))
sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
question, answer = bytearray(down), b"1" * up
while sock.recv_into(question, down, socket.MSG_WAITALL) == down:
    sock.sendall(answer)
"""


def bare_sockets(down: int, up: int, workers: int = WORKERS) -> Contender:
    """Opens a connection with each of some processes."""
    ours, processes = [], []
    for _ in range(workers):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            words = [str(each) for each in (listener.getsockname()[1], down, up)]
            command = [sys.executable, "-c", SERVE, *words]
            # As workers are: a system may give each session its own share of the CPUs.
            processes.append(subprocess.Popen(command, start_new_session=True))
            listener.settimeout(TO_CONNECT)
            sock, _ = listener.accept()
        sock.setblocking(True)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ours.append(sock)
    # One memory for all of them would hold only the last rows, and one for each would
    # be overwritten while the caller looks at the step before. A system may take half
    # as long to where a page begins, which for other memory is a matter of luck.
    question, memories = bytes(down), [[mmap.mmap(-1, up) for _ in ours] for _ in "ab"]
    turns = itertools.cycle(memories)

    def step() -> None:
        for sock in ours:
            sock.sendall(question)
        for sock, answer in zip(ours, next(turns), strict=True):
            sock.recv_into(answer, up, socket.MSG_WAITALL)

    def close() -> None:
        for sock in ours:
            sock.close()
        for process in processes:
            process.wait()

    return Contender(step, close)


def bytes_of_a_step(rows: int, observation: int) -> tuple[int, int]:
    """Returns how many bytes go to a worker in lockstep, and how many come back."""
    # The frame's head; for each row its number, command and info, and an action; the
    # meters, and for each row number, info, step type, reward and discount; the padding
    # that lets the largest of these begin at a multiple of 64.
    down, up = 16 + rows * (6 + 8), 16 + 64 + rows * (5 + 12 + observation)
    return down, up + -(16 + 64 + rows * (5 + 12)) % 64


def compare(
    report: Report,
    title: str,
    makers: list[Callable[[], PyEnvironment]],
    observation: int,
    told: Any,
    *,
    zero_copy: bool = False,
    over_process: float | None = None,
    over_socket: float | None = None,
) -> None:
    """Lets pools and sockets take turns, and reports how they compare."""
    down, up = bytes_of_a_step(told.num_envs // WORKERS, observation)
    players = {
        kind: functools.partial(pool_of, makers, kind, zero_copy)
        for kind in ("process", *LINKS)
    }
    players["bare socket"] = functools.partial(bare_sockets, down, up)
    with opened(players) as contenders:
        figures = take_turns(contenders, told.rounds, told.seconds)
    report.table(f"{told.num_envs} {title}, {WORKERS} workers", figures)
    report.fact(f"{title}: bytes to a worker and back", [down, up])
    for other, bar in (("process", over_process), ("bare socket", over_socket)):
        claim = f"{title}: linked takes this much of {other}"
        report.ratio(claim, figures["linked"], figures[other], at_most=bar)
    added = np.subtract(figures["linked"], figures["process"]).tolist()
    claim = f"{title}: what links add to process, over bare socket"
    report.ratio(claim, added, figures["bare socket"], at_most=over_socket)
    claim = f"{title}: by Unix socket it takes this much of linked"
    report.ratio(claim, figures["linked by Unix socket"], figures["linked"])


def seals(size: int, rounds: int) -> Figures:
    """Returns how many microseconds each end takes to seal a frame and to check it."""
    keys = bytes(KEY_SIZE), bytes(range(KEY_SIZE))
    sender, receiver = Seal(*keys), Seal(*reversed(keys))
    parts = [HEAD.pack(ANSWERED, 0, 0, 0, size), bytes(size)]
    bare = Frame(parts[0], [bytearray(HEAD.size), memoryview(bytearray(size))], 0)
    frame = receiver.expected(bare)._replace(size=HEAD.size + size)
    figures: Figures = {"to seal it": [], "to check it": []}
    for _ in range(rounds):
        took = dict.fromkeys(figures, 0)
        for _ in range(SEALS):
            began = time.perf_counter_ns()
            sealed = sender.sealed(parts)
            took["to seal it"] += time.perf_counter_ns() - began
            for memory, data in zip(frame.parts, sealed, strict=True):
                memory[:] = data
            began = time.perf_counter_ns()
            receiver.check_expected(frame)
            took["to check it"] += time.perf_counter_ns() - began
        for name, elapsed in took.items():
            figures[name].append(elapsed / 1000 / SEALS)
    return figures


def places_of_time(
    makers: list[Callable[[], PyEnvironment]], rounds: int, seconds: float
) -> Figures:
    """Returns how many microseconds of a step over links go where."""
    backend = linked([COMMAND] * WORKERS)
    env = ParallelPyEnvironment(
        makers, num_workers=WORKERS, backend=backend, zero_copy=True
    )
    spent = dict.fromkeys(("send", "fetch", "poll"), 0)

    def timed(owner: Any, name: str) -> None:
        call = getattr(owner, name)

        def measured(*arguments: Any) -> Any:
            began = time.perf_counter_ns()
            try:
                return call(*arguments)
            finally:
                spent[name] += time.perf_counter_ns() - began

        setattr(owner, name, measured)

    figures: Figures = {}
    with env:
        env.reset()
        actions = np.zeros(env.batch_size, np.int64)
        for worker in backend._workers.values():
            timed(worker.link, "send")
            timed(worker.link, "fetch")
        timed(backend._poller, "poll")
        for _ in range(rounds + 1):
            spent.update(dict.fromkeys(spent, 0))
            ran = sum(each.stepping for each in env.statistics().workers)
            steps, began = 0, time.perf_counter()
            while time.perf_counter() - began < seconds:
                env.step(actions)
                steps += 1
            elapsed = 1e6 * (time.perf_counter() - began) / steps
            ran = sum(each.stepping for each in env.statistics().workers) - ran
            sent, read, waited = (
                spent[name] / 1000 / steps for name in ("send", "fetch", "poll")
            )
            parts = {
                "the pool computes": elapsed - sent - read - waited,
                "the pool sends": sent,
                "the pool waits": waited,
                "of that, a worker runs its rows": 1e6 * ran / steps / WORKERS,
                "the pool reads": read,
                "all of it": elapsed,
            }
            for name, part in parts.items():
                figures.setdefault(name, []).append(part)
    return {name: parts[1:] for name, parts in figures.items()}


def main() -> None:
    told = options(__doc__, rounds=7, seconds=0.5, num_envs=64).parse_args()
    report = Report("links")
    each = [CartPole] * told.num_envs
    compare(report, "CartPoles", each, 16, told, over_process=1.5)
    each = [functools.partial(Working, None, (4,))] * told.num_envs
    compare(report, "environments that do nothing", each, 16, told)
    size = int(np.prod(PICTURE))
    each = [functools.partial(Working, None, PICTURE, "uint8")] * told.num_envs
    compare(report, "environments that show 84 x 84 bytes", each, size, told)
    batches = [functools.partial(Pictures, told.num_envs // WORKERS)] * WORKERS
    compare(
        report,
        "rows of batches that show 84 x 84 bytes",
        batches,
        size,
        told,
        zero_copy=True,
        over_socket=2.0,
    )
    places = places_of_time(batches, told.rounds, told.seconds)
    report.table("where the time of the last goes, over links", places)
    for size in (1 << 10, told.num_envs // WORKERS * int(np.prod(PICTURE))):
        title = f"a seal of a frame of {size:,} bytes"
        report.table(title, seals(size, told.rounds), "us")
    report.finish(told.json)


if __name__ == "__main__":
    main()
