"""`RemoteBackend`: runs the workers of a pool as sessions of servers.

```
pool ── RemoteBackend ── a session for each worker, on one of the servers
            │  a thread connects, proves itself, opens a session: Started
            └── after a lost link the session is resumed, or ends: Exited
```

Names and plain data go to a server; numbers and plain data come back. None of it is
code, and nothing is unpickled. `LinkBase` sends and receives the rows.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from envkit._shared.text import escaped
from envkit.distributed.link import FrameError
from envkit.distributed.link_base import LinkBase, WorkerLife
from envkit.errors import ConstructorError
from envkit.parallel.backends.base import Exited, Replied, Started
from envkit.parallel.messages import (
    ExitReport,
    Hello,
    RemoteFailure,
    Reply,
    Request,
    WorkerJob,
)
from envkit.parallel.slab_layout import SlabLayout
from envkit.parallel.system.ctrl_c import uninterrupted
from envkit.provenance import (
    PlainDataError,
    VersionWarning,
    envkit_version,
    to_plain,
)
from envkit.registry import Constructor
from envkit.remote.client_connection import (
    Launched,
    Peer,
    ServerAddress,
    addresses_in,
    dial,
)
from envkit.remote.plain_values import (
    ProtocolError,
    losses_from_plain,
    plan_to_plain,
    specs_from_plain,
    specs_hash,
)
from envkit.remote.protocol import (
    MOST_MESSAGE,
    PROTOCOL,
    AskMessage,
    BindMessage,
    ClientConversation,
    CloseMessage,
    EndMessage,
    PingMessage,
    PongMessage,
    RaisedMessage,
    RefusedError,
    ReplyMessage,
    ResumedMessage,
    ResumeRequest,
    SessionMessage,
    frame_of,
)

__all__ = [
    "PING",
    "SERVER",
    "RemoteBackend",
    "ServerInfo",
]

_LOGGER = logging.getLogger(__name__)

# Calls that this end answers itself: the round trip to the server, and its facts.
PING, SERVER = "envkit_ping", "envkit_server"
# Seconds that nothing may listen on the address of a lost session.
_REFUSED_FOR = 2.0


class ServerInfo(NamedTuple):
    """The server of one session.

    Attributes:
        address: The server's address.
        session: The session's name on the server.
        facts: The server's description of itself.
        differences: Its differences from this envkit and from the first session.
    """

    address: str
    session: str
    facts: dict[str, Any]
    differences: tuple[str, ...]


class _ServerInfos:
    """Compares each server of a pool with this envkit and with the first server."""

    def __init__(self, mismatch: str) -> None:
        """Takes the reaction to differences: "warn" or "error"."""
        if mismatch not in ("warn", "error"):
            raise ValueError(
                f"mismatch must be 'warn' or 'error', got {mismatch!r:.80}."
            )
        self._mismatch = mismatch
        self._first: ServerInfo | None = None
        self._warned: set[str] = set()

    def add(self, address: str, session: str, facts: dict[str, Any]) -> ServerInfo:
        """Adds a session's server; warns of differences.

        Raises:
            ConstructorError: It differs, and `mismatch` is "error".
        """
        found = ServerInfo(address, session, facts, ())
        found = found._replace(differences=self._differences(found))
        self._first = self._first or found
        if found.differences and self._mismatch == "error":
            raise ConstructorError(
                f'{" ".join(found.differences)} (mismatch="warn" continues anyway.)'
            )
        for text in found.differences:
            if text not in self._warned:
                self._warned.add(text)
                warnings.warn(text, VersionWarning, stacklevel=2)
        return found

    def _differences(self, found: ServerInfo) -> tuple[str, ...]:
        differences = []
        theirs = found.facts.get("envkit")
        if theirs != envkit_version():
            differences.append(
                f"The server at {found.address} has envkit {theirs!s:.40}, and this is "
                f"envkit {envkit_version()}."
            )
        protocol = found.facts.get("protocol")
        if protocol != list(PROTOCOL):
            differences.append(
                f"The server at {found.address} speaks protocol {protocol!s:.40}, and "
                f"this envkit speaks {list(PROTOCOL)}."
            )
        first = self._first
        for key, what in (
            ("names", "environment"),
            ("sha256", "specs"),
            ("envkit", "version of envkit"),
        ):
            if first is not None and first.facts.get(key) != found.facts.get(key):
                differences.append(
                    f"The servers at {first.address} and {found.address} differ in the "
                    f"{what}: {first.facts.get(key)!s:.80} and "
                    f"{found.facts.get(key)!s:.80}."
                )
        return tuple(map(escaped, differences))


class RemoteBackend(LinkBase["_WorkerSession", dict[str, Any]]):
    """Runs each worker as a session of a server.

    An object serves one pool.

    Attributes:
        launched: The command that starts and restarts the server, or `None`.

    Example:
        >>> from envkit import ParallelPyEnvironment
        >>> from envkit.remote.server import serve
        >>> from envkit.remote.offers import Menu, Offer, ServeOptions
        >>> server = serve(Menu([Offer("Catch")]), ServeOptions(port=0))
        >>> with ParallelPyEnvironment(["Catch"] * 3, backend=server.address) as env:
        ...     env.reset().step_type.tolist()
        [0, 0, 0]
        >>> server.close("the example is over")
    """

    name: ClassVar[str] = "remote"
    keeps_states: ClassVar[bool] = False
    # A session keeps the environments that it was opened with.
    cuts_workers: ClassVar[bool] = False
    sends_layout_once: ClassVar[bool] = True
    other_end: ClassVar[str] = "server"
    longest: ClassVar[int] = MOST_MESSAGE
    takes_names: ClassVar[bool] = True
    address: ClassVar[str] = "tcp://host:port"

    def __init__(
        self,
        addresses: str | Sequence[ServerAddress],
        peer: Peer | None = None,
        *,
        mismatch: str = "warn",
        patience: float = 0.0,
        resume: float = 30.0,
    ) -> None:
        """Prepares, without connecting.

        Args:
            addresses: The servers' addresses: `"tcp://a:7600,b:7600"`.
            peer: The token and TLS settings.
            mismatch: "warn" or "error": what to do if a server has another version of
                envkit, or differs from another server.
            patience: Seconds to keep trying while no server can be reached.
            resume: Seconds to keep trying to resume a session after a lost link.
        """
        self._infos = _ServerInfos(mismatch)
        self._addresses: list[ServerAddress] = (
            addresses_in(addresses) if isinstance(addresses, str) else [*addresses]
        )
        self._peer = peer or Peer()
        self._patience = patience
        self._resume = resume
        self._news: deque[Callable[[], None]] = deque()
        self.launched: Launched | None = None
        super().__init__()

    def places(self) -> int | None:
        """Returns `None`: the number of sessions is unlimited."""
        return None

    def usual_workers(self) -> int:
        """Returns the number of servers."""
        return len(self._addresses)

    def server_infos(self) -> list[ServerInfo]:
        """Returns the servers of all sessions."""
        known = [self._workers[worker] for worker in sorted(self._workers)]
        return [one.info for one in known if one.info is not None]

    # Starting.

    def _order(self, job: WorkerJob) -> dict[str, Any]:
        return _request_of(job)

    def _reach(self, job: WorkerJob, order: dict[str, Any], *, again: bool) -> None:
        known = self._workers[job.worker] = _WorkerSession(job)
        start = job.worker % len(self._addresses)

        def connect() -> None:
            try:
                if again:
                    self._revive()
                sock, facts, address = dial(
                    self._addresses[start:] + self._addresses[:start],
                    {"open": order},
                    self._peer,
                    patience=self._patience,
                    is_over=lambda: known.is_over or self._problem() is not None,
                )
            except Exception as error:
                problem = self._problem()
                cause = error if problem is None else ConstructorError(problem)
                failure = _not_opened(cause, known)
                self._report(lambda: self._fail_to_open(known, failure))
                return
            self._report(lambda: self._begin_session(known, sock, facts, address))

        self._in_thread(connect)

    def _problem(self) -> str | None:
        """Returns why trying again is pointless; `None` if it is worthwhile."""
        return None if self.launched is None else self.launched.problem()

    def _revive(self) -> None:
        """Restarts a server that was started here and has ended."""
        if self.launched is not None:
            address = self.launched.revive()
            if address is not None:  # it may listen elsewhere now
                self._addresses = [ServerAddress.parse(address)]

    def _in_thread(self, function: Callable[[], None]) -> None:
        threading.Thread(target=function, name="envkit-dial", daemon=True).start()

    def _report(self, news: Callable[[], None]) -> None:
        """Hands the result of a connecting thread to the pool's thread."""
        self._news.append(news)
        self._ring()

    def _fail_to_open(self, known: _WorkerSession, failure: RemoteFailure) -> None:
        if self._workers.get(known.worker) is known:
            del self._workers[known.worker]
            self._inbox.queue.append(Started(known.worker, failure))

    def _begin_session(
        self,
        known: _WorkerSession,
        sock: socket.socket,
        facts: dict[str, Any],
        address: ServerAddress,
    ) -> None:
        if self._workers.get(known.worker) is not known or known.is_over:
            sock.close()
            return
        try:
            hello = self._hello_of(known, facts, address)
        except Exception as error:
            sock.close()
            self._fail_to_open(known, _not_opened(error, known))
            return
        self._connect(known, sock)
        if self._slab is not None and known.worker in self._slab.layout.workers:
            self._bind(known)
        self._inbox.queue.append(Started(known.worker, hello))

    def _hello_of(
        self, known: _WorkerSession, facts: dict[str, Any], address: ServerAddress
    ) -> Hello:
        """Checks the server's facts, and returns them as a worker's greeting.

        Raises:
            ProtocolError: A fact is missing, or does not fit this job.
            ConstructorError: The server differs, and `mismatch` is "error".
        """
        spec, info = specs_from_plain(facts.get("specs"))
        try:
            if specs_hash(facts["specs"]) != facts["sha256"]:
                raise ProtocolError("The server's specs do not match their hash.")
            sizes = tuple(
                None if size is None else int(size) for size in facts["batch_sizes"]
            )
            known.key = str(facts["session"]), str(facts["secret"])
            known.host, known.pid = escaped(str(facts["host"])), int(facts["pid"])
            known.resume = min(self._resume, float(facts["resume"]))
            resident = int(facts["resident"])
            # Older servers omit it.
            given = facts.get("continues") or [False] * len(sizes)
            continues = tuple(one is True for one in given)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ProtocolError(
                f"The server left out a part of its greeting: {error}."
            ) from error
        if len(sizes) != known.count or len(continues) != known.count:
            raise ProtocolError("The server built a different number of environments.")
        rows = sum(1 if size is None else size for size in sizes)
        known.conversation = ClientConversation(rows, known.host)
        known.address = address
        known.info = self._infos.add(str(address), known.key[0], facts)
        return Hello(
            pid=known.pid,
            specs=(spec,) * len(sizes),
            batch_sizes=sizes,
            resident=resident,
            info_specs=(info,) * len(sizes),
            host=known.host,
            continues=continues,
        )

    def _send_layout(self, known: _WorkerSession, layout: SlabLayout) -> None:
        names = list(layout.info_spec)
        self._send_message(known, BindMessage(names, known.first))

    def _check_sources(self, now: float) -> None:
        # A poll finds everything else.
        if self._news:
            with uninterrupted():
                self._handle_news()

    def _handle_news(self) -> None:
        while self._news:
            self._news.popleft()()

    def _send_message(self, known: _WorkerSession, message: SessionMessage) -> None:
        if known.link is not None:
            self._send(known, known.conversation.send(message))

    # Incoming messages.

    def _handle_message(self, known: _WorkerSession, payload: bytearray) -> None:
        try:
            message = known.conversation.receive(payload)
            if isinstance(message, ReplyMessage):
                self._handle_reply(known, message)
        except ProtocolError as error:
            raise FrameError(str(error)) from error
        if isinstance(message, EndMessage):
            how = "refused" if message.is_refusal else "ended"
            # The sentence continues after the reason.
            reason = escaped(message.reason).removesuffix(".")
            self._end(known, f"was {how} by its server: {reason}", kind=message.kind)
        elif isinstance(message, RaisedMessage):
            rows = [known.first + row for row in message.rows]
            self._inbox.queue_raised(rows, message.failure)
        elif isinstance(message, ResumedMessage):
            self._handle_resumed(known, message)
        elif isinstance(message, PongMessage):
            self._handle_pong(known, message)

    def _cut_off(self, known: _WorkerSession, why: str) -> None:
        why = why.removesuffix(".")
        remedy = f"Check that an envkit server listens on {known.address}."
        self._end(known, f"was cut off, because {why}", remedy)

    # Lost links, and resuming sessions.

    def _lose(self, known: _WorkerSession, why: str) -> None:
        # Resume the session, or end it if that is pointless.
        self._unlink(known)
        address = known.address
        if known.resume <= 0 or address is None or known.row_frames is None:
            self._end(known, f"lost its link ({why})", _remedy_for(address))
            return
        _LOGGER.warning(
            "worker %d lost its link to %s (%s); trying to resume it for %g s",
            known.worker,
            address,
            why,
            known.resume,
        )
        known.is_paused = True
        known.conversation.lose()
        slab = self._slab
        assert slab is not None
        resume = ResumeRequest(
            *known.key,
            slab.numbers[known.rows],
            (slab.numbers != slab.answers)[known.rows],
            None if known.question is None else known.question.number,
        )

        def connect() -> None:
            try:
                sock, _, _ = dial(
                    [address],
                    {"resume": resume.plain()},
                    self._peer,
                    patience=known.resume,
                    refused_for=_REFUSED_FOR,
                    is_over=lambda: known.is_over or self._problem() is not None,
                )
            except Exception as error:
                # The pool appends what the session was doing.
                cause = str(error).partition(". ")[0].removesuffix(".")
                text = f"lost its link ({why}), and could not resume it: {cause}"
                kind = error.kind if isinstance(error, RefusedError) else ""
                remedy = "" if kind else _remedy_for(address)
                self._report(lambda: self._end(known, text, remedy, kind))
                return
            self._report(lambda: self._resume_link(known, sock))

        self._in_thread(connect)

    def _resume_link(self, known: _WorkerSession, sock: socket.socket) -> None:
        if self._workers.get(known.worker) is not known or known.is_over:
            sock.close()
            return
        self._connect(known, sock)

    def _handle_resumed(self, known: _WorkerSession, resumed: ResumedMessage) -> None:
        """Repeats the requests that the server has not received completely."""
        row_frames, question = known.row_frames, known.question
        assert row_frames is not None  # otherwise the session would have ended
        known.is_paused = False
        if resumed.answers is None:  # the lost link did not even deliver the layout
            self._bind(known)
        else:
            row_frames.ask_again(resumed.answers)
        if question is not None and resumed.replied != question.number:
            self._send_message(known, question)
        self._ask(known, None)

    def _end(
        self, known: _WorkerSession, why: str, remedy: str = "", kind: str = ""
    ) -> None:
        """Queues the end of a session; `kind` is what the server says of it."""
        if self._workers.get(known.worker) is not known:
            return
        known.resident = self._held(known)
        report = ExitReport(
            known.worker,
            known.pid,
            resident=known.resident,
            host=known.host,
            lost=why,
            remedy=remedy,
            lost_kind=kind or "link_lost",
        )
        self._drop(known)
        self._inbox.queue.append(Exited(known.worker, report))

    def _drop(self, known: _WorkerSession) -> None:
        known.is_over = True
        if self._workers.get(known.worker) is known:
            del self._workers[known.worker]
        self._unlink(known)

    # Questions to environments.

    def request(self, worker: int, request: Request) -> None:
        """Sends a question to an idle session; the answer arrives as `Replied`."""
        known = self._workers.get(worker)
        name = request.arguments[0][0] if request.method == "call" else ""
        info = None if known is None else known.info
        if name == SERVER or (name == "provenance" and info is not None):
            found: Any = info
            if info is not None and name != SERVER:
                found = info.facts.get("provenance")
            reply = Reply(request.number, (found,) * len(request.envs))
            self._inbox.queue.append(Replied(worker, reply))
            return
        question: AskMessage | PingMessage = PingMessage(request.number)
        if name != PING:
            envs, arguments = list(request.envs), _plain_arguments(request)
            question = AskMessage(request.number, request.method, envs, arguments)
        if known is None or known.row_frames is None:
            return
        with uninterrupted():
            if request.method != "get_info" and name != PING:
                self._forget_infos(known)
            # Infos and options belong to request numbers, which the pool may have
            # changed.
            known.asked_at = time.time_ns(), time.perf_counter_ns()
            if known.is_paused:
                frame_of(question.plain())  # raises if it is too long for a later link
            else:
                frame = known.conversation.send(question)
                self._send(known, [*known.row_frames.numbers_frame(), *frame])
            known.question, known.asked = question, len(request.envs)
            known.asks_losses = name == "losses"

    def _handle_reply(self, known: _WorkerSession, reply: ReplyMessage) -> None:
        question = known.question
        if question is None or question.number != reply.number:
            return  # asked before Ctrl-C, for example
        if len(reply.values) != known.asked:
            raise ProtocolError("its server sent a different number of answers.")
        values = reply.values
        if known.asks_losses:
            values = [
                one if isinstance(one, RemoteFailure) else losses_from_plain(one)
                for one in values
            ]
        self._answer(known, values)

    def _handle_pong(self, known: _WorkerSession, pong: PongMessage) -> None:
        question = known.question
        if question is None or question.number != pong.number:
            return
        sent, begun = known.asked_at
        took = time.perf_counter_ns() - begun
        # The server read its clock between the question and the answer.
        lag = {
            "round_trip": took / 1e9,
            "skew_low": (pong.clock - sent - took) / 1e9,
            "skew_high": (pong.clock - sent) / 1e9,
        }
        self._answer(known, [lag] * known.asked)

    def _answer(self, known: _WorkerSession, values: list[Any]) -> None:
        assert known.question is not None
        number, known.question = known.question.number, None
        reply = Reply(number, tuple(values))
        self._inbox.queue.append(Replied(known.worker, reply))

    # Ending sessions.

    def kill(self, worker: int) -> None:
        """Ends a session at once; the server closes the environments."""
        known = self._workers.get(worker)
        if known is not None:
            with uninterrupted():
                self._send_message(known, CloseMessage())
                self._end(known, "")

    def _end_some(
        self, leaving: Sequence[_WorkerSession], grace: float
    ) -> list[ExitReport]:
        # Do not wait for the servers.
        for known in leaving:
            if known.link is not None:
                known.link.send(known.conversation.send(CloseMessage()))
                known.link.push(min(grace, 1.0))
            self._drop(known)
        return []


