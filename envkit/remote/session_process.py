"""`SessionProcess`: a session in its own process, so a crash ends only that session.

The server passes a client's socket to the session's process over a channel, so rows do
not pass through the server. Encrypted bytes do, because a connection's keys are in the
memory of one process. `session_host` runs at the channel's other end.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from envkit._shared.processes import exit_text, signal_group
from envkit.parallel.system.guardian import Guardian
from envkit.parallel.system.interpreter import ChildInterpreter
from envkit.provenance import to_plain
from envkit.remote.offers import Menu, Offer, Refusal, ServeOptions
from envkit.remote.session_host import SessionChannel

__all__ = [
    "TO_REPORT_END",
    "TRIES",
    "OwnProcess",
    "SessionHost",
    "SessionProcess",
    "StartSession",
    "Templates",
    "begun",
    "end_text",
]

_LOGGER = logging.getLogger(__name__)

# Seconds that a process has to end after its client has left, and that its template has
# to report how it ended: a template is only slow where the machine is very busy.
_GRACE, TO_REPORT_END = 10.0, 5.0
# Attempts to start a session when processes die.
TRIES = 3
# On other systems libraries may have invisible threads.
_FORKS = sys.platform == "linux"
_AT_ONCE = 1 << 16
# The maximum number of bytes that wait to be encrypted or read.
_MOST_WAITING = 1 << 20
_OPTIONS = ("max_rows", "idle_timeout", "observers", "allow_call", "allow_arg")
_PROGRAM = """
import json, os, sys
with open(int(sys.argv[1])) as file:
    job = json.load(file)
sys.path[:] = job["path"]
os.close(int(sys.argv[3]))
from envkit.remote.session_host import main
main(int(sys.argv[2]), job["targets"], forks=job["forks"])
"""


class Templates:
    """Processes that have imported libraries, from which sessions are forked.

    Each library of the menu has a template if it can be forked. All other sessions, and
    sessions with several libraries, are forked from a template with envkit alone.
    """

    def __init__(self, offers: Iterable[Offer], guardian: Guardian) -> None:
        """Starts a template for each library.

        Args:
            offers: The server's environments.
            guardian: Ends all processes if the server is killed.
        """
        self._guardian = guardian
        self._targets: dict[str, list[str]] = {"": []}
        for offer in offers:
            self._targets.setdefault(offer.library, []).append(offer.source)
        self._lock = threading.Lock()
        self._is_over = False
        self._templates: dict[str, _Template] = {}
        for library in self._targets:
            if library:
                self._template(library)

    def start(self, libraries: Iterable[str]) -> tuple[SessionChannel, OwnProcess]:
        """Starts a process for environments of some libraries.

        Returns:
            A channel to the process, and the process.

        Raises:
            Refusal: The system cannot start another process, or the server is stopping.
        """
        (library, *others) = libraries
        if others:
            library = ""
        for tried in range(TRIES):
            # A library that keeps crashing its template is imported by the session.
            template = self._template(library if tried < TRIES - 1 else "")
            try:
                template.await_ready()
                channel, pid, pidfd = template.start()
            except (EOFError, _UnfitError) as error:
                self._drop(template, error)
            else:
                return channel, OwnProcess(pid, pidfd, self._guardian)
        raise Refusal("The session's process cannot be started.")

    def _template(self, library: str) -> _Template:
        with self._lock:
            if self._is_over:
                raise Refusal("the server is stopping")
            library = library if library in self._targets else ""
            found = self._templates.get(library)
            if found is None:
                found = _Template(library, self._targets[library])
                self._templates[library] = found
                self._guardian.watch(found.pid)
            return found

    def _drop(self, template: _Template, error: Exception) -> None:
        """Removes a template that has ended; the first caller logs it."""
        library = template.library
        with self._lock:
            if self._is_over or self._templates.get(library) is not template:
                return
            del self._templates[library]
            if library and isinstance(error, _UnfitError):
                del self._targets[library]
        end = template.end() or "has ended"
        self._guardian.leave(template.pid)
        name = library or "envkit"
        if isinstance(error, _UnfitError):
            _LOGGER.warning(
                "%s %s; its sessions start more slowly, because each imports it",
                name,
                error,
            )
        else:
            _LOGGER.warning(
                "the process that forks sessions with %s %s; another is started",
                name,
                end,
            )

    def stop(self) -> None:
        """Starts no more sessions."""
        with self._lock:
            self._is_over = True
            templates = list(self._templates.values())
        for template in templates:
            if not template.is_ready:
                template.cut()

    def close(self) -> None:
        """Closes all templates; their sessions must have ended."""
        self.stop()
        for template in self._templates.values():
            template.end()
            self._guardian.leave(template.pid)


class _UnfitError(Exception):
    """A library cannot be forked; the message gives the reason."""


class _Template:
    """The server's end of a template process.

    Attributes:
        library: The imported library; "" for envkit alone.
        pid: The process ID.
        is_ready: Whether sessions can be forked from it.
    """

    def __init__(self, library: str, targets: list[str]) -> None:
        """Starts the process, which imports the targets' libraries."""
        here, there = socket.socketpair()
        path = [each for each in sys.path if isinstance(each, str)]
        job = {"path": path, "targets": targets, "forks": _FORKS}
        with there:
            self._process = ChildInterpreter(
                _PROGRAM, json.dumps(job), fds=[there.fileno()]
            )
        self.library, self.pid = library, self._process.pid
        self.is_ready = False
        self._unfit = ""
        self._channel = SessionChannel(here)
        self._lock = threading.Lock()
        # One session is forked ahead, so that no client waits for the fork.
        self._spare = self._order()

    def await_ready(self) -> None:
        """Waits until everything is imported.

        Raises:
            _UnfitError: The library cannot be forked.
            EOFError: The process has ended.
        """
        with self._lock:
            if not self.is_ready and not self._unfit:
                message, _ = self._channel.receive()
                print(message["printed"], end="", file=sys.stderr, flush=True)
                self._unfit = message["unfit"]
                self.is_ready = not self._unfit
            if self._unfit:
                raise _UnfitError(self._unfit)
            if self._process.poll() is not None:
                raise EOFError("the process has ended")

    def start(self) -> tuple[SessionChannel, int, int | None]:
        """Starts a session.

        Raises:
            EOFError: The process has ended.
            Refusal: The system cannot start another process.
        """
        with self._lock:
            channel, self._spare = self._spare, self._order()
        try:
            return begun(channel)
        except EOFError:  # the waiting session was killed
            return begun(self._order())

    def _order(self) -> SessionChannel:
        """Orders a forked session, which waits for its request."""
        here, there = socket.socketpair()
        with there:
            self._channel.send({}, there.fileno())
        return SessionChannel(here)

    def cut(self) -> None:
        """Kills the process."""
        signal_group(self.pid, signal.SIGKILL)

    def end(self) -> str:
        """Ends the process, and returns how it ended."""
        if self._process.poll() is None:
            self.cut()
        code = self._process.end()
        self._channel.close()
        self._spare.close()
        return exit_text(code) if code else ""


