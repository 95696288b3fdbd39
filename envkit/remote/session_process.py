"""`SessionProcess`: a session in a process of its own, so that a crash ends it alone.

```
server                                        process of the session
  {what is served, what the client wants} ─▶  builds the environments
                                          ◀─  {the facts} or {why not}
  the client's socket ──────────────────────▶  answers the client itself
  sockets of links that are taken up, of      the same
  observers; that the server stops   ──────▶
                                          ◀─  the end of the channel: it has ended
```

Sockets travel by the channel between the two, so that no row passes the server. Only
what is encrypted does: the keys of a connection are in the memory of one process.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from envkit.distributed.link import HEAD
from envkit.errors import EnvkitError
from envkit.parallel.system.doorbell import may_linger
from envkit.parallel.system.guardian import Guardian
from envkit.provenance import from_plain, to_plain
from envkit.remote.offers import Menu, Offer, Refusal, ServeOptions
from envkit.remote.protocol import ProtocolError, frame_of, message_of
from envkit.remote.session import Session
from envkit.remote.session_request import request_of
from envkit.remote.unhurried import unhurried_stderr

__all__ = ["SessionProcess", "main"]

_POLL_INTERVAL = 0.25
# Seconds that a process has to end when its server has, or when its client has left.
_GRACE = 10.0
_AT_ONCE = 1 << 16
# How many bytes of a client wait to be encrypted or read, at most.
_MOST_WAITING = 1 << 20
_OPTIONS = (
    "max_rows",
    "idle_timeout",
    "observers",
    "allow_call",
    "allow_arg",
)


class _Channel:
    """Carries messages between a server and a session's process, with sockets."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sending = threading.Lock()

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, message: dict[str, Any], sock: socket.socket | None = None) -> None:
        """Sends a message; whether the other end is still there shows elsewhere."""
        data = b"".join(frame_of(message))
        with self._sending, contextlib.suppress(OSError):
            if sock is not None:
                socket.send_fds(self._sock, [data[:1]], [sock.fileno()])
                data = data[1:]
            self._sock.sendall(data)

    def receive(self) -> tuple[dict[str, Any], socket.socket | None]:
        """Waits for a message.

        Raises:
            EOFError: The other end is gone.
        """
        try:
            data, fds, _, _ = socket.recv_fds(self._sock, 1, 1)
            sock = socket.socket(fileno=fds[0]) if fds else None
            head = data + self._read(HEAD.size - len(data))
            return message_of(self._read(HEAD.unpack(head)[4])), sock
        except OSError as error:
            raise EOFError(str(error)) from error

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._sock.recv(min(count - len(data), _AT_ONCE))
            if not part:
                raise EOFError("the other end is gone")
            data += part
        return bytes(data)

    def close(self) -> None:
        self._sock.close()


