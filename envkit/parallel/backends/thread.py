"""`ThreadBackend`: workers as threads, for environments that wait or free the GIL."""

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

from envkit.parallel.backends.base import (
    Event,
    Exited,
    Raised,
    Replied,
    Started,
    drop_events_of,
)
from envkit.parallel.messages import (
    ExitReport,
    Hello,
    RemoteFailure,
    Request,
    WorkerJob,
)
from envkit.parallel.row_sets import distinct
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import SlabLayout
from envkit.parallel.system.cpus import available_cpus
from envkit.parallel.system.ctrl_c import uninterrupted
from envkit.parallel.worker.environments import log_at_close
from envkit.parallel.worker.runner import EnvRunner
from envkit.types import Array

__all__ = ["ThreadBackend"]

_LOGGER = logging.getLogger(__name__)

# Waits are this short because on some platforms Ctrl-C does not interrupt an endless
# one.
_POLL_INTERVAL = 0.5


class ThreadBackend:
    """Runs each worker in a thread, which builds, steps and closes its environments.

    A thread cannot be killed. If its environment hangs, the thread is abandoned, and
    ends when the environment returns.
    """

    name: ClassVar[str] = "thread"
    can_kill: ClassVar[bool] = False
    keeps_answers: ClassVar[bool] = True
    keeps_states: ClassVar[bool] = True
    cuts_workers: ClassVar[bool] = True
    now = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._workers: dict[int, _WorkerThread] = {}
        self._given_up: list[_WorkerThread] = []
        self._queue: deque[Event] = deque()
        # Written in C, so Ctrl-C cannot leave it inconsistent as it can a `Condition`.
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._news: deque[tuple[_WorkerThread, Event]] = deque()
        self._slab: Slab | None = None
        # What constructors have returned.
        self._made: dict[int, Any] = {}
        self._is_ending = False

    def places(self) -> int | None:
        """Returns `None`: any number of workers can be started."""
        return None

    def usual_workers(self) -> int:
        """Returns the default number of workers: one for each CPU."""
        return available_cpus()

    def start(self, jobs: Sequence[WorkerJob]) -> None:
        """Begins to start threads."""
        for job in jobs:
            thread = _WorkerThread(job, self._tell, self._made)
            self._workers[job.worker] = thread
            thread.start()

    def _tell(self, thread: _WorkerThread, event: Event | None) -> None:
        """Records an event of a thread, if given, and ends the pool's wait."""
        if event is not None:
            self._news.append((thread, event))
        # A ring that nobody has heard yet tells this news too. Callers that never sleep
        # hear none, and the rings would pile up.
        if self._bell.empty():
            self._bell.put(None)

    def bind(self, layout: SlabLayout) -> Slab:
        """Makes the slab in ordinary memory."""
        before, self._slab = self._slab, Slab(layout)
        if before is not None:
            self._slab.adopt(before)
        self._worker_of_row = layout.worker_of_row
        for worker, thread in self._workers.items():
            if worker in layout.workers:
                thread.bind(self._slab)
        return self._slab

    def publish(self, plate: bytes) -> None:
        """Does nothing: other processes cannot see the rows."""

    def dispatch(self, rows: Array | None) -> None:
        """Wakes the threads whose rows were asked."""
        if rows is None:
            threads = list(self._workers.values())
        else:
            workers = distinct(self._worker_of_row[rows])
            threads = [self._workers[w] for w in workers if w in self._workers]
        for thread in threads:
            thread.wake()

    def wait_events(self, timeout: float | None, owing: int = -1) -> deque[Event]:
        """Waits for events, and returns them."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._has_come(owing):
            left = _POLL_INTERVAL if deadline is None else deadline - time.monotonic()
            if left <= 0 or self._is_ending:
                break
            # It does not matter which ring woke us: everything is checked again.
            with contextlib.suppress(queue.Empty):
                self._bell.get(timeout=min(left, _POLL_INTERVAL))
        return self._queue

    def _has_come(self, owing: int) -> bool:
        # Read the slab first: an event sent before a row was marked is then in the
        # queue.
        has_come = self._slab is not None and self._slab.has_come(owing)
        if self._news:
            with uninterrupted():
                self._handle_news()
        return has_come or bool(self._queue)

    def _handle_news(self) -> None:
        while self._news:
            thread, event = self._news.popleft()
            # An abandoned thread is not a worker any more.
            if self._workers.get(thread.job.worker) is thread:
                slab = self._slab
                worker, is_new = thread.job.worker, isinstance(event, Started)
                if is_new and slab is not None and worker in slab.layout.workers:
                    thread.bind(slab)
                self._queue.append(event)

    def request(self, worker: int, request: Request) -> None:
        """Asks an idle worker a question; the answer arrives as an event `Replied`."""
        self._workers[worker].ask(request)

    def replace(self, worker: int, job: WorkerJob) -> None:
        """Begins to start a thread in place of an abandoned one."""
        old = self._workers.pop(worker, None)
        if old is not None:
            old.give_up()
            self._given_up.append(old)
        self.start([job])

    def kill(self, worker: int) -> None:
        """Abandons a thread: from now on, nothing it does counts."""
        thread = self._workers.pop(worker, None)
        if thread is None:
            return
        thread.give_up()
        self._given_up.append(thread)
        self._queue.append(Exited(worker, ExitReport(worker, os.getpid())))

    def resident(self, worker: int) -> int:
        """Returns 0: the memory is the caller's own."""
        return 0

    def pid(self, worker: int) -> int:
        """Returns this process."""
        return os.getpid()

    def is_worker(self) -> bool:
        """Returns True in a worker's thread, which must not wait for the pool."""
        return threading.current_thread() in self._workers.values()

    def wake(self) -> None:
        """Ends another thread's wait; from now on `wait_events` does not wait."""
        self._is_ending = True
        self._bell.put(None)

    def close(self, grace: float) -> list[ExitReport]:
        """Makes every thread close its environments and end."""
        threads = [*self._workers.values(), *self._given_up]
        self._workers, self._given_up = {}, []
        _end(threads, grace)
        return []

    def retire(self, workers: Sequence[int], grace: float) -> None:
        """Ends the threads of workers that are no longer needed."""
        threads = [self._workers.pop(w) for w in workers if w in self._workers]
        self._given_up += threads
        drop_events_of(workers, self._queue)
        _end(threads, grace)
        self._given_up = [each for each in self._given_up if each.is_alive()]

    def forget(self) -> None:
        """Does nothing: a fork of this process inherits no descriptors."""