def begun(channel: SessionChannel) -> tuple[SessionChannel, int, int | None]:
    """Waits for a session's first message; returns the channel, process ID and pidfd.

    Raises:
        EOFError: The process has ended.
        Refusal: It could not be started.
    """
    try:
        message, pidfd = channel.receive()
        if "refused" in message:
            raise Refusal(str(message["refused"]))
        if pidfd is not None:
            poller = select.poll()
            poller.register(pidfd, select.POLLIN)
            if poller.poll(0):
                os.close(pidfd)
                raise EOFError("the process has ended")
        if "pid" not in message:
            raise EOFError("the process has ended")
        return channel, message["pid"], pidfd
    except BaseException:
        channel.close()
        raise


class SessionHost(Protocol):
    """The process in which a session runs."""

    @property
    def pidfd(self) -> int:
        """Becomes readable when the process has ended; -1 if the system has none."""

    def kill(self, channel: SessionChannel) -> None:
        """Ends a session at once."""

    def leave(self, code: int | None) -> str:
        """Forgets a session that has ended; returns how it crashed, or ""."""


# Starts a session with environments of some libraries.
StartSession = Callable[[Iterable[str]], tuple[SessionChannel, SessionHost]]


class OwnProcess:
    """A process with one session, or whatever its channel orders.

    Attributes:
        pidfd: Becomes readable when the process has ended; -1 if the system has none.
    """

    def __init__(self, pid: int, pidfd: int | None, guardian: Guardian) -> None:
        """Takes a process that a template has forked.

        Args:
            pid: The process ID.
            pidfd: A descriptor of the process, if the system has them.
            guardian: Ends the process if the server is killed.
        """
        self._pid, self.pidfd = pid, -1 if pidfd is None else pidfd
        self._guardian = guardian
        self._lock = threading.Lock()
        guardian.watch(pid)

    def kill(self, channel: SessionChannel) -> None:
        """Kills the process."""
        # Its template kills the group before the process ID can be reused.
        with self._lock, contextlib.suppress(ProcessLookupError, PermissionError):
            if self.pidfd >= 0:
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            elif self._pid:
                os.kill(self._pid, signal.SIGKILL)

    def leave(self, code: int | None) -> str:
        """Forgets the process, which has ended; returns how it crashed, or "".

        Args:
            code: The exit code that its template reported; `None` if it could not.
        """
        with self._lock:
            if code is None:
                # No template is left to kill its environments' child processes.
                signal_group(self._pid, signal.SIGKILL)
            self._guardian.leave(self._pid)
            self._pid = 0
            if self.pidfd >= 0:
                os.close(self.pidfd)
            self.pidfd = -1
        return end_text(code)


