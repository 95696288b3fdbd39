"""`SessionProcess`: a session in a process of its own, so that a crash ends it alone.

Sockets travel by the channel between a server and the process of a session, so that no
row passes the server. Only what is encrypted does: the keys of a connection are in the
memory of one process. What runs at the other end is in `session_host`.
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
from typing import Any

from envkit._shared.processes import exit_text, signal_group
from envkit.parallel.system.guardian import Guardian
from envkit.parallel.system.interpreter import ChildInterpreter
from envkit.provenance import to_plain
from envkit.remote.offers import Menu, Offer, Refusal, ServeOptions
from envkit.remote.session_host import SessionChannel

__all__ = ["SessionProcess", "Templates"]

_LOGGER = logging.getLogger(__name__)

# Seconds that a process has to end when its client has left, and in which its template
# says how it has ended.
_GRACE, _TO_SAY_HOW = 10.0, 1.0
# How often a session is begun whose template has ended at that moment.
_TRIES = 3
# Libraries of other systems may have threads that nobody sees.
_FORKS = sys.platform == "linux"
_AT_ONCE = 1 << 16
# How many bytes of a client wait to be encrypted or read, at most.
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
    """Processes that have libraries imported, from which sessions are forked.

    Each library of the menu has a template, where it can be forked. Sessions with
    several libraries, and with others, are forked from one that has imported envkit.
    """

    def __init__(self, offers: Iterable[Offer], guardian: Guardian) -> None:
        """Starts a template for each library.

        Args:
            offers: What the server offers.
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

    def start(self, libraries: Iterable[str]) -> tuple[SessionChannel, int, int | None]:
        """Starts a session with environments of some libraries.

        Returns:
            A channel to the session, its process, and a descriptor of that.

        Raises:
            Refusal: The system makes no more processes, or the server is stopping.
        """
        (library, *others) = libraries
        if others:
            library = ""
        for tried in range(_TRIES):
            # A library that keeps crashing its template is imported by the session.
            template = self._template(library if tried < _TRIES - 1 else "")
            try:
                template.await_ready()
                channel, pid, pidfd = template.start()
            except (EOFError, _UnfitError) as error:
                self._drop(template, error)
            else:
                self._guardian.watch(pid)
                return channel, pid, pidfd
        raise Refusal("The process of the session cannot be started.")

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
        """Does without a template that has ended; the first to see that says so."""
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
        """Ends all templates, whose sessions have ended."""
        self.stop()
        for template in self._templates.values():
            template.end()
            self._guardian.leave(template.pid)


class _UnfitError(Exception):
    """A library cannot be forked, and this is why."""


class _Template:
    """A process that has libraries imported, as the server sees it.

    Attributes:
        library: What it has imported; "" for envkit alone.
        pid: The process.
        is_ready: Whether sessions can be forked from it.
    """

    def __init__(self, library: str, targets: list[str]) -> None:
        """Starts the process, which imports what targets need."""
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
        # One is forked ahead, so that nobody waits for that.
        self._spare = self._order()

    def await_ready(self) -> None:
        """Waits until everything is imported.

        Raises:
            _UnfitError: It cannot be forked.
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
            Refusal: The system makes no more processes.
        """
        with self._lock:
            channel, self._spare = self._spare, self._order()
        try:
            return _begun(channel)
        except EOFError:  # Something has killed the one that was waiting.
            return _begun(self._order())

    def _order(self) -> SessionChannel:
        """Has a session forked, which waits for what it is to be."""
        here, there = socket.socketpair()
        with there:
            self._channel.send({}, there.fileno())
        return SessionChannel(here)

    def cut(self) -> None:
        """Ends the process, whatever it is doing."""
        signal_group(self.pid, signal.SIGKILL)

    def end(self) -> str:
        """Ends the process, and returns how it has ended."""
        if self._process.poll() is None:
            self.cut()
        code = self._process.end()
        self._channel.close()
        self._spare.close()
        return exit_text(code) if code else ""


