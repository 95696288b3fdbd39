"""`Onlooker`: reads the counters of a pool of another process, and makes rates of them.

It opens the pool's memory for reading only, so it can neither change nor delay
anything. It does not map it: memory that its owner makes smaller ends those who have it
mapped.
What workers count they count anyway. Which environment runs at a moment nobody counts:
that is seen by glancing at the rows many times, as a sampling profiler does.
"""

from __future__ import annotations

import bisect
import os
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from envkit.cli.process_memory import Memory, memory_of
from envkit.cli.top_parts import processes
from envkit.cli.top_parts.pools import FoundPool
from envkit.parallel.slab import (
    BUSY_NS,
    CLOSED,
    IDLE,
    NO_PROCESS,
    PROCESS,
    RAISED,
    RESETS,
    RESTARTS,
    STEPS,
    WAITING_NS,
)
from envkit.types import Array

__all__ = ["Onlooker", "PoolView", "SlowEnvironment", "WorkerView"]

# Fewer glances at a worker's rows say nothing about which of them is slow.
_ENOUGH_GLANCES = 20
# To ask the system for it takes a while where a process has much.
_MEMORY_EVERY = 5.0


class SlowEnvironment(NamedTuple):
    """An environment that takes longer than the others.

    Attributes:
        env: Its index.
        worker: The worker that runs it.
        seconds_per_step: What one of its steps takes, about.
        times: How many times as long as that of the median environment.
    """

    env: int
    worker: int
    seconds_per_step: float
    times: float


@dataclass(frozen=True, slots=True)
class WorkerView:
    """What a worker did while somebody looked.

    Attributes:
        worker: Its index.
        pid: Its process as it is called here; `None` if there is none now.
        rows: Its first row and the row after its last.
        steps: How many commands it has executed since the pool began.
        resets: How many episodes it has begun since then.
        restarts: How often it, or an environment in it, was replaced.
        steps_per_second: How many commands it has executed in a second.
        busy: The share of the time in which it executed commands.
        waiting: The share in which it waited for some.
        running: The environment that it is busy with now, if it is.
        running_for: For how many seconds that has been seen.
        memory: What its process holds; `None` where nobody may ask.
    """

    worker: int
    pid: int | None
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
    """What a pool did while somebody looked.

    Attributes:
        pool: The pool.
        seconds: For how long it was looked at.
        calls_per_second: How often its caller asked rows in a second.
        workers: Its workers.
        slowest: The slowest environment; `None` if nothing can be said.
    """

    pool: FoundPool
    seconds: float
    calls_per_second: float
    workers: tuple[WorkerView, ...]
    slowest: SlowEnvironment | None

    @property
    def steps_per_second(self) -> float:
        """How many commands all rows have executed in a second."""
        return sum(worker.steps_per_second for worker in self.workers)


class _Sight(NamedTuple):
    """The counters at a moment."""

    at: float
    calls: int
    sequence: Array
    meters: Array