def end_text(code: int | None) -> str:
    """Returns how a session crashed; "" if its exit code is 0."""
    return "has ended" if code is None else exit_text(code) if code else ""


class SessionProcess:
    """The server's end of a session that runs in another process.

    Attributes:
        id: Its name for the client.
        secret: Proves that a client resuming the session is its owner.
        ended: Whether it is over.
        end: How its process ended, if it crashed.
    """

    def __init__(self, start: StartSession) -> None:
        """Prepares; `build` calls `start`."""
        self.id = self.secret = self.end = ""
        self.ended = False
        self._start = start
        self._host: SessionHost | None = None
        self._lock = threading.Lock()
        self._is_cut = self._is_alone = False
        self._code: int | None = None

    def build(
        self,
        request: dict[str, Any],
        menu: Menu,
        options: ServeOptions,
        resume: float,
        client: socket.socket,
    ) -> dict[str, Any]:
        """Starts the process, which builds the environments; returns their facts.

        Args:
            request: The client's request, which has been checked.
            menu: The server's environments.
            options: The limits of the server.
            resume: Seconds that the session waits for its client after a lost link.
            client: The client's connection; if it closes, the process ends.

        Raises:
            Refusal: The environments cannot be built, crash their process, or have
                specs that cannot be sent.
            ConnectionError: The client has left.
        """
        names = [name for name, _, _ in request["environments"]]
        libraries = dict.fromkeys(menu.find(name).library for name in names)
        self._channel, host = self._start(libraries)
        with self._lock:
            self._host = host
            if self._is_cut:
                host.kill(self._channel)
        given = options._asdict()
        self._channel.send(
            {
                "offers": [
                    [offer.name, offer.target, to_plain(offer.arguments, "--arg")]
                    for offer in menu.offers
                ],
                "names": {
                    offer.id: offer.source
                    for offer in menu.offers
                    if ":" not in offer.target
                },
                "options": {name: given[name] for name in _OPTIONS},
                "resume": resume,
                "request": request,
            }
        )
        try:
            message = self._await_message(client=client)
        except ConnectionError:
            self.cut()
            self._await_end()
            raise
        if message is None:
            self._await_end()
            raise Refusal(
                "The environments were not built: the session's process "
                f"{self.end or 'has ended'}."
            )
        if "refused" in message:
            self._await_end()
            raise Refusal(str(message["refused"]))
        self.id, self.secret = message["session"], message["secret"]
        return message

    def serve(self, sock: socket.socket) -> None:
        """Hands the client over, and waits until the session is over."""
        self._hand({"serve": True}, sock)
        self._await_message()
        self._await_end()

    def resume(self, sock: socket.socket, request: dict[str, Any]) -> bool:
        """Gives the session another link; returns False if it is over."""
        if not self.ended:
            self._hand({"resume": request}, sock)
        return not self.ended

    def observe(self, sock: socket.socket, proof: dict[str, Any]) -> None:
        """Hands over an observer's connection."""
        self._hand({"observe": proof}, sock)

    def set_alone(self, is_alone: bool) -> None:
        """Tells the session whether it is the only one."""
        if is_alone is not self._is_alone:
            self._is_alone = is_alone
            self._channel.send({"alone": is_alone})

    def stop(self, reason: str) -> None:
        """Tells the session to end soon; its client gets the reason."""
        self._channel.send({"stop": reason})

    def cut(self) -> None:
        """Kills the process, or prevents it from starting."""
        with self._lock:
            self._is_cut = True
            if self._host is not None:
                self._host.kill(self._channel)

    def discard(self) -> None:
        """Ends a session that was never served."""
        self.stop("the client has left")
        self._await_end()

    def _await_message(
        self, until: float | None = None, client: socket.socket | None = None
    ) -> dict[str, Any] | None:
        """Waits for a message from the process; `None` if it has ended.

        Raises:
            TimeoutError: The time limit has passed.
            ConnectionError: The client has left.
        """
        poller = select.poll()
        poller.register(self._channel.fileno(), select.POLLIN)
        pidfd = -1 if self._host is None else self._host.pidfd
        if pidfd >= 0:
            poller.register(pidfd, select.POLLIN)
        if client is not None:
            poller.register(client, getattr(select, "POLLRDHUP", 0))
        left = None if until is None else 1000 * max(0.0, until - time.monotonic())
        ready = dict(poller.poll(left))
        if not ready:
            raise TimeoutError
        if client is not None and client.fileno() in ready:
            raise ConnectionError("it left before its environments were made")
        if self._channel.fileno() not in ready:
            # The process is gone, but its own child processes may keep the channel
            # open.
            poller.unregister(pidfd)
            if not poller.poll(1000 * TO_REPORT_END):
                return None
        with contextlib.suppress(EOFError):
            message, _ = self._channel.receive()
            if "ended" not in message:
                return message
            self._code = int(message["ended"])
        return None

    def _hand(self, message: dict[str, Any], sock: socket.socket) -> None:
        """Passes a connection to the process, or the plain end of an encrypted one."""
        if isinstance(sock, ssl.SSLSocket):
            here, there = socket.socketpair()
            with there:
                self._channel.send(message, there.fileno())
            threading.Thread(
                target=_relay, args=(sock, here), name="envkit-tls", daemon=True
            ).start()
        else:
            self._channel.send(message, sock.fileno())
            sock.close()

    def _has_ended_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        try:
            while self._await_message(until) is not None:
                pass
        except TimeoutError:
            return False
        return True

    def _await_end(self) -> None:
        """Waits for the process to end; kills it if that takes too long."""
        if not self._has_ended_within(_GRACE):
            self.cut()
            self._has_ended_within(_GRACE)
            self._code = 0  # not a crash
        with self._lock:
            host, self._host = self._host, None
            assert host is not None  # the session was started
            self.end = host.leave(self._code)
        self.ended = True  # last, because other threads read `end` afterwards
        self._channel.close()


