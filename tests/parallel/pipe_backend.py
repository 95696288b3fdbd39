"""`PipeBackend`: worker processes at pipes, as another package could have them.

All that it takes of envkit is described in `docs/reference`: what carries rows is its
own, and all else that a pool and a worker do comes out of the house.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from envkit.parallel.backends.base import Event, Exited, Started, refuse_calls
from envkit.parallel.backends.inbox import Inbox
from envkit.parallel.backends.packing import (
    not_started,
    pack_actions,
    pack_bind,
    pack_job,
    pack_request,
    unpacked_hello,
)
from envkit.parallel.backends.shared_slab import SharedSlab
from envkit.parallel.messages import (
    Bind,
    Close,
    ExitReport,
    ObjectActions,
    Packed,
    Request,
    WorkerJob,
)
from envkit.parallel.slab import Slab, SlabLayout
from envkit.parallel.system.cpus import available_cpus
from envkit.parallel.system.ctrl_c import uninterrupted
from envkit.parallel.worker.host import WorkerHost
from envkit.types import Array

PROGRAM = "from tests.parallel.pipe_backend import work; work()"


class Rows(NamedTuple):
    """The order to run rows on a slab: it may be another one than before."""

    bind: Packed
    worker: int
    owner: int
    memory: int


class Worker(NamedTuple):
    """A worker process, and what connects it with its pool."""

    process: subprocess.Popen[bytes]
    pipe: Connection
    lifeline: int

    def send(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # Its end shows in the next wait.
            self.pipe.send(message)

    def close(self) -> None:
        self.pipe.close()
        os.close(self.lifeline)


class PipeBackend:
    """Runs each worker in a process at a pipe."""

    name = "pipes"
    can_kill = keeps_answers = keeps_states = cuts_workers = True
    now = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._inbox, self._memory = Inbox(), SharedSlab()
        self._workers: dict[int, Worker] = {}
        self._slab: Slab | None = None

    def places(self) -> int | None:
        return None

    def usual_workers(self) -> int:
        return available_cpus()

    def start(self, jobs: Sequence[WorkerJob]) -> None:
        for packed, worker in [(pack_job(job), job.worker) for job in jobs]:
            try:
                self._workers[worker] = started = start_worker()
            except OSError as error:
                self._inbox.queue.append(Started(worker, not_started(error)))
            else:
                started.send(packed)

    def replace(self, worker: int, job: WorkerJob) -> None:
        if worker in self._workers:  # One that could not build its environments.
            self._report_end(worker)
            self._inbox.forget([worker])
        self.start([job])

    def bind(self, layout: SlabLayout) -> Slab:
        self._inbox.slab = self._slab = self._memory.lay_out(layout)
        for worker in layout.workers:
            self._bind(worker)
        return self._slab

    def _bind(self, worker: int) -> None:
        assert self._slab is not None
        bind = pack_bind(Bind(self._slab.layout))
        order = Rows(bind, worker, os.getpid(), self._memory.fd)
        self._workers[worker].send(order)

    def publish(self, plate: bytes) -> None:
        self._memory.publish(plate)

    def dispatch(self, rows: Array | None) -> None:
        slab = self._slab
        assert slab is not None
        asked = range(slab.layout.rows) if rows is None else rows.tolist()
        for index, worker in self._workers.items():
            if index in slab.layout.workers:
                block = range(*slab.layout.blocks[index])
                if mine := [row for row in asked if row in block]:
                    if slab.layout.private_actions:
                        worker.send(pack_actions(slab, mine))
                    worker.send("run")

    def wait_events(self, timeout: float | None, owing: int = -1) -> deque[Event]:
        return self._inbox.wait(timeout, owing, self._poll, lambda now: None)

    def _poll(self, seconds: float) -> None:
        by_pipe = {each.pipe: index for index, each in self._workers.items()}
        ready, _, _ = select.select(list(by_pipe), [], [], seconds)
        with uninterrupted():
            for pipe in ready:
                try:
                    for message in received(pipe):
                        self._handle(by_pipe[pipe], message)
                except (EOFError, OSError):
                    self._report_end(by_pipe[pipe])

    def _handle(self, worker: int, message: Any) -> None:
        if isinstance(message, Packed):
            if self._slab is not None and worker in self._slab.layout.workers:
                self._bind(worker)
            self._inbox.queue.append(Started(worker, unpacked_hello(message)))
        elif message != "done":
            self._inbox.handle(worker, message)

    def _report_end(self, index: int) -> None:
        worker = self._workers.pop(index)
        code = worker.process.wait()
        name = signal.Signals(-code).name if code < 0 else None
        report = ExitReport(index, worker.process.pid, max(code, 0), name)
        worker.close()
        self._inbox.queue.append(Exited(index, report))

    def request(self, worker: int, request: Request) -> None:
        self._workers[worker].send(pack_request(request))

    def kill(self, worker: int) -> None:
        if worker in self._workers:
            self._workers[worker].process.kill()

    def retire(self, workers: Sequence[int], grace: float) -> None:
        leaving = [self._workers.pop(index) for index in workers if self.pid(index)]
        for worker in leaving:
            worker.send(Close())
        deadline = time.monotonic() + grace
        for worker in leaving:
            try:
                worker.process.wait(max(deadline - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            worker.close()
        self._inbox.forget(workers)

    def pid(self, worker: int) -> int:
        return self._workers[worker].process.pid if worker in self._workers else 0

    def resident(self, worker: int) -> int:
        return 0

    def is_worker(self) -> bool:
        return False

    def wake(self) -> None:
        self._inbox.is_ending = True

    def close(self, grace: float) -> Sequence[ExitReport]:
        with self._inbox.closing(grace):
            self.retire(list(self._workers), grace)
            self.forget()
        return []

    def forget(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers = {}
        self._memory.close()
        refuse_calls(self)


def start_worker() -> Worker:
    ours, theirs = socket.socketpair()
    end, lifeline = os.pipe()
    with theirs:
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(theirs.fileno()), str(end)],
                pass_fds=[theirs.fileno(), end],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                start_new_session=True,
            )
        except OSError:
            ours.close()
            os.close(lifeline)
            raise
        finally:
            os.close(end)
    return Worker(process, Connection(ours.detach()), lifeline)


def received(pipe: Connection) -> Iterator[Any]:
    """Yields all that has come."""
    while pipe.poll():
        yield pipe.recv()


def work() -> None:
    """Is the program of a worker."""
    fd, lifeline = map(int, sys.argv[1:])
    host, pipe = WorkerHost(fd, lifeline), Connection(fd)
    host.close_in_forks(pipe.close)
    with host.built(pipe.recv()) as hello:
        pipe.send(hello)
        if isinstance(hello, Packed):
            with contextlib.suppress(EOFError):
                while not isinstance(message := pipe.recv(), Close):
                    serve(host, pipe, message)
                    host.end_fork()


def serve(host: WorkerHost, pipe: Connection, message: Any) -> None:
    """Does what a pool asks of a worker."""
    match message:
        case Rows():
            layout = host.unpacked(message.bind).layout
            fd = os.open(f"/proc/{message.owner}/fd/{message.memory}", os.O_RDWR)
            memory = mmap.mmap(fd, layout.size)
            os.close(fd)
            host.bind(Slab(layout, memory), message.worker, pipe.send)
        case ObjectActions():
            host.write_objects(message)
        case Request():
            pipe.send(host.reply(message))
        case "run":
            host.runner.run_pending()
            pipe.send("done")
