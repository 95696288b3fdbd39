"""`ProcessBackend`: workers as processes, rows in shared memory, bells between them."""

from __future__ import annotations

import contextlib
import select
import signal
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from envkit.parallel.backends.base import Event, Exited, Started, refuse_calls
from envkit.parallel.backends.inbox import POLL_INTERVAL, Inbox
from envkit.parallel.backends.launch import (
    ForkLauncher,
    ProcessLauncher,
    SpawnLauncher,
    WorkerProcess,
    wait_for_end,
)
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
    Hello,
    Packed,
    PackedJob,
    RemoteFailure,
    Request,
    WorkerJob,
)
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import AWAKE, LAST_CPU, SlabLayout
from envkit.parallel.system.cpus import available_cpus, current_cpu
from envkit.parallel.system.ctrl_c import uninterrupted
from envkit.parallel.system.doorbell import (
    MESSAGE,
    Doorbell,
    may_linger,
)
from envkit.parallel.system.guardian import Guardian
from envkit.parallel.system.lifeline import forget_in_forks
from envkit.parallel.system.poller import Poller
from envkit.parallel.system.shared_memory import full_fence
from envkit.types import Array

__all__ = ["ProcessBackend"]

# How many seconds a worker has to end, and write a traceback, after its channel closed.
_LAST_WORDS = 2.0
_IN_OR_OUT = select.POLLIN | select.POLLOUT


