"""`LinkBase`: the pool's side of workers that each have a link.

```
 pool ── LinkBase ── epoll over links: frames of rows are read into the slab,
            │           messages into the inbox
            ├─ LinkedBackend   starts workers, which dial; messages are pickles
            └─ RemoteBackend   dials servers; messages are plain data
```

The pool's slab is memory of its own process; each worker has a slab of its rows. The
two backends decide how to reach a worker, how to write messages, and what to do when a
link ends.
"""

from __future__ import annotations

import abc
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

from envkit.distributed.link import (
    ANSWERED,
    BEGUN,
    HEAD,
    MESSAGE,
    FrameError,
    Link,
)
from envkit.distributed.row_frames import RowFrames
from envkit.distributed.seal import Seal
from envkit.parallel.backends.base import Event
from envkit.parallel.backends.inbox import Inbox
from envkit.parallel.backends.shared_slab import SharedSlab
from envkit.parallel.messages import ExitReport, WorkerJob
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import SlabLayout
from envkit.parallel.system.ctrl_c import uninterrupted
from envkit.parallel.system.doorbell import Doorbell
from envkit.parallel.system.lifeline import forget_in_forks
from envkit.parallel.system.poller import Poller
from envkit.types import Array

__all__ = ["LinkBase", "WorkerLife"]

# Seconds to keep sending bytes that don't fit into a link at once. The rest goes out
# while the pool waits.
_FOR_ROOM = 0.02
# Seconds for which closing waits for another thread, after waking it.
_FOR_OTHERS = 6.0
_IN_OR_OUT = select.POLLIN | select.POLLOUT


class WorkerLife:
    """One life of a worker at the other end of a link, from its start to its end.

    Attributes:
        worker: Its index.
        link: Its link, while there is one.
        row_frames: Packs its rows, once it has some.
        first: The first of its rows.
        rows: All of its rows.
        host: The name of its machine, from its greeting.
        pid: Its process there.
        resident: The memory of that process at its greeting, in bytes.
        is_paused: Whether it cannot be reached for now: nothing is asked, and no answer
            comes.
    """

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self.link: Link | None = None
        self.row_frames: RowFrames | None = None
        self.first = 0
        self.rows = slice(0, 0)
        self.host = ""
        self.pid = self.resident = 0
        self.is_paused = self.is_pushed = False
        # The head of the frame being read.
        self.head = memoryview(bytearray(HEAD.size))
        self.frame = (0, 0, 0, 0)
        self.is_control = False
        self.payload = bytearray()

    def connect(self, link: Link) -> None:
        """Begins to read frames of a new link."""
        self.link = link
        self.frame = (0, 0, 0, 0)
        self.is_control = False
        link.want(self.head)


Worker = TypeVar("Worker", bound=WorkerLife)
# A job, checked and ready to be sent.
Order = TypeVar("Order")


