"""`LinkedBackend`: workers on other machines, with a stream socket for each.

```
 pool ── LinkedBackend ── listener, open while workers are awaited
            │  launcher.start(worker, address)
            │  ◀── a worker dials, and proves that it knows the token of the address
            └── messages are pickles; the end of a link is Exited
```

The pool trusts a worker's messages like those of a local process: the worker has proved
that this pool started it, and links are encrypted or sealed, so nobody in between can
change anything. Before that proof, a connection's bytes are only compared with the
expected ones. Answers that were still on a link when its worker was lost are lost too;
in shared memory they would survive. `LinkBase` handles the rows.
"""

from __future__ import annotations

import pickle
import ssl
import sys
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from envkit.distributed.command_launcher import CommandLauncher
from envkit.distributed.link import HEAD, MESSAGE, UNIX, Address, Token
from envkit.distributed.link_base import LinkBase, WorkerLife
from envkit.distributed.listener import Arrival, Listener
from envkit.errors import CallOrderError
from envkit.parallel.backends.base import Exited, Started, refuse_calls
from envkit.parallel.backends.packing import (
    not_started,
    pack_actions,
    pack_bind,
    pack_job,
    pack_request,
    unpacked_hello,
)
from envkit.parallel.messages import (
    Bind,
    Close,
    ExitReport,
    Hello,
    ObjectRow,
    Packed,
    PackedJob,
    RemoteFailure,
    Request,
    WorkerJob,
)
from envkit.parallel.slab_layout import SlabLayout
from envkit.parallel.system.cpus import available_cpus
from envkit.parallel.system.ctrl_c import uninterrupted
from envkit.types import Array

__all__ = ["Launcher", "LinkedBackend", "linked"]

# The remedy for a worker that is out of reach.
_TO_SEE = (
    "Its machine or the network to it may be down, or the worker was ended there, by a "
    "person, a batch system or for its memory: check whether that machine is up, and "
    "look for process {pid} in its logs."
)
_TO_RUN = (
    "The program that starts it ended before the worker had connected, and no "
    "environment has run: read its output above, or run its command by hand."
)
_TO_CONNECT = (
    "Check whether the job that the command has submitted has begun, and whether its "
    "machine can reach this one at {address} (host=, reach_as= and port= set it); if "
    "it only takes long, raise connect_timeout=."
)
_TO_COME = (
    "Check whether it was started with its address, and whether its machine can reach "
    "this one at {address} (host=, reach_as= and port= set it). That address has "
    "expired: backend.invite() returns another."
)
_TO_TRUST = (
    "Something between this machine and the worker changes, repeats or drops what they "
    "send, and the pool has ignored all of it: check the proxies and tunnels on the "
    "way to {address}."
)
# Seconds for a worker's carrier to end after its link, and seconds between checks on
# it.
_LAST_WORDS, _ENDING_POLL_INTERVAL = 3.0, 0.002
# Seconds between checks of sources that cannot wake us: late strangers, ended commands.
_POLL_INTERVAL = 0.1


class Launcher(Protocol):
    """Starts workers somewhere, and reports how they ended.

    Attributes:
        places: How many workers it can start; `None` for any number.
    """

    places: int | None

    def start(self, worker: int, address: str) -> None:
        """Begins to start a worker, which will connect to the address.

        Raises:
            OSError: It cannot be started.
        """

    def ended(self, worker: int) -> bool:
        """Returns True if the process that carries a worker has ended.

        It is called about ten times a second, so a launcher may use it for periodic
        work.
        """

    def report(self, worker: int) -> ExitReport:
        """Returns how the carrier ended, as far as is known."""

    def kill(self, worker: int) -> None:
        """Kills the carrier of a worker, and returns when it has ended."""

    def close(self) -> None:
        """Ends everything left."""

    def forget(self) -> None:
        """Closes descriptors only; called in forks of this process."""


