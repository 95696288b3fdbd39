"""`LinkedBackend`: runners on other machines, rows over one stream socket for each.

```
 pool ── LinkedBackend ── listener, open while workers are awaited
            │  launcher.start(worker, address)
            │  ◀── a worker dials, and proves that it knows the token of the address
            └── epoll over links: rows are read into the slab; its end is Exited
```

The pool's slab is memory of its own process; each worker has a slab of its rows. What a
worker may say is trusted as what a worker process says, because it has proved that it
was started by this pool. Before that, nothing that a connection brings is more than
compared with what is expected.
"""

from __future__ import annotations

import logging
import pickle
import select
import socket
import ssl
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from envkit.parallel import serialize
from envkit.parallel.backends.base import Event, Exited, Started
from envkit.parallel.backends.commands import CommandLauncher
from envkit.parallel.backends.door import Door
from envkit.parallel.backends.inbox import GLANCE, Inbox
from envkit.parallel.backends.packing import (
    not_started,
    pack_job,
    unpacked_hello,
)
from envkit.parallel.failures import refuse_elsewhere
from envkit.parallel.freight import Freight
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
    Request,
    WorkerJob,
)
from envkit.parallel.slab import ANY_INFO, RESIDENT, Slab, SlabLayout
from envkit.parallel.system.cpus import available_cpus
from envkit.parallel.system.ctrl_c import uninterrupted
from envkit.parallel.system.doorbell import Doorbell
from envkit.parallel.system.lifeline import forget_in_forks
from envkit.parallel.system.link import (
    ANSWERED,
    BEGUN,
    HEAD,
    MESSAGE,
    Link,
    Token,
)
from envkit.parallel.system.poller import Poller
from envkit.parallel.system.shared_memory import SharedBlock
from envkit.types import Array

__all__ = ["Launcher", "LinkedBackend", "linked"]

_LOGGER = logging.getLogger(__name__)

# How long the carrier of a worker may take to end after its link has, and how often to
# look at it meanwhile.
_LAST_WORDS, _LOOK = 3.0, 0.002
# How long to go on with what does not fit into a link at once. The rest goes out while
# the pool waits, beside everything else.
_FOR_ROOM = 0.02
_IN_OR_OUT = select.POLLIN | select.POLLOUT
_LONGEST = 1 << 40


class Launcher(Protocol):
    """Starts workers somewhere, and knows how they have ended.

    Attributes:
        places: How many workers it can start; `None` for any number.
    """

    places: int | None

    def start(self, worker: int, address: str) -> None:
        """Begins to start a worker, which dials the address.

        Raises:
            OSError: It cannot be started.
        """

    def ended(self, worker: int) -> bool:
        """Returns whether what was started for a worker has ended.

        It is looked at some ten times a second, so that a launcher may use it for what
        it has to do now and then.
        """

    def report(self, worker: int) -> ExitReport:
        """Returns how that has ended, as far as it is known."""

    def kill(self, worker: int) -> None:
        """Ends what was started for a worker, and returns when it has ended."""

    def close(self) -> None:
        """Ends all that is left."""

    def forget(self) -> None:
        """Closes descriptors only; what a fork of this process does."""