class Onlooker:
    """Looks at one pool."""

    def __init__(self, pool: FoundPool) -> None:
        """Opens the pool's memory; `close` gives it back.

        Raises:
            ProcessLookupError: The pool has just ended.
        """
        self.pool = pool
        self._plate = pool.plate
        self._workers, self._rows = len(pool.plate.blocks), pool.plate.rows
        self._is_whole = True
        try:
            self._fd = os.open(pool.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            raise ProcessLookupError(f"The pool of {pool} has ended.") from None
        self._members = dict(pool.members)
        self._memory: dict[int, tuple[float, Memory | None]] = {}
        # How often each row was seen running, and of those it was seen in last: since
        # when, and the number of its request.
        self._glances = np.zeros(self._rows, np.int64)
        self._since: dict[int, tuple[int, int, float]] = {}
        self._first = self._before = self._look()

    def close(self) -> None:
        """Gives the memory back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def has_ended(self) -> str | None:
        """Says how the pool has ended, if it has."""
        if not processes.exists(self.pool.pid):
            return f"{self.pool} has ended, and its pool with it."
        if not self._is_whole:
            return f"The memory of the pool of {self.pool} can no longer be read."
        if (self._staff()[:, PROCESS] == CLOSED).all():
            return f"The pool of {self.pool} was closed."
        return None

    def glance(self) -> None:
        """Notes which row each worker is busy with, if it is."""
        now = time.monotonic()
        sequence = self._array("sequence", np.uint32, self._rows)
        command = self._array("command", np.uint8, self._rows)
        answered = self._array("answered", np.uint32, self._rows)
        owed = ((sequence ^ answered) > RAISED) & (command != IDLE)
        for worker, (first, stop) in enumerate(self._plate.blocks):
            rows = np.flatnonzero(owed[first:stop])
            if not rows.size:
                self._since.pop(worker, None)
                continue
            # A worker runs its rows one after the other.
            row = first + int(rows[0])
            self._glances[row] += 1
            seen = self._since.get(worker)
            if seen is None or seen[:2] != (row, int(sequence[row])):
                self._since[worker] = (row, int(sequence[row]), now)

    def view(self) -> PoolView:
        """Returns what has happened since the last view."""
        before, now = self._before, self._look()
        self._before = now
        seconds = max(now.at - before.at, 1e-9)
        staff = self._staff()
        made = now.meters - before.meters
        workers = []
        for worker, (first, stop) in enumerate(self._plate.blocks):
            process = int(staff[worker, PROCESS])
            pid = self._outer_pid(process) if process > NO_PROCESS else None
            running = self._since.get(worker) if pid is not None else None
            workers.append(
                WorkerView(
                    worker=worker,
                    pid=pid,
                    rows=(first, stop),
                    steps=int(now.meters[worker, STEPS]),
                    resets=int(now.meters[worker, RESETS]),
                    restarts=int(staff[worker, RESTARTS]),
                    steps_per_second=float(made[worker, STEPS] / seconds),
                    busy=_share(made[worker, BUSY_NS], seconds),
                    waiting=_share(made[worker, WAITING_NS], seconds),
                    running=self._env_of(running[0]) if running else None,
                    running_for=now.at - running[2] if running else 0.0,
                    memory=self._memory_of(pid, now.at),
                )
            )
        return PoolView(
            pool=self.pool,
            seconds=seconds,
            calls_per_second=(now.calls - before.calls) / seconds,
            workers=tuple(workers),
            slowest=self._slowest(now),
        )

    def _slowest(self, now: _Sight) -> SlowEnvironment | None:
        """Finds the environment whose steps take longest, of all that was seen."""
        made = now.meters - self._first.meters
        # A request is two numbers; they begin anew after the largest.
        numbers = (now.sequence - self._first.sequence).astype(np.int64) >> 1
        firsts = [*self._plate.first_rows, self._rows]
        times: dict[int, float] = {}
        workers: dict[int, int] = {}
        for worker, (first, stop) in enumerate(self._plate.blocks):
            busy = made[worker, BUSY_NS] / 1e9
            envs = range(self._env_of(first), self._env_of(stop - 1) + 1)
            glances = {
                env: int(self._glances[firsts[env] : firsts[env + 1]].sum())
                for env in envs
            }
            seen = sum(glances.values())
            if len(envs) > 1 and seen < _ENOUGH_GLANCES:
                continue
            for env in envs:
                steps = int(numbers[firsts[env]])
                share = 1.0 if len(envs) == 1 else glances[env] / seen
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
        return bisect.bisect_right(self._plate.first_rows, row) - 1

    def _outer_pid(self, process: int) -> int | None:
        """Returns how a worker's process is called here, in a container or not.

        `None` if it has ended, which its parent may not have seen yet.
        """
        pid = self._members.get(process)
        if pid is None:  # It is new. Only in a container is it called otherwise.
            inside = self._plate.pid != self.pool.pid
            pid = self._found_outside(process) if inside else process
        if pid is None or not processes.exists(pid):
            self._members.pop(process, None)
            return None
        self._members[process] = pid
        return pid

    def _found_outside(self, process: int) -> int | None:
        for pid in processes.pids():
            if processes.inner_pid(pid) == process and any(
                inode == self.pool.inode for _, inode in processes.shared(pid)
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

    def _look(self) -> _Sight:
        modes = self._array("modes", np.uint64, 8)
        meters = self._array("meters", np.int64, 8 * self._workers)
        return _Sight(
            at=time.monotonic(),
            calls=int(modes[1]),
            sequence=self._array("sequence", np.uint32, self._rows),
            meters=meters.reshape(self._workers, 8),
        )

    def _staff(self) -> Array:
        found = self._array("staff", np.int64, 2 * self._workers)
        return found.reshape(self._workers, 2)

    def _array(self, name: str, dtype: Any, count: int) -> Array:
        """Returns a copy of an array in the pool's memory."""
        place = self._plate.places[name]
        size = count * np.dtype(dtype).itemsize
        found = os.pread(self._fd, size, place)
        if len(found) < size:
            self._is_whole = False
            found = found.ljust(size, b"\0")
        return np.frombuffer(found, dtype)


def _share(nanoseconds: Any, seconds: float) -> float:
    return min(1.0, float(nanoseconds) / 1e9 / seconds)
