"""`ProcessBackend`: runners in processes, rows in shared memory, rings in between."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from envkit.errors import ClosedError, ConstructorError
from envkit.parallel import serialize
from envkit.parallel.backends.base import (
    Event,
    Exited,
    Failed,
    Finished,
    Replied,
    Started,
)
from envkit.parallel.cpus import current_cpu
from envkit.parallel.doorbell import (
    MESSAGE,
    Doorbell,
    is_readable,
    linger,
    may_linger,
)
from envkit.parallel.failures import OF_ANOTHER_PROCESS
from envkit.parallel.guardian import MARK, Guardian
from envkit.parallel.interrupts import uninterrupted
from envkit.parallel.launch import WorkerProcess, launcher
from envkit.parallel.memory import SharedBlock
from envkit.parallel.messages import (
    Bind,
    Close,
    ExitReport,
    Hello,
    ObjectActions,
    ObjectRow,
    Packed,
    PackedJob,
    RemoteFailure,
    Reply,
    Request,
    RowsRaised,
    WorkerJob,
)
from envkit.parallel.slab import LAST_CPU, Slab, SlabLayout
from envkit.types import Array

__all__ = ["ProcessBackend"]

# How long a wait may be before somebody looks what workers wrote to standard error.
_GLANCE = 0.1
# How long a worker whose channel closed may take to end by itself.
_LAST_WORDS = 0.5
_IN_OR_OUT = select.POLLIN | select.POLLOUT


class ProcessBackend:
    """Runs each worker in a process of its own.

    The parent waits in one call for everything: the bell that all workers ring, their
    channels, and the descriptors that say that a process has ended.
    """

    name: ClassVar[str] = "process"
    can_kill: ClassVar[bool] = True

    def __init__(
        self, start_method: str = "spawn", worker_env: Mapping[str, str] | None = None
    ) -> None:
        """Prepares; nothing is started yet.

        Args:
            start_method: "spawn", "forkserver" or "fork".
            worker_env: Environment variables of the workers.
        """
        serialize.refuse_while_loading("A pool of worker processes")
        self._inherits = start_method == "fork"
        self._guardian = Guardian()
        marked = {**(worker_env or {}), MARK: self._guardian.mark}
        self._launcher = launcher(start_method, marked)
        self._workers: dict[int, WorkerProcess] = {}
        self._worker_of_fd: dict[int, int] = {}
        self._queue: deque[Event] = deque()
        self._failures: dict[int, RemoteFailure] = {}
        self._slab: Slab | None = None
        self._block: SharedBlock | None = None
        self._bells: dict[int, Doorbell] = {}
        # Where each worker was when it last went to sleep.
        self._last_cpus: Array = np.zeros(0, np.int64)
        # Held while somebody waits. Another thread that closes has to have it first.
        self._waits = threading.RLock()
        self._poller = _Poller()
        self._done = Doorbell.create()
        self._poller.register_bell(self._done.fileno())
        self._all_asked = False
        self._is_waiting = False
        self._has_unsent = False
        # Whether an environment has raised since all rows answered without.
        self._has_raised = False
        self._next_glance = 0.0
        self._closed = self._is_ending = False
        _forget_in_forks(self)

    # Starting.

    def start(self, jobs: Sequence[WorkerJob]) -> None:
        """Begins to start workers."""
        # All of them first: a constructor that cannot travel is said before anything
        # has been started.
        packed = [self._pack(job) for job in jobs]
        self._guardian.start()
        for job, message in zip(jobs, packed, strict=True):
            # A process of which nobody has a note would live on.
            with uninterrupted():
                self._launch(job, message)

    def _pack(self, job: WorkerJob) -> PackedJob:
        bare = job._replace(constructors=(), setup=None)
        if self._inherits:
            return PackedJob(bare, ())
        return PackedJob(
            bare,
            tuple(
                serialize.dump_constructor(constructor, job.first_env + index)
                for index, constructor in enumerate(job.constructors)
            ),
            serialize.dump_setup(job.setup),
        )

    def _dumped(self, value: object, what: str) -> bytes:
        return serialize.dump_value(value, what, to_fork=self._inherits)

    def _launch(self, job: WorkerJob, message: PackedJob) -> None:
        process = self._launcher.start(job if self._inherits else None)
        self._workers[job.worker] = process
        self._guardian.watch(process.pid)
        for fd in (process.channel.fileno(), process.life_fd):
            if fd >= 0:
                self._worker_of_fd[fd] = job.worker
                self._poller.register(fd)
        # One that is gone already is found by its life descriptor; what does not fit
        # goes out as room comes.
        with contextlib.suppress(ConnectionError, EOFError, TimeoutError):
            process.channel.send(message, timeout=0, life=process.life_fd)
        if process.channel.unsent:
            self._poller.watch(process.channel.fileno(), _IN_OR_OUT)

    def replace(self, worker: int, job: WorkerJob) -> None:
        """Begins to start a worker in the place of one that is gone."""
        message = self._pack(job)
        with uninterrupted():
            self._see_off(worker)
            try:
                self._launch(job, message)
            except OSError as error:
                self._queue.append(Started(worker, _not_started(error)))

    def _see_off(self, worker: int) -> None:
        """Ends a worker of which nobody wants to hear any more, if it is there."""
        process = self._workers.get(worker)
        if process is None:
            return
        self._end_at_once(process)
        self._drop(worker)
        others = [
            event
            for event in self._queue
            if isinstance(event, Finished | Failed) or event.worker != worker
        ]
        self._queue.clear()
        self._queue.extend(others)

    def _end_at_once(self, process: WorkerProcess) -> None:
        process.signal_group(signal.SIGKILL)
        while not process.has_ended():
            _wait_for(process.life_fd, 0.02)

    def bind(self, layout: SlabLayout) -> Slab:
        """Makes the slab in shared memory and lets every worker have it."""
        self._block = SharedBlock.create(layout.size)
        self._slab = slab = Slab(layout, self._block.buffer)
        self._asked = np.zeros(layout.rows, bool)
        self._rows = layout.rows
        self._last_cpus = slab.meters[:, LAST_CPU]
        self._all_rows = Finished(np.arange(layout.rows))
        self._has_objects = bool(layout.private_steps)
        # Workers that linger let this process have their CPU when it needs one; if it
        # lingered as well, it would take theirs.
        self._lingers = may_linger(len(layout.blocks) + 1)
        self._workers_linger = may_linger(len(layout.blocks))
        self._worker_of_row = np.repeat(
            np.arange(len(layout.blocks)),
            [stop - first for first, stop in layout.blocks],
        )
        for worker in self._workers:
            self._bind(worker)
        return slab

    def put_up(self, nameplate: bytes) -> None:
        """Writes behind the rows what tells others whose they are."""
        if self._block is not None:
            self._block.write_behind(nameplate)

    def _bind(self, worker: int) -> None:
        assert self._slab is not None
        assert self._block is not None
        process = self._workers[worker]
        # A bell of its own: the one before it may have been rung for the dead.
        old = self._bells.get(worker)
        bell = self._bells[worker] = Doorbell.create(blocking=True)
        if old is not None:
            old.close()
        fds = (self._block.fd, *bell.fds, *self._done.fds)
        with contextlib.suppress(ConnectionError, EOFError):
            bind = Bind(self._slab.layout, self._workers_linger)
            message = Packed(self._dumped(bind, "The specs"))
            process.channel.send(message, fds, life=process.life_fd)

    # Rows.

    def dispatch(self, rows: Array | None) -> None:
        """Rings the bells of the workers whose rows were asked."""
        # Hot: called once per batch step.
        if rows is None:
            if self._slab is not None and self._slab.layout.private_actions:
                self._send_objects(np.arange(self._slab.layout.rows))
            self._all_asked = True
            self._ring(self._bells)
            return
        if self._slab is not None and self._slab.layout.private_actions:
            self._send_objects(rows)
        self._asked[rows] = True
        self._ring(set(self._worker_of_row[rows].tolist()))

    def _ring(self, workers: Iterable[int]) -> None:
        """Wakes workers, last of all those who slept on the CPU that is used here.

        That CPU is free when the caller waits. If they were first, the system would
        send them elsewhere, to where the others are, and two would share one CPU.
        """
        # Hot: called once per batch step.
        bells, last_cpus = self._bells, self._last_cpus
        here, last = current_cpu(), []
        for worker in workers:
            if worker in bells:
                if last_cpus[worker] == here:
                    last.append(worker)
                else:
                    bells[worker].ring()
        for worker in last:
            bells[worker].ring()

    def _send_objects(self, rows: Array) -> None:
        """Sends each worker what its rows' actions have besides shared memory."""
        assert self._slab is not None  # since bind()
        slab = self._slab
        messages: dict[int, ObjectActions] = {}
        for row in rows.tolist():
            leaves = {
                leaf: slab.actions[leaf][row] for leaf in slab.layout.private_actions
            }
            worker = int(self._worker_of_row[row])
            message = messages.setdefault(worker, ObjectActions({}, {}))
            message.numbers[row] = int(slab.sequence[row])
            message.leaves[row] = self._dumped(leaves, "An action")
        for worker, message in messages.items():
            self._tell(worker, message)

    def wait_events(self, timeout: float | None, count: int = 1) -> deque[Event]:
        """Returns what has happened; what stays in the queue is returned again."""
        with self._waits:
            return self._wait_events(timeout, count)

    def _wait_events(self, timeout: float | None, count: int) -> deque[Event]:
        # Hot: called once per batch step.
        queue = self._queue
        now = time.monotonic()
        deadline = None if timeout is None else now + timeout
        # Here too, because a caller whose workers answer at once never waits.
        if now >= self._next_glance:
            self._glance(now)
        if self._is_waiting or not self._all_asked:
            # A ring that was heard by a wait that was interrupted is not heard again.
            self._collect(count)
        self._is_waiting = True
        if self._has_unsent:
            self._send_rests()
        if (
            self._all_asked
            and not queue
            and self._lingers
            and linger(self._slab.all_answered)  # type: ignore[union-attr]  # likewise
        ):
            self._queue_all()
        while not queue:
            patience = _GLANCE if timeout is None else min(timeout, _GLANCE)
            for fd, found in self._poller.poll(patience):
                if fd != self._poller.bell:
                    self._look_at(fd, found)
                elif not self._poller.is_edge_triggered:
                    self._done.heard()
            if self._is_ending:
                break
            if self._all_asked and not queue:
                if self._slab.all_answered():  # type: ignore[union-attr]  # rows were asked
                    self._queue_all()
                    break
                # Some workers are done. That is of interest only to those who wait for
                # less than all, or if an environment has raised.
                if count < self._rows or self._has_raised:
                    self._collect(count)
            else:
                self._collect(count)
            now = time.monotonic()
            if now >= self._next_glance:
                self._glance(now)
            if deadline is not None:
                timeout = deadline - now
                if timeout <= 0:
                    self._collect(0)
                    break
        self._is_waiting = False
        return queue

    def _queue_all(self) -> None:
        """Notes that all rows were asked and have answered, and none has raised."""
        if self._has_objects:
            # A worker sends what belongs to a row before it marks it.
            for worker in list(self._workers):
                self._read(worker)
        self._all_asked = self._has_raised = False
        self._queue.append(self._all_rows)

    def _send_rests(self) -> None:
        """Sends what an interrupted call has left of its messages."""
        for process in self._workers.values():
            if process.channel.unsent:
                with contextlib.suppress(ConnectionError, EOFError):
                    process.channel.flush(life=process.life_fd)
        self._has_unsent = False

    def _send_more(self, process: WorkerProcess) -> None:
        """Sends as much as there is room for of what has not gone out."""
        with contextlib.suppress(TimeoutError, ConnectionError, EOFError):
            process.channel.flush(timeout=0, life=process.life_fd)
        if not process.channel.unsent:
            self._poller.watch(process.channel.fileno(), select.POLLIN)

    def _glance(self, now: float) -> None:
        """Passes on what workers wrote to standard error, and sees how they are."""
        self._next_glance = now + _GLANCE
        for worker, process in list(self._workers.items()):
            # All together: however much they write, most of the time is the caller's.
            process.forward_stderr(now + _GLANCE / 4 - time.monotonic())
            if process.channel.pending:
                self._read(worker)
            if process.channel.unsent:
                self._send_more(process)
            if process.life_fd < 0 and process.has_ended():
                self._note_exit(worker)

    def _collect(self, count: int) -> None:
        """Queues the rows that have answered, if there are enough of them.

        Zero means whatever there is.
        """
        slab = self._slab
        if slab is None:
            return
        if self._all_asked:
            self._asked[:] = True
        answered = self._asked & slab.answered_rows()
        rows = np.flatnonzero(answered)
        if not rows.size:
            return
        raised = slab.raised_rows(rows)
        asked = int(np.count_nonzero(self._asked))
        if rows.size < min(count, asked) and not self._queue and not raised.size:
            return
        self._all_asked = False
        self._queue_rows(rows, raised)

    def _queue_rows(self, rows: Array, raised: Array) -> None:
        # Hot in asynchronous use: called for every few rows.
        whole = rows
        if raised.size or self._has_objects:
            # A worker sends what belongs to a row before it marks the row.
            wanted = rows if self._has_objects else raised
            for worker in np.unique(self._worker_of_row[wanted]).tolist():
                if worker in self._workers:
                    self._read(worker)
            whole = np.setdiff1d(rows, raised, assume_unique=True)
        # First: interrupted here, they are asked again by whoever waits next.
        self._asked[rows] = False
        if whole.size:
            self._queue.append(Finished(whole))
        if raised.size:
            failures = {row: self._failures[row] for row in raised.tolist()}
            self._queue.append(Failed(failures))

    # Messages.

    def request(self, worker: int, request: Request) -> None:
        """Asks an idle worker something; the answer will be an event `Replied`."""
        payload = self._dumped(request.arguments, "An argument")
        self._tell(worker, request._replace(arguments=payload))

    def _tell(self, worker: int, message: object) -> None:
        """Announces a message, then sends it: it may be larger than what fits."""
        process = self._workers.get(worker)
        if process is None:
            return
        self._bells[worker].ring(MESSAGE)
        # Until it is out: interrupted here, the next wait sends the rest.
        self._has_unsent = True
        with contextlib.suppress(ConnectionError, EOFError):
            process.channel.send(message, life=process.life_fd)
        self._has_unsent = False

    def _look_at(self, fd: int, found: int) -> None:
        """Sees what made a descriptor ready: a message, room, the end of a process."""
        worker = self._worker_of_fd.get(fd, -1)
        process = self._workers.get(worker)
        if process is None:
            return
        if fd == process.life_fd:
            if process.has_ended():
                self._note_exit(worker)
            return
        if found & select.POLLOUT:
            self._send_more(process)
        self._read(worker)

    def _read(self, worker: int) -> None:
        """Takes in the messages of a worker."""
        process = self._workers[worker]
        try:
            messages = process.channel.receive_available()
        except (EOFError, ConnectionError):
            self._see_out(worker)
            return
        for message in messages:
            self._take(worker, message)

    def _take(self, worker: int, message: Any) -> None:
        match message:
            case RemoteFailure():
                self._queue.append(Started(worker, message))
            case Packed():
                hello = _unpacked_hello(message)
                try:
                    if isinstance(hello, Hello) and self._slab is not None:
                        self._bind(worker)
                except OSError as error:
                    hello = _not_started(error)
                if isinstance(hello, RemoteFailure):
                    self.kill(worker)
                self._queue.append(Started(worker, hello))
            case RowsRaised():
                self._has_raised = True
                for row in message.rows:
                    self._failures[row] = message.failure
            case ObjectRow():
                assert self._slab is not None  # since bind()
                try:
                    leaves = serialize.load_value(message.leaves)
                except Exception as error:
                    # Its class may be known to the worker alone. The caller gets the
                    # exception in place of the object.
                    values = np.empty((), object)
                    values[()] = error
                    leaves = dict.fromkeys(self._slab.layout.private_steps, values)
                for leaf, value in leaves.items():
                    self._slab.steps[leaf][message.slot, message.row] = value[()]
            case Reply():
                self._queue.append(Replied(worker, _unpacked(message)))

    # The end of a worker.

    def _see_out(self, worker: int) -> None:
        """Waits for a worker whose channel has closed to end, or ends it."""
        process = self._workers[worker]
        deadline = time.monotonic() + _LAST_WORDS
        while not process.has_ended() and time.monotonic() < deadline:
            _wait_for(process.life_fd, 0.02)
        if not process.has_ended():
            self._end_at_once(process)
        self._note_exit(worker)

    def _note_exit(self, worker: int) -> None:
        """Queues what a worker that is gone had finished, then that it is gone."""
        with uninterrupted():
            self._note_end(worker)

    def _note_end(self, worker: int) -> None:
        process = self._workers[worker]
        # What it has started is of no use to anybody now.
        process.signal_group(signal.SIGKILL)
        self._guardian.end_helpers([process.pid])
        with contextlib.suppress(EOFError, ConnectionError):
            while messages := process.channel.receive_available():
                for message in messages:
                    self._take(worker, message)
        if self._slab is not None:
            if self._all_asked:
                self._asked[:] = True
                self._all_asked = False
            first, stop = self._slab.layout.blocks[worker]
            mine = np.zeros_like(self._asked)
            mine[first:stop] = self._asked[first:stop]
            rows = np.flatnonzero(mine & self._slab.answered_rows())
            self._queue_rows(rows, self._slab.raised_rows(rows))
            self._asked[first:stop] = False
        self._queue.append(Exited(worker, process.report(worker)))
        self._drop(worker)

    def _drop(self, worker: int) -> None:
        process = self._workers.pop(worker, None)
        if process is None:
            return  # Another thread closes the pool at the same time.
        for fd in (process.channel.fileno(), process.life_fd):
            if self._worker_of_fd.pop(fd, None) is not None:
                self._poller.unregister(fd)
        process.close()
        self._guardian.leave(process.pid)

    def kill(self, worker: int) -> None:
        """Ends a worker and everything it has started, at once."""
        process = self._workers.get(worker)
        if process is not None:
            process.note_resident()
            process.signal_group(signal.SIGKILL)

    def resident(self, worker: int) -> int:
        """Returns the memory of a worker in bytes."""
        process = self._workers.get(worker)
        return process.note_resident() if process is not None else 0

    def pid(self, worker: int) -> int:
        """Returns the process of a worker, 0 if it has none now."""
        process = self._workers.get(worker)
        return process.pid if process is not None else 0

    def wake(self) -> None:
        """Lets another thread that waits return at once."""
        self._is_ending = True
        if not self._closed:
            self._done.ring()

    def close(self, grace: float) -> list[ExitReport]:
        """Asks every worker to end, then sees to it that it does."""
        if self._closed:
            return []
        # Whoever waits stops waiting. What it is doing meanwhile takes no longer than
        # the last words of a worker; should it be stuck, this does not wait for it.
        self.wake()
        self._closed = True
        has_waited = self._waits.acquire(timeout=2 * _LAST_WORDS)
        try:
            return self._close(grace)
        finally:
            if has_waited:
                self._waits.release()

    def _close(self, grace: float) -> list[ExitReport]:
        pids = [process.pid for process in self._workers.values()]
        try:
            self._ask_to_end()
            reports = self._await_ends(grace)
            for number, patience in ((signal.SIGTERM, 0.3), (signal.SIGKILL, 5.0)):
                for process in self._workers.values():
                    process.signal_group(number)
                reports += self._await_ends(patience)
            return reports
        finally:
            # A second Ctrl-C while the first is being seen to: no more patience.
            for process in self._workers.values():
                process.signal_group(signal.SIGKILL)
            self._await_ends(1.0)
            self._launcher.close()
            # First: whoever looks for helpers opens files, for which there may be no
            # room before.
            self._release()
            self._guardian.end_helpers(pids)
            self._guardian.dismiss()

    def _ask_to_end(self) -> None:
        for worker, process in self._workers.items():
            bell = self._bells.get(worker)
            with contextlib.suppress(ConnectionError, EOFError, TimeoutError):
                if bell is not None:
                    bell.ring(MESSAGE)
                process.channel.send(Close(), timeout=0, life=process.life_fd)

    def _await_ends(self, patience: float) -> list[ExitReport]:
        deadline = time.monotonic() + patience
        reports = []
        while self._workers:
            for worker, process in list(self._workers.items()):
                # What it still sends it must get rid of before it can end.
                with contextlib.suppress(EOFError, ConnectionError):
                    process.channel.receive_available()
                if process.has_ended():
                    process.signal_group(signal.SIGKILL)
                    reports.append(process.report(worker))
                    self._drop(worker)
            left = deadline - time.monotonic()
            if not self._workers or left <= 0:
                break
            # A channel that has closed stays readable, so the wait may return at once;
            # that somebody has ended is found by looking.
            self._poller.poll(min(left, 0.02))
        return reports

    def forget(self) -> None:
        """Closes the descriptors only: all that a fork of the parent may do.

        Whoever uses the pool there is told so.
        """
        self._release()
        self._guardian.forget()

    def _release(self) -> None:
        self._closed = True
        for name in ("dispatch", "request", "wait_events"):
            setattr(self, name, _refuse)
        for process in self._workers.values():
            process.forget()
        self._workers.clear()
        self._launcher.forget()
        for bell in self._bells.values():
            bell.close()
        self._bells.clear()
        self._done.close()
        self._poller.close()
        if self._block is not None:
            self._block.close()
        self._block = self._slab = None
        self._last_cpus = np.zeros(0, np.int64)


