"""`PoolStatistics`: the workers' counts so far, and their current state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from envkit.parallel.slab_layout import (
    AWAITED_NS,
    BUSY_NS,
    HIDDEN_NS,
    HIDDEN_RESETS,
    RESETS,
    STEPS,
    WAITING_NS,
)

if TYPE_CHECKING:
    from envkit.parallel.backends.base import Backend
    from envkit.parallel.pool import Pool

__all__ = ["PoolStatistics", "WorkerStatistics", "statistics_of"]


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """The counts of one worker since the pool started.

    Attributes:
        worker: Its index.
        pid: Its process; the caller's if it is a thread, 0 if it is gone.
        envs: The rows it runs.
        steps: How many commands its rows have executed, resets included.
        resets: How many episodes it has begun.
        restarts: How many times it, or an environment in it, was replaced.
        stepping: Seconds it spent executing commands.
        waiting: Seconds it spent waiting for commands.
        resident_bytes: Its memory; 0 for a thread.
        is_alive: Whether it is running.
        host: Its machine, if that may not be the pool's.
        recovered: How many lost environments were recovered, bit for bit.
        hidden_resets: How many resets were over before their rows were asked. The
            caller waited for the others.
        hidden_seconds: How long the caller would have waited for these.
        awaited_seconds: How long the other resets took, if some are hidden.
        replaced: How many times it was replaced for exceeding `max_worker_memory`.
    """

    worker: int
    pid: int
    envs: tuple[int, ...]
    steps: int
    resets: int
    restarts: int
    stepping: float
    waiting: float
    resident_bytes: int
    is_alive: bool
    host: str = ""
    recovered: int = 0
    hidden_resets: int = 0
    hidden_seconds: float = 0.0
    awaited_seconds: float = 0.0
    replaced: int = 0

    @property
    def seconds_per_step(self) -> float:
        """The average seconds per step; stragglers stand out here."""
        return self.stepping / self.steps if self.steps else 0.0


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """The counts of all workers since the pool started.

    Attributes:
        workers: The workers, one by one.
        calls: How many batch steps and resets the caller has made.
        elapsed: Seconds the caller has spent in them.
    """

    workers: tuple[WorkerStatistics, ...]
    calls: int
    elapsed: float

    @property
    def steps(self) -> int:
        """How many commands all rows have executed in total."""
        return sum(worker.steps for worker in self.workers)

    @property
    def resets(self) -> int:
        """How many episodes have begun."""
        return sum(worker.resets for worker in self.workers)

    @property
    def restarts(self) -> int:
        """How many workers and environments were replaced after failures."""
        return sum(worker.restarts for worker in self.workers)

    @property
    def recovered(self) -> int:
        """How many environments of lost workers were recovered, bit for bit."""
        return sum(worker.recovered for worker in self.workers)

    @property
    def hidden_resets(self) -> int:
        """How many resets had finished before their rows were asked to begin."""
        return sum(worker.hidden_resets for worker in self.workers)

    @property
    def hidden_seconds(self) -> float:
        """How long the caller would have waited for the hidden resets."""
        return sum(worker.hidden_seconds for worker in self.workers)

    @property
    def awaited_seconds(self) -> float:
        """How long the other resets took, if some are hidden."""
        return sum(worker.awaited_seconds for worker in self.workers)

    @property
    def replaced(self) -> int:
        """How many times workers were replaced for exceeding `max_worker_memory`."""
        return sum(worker.replaced for worker in self.workers)

    @property
    def resident_bytes(self) -> int:
        """The total memory of all workers."""
        return sum(worker.resident_bytes for worker in self.workers)

    def __str__(self) -> str:
        rows = [
            "worker     pid   envs       steps  resets  restarts  us/step  busy  memory"
        ]
        has_hosts = any(worker.host for worker in self.workers)
        has_hidden = self.hidden_resets > 0
        rows[0] += "  hidden" * has_hidden + "  host" * has_hosts
        for worker in self.workers:
            total = worker.stepping + worker.waiting
            busy = worker.stepping / total if total else 0.0
            envs = f"{worker.envs[0]}-{worker.envs[-1]}"
            rows.append(
                f"{worker.worker:>6} {worker.pid:>7}  {envs:>5}  {worker.steps:>10}  "
                f"{worker.resets:>6}  {worker.restarts:>8}  "
                f"{worker.seconds_per_step * 1e6:>7.1f}  {busy:>4.0%}  "
                f"{worker.resident_bytes / 2**20:>4.0f} MB"
                + f"  {worker.hidden_resets:>6}" * has_hidden
                + f"  {worker.host}" * has_hosts
            )
        return "\n".join(rows)


def statistics_of(
    pool: Pool, backend: Backend, calls: int, elapsed: float
) -> PoolStatistics:
    """Reads the workers' counts from shared memory.

    Args:
        pool: The workers.
        backend: The backend that runs them.
        calls: How many batch steps and resets the caller has made.
        elapsed: Seconds the caller has spent in them.
    """
    slab = pool.slab
    meters = [slab.counters(worker).tolist() for worker in slab.layout.workers]
    workers = tuple(
        WorkerStatistics(
            worker=index,
            pid=pid,
            envs=tuple(range(*pool.layout.blocks[index])),
            steps=meters[index][STEPS],
            resets=meters[index][RESETS],
            restarts=worker.restarts,
            stepping=meters[index][BUSY_NS] / 1e9,
            waiting=meters[index][WAITING_NS] / 1e9,
            resident_bytes=backend.resident(index),
            # Another thread may replace the worker at the same time, so compare its
            # process, and check that it has one.
            is_alive=worker.is_ready and worker.pid == pid > 0,
            host=worker.host,
            hidden_resets=meters[index][HIDDEN_RESETS],
            hidden_seconds=meters[index][HIDDEN_NS] / 1e9,
            awaited_seconds=meters[index][AWAITED_NS] / 1e9,
            **pool.counts(index),
        )
        for index, (pid, worker) in enumerate(
            (backend.pid(index), worker)
            for index, worker in enumerate(pool.workers.workers)
        )
    )
    return PoolStatistics(workers, calls, elapsed)