def linked(
    commands: Sequence[str | Sequence[str]],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    reach_as: str | None = None,
    tls: ssl.SSLContext | None = None,
    connect_timeout: float = 60.0,
) -> LinkedBackend:
    """Returns a backend whose workers are started by commands, on any machine.

    A command ends in `envkit worker {address}`, which it runs somewhere: by ssh, by
    srun, by kubectl. In place of `{address}` stands where the worker finds this pool,
    with a token that lets one worker in, once. A command that begins with `envkit` runs
    the envkit of this Python. No shell is between: words are split as a shell does.

    Args:
        commands: The command of each worker, as one text or as a list of words.
        host: The address of this machine at which to listen. As it is, only workers on
            this machine reach it; "0.0.0.0" is all of its addresses. "unix:" is a Unix
            socket, which is quicker between processes of one machine, and
            "unix:/tmp/pool" one that containers can share as a file.
        port: Where to listen; 0 for any port that is free.
        reach_as: By which name or address workers reach this machine; `None` is `host`,
            or this machine's name if that is all of its addresses. For a Unix socket,
            "unix:" and the path at which workers find it.
        tls: What encrypts the links, with the certificate of this side loaded. Workers
            take that certificate and no other. `None` for links in the clear.
        connect_timeout: How many seconds a worker has to connect after its command has
            ended without an error, as commands do that only submit a job.

    Example:
        >>> from envkit import ParallelPyEnvironment
        >>> from envkit.testing import CountingEnv
        >>> backend = linked(["envkit worker {address}"])
        >>> with ParallelPyEnvironment([CountingEnv] * 2, backend=backend) as env:
        ...     env.reset().step_type.tolist()
        [0, 0]
    """
    return LinkedBackend(
        CommandLauncher(commands),
        host=host,
        port=port,
        reach_as=reach_as,
        tls=tls,
        connect_timeout=connect_timeout,
    )


