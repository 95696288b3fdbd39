"""`RemoteBackend`: rows of a pool on servers that are asked for environments by name.

```
pool ── RemoteBackend ── a session for each worker, on one of the servers
            │  dials in a thread  ──▶  proves itself, opens a session: Started
            └── epoll over links: rows are read into the slab
                  a link that is lost is taken up again, or its end is Exited
```

A server is told names and plain data, and tells numbers and plain data: nothing of
either is code, and nothing is unpickled.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from envkit.errors import ConstructorError
from envkit.parallel.backends.base import Event, Exited, Replied, Started
from envkit.parallel.backends.inbox import GLANCE, Inbox
from envkit.parallel.freight import Freight
from envkit.parallel.messages import (
    ExitReport,
    Hello,
    RemoteFailure,
    Reply,
    Request,
    WorkerJob,
)
from envkit.parallel.slab import ANY_INFO, RESIDENT, Slab, SlabLayout
from envkit.parallel.system.ctrl_c import uninterrupted
from envkit.parallel.system.doorbell import Doorbell
from envkit.parallel.system.lifeline import forget_in_forks
from envkit.parallel.system.link import ANSWERED, BEGUN, HEAD, MESSAGE, Link
from envkit.parallel.system.poller import Poller
from envkit.parallel.system.shared_memory import SharedBlock
from envkit.provenance import PlainDataError, VersionWarning, envkit_version, to_plain
from envkit.registry import Constructor
from envkit.remote.dialing import (
    Peer,
    RefusedError,
    ServerAddress,
    addresses_in,
    dial,
)
from envkit.remote.protocol import (
    MOST_MESSAGE,
    PROTOCOL,
    ProtocolError,
    failure_from_plain,
    frame_of,
    message_of,
    numbers_of,
    specs_from_plain,
    specs_hash,
    value_of,
)
from envkit.types import Array

__all__ = ["PING", "SERVER", "Fact", "RemoteBackend"]

_LOGGER = logging.getLogger(__name__)

# Calls that this end answers, without the environment: the time that a question takes,
# and what the server has said of itself.
PING, SERVER = "envkit_ping", "envkit_server"
_FOR_ROOM = 0.02
_IN_OR_OUT = select.POLLIN | select.POLLOUT
# For how long nothing may listen where a session was.
_REFUSED_FOR = 2.0


class Fact(NamedTuple):
    """What one session's server has said of itself.

    Attributes:
        address: Where it is.
        session: What it calls the session.
        said: The facts.
        differences: What differs from this envkit, or from another session.
    """

    address: str
    session: str
    said: dict[str, Any]
    differences: tuple[str, ...]


class RemoteBackend:
    """Runs each worker as a session with a server of environments.

    An object serves one pool.

    Example:
        >>> from envkit import ParallelPyEnvironment
        >>> from envkit.remote.server import serve
        >>> from envkit.remote.serving import Menu, Offer, ServeOptions
        >>> server = serve(Menu([Offer("Catch")]), ServeOptions(port=0))
        >>> with ParallelPyEnvironment(["Catch"] * 3, backend=server.address) as env:
        ...     env.reset().step_type.tolist()
        [0, 0, 0]
        >>> server.close("the example is over")
    """

    name: ClassVar[str] = "remote"
    can_kill: ClassVar[bool] = True
    keeps_answers: ClassVar[bool] = False
    takes_names: ClassVar[bool] = True
    now = staticmethod(time.monotonic)

    def __init__(
        self,
        addresses: str | Sequence[ServerAddress],
        peer: Peer | None = None,
        *,
        mismatch: str = "warn",
        patience: float = 0.0,
        resume: float = 30.0,
    ) -> None:
        """Prepares; nothing is connected yet.

        Args:
            addresses: Where the servers are: `"tcp://a:7600,b:7600"`.
            peer: How to connect.
            mismatch: What to do about a server with another version of envkit, or that
                differs from another server: "warn" or "error".
            patience: For how many seconds to try where no server can be reached.
            resume: For how many seconds to try to take up a session whose link is lost.
        """
        if mismatch not in ("warn", "error"):
            raise ValueError(
                f"mismatch must be 'warn' or 'error', got {mismatch!r:.80}."
            )
        self._addresses: list[ServerAddress] = (
            addresses_in(addresses) if isinstance(addresses, str) else [*addresses]
        )
        self._peer = peer or Peer()
        self._mismatch = mismatch
        self._patience = patience
        self._resume = resume
        self._workers: dict[int, _Session] = {}
        self._by_fd: dict[int, _Session] = {}
        self._news: deque[Callable[[], None]] = deque()
        self._slab: Slab | None = None
        self._block: SharedBlock | None = None
        self._poller: Poller
        self._bell: Doorbell | None = None
        self._inbox = Inbox()
        self._inbox.patience = GLANCE
        self._closed = False
        # Returns why no further try to connect has any use; `None` where it has.
        self.is_hopeless: Callable[[], str | None] = _has_hope
        self._first: Fact | None = None
        self._warned: set[str] = set()
        forget_in_forks(self)

    def places(self) -> int | None:
        """Returns `None`: there may be any number of sessions."""
        return None

    def usual_workers(self) -> int:
        """Returns how many servers there are."""
        return len(self._addresses)

    def facts(self) -> list[Fact]:
        """Returns what the servers of the sessions that are there have said."""
        return [one.fact for one in self._workers.values() if one.fact is not None]

    # Starting.

    def start(self, jobs: Sequence[WorkerJob]) -> None:
        """Begins to open sessions."""
        wants = [_wanted(job) for job in jobs]
        if self._bell is None:
            self._poller, self._bell = Poller(), Doorbell.create()
            self._poller.register_bell(self._bell.fileno())
        for job, want in zip(jobs, wants, strict=True):
            with uninterrupted():
                self._open(job, want)

    def replace(self, worker: int, job: WorkerJob) -> None:
        """Begins to open a session in the place of one that is over."""
        want = _wanted(job)
        with uninterrupted():
            known = self._workers.get(worker)
            if known is not None:
                self._drop(known)
                self._inbox.forget(worker)
            self._open(job, want)

    def _open(self, job: WorkerJob, want: dict[str, Any]) -> None:
        known = self._workers[job.worker] = _Session(job)
        start = job.worker % len(self._addresses)
        addresses = self._addresses[start:] + self._addresses[:start]

        def connect() -> None:
            try:
                sock, facts, address = dial(
                    addresses,
                    {"open": want},
                    self._peer,
                    patience=self._patience,
                    is_over=lambda: known.is_over or self.is_hopeless() is not None,
                )
            except Exception as error:
                problem = self.is_hopeless()
                told = error if problem is None else ConstructorError(problem)
                failure = _not_opened(told, known)
                self._report(lambda: self._note_unopened(known, failure))
                return
            self._report(lambda: self._note_opened(known, sock, facts, address))

        self._in_thread(connect)

    def _in_thread(self, function: Callable[[], None]) -> None:
        threading.Thread(target=function, name="envkit-dial", daemon=True).start()

    def _report(self, news: Callable[[], None]) -> None:
        """Lets the thread of the pool handle what a thread that dials has found."""
        self._news.append(news)
        bell = self._bell
        if bell is not None and not self._closed:
            bell.ring()

    def _note_unopened(self, known: _Session, failure: RemoteFailure) -> None:
        if self._workers.get(known.worker) is known:
            del self._workers[known.worker]
            self._inbox.queue.append(Started(known.worker, failure))

    def _note_opened(
        self,
        known: _Session,
        sock: socket.socket,
        facts: dict[str, Any],
        address: ServerAddress,
    ) -> None:
        if self._workers.get(known.worker) is not known or known.is_over:
            sock.close()
            return
        try:
            hello = self._met(known, facts, address)
        except Exception as error:
            sock.close()
            self._note_unopened(known, _not_opened(error, known))
            return
        self._connect(known, sock)
        if self._slab is not None:
            self._bind(known)
        self._inbox.queue.append(Started(known.worker, hello))

    def _met(
        self, known: _Session, facts: dict[str, Any], address: ServerAddress
    ) -> Hello:
        """Returns who the server is, after comparing it with what is known.

        Raises:
            ProtocolError: It has not said what a server says.
            ConstructorError: It differs, and that is an error.
        """
        spec, info = specs_from_plain(facts.get("specs"))
        try:
            if specs_hash(facts["specs"]) != facts["sha256"]:
                raise ProtocolError("The hash of the server's specs is another's.")
            sizes = tuple(
                None if size is None else int(size) for size in facts["batch_sizes"]
            )
            known.key = str(facts["session"]), str(facts["secret"])
            known.host, known.pid = str(facts["host"]), int(facts["pid"])
            known.resume = min(self._resume, float(facts["resume"]))
            resident = int(facts["resident"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ProtocolError(
                f"The server has left out a part of its greeting: {error}."
            ) from error
        if len(sizes) != known.count:
            raise ProtocolError("The server has built another number of environments.")
        known.address, known.info = address, info
        fact = Fact(str(address), known.key[0], facts, ())
        known.fact = fact._replace(differences=self._differences(fact))
        self._first = self._first or known.fact
        self._tell_differences(known.fact)
        return Hello(
            pid=known.pid,
            specs=(spec,) * len(sizes),
            batch_sizes=sizes,
            resident=resident,
            info_specs=(info,) * len(sizes),
            host=known.host,
        )

    def _differences(self, fact: Fact) -> tuple[str, ...]:
        found = []
        theirs = fact.said.get("envkit")
        if theirs != envkit_version():
            found.append(
                f"The server at {fact.address} has envkit {theirs!s:.40}, and this is "
                f"envkit {envkit_version()}."
            )
        protocol = fact.said.get("protocol")
        if protocol != list(PROTOCOL):
            found.append(
                f"The server at {fact.address} speaks protocol {protocol!s:.40}, and "
                f"this envkit speaks {list(PROTOCOL)}."
            )
        first = self._first
        for key, what in (
            ("names", "environment"),
            ("sha256", "specs"),
            ("envkit", "version of envkit"),
        ):
            if first is not None and first.said.get(key) != fact.said.get(key):
                found.append(
                    f"The servers at {first.address} and {fact.address} have not the "
                    f"same {what}: {first.said.get(key)!s:.80} and "
                    f"{fact.said.get(key)!s:.80}."
                )
        return tuple(found)

    def _tell_differences(self, fact: Fact) -> None:
        if fact.differences and self._mismatch == "error":
            raise ConstructorError(
                f'{" ".join(fact.differences)} (mismatch="warn" goes on all the same.)'
            )
        for text in fact.differences:
            if text not in self._warned:
                self._warned.add(text)
                warnings.warn(text, VersionWarning, stacklevel=2)

    # Links.

    def _connect(self, known: _Session, sock: socket.socket) -> None:
        sock.setblocking(False)
        known.link = Link(sock)
        known.start_frame()
        self._by_fd[sock.fileno()] = known
        self._poller.register(sock.fileno())

    def bind(self, layout: SlabLayout) -> Slab:
        """Makes the slab, and tells sessions which of their infos belong into it."""
        self._block = SharedBlock.create(layout.size)
        self._slab = self._inbox.slab = slab = Slab(layout, self._block.buffer)
        self._worker_of_row = layout.worker_of_row
        for known in list(self._workers.values()):
            with uninterrupted():
                if known.link is not None:
                    self._bind(known)
        return slab

    def publish(self, plate: bytes) -> None:
        """Writes behind the rows what tells other processes whose they are."""
        if self._block is not None:
            self._block.write_behind(plate)

    def _bind(self, known: _Session) -> None:
        slab = self._slab
        assert slab is not None
        first, stop = slab.layout.blocks[known.worker]
        known.first, known.rows = first, slice(first, stop)
        known.freight = Freight(slab, known.worker)
        names = list(slab.layout.info_spec)
        self._tell(known, {"bind": {"info": names, "first_row": first}})

    # Rows.

    def dispatch(self, rows: Array | None) -> None:
        """Sends the sessions whose rows were asked what they are asked."""
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

    def _ask(self, known: _Session, rows: Array | None) -> None:
        """Sends those of the rows that owe an answer and were not sent yet."""
        # Hot: called once per session and batch step.
        freight, link = known.freight, known.link
        assert freight is not None
        if link is None or known.is_resuming:
            return  # All that is owed is asked when the session is taken up again.
        frame = freight.ask_together() if rows is None else None
        if frame is not None:
            if not known.frame[0]:
                link.expect(freight.expected_answer())
            self._send(known, frame.parts, frame.size)
            return
        chosen = freight.due(rows)
        if chosen.size:
            self._send(known, freight.ask(chosen))

    def wait_events(self, timeout: float | None, owing: int = -1) -> deque[Event]:
        """Waits until something has happened, and returns the events."""
        return self._inbox.wait(timeout, owing, self._poll, self._look)

    def _poll(self, patience: float) -> None:
        """Waits until a link or the bell has something, and takes that in."""
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
                    self._take_news()

    def _look(self, now: float) -> None:
        """Handles what wakes no process: nothing that a poll does not find."""
        if self._news:
            with uninterrupted():
                self._take_news()

    def _take_news(self) -> None:
        while self._news:
            self._news.popleft()()

    def _send(self, known: _Session, parts: Sequence[Any], size: int = 0) -> None:
        # Hot: called once per session and batch step.
        link = known.link
        if link is None:
            return
        link.send(parts, size)
        if link.unsent or known.is_pushed:
            link.push(_FOR_ROOM)
            self._watch(known)

    def _push(self, known: _Session) -> None:
        if known.link is not None:
            known.link.push()
            self._watch(known)

    def _watch(self, known: _Session) -> None:
        """Waits for room in a link as long as something is on its way out."""
        link = known.link
        assert link is not None
        known.is_pushed = link.unsent
        self._poller.watch(
            link.fileno(), _IN_OR_OUT if known.is_pushed else select.POLLIN
        )

    def _tell(self, known: _Session, message: dict[str, Any]) -> None:
        self._send(known, frame_of(message))

    # What links bring.

    def _read(self, known: _Session) -> None:
        """Takes in all that a link has brought."""
        # Hot: called once per session and batch step.
        link = known.link
        if link is None:
            return
        try:
            if link.expects and link.fetch():
                assert known.freight is not None
                known.freight.accept_together()
            elif not link.expects:
                while link.fill():
                    self._take_part(known, link)
                    if known.link is not link:
                        return
        except ProtocolError as error:
            self._end(known, f"was cut off, because {error}")
        except EOFError as error:
            self._lose(known, str(error))

    def _take_part(self, known: _Session, link: Link) -> None:
        """Handles the part of a frame that is there, and says what the next is."""
        # Hot: called three times per session and batch step.
        kind, flags, rows, length = known.frame
        freight = known.freight
        if kind == 0:
            kind, flags, _, rows, length = HEAD.unpack(known.head)
            known.frame = (kind, flags, rows, length)
            is_rows = freight is not None and not known.is_resuming
            if kind == ANSWERED and is_rows:
                assert freight is not None
                known.is_control = True
                link.want(_checked(freight.receive_control, flags, rows, length))
            elif kind == BEGUN and is_rows:
                assert freight is not None
                link.want(_checked(freight.receive_begun, rows, length))
            elif kind == MESSAGE and length <= MOST_MESSAGE:
                known.payload = bytearray(length)
                link.want(known.payload)
            else:
                raise ProtocolError("its server has sent an unknown frame")
            return
        if kind == ANSWERED and known.is_control:
            assert freight is not None
            known.is_control = False
            link.want(*_checked(freight.receive_leaves, flags, rows))
            return
        known.frame = (0, 0, 0, 0)
        link.want(known.head)
        if kind == ANSWERED:
            assert freight is not None
            freight.accept(flags)
        elif kind == BEGUN:
            assert freight is not None
            _checked(freight.accept_begun, rows)
        else:
            self._take(known, message_of(known.payload))

    def _take(self, known: _Session, message: dict[str, Any]) -> None:
        if "end" in message:
            self._end(known, f"was ended by its server: {message['end']!s:.500}")
        elif "refused" in message:
            self._end(known, f"was refused by its server: {message['refused']!s:.500}")
        elif "raised" in message:
            self._take_raised(known, message)
        elif "resumed" in message:
            self._take_resumed(known, message)
        elif "reply" in message:
            self._take_reply(known, message)
        elif "pong" in message:
            self._take_pong(known, message)
        else:
            raise ProtocolError("its server has sent an unknown message")

    def _take_raised(self, known: _Session, message: dict[str, Any]) -> None:
        rows, count = message["raised"], known.rows.stop - known.first
        if (
            known.freight is None
            or not isinstance(rows, list)
            or not rows
            or not all(type(row) is int and 0 <= row < count for row in rows)
        ):
            raise ProtocolError(
                "its server says that rows raised that it does not have"
            )
        failure = failure_from_plain(message.get("failure"), known.host)
        self._inbox.note_raised([known.first + row for row in rows], failure)

    # Losing a link, and taking the session up again.

    def _lose(self, known: _Session, why: str) -> None:
        """Begins to take up a session whose link is lost; without hope, ends it."""
        self._unlink(known)
        address = known.address
        if known.resume <= 0 or address is None or known.freight is None:
            self._end(known, f"lost its link ({why})")
            return
        _LOGGER.warning(
            "worker %d lost its link to %s (%s); it is taken up again within %g s",
            known.worker,
            address,
            why,
            known.resume,
        )
        known.is_resuming = True
        session, secret = known.key
        slab = self._slab
        assert slab is not None
        wants = {
            "session": session,
            "secret": secret,
            "sequence": slab.sequence[known.rows].tolist(),
            "owing": (slab.sequence != slab.answered)[known.rows].tolist(),
            "asked": None if known.question is None else known.question[0],
        }

        def connect() -> None:
            try:
                sock, _, _ = dial(
                    [address],
                    {"resume": wants},
                    self._peer,
                    patience=known.resume,
                    refused_for=_REFUSED_FOR,
                    is_over=lambda: known.is_over,
                )
            except Exception as error:
                text = f"lost its link ({why}), and could not take it up: {error}"
                self._report(lambda: self._end(known, text))
                return
            self._report(lambda: self._note_taken_up(known, sock))

        self._in_thread(connect)

    def _note_taken_up(self, known: _Session, sock: socket.socket) -> None:
        if self._workers.get(known.worker) is not known or known.is_over:
            sock.close()
            return
        self._connect(known, sock)

    def _take_resumed(self, known: _Session, message: dict[str, Any]) -> None:
        """Asks again what the server has not been asked, or has not understood."""
        freight = known.freight
        if freight is None or not known.is_resuming:
            raise ProtocolError("its server took up a session that was not lost")
        known.is_resuming = False
        answered = message["resumed"]
        if answered == []:  # The lost link has not even brought the layout.
            self._bind(known)
        else:
            freight.ask_again(numbers_of(answered, freight.size))
        question = known.question
        if question is not None and message.get("replied") != question[0]:
            self._send(known, question[1])
        self._ask(known, None)

    def _end(self, known: _Session, why: str) -> None:
        """Queues that a session is over."""
        if self._workers.get(known.worker) is not known:
            return
        known.resident = self._held(known)
        report = ExitReport(
            known.worker,
            known.pid,
            resident=known.resident,
            host=known.host,
            lost=why,
        )
        self._drop(known)
        self._inbox.queue.append(Exited(known.worker, report))

    def _drop(self, known: _Session) -> None:
        known.is_over = True
        if self._workers.get(known.worker) is known:
            del self._workers[known.worker]
        self._unlink(known)

    def _unlink(self, known: _Session) -> None:
        link, known.link = known.link, None
        known.is_pushed = False
        if link is not None:
            fd = link.fileno()
            if self._by_fd.pop(fd, None) is not None:
                self._poller.unregister(fd)
            link.shut()
            link.close()

    # Questions.

    def request(self, worker: int, request: Request) -> None:
        """Asks an idle session something; the answer will be an event `Replied`."""
        known = self._workers.get(worker)
        name = request.arguments[0][0] if request.method == "call" else ""
        if name == SERVER:
            fact = None if known is None else known.fact
            reply = Reply(request.number, (fact,) * len(request.envs))
            self._inbox.queue.append(Replied(worker, reply))
            return
        message: dict[str, Any] = {"ping": request.number}
        if name == "provenance" and known is not None and known.fact is not None:
            found = known.fact.said.get("provenance")
            reply = Reply(request.number, (found,) * len(request.envs))
            self._inbox.queue.append(Replied(worker, reply))
            return
        if name != PING:
            message = {
                "ask": request.number,
                "method": request.method,
                "envs": list(request.envs),
                "arguments": _plain_arguments(request),
            }
        if known is None or known.freight is None:
            return
        with uninterrupted():
            if request.method != "get_info" and name != PING:
                self._note_question(known)
            # Infos and options belong to numbers, and the pool may have changed those.
            frame = [*known.freight.tell_numbers(), *frame_of(message)]
            # Copies: it may be sent again, when the numbers are others.
            known.question = request.number, frame_of(message), request.envs
            known.asked_at = time.time_ns(), time.perf_counter_ns()
            if not known.is_resuming:
                self._send(known, frame)

    def _note_question(self, known: _Session) -> None:
        """Notes that environments may differ from what is known of their infos."""
        slab = self._slab
        assert slab is not None
        if slab.infos:
            slab.has_info[known.rows] &= ANY_INFO

    def _take_reply(self, known: _Session, message: dict[str, Any]) -> None:
        question, results = known.question, message.get("results")
        if question is None or question[0] != message["reply"]:
            return  # It was asked before Ctrl-C, say.
        envs = question[2]
        if not isinstance(results, list) or len(results) != len(envs):
            raise ProtocolError("its server has given another number of answers")
        values: list[Any] = []
        for result in results:
            if not isinstance(result, dict) or not {"failure", "value"} & set(result):
                raise ProtocolError("its server has given an answer without a value")
            if "failure" in result:
                values.append(failure_from_plain(result["failure"], known.host))
            else:
                values.append(value_of(result["value"], namedtuples=True))
        self._answer(known, values)

    def _take_pong(self, known: _Session, message: dict[str, Any]) -> None:
        question = known.question
        if question is None or question[0] != message["pong"]:
            return
        sent, begun = known.asked_at
        took = time.perf_counter_ns() - begun
        clock = message.get("clock")
        if type(clock) is not int:
            raise ProtocolError("its server has a clock without a number")
        # The server read its clock after the question left and before the answer came.
        pong = {
            "round_trip": took / 1e9,
            "skew_low": (clock - sent - took) / 1e9,
            "skew_high": (clock - sent) / 1e9,
        }
        self._answer(known, [pong] * len(question[2]))

    def _answer(self, known: _Session, values: list[Any]) -> None:
        assert known.question is not None
        number, known.question = known.question[0], None
        reply = Reply(number, tuple(values))
        self._inbox.queue.append(Replied(known.worker, reply))

    # The end.

    def kill(self, worker: int) -> None:
        """Ends a session at once; the server closes its environments."""
        known = self._workers.get(worker)
        if known is not None:
            with uninterrupted():
                self._tell(known, {"close": True})
                self._end(known, "")

    def _held(self, known: _Session) -> int:
        slab = self._slab
        if slab is None or known.freight is None:
            return known.resident
        return int(slab.meters[known.worker, RESIDENT]) or known.resident

    def resident(self, worker: int) -> int:
        """Returns the memory of a session's server in bytes, as it has last told."""
        known = self._workers.get(worker)
        return self._held(known) if known is not None else 0

    def pid(self, worker: int) -> int:
        """Returns the process of a session's server, 0 if there is none now."""
        known = self._workers.get(worker)
        return known.pid if known is not None else 0

    def is_worker(self) -> bool:
        """False: sessions are in other processes."""
        return False

    def wake(self) -> None:
        """Ends the wait of another thread: from now on `wait_events` does not wait."""
        self._inbox.is_ending = True
        if self._bell is not None and not self._closed:
            self._bell.ring()

    def close(self, grace: float) -> list[ExitReport]:
        """Tells every server that the session is over; no server is waited for."""
        if self._closed:
            return []
        self.wake()
        self._closed = True
        with self._inbox.closing(grace):
            for known in list(self._workers.values()):
                if known.link is not None:
                    known.link.send(frame_of({"close": True}))
                    known.link.push(min(grace, 1.0))
                self._drop(known)
            self._release()
        return []

    def forget(self) -> None:
        """Closes the descriptors only: all that a fork of the pool's process may do."""
        for known in self._workers.values():
            if known.link is not None:
                known.link.close()
        self._release()

    def _release(self) -> None:
        self._closed = True
        self._workers.clear()
        self._by_fd.clear()
        bell, self._bell = self._bell, None
        if bell is not None:
            bell.close()
            self._poller.close()
        if self._block is not None:
            self._block.close()
        self._block = self._slab = self._inbox.slab = None


