"""Steps pools of environments that make trouble, part by part, and judges every answer.

This is the process inside: `soak.py` starts it, and kills and pauses what it starts.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import functools
import importlib.util
import logging
import os
import queue
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit import AsyncParallelPyEnvironment, ParallelPyEnvironment, RestartPolicy
from envkit.errors import WorkerError
from tests.residue import Residue, left_behind
from tests.soak.actors import ActorTroubles, Cluster
from tests.soak.environments import CODES, FLOOD, PID, Chained
from tests.soak.judge import Answer, Judge
from tests.soak.links import LinkTroubles
from tests.soak.plan import (
    FLOODS,
    FORKS,
    HANGS,
    HELPERS,
    KILLED,
    KINDS,
    OVER,
    PART,
    PAUSES,
    QUIET,
    SIGNALS,
    STANDSTILLS,
    STEPS,
    THREADS,
    Board,
    Trouble,
    command_of,
    marked,
)

# Seconds after which a thread or a process that does not answer is taken to hang.
PATIENCE = 120.0
# What may be kept of a worker's standard error, and how much a worker may grow.
LARGEST_STDERR = 17 << 20
LARGEST_GROWTH = 32 << 20
# How many rows are received at a time, at most.
AT_A_TIME = 16

Steps = Generator[int, None, None]


class Result(NamedTuple):
    """What a part has shown, for the table and for what is wrong with it.

    Attributes:
        counts: Steps, restarts and the like.
        made: How often environments made each trouble, by its name.
        harm: How often each trouble did harm, likewise.
        wrong: What was wrong, a line for each.
        left: What was left, likewise.
    """

    counts: dict[str, int]
    made: dict[str, int]
    harm: dict[str, int]
    wrong: list[str]
    left: list[str]


class Orders:
    """Draws actions; some of them tell an environment to make trouble."""

    def __init__(self, plan: Sequence[Trouble], judge: Judge, seed: int) -> None:
        self._coming = deque(plan)
        self._judge = judge
        self._rng = np.random.default_rng(seed)
        self._due: dict[int, deque[int]] = {}
        self._lock = threading.Lock()

    def actions(self, rows: np.ndarray) -> np.ndarray:
        """Returns an action for each row."""
        with self._lock:
            actions = self._rng.integers(0, 2**30, len(rows)) * CODES
            while self._coming and self._coming[0].steps <= self._judge.steps:
                trouble = self._coming.popleft()
                number = trouble.variant * CODES + trouble.kind.code
                self._due.setdefault(trouble.env_id, deque()).append(number)
            while self._judge.ignored:
                env_id, number = self._judge.ignored.popleft()
                self._due.setdefault(env_id, deque()).append(number)
            for env_id in list(self._due) if self._due else ():
                for index in np.flatnonzero(rows == env_id).tolist():
                    actions[index] = self._due[env_id].popleft()
                    if not self._due[env_id]:
                        del self._due[env_id]
            return actions

    def end(self) -> None:
        """Gives no more orders to make trouble."""
        with self._lock:
            self._coming.clear()
            self._due.clear()


# Ways of stepping: each hands out, with every answer that was judged, how many calls
# of a second thread were.


def in_lockstep(env: ParallelPyEnvironment, judge: Judge, orders: Orders) -> Steps:
    """Steps all rows at once."""
    everyone = np.arange(env.batch_size)
    judge.judge(Answer(everyone, np.full(env.batch_size, -1), env.reset()))
    while True:
        actions = orders.actions(everyone)
        time_step = env.step(actions)
        judge.judge(Answer(everyone, actions, time_step, env.repaired))
        yield 0


def in_lockstep_by_two(
    env: ParallelPyEnvironment, judge: Judge, orders: Orders
) -> Steps:
    """Steps all rows at once, in two threads; the other one asks questions as well."""
    everyone = np.arange(env.batch_size)
    judge.judge(Answer(everyone, np.full(env.batch_size, -1), env.reset()))

    def other(put: Callable[[Any], None]) -> None:
        actions = orders.actions(everyone)
        put(Answer(everyone, actions, env.step(actions)))
        put(env.current_time_step())
        try:
            put(env.call("where"))
        except WorkerError:
            put(None)  # Its worker was killed; that is the answer.

    with _Other(other) as others:
        while True:
            actions = orders.actions(everyone)
            mine = Answer(everyone, actions, env.step(actions))
            judged = 0
            while not (verdict := judge.verdict(mine)).right.all():
                # The other thread's step must have been made before.
                if not _judge_next(judge, others.get()):
                    break
                judged += 1
            judge.accept(mine, verdict)
            yield judged


def _judge_next(judge: Judge, said: Any) -> bool:
    """Judges what the other thread was told; returns whether it was the next answer."""
    if isinstance(said, Answer):
        verdict = judge.verdict(said)
        judge.accept(said, verdict)
        return bool(verdict.right.all())
    if isinstance(said, list) and not judge.check_where(said):
        judge.wrong.append("a call in the other thread was answered by other steps")
    elif isinstance(said, tuple) and not judge.check_standing(said):
        judge.wrong.append("current_time_step() in the other thread is of other steps")
    return True


def first_come(env: AsyncParallelPyEnvironment, judge: Judge, orders: Orders) -> Steps:
    """Steps whatever is ready, some rows at a time."""
    given = np.full(env.num_envs, -1)
    env.reset_async()
    while True:
        rows, time_step = env.recv(min(AT_A_TIME, env.num_envs))[:2]
        judge.judge(Answer(rows, given[rows], time_step, env.repaired[rows]))
        given[rows] = orders.actions(rows)
        env.send(given[rows], rows)
        yield 0


def first_come_by_two(
    env: AsyncParallelPyEnvironment, judge: Judge, orders: Orders
) -> Steps:
    """Receives in this thread what another one sends."""
    given = np.full(env.num_envs, -1)
    ready: queue.Queue[np.ndarray] = queue.Queue()
    env.reset_async()
    sent = env.num_envs

    def other(put: Callable[[Any], None]) -> None:
        try:
            rows = ready.get(timeout=0.1)
        except queue.Empty:
            return
        # Between the answer and the next action, where it stands cannot change.
        if not np.array_equal(env.current_time_step(rows)[3], judge.shown[rows]):
            judge.wrong.append("current_time_step() beside a recv() is of other steps")
        given[rows] = orders.actions(rows)
        env.send(given[rows], rows)
        put(len(rows))

    with _Other(other) as others:
        while True:
            judged = 0
            while sent < min(AT_A_TIME, env.num_envs):
                sent += others.get()
                judged += 1
            rows, time_step = env.recv(min(AT_A_TIME, env.num_envs))[:2]
            sent -= len(rows)
            judge.judge(Answer(rows, given[rows], time_step, env.repaired[rows]))
            ready.put(rows)
            yield judged


class _Other:
    """A second thread that does something again and again and says what came of it."""

    def __init__(self, do: Callable[[Callable[[Any], None]], None]) -> None:
        self._do = do
        self._said: queue.Queue[Any] = queue.Queue()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="other", daemon=True)

    def __enter__(self) -> _Other:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._is_over.set()
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            raise RuntimeError("The other thread hangs in a call.")

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                # No further ahead than the judge can remember.
                if self._said.qsize() < 64:
                    self._do(self._said.put)
                else:
                    time.sleep(0.0005)
        except BaseException as error:
            self._said.put(error)

    def get(self) -> Any:
        """Returns what it has said next."""
        try:
            said = self._said.get(timeout=PATIENCE)
        except queue.Empty:
            raise RuntimeError("The other thread gets no answer.") from None
        if isinstance(said, BaseException):
            raise said
        return said


class Part(NamedTuple):
    """A pool, and how it is stepped.

    Attributes:
        carrier: What carries its rows: a start method, "linked" or "ray".
    """

    name: str
    make: Any
    way: Callable[[Any, Judge, Orders], Steps]
    carrier: str

    @property
    def has_two_threads(self) -> bool:
        return self.way in (in_lockstep_by_two, first_come_by_two)


# Without a second thread in the parts that fork this process: that is what the
# documentation asks for.
PARTS = [
    Part("in lockstep, forkserver", ParallelPyEnvironment, in_lockstep, "forkserver"),
    Part(
        "in lockstep by two threads, spawn",
        ParallelPyEnvironment,
        in_lockstep_by_two,
        "spawn",
    ),
    Part("in lockstep, fork", ParallelPyEnvironment, in_lockstep, "fork"),
    Part("first come, spawn", AsyncParallelPyEnvironment, first_come, "spawn"),
    Part(
        "first come by two threads, forkserver",
        AsyncParallelPyEnvironment,
        first_come_by_two,
        "forkserver",
    ),
    Part("in lockstep, linked", ParallelPyEnvironment, in_lockstep, "linked"),
    Part("first come, linked", AsyncParallelPyEnvironment, first_come, "linked"),
]
if importlib.util.find_spec("ray") is not None:
    PARTS += [
        Part("in lockstep, Ray", ParallelPyEnvironment, in_lockstep, "ray"),
        Part("first come, Ray", AsyncParallelPyEnvironment, first_come, "ray"),
    ]


def run_part(
    number: int,
    told: argparse.Namespace,
    plan: Sequence[Trouble],
    board: Board,
    mark: str,
    deadline: float,
    notes: Sequence[str] = (),
) -> Result:
    """Runs a part through its share of the steps and of the troubles."""
    part = PARTS[number - 1]
    cluster = Cluster(mark) if part.carrier == "ray" else None
    try:
        return _run_part(number, told, plan, board, mark, deadline, notes, cluster)
    finally:
        if cluster is not None:
            cluster.shut_down()


def _run_part(
    number: int,
    told: argparse.Namespace,
    plan: Sequence[Trouble],
    board: Board,
    mark: str,
    deadline: float,
    notes: Sequence[str],
    cluster: Cluster | None,
) -> Result:
    part, before = PARTS[number - 1], Residue.now()
    judge, wrong = Judge(told.num_envs), []
    calls, floods, has_given_up = 0, FloodWatch(), False
    by_envs = [trouble for trouble in plan if trouble.kind.code]
    orders = Orders(by_envs, judge, told.seed + number)
    killed_before = int(board.head[KILLED])
    began = time.monotonic()
    policy = RestartPolicy(max_restarts=10**6, within=None, backoff=0.0)
    # A step that goes on after everything has stood still has to have time for it.
    slow = 0.5 * told.timeout
    links: LinkTroubles | ActorTroubles | None = None
    if part.carrier == "linked":
        links = LinkTroubles(plan, told.workers)
    elif part.carrier == "ray":
        links = ActorTroubles(plan)
    where = {"backend": links.backend} if links else {"start_method": part.carrier}
    env = part.make(
        [functools.partial(Chained, i, slow) for i in range(told.num_envs)],
        num_workers=told.workers,
        **where,
        on_worker_failure=policy,
        step_timeout=told.timeout,
        reset_timeout=60.0,
        start_timeout=60.0,
    )
    with env:
        running = part.way(env, judge, orders)
        try:
            next(running)
            at_first = _held(env)
            board.head[STEPS] = 0
            board.head[PART] = number
            while judge.steps < told.steps // len(PARTS) and not judge.wrong:
                calls += next(running)
                board.pids[:] = judge.shown[:, PID]
                board.head[STEPS] = judge.steps
                floods.look(judge.made[FLOOD])
                if links is not None:
                    links.look(env, judge)
                if time.monotonic() > deadline:
                    has_given_up = True
                    break
            orders.end()
            _await_quiet(board, number)
            _settle(running, judge)
        finally:
            running.close()
        statistics = env.statistics()
        now = _held(env)
        if cluster is not None:
            now["descriptors"] = at_first["descriptors"]  # Ray's own come and go.
        if found := _growth(at_first, now):
            wrong += found
            floods.harm += 1
    killed = set(board.killed[killed_before : board.head[KILLED]].tolist())
    if links is not None:
        killed |= links.lost
    replaced = judge.pids - set(judge.shown[:, PID].tolist())
    unexplained = replaced - killed - judge.hung
    judge.outlived += [each for each in judge.helpers if each.is_there()]
    harm = {
        SIGNALS.name: len(killed - replaced),
        HELPERS.name: len(judge.outlived),
        FORKS.name: len(judge.stayed),
        FLOODS.name: floods.harm,
        HANGS.name: len(judge.hung - replaced),
        PAUSES.name: len(unexplained),
        STANDSTILLS.name: len(unexplained),
        THREADS: len(judge.wrong) * part.has_two_threads,
    }
    for pid in unexplained:
        wrong += [note for note in notes if f"(pid {pid})" in note]
    if statistics.restarts != len(replaced):
        wrong.append(
            f"{statistics.restarts} restarts, but {len(replaced)} workers replaced"
        )
    if judge.cut > len(replaced) * -(-told.num_envs // told.workers):
        wrong.append(f"{judge.cut} episodes were cut, for {len(replaced)} workers")
    counts = {
        "steps": judge.steps,
        "restarts": statistics.restarts,
        "cut": judge.cut,
        THREADS: calls,
        "wrong": len(judge.wrong),
        "seconds": round(time.monotonic() - began),
        "gave up": int(has_given_up),
    }
    made = {kind.name: judge.made[kind.code] for kind in KINDS if kind.code}
    made.update(links.made if links is not None else {})
    left = cluster.left() if cluster is not None else _left(before, mark)
    return Result(counts, made, harm, judge.wrong[:20] + wrong, left)


def _await_quiet(board: Board, number: int) -> None:
    """Waits until nothing comes from outside any more."""
    board.head[OVER] = number
    outside = os.getppid()
    while board.head[QUIET] < number:
        if os.getppid() != outside:
            sys.exit("What made trouble from outside is gone.")
        time.sleep(0.001)


def _settle(running: Steps, judge: Judge) -> None:
    """Steps until whatever was lost has been replaced, and a little longer."""
    enough, until = judge.begun + 2, time.monotonic() + 0.5
    while (judge.begun < enough).any() or time.monotonic() < until:
        if judge.wrong:
            return
        next(running)


def _held(env: Any) -> dict[str, int]:
    """Returns what the pool holds: descriptors, and bytes of different kinds."""
    resident = max(worker.resident_bytes for worker in env.statistics().workers)
    descriptors = len(os.listdir("/proc/self/fd"))
    return {"descriptors": descriptors, "stderr": _kept(), "resident": resident}


def _kept() -> int:
    """Returns how many bytes of a worker's standard error are kept, at most."""
    most = 0
    for name in os.listdir("/proc/self/fd"):
        # The one that lists them is closed by now.
        with contextlib.suppress(OSError):
            is_appended = fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_APPEND
            # What workers write to is the only such file that is appended to.
            if is_appended and "memfd" in os.readlink(f"/proc/self/fd/{name}"):
                most = max(most, 512 * os.fstat(int(name)).st_blocks)
    return most