class _Poller:
    """Waits for any of several descriptors to become readable."""

    def __init__(self) -> None:
        if hasattr(select, "epoll"):
            self._poll: Any = select.epoll()
            self.poll: Callable[[float], list[tuple[int, int]]] = self._poll.poll
        else:
            self._poll = select.poll()
            self.poll = self._poll_milliseconds
        self.bell = -1
        self.is_edge_triggered = False

    def register_bell(self, fd: int) -> None:
        """Registers the descriptor that matters most.

        Where each ring is an event of its own, nobody has to read what was rung: one
        system call less for every wake-up.
        """
        self.bell = fd
        self.is_edge_triggered = hasattr(select, "EPOLLET")
        edge = select.EPOLLET if self.is_edge_triggered else 0
        self._poll.register(fd, select.POLLIN | edge)

    def _poll_milliseconds(self, timeout: float) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = self._poll.poll(timeout * 1000)
        return found

    def register(self, fd: int) -> None:
        self._poll.register(fd, select.POLLIN)

    def watch(self, fd: int, events: int) -> None:
        """Changes what is waited for on a descriptor."""
        self._poll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        with contextlib.suppress(KeyError, OSError):
            self._poll.unregister(fd)

    def close(self) -> None:
        if hasattr(self._poll, "close"):
            self._poll.close()


