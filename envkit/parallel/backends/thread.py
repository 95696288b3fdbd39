"""`ThreadBackend`: runners in threads, for environments that wait or free the GIL."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from envkit.parallel.backends.base import (
    Event,
    Exited,
    Failed,
    Finished,
    Replied,
    Started,
)
from envkit.parallel.hosting import EnvironmentHost, lines_at_close
from envkit.parallel.messages import (
    ExitReport,
    Hello,
    RemoteFailure,
    Request,
    WorkerJob,
)
from envkit.parallel.runner import EnvRunner
from envkit.parallel.slab import (
    BUSY_NS,
    RUNS,
    WAITING_NS,
    Slab,
    SlabLayout,
)
from envkit.types import Array

__all__ = ["ThreadBackend"]

_LOGGER = logging.getLogger(__name__)

# A thread that waits without end does not hear Ctrl-C everywhere, so it looks up.
_GLANCE = 0.5


class ThreadBackend:
    """Runs each worker in a thread, which builds, steps and closes its environments.

    A thread cannot be killed: one whose environment hangs is given up, and ends when
    the environment lets it.
    """

    name: ClassVar[str] = "thread"
    can_kill: ClassVar[bool] = False

    def __init__(self) -> None:
        """Prepares; no thread is started yet."""
        self._workers: dict[int, _WorkerThread] = {}
        self._given_up: list[_WorkerThread] = []
        self._queue: deque[Event] = deque()
        # Written in C, so Ctrl-C finds it whole, as it would not a condition.
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._news: deque[tuple[_WorkerThread, Event]] = deque()
        self._failures: dict[int, RemoteFailure] = {}
        self._slab: Slab | None = None
        self._asked: Array = np.zeros(0, bool)
        self._hosts: list[EnvironmentHost] = []
        self._is_ending = False

    def start(self, jobs: Sequence[WorkerJob]) -> None:
        """Begins to start threads."""
        for job in jobs:
            thread = _WorkerThread(job, self._tell, self._hosts)
            self._workers[job.worker] = thread
            thread.start()

    def _tell(self, thread: _WorkerThread, event: Event | None) -> None:
        """Takes what a thread has to say, and wakes whoever waits."""
        if event is not None:
            self._news.append((thread, event))
        self._bell.put(None)

    def bind(self, layout: SlabLayout) -> Slab:
        """Makes the slab in ordinary memory."""
        self._slab = Slab(layout)
        self._asked = np.zeros(layout.rows, bool)
        self._worker_of_row = np.repeat(
            np.arange(len(layout.blocks)),
            [stop - first for first, stop in layout.blocks],
        )
        for thread in self._workers.values():
            thread.bind(self._slab, self._failures)
        return self._slab

    def dispatch(self, rows: Array | None) -> None:
        """Wakes the threads whose rows were asked."""
        if rows is None:
            self._asked[:] = True
            threads = list(self._workers.values())
        else:
            self._asked[rows] = True
            workers = np.unique(self._worker_of_row[rows]).tolist()
            threads = [self._workers[worker] for worker in workers]
        for thread in threads:
            thread.wake()

    def wait_events(self, timeout: float | None, count: int = 1) -> deque[Event]:
        """Returns what has happened; what stays in the queue is returned again."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._gather(count):
            left = _GLANCE if deadline is None else deadline - time.monotonic()
            if left <= 0 or self._is_ending:
                self._gather(0)
                break
            # What woke it does not matter: all there is to know is looked at again.
            with contextlib.suppress(queue.Empty):
                self._bell.get(timeout=min(left, _GLANCE))
        return self._queue

    def _gather(self, count: int) -> bool:
        """Queues the news and the rows that have answered; says if there are any."""
        while self._news:
            thread, event = self._news[0]
            # Whoever was given up has nothing to say any more.
            if self._workers.get(thread.job.worker) is thread:
                self._queue.append(event)
                if isinstance(event, Started) and self._slab is not None:
                    thread.bind(self._slab, self._failures)
            self._news.popleft()
        if self._slab is None or self._queue:
            return bool(self._queue)
        rows = np.flatnonzero(self._asked & self._slab.answered_rows())
        raised = self._slab.raised_rows(rows)
        enough = min(count, int(np.count_nonzero(self._asked)))
        if not rows.size or (rows.size < enough and not raised.size):
            return False
        whole = np.setdiff1d(rows, raised, assume_unique=True)
        # First: interrupted here, they are asked again by whoever waits next.
        self._asked[rows] = False
        if whole.size:
            self._queue.append(Finished(whole))
        if raised.size:
            self._queue.append(
                Failed({row: self._failures[row] for row in raised.tolist()})
            )
        return True

    def request(self, worker: int, request: Request) -> None:
        """Asks an idle worker something; the answer will be an event `Replied`."""
        self._workers[worker].ask(request)

    def replace(self, worker: int, job: WorkerJob) -> None:
        """Begins to start a thread in the place of one that was given up."""
        old = self._workers.pop(worker, None)
        if old is not None:
            old.give_up()
            self._given_up.append(old)
        self.start([job])

    def kill(self, worker: int) -> None:
        """Gives a thread up: from now on nobody listens to it."""
        thread = self._workers.pop(worker, None)
        if thread is None:
            return
        thread.give_up()
        self._given_up.append(thread)
        if self._slab is not None:
            first, stop = self._slab.layout.blocks[worker]
            self._asked[first:stop] = False
        self._queue.append(Exited(worker, ExitReport(worker, os.getpid())))

    def resident(self, worker: int) -> int:
        """Returns 0: the memory is the caller's own."""
        return 0

    def pid(self, worker: int) -> int:
        """Returns this process."""
        return os.getpid()

    def is_worker(self) -> bool:
        """Says whether the thread that asks is a worker."""
        return threading.current_thread() in self._workers.values()

    def wake(self) -> None:
        """Lets another thread that waits return at once."""
        self._is_ending = True
        self._bell.put(None)

    def close(self, grace: float) -> list[ExitReport]:
        """Lets every thread close its environments and end."""
        threads = [*self._workers.values(), *self._given_up]
        self._workers, self._given_up = {}, []
        for thread in threads:
            thread.give_up()
        deadline = time.monotonic() + grace
        for thread in threads:
            if thread is threading.current_thread():
                continue  # An environment closes its own pool.
            thread.join(max(deadline - time.monotonic(), 0.0))
            if thread.is_alive():
                _LOGGER.warning(
                    "worker %d is still in its environment after %g s; its thread "
                    "ends when the environment lets it",
                    thread.job.worker,
                    grace,
                )
        return []

    def forget(self) -> None:
        """Holds nothing that a fork of the parent would have to close."""


