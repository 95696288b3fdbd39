"""`Session`: the environments of one client, and the link to that client.

A session has one thread, which builds the environments, steps them and answers. After a
lost link it keeps them for a while, so that the client can resume the session over
another link. No step is lost or repeated, because requests and answers are numbered.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from envkit.distributed.link import ASKED, HEAD, MESSAGE, Frame, Link
from envkit.distributed.row_frames import ALL_ROWS, RowFrames
from envkit.errors import SpecError
from envkit.extend import listed
from envkit.parallel.messages import (
    Hello,
    RemoteFailure,
    Request,
    WorkerJob,
)
from envkit.parallel.options import PoolOptions
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import SlabLayout
from envkit.parallel.system.doorbell import linger
from envkit.parallel.worker.runner import EnvRunner
from envkit.provenance import (
    envkit_version,
    provenance_of,
)
from envkit.py_environment import PyEnvironment
from envkit.remote.observers import SessionObserver
from envkit.remote.offers import Refusal, ServeOptions
from envkit.remote.plain_values import (
    ProtocolError,
    SignedStates,
    check_layout,
    plain_losses,
    plain_specs,
    plan_from_plain,
    specs_hash,
)
from envkit.remote.protocol import (
    AskMessage,
    BindMessage,
    EndMessage,
    PingMessage,
    PongMessage,
    RaisedMessage,
    ReplyMessage,
    ResumedMessage,
    ServerConversation,
    SessionMessage,
    TooLongError,
)
from envkit.remote.session_request import ActionGuard, SessionRequest
from envkit.specs.environment_spec import common_info_spec

__all__ = ["Session"]

# The methods that clients may request besides `call`, whose names are checked.
_METHODS = frozenset(
    [
        "get_info",
        "get_state",
        "render",
        "replay",
        "reset",
        "seed",
        "seed_rows",
        "set_state",
    ]
)


class Session:
    """Runs the environments of one client.

    Attributes:
        id: Its name for the client.
        secret: Proves that a client resuming the session is its owner.
        ended: Whether it is over.
    """

    def __init__(
        self,
        request: SessionRequest,
        options: ServeOptions,
        *,
        resume: float,
        forked: Sequence[int],
        may_linger: Callable[[], bool],
    ) -> None:
        """Prepares; `build` makes the environments.

        Args:
            request: The client's request.
            options: The limits of the server.
            resume: Seconds to wait for the client after a lost link.
            forked: Not empty in a process that an environment has forked.
            may_linger: Returns True if a CPU is free for brief busy waiting.
        """
        self._may_linger = may_linger
        self.id = secrets.token_hex(8)
        self.secret = secrets.token_hex(16)
        self.ended = False
        self._request = request
        self._options = options
        self._resume = resume
        job = WorkerJob(
            worker=0,
            first_env=request.first_env,
            constructors=request.constructors,
            seeds=request.seeds,
            options=PoolOptions(
                validate=request.validate, rings_each_row=request.rings
            ),
        )
        self._runner = EnvRunner(job, forked=forked)
        states = SignedStates()
        self._runner.dump_state = states.dump
        self._runner.load_state = states.load
        self._reason = ""
        self._changed = threading.Condition()
        self._next_sock: tuple[socket.socket, dict[str, Any]] | None = None
        self._link: Link
        self._sock: socket.socket | None = None
        self._poller: select.poll
        self._head = memoryview(bytearray(HEAD.size))
        self._received_at = time.monotonic()
        # When the current incomplete frame or answer began.
        self._busy_since: float | None = None
        # When the other thread saw that the client has left.
        self._left_at: float | None = None
        self._observers: list[SessionObserver] = []
        self._failures: dict[int, RemoteFailure] = {}
        self._last_reply: tuple[int, list[bytes]] | None = None
        self._conversation: ServerConversation
        # Set when the client has laid out the rows.
        self._slab: Slab
        self._is_bound = False
        self._unanswered: list[int] = []

    # Before any rows are sent.

    def build(self) -> dict[str, Any]:
        """Builds the environments; returns their facts for the client.

        Raises:
            Refusal: They cannot be built, or their specs cannot be sent.
        """
        hello = self._runner.build()
        if isinstance(hello, RemoteFailure):
            message = self._request.hide(hello.message)
            raise Refusal(
                f"{hello.type_name}: {message}"
                if hello.type_name not in ("ValueError", "Refusal")
                else message
            )
        try:
            return self._describe(hello)
        except BaseException:
            self._close_environments()
            raise

    def _describe(self, hello: Hello) -> dict[str, Any]:
        """Returns the facts of the environments for the client."""
        rows = sum(1 if size is None else size for size in hello.batch_sizes)
        most = self._options.max_rows
        if rows > most:
            raise Refusal(f"A session may have at most {most} rows; this has {rows}.")
        spec, info = hello.specs[0], common_info_spec(hello.info_specs)
        for other in hello.specs[1:]:
            difference = spec.difference(other)
            if difference is not None:
                raise Refusal(
                    f"Environments of one session must have the same specs, but their "
                    f"{difference[0]} specs differ. {difference[1]}"
                )
        self._spec, self._info, self._rows = spec, info, rows
        self._sizes = [size or 1 for size in hello.batch_sizes]
        try:
            check_layout(SlabLayout(spec, ((0, rows),), info))
            specs = plain_specs(spec, info)
        except ValueError as error:
            raise Refusal(str(error)) from error
        first = self._request.first_env
        numbers = range(first, first + len(self._request.constructors))
        self._conversation = ServerConversation(numbers, rows, info)
        envs = self._runner.environments()
        self._facts = {
            "session": self.id,
            "secret": self.secret,
            "envkit": envkit_version(),
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "clock": time.time_ns(),
            "names": list(dict.fromkeys(self._request.names)),
            "provenance": _without_arguments(
                provenance_of(envs[0]), self._request.hidden
            )
            if hasattr(type(envs[0]), "provenance")
            else None,
            "specs": specs,
            "sha256": specs_hash(specs),
            "batch_sizes": list(hello.batch_sizes),
            "continues": list(hello.continues),
            "resident": hello.resident,
            "capabilities": _capabilities(envs[0], info),
            "idle_timeout": self._options.idle_timeout,
            "resume": self._resume,
            "calls": list(self._options.allow_call),
        }
        return self._facts

    # Called from other threads.

    def resume(self, sock: socket.socket, details: dict[str, Any]) -> bool:
        """Gives the session another link; returns False if the session is over.

        Args:
            sock: The link's socket.
            details: The client's `ResumeRequest` as plain data.
        """
        with self._changed:
            if self.ended or self._reason:
                return False
            if self._next_sock is not None:
                self._next_sock[0].close()
            self._next_sock = sock, details
            self._changed.notify_all()
        # This end may not have noticed yet that the old link is lost.
        self._shut()
        return True

    def observe(self, sock: socket.socket, proof: dict[str, Any]) -> None:
        """Adds an observer, which receives all time steps from now on.

        Args:
            sock: The observer's connection.
            proof: The server's proof, which is sent with the facts.

        Raises:
            Refusal: The limit on observers is reached.
        """
        with self._changed:
            self._observers = [each for each in self._observers if not each.is_over]
            if len(self._observers) >= self._options.observers:
                raise Refusal(
                    "This session has as many observers as the server allows "
                    f"(--observers={self._options.observers})."
                )
            observer = SessionObserver(sock)
            observer.greet({**proof, **self._public_facts()}, self._observers)

    def _public_facts(self) -> dict[str, Any]:
        hidden = ("secret", "calls", "resume", "clock")
        return {name: fact for name, fact in self._facts.items() if name not in hidden}

    def stop(self, reason: str) -> None:
        """Tells the session to end soon; its client gets the reason."""
        with self._changed:
            self._reason = self._reason or reason
            self._changed.notify_all()
        # Wakes the thread that waits for a request, which can still send the reason.
        self._shut(socket.SHUT_RD)

    def cut_if_stalled(self, now: float) -> None:
        """Cuts off a client that sends half a frame, or reads no answers."""
        since = self._busy_since
        if since is not None and now - since > self._options.idle_timeout:
            self.stop("a frame was begun and never finished")
            self._shut()

    def is_abandoned(self, now: float) -> bool:
        """Returns True if the client left during a call that does not end."""
        sock = self._sock
        if sock is None or not _has_left(sock):
            self._left_at = None
        elif self._left_at is None:
            self._left_at = now
        # It could have resumed the session until then.
        return self._left_at is not None and now - self._left_at > self._resume

    def _shut(self, how: int = socket.SHUT_RDWR) -> None:
        sock = self._sock
        if sock is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, how)

    # The session's thread.

    def serve(self, sock: socket.socket) -> None:
        """Answers until the client leaves, is lost for too long, or is dismissed."""
        try:
            details: dict[str, Any] | None = None
            while True:
                self._use(sock)
                try:
                    if details is not None:
                        self._send_resumed(details)
                    self._answer_all()
                    return
                except ProtocolError as error:
                    self._send_end(str(error))
                    return
                except EOFError:
                    self._conversation.lose()
                finally:
                    self._leave()
                following = self._await_link()
                if following is None:
                    return
                sock, details = following
        finally:
            with self._changed:
                self.ended = True
                if self._next_sock is not None:
                    self._next_sock[0].close()
            for observer in self._observers:
                observer.close(self._reason or "the session is over")
            self._close_environments()

    def discard(self) -> None:
        """Closes the environments of a session that was never served."""
        self.ended = True
        self._close_environments()

    def _close_environments(self) -> None:
        for error in self._runner.close():
            print(f"close() of an environment raised {error!r:.200}", flush=True)

    def _use(self, sock: socket.socket) -> None:
        sock.settimeout(None)
        self._sock = sock
        self._link = Link(sock)
        self._poller = select.poll()
        self._poller.register(sock, select.POLLIN)
        self._received_at = time.monotonic()

    def _leave(self) -> None:
        self._sock = self._busy_since = None
        self._link.shut()
        self._link.close()

    def _await_link(self) -> tuple[socket.socket, dict[str, Any]] | None:
        """Waits for the client's next link; `None` if there is none in time."""
        deadline = time.monotonic() + self._resume
        with self._changed:
            while self._next_sock is None and not self._reason:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)
            if self._reason:
                return None
            following, self._next_sock = self._next_sock, None
            return following

    def _await_frame(self) -> bool:
        """Waits for the next frame; returns False if the session must end."""
        # Hot: once per frame.
        link = self._link
        if link.has_some:
            return True
        # Most clients answer sooner than a process falls asleep and wakes up.
        if self._may_linger() and linger(link.is_readable):
            return not self._reason
        poll = self._poller.poll
        while not self._reason:
            left = self._received_at + self._options.idle_timeout - time.monotonic()
            if left <= 0:
                self.stop(
                    f"there was no request for {self._options.idle_timeout:g} s "
                    "(--idle-timeout)"
                )
                break
            if poll(1000 * left):
                return not self._reason
        return False

    def _answer_all(self) -> None:
        """Reads frames and answers them.

        Raises:
            EOFError: The link is lost.
            ProtocolError: The client breaks the protocol.
        """
        link = self._link
        expected: Frame | None = None
        flags = 0
        clock = time.monotonic
        while True:
            # Hot: once per request.
            link.expect(expected)
            if not self._await_frame():
                self._send_end(self._reason)
                return
            self._received_at = self._busy_since = clock()
            if link.expects and link.fetch():
                rows = self._row_frames.size
                kind = ASKED
            else:
                kind, flags, rows, length = self._next_head()
                self._conversation.check_head(kind, length)
                if kind == MESSAGE:
                    payload = bytearray(length)
                    link.want(payload)
                    link.fill()
                    self._busy_since = None
                    if not self._handle(self._conversation.receive(payload)):
                        return
                    continue
                try:
                    self._row_frames.check_asked(flags, rows, length)
                except EOFError as error:
                    raise ProtocolError(str(error)) from error
                link.want(*self._row_frames.receive_asked(flags, rows))
                link.fill()
                expected = self._row_frames.expected_request(flags)
            self._busy_since = None
            self._run(flags, rows)

    def _next_head(self) -> tuple[int, int, int, int]:
        self._link.want(self._head)
        self._link.fill()
        kind, flags, _, rows, length = HEAD.unpack(self._head)
        return kind, flags, rows, length

    # Rows.

    def _bind(self, bind: BindMessage) -> None:
        """Lays out the rows, with the infos that the client wants."""
        info = {name: self._info[name] for name in bind.info}
        layout = SlabLayout(self._spec, ((0, self._rows),), info)
        slab = self._slab = Slab(layout)
        self._is_bound = True
        self._runner.bind(slab, 0, first_row=bind.first_row)
        self._runner.tell_failure = self._send_raised
        self._clock = self._runner.start_clock(counts_memory=True)
        self._runner.after_row = self._answer_row if self._request.rings else None
        self._row_frames = RowFrames(slab, 0)
        self._guard = ActionGuard(slab, self._runner.has_ended)
        self._everyone = [*range(self._rows)]
        self._seen = slab.read(np.arange(self._rows))
        # A batch steps as a whole, so its rows fail together.
        self._is_single = self._runner.is_single

    def _run(self, flags: int, rows: int) -> None:
        # Hot: once per request.
        self._clock.woken = time.perf_counter_ns()
        row_frames, runner, slab = self._row_frames, self._runner, self._slab
        try:
            row_frames.accept_asked(flags, rows)
        except EOFError as error:
            raise ProtocolError(str(error)) from error
        is_all = flags & ALL_ROWS
        self._unanswered = self._everyone[:] if is_all else runner.pending()
        if not slab.commands_are_known():
            raise ProtocolError("The request of a row has an unknown kind.")
        bad = self._guard.bad_rows(self._unanswered)
        if bad:
            self._refuse_actions(bad)
        runner.run_pending()
        self._answer(self._unanswered)

    def _refuse_actions(self, bad: list[int]) -> None:
        """Lets rows with bad actions raise, without showing these to environments."""
        rows = bad if self._is_single else list(self._unanswered)
        error = SpecError(
            f"The actions of rows {listed(bad)} are not within the bounds of "
            "action_spec()."
        )
        self._send_raised(
            rows,
            RemoteFailure.of(
                error,
                kind="misfit",
                env=self._request.first_env + rows[0],
                command="step",
                pid=os.getpid(),
            ),
        )
        self._slab.fail(rows)

    def _answer(self, rows: Sequence[int]) -> None:
        # Hot: once per request.
        if not rows:
            return
        row_frames, link = self._row_frames, self._link
        self._busy_since = time.monotonic()
        together = (
            row_frames.answer_together({}) if len(rows) == row_frames.size else None
        )
        if together is not None:
            link.send(together.parts, together.size)
        else:
            link.send(row_frames.answer(rows))
        self._busy_since = None
        if self._options.observers:
            self._show(rows)

    def _answer_row(self) -> None:
        """Answers the rows that were just marked as done."""
        done, self._unanswered[:] = self._row_frames.split_done(self._unanswered)
        if done:
            self._answer(done)

    def _send_raised(self, rows: Sequence[int], failure: RemoteFailure) -> None:
        for row in rows:
            self._failures[row] = failure
        self._send(RaisedMessage([*rows], self._without_secrets(failure)))

    def _without_secrets(self, failure: RemoteFailure) -> RemoteFailure:
        """Returns a failure without the values of the server's own arguments."""
        hide = self._request.hide
        return failure._replace(
            message=hide(failure.message), traceback=hide(failure.traceback)
        )

    def _send(self, message: SessionMessage) -> None:
        self._link.send(self._conversation.send(message))

    def _send_end(self, reason: str) -> None:
        """Sends the client the reason for the end, if it is still there."""
        self._reason = self._reason or reason
        self._send(EndMessage(reason))

    def _show(self, rows: Sequence[int]) -> None:
        """Sends observers the time steps of all rows, after some have answered."""
        chosen = np.asarray(rows)
        # A copy, because a pool may renumber idle rows, and the numbers tell where in
        # the slab a time step is.
        for seen, leaf in zip(self._seen, self._slab.read(chosen), strict=True):
            seen[chosen] = leaf
        for observer in self._observers:
            observer.show(self._seen)

    def _send_resumed(self, details: dict[str, Any]) -> None:
        """Sends the answers again that the lost link may not have delivered."""
        reply = self._last_reply
        replied = None if reply is None else reply[0]
        if not self._is_bound:
            self._send(ResumedMessage(None, replied))
            return
        slab = self._slab
        # An incomplete frame may have overwritten the numbers.
        slab.forget_requests()
        resume = self._conversation.read_resume(details)
        owing = np.flatnonzero(resume.owing)
        rows = owing[resume.numbers[owing] == slab.numbers[owing]]
        self._send(ResumedMessage(slab.answers, replied))
        if reply is not None and resume.asked == replied:
            self._link.send(reply[1])
        for row in slab.raised_rows(rows).tolist():
            if row in self._failures:
                failure = self._without_secrets(self._failures[row])
                self._send(RaisedMessage([row], failure))
        self._answer(rows.tolist())

    # Messages.

    def _handle(self, message: SessionMessage) -> bool:
        """Handles a message; returns False when the client leaves."""
        if isinstance(message, BindMessage):
            self._bind(message)
        elif isinstance(message, AskMessage):
            self._reply(message)
        elif isinstance(message, PingMessage):
            self._send(PongMessage(message.number, time.time_ns()))
        else:
            return False
        return True

    def _reply(self, ask: AskMessage) -> None:
        """Answers a question about environments."""
        request = Request(ask.number, ask.method, tuple(ask.envs), ask.arguments)
        values = self._values(request)
        try:
            frame = self._conversation.send(ReplyMessage(ask.number, values))
        except TooLongError as error:
            values = self._failures_of(request, error)
            frame = self._conversation.send(ReplyMessage(ask.number, values))
        self._last_reply = ask.number, frame
        self._link.send(frame)

    def _values(self, request: Request) -> list[Any]:
        """Returns a value or a failure for each environment."""
        problem = self._problem_with(request)
        if problem is not None:
            return self._failures_of(request, problem)
        try:
            if request.method == "replay":
                request = self._checked_replay(request)
            reply = self._runner.handle(request)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            # The client's arguments may be wrong.
            raise ProtocolError(f"{request.method}(): {error}") from error
        results: Sequence[Any] = reply.results
        if _is_about_losses(request):
            results = [
                one
                if isinstance(one, RemoteFailure)
                else plain_losses(one, self._request.hide)
                for one in results
            ]
        return [
            self._without_secrets(value) if isinstance(value, RemoteFailure) else value
            for value in results
        ]

    def _failures_of(self, request: Request, error: Exception) -> list[Any]:
        """Returns the failures for a question that reached no environment."""
        failure = RemoteFailure.of(error, command=f"{request.method}()")
        failure = self._without_secrets(failure._replace(traceback=""))
        return [failure._replace(env=env) for env in request.envs]

    def _checked_replay(self, request: Request) -> Request:
        """Checks and returns a request to replay moves."""
        first, sizes = self._request.first_env, self._sizes
        plans = [
            plan_from_plain(argument, self._slab.layout, sizes[env - first])
            for env, argument in zip(request.envs, request.arguments, strict=True)
        ]
        return request._replace(arguments=tuple(plans))

    def _problem_with(self, request: Request) -> Exception | None:
        if request.method in _METHODS or _is_about_losses(request):
            return None
        if request.method not in ("call", "access"):
            return NotImplementedError(
                f"{request.method}() is not available for environments of a server."
            )
        try:
            names = [argument[0] for argument in request.arguments]
        except (TypeError, IndexError, KeyError):
            return ValueError("A call must name a method.")
        allowed = self._options.allow_call
        wrong = [name for name in names if name not in allowed]
        if not wrong:
            return None
        return PermissionError(
            f"The server does not let clients call {wrong[0]!r:.80}. "
            + (f"It allows {listed(allowed)}" if allowed else "It allows nothing")
            + " (envkit serve --allow-call NAME)."
        )