class _Session:
    """One session of a worker, from when it is opened to its end."""

    def __init__(self, job: WorkerJob) -> None:
        self.worker = job.worker
        self.first_env = job.first_env
        self.count = len(job.constructors)
        self.link: Link | None = None
        self.freight: Freight | None = None
        self.fact: Fact | None = None
        self.address: ServerAddress | None = None
        self.info: dict[str, Any] = {}
        self.key = ("", "")
        self.host = ""
        self.pid = self.resident = self.first = 0
        self.rows = slice(0, 0)
        self.resume = 0.0
        self.is_over = self.is_pushed = self.is_resuming = False
        # The question that is not answered yet: number, frame, environments.
        self.question: tuple[int, list[bytes], tuple[int, ...]] | None = None
        self.asked_at = (0, 0)
        self.start_frame()

    def start_frame(self) -> None:
        """Begins to read frames of a new link."""
        self.head = memoryview(bytearray(HEAD.size))
        self.frame = (0, 0, 0, 0)
        self.is_control = False
        self.payload = bytearray()
        if self.link is not None:
            self.link.want(self.head)


def _has_hope() -> str | None:
    return None


def _checked(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except EOFError as error:
        raise ProtocolError(str(error)) from error


def _wanted(job: WorkerJob) -> dict[str, Any]:
    """Returns what a server is asked for; a job that needs more than names is refused.

    Raises:
        ValueError: A server does not do that.
    """
    if job.setup is not None:
        raise ValueError("A server runs no worker_setup of a client: leave it out.")
    if job.pads:
        raise ValueError(
            'specs="pad" is not for environments of servers: their specs must be '
            "equal, or differ in bounds alone."
        )
    environments: list[list[Any]] = []
    for index, each in enumerate(job.constructors):
        if not isinstance(each, Constructor) or not each.is_named:
            raise ConstructorError(
                f"env_constructors[{job.first_env + index}] must be a name; a server "
                'is asked for environments by name, such as "CartPole", and never sent '
                "code. envkit serve offers what it has by name.",
                envs=(job.first_env + index,),
            )
        try:
            plain = to_plain(each.arguments, f"The arguments of {each.name}")
        except PlainDataError as error:
            raise ConstructorError(
                f"env_constructors[{job.first_env + index}]: {error} A server is sent "
                "numbers, text, arrays, and lists and dictionaries of them.",
                envs=(job.first_env + index,),
            ) from error
        if environments and environments[-1][:2] == [each.name, plain]:
            environments[-1][2] += 1
        else:
            environments.append([each.name, plain, 1])
    return {
        "environments": environments,
        "first_env": job.first_env,
        "validate": job.validate,
        "seeds": to_plain(list(job.seeds), "seeds"),
        "rings": job.rings_each_row,
    }


def _plain_arguments(request: Request) -> Any:
    try:
        return to_plain(list(request.arguments), "The arguments")
    except PlainDataError as error:
        raise TypeError(
            f"{request.method}(): {error} A server is sent numbers, text, arrays, and "
            "lists, tuples and dictionaries of them."
        ) from error


def _not_opened(error: Exception, known: _Session) -> RemoteFailure:
    """Returns the failure of a session that could not be opened, in one sentence."""
    if not isinstance(error, ConstructorError):
        refusal = "The server refuses: " if isinstance(error, RefusedError) else ""
        error = ConstructorError(f"{refusal}{error}")
    return RemoteFailure.of(
        error, kind="constructor", env=known.first_env, command="construct"
    )
