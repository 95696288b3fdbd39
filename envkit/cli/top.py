"""`envkit top`: shows the workers of a pool that runs in another process."""

from __future__ import annotations

import argparse
import bisect
import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from envkit._shared.running_pools import (
    FoundPool,
    exists,
    inner_pid,
    pids,
    running_pools,
    shared,
)
from envkit.cli.output import say
from envkit.cli.processes import Memory, memory_cells, memory_of, pools_named
from envkit.cli.target import number_within
from envkit.cli.terminal import Fitting, add_json, print_json, terminal
from envkit.extend import counted, listed
from envkit.parallel.durability.published import PublishedCounts, PublishedMemory

__all__ = [
    "EXAMPLE",
    "PoolReader",
    "PoolView",
    "SlowEnvironment",
    "WorkerView",
    "add_arguments",
    "list_as_data",
    "list_as_table",
    "run",
    "view_as_data",
    "view_as_table",
]

EXAMPLE = "envkit top train.py"

_COLUMNS = """
In the table, "busy" and "waiting" are shares of the interval, and "now" names an
environment that has been running for a second or longer. The slowest environment is
estimated from samples, unless it has a worker to itself. Linked workers answer for all
their environments together, so neither column is known for them.
Exit status: 1 if there is no such pool."""

_FOUND, _NOT_FOUND = 0, 1
# Seconds for a pool to show that its rows have moved.
_TO_MOVE = 10.0
# Seconds between two samples of the running environments.
_SAMPLING_INTERVAL = 0.005


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = f"{parser.description}{_COLUMNS}"
    parser.add_argument(
        "pool",
        metavar="PID|NAME",
        nargs="?",
        help="the pool's process id, its program (train.py) or its environments "
        "(CartPole) (default: list all pools)",
    )
    parser.add_argument(
        "--once", action="store_true", help="print one interval, and exit"
    )
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=number_within(3600.0, "time between 0 and 3600 seconds"),
        default=1.0,
        help="the time between updates",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Lists pools, or shows the workers of some."""
    if arguments.pool is None:
        return _list(as_json=arguments.json)
    try:
        pools = pools_named(arguments.pool)
        with _readers(pools) as readers:
            # A file or pipe gets one view, because its reader waits for the end.
            if arguments.once or arguments.json or not sys.stdout.isatty():
                return _show_once(readers, arguments.interval, arguments.json)
            return _show_live(readers, arguments.interval)
    except LookupError as error:
        say(f"envkit top: {error}", file=sys.stderr)
        return _NOT_FOUND
    except ProcessLookupError as error:  # it ended during the search
        say(str(error), file=sys.stderr)
        return _NOT_FOUND


def _list(*, as_json: bool) -> int:
    pools = running_pools()
    if as_json:
        print_json(list_as_data(pools))
    elif pools:
        terminal().print(list_as_table(pools))
    else:
        say("No pool of worker processes is running.")
    return _FOUND


@contextlib.contextmanager
def _readers(pools: Sequence[FoundPool]) -> Iterator[list[PoolReader]]:
    with contextlib.ExitStack() as stack:
        readers = []
        for pool in pools:
            reader = PoolReader(pool)
            stack.callback(reader.close)
            readers.append(reader)
        yield readers


def _show_once(readers: list[PoolReader], interval: float, as_json: bool) -> int:
    views = _watched(readers, interval)
    if as_json:
        print_json([view_as_data(view) for view in views])
    else:
        terminal().print(_as_tables(views))
    ended = _tell_ended(readers)
    return _NOT_FOUND if ended == len(readers) else _FOUND


def _show_live(readers: list[PoolReader], interval: float) -> int:
    console = terminal()
    views = _watched(readers, min(interval, 0.5))
    try:
        with Live(_as_tables(views), console=console, auto_refresh=False) as live:
            while readers:
                for each in readers:
                    each.follow()
                views = _watched(readers, interval)
                if ended := [each for each in readers if each.has_ended()]:
                    # Its last figures remain on the screen.
                    _tell_ended(ended)
                    readers = [each for each in readers if each not in ended]
                else:
                    live.update(_as_tables(views), refresh=True)
    finally:
        # A signal during the first view would leave the cursor hidden.
        console.show_cursor()
    return _FOUND


def _watched(readers: Sequence[PoolReader], seconds: float) -> list[PoolView]:
    """Samples pools many times, and returns their work in that time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for reader in readers:
            reader.sample()
        time.sleep(_SAMPLING_INTERVAL)
    return [reader.view() for reader in readers]