def _has_left(sock: socket.socket) -> bool:
    """Returns True if the other end is closed."""
    poller = select.poll()
    with contextlib.suppress(OSError, ValueError):  # it was closed just now
        poller.register(sock, getattr(select, "POLLRDHUP", 0))
        return bool(poller.poll(0))
    return False


def _is_about_losses(request: Request) -> bool:
    """Returns True if a request asks what is lost inside environments."""
    return request.method == "call" and all(
        argument == ("losses", (), {}) for argument in request.arguments
    )


def _without_arguments(data: Any, names: frozenset[str]) -> Any:
    """Removes arguments from plain data by name, at any depth."""
    if isinstance(data, list):
        return [_without_arguments(each, names) for each in data]
    if not isinstance(data, dict):
        return data
    found = {key: _without_arguments(each, names) for key, each in data.items()}
    given = found.get("arguments")
    if isinstance(given, dict):
        found["arguments"] = {
            name: value for name, value in given.items() if name not in names
        }
    return found


def _capabilities(env: Any, info: dict[str, Any]) -> list[str]:
    """Returns an environment's capabilities, as far as they show untested."""
    inner = env
    while callable(getattr(inner, "wrapped_env", None)):
        inner = inner.wrapped_env()

    def overrides(*names: str) -> bool:
        return any(
            getattr(type(inner), name, None) is not getattr(PyEnvironment, name, None)
            for name in names
        )

    found = {
        "state": overrides("_get_state", "get_state"),
        "seed": overrides("seed"),
        "render": overrides("render"),
        "realtime": "realtime" in info,
        "rows": not env.batched or bool(getattr(env, "holds_rows", False)),
    }
    return sorted(name for name, has in found.items() if has)