def _begun(channel: SessionChannel) -> tuple[SessionChannel, int, int | None]:
    """Returns what a session's process says first: the channel, and which one it is.

    Raises:
        EOFError: It has ended.
        Refusal: There is none.
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


class SessionProcess:
    """A session of a server, as its threads see it: another process runs it.

    Attributes:
        id: What the client calls it.
        secret: What the client proves with that a lost session is its own.
        ended: Whether it is over.
        end: How its process has ended, if it did not do so in order.
    """

    def __init__(self, templates: Templates, guardian: Guardian) -> None:
        """Prepares; `build` starts the process.

        Args:
            templates: What starts it.
            guardian: Ends the process if the server is killed.
        """
        self.id = self.secret = self.end = ""
        self.ended = False
        self._templates, self._guardian = templates, guardian
        self._pid, self._pidfd = 0, -1
        self._lock = threading.Lock()
        self._is_cut = False
        self._code: int | None = None

    def build(
        self,
        said: dict[str, Any],
        menu: Menu,
        options: ServeOptions,
        resume: float,
        client: socket.socket,
    ) -> dict[str, Any]:
        """Lets a process build the environments; returns what the client is told.

        Args:
            said: What the client wants, which has been checked.
            menu: What the server offers.
            options: What the server allows.
            resume: For how many seconds it waits for its client after a lost link.
            client: The connection of the client; if that leaves, the process ends.

        Raises:
            Refusal: They cannot be built, or cannot travel, or crash their process.
            ConnectionError: The client has left.
        """
        names = [name for name, _, _ in said["environments"]]
        libraries = dict.fromkeys(menu.find(name).library for name in names)
        self._channel, pid, pidfd = self._templates.start(libraries)
        with self._lock:
            self._pid, self._pidfd = pid, -1 if pidfd is None else pidfd
            if self._is_cut:
                self._kill()
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
                "said": said,
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
                "The environments were not built: the process of the session "
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

    def resume(self, sock: socket.socket, said: dict[str, Any]) -> bool:
        """Gives the session another link; returns False if it is over."""
        if not self.ended:
            self._hand({"resume": said}, sock)
        return not self.ended

    def observe(self, sock: socket.socket, proof: dict[str, Any]) -> None:
        """Lets a connection see what is shown from now on."""
        self._hand({"observe": proof}, sock)

    def set_alone(self, is_alone: bool) -> None:
        """Tells the process whether there is another session beside it."""
        self._channel.send({"alone": is_alone})

    def stop(self, reason: str) -> None:
        """Lets the session end soon; its client is told the reason."""
        self._channel.send({"stop": reason})

    def cut(self) -> None:
        """Ends the process, whatever it is doing, also before it has begun."""
        with self._lock:
            self._is_cut = True
            if self._pid:
                self._kill()

    def discard(self) -> None:
        """Ends a session that is not served."""
        self.stop("the client has left")
        self._await_end()

    def _kill(self) -> None:
        # Its template ends the group, as long as its number is its own.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            else:
                os.kill(self._pid, signal.SIGKILL)

    def _await_message(
        self, until: float | None = None, client: socket.socket | None = None
    ) -> dict[str, Any] | None:
        """Waits for a message of the process; `None` if it has ended.

        Raises:
            TimeoutError: Time is up.
            ConnectionError: The client has left.
        """
        poller = select.poll()
        poller.register(self._channel.fileno(), select.POLLIN)
        if self._pidfd >= 0:
            poller.register(self._pidfd, select.POLLIN)
        if client is not None:
            poller.register(client, getattr(select, "POLLRDHUP", 0))
        left = None if until is None else 1000 * max(0.0, until - time.monotonic())
        ready = dict(poller.poll(left))
        if not ready:
            raise TimeoutError
        if client is not None and client.fileno() in ready:
            raise ConnectionError("it has left before its environments were made")
        if self._channel.fileno() not in ready:
            # It is gone, and what it has forked may keep its channel open.
            poller.unregister(self._pidfd)
            if not poller.poll(1000 * _TO_SAY_HOW):
                return None
        with contextlib.suppress(EOFError):
            message, _ = self._channel.receive()
            if "ended" not in message:
                return message
            self._code = int(message["ended"])
        return None

    def _hand(self, message: dict[str, Any], sock: socket.socket) -> None:
        """Lets the process have a connection, or the open end of an encrypted one."""
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
        """Waits for the process to end; kills it if it does not do so in time."""
        if not self._has_ended_within(_GRACE):
            self.cut()
            self._has_ended_within(_GRACE)
            self._code = 0  # It is not to blame.
        with self._lock:
            if self._code is None:
                # What its environments have started, where no template ends that.
                signal_group(self._pid, signal.SIGKILL)
            self._guardian.leave(self._pid)
            self._pid = 0
            if self._pidfd >= 0:
                os.close(self._pidfd)
        self.end = "has ended" if self._code is None else ""
        if self._code:
            self.end = exit_text(self._code)
        self.ended = True  # Last, for threads that look how it ended when it has.
        self._channel.close()


def _relay(encrypted: ssl.SSLSocket, plain: socket.socket) -> None:
    """Carries bytes between an encrypted connection and a process, until one ends."""
    with encrypted, plain, contextlib.suppress(OSError):
        for sock in (encrypted, plain):
            sock.setblocking(False)
        to_plain_side, to_client = bytearray(), bytearray()
        is_open = True
        # What the process has said last is sent before the connection ends.
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
    """Reads what is there; returns False at the end of the connection."""
    try:
        data = recv(_AT_ONCE)
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return True
    waiting += data
    return bool(data)


def _push(send: Callable[[Any], int], waiting: bytearray) -> None:
    """Sends what there is room for."""
    with contextlib.suppress(
        BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError
    ):
        while waiting:
            del waiting[: send(waiting)]