class Restarts(logging.Handler):
    """Keeps what pools log, which is why they replaced a worker."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._notes = notes

    def emit(self, record: logging.LogRecord) -> None:
        self._notes.append(record.getMessage())


class FloodWatch:
    """Looks, a while after each flood, how much of it is kept.

    Attributes:
        harm: After how many floods it was too much.
    """

    def __init__(self) -> None:
        self.harm = 0
        self._floods = self._found = 0
        self._next = 0.0

    def look(self, floods: int) -> None:
        """Looks, if it is time for that.

        Args:
            floods: How many there have been.
        """
        now = time.monotonic()
        if floods != self._floods:
            self._floods, self._next, self._found = floods, now + 0.3, 0
        elif self._next and now > self._next:
            self._next = 0.0
            if _kept() > LARGEST_STDERR:
                # It may be of another flood, which has not been told of.
                self._found += 1
                self._next = now + 0.3 if self._found == 1 else 0.0
                self.harm += self._found == 2


def _growth(at_first: dict[str, int], now: dict[str, int]) -> list[str]:
    """Says what has grown by more than it may."""
    found = []
    if now["descriptors"] != at_first["descriptors"]:
        found.append(
            f"{now['descriptors']} descriptors are open instead of "
            f"{at_first['descriptors']}"
        )
    if now["stderr"] > LARGEST_STDERR:
        found.append(f"{now['stderr']:,} bytes of a worker's stderr are kept")
    if now["resident"] > at_first["resident"] + LARGEST_GROWTH:
        found.append(
            f"a worker has grown from {at_first['resident']:,} to "
            f"{now['resident']:,} bytes"
        )
    return found


def _left(before: Residue, mark: str) -> list[str]:
    """Says what is left of a part, whatever it was started by."""
    until = time.monotonic() + 5.0
    while others := [pid for pid in marked(mark) if pid != os.getpid()]:
        if time.monotonic() > until:
            break
        time.sleep(0.01)
    return [*map(command_of, others), *left_behind(before).values()]


def run(
    told: argparse.Namespace,
    plan: Sequence[Sequence[Trouble]],
    board: Board,
    mark: str,
    tell: Callable[[str], None],
) -> list[Result]:
    """Runs all parts, one after the other."""
    notes: list[str] = []
    log = logging.getLogger("envkit")
    log.addHandler(Restarts(notes))
    log.propagate = False
    # Python knows of NumPy's threads, which a fork does not need.
    warnings.simplefilter("ignore", DeprecationWarning)
    with ParallelPyEnvironment([functools.partial(Chained, 0)]) as env:
        env.reset()  # What is imported or opened once and for all is no leak.
    began, results = time.monotonic(), []
    for number, (part, troubles) in enumerate(zip(PARTS, plan, strict=True), 1):
        share = told.seconds * number / len(PARTS)
        mine = [trouble for trouble in troubles if not trouble.kind.from_outside]
        result = run_part(number, told, mine, board, mark, began + share, notes)
        results.append(result)
        tell(f"{part.name}: {_summary(result)}")
        for text in result.wrong + result.left:
            tell(f"  {text}")
        if result.counts["wrong"]:
            break
    return results


def _summary(result: Result) -> str:
    counts = {**result.counts}
    if not counts["gave up"]:
        del counts["gave up"]
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