def _end(threads: Sequence[_WorkerThread], grace: float) -> None:
    """Makes threads close their environments and end, within `grace` seconds."""
    for thread in threads:
        thread.give_up()
    deadline = time.monotonic() + grace
    for thread in threads:
        if thread is threading.current_thread():
            continue  # An environment is closing its own pool.
        thread.join(max(deadline - time.monotonic(), 0.0))
        if thread.is_alive():
            _LOGGER.warning(
                "worker %d is still in its environment after %g s; its thread "
                "ends when the environment lets it",
                thread.job.worker,
                grace,
            )


class _WorkerThread(threading.Thread):
    """Runs a worker in its own thread."""

    def __init__(
        self,
        job: WorkerJob,
        tell: Callable[[_WorkerThread, Event | None], None],
        made: dict[int, Any],
    ) -> None:
        super().__init__(name=f"envkit-worker-{job.worker}", daemon=True)
        self.job = job
        self._tell = tell
        self._made = made
        self._orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_given_up = False

    def bind(self, slab: Slab) -> None:
        self._orders.put(("bind", slab))

    def wake(self) -> None:
        self._orders.put(("run",))

    def ask(self, request: Request) -> None:
        self._orders.put(("ask", request))

    def give_up(self) -> None:
        self._is_given_up = True
        self._orders.put(("end",))

    def run(self) -> None:
        runner = EnvRunner(self.job, (_GivenUpError,), self._made)
        hello = runner.build()
        self._tell(self, Started(self.job.worker, hello))
        if isinstance(hello, Hello):
            try:
                with contextlib.suppress(_GivenUpError):
                    self._serve(runner)
                if not self._is_given_up:
                    self._tell(self, Exited(self.job.worker, self._report()))
            except BaseException:
                # Otherwise the pool would wait for a thread that has ended.
                self._tell(self, Exited(self.job.worker, self._report()))
                raise
            finally:
                log_at_close(_LOGGER, runner.close())

    def _report(self) -> ExitReport:
        return ExitReport(self.job.worker, os.getpid())

    def _serve(self, runner: EnvRunner) -> None:
        worker = self.job.worker
        now = time.perf_counter_ns
        while True:
            while runner.due and self._orders.empty():
                runner.reset_next()
                runner.clock.before = now()
            order = self._orders.get()
            if self._is_given_up:
                return
            match order:
                case ("bind", slab):
                    self._bind(runner, slab)
                    runner.start_clock()
                case ("ask", request):
                    self._tell(self, Replied(worker, runner.handle(request)))
                case ("run",):
                    runner.clock.woken = now()
                    if runner.run_pending():
                        self._tell(self, None)

    def _bind(self, runner: EnvRunner, slab: Slab) -> None:
        may_write = self._leave_if_given_up
        if runner.is_bound:
            gone = runner.move(slab, self.job.worker, may_write=may_write)
            log_at_close(_LOGGER, gone)
            return

        def tell_failure(rows: Sequence[int], failure: RemoteFailure) -> None:
            self._leave_if_given_up()
            self._tell(self, Raised(tuple(rows), failure))

        runner.bind(slab, self.job.worker, may_write=may_write)
        runner.tell_failure = tell_failure
        if self.job.options.rings_each_row:
            runner.after_row = lambda: self._tell(self, None)

    def _leave_if_given_up(self) -> None:
        # Another worker has these rows now.
        if self._is_given_up:
            raise _GivenUpError


class _GivenUpError(BaseException):
    """Ends a thread whose environment returns after the thread was abandoned.

    It is no `Exception`, so no handler takes it for the environment's.
    """