class LinkedBackend:
    """Runs each worker wherever a launcher starts it, at the end of a link.

    An object serves one pool.
    """

    name: ClassVar[str] = "linked"
    can_kill: ClassVar[bool] = True
    keeps_answers: ClassVar[bool] = False
    now = staticmethod(time.monotonic)

    def __init__(
        self,
        launcher: Launcher,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        reach_as: str | None = None,
        tls: ssl.SSLContext | None = None,
        connect_timeout: float = 60.0,
    ) -> None:
        """Prepares; nothing is started yet. The arguments are those of `linked`."""
        serialize.refuse_while_loading("A pool of linked workers")
        self._launcher = launcher
        self._connect_timeout = connect_timeout
        self._door = Door(host, port, reach_as, tls)
        self._workers: dict[int, _Incarnation] = {}
        self._by_fd: dict[int, _Incarnation] = {}
        # Those whose link has ended, and that may still say how they have.
        self._ending: set[_Incarnation] = set()
        self._slab: Slab | None = None
        self._block: SharedBlock | None = None
        # A backend that no pool has used holds no descriptors.
        self._poller: Poller
        self._bell: Doorbell | None = None
        self._next_glance = 0.0
        self._inbox = Inbox()
        self._closed = False
        forget_in_forks(self)

    def places(self) -> int | None:
        """Returns how many workers there can be; `None` for any number."""
        return self._launcher.places

    def usual_workers(self) -> int:
        """Returns how many workers there are unless a pool asks for another number."""
        places = self._launcher.places
        return available_cpus() if places is None else places

    # Starting.

    def start(self, jobs: Sequence[WorkerJob]) -> None:
        """Begins to start workers."""
        # All of them first: a constructor that cannot travel is said before anything
        # has been started.
        packed = [pack_job(job) for job in jobs]
        if self._bell is None:
            self._poller, self._bell = Poller(), Doorbell.create()
            self._poller.register_bell(self._bell.fileno())
        for job, message in zip(jobs, packed, strict=True):
            # A process that is not noted would live on.
            with uninterrupted():
                self._launch(job.worker, message)

    def _launch(self, worker: int, job: PackedJob) -> None:
        token = Token.new()
        address = self._door.open(token, worker, self._poller)
        self._workers[worker] = _Incarnation(worker, job, token)
        self._next_glance = 0.0
        try:
            self._launcher.start(worker, str(address))
        except BaseException:
            self._door.revoke(token)
            del self._workers[worker]
            raise

    def replace(self, worker: int, job: WorkerJob) -> None:
        """Begins to start a worker in the place of one that is gone."""
        message = pack_job(job)
        with uninterrupted():
            known = self._workers.get(worker)
            if known is not None:
                self._drop(known)
                self._inbox.forget(worker)
            try:
                self._launch(worker, message)
            except OSError as error:
                self._inbox.queue.append(Started(worker, not_started(error)))

    def bind(self, layout: SlabLayout) -> Slab:
        """Makes the slab, where `envkit top` finds it, and tells workers of theirs."""
        self._block = SharedBlock.create(layout.size)
        self._slab = self._inbox.slab = slab = Slab(layout, self._block.buffer)
        self._worker_of_row = layout.worker_of_row
        for known in list(self._workers.values()):
            with uninterrupted():
                self._bind(known)
        return slab

    def publish(self, plate: bytes) -> None:
        """Writes behind the rows what tells other processes whose they are."""
        if self._block is not None:
            self._block.write_behind(plate)

    def _bind(self, known: _Incarnation) -> None:
        slab = self._slab
        assert slab is not None
        first, stop = slab.layout.blocks[known.worker]
        known.first = first
        known.freight = Freight(slab, known.worker)
        known.rows = slice(first, stop)
        bind = Bind(
            slab.layout.of_worker(known.worker),
            first_row=first,
            on_machine=self._count_on(known.host),
        )
        payload = serialize.dump_value(bind, "The specs")
        self._tell(known, Packed(payload))

    def _count_on(self, host: str) -> int:
        """Returns how many processes share a machine, the pool's own included.

        A worker that lingered on the CPU which the pool needs to read its answer would
        keep itself waiting.
        """
        hosts = [socket.gethostname(), *(each.host for each in self._workers.values())]
        return hosts.count(host)

    # Rows.

    def dispatch(self, rows: Array | None) -> None:
        """Sends the workers whose rows were asked what they are asked."""
        # Hot: called once per batch step.
        if self._slab is None:
            return
        with uninterrupted():
            if rows is None:
                for known in self._workers.values():
                    if known.freight is not None:
                        self._ask(known, None)
            else:
                owners = self._worker_of_row[rows]
                for worker in np.unique(owners).tolist():
                    asked = self._workers.get(worker)
                    if asked is not None and asked.freight is not None:
                        self._ask(asked, rows[owners == worker] - asked.first)

    def _ask(self, known: _Incarnation, rows: Array | None) -> None:
        """Sends those of the rows that owe an answer and were not sent yet."""
        # Hot: called once per worker and batch step.
        slab, freight, link = self._slab, known.freight, known.link
        assert slab is not None
        assert freight is not None
        frame = freight.ask_together() if rows is None else None
        if frame is not None:
            if link is not None and not known.frame[0]:
                link.expect(freight.expected_answer())
            self._send(known, frame.parts, frame.size)
            return
        chosen = freight.due(rows)
        if chosen.size:
            if slab.private_actions:
                self._send_objects(known, chosen)
            self._send(known, freight.ask(chosen))

    def _send_objects(self, known: _Incarnation, rows: Array) -> None:
        """Sends what the actions of rows have besides arrays."""
        assert self._slab is not None
        message = ObjectActions({}, {})
        for row in rows.tolist():
            leaves = self._slab.action_objects(known.first + row)
            message.leaves[row] = serialize.dump_value(leaves, "An action")
        self._tell(known, message)

    def wait_events(self, timeout: float | None, owing: int = -1) -> deque[Event]:
        """Waits until something has happened, and returns the events."""
        return self._inbox.wait(timeout, owing, self._poll, self._look)

    def _poll(self, patience: float) -> None:
        """Waits until a link, the door or the bell has something, and takes that in."""
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
                else:
                    self._look_at_door(fd)

    def _look(self, now: float) -> None:
        """Handles what wakes no process: late strangers, commands that have ended."""
        if self._ending:
            self._look_at_ends(now)
        self._inbox.patience = _LOOK if self._ending else GLANCE
        if now < self._next_glance:
            return
        self._next_glance = now + GLANCE
        with uninterrupted():
            self._door.drop_late(now, self._poller)
            for known in list(self._workers.values()):
                has_ended = self._launcher.ended(known.worker)
                if known.link is not None:
                    continue
                if known.is_killed:
                    self._note_end(known)
                elif has_ended and known not in self._ending:
                    self._look_at_unconnected(known, now)

    def _look_at_ends(self, now: float) -> None:
        """Handles workers whose link has ended, once they have, too, or do not."""
        with uninterrupted():
            for known in list(self._ending):
                has_ended = known.is_killed or now >= known.end_by
                if has_ended or self._launcher.ended(known.worker):
                    self._note_end(known)

    def _look_at_unconnected(self, known: _Incarnation, now: float) -> None:
        """Handles a worker whose command has ended, and that has not connected."""
        if self._launcher.report(known.worker).exitcode != 0:
            self._note_end(known)
        elif known.connect_by is None:
            # It may have submitted a job, which connects later.
            known.connect_by = now + self._connect_timeout
        elif now >= known.connect_by:
            known.lost = (
                f"did not connect within {self._connect_timeout:g} s after its command "
                "had ended"
            )
            self._note_end(known)

    # Connections.

    def _look_at_door(self, fd: int) -> None:
        """Takes in connections, and lets in those that prove themselves."""
        for worker, sock in self._door.look_at(fd, self._poller):
            known = self._workers.get(worker)
            if known is None or known.link is not None or known.is_killed:
                sock.close()
                continue
            known.link = Link(sock)
            known.link.want(known.head)
            self._by_fd[sock.fileno()] = known
            self._poller.register(sock.fileno())
            self._tell(known, [each for each in sys.path if isinstance(each, str)])
            self._tell(known, known.job)
            known.job = None

    def _send(self, known: _Incarnation, parts: Sequence[Any], size: int = 0) -> None:
        # Hot: called once per worker and batch step.
        link = known.link
        if link is None:
            return
        link.send(parts, size)
        if link.unsent or known.is_pushed:
            link.push(_FOR_ROOM)
            self._watch(known)

    def _push(self, known: _Incarnation) -> None:
        assert known.link is not None
        known.link.push()
        self._watch(known)

    def _watch(self, known: _Incarnation) -> None:
        """Waits for room in a link as long as something is on its way out."""
        link = known.link
        assert link is not None
        known.is_pushed = link.unsent
        self._poller.watch(
            link.fileno(), _IN_OR_OUT if known.is_pushed else select.POLLIN
        )

    def _tell(self, known: _Incarnation, message: Any) -> None:
        payload = pickle.dumps(message, protocol=5)
        self._send(known, [HEAD.pack(MESSAGE, 0, 0, 0, len(payload)), payload])

    # What links bring.

    def _read(self, known: _Incarnation) -> None:
        """Takes in all that a link has brought."""
        # Hot: called once per worker and batch step.
        link = known.link
        assert link is not None
        try:
            if link.expects and link.fetch():
                assert known.freight is not None
                known.freight.accept_together()
            elif not link.expects:
                while link.fill():
                    self._take_part(known, link)
        except EOFError as error:
            self._lose(known, f"lost its link ({error})")

    def _take_part(self, known: _Incarnation, link: Link) -> None:
        """Handles the part of a frame that is there, and says what the next is."""
        # Hot: called three times per worker and batch step.
        kind, flags, rows, length = known.frame
        freight = known.freight
        if kind == 0:
            kind, flags, _, rows, length = HEAD.unpack(known.head)
            known.frame = (kind, flags, rows, length)
            if kind == ANSWERED and freight is not None:
                known.is_control = True
                link.want(freight.receive_control(flags, rows, length))
            elif kind == BEGUN and freight is not None:
                link.want(freight.receive_begun(rows, length))
            elif kind == MESSAGE and length < _LONGEST:
                known.payload = bytearray(length)
                link.want(known.payload)
            else:
                raise EOFError("its worker has sent an unknown frame")
            return
        if kind == ANSWERED and known.is_control:
            assert freight is not None
            known.is_control = False
            link.want(*freight.receive_leaves(flags, rows))
            return
        known.frame = (0, 0, 0, 0)
        link.want(known.head)
        if kind == ANSWERED:
            assert freight is not None
            freight.accept(flags)
        elif kind == BEGUN:
            assert freight is not None
            freight.accept_begun(rows)
        else:
            try:
                message = pickle.loads(known.payload)
            except Exception as error:
                raise EOFError(
                    f"what its worker has sent cannot be read: {error}"
                ) from error
            self._take(known, message)

    def _take(self, known: _Incarnation, message: Any) -> None:
        worker, freight = known.worker, known.freight
        if isinstance(message, Packed):
            message = unpacked_hello(message)
        match message:
            case Hello():
                known.pid, known.host = message.pid, message.host
                known.resident = message.resident
                if self._slab is not None:
                    self._bind(known)
                self._inbox.queue.append(Started(worker, message))
            case ObjectRow() if not (freight and freight.is_outstanding(message.row)):
                pass  # What it belongs to was taken back.
            case _:
                self._inbox.take(worker, message, known.first)
                if isinstance(message, RemoteFailure):
                    self.kill(worker)

    # Questions.

    def request(self, worker: int, request: Request) -> None:
        """Asks an idle worker something; the answer will be an event `Replied`."""
        payload = serialize.dump_value(request.arguments, "An argument")
        known = self._workers.get(worker)
        if known is None or known.freight is None:
            return
        with uninterrupted():
            if request.method != "get_info":
                self._note_question(known)
            # Infos and options belong to numbers, and the pool may have changed those.
            self._send(known, known.freight.tell_numbers())
            self._tell(known, request._replace(arguments=payload))

    def _note_question(self, known: _Incarnation) -> None:
        """Notes that environments may differ from what is known of their infos."""
        slab = self._slab
        assert slab is not None
        if slab.infos:
            slab.has_info[known.rows] &= ANY_INFO

    # The end of a worker.

    def _lose(self, known: _Incarnation, why: str) -> None:
        """Notes that the link of a worker has ended; how the worker has comes later."""
        known.lost = why
        known.was_linked = True
        known.end_by = time.monotonic() + _LAST_WORDS
        self._ending.add(known)
        self._unlink(known)

    def _note_end(self, known: _Incarnation) -> None:
        """Queues that a worker is gone, after what it had told."""
        if self._workers.get(known.worker) is known:
            self._inbox.queue.append(Exited(known.worker, self._see_off(known)))

    def _see_off(self, known: _Incarnation) -> ExitReport:
        """Ends what is left of a worker; returns how it ended."""
        self._launcher.kill(known.worker)
        report = self._launcher.report(known.worker)
        # A command that has only submitted a job says nothing of how that has ended.
        is_known = report.exitcode is not None and (known.was_linked or report.exitcode)
        if known.lost and not (is_known or report.signal or known.is_killed):
            report = report._replace(exitcode=None, lost=report.lost or known.lost)
        self._drop(known)
        return report._replace(
            pid=known.pid or report.pid, host=known.host, resident=self._held(known)
        )

    def _held(self, known: _Incarnation) -> int:
        if self._slab is not None:
            known.resident = int(self._slab.meters[known.worker, RESIDENT]) or (
                known.resident
            )
        return known.resident

    def _drop(self, known: _Incarnation) -> None:
        """Forgets a worker; one that is still there is cut off."""
        self._door.revoke(known.token)
        if self._workers.get(known.worker) is known:
            del self._workers[known.worker]
            self._launcher.kill(known.worker)
        self._ending.discard(known)
        self._unlink(known)

    def _unlink(self, known: _Incarnation) -> None:
        if known.link is not None:
            fd = known.link.fileno()
            if self._by_fd.pop(fd, None) is not None:
                self._poller.unregister(fd)
            known.link.shut()
            known.link.close()
            known.link = None

    def kill(self, worker: int) -> None:
        """Ends a worker and everything it has started, at once."""
        known = self._workers.get(worker)
        if known is None:
            return
        with uninterrupted():
            known.is_killed = True
            # The next wait looks at it in any case.
            self._next_glance = 0.0
            if known.link is not None:
                known.link.shut()
            else:
                self._door.revoke(known.token)
                self._launcher.kill(worker)

    def resident(self, worker: int) -> int:
        """Returns the memory of a worker in bytes, as it has last told."""
        known = self._workers.get(worker)
        return self._held(known) if known is not None else 0

    def pid(self, worker: int) -> int:
        """Returns the process of a worker on its machine, 0 if it has none now."""
        known = self._workers.get(worker)
        return known.pid if known is not None else 0

    def is_worker(self) -> bool:
        """False: workers are other processes."""
        return False

    def wake(self) -> None:
        """Ends the wait of another thread: from now on `wait_events` does not wait."""
        self._inbox.is_ending = True
        if self._bell is not None and not self._closed:
            self._bell.ring()

    def close(self, grace: float) -> list[ExitReport]:
        """Asks every worker to end, and ends those that do not."""
        if self._closed:
            return []
        self.wake()
        self._closed = True
        with self._inbox.closing(2 * _LAST_WORDS):
            return self._close(grace)

    def _close(self, grace: float) -> list[ExitReport]:
        try:
            for known in self._workers.values():
                if known.link is None:
                    self.kill(known.worker)
                else:
                    self._tell(known, Close())
            reports = self._await_ends(grace)
            for known in self._workers.values():
                if known.link is not None:
                    known.is_killed = True
                    known.link.shut()
            reports += self._await_ends(1.0)
            for known in list(self._workers.values()):
                reports.append(self._see_off(known))
            return reports
        finally:
            # A second Ctrl-C: no more patience.
            for known in list(self._workers.values()):
                self._drop(known)
            self._launcher.close()
            self._release()

    def _await_ends(self, patience: float) -> list[ExitReport]:
        """Waits until the workers have ended; what they still say is dropped."""
        deadline = time.monotonic() + patience
        reports = []
        waste = memoryview(bytearray(1 << 16))
        while self._workers:
            for known in list(self._workers.values()):
                has_ended = known.link is None
                if known.link is not None:
                    known.link.push()
                    # It reads no frames any more; what comes must not stop the worker.
                    try:
                        while known.link.fill():
                            known.link.want(waste)
                    except EOFError:
                        has_ended = True
                if has_ended and self._launcher.ended(known.worker):
                    report = self._launcher.report(known.worker)
                    self._drop(known)
                    reports.append(report._replace(pid=known.pid or report.pid))
            left = deadline - time.monotonic()
            if not self._workers or left <= 0:
                break
            # A link that has ended stays readable, so the wait may return at once.
            if self._poller.poll(min(left, 0.02)):
                time.sleep(min(left, 0.001))
        return reports

    def forget(self) -> None:
        """Closes the descriptors only: all that a fork of the pool's process may do."""
        for known in self._workers.values():
            if known.link is not None:
                known.link.close()
        self._release()

    def _release(self) -> None:
        self._closed = True
        for name in ("dispatch", "request", "wait_events"):
            setattr(self, name, refuse_elsewhere)
        self._workers.clear()
        self._by_fd.clear()
        self._ending.clear()
        self._door.close()
        self._launcher.forget()
        if self._bell is not None:
            self._bell.close()
            self._poller.close()
        if self._block is not None:
            self._block.close()
        self._block = self._slab = self._inbox.slab = None


class _Incarnation:
    """One life of a worker, from its start to its end.

    Attributes:
        worker: Its index.
        job: What it is to do, until it has been sent.
        token: What it proves itself with.
        link: Its link, once it has connected.
        freight: What packs its rows, once there are any.
    """

    def __init__(self, worker: int, job: PackedJob, token: Token) -> None:
        self.worker = worker
        self.job: PackedJob | None = job
        self.token = token
        self.link: Link | None = None
        self.freight: Freight | None = None
        self.first = 0
        self.rows = slice(0, 0)
        self.pid = self.resident = 0
        self.host = ""
        self.is_killed = self.is_pushed = self.was_linked = False
        self.connect_by: float | None = None
        # Why its link has ended, and until when to wait for how it has ended itself.
        self.lost = ""
        self.end_by = 0.0
        # Of the frame that is being read.
        self.head = memoryview(bytearray(HEAD.size))
        self.frame = (0, 0, 0, 0)
        self.is_control = False
        self.payload = bytearray()
