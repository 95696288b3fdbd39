"""Runs sessions in their processes, and the templates that these are forked from.

```
server                        template                         session
  {path, targets}         ─▶   imports the targets' libraries
                          ◀─   whether it can be forked
  an end of a channel     ─▶   forks ────────────────────────▶  begins with it
  {offers, request, ...}  ───────────────────────────────────▶  builds environments
                          ◀───────────────────────────────────  {facts} or {refused}
  sockets, "stop"         ───────────────────────────────────▶  answers its client
                          ◀─   {"ended": status}, over the session's channel
```

With `--sessions-per-process`, the process that was forked starts a thread for each end
of a channel that it gets, and the thread reports how its session ended.

A template has one thread, no open files and no environments, so forking it is safe. If
a library starts threads, opens files or makes random generators when imported, it has
no template, and sessions import it themselves.
"""

from __future__ import annotations

import codecs
import contextlib
import faulthandler
import gc
import importlib
import os
import random
import select
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.random  # otherwise NumPy would import it in each session

from envkit._shared.processes import signal_group
from envkit._shared.unread_stderr import queued_stderr
from envkit.distributed.link import HEAD
from envkit.errors import EnvkitError
from envkit.extend import scheme_named
from envkit.parallel.system.doorbell import may_linger
from envkit.provenance import from_plain, package_version
from envkit.registry import constructor, load, register, registered
from envkit.remote.offers import Menu, Offer, Refusal, ServeOptions
from envkit.remote.protocol import ProtocolError, frame_of, message_of
from envkit.remote.session import Session
from envkit.remote.session_request import request_of

__all__ = ["SessionChannel", "begin", "main"]

# Seconds between two looks at clients that stall or have left.
_LONGEST_PAUSE = 5.0
# Seconds to send an observer why it is refused.
_TO_REFUSE = 0.25
# Seconds that environments have to end when their server is gone.
_GRACE = 10.0
_AT_ONCE = 1 << 16
# Bytes to keep of what libraries print when imported.
_MOST_PRINTED = 1 << 14
# Only Linux has it.
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class SessionChannel:
    """Carries messages and sockets between a server and a session's process."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sending = threading.Lock()

    @classmethod
    def attach(cls, fd: int) -> SessionChannel:
        """Opens the end with a descriptor."""
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        """Returns the descriptor to wait on."""
        return self._sock.fileno()

    def send(self, message: dict[str, Any], fd: int | None = None) -> None:
        """Sends a message; does nothing if the other end is gone."""
        data = b"".join(frame_of(message))
        with self._sending, contextlib.suppress(OSError):
            if fd is not None:
                socket.send_fds(self._sock, [data[:1]], [fd])
                data = data[1:]
            self._sock.sendall(data)

    def has_message(self, seconds: float) -> bool:
        """Waits for the beginning of a message, or the end; returns False in vain."""
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        return bool(poller.poll(1000 * seconds))

    def receive(self) -> tuple[dict[str, Any], int | None]:
        """Waits for a message; returns it and the descriptor sent with it.

        Raises:
            EOFError: The other end is gone.
        """
        try:
            data, fds, _, _ = socket.recv_fds(self._sock, 1, 1, _CLOSE_ON_EXEC)
            head = data + self._read(HEAD.size - len(data))
            message = message_of(self._read(HEAD.unpack(head)[4]))
            return message, fds[0] if fds else None
        except (OSError, ProtocolError) as error:
            raise EOFError(str(error)) from error

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._sock.recv(min(count - len(data), _AT_ONCE))
            if not part:
                raise EOFError("the other end is gone")
            data += part
        return bytes(data)

    def shut(self) -> None:
        """Ends the conversation: both ends have received the last message."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def detach(self) -> int:
        """Hands the descriptor over to the caller."""
        return self._sock.detach()

    def close(self) -> None:
        """Closes this end."""
        self._sock.close()


# The template.


def main(fd: int, targets: Sequence[str], *, forks: bool) -> None:
    """Imports the targets' libraries, and forks a session for each order of the server.

    Returns in the template when the server is gone, and in a session when it is over.

    Args:
        fd: The template's end of a channel.
        targets: The targets of environments.
        forks: Whether to fork sessions; otherwise each begins with nothing imported.
    """
    template = _SessionForker(SessionChannel.attach(fd), forks=forks)
    session = template.serve() if template.prepare(targets) else None
    if session is not None:
        with queued_stderr():
            _run_sessions(session)