def _as_tables(views: Sequence[PoolView]) -> RenderableType:
    return Group(*(view_as_table(view) for view in views))


def _tell_ended(readers: Sequence[PoolReader]) -> int:
    """Prints which pools have ended, and returns how many."""
    endings = [ending for each in readers if (ending := each.has_ended())]
    for ending in endings:
        say(ending, file=sys.stderr)
    return len(endings)


# Fewer samples of a worker's rows do not show which of them is slow.
_ENOUGH_SAMPLES = 20
# Reading memory takes a while for a large process.
_MEMORY_EVERY = 5.0


class SlowEnvironment(NamedTuple):
    """An environment that is slower than the others.

    Attributes:
        env: Its index.
        worker: The worker that runs it.
        seconds_per_step: The approximate time of one of its steps.
        times: The ratio to the median environment's time.
    """

    env: int
    worker: int
    seconds_per_step: float
    times: float


@dataclass(frozen=True, slots=True)
class WorkerView:
    """What a worker did in the last interval.

    Attributes:
        worker: Its index.
        pid: Its process as seen from here; `None` if there is none.
        is_there: Whether it exists, here or on another machine.
        rows: Its first row, and the row after its last.
        steps: The number of commands executed since the pool began.
        resets: The number of episodes begun since then.
        restarts: How many times it, or one of its environments, was replaced.
        steps_per_second: The commands executed per second.
        busy: The share of the time spent executing commands.
        waiting: The share of the time spent waiting for commands.
        running: The environment that it is running now, if any.
        running_for: The seconds that this has been observed.
        memory: The memory of its process; `None` if unknown.
    """

    worker: int
    pid: int | None
    is_there: bool
    rows: tuple[int, int]
    steps: int
    resets: int
    restarts: int
    steps_per_second: float
    busy: float
    waiting: float
    running: int | None
    running_for: float
    memory: Memory | None


@dataclass(frozen=True, slots=True)
class PoolView:
    """What a pool did in the last interval.

    Attributes:
        pool: The pool.
        seconds: The length of the interval.
        calls_per_second: The calls of its owner per second.
        workers: Its workers.
        slowest: The slowest environment; `None` if unknown.
    """

    pool: FoundPool
    seconds: float
    calls_per_second: float
    workers: tuple[WorkerView, ...]
    slowest: SlowEnvironment | None

    @property
    def steps_per_second(self) -> float:
        """The number of commands executed per second, across all rows."""
        return sum(worker.steps_per_second for worker in self.workers)


class _Reading(NamedTuple):
    """The counters at one moment."""

    at: float
    counts: PublishedCounts