class ProcessBackend:
    """Runs each worker in its own process.

    The parent waits for everything in one call: the bell that all workers ring, their
    channels, and the pidfds that report the end of a process.
    """

    name: ClassVar[str] = "process"
    can_kill: ClassVar[bool] = True
    keeps_answers: ClassVar[bool] = True
    keeps_states: ClassVar[bool] = True
    cuts_workers: ClassVar[bool] = True
    now = staticmethod(time.monotonic)

    def __init__(
        self, start_method: str = "spawn", worker_env: Mapping[str, str] | None = None
    ) -> None:
        """Prepares the backend; starts nothing yet.

        Args:
            start_method: "spawn", "forkserver" or "fork".
            worker_env: Environment variables of the workers.
        """
        self._inherits = start_method == "fork"
        self._guardian = Guardian()
        marked = {**(worker_env or {}), **self._guardian.variables()}
        self._launcher = _launcher(start_method, marked)
        self._workers: dict[int, WorkerProcess] = {}
        self._worker_of_fd: dict[int, int] = {}
        self._slab: Slab | None = None
        self._memory = SharedSlab()
        self._bells: dict[int, Doorbell] = {}
        # The message with the layout, by the number of descriptors sent with it.
        self._packed_binds: dict[int, Packed] = {}
        # The workers that have rows.
        self._bound: set[WorkerProcess] = set()
        # Each worker's CPU when it last went to sleep, and whether it is awake.
        self._last_cpus: Array = np.zeros(0, np.int64)
        self._awake: Array = np.zeros(0, np.int64)
        self._poller = Poller()
        self._done = Doorbell.create()
        self._poller.register_bell(self._done.fileno())
        self._next_poll = 0.0
        self._inbox = Inbox()
        self._lingers = False
        self._closed = False
        forget_in_forks(self)

    # Starting.

    def places(self) -> int | None:
        """Returns `None`: any number of workers can be started."""
        return None

    def usual_workers(self) -> int:
        """Returns the default number of workers: one for each CPU."""
        return available_cpus()

    def start(self, jobs: Sequence[WorkerJob]) -> None:
        """Begins to start workers."""
        # Pack all jobs first: a constructor that cannot be pickled must raise before
        # anything has started.
        packed = [pack_job(job, inherits=self._inherits) for job in jobs]
        self._guardian.start()
        for job, message in zip(jobs, packed, strict=True):
            # A process that is not recorded would live on.
            with uninterrupted():
                self._launch(job, message)
        self._launcher.prepare(jobs[-1].following)

    def _launch(self, job: WorkerJob, message: PackedJob) -> None:
        process = self._launcher.start(job if self._inherits else None)
        self._workers[job.worker] = process
        self._guardian.watch(process.pid)
        for fd in (process.channel.fileno(), process.life_fd):
            if fd >= 0:
                self._worker_of_fd[fd] = job.worker
                self._poller.register(fd)
        # The pidfd reveals a worker that is gone already; bytes that don't fit go
        # out when there is room.
        with contextlib.suppress(ConnectionError, EOFError, TimeoutError):
            process.channel.send(message, timeout=0, life=process.life_fd)
        if process.channel.unsent:
            self._poller.watch(process.channel.fileno(), _IN_OR_OUT)

    def replace(self, worker: int, job: WorkerJob) -> None:
        """Starts another worker in place of a lost one; does not wait for it."""
        message = pack_job(job, inherits=self._inherits)
        with uninterrupted():
            self._see_off(worker)
            try:
                self._launch(job, message)
            except OSError as error:
                self._inbox.queue.append(Started(worker, not_started(error)))

    def _see_off(self, worker: int) -> None:
        """Ends a worker that is being replaced, if running, and drops its events."""
        process = self._workers.get(worker)
        if process is None:
            return
        self._end_at_once(process)
        self._drop(worker)
        self._inbox.forget([worker])

    def _end_at_once(self, process: WorkerProcess) -> None:
        process.signal_group(signal.SIGKILL)
        while not process.has_ended():
            wait_for_end(process.life_fd, 0.02)

    def bind(self, layout: SlabLayout) -> Slab:
        """Makes the slab in shared memory and gives it to every worker."""
        self._slab = self._inbox.slab = slab = self._memory.lay_out(layout)
        self._last_cpus = slab.counter(LAST_CPU)
        self._awake = slab.counter(AWAKE)
        # Lingering workers yield their CPU to this process when it needs one. If this
        # process lingered too, it would take theirs.
        self._lingers = may_linger(len(layout.blocks) + 1)
        self._workers_linger = may_linger(len(layout.blocks))
        self._worker_of_row = layout.worker_of_row
        self._packed_binds.clear()
        for worker in layout.workers:
            if worker in self._workers:
                self._bind(worker)
        return slab

    def publish(self, plate: bytes) -> None:
        """Writes the published facts behind the rows, for other processes."""
        self._memory.publish(plate)

    def _bind(self, worker: int) -> None:
        assert self._slab is not None
        # The value there belongs to an earlier worker, or to other rows.
        self._slab.counters(worker)[AWAKE] = 0
        process, fds = self._workers[worker], [self._memory.fd]
        is_new = process not in self._bound
        if is_new:
            # A new bell: rings on the old one may have been for the dead worker.
            old = self._bells.get(worker)
            bell = self._bells[worker] = Doorbell.create(blocking=True)
            if old is not None:
                old.close()
            fds += (*bell.fds, *self._done.fds)
        message = self._packed_bind(len(fds))
        if not is_new:
            self._tell(worker, message, fds)
            return
        self._bound.add(process)
        with contextlib.suppress(ConnectionError, EOFError):
            process.channel.send(message, fds, life=process.life_fd)

    def _packed_bind(self, fds: int) -> Packed:
        """Packs the layout for messages with `fds` descriptors, only once."""
        if fds not in self._packed_binds:
            assert self._slab is not None
            bind = Bind(self._slab.layout, self._workers_linger, fds=fds)
            self._packed_binds[fds] = pack_bind(bind, inherits=self._inherits)
        return self._packed_binds[fds]

    # Rows.

    def dispatch(self, rows: Array | None) -> None:
        """Rings the bells of the workers whose rows were asked."""
        # Hot: called once per batch step.
        if self._slab is not None and self._slab.private_actions:
            everyone = np.arange(self._slab.layout.rows)
            self._send_objects(everyone if rows is None else rows)
        if rows is None:
            self._ring(self._bells)
        else:
            self._ring(set(self._worker_of_row[rows].tolist()))

    def _ring(self, workers: Iterable[int]) -> None:
        """Wakes sleeping workers; those that slept on the caller's CPU come last.

        That CPU is free once the caller waits. Woken first, they would be moved to the
        other workers' CPUs, and two would share one CPU.
        """
        # Hot: called once per batch step.
        bells, last_cpus, awake = self._bells, self._last_cpus, self._awake
        # The worker that slept on our CPU is rung last: the CPU is free as soon as we
        # wait, while an earlier ring would move the worker to another worker's CPU.
        here, last = current_cpu(), []
        # A worker that falls asleep now either sees the request, or is seen to be
        # asleep.
        full_fence()
        for worker in workers:
            if worker in bells and not awake[worker]:
                if last_cpus[worker] == here:
                    last.append(worker)
                else:
                    bells[worker].ring()
        for worker in last:
            bells[worker].ring()

    def _send_objects(self, rows: Array) -> None:
        """Sends each worker the action leaves that shared memory cannot hold."""
        assert self._slab is not None  # since bind()
        owners = self._worker_of_row[rows]
        for worker in set(owners.tolist()):
            own = rows[owners == worker].tolist()
            message = pack_actions(self._slab, own, inherits=self._inherits)
            self._tell(worker, message)

    def wait_events(self, timeout: float | None, owing: int = -1) -> deque[Event]:
        """Waits for events, and returns them."""
        # Hot: called once per batch step.
        return self._inbox.wait(
            timeout, owing, self._poll, self._look, lingers=self._lingers
        )

    def _poll(self, patience: float) -> None:
        """Waits for a ring, a message or the end of a process, and handles it."""
        for fd, found in self._poller.poll(patience):
            if fd != self._poller.bell:
                self._look_at(fd, found)
            elif not self._poller.is_edge_triggered:
                self._done.drain()

    def _send_more(self, process: WorkerProcess) -> None:
        """Sends as many of the unsent bytes as there is room for."""
        with contextlib.suppress(TimeoutError, ConnectionError, EOFError):
            process.channel.flush(timeout=0, life=process.life_fd)
        events = _IN_OR_OUT if process.channel.unsent else select.POLLIN
        self._poller.watch(process.channel.fileno(), events)

    def _look(self, now: float) -> None:
        """Forwards workers' standard error, and sends waiting bytes."""
        if now < self._next_poll:
            return
        self._next_poll = now + POLL_INTERVAL
        for worker, process in list(self._workers.items()):
            # One limit for all: however much they write, most of the time is left to
            # the caller.
            process.forward_stderr(now + POLL_INTERVAL / 4 - time.monotonic())
            if process.channel.pending:
                self._read(worker)
            if process.channel.unsent:
                self._send_more(process)
            if process.life_fd < 0 and process.has_ended():
                self._queue_exit(worker)

    # Messages.

    def request(self, worker: int, request: Request) -> None:
        """Asks an idle worker a question; the answer arrives as an event `Replied`."""
        self._tell(worker, pack_request(request, inherits=self._inherits))

    def _tell(self, worker: int, message: object, fds: Sequence[int] = ()) -> None:
        """Announces a message, then sends it, even if it does not fit all at once."""
        process = self._workers.get(worker)
        if process is None:
            return
        assert self._slab is not None  # since bind()
        # A worker looks for messages before it runs rows if this number has grown, so
        # no later request overtakes the message. It grows once more at the end, as the
        # worker may look before the message is there.
        self._slab.announce_message()
        self._bells[worker].ring(MESSAGE)
        try:
            # If Ctrl-C interrupts this, `_look` sends the rest of the message.
            with contextlib.suppress(ConnectionError, EOFError):
                process.channel.send(message, fds, life=process.life_fd)
        finally:
            self._slab.announce_message()

    def _look_at(self, fd: int, found: int) -> None:
        """Handles a ready descriptor: a message, room to send, the end of a process."""
        worker = self._worker_of_fd.get(fd, -1)
        process = self._workers.get(worker)
        if process is None:
            return
        if fd == process.life_fd:
            if process.has_ended():
                self._queue_exit(worker)
            return
        if found & select.POLLOUT:
            self._send_more(process)
        self._read(worker)

    def _read(self, worker: int) -> None:
        """Handles the messages of a worker."""
        has_closed = False
        with uninterrupted():
            try:
                messages = self._workers[worker].channel.receive_available()
            except (EOFError, ConnectionError):
                messages, has_closed = [], True
            for message in messages:
                self._handle(worker, message)
        if has_closed:
            self._see_out(worker)

    def _handle(self, worker: int, message: Any) -> None:
        if not isinstance(message, Packed):
            self._inbox.handle(worker, message)
            return
        hello = unpacked_hello(message)
        try:
            slab = self._slab
            is_met = isinstance(hello, Hello)
            if is_met and slab is not None and worker in slab.layout.workers:
                self._bind(worker)
        except OSError as error:
            hello = not_started(error)
        if isinstance(hello, RemoteFailure):
            self.kill(worker)
        self._inbox.queue.append(Started(worker, hello))

    # The end of a worker.

    def _see_out(self, worker: int) -> None:
        """Waits for the end of a worker whose channel has closed, or kills it."""
        process = self._workers[worker]
        deadline = time.monotonic() + _LAST_WORDS
        while not process.has_ended() and time.monotonic() < deadline:
            wait_for_end(process.life_fd, 0.02)
        if not process.has_ended():
            self._end_at_once(process)
        self._queue_exit(worker)

    def _queue_exit(self, worker: int) -> None:
        """Queues the last messages of an ended worker, then its end."""
        with uninterrupted():
            process = self._workers[worker]
            # End its helpers too.
            process.signal_group(signal.SIGKILL)
            self._guardian.end_helpers([process.pid])
            with contextlib.suppress(EOFError, ConnectionError):
                while messages := process.channel.receive_available():
                    for message in messages:
                        self._handle(worker, message)
            self._inbox.queue.append(Exited(worker, process.report(worker)))
            self._drop(worker)

    def _drop(self, worker: int) -> None:
        process = self._workers.pop(worker, None)
        if process is None:
            return  # Another thread is closing the pool.
        for fd in (process.channel.fileno(), process.life_fd):
            if self._worker_of_fd.pop(fd, None) is not None:
                self._poller.unregister(fd)
        self._bound.discard(process)
        process.close()
        self._guardian.leave(process.pid)

    def kill(self, worker: int) -> None:
        """Kills a worker and its helpers at once."""
        process = self._workers.get(worker)
        if process is not None:
            process.measure_resident()
            process.signal_group(signal.SIGKILL)

    def resident(self, worker: int) -> int:
        """Returns the memory of a worker in bytes."""
        process = self._workers.get(worker)
        return process.measure_resident() if process is not None else 0

    def pid(self, worker: int) -> int:
        """Returns the process of a worker; 0 if it currently has none."""
        process = self._workers.get(worker)
        return process.pid if process is not None else 0

    def is_worker(self) -> bool:
        """Returns False: workers are other processes."""
        return False

    def wake(self) -> None:
        """Ends another thread's wait; from now on `wait_events` does not wait."""
        self._inbox.is_ending = True
        if not self._closed:
            self._done.ring()

    def close(self, grace: float) -> list[ExitReport]:
        """Asks every worker to end, and kills those that do not."""
        if self._closed:
            return []
        # A waiting thread stops waiting. It needs at most the time for a worker's last
        # output; if it is stuck, we go on without it.
        self.wake()
        self._closed = True
        with self._inbox.closing(2 * _LAST_WORDS):
            return self._close(grace)

    def _close(self, grace: float) -> list[ExitReport]:
        workers = list(self._workers)
        pids = [process.pid for process in self._workers.values()]
        try:
            return self._end(workers, grace)
        finally:
            self._launcher.close()
            # First, because looking for helpers opens files, for which there may be no
            # room until then.
            self._release()
            self._guardian.end_helpers(pids)
            self._guardian.dismiss()

    def retire(self, workers: Sequence[int], grace: float) -> None:
        """Asks workers that are no longer needed to end, and kills those that don't."""
        workers = [worker for worker in workers if worker in self._workers]
        pids = [self._workers[worker].pid for worker in workers]
        try:
            self._end(workers, grace)
        finally:
            self._inbox.forget(workers)
            for worker in workers:
                if (bell := self._bells.pop(worker, None)) is not None:
                    bell.close()
            self._guardian.end_helpers(pids)

    def _end(self, workers: Sequence[int], grace: float) -> list[ExitReport]:
        try:
            self._ask_to_end(workers)
            reports = self._await_ends(workers, grace)
            for number, patience in ((signal.SIGTERM, 0.3), (signal.SIGKILL, 5.0)):
                self._signal(workers, number)
                reports += self._await_ends(workers, patience)
            return reports
        finally:
            # A second Ctrl-C while the first is being handled: kill at once.
            self._signal(workers, signal.SIGKILL)
            self._await_ends(workers, 1.0)

    def _signal(self, workers: Sequence[int], number: int) -> None:
        for worker in workers:
            if worker in self._workers:
                self._workers[worker].signal_group(number)

    def _ask_to_end(self, workers: Sequence[int]) -> None:
        for worker in workers:
            process, bell = self._workers[worker], self._bells.get(worker)
            with contextlib.suppress(ConnectionError, EOFError, TimeoutError):
                if bell is not None:
                    bell.ring(MESSAGE)
                process.channel.send(Close(), timeout=0, life=process.life_fd)

    def _await_ends(self, workers: Sequence[int], patience: float) -> list[ExitReport]:
        deadline = time.monotonic() + patience
        reports: list[ExitReport] = []
        while left := [worker for worker in workers if worker in self._workers]:
            for worker in left:
                process = self._workers[worker]
                # A worker can end only when its remaining messages have been read.
                with contextlib.suppress(EOFError, ConnectionError):
                    process.channel.receive_available()
                if process.has_ended():
                    process.signal_group(signal.SIGKILL)
                    reports.append(process.report(worker))
                    self._drop(worker)
            time_left = deadline - time.monotonic()
            if time_left <= 0:
                break
            # A closed channel stays readable, so the wait may return at once. Check
            # whether processes have ended.
            if any(worker in self._workers for worker in workers):
                self._poller.poll(min(time_left, 0.02))
        return reports

    def forget(self) -> None:
        """Closes only the descriptors; a fork of the pool may do no more.

        Calls of the pool there raise an error that says so.
        """
        self._release()
        self._guardian.forget()

    def _release(self) -> None:
        self._closed = True
        refuse_calls(self)
        for process in self._workers.values():
            process.forget()
        self._workers.clear()
        self._launcher.forget()
        for bell in self._bells.values():
            bell.close()
        self._bells.clear()
        self._done.close()
        self._poller.close()
        self._memory.close()
        self._slab = self._inbox.slab = None
        self._last_cpus = self._awake = np.zeros(0, np.int64)


def _launcher(start_method: str, worker_env: Mapping[str, str]) -> ProcessLauncher:
    """Returns the launcher for a start method."""
    if start_method == "forkserver":
        from envkit.parallel.backends.forkserver import ForkserverLauncher

        return ForkserverLauncher(worker_env)
    if start_method == "fork":
        return ForkLauncher(worker_env)
    return SpawnLauncher(worker_env)