class _WorkerSession(WorkerLife):
    """A worker's session, from its opening to its end."""

    def __init__(self, job: WorkerJob) -> None:
        super().__init__(job.worker)
        self.first_env = job.first_env
        self.count = len(job.constructors)
        self.info: ServerInfo | None = None
        self.address: ServerAddress | None = None
        self.key = ("", "")
        self.resume = 0.0
        self.is_over = False
        # Set when the session is open.
        self.conversation: ClientConversation
        # The unanswered question, and its number of environments.
        self.question: AskMessage | PingMessage | None = None
        self.asked, self.asks_losses = 0, False
        self.asked_at = (0, 0)


def _remedy_for(address: ServerAddress | None) -> str:
    return f"Check that the server at {address} still runs, and can be reached."


def _request_of(job: WorkerJob) -> dict[str, Any]:
    """Returns the request for a job.

    Raises:
        ValueError: The job needs something that servers don't do.
    """
    if job.setup is not None:
        raise ValueError("A server does not run a client's worker_setup: leave it out.")
    if job.options.specs == "pad":
        raise ValueError(
            'specs="pad" does not work with servers: the specs of their environments '
            "must be equal, or differ only in bounds."
        )
    environments: list[list[Any]] = []
    for index, each in enumerate(job.constructors):
        if not isinstance(each, Constructor) or not each.is_named:
            raise ConstructorError(
                f"env_constructors[{job.first_env + index}] must be a name, such as "
                '"CartPole": a server is never sent code. envkit serve offers '
                "environments by name.",
                envs=(job.first_env + index,),
            )
        try:
            plain = to_plain(each.arguments, f"The arguments of {each.name}")
        except PlainDataError as error:
            raise ConstructorError(
                f"env_constructors[{job.first_env + index}]: {error} Only numbers, "
                "text, arrays, and lists and dictionaries of them go to a server.",
                envs=(job.first_env + index,),
            ) from error
        if environments and environments[-1][:2] == [each.name, plain]:
            environments[-1][2] += 1
        else:
            environments.append([each.name, plain, 1])
    return {
        "environments": environments,
        "first_env": job.first_env,
        "validate": job.options.validate,
        "seeds": to_plain(list(job.seeds), "seeds"),
        "rings": job.options.rings_each_row,
    }


def _plain_arguments(request: Request) -> Any:
    arguments = list(request.arguments)
    if request.method == "replay":
        arguments = [*map(plan_to_plain, arguments)]
    try:
        return to_plain(arguments, "The arguments")
    except PlainDataError as error:
        raise TypeError(
            f"{request.method}(): {error} Only numbers, text, arrays, and lists, "
            "tuples and dictionaries of them go to a server."
        ) from error


def _not_opened(error: Exception, known: _WorkerSession) -> RemoteFailure:
    """Returns the failure of a session that could not be opened."""
    if not isinstance(error, ConstructorError):
        refusal = "The server refuses: " if isinstance(error, RefusedError) else ""
        error = ConstructorError(f"{refusal}{error}")
    return RemoteFailure.of(
        error, kind="constructor", env=known.first_env, command="construct"
    )