def _not_started(error: OSError) -> RemoteFailure:
    """Says why a worker could not be started again."""
    return RemoteFailure.of(error, kind="start", command="start")


def _refuse(*unused: Any) -> Any:
    raise ClosedError(OF_ANOTHER_PROCESS)


def _wait_for(fd: int, seconds: float) -> None:
    if fd >= 0:
        is_readable(fd, seconds)
    else:
        time.sleep(seconds)


def _unpacked_hello(message: Packed) -> Hello | RemoteFailure:
    """Turns bytes into specs, or says why they cannot be had in this process."""
    try:
        return serialize.load_value(message.payload)  # type: ignore[no-any-return]
    except Exception as error:
        return RemoteFailure.of(
            ConstructorError(
                "The specs of an environment, which its worker has sent, cannot be "
                f"loaded in this process: {type(error).__name__}: {error}. Their "
                "classes must be importable here, too, or be defined in the main "
                "script."
            ),
            kind="constructor",
            command="construct",
        )


def _unpacked(reply: Reply) -> Reply:
    """Turns the bytes of a reply into values; one that cannot be fails by itself."""
    results: list[Any] = []
    for result in reply.results:
        if isinstance(result, RemoteFailure):
            results.append(result)
            continue
        try:
            results.append(serialize.load_value(result))
        except Exception as error:
            results.append(RemoteFailure.of(error, command="answer"))
    return Reply(reply.number, tuple(results))


_backends: weakref.WeakSet[ProcessBackend] = weakref.WeakSet()


def _forget_in_forks(backend: ProcessBackend) -> None:
    """Lets a fork of this process close what it inherits of a backend.

    A lifeline that a fork holds open would keep workers alive after their parent.
    """
    if not _backends and hasattr(os, "register_at_fork") and not _hooked:
        os.register_at_fork(after_in_child=_forget_all)
        _hooked.append(True)
    _backends.add(backend)


_hooked: list[bool] = []


def _forget_all() -> None:
    for backend in list(_backends):
        backend.forget()