def linked(
    commands: Sequence[str | Sequence[str]],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    reach_as: str | None = None,
    tls: ssl.SSLContext | bool | None = None,
    connect_timeout: float = 60.0,
) -> LinkedBackend:
    """Returns a backend whose workers are started by commands, on any machine.

    A command runs `envkit worker {address}` somewhere, for example by ssh, srun or
    kubectl. The pool replaces `{address}` with its own address and a token that admits
    one worker, once. A command that begins with `envkit` runs the envkit of this
    Python. Commands are split into words like in a shell, but run without one.

    Args:
        commands: The command of each worker, as one text or as a list of words.
        host: The address of this machine to listen on. Only workers on this machine can
            reach the default; "0.0.0.0" means all addresses. "unix:" is a Unix socket
            without a file, for workers in the same network namespace (Linux only).
            "unix:/tmp/pool" is a socket file that only this user may open, and that
            containers can share.
        port: The port to listen on; 0 for any free port.
        reach_as: The name or address under which workers reach this machine; `None`
            means `host`, or this machine's name if `host` is "0.0.0.0". For a Unix
            socket, "unix:" and its path as workers see it.
        tls: How links are encrypted: with an `ssl.SSLContext` that has loaded your own
            certificate, or with True by a certificate that the pool makes. Workers
            accept no other certificate. `None` encrypts unless all workers are on this
            machine. False never encrypts, and warns with an `InsecureWarning` if
            workers are on other machines. Frames that are not encrypted are sealed:
            others can read but not change them.
        connect_timeout: How many seconds a worker has to connect after its command has
            ended without an error, such as a command that only submits a job.

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


class LinkedBackend(LinkBase["_Incarnation", PackedJob]):
    """Runs each worker wherever a launcher starts it, at the end of a link.

    Each backend serves one pool.
    """

    name: ClassVar[str] = "linked"
    keeps_states: ClassVar[bool] = True
    cuts_workers: ClassVar[bool] = True
    other_end: ClassVar[str] = "worker"
    longest: ClassVar[int] = 1 << 40

    def __init__(
        self,
        launcher: Launcher,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        reach_as: str | None = None,
        tls: ssl.SSLContext | bool | None = None,
        connect_timeout: float = 60.0,
    ) -> None:
        """Stores the arguments of `linked`; starts nothing."""
        self._launcher = launcher
        self._connect_timeout = connect_timeout
        self._listener = Listener(host, port, reach_as, tls)
        # Workers whose link has ended, but whose own end is not reported yet.
        self._ending: set[_Incarnation] = set()
        self._next_poll = 0.0
        # Invited workers that have no rows yet.
        self._guests: dict[int, _Guest] = {}
        super().__init__()

    def places(self) -> int | None:
        """Returns the largest number of workers; `None` for any number."""
        return self._launcher.places

    def usual_workers(self) -> int:
        """Returns the default number of workers."""
        places = self._launcher.places
        return available_cpus() if places is None else places

    # Workers that join, and places that change.

    def add_workers(self, commands: Sequence[str | Sequence[str]]) -> None:
        """Adds the commands of workers that may join a pool while it runs.

        They are started for the new rows of the pool's next `resize`.

        Args:
            commands: The command of each, as in `linked`.

        Example:
            >>> from envkit import ParallelPyEnvironment
            >>> from envkit.testing import CountingEnv
            >>> backend = linked(["envkit worker {address}"])
            >>> with ParallelPyEnvironment([CountingEnv], backend=backend) as env:
            ...     backend.add_workers(["envkit worker {address}"])
            ...     env.resize(2)
            ...     env.reset().step_type.tolist()
            [0, 0]
        """
        self._by_commands("add_workers").add(commands)

    def change_worker(self, worker: int, command: str | Sequence[str]) -> None:
        """Changes the command for a worker's next start.

        Use it when the worker's machine is about to be taken away. A pool with
        `RestartPolicy(recover="replay")` then continues its environments elsewhere, bit
        for bit.

        Args:
            worker: Its index.
            command: The command, as in `linked`.
        """
        self._by_commands("change_worker").change(worker, command)
        guest = self._guests.pop(worker, None)
        if guest is not None:
            self._listener.revoke(guest.token)
            guest.close()

    def invite(self) -> str:
        """Adds a place for a worker that you start yourself; returns its address.

        Start it with `envkit worker ADDRESS`, once, anywhere, by hand or in a job. The
        pool's next `resize` that needs a worker uses it, and waits up to
        `connect_timeout` seconds for it. The pool cannot start it again: if it ends,
        invite another one, or give its place a command with `change_worker`.

        Raises:
            CallOrderError: No pool uses this backend.
        """
        launcher = self._by_commands("invite")
        if self._bell is None or self._closed:
            raise CallOrderError(
                "invite() was called while no pool uses this backend. Make the pool "
                "first: workers are invited into one that runs."
            )
        worker = launcher.open_place({*self._workers, *self._guests})
        token = Token.new()
        address = self._listener.open(token, worker, self._poller)
        self._guests[worker] = _Guest(token, _place_of(address))
        return str(address)

    def arrived(self) -> int:
        """Returns how many invited workers have connected and wait for rows."""
        if self._guests and not self._closed:
            self._poll(0.0)
        return sum(guest.arrival is not None for guest in self._guests.values())

    def _by_commands(self, call: str) -> CommandLauncher:
        launcher = self._launcher
        if not isinstance(launcher, CommandLauncher):
            raise TypeError(
                f"{call}() is for workers that are started by commands; those of "
                f"{type(self).__name__} are started by a {type(launcher).__name__}, "
                "which places them itself."
            )
        return launcher

    # Starting.

    def _order(self, job: WorkerJob) -> PackedJob:
        return pack_job(job)

    def _reach(self, job: WorkerJob, order: PackedJob, *, again: bool) -> None:
        try:
            self._launch(job.worker, order)
        except OSError as error:
            if not again:
                raise
            self._inbox.queue.append(Started(job.worker, not_started(error)))

    def _launch(self, worker: int, job: PackedJob) -> None:
        launcher = self._launcher
        if isinstance(launcher, CommandLauncher) and launcher.is_open(worker):
            self._adopt_guest(worker, job)
            return
        token = Token.new()
        address = self._listener.open(token, worker, self._poller)
        known = self._workers[worker] = _Incarnation(worker, job, token)
        known.address = _place_of(address)
        self._next_poll = 0.0
        try:
            self._launcher.start(worker, str(address))
        except BaseException:
            self._listener.revoke(token)
            del self._workers[worker]
            raise

    def _adopt_guest(self, worker: int, job: PackedJob) -> None:
        """Gives an invited worker its place, connected or not."""
        guest = self._guests.pop(worker, None)
        if guest is None:
            raise OSError(
                f"Worker {worker} was invited, and started by others: its address let "
                "one worker in, and is used up. Invite another one into its place with "
                "backend.invite(), or say how to start it with "
                f"backend.change_worker({worker}, command)."
            )
        known = self._workers[worker] = _Incarnation(worker, job, guest.token)
        known.is_invited, known.address = True, guest.address
        self._next_poll = 0.0
        if guest.arrival is not None:
            self._let_in([guest.arrival])

    def _send_layout(self, known: _Incarnation, layout: SlabLayout) -> None:
        bind = Bind(
            layout.of_worker(known.worker),
            first_row=known.first,
            on_machine=self._count_on(known.host),
        )
        self._send_message(known, pack_bind(bind))

    def _count_on(self, host: str) -> int:
        """Returns how many workers run on a machine.

        The pool's process does not count, because lingering workers yield their CPU to
        it.
        """
        return [each.host for each in self._workers.values()].count(host)

    # Rows.

    def _send_objects(self, known: _Incarnation, rows: Array) -> None:
        assert self._slab is not None
        own = (rows + known.first).tolist()
        self._send_message(known, pack_actions(self._slab, own, known.first))

    def _check_sources(self, now: float) -> None:
        # Late strangers, commands that have ended.
        if self._ending:
            self._handle_ends(now)
        self._inbox.patience = _ENDING_POLL_INTERVAL if self._ending else _POLL_INTERVAL
        if now < self._next_poll:
            return
        self._next_poll = now + _POLL_INTERVAL
        with uninterrupted():
            self._let_in(self._listener.drop_late(now, self._poller))
            for known in list(self._workers.values()):
                has_ended = self._launcher.ended(known.worker)
                if known.link is not None:
                    continue
                if known.is_killed:
                    self._queue_end(known)
                elif has_ended and known not in self._ending:
                    self._handle_unconnected(known, now)

    def _handle_ends(self, now: float) -> None:
        """Handles workers whose link has ended, once they end or time out."""
        with uninterrupted():
            for known in list(self._ending):
                has_ended = known.is_killed or now >= known.end_by
                if has_ended or self._launcher.ended(known.worker):
                    self._queue_end(known)

    def _handle_unconnected(self, known: _Incarnation, now: float) -> None:
        """Handles a worker that never connected although its command has ended."""
        report = self._launcher.report(known.worker)
        if report.exitcode != 0 and not known.is_invited:
            self._queue_end(known)
        elif known.connect_by is None:
            # The command may have submitted a job, which connects later.
            known.connect_by = now + self._connect_timeout
        elif now >= known.connect_by:
            known.lost = (
                f"did not connect within {self._connect_timeout:g} s after "
                f"{'it was needed' if known.is_invited else 'its command had ended'}"
            )
            remedy = _TO_COME if known.is_invited else _TO_CONNECT
            known.remedy = remedy.format(address=known.address)
            self._queue_end(known)

    # Connections.

    def _handle_other(self, fd: int) -> None:
        # There is a new connection, or one has sent its proof.
        self._let_in(self._listener.handle(fd, self._poller))

    def _let_in(self, arrived: list[Arrival]) -> None:
        for each in arrived:
            worker = each.worker
            if worker in self._guests:
                self._guests[worker].arrival = each
                continue
            known = self._workers.get(worker)
            if known is None or known.link is not None or known.is_killed:
                each.sock.close()
                continue
            self._connect(known, each.sock, each.seal)
            self._send_message(
                known, [each for each in sys.path if isinstance(each, str)]
            )
            self._send_message(known, known.job)
            known.job = None

    def _send_message(self, known: _Incarnation, message: Any) -> None:
        payload = pickle.dumps(message, protocol=5)
        self._send(known, [HEAD.pack(MESSAGE, 0, 0, 0, len(payload)), payload])

    # What links bring.

    def _handle_message(self, known: _Incarnation, payload: bytearray) -> None:
        try:
            message = pickle.loads(payload)
        except Exception as error:
            raise EOFError(
                f"what its worker has sent cannot be read: {error}"
            ) from error
        self._handle(known, message)

    def _handle(self, known: _Incarnation, message: Any) -> None:
        worker, row_frames = known.worker, known.row_frames
        if isinstance(message, Packed):
            message = unpacked_hello(message)
        match message:
            case Hello():
                known.pid, known.host = message.pid, message.host
                known.resident = message.resident
                if self._slab is not None and worker in self._slab.layout.workers:
                    self._bind(known)
                self._inbox.queue.append(Started(worker, message))
            case ObjectRow() if not (
                row_frames and row_frames.is_outstanding(message.row)
            ):
                pass  # Its request was withdrawn.
            case _:
                self._inbox.handle(worker, message, known.first)
                if isinstance(message, RemoteFailure):
                    self.kill(worker)

    # Questions.

    def request(self, worker: int, request: Request) -> None:
        """Asks an idle worker a question; the answer arrives as an event `Replied`."""
        packed = pack_request(request)
        known = self._workers.get(worker)
        if known is None or known.row_frames is None:
            return
        with uninterrupted():
            if request.method != "get_info":
                self._forget_infos(known)
            # Infos and options belong to request numbers, which the pool may have
            # changed.
            self._send(known, known.row_frames.numbers_frame())
            self._send_message(known, packed)

    # The end of a worker.

    def _lose(self, known: _Incarnation, why: str) -> None:
        # The report about the worker's end comes later.
        known.lost = f"lost its link ({why})"
        known.remedy = _TO_SEE.format(pid=known.pid) if known.pid else ""
        known.was_linked = True
        known.end_by = time.monotonic() + _LAST_WORDS
        self._ending.add(known)
        self._unlink(known)

    def _cut_off(self, known: _Incarnation, why: str) -> None:
        self._lose(known, why)
        known.is_cut_off = True
        known.lost = f"was cut off, because {why}"
        known.remedy = _TO_TRUST.format(address=known.address)

    def _queue_end(self, known: _Incarnation) -> None:
        """Queues a worker's end, after its last messages."""
        if self._workers.get(known.worker) is known:
            self._inbox.queue.append(Exited(known.worker, self._end_worker(known)))

    def _end_worker(self, known: _Incarnation) -> ExitReport:
        """Cleans up after a worker; returns how it ended."""
        self._launcher.kill(known.worker)
        report = self._launcher.report(known.worker)
        # A command that only submitted a job does not know how the job ended.
        is_known = report.exitcode is not None and (known.was_linked or report.exitcode)
        is_told = is_known or report.signal or known.is_killed
        # If we cut a worker off, its exit status is only a consequence.
        if known.lost and (known.is_cut_off or not is_told):
            report = report._replace(
                exitcode=None,
                signal=None,
                lost=report.lost or known.lost,
                remedy=report.remedy or known.remedy,
            )
        has_connected = known.job is None
        if report.exitcode and not (has_connected or known.is_killed or report.lost):
            report = report._replace(remedy=_TO_RUN)
        self._drop(known)
        return report._replace(
            pid=known.pid or report.pid, host=known.host, resident=self._held(known)
        )

    def _drop(self, known: _Incarnation) -> None:
        self._listener.revoke(known.token)
        if self._workers.get(known.worker) is known:
            del self._workers[known.worker]
            self._launcher.kill(known.worker)
        self._ending.discard(known)
        self._unlink(known)

    def kill(self, worker: int) -> None:
        """Kills a worker and its helpers at once."""
        known = self._workers.get(worker)
        if known is None:
            return
        with uninterrupted():
            known.is_killed = True
            # Make the next wait look at it.
            self._next_poll = 0.0
            if known.link is not None:
                known.link.shut()
            else:
                self._listener.revoke(known.token)
                self._launcher.kill(worker)

    def _end_some(
        self, leaving: Sequence[_Incarnation], grace: float
    ) -> list[ExitReport]:
        try:
            for known in leaving:
                if known.link is None:
                    self.kill(known.worker)
                else:
                    self._send_message(known, Close())
            reports = self._await_ends(leaving, grace)
            for known in leaving:
                if known.link is not None:
                    known.is_killed = True
                    known.link.shut()
            reports += self._await_ends(leaving, 1.0)
            for known in leaving:
                if self._is_there(known):
                    reports.append(self._end_worker(known))
            return reports
        finally:
            # A second Ctrl-C: kill at once.
            for known in leaving:
                self._drop(known)

    def _end_launched(self) -> None:
        self._launcher.close()

    def _is_there(self, known: _Incarnation) -> bool:
        return self._workers.get(known.worker) is known

    def _await_ends(
        self, leaving: Sequence[_Incarnation], patience: float
    ) -> list[ExitReport]:
        """Waits until workers have ended, dropping their last messages."""
        deadline = time.monotonic() + patience
        reports = []
        waste = memoryview(bytearray(1 << 16))
        while left := [known for known in leaving if self._is_there(known)]:
            for known in left:
                has_ended = known.link is None
                if known.link is not None:
                    known.link.push()
                    # Frames are not parsed any more, but must be read so that the
                    # worker does not block.
                    try:
                        while known.link.fill():
                            known.link.want(waste)
                    except EOFError:
                        has_ended = True
                if has_ended and self._launcher.ended(known.worker):
                    report = self._launcher.report(known.worker)
                    self._drop(known)
                    reports.append(report._replace(pid=known.pid or report.pid))
            time_left = deadline - time.monotonic()
            if time_left <= 0:
                break
            # A link that has ended stays readable, so the wait may return at once.
            is_over = not any(map(self._is_there, leaving))
            if not is_over and self._poller.poll(min(time_left, 0.02)):
                time.sleep(min(time_left, 0.001))
        return reports

    def _release(self) -> None:
        refuse_calls(self)
        self._ending.clear()
        for guest in self._guests.values():
            guest.close()
        self._guests.clear()
        self._listener.close()
        self._launcher.forget()
        super()._release()


