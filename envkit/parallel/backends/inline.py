"""`InlineBackend`: runs environments in the caller's thread, for debugging."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar

from envkit.parallel.backends.base import Event, Raised, Replied, Started
from envkit.parallel.messages import (
    ExitReport,
    Hello,
    RemoteFailure,
    Request,
    WorkerJob,
)
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import BUSY_NS, RUNS, SlabLayout
from envkit.parallel.system.cpus import available_cpus
from envkit.parallel.worker.environments import log_at_close
from envkit.parallel.worker.runner import EnvRunner
from envkit.types import Array

__all__ = ["InlineBackend"]

_LOGGER = logging.getLogger(__name__)


class InlineBackend:
    """Runs every environment immediately, inside the call that asks for it.

    Nothing runs in parallel and nothing can be killed. But breakpoints and tracebacks
    work as in an ordinary program, and the cheapest environments are fastest here.
    """

    name: ClassVar[str] = "inline"
    can_kill: ClassVar[bool] = False
    keeps_answers: ClassVar[bool] = True
    keeps_states: ClassVar[bool] = True
    cuts_workers: ClassVar[bool] = True
    now = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._runners: dict[int, EnvRunner] = {}
        self._queue: deque[Event] = deque()
        self._slab: Slab | None = None
        # What constructors have returned.
        self._made: dict[int, Any] = {}

    def places(self) -> int | None:
        """Returns `None`: any number of workers can be started."""
        return None

    def usual_workers(self) -> int:
        """Returns the default number of workers: one for each CPU."""
        return available_cpus()

    def start(self, jobs: Sequence[WorkerJob]) -> None:
        """Builds the environments of all jobs."""
        for job in jobs:
            # Ctrl-C passes through to the caller, whose thread this is.
            runner = EnvRunner(job, (KeyboardInterrupt,), self._made)
            hello = runner.build()
            if isinstance(hello, Hello):
                self._runners[job.worker] = runner
                slab = self._slab
                if slab is not None and job.worker in slab.layout.workers:
                    self._bind(job.worker)
            self._queue.append(Started(job.worker, hello))

    def bind(self, layout: SlabLayout) -> Slab:
        """Makes the slab in ordinary memory."""
        before, self._slab = self._slab, Slab(layout)
        if before is not None:
            self._slab.adopt(before)
        for worker in layout.workers:
            self._bind(worker)
        return self._slab

    def _bind(self, worker: int) -> None:
        assert self._slab is not None  # since bind()
        runner = self._runners[worker]
        if runner.is_bound:
            log_at_close(_LOGGER, runner.move(self._slab, worker))
            return
        runner.bind(self._slab, worker)
        runner.tell_failure = self._queue_failure

    def _queue_failure(self, rows: Sequence[int], failure: RemoteFailure) -> None:
        self._queue.append(Raised(tuple(rows), failure))

    def publish(self, plate: bytes) -> None:
        """Does nothing: other processes cannot see the rows."""

    def dispatch(self, rows: Array | None) -> None:
        """Runs the rows that were asked; after Ctrl-C the next call runs the rest."""
        assert self._slab is not None  # since bind()
        clock = time.perf_counter_ns
        for worker, runner in self._runners.items():
            began = clock()
            if rows is None:
                ran = runner.run_pending()
            else:
                wanted = set(rows.tolist())
                pending = [row for row in runner.pending() if row in wanted]
                ran = len(pending)
                if ran:
                    runner.run(pending)
            if ran:
                meters = self._slab.counters(worker)
                meters[BUSY_NS] += clock() - began
                meters[RUNS] += 1
            # Eager resets run here too, so that rows and environments end up the same
            # with every backend.
            while runner.due:
                runner.reset_next(is_hidden=False)

    def wait_events(self, timeout: float | None, owing: int = -1) -> deque[Event]:
        """Returns the events; nothing can happen during a wait."""
        return self._queue

    def request(self, worker: int, request: Request) -> None:
        """Answers a request."""
        self._queue.append(Replied(worker, self._runners[worker].handle(request)))

    def replace(self, worker: int, job: WorkerJob) -> None:
        """Rebuilds the environments of a worker."""
        self.start([job])

    def kill(self, worker: int) -> None:
        """Does nothing: the worker is the thread that calls this."""

    def resident(self, worker: int) -> int:
        """Returns 0: the memory is the caller's own."""
        return 0

    def pid(self, worker: int) -> int:
        """Returns this process."""
        return os.getpid()

    def is_worker(self) -> bool:
        """Returns False: the `CallLock` detects environments that use their pool."""
        return False

    def wake(self) -> None:
        """Does nothing: `wait_events` never waits."""

    def close(self, grace: float) -> list[ExitReport]:
        """Closes the environments."""
        runners, self._runners = self._runners, {}
        for runner in runners.values():
            log_at_close(_LOGGER, runner.close())
        return []

    def retire(self, workers: Sequence[int], grace: float) -> None:
        """Closes the environments of workers that are no longer needed."""
        runners = [self._runners.pop(w) for w in workers if w in self._runners]
        for runner in runners:
            log_at_close(_LOGGER, runner.close())

    def forget(self) -> None:
        """Does nothing: a fork of this process inherits no descriptors."""