class PoolReader:
    """Reads the counters of another process's pool, and computes rates.

    It opens the pool's memory for reading only, so it can neither change nor delay
    anything. The counters exist anyway. Which environment is running at a moment is not
    counted, so rows are sampled many times, as in a sampling profiler.
    """

    def __init__(self, pool: FoundPool) -> None:
        """Opens the pool's memory; `close` releases it.

        Raises:
            ProcessLookupError: The pool has just ended.
        """
        self._fd = -1
        self._open(pool)

    def _open(self, pool: FoundPool) -> None:
        self.pool = pool
        self._facts = pool.facts
        self._lost_since: float | None = None
        self._rows = pool.facts.rows
        self.close()
        try:
            self._fd = os.open(pool.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            raise ProcessLookupError(f"The pool of {pool} has ended.") from None
        self._counters = PublishedMemory(self._fd, pool.facts)
        self._members = dict(pool.members)
        self._memory: dict[int, tuple[float, Memory | None]] = {}
        # How many times each row was seen running; for the row seen last, also since
        # when, and its request number.
        self._samples = np.zeros(self._rows, np.int64)
        self._since: dict[int, tuple[int, int, float]] = {}
        self._first = self._before = self._read()

    def close(self) -> None:
        """Releases the memory."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def follow(self) -> None:
        """Follows a pool whose number of rows has changed to its new memory."""
        if not self._counters.has_moved():
            return
        known = self.pool
        for pool in running_pools():
            if (pool.pid, pool.facts.began) == (known.pid, known.facts.began):
                self._open(pool)
                return
        if self._lost_since is None:
            self._lost_since = time.monotonic()

    def has_ended(self) -> str | None:
        """Returns a sentence about the pool's end; `None` while it runs."""
        since = self._lost_since
        if since is not None and time.monotonic() - since > _TO_MOVE:
            return f"The pool of {self.pool} was closed."
        if not exists(self.pool.pid):
            return f"{self.pool} has ended, and its pool with it."
        if not self._counters.is_whole:
            return f"The memory of the pool of {self.pool} can no longer be read."
        if self._counters.is_closed():
            return f"The pool of {self.pool} was closed."
        return None

    def sample(self) -> None:
        """Samples which row each worker is running, if any."""
        now = time.monotonic()
        owed, numbers = self._counters.running()
        for worker, (first, stop) in enumerate(self._facts.blocks):
            rows = np.flatnonzero(owed[first:stop])
            is_hidden = self._facts.are_linked and self._env_of(first) != self._env_of(
                stop - 1
            )
            if is_hidden or not rows.size:
                self._since.pop(worker, None)
                continue
            # A worker runs its rows one after another.
            row = first + int(rows[0])
            self._samples[row] += 1
            seen = self._since.get(worker)
            if seen is None or seen[:2] != (row, int(numbers[row])):
                self._since[worker] = (row, int(numbers[row]), now)

    def view(self) -> PoolView:
        """Returns the work since the last view."""
        before, now = self._before, self._read()
        self._before = now
        seconds = max(now.at - before.at, 1e-9)
        counts, earlier = now.counts, before.counts
        steps = counts.steps - earlier.steps
        busy, waiting = (
            counts.busy_ns - earlier.busy_ns,
            counts.waiting_ns - earlier.waiting_ns,
        )
        workers = []
        for worker, known in enumerate(self._counters.workers()):
            first, stop = self._facts.blocks[worker]
            pid = None if known.process is None else self._outer_pid(known.process)
            is_there = pid is not None or known.is_elsewhere
            running = self._since.get(worker) if is_there else None
            workers.append(
                WorkerView(
                    worker=worker,
                    pid=pid,
                    is_there=is_there,
                    rows=(first, stop),
                    steps=int(counts.steps[worker]),
                    resets=int(counts.resets[worker]),
                    restarts=known.restarts,
                    steps_per_second=float(steps[worker] / seconds),
                    busy=_share(busy[worker], seconds),
                    waiting=_share(waiting[worker], seconds),
                    running=self._env_of(running[0]) if running else None,
                    running_for=now.at - running[2] if running else 0.0,
                    memory=self._memory_of(pid, now.at),
                )
            )
        return PoolView(
            pool=self.pool,
            seconds=seconds,
            calls_per_second=(counts.calls - earlier.calls) / seconds,
            workers=tuple(workers),
            slowest=self._slowest(counts),
        )

    def _slowest(self, counts: PublishedCounts) -> SlowEnvironment | None:
        """Finds the environment with the longest steps among all samples."""
        first_counts = self._first.counts
        spent = counts.busy_ns - first_counts.busy_ns
        requests = counts.requests_since(first_counts)
        firsts = [*self._facts.first_rows, self._rows]
        times: dict[int, float] = {}
        workers: dict[int, int] = {}
        for worker, (first, stop) in enumerate(self._facts.blocks):
            busy = spent[worker] / 1e9
            envs = range(self._env_of(first), self._env_of(stop - 1) + 1)
            samples = {
                env: int(self._samples[firsts[env] : firsts[env + 1]].sum())
                for env in envs
            }
            seen = sum(samples.values())
            if len(envs) > 1 and seen < _ENOUGH_SAMPLES:
                continue
            for env in envs:
                steps = int(requests[firsts[env]])
                share = 1.0 if len(envs) == 1 else samples[env] / seen
                if steps:
                    times[env], workers[env] = busy * share / steps, worker
        if len(times) < 2:
            return None
        env = max(times, key=times.__getitem__)
        median = float(np.median(list(times.values())))
        return (
            SlowEnvironment(env, workers[env], times[env], times[env] / median)
            if median > 0
            else None
        )

    def _env_of(self, row: int) -> int:
        return bisect.bisect_right(self._facts.first_rows, row) - 1

    def _outer_pid(self, process: int) -> int | None:
        """Returns the pid of a worker's process as seen from here.

        `None` if it has ended, which its parent may not have noticed yet.
        """
        pid = self._members.get(process)
        if pid is None:  # it is new; its pid only differs in a container
            inside = self._facts.pid != self.pool.pid
            pid = self._found_outside(process) if inside else process
        if pid is None or not exists(pid):
            self._members.pop(process, None)
            return None
        self._members[process] = pid
        return pid

    def _found_outside(self, process: int) -> int | None:
        for pid in pids():
            if inner_pid(pid) == process and any(
                inode == self.pool.inode for _, inode in shared(pid)
            ):
                return pid
        return None

    def _memory_of(self, pid: int | None, now: float) -> Memory | None:
        if pid is None:
            return None
        asked, memory = self._memory.get(pid, (-np.inf, None))
        if now - asked >= _MEMORY_EVERY:
            memory = memory_of(pid)
            self._memory[pid] = (now, memory)
        return memory

    def _read(self) -> _Reading:
        return _Reading(time.monotonic(), self._counters.counts())


def _share(nanoseconds: Any, seconds: float) -> float:
    return min(1.0, float(nanoseconds) / 1e9 / seconds)


# A step that has run for this many seconds is worth mentioning.
_LONG = 1.0


def list_as_table(pools: Sequence[FoundPool]) -> RenderableType:
    """Returns a table of the pools that are running."""
    table = Table("pid", "program", "environments", "workers", "class", "envkit")
    for pool in pools:
        facts = pool.facts
        table.add_row(
            str(pool.pid),
            # As text: what looks like markup is part of the name.
            Text(facts.program),
            Text(f"{facts.envs} × {listed(facts.targets, most=3)}"),
            str(len(facts.blocks)),
            Text(facts.kind),
            Text(facts.envkit),
        )
    return table


def list_as_data(pools: Sequence[FoundPool]) -> list[dict[str, Any]]:
    """Returns the running pools as data that JSON can hold."""
    return [
        {
            "pid": pool.pid,
            "program": pool.facts.program,
            "targets": list(pool.facts.targets),
            "environments": pool.facts.envs,
            "rows": pool.facts.rows,
            "workers": len(pool.facts.blocks),
            "class": pool.facts.kind,
            "began": pool.facts.began,
            "envkit": pool.facts.envkit,
        }
        for pool in pools
    ]


def view_as_table(view: PoolView) -> RenderableType:
    """Returns a table of the workers of a pool."""
    facts = view.pool.facts
    title = Text.assemble(
        (f"{facts.kind} of {view.pool}", "bold"),
        f": {facts.envs} × {listed(facts.targets, most=3)}",
    )
    table = Table(title=title, title_justify="left", title_style="")
    for heading in (
        "worker", "pid", "rows", "steps/s", "busy", "waiting", "restarts", "PSS", "USS"
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    table.add_column("now")
    for worker in view.workers:
        table.add_row(*_cells(worker), style="" if worker.is_there else "red")
    return Group(Fitting(table), Text(_summary(view)))


def _cells(worker: WorkerView) -> list[str]:
    first, stop = worker.rows
    return [
        str(worker.worker),
        "" if worker.pid is None else str(worker.pid),
        str(first) if stop - first == 1 else f"{first}–{stop - 1}",
        f"{worker.steps_per_second:,.0f}",
        f"{worker.busy:.0%}",
        f"{worker.waiting:.0%}",
        str(worker.restarts),
        *memory_cells(worker.memory),
        _doing(worker),
    ]


def _doing(worker: WorkerView) -> str:
    if not worker.is_there:
        return "gone"
    if worker.running is not None and worker.running_for >= _LONG:
        return f"env {worker.running} for {worker.running_for:.0f} s"
    return "" if worker.pid is not None else "on another machine"


def _summary(view: PoolView) -> str:
    text = (
        f"{view.steps_per_second:,.0f} steps/s in {view.calls_per_second:,.0f} "
        "calls/s of its program"
    )
    restarts = sum(worker.restarts for worker in view.workers)
    if restarts:
        text += f"; {counted(restarts, 'restart')} so far"
    slowest = view.slowest
    if slowest is not None:
        text += (
            f"\nslowest: env {slowest.env} (worker {slowest.worker}), about "
            f"{1e6 * slowest.seconds_per_step:,.0f} us a step, "
            f"{slowest.times:.1f} times the median environment's"
        )
    return text


def view_as_data(view: PoolView) -> dict[str, Any]:
    """Returns the work of a pool's workers as data that JSON can hold."""
    (pool,) = list_as_data([view.pool])
    slowest = view.slowest
    return {
        **pool,
        "seconds": view.seconds,
        "steps_per_second": view.steps_per_second,
        "calls_per_second": view.calls_per_second,
        "slowest": None if slowest is None else slowest._asdict(),
        "per_worker": [
            {
                **asdict(worker),
                "rows": list(range(*worker.rows)),
                "memory": None if worker.memory is None else worker.memory._asdict(),
            }
            for worker in view.workers
        ],
    }