class _WorkerThread(threading.Thread):
    """Carries a runner in a thread of its own."""

    def __init__(
        self,
        job: WorkerJob,
        tell: Callable[[_WorkerThread, Event | None], None],
        hosts: list[EnvironmentHost],
    ) -> None:
        super().__init__(name=f"envkit-worker-{job.worker}", daemon=True)
        self.job = job
        self._tell = tell
        self._hosts = hosts
        self._orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_given_up = False

    def bind(self, slab: Slab, failures: dict[int, RemoteFailure]) -> None:
        self._orders.put(("bind", slab, failures))

    def wake(self) -> None:
        self._orders.put(("run",))

    def ask(self, request: Request) -> None:
        self._orders.put(("ask", request))

    def give_up(self) -> None:
        self._is_given_up = True
        self._orders.put(("end",))

    def run(self) -> None:
        runner = EnvRunner(self.job, (_GivenUpError,), self._hosts)
        hello = runner.build()
        self._tell(self, Started(self.job.worker, hello))
        if isinstance(hello, Hello):
            try:
                with contextlib.suppress(_GivenUpError):
                    self._serve(runner)
                if not self._is_given_up:
                    self._tell(self, Exited(self.job.worker, self._report()))
            except BaseException:
                # Nobody is to wait for a thread that is gone.
                self._tell(self, Exited(self.job.worker, self._report()))
                raise
            finally:
                for line in lines_at_close(runner.close()):
                    _LOGGER.warning("%s", line)

    def _report(self) -> ExitReport:
        return ExitReport(self.job.worker, os.getpid())

    def _serve(self, runner: EnvRunner) -> None:
        worker = self.job.worker
        clock = time.perf_counter_ns
        before = woken = clock()

        def count() -> None:
            nonlocal before
            after = clock()
            meters[BUSY_NS] += after - woken
            meters[WAITING_NS] += woken - before
            meters[RUNS] += 1
            before = after

        runner.before_last_mark = count
        while True:
            order = self._orders.get()
            if self._is_given_up:
                return
            match order:
                case ("bind", slab, failures):
                    self._bind(runner, slab, failures)
                    meters = memoryview(slab.meters[worker])
                case ("ask", request):
                    self._tell(self, Replied(worker, runner.handle(request)))
                case ("run",):
                    woken = clock()
                    if runner.run_pending():
                        self._tell(self, None)

    def _bind(
        self, runner: EnvRunner, slab: Slab, failures: dict[int, RemoteFailure]
    ) -> None:
        def tell_failure(rows: Sequence[int], failure: RemoteFailure) -> None:
            self._leave_if_given_up()
            for row in rows:
                failures[row] = failure

        runner.bind(slab, self.job.worker, may_write=self._leave_if_given_up)
        runner.tell_failure = tell_failure
        if self.job.rings_each_row:
            runner.after_row = lambda: self._tell(self, None)

    def _leave_if_given_up(self) -> None:
        # Another worker has these rows now.
        if self._is_given_up:
            raise _GivenUpError


class _GivenUpError(BaseException):
    """A thread comes back from an environment after it was given up.

    No `Exception`, so that nothing on its way out takes it for the environment's.
    """