class SessionProcess:
    """A session of a server, as its threads see it: another process runs it.

    Attributes:
        id: What the client calls it.
        secret: What the client proves with that a lost session is its own.
        ended: Whether it is over.
        end: How its process has ended, if it did not do so in order.
    """

    def __init__(
        self,
        said: dict[str, Any],
        menu: Menu,
        options: ServeOptions,
        *,
        resume: float,
        guardian: Guardian,
    ) -> None:
        """Starts the process.

        Args:
            said: What the client wants, which has been checked.
            menu: What the server offers.
            options: What the server allows.
            resume: For how many seconds it waits for its client after a lost link.
            guardian: Ends the process if the server is killed.
        """
        self.id = self.secret = self.end = ""
        self.ended = False
        self._guardian = guardian
        here, there = socket.socketpair()
        with there:
            # A session of its own for signals: Ctrl-C in a terminal is the server's.
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(there.fileno())],
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        guardian.watch(self._process.pid)
        self._channel = _Channel(here)
        given = options._asdict()
        self._channel.send(
            {
                "path": sys.path,
                "offers": [
                    [offer.name, offer.target, to_plain(offer.arguments, "--arg")]
                    for offer in menu.offers
                ],
                "options": {name: given[name] for name in _OPTIONS},
                "resume": resume,
                "said": said,
            }
        )

    def build(self) -> dict[str, Any]:
        """Waits until the environments are built; returns what the client is told.

        Raises:
            Refusal: They cannot be built, or cannot travel, or crash their process.
        """
        message = self._await_message()
        if message is None:
            self._note_end()
            raise Refusal(
                "The environments were not built: the process of the session "
                f"{self.end or 'has ended'}."
            )
        if "refused" in message:
            self._note_end()
            raise Refusal(str(message["refused"]))
        self.id, self.secret = message["session"], message["secret"]
        return message

    def serve(self, sock: socket.socket) -> None:
        """Hands the client over, and waits until the session is over."""
        self._hand({"serve": True}, sock)
        self._await_message()
        self._note_end()

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
        """Ends the process, whatever it is doing."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def discard(self) -> None:
        """Ends a session that is not served."""
        self.stop("the client has left")
        self._note_end()

    def _await_message(self) -> dict[str, Any] | None:
        """Waits for a message of the process; `None` if it has ended."""
        poller = select.poll()
        poller.register(self._channel.fileno(), select.POLLIN)
        # What an environment has forked may keep the channel open.
        while not poller.poll(1000 * _POLL_INTERVAL):
            if self._process.poll() is not None:
                return None
        with contextlib.suppress(EOFError):
            return self._channel.receive()[0]
        return None

    def _hand(self, message: dict[str, Any], sock: socket.socket) -> None:
        """Lets the process have a connection, or the open end of an encrypted one."""
        if isinstance(sock, ssl.SSLSocket):
            here, there = socket.socketpair()
            with there:
                self._channel.send(message, there)
            threading.Thread(
                target=_relay, args=(sock, here), name="envkit-tls", daemon=True
            ).start()
        else:
            self._channel.send(message, sock)
            sock.close()

    def _note_end(self) -> None:
        """Waits for the process to end; kills it if it does not do so in time."""
        try:
            code = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self.cut()
            code = 0
            self._process.wait()
        if code < 0:
            self.end = f"was killed by {signal.Signals(-code).name}"
        elif code:
            self.end = f"exited with code {code}"
        self.ended = True  # Last, for threads that look how it ended when it has.
        # What its environments have started and left behind.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._guardian.leave(self._process.pid)
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


# The process.


def main(fd: int) -> None:
    """Runs a session until it is over, or the server is gone."""
    faulthandler.enable()
    channel = _Channel(socket.socket(fileno=fd))
    os.set_inheritable(fd, False)
    job, _ = channel.receive()
    sys.path += [each for each in job["path"] if each not in sys.path]
    forked: list[int] = []
    os.register_at_fork(after_in_child=lambda: forked.append(os.getppid()))
    hosted = _HostedSession(channel)
    try:
        session = hosted.session = _session_of(job, forked, hosted)
        facts = session.build()
    except (EnvkitError, ImportError, TypeError, ValueError) as error:
        channel.send({"refused": str(error)})
        return
    threading.Thread(target=hosted.listen, name="envkit-session", daemon=True).start()
    channel.send(facts)
    sock = hosted.await_client()
    if sock is None:
        session.discard()
    else:
        session.serve(sock)
    # Threads of environments may keep the process from its end.
    channel.send({"over": True})


def _session_of(
    job: dict[str, Any], forked: list[int], hosted: _HostedSession
) -> Session:
    names = {key: tuple(job["options"][key]) for key in ("allow_call", "allow_arg")}
    options = ServeOptions(**{**job["options"], **names})
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
        request_of(job["said"], menu, options),
        options,
        resume=job["resume"],
        forked=forked,
        # Several that linger would keep each other from the CPUs.
        may_linger=lambda: has_cpus and hosted.is_alone,
    )


class _HostedSession:
    """A session in this process, and what the server says of it."""

    def __init__(self, channel: _Channel) -> None:
        self._channel = channel
        self.session: Session | None = None
        self.is_alone = True
        self._changed = threading.Condition()
        self._client: socket.socket | None = None
        self._is_over = False

    def await_client(self) -> socket.socket | None:
        """Waits for the client; `None` if it has left already."""
        with self._changed:
            self._changed.wait_for(lambda: self._client is not None or self._is_over)
            return self._client

    def listen(self) -> None:
        """Does what the server says, until it is gone; in a thread."""
        poller = select.poll()
        poller.register(self._channel.fileno(), select.POLLIN)
        session = self.session
        assert session is not None
        try:
            while True:
                if poller.poll(1000 * _POLL_INTERVAL):
                    self._do(session, *self._channel.receive())
                session.look(time.monotonic())
        except (EOFError, ProtocolError):
            self._end(session, "the server is gone")
            # Its environments may be anywhere, also in code that never returns.
            time.sleep(_GRACE)
            os._exit(1)

    def _do(
        self, session: Session, message: dict[str, Any], sock: socket.socket | None
    ) -> None:
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
                sock.settimeout(_POLL_INTERVAL)
                with contextlib.suppress(OSError):
                    sock.sendall(b"".join(frame_of({"refused": str(refusal)})))
                sock.close()
        elif "stop" in message:
            self._end(session, str(message["stop"]))
        elif "alone" in message:
            self.is_alone = bool(message["alone"])

    def _end(self, session: Session, reason: str) -> None:
        session.stop(reason)
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


if __name__ == "__main__":
    with unhurried_stderr():
        main(int(sys.argv[1]))