class LinkBase(abc.ABC, Generic[Worker, Order]):
    """Sends rows to workers over links, and receives their answers.

    Attributes:
        longest: The largest size of a message in bytes.
        other_end: The name of a link's other end in messages.
        sends_layout_once: Whether a worker gets its layout only when its rows change.
    """

    can_kill: ClassVar[bool] = True
    keeps_answers: ClassVar[bool] = False
    longest: ClassVar[int]
    other_end: ClassVar[str]
    sends_layout_once: ClassVar[bool] = False
    now = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._workers: dict[int, Worker] = {}
        self._by_fd: dict[int, Worker] = {}
        self._slab: Slab | None = None
        self._memory = SharedSlab()
        # A backend that no pool has used holds no descriptors.
        self._poller: Poller
        self._bell: Doorbell | None = None
        # Held while another thread rings, so that the bell is not closed meanwhile.
        self._ringing = threading.RLock()
        self._inbox = Inbox()
        self._closed = False
        forget_in_forks(self)

    # The parts that each backend implements.

    @abc.abstractmethod
    def _order(self, job: WorkerJob) -> Order:
        """Returns a job ready to send; raises if there is none."""

    @abc.abstractmethod
    def _reach(self, job: WorkerJob, order: Order, *, again: bool) -> None:
        """Begins to connect to a worker, and records it.

        Args:
            job: Its job.
            order: The same, from `_order`.
            again: Whether it replaces a lost worker. Failures are then events instead
                of exceptions.
        """

    @abc.abstractmethod
    def _send_layout(self, known: Worker, layout: SlabLayout) -> None:
        """Sends a worker the layout of its rows."""

    def _send_objects(self, known: Worker, rows: Array) -> None:
        """Sends the objects in the actions of rows, if actions can contain any."""

    def _handle_other(self, fd: int) -> None:
        """Handles a descriptor that is neither a link nor the bell."""

    def _handle_news(self) -> None:
        """Handles what another thread left before it rang the bell."""

    @abc.abstractmethod
    def _check_sources(self, now: float) -> None:
        """Checks the sources that cannot wake the pool."""

    @abc.abstractmethod
    def _handle_message(self, known: Worker, payload: bytearray) -> None:
        """Handles a message.

        Raises:
            EOFError: The bytes are no message.
        """

    @abc.abstractmethod
    def _lose(self, known: Worker, why: str) -> None:
        """Handles a link that has ended."""

    @abc.abstractmethod
    def _cut_off(self, known: Worker, why: str) -> None:
        """Handles a worker that has sent invalid bytes."""

    @abc.abstractmethod
    def _drop(self, known: Worker) -> None:
        """Forgets a worker; cuts it off if it is still running."""

    @abc.abstractmethod
    def _end_some(self, leaving: Sequence[Worker], grace: float) -> list[ExitReport]:
        """Stops the workers; returns after at most about `grace` seconds."""

    def _end_launched(self) -> None:
        """Ends the processes that started workers, if any are left."""

    # Starting.

    def start(self, jobs: Sequence[WorkerJob]) -> None:
        """Begins to start workers."""
        # Prepare all orders first: an impossible one must raise before anything has
        # started.
        orders = [self._order(job) for job in jobs]
        if self._bell is None:
            self._poller, self._bell = Poller(), Doorbell.create()
            self._poller.register_bell(self._bell.fileno())
        for job, order in zip(jobs, orders, strict=True):
            # A worker that is started but not recorded would live on.
            with uninterrupted():
                self._reach(job, order, again=False)

    def replace(self, worker: int, job: WorkerJob) -> None:
        """Starts another worker in place of a lost one; does not wait for it."""
        order = self._order(job)
        with uninterrupted():
            known = self._workers.get(worker)
            if known is not None:
                self._drop(known)
                self._inbox.forget([worker])
            self._reach(job, order, again=True)

    def _connect(
        self, known: Worker, sock: socket.socket, seal: Seal | None = None
    ) -> None:
        """Begins to read a worker's connection."""
        sock.setblocking(False)
        known.connect(Link(sock, seal))
        self._by_fd[sock.fileno()] = known
        self._poller.register(sock.fileno())

    def bind(self, layout: SlabLayout) -> Slab:
        """Makes the slab, and sends each worker the layout of its rows."""
        self._slab = self._inbox.slab = slab = self._memory.lay_out(layout)
        self._worker_of_row = layout.worker_of_row
        for known in list(self._workers.values()):
            with uninterrupted():
                is_told = known.link is not None or known.row_frames is not None
                if is_told and known.worker in layout.workers:
                    self._bind(known)
        return slab

    def publish(self, plate: bytes) -> None:
        """Writes the published facts behind the rows, for other processes."""
        self._memory.publish(plate)

    def _bind(self, known: Worker) -> None:
        slab = self._slab
        assert slab is not None
        first, stop = slab.layout.blocks[known.worker]
        has_same = known.row_frames is not None and known.rows == slice(first, stop)
        known.first, known.rows = first, slice(first, stop)
        known.row_frames = RowFrames(slab, known.worker)
        if known.link is not None and not (has_same and self.sends_layout_once):
            self._send_layout(known, slab.layout)

    # Rows.

    def dispatch(self, rows: Array | None) -> None:
        """Sends the requests of rows to their workers."""
        # Hot: called once per batch step.
        if self._slab is None:
            return
        with uninterrupted():
            if rows is None:
                for known in self._workers.values():
                    if known.row_frames is not None:
                        self._ask(known, None)
            else:
                owners = self._worker_of_row[rows]
                for worker in sorted(set(owners.tolist())):
                    asked = self._workers.get(worker)
                    if asked is not None and asked.row_frames is not None:
                        self._ask(asked, rows[owners == worker] - asked.first)

    def _ask(self, known: Worker, rows: Array | None) -> None:
        """Sends the requests of rows that owe an answer and were not sent yet."""
        # Hot: called once per worker and batch step.
        slab, row_frames, link = self._slab, known.row_frames, known.link
        assert slab is not None
        assert row_frames is not None
        if link is None or known.is_paused:
            return
        frame = row_frames.ask_together() if rows is None else None
        if frame is not None:
            if not known.frame[0]:
                link.expect(row_frames.expected_answer())
            self._send(known, frame.parts, frame.size)
            return
        chosen = row_frames.due(rows)
        if chosen.size:
            if slab.private_actions:
                self._send_objects(known, chosen)
            self._send(known, row_frames.ask(chosen))

    def wait_events(self, timeout: float | None, owing: int = -1) -> deque[Event]:
        """Waits for events, and returns them."""
        return self._inbox.wait(timeout, owing, self._poll, self._check_sources)

    def _poll(self, patience: float) -> None:
        """Waits for a link or the bell, and handles what has arrived."""
        found = self._poller.poll(patience)
        if not found:
            return
        with uninterrupted():
            for fd, event in found:
                known = self._by_fd.get(fd)
                if known is not None:
                    if event & select.POLLOUT:
                        self._push(known)
                    self._read(known)
                elif fd == self._poller.bell:
                    assert self._bell is not None
                    self._bell.drain()
                    self._handle_news()
                else:
                    self._handle_other(fd)

    def _send(self, known: Worker, parts: Sequence[Any], size: int = 0) -> None:
        # Hot: called once per worker and batch step.
        link = known.link
        if link is None:
            return
        link.send(parts, size)
        if link.unsent or known.is_pushed:
            link.push(_FOR_ROOM)
            self._watch(known)

    def _push(self, known: Worker) -> None:
        if known.link is not None:
            known.link.push()
            self._watch(known)

    def _watch(self, known: Worker) -> None:
        """Waits for room in a link while it has unsent bytes."""
        link = known.link
        assert link is not None
        known.is_pushed = link.unsent
        self._poller.watch(
            link.fileno(), _IN_OR_OUT if known.is_pushed else select.POLLIN
        )

    # Reading from links.

    def _read(self, known: Worker) -> None:
        """Handles everything that has arrived on a link."""
        # Hot: called once per worker and batch step.
        link = known.link
        if link is None:
            return
        try:
            if link.expects and link.fetch():
                assert known.row_frames is not None
                known.row_frames.accept_together()
            elif not link.expects:
                while link.fill():
                    self._handle_part(known, link)
                    if known.link is not link:
                        return
        except FrameError as error:
            self._cut_off(known, str(error))
        except EOFError as error:
            self._lose(known, str(error))

    def _handle_part(self, known: Worker, link: Link) -> None:
        """Handles the part of a frame that has arrived, and asks for the next."""
        # Hot: called three times per worker and batch step.
        kind, flags, rows, length = known.frame
        row_frames = known.row_frames
        if kind == 0:
            kind, flags, _, rows, length = HEAD.unpack(known.head)
            known.frame = (kind, flags, rows, length)
            has_rows = row_frames is not None and not known.is_paused
            if kind == ANSWERED and has_rows:
                assert row_frames is not None
                known.is_control = True
                link.want(row_frames.receive_control(flags, rows, length))
            elif kind == BEGUN and has_rows:
                assert row_frames is not None
                link.want(row_frames.receive_begun(rows, length))
            elif kind == MESSAGE and length <= self.longest:
                known.payload = bytearray(length)
                link.want(known.payload)
            else:
                raise FrameError(f"its {self.other_end} has sent an unknown frame")
            return
        if kind == ANSWERED and known.is_control:
            assert row_frames is not None
            known.is_control = False
            link.want(*row_frames.receive_leaves(flags, rows))
            return
        known.frame = (0, 0, 0, 0)
        link.want(known.head)
        if kind == ANSWERED:
            assert row_frames is not None
            row_frames.accept(flags)
        elif kind == BEGUN:
            assert row_frames is not None
            row_frames.accept_begun(rows)
        else:
            self._handle_message(known, known.payload)

    def _forget_infos(self, known: Worker) -> None:
        """Forgets the infos of environments that get a question."""
        slab = self._slab
        assert slab is not None
        if slab.layout.declares_info:
            slab.forget_declared(known.rows)

    # Workers.

    def _held(self, known: Worker) -> int:
        slab = self._slab
        if slab is None or known.row_frames is None:
            return known.resident
        return slab.resident(known.worker) or known.resident

    def resident(self, worker: int) -> int:
        """Returns the memory of a worker in bytes, as last reported."""
        known = self._workers.get(worker)
        return self._held(known) if known is not None else 0

    def pid(self, worker: int) -> int:
        """Returns the process of a worker on its machine; 0 if it has none now."""
        known = self._workers.get(worker)
        return known.pid if known is not None else 0

    def is_worker(self) -> bool:
        """Returns False: workers are other processes."""
        return False

    # The end.

    def retire(self, workers: Sequence[int], grace: float) -> None:
        """Ends workers that are no longer needed."""
        leaving = [self._workers[each] for each in workers if each in self._workers]
        try:
            with uninterrupted():
                self._end_some(leaving, grace)
        finally:
            self._inbox.forget(workers)

    def _unlink(self, known: Worker) -> None:
        link, known.link = known.link, None
        known.is_pushed = False
        if link is not None:
            fd = link.fileno()
            if self._by_fd.pop(fd, None) is not None:
                self._poller.unregister(fd)
            link.shut()
            link.close()

    def wake(self) -> None:
        """Ends another thread's wait; from now on `wait_events` does not wait."""
        self._inbox.is_ending = True
        self._ring()

    def _ring(self) -> None:
        """Wakes the pool's thread if it is still waiting; callable from any thread."""
        with self._ringing:
            bell = self._bell
            if bell is not None and not self._closed:
                bell.ring()

    def close(self, grace: float) -> list[ExitReport]:
        """Ends the remaining workers; calling it again does nothing."""
        if self._closed:
            return []
        self.wake()
        self._closed = True
        with self._inbox.closing(_FOR_OTHERS):
            try:
                return self._end_some(list(self._workers.values()), grace)
            finally:
                self._end_launched()
                self._release()

    def forget(self) -> None:
        """Closes the descriptors only, as a fork of the pool's process must."""
        for known in self._workers.values():
            if known.link is not None:
                known.link.close()
        self._ringing = threading.RLock()  # A thread may have held it at the fork.
        self._release()

    def _release(self) -> None:
        self._closed = True
        self._workers.clear()
        self._by_fd.clear()
        with self._ringing:
            bell, self._bell = self._bell, None
        if bell is not None:
            bell.close()
            self._poller.close()
        self._memory.close()
        self._slab = self._inbox.slab = None