def _relay(encrypted: ssl.SSLSocket, plain: socket.socket) -> None:
    """Copies bytes between an encrypted connection and a process, until one ends."""
    with encrypted, plain, contextlib.suppress(OSError):
        for sock in (encrypted, plain):
            sock.setblocking(False)
        to_plain_side, to_client = bytearray(), bytearray()
        is_open = True
        # The process's last bytes are sent before the connection ends.
        while is_open or to_client:
            wants_in = is_open and len(to_plain_side) < _MOST_WAITING
            poller = select.poll()
            mask = select.POLLIN if wants_in else 0
            poller.register(encrypted, mask | (select.POLLOUT if to_client else 0))
            if is_open:
                mask = select.POLLIN if len(to_client) < _MOST_WAITING else 0
                more = select.POLLOUT if to_plain_side else 0
                poller.register(plain, mask | more)
            if not (wants_in and encrypted.pending()):
                poller.poll()
            if wants_in and not _carry(encrypted.recv, to_plain_side):
                return
            _push(plain.send, to_plain_side)
            if is_open and len(to_client) < _MOST_WAITING:
                is_open = _carry(plain.recv, to_client)
            _push(encrypted.send, to_client)


def _carry(recv: Callable[[int], bytes], waiting: bytearray) -> bool:
    """Reads the available bytes; returns False at the end of the connection."""
    try:
        data = recv(_AT_ONCE)
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return True
    waiting += data
    return bool(data)


def _push(send: Callable[[Any], int], waiting: bytearray) -> None:
    """Sends as many bytes as the socket takes."""
    with contextlib.suppress(
        BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError
    ):
        while waiting:
            del waiting[: send(waiting)]