class _Incarnation(WorkerLife):
    """One life of a worker, from its start to its end.

    Attributes:
        job: Its job, until it has been sent.
        token: The token that admits it.
    """

    def __init__(self, worker: int, job: PackedJob, token: Token) -> None:
        super().__init__(worker)
        self.job: PackedJob | None = job
        self.token = token
        self.is_killed = self.was_linked = self.is_invited = False
        self.is_cut_off = False
        self.connect_by: float | None = None
        # The address under which it reaches this pool.
        self.address = ""
        # Why its link ended, the remedy, and how long to wait for the report about its
        # own end.
        self.lost = self.remedy = ""
        self.end_by = 0.0


class _Guest:
    """An invited worker that has no rows yet.

    Attributes:
        token: The token that admits it.
        address: The address under which it reaches this pool.
        arrival: Its connection, once it has proved itself.
    """

    def __init__(self, token: Token, address: str) -> None:
        self.token = token
        self.address = address
        self.arrival: Arrival | None = None

    def close(self) -> None:
        """Closes its connection, if any."""
        if self.arrival is not None:
            self.arrival.sock.close()


def _place_of(address: Address) -> str:
    """Returns an address without its secret."""
    is_file = address.host.startswith(UNIX)
    return address.host if is_file else f"{address.host}:{address.port}"