class _SessionForker:
    """Forks sessions, and reports to the server how they ended."""

    def __init__(self, channel: SessionChannel, *, forks: bool) -> None:
        self._channel, self._forks = channel, forks
        self._sessions: dict[int, SessionChannel] = {}
        # Gets a byte for each signal, so one poll waits for orders and ended sessions.
        self._signals, self._wakeup = os.pipe()
        for fd in (self._signals, self._wakeup):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def prepare(self, targets: Sequence[str]) -> bool:
        """Imports the targets' libraries; returns False if they cannot be forked."""
        printed = unfit = ""
        if self._forks:
            package_version("numpy")  # imports modules that every session needs
            codecs.lookup("ascii")
            before = os.listdir("/proc/self/fd")
            generators = _count_generators()
            printed, unfit = _imported(targets)
            if not unfit and len(os.listdir("/proc/self/task")) > 1:
                unfit = "starts threads when it is imported"
            if not unfit and os.listdir("/proc/self/fd") != before:
                unfit = "opens files or connections when it is imported"
            if not unfit and _count_generators() != generators:
                # All sessions would draw the same numbers.
                unfit = "makes random generators when it is imported"
        # All these objects outlive every session. Freezing keeps the sessions' garbage
        # collectors from visiting them and so copying their pages.
        gc.collect()
        gc.freeze()
        self._channel.send({"unfit": unfit, "printed": printed})
        return not unfit

    def serve(self) -> SessionChannel | None:
        """Starts sessions; returns its channel in each, and `None` at the end."""
        poller = select.poll()
        poller.register(self._channel.fileno(), select.POLLIN)
        poller.register(self._signals, select.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self._signals in ready:
                # Emptied before reaping, so a session that ends meanwhile wakes it
                # again.
                with contextlib.suppress(BlockingIOError):
                    os.read(self._signals, 4096)
                self._reap()
            if self._channel.fileno() in ready:
                try:
                    _, fd = self._channel.receive()
                except EOFError:
                    return None
                if fd is not None and self._start(fd):
                    return SessionChannel.attach(fd)

    def _start(self, fd: int) -> bool:
        """Starts a session at a channel's end; returns True in the session."""
        channel = SessionChannel.attach(fd)
        try:
            pid = os.fork() if self._forks else _spawned(fd)
        except OSError as error:
            channel.send({"refused": f"The server has no process left: {error}."})
            channel.close()
            return False
        if pid == 0:
            channel.detach()
            self._leave()
            return True
        self._sessions[pid] = channel
        return False

    def _leave(self) -> None:
        """Detaches a newly forked session from its template."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Kept open here, they would not close when their own processes end.
        for channel in (self._channel, *self._sessions.values()):
            channel.close()
        for fd in (self._signals, self._wakeup):
            os.close(fd)
        # Otherwise all sessions would draw the same numbers. Python reseeds `random`.
        np.random.seed()  # noqa: NPY002  # environments that use it need it

    def _reap(self) -> None:
        """Reports ended sessions to the server, and kills what they left running."""
        with contextlib.suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                pid = ended.si_pid
                channel = self._sessions.pop(pid, None)
                if channel is not None:
                    # The process ID cannot be reused before `waitpid`.
                    signal_group(pid, signal.SIGKILL)
                _, status = os.waitpid(pid, 0)
                if channel is not None:
                    channel.send({"ended": os.waitstatus_to_exitcode(status)})
                    channel.close()


def _count_generators() -> int:
    """Counts random generators, except those that draw from the system."""
    kinds = (random.Random, np.random.Generator, np.random.RandomState)
    return sum(
        isinstance(each, kinds) and not isinstance(each, random.SystemRandom)
        for each in gc.get_objects()
    )


def _imported(targets: Sequence[str]) -> tuple[str, str]:
    """Imports the targets' libraries; returns what they printed, and why it failed."""
    reason = ""
    with tempfile.TemporaryFile() as file:
        kept = [(fd, os.dup(fd)) for fd in (1, 2)]
        # Not a pipe: nobody would read it, and printing could block forever.
        for fd, _ in kept:
            os.dup2(file.fileno(), fd)
        try:
            for target in targets:
                _import(target)
        except Exception as error:  # modules may raise anything
            reason = f"cannot be imported ({type(error).__name__}: {error!s:.200})"
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            for fd, copy in kept:
                os.dup2(copy, fd)
                os.close(copy)
        file.seek(0)
        return file.read(_MOST_PRINTED).decode("utf-8", "replace"), reason


def _import(target: str) -> None:
    """Imports an environment's library without making the environment."""
    build = constructor(target).build
    if isinstance(build, str):
        load(target, build)
    name, colon, rest = target.partition(":")
    scheme = scheme_named(name) if colon else None
    if scheme is not None and scheme.package:
        importlib.import_module(scheme.package)
        preload = scheme.preload
        if isinstance(preload, str):
            preload = load(target, preload)
        if preload is not None:
            preload(rest)


def _spawned(fd: int) -> int:
    """Starts a session with nothing imported; returns its process ID."""
    program = (
        f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import begin; "
        f"begin({fd})"
    )
    os.set_inheritable(fd, True)
    try:
        arguments = [sys.executable, "-c", program]
        return os.spawnv(os.P_NOWAIT, sys.executable, arguments)
    finally:
        os.set_inheritable(fd, False)


def begin(fd: int) -> None:
    """Runs a session in a new process."""
    os.setsid()
    os.set_inheritable(fd, False)
    with queued_stderr():
        _run_sessions(SessionChannel.attach(fd))


# The session.


def _run_sessions(channel: SessionChannel) -> None:
    """Runs the session, or all sessions, that the server orders from this process."""
    faulthandler.enable()
    _send_process_id(channel)
    try:
        job, _ = channel.receive()
    except EOFError:  # forked ahead, and never used
        os._exit(0)
    forked: list[int] = []
    os.register_at_fork(after_in_child=lambda: forked.append(os.getppid()))
    listener = _Listener(channel, job["options"]["idle_timeout"], forked)
    if "request" not in job:
        listener.run()
    session = _HostedSession(channel, job, forked)
    listener.add_session(session)
    session.run(lambda: _start_thread(listener.run))


def _start_thread(run: Callable[[], None]) -> None:
    threading.Thread(target=run, name="envkit-session", daemon=True).start()


def _send_process_id(channel: SessionChannel) -> None:
    """Sends the server this process's ID, and a pidfd if the system has them."""
    pidfd = None
    with contextlib.suppress(AttributeError, OSError):  # Linux 5.3 or newer
        pidfd = os.pidfd_open(os.getpid())
    channel.send({"pid": os.getpid()}, pidfd)
    if pidfd is not None:
        os.close(pidfd)


def _session_of(
    job: dict[str, Any], forked: list[int], hosted: _HostedSession
) -> Session:
    names = {key: tuple(job["options"][key]) for key in ("allow_call", "allow_arg")}
    options = ServeOptions(**{**job["options"], **names})
    # The server's program may have registered names.
    for name in job["names"].keys() - registered():
        register(name, job["names"][name])
    menu = Menu(
        [
            Offer(
                target if name == target else f"{name}={target}",
                from_plain(arguments),
            )
            for name, target, arguments in job["offers"]
        ]
    )
    has_cpus = may_linger(2)
    return Session(
        request_of(job["request"], menu, options),
        options,
        resume=job["resume"],
        forked=forked,
        # Several busily waiting sessions would take the CPUs from each other.
        may_linger=lambda: has_cpus and hosted.is_alone,
    )


class _HostedSession:
    """A session in this process, which carries out the server's orders."""

    def __init__(
        self, channel: SessionChannel, job: dict[str, Any], forked: list[int]
    ) -> None:
        self._channel, self._job, self._forked = channel, job, forked
        self.is_alone = True
        self._changed = threading.Condition()
        self._session: Session | None = None
        self._client: socket.socket | None = None
        self._is_over = False

    def run(self, built: Callable[[], None]) -> None:
        """Builds the environments, and answers the client until the session is over.

        Args:
            built: Is called when the environments are built.
        """
        try:
            session = _session_of(self._job, self._forked, self)
            facts = session.build()
        except (EnvkitError, ImportError, TypeError, ValueError) as error:
            self._channel.send({"refused": str(error)})
            return
        self._session = session
        built()
        self._channel.send(facts)
        sock = self._await_client()
        if sock is None:
            session.discard()
        else:
            session.serve(sock)
        # Threads of environments may keep the process alive.
        self._channel.send({"over": True})

    def run_in_thread(self) -> None:
        """Runs, and tells the server how it ended, as no process ends with it."""
        code = 1
        try:
            self.run(lambda: None)
            code = 0
        except BaseException:  # a process would end with it
            traceback.print_exc()
        finally:
            self._channel.send({"ended": code})

    def _await_client(self) -> socket.socket | None:
        """Waits for the client's connection; `None` if it has left already."""
        with self._changed:
            self._changed.wait_for(lambda: self._client is not None or self._is_over)
            return self._client

    def do(self, message: dict[str, Any], fd: int | None) -> None:
        """Carries out an order of the server."""
        session = self._session
        assert session is not None  # the server waits for its facts
        sock = None if fd is None else socket.socket(fileno=fd)
        if sock is not None and "serve" in message:
            with self._changed:
                self._client = sock
                self._changed.notify_all()
        elif sock is not None and "resume" in message:
            if not session.resume(sock, message["resume"]):
                sock.close()
        elif sock is not None:
            try:
                session.observe(sock, message["observe"])
            except Refusal as refusal:
                sock.settimeout(_TO_REFUSE)
                with contextlib.suppress(OSError):
                    sock.sendall(b"".join(frame_of({"refused": str(refusal)})))
                sock.close()
        elif "stop" in message:
            self.end(str(message["stop"]))
        elif "alone" in message:
            self.is_alone = bool(message["alone"])

    def check_client(self, now: float) -> None:
        """Ends a session whose client has stalled, or has left during a call."""
        session = self._session
        if session is None or self._is_over:
            return
        session.cut_if_stalled(now)
        if session.is_abandoned(now):
            # The server waits a little for the call, and then kills the process.
            self._channel.send({"over": True})
            self.end("its client has left")

    def end(self, reason: str) -> None:
        """Ends the session soon; its client gets the reason."""
        if self._session is not None:
            self._session.stop(reason)
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


class _Listener:
    """Receives the server's orders for the sessions of this process, in one thread."""

    def __init__(
        self, channel: SessionChannel, idle_timeout: float, forked: list[int]
    ) -> None:
        self._forked = forked
        self._pause = min(idle_timeout / 20, _LONGEST_PAUSE)
        self._channels: dict[int, SessionChannel] = {}
        self._sessions: dict[int, _HostedSession] = {}
        self._poller = select.poll()
        self._server = self._add(channel)

    def add_session(self, session: _HostedSession) -> None:
        """Adds the only session, which has the server's channel."""
        self._sessions[self._server] = session

    def run(self) -> None:
        """Carries out orders until the server is gone; then the process ends."""
        while self._server in self._channels:
            for fd, _ in self._poller.poll(1000 * self._pause):
                self._receive(fd)
            now = time.monotonic()
            for session in self._sessions.values():
                session.check_client(now)
        for fd in [*self._channels]:
            self._remove(fd)
        # An environment may be stuck in code that never returns.
        time.sleep(_GRACE)
        os._exit(1)

    def _receive(self, fd: int) -> None:
        channel, session = self._channels[fd], self._sessions.get(fd)
        try:
            message, passed = channel.receive()
            if session is not None:
                session.do(message, passed)
            elif passed is not None:
                another = SessionChannel.attach(passed)
                self._add(another)
                _send_process_id(another)
            else:
                session = _HostedSession(channel, message, self._forked)
                self._sessions[fd] = session
                _start_thread(session.run_in_thread)
        except (EOFError, ProtocolError):
            self._remove(fd)

    def _add(self, channel: SessionChannel) -> int:
        fd = channel.fileno()
        self._channels[fd] = channel
        self._poller.register(fd, select.POLLIN)
        return fd

    def _remove(self, fd: int) -> None:
        self._poller.unregister(fd)
        session = self._sessions.pop(fd, None)
        if session is not None:
            session.end("the server is gone")
        self._channels.pop(fd).close()
