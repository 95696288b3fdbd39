"""`envkit serve`: the server of envkit's own protocol.

```
listener ── a thread for each connection: TLS, greeting, proofs, what is asked for
               ├─ a session: a process gets the connection and builds the environments,
               │            or this thread does both (`--threads`)
               ├─ a lost session: it gets the connection, too
               └─ an observer: the session shows it what it answers
```

A connection that has proved nothing is read no more than some bytes of, for some
seconds; where there are too many of those, the oldest is dropped. Everything else a
client can ask for has a limit, and each refusal is a message that it can read.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import select
import socket
import threading
import time
from typing import Any

from envkit._shared.guesses import Guesses
from envkit._shared.listening import listener
from envkit._shared.secret_files import ServerSecret
from envkit._shared.text import escaped
from envkit.distributed.link import keep_alive
from envkit.extend import counted
from envkit.parallel.system.doorbell import may_linger
from envkit.parallel.system.guardian import Guardian
from envkit.provenance import envkit_version
from envkit.remote.offers import (
    Menu,
    Refusal,
    ServeOptions,
    with_reachable_host,
)
from envkit.remote.protocol import (
    MAGIC,
    MOST_BEFORE,
    NONCE,
    ORDER,
    PORT,
    PROTOCOL,
    Greeting,
    ProtocolError,
    Wire,
    frame_of,
    new_nonce,
    proof_of,
)
from envkit.remote.session import Session
from envkit.remote.session_process import SessionProcess
from envkit.remote.session_request import SessionRequest, request_of

__all__ = ["Server", "serve"]

_LOGGER = logging.getLogger(__name__)

# Seconds for a connection to say who it is, and how many may be about it.
_TO_PROVE, _MOST_STRANGERS = 10.0, 64
_POLL_INTERVAL = 0.25
# Of how many sessions is kept how they have crashed.
_MOST_CRASHED = 64
# How long environments have to end what they are doing when the server stops.
_GRACE = 10.0


class _WrongTokenError(Refusal):
    """A client has guessed at the token."""


def serve(menu: Menu, options: ServeOptions) -> Server:
    """Listens, and returns the server; `close` ends it.

    Example:
        >>> from envkit.remote.offers import Offer
        >>> server = serve(Menu([Offer("CartPole")]), ServeOptions(port=0))
        >>> server.line[:42]
        'envkit serves CartPole at tcp://127.0.0.1:'
        >>> server.close("the example is over")
    """
    return Server(menu, options)


class Server:
    """Serves environments by name.

    Attributes:
        line: Which environments it serves, and where.
        address: Where clients find it.
        token: What clients must know, drawn unless given; `None` if they need not.
        invitation: The call for clients that do not find a drawn token.
    """

    def __init__(
        self,
        menu: Menu,
        options: ServeOptions,
        *,
        resume: float = 30.0,
        to_prove: float = _TO_PROVE,
    ) -> None:
        """Listens.

        Args:
            menu: What there is.
            options: How to listen, and what is allowed.
            resume: For how many seconds a session waits for its client after a lost
                link.
            to_prove: How many seconds a connection has to say who it is.
        """
        self._menu = menu
        self._options = options
        self._resume = resume
        self._to_prove = to_prove
        self._secret = ServerSecret("token", options.token)
        self.token = self._secret.data
        self._guesses = Guesses()
        self._listener = listener(options.host, _port(options))
        self._listener.setblocking(False)
        try:
            self._secret.publish(self._listener.getsockname())
        except BaseException:
            self._listener.close()
            raise
        host, port = self._listener.getsockname()[:2]
        host = options.host if options.host not in ("", "0.0.0.0", "::") else host
        scheme = "tcp" if options.tls is None else "tls"
        self.address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        self.line = f"envkit serves {', '.join(menu.names)} at {self.address}"
        self.invitation = self._invitation()
        self._lock = threading.Lock()
        self._strangers: dict[socket.socket, float] = {}
        self._sessions: dict[str, Session | SessionProcess] = {}
        # Those whose environments are being built, and how many they are.
        self._starting: set[SessionProcess] = set()
        self._opening = 0
        # How processes of sessions have ended that did not do so in order.
        self._crashed: dict[str, str] = {}
        self._guardian = Guardian()
        if options.processes:
            self._guardian.start()
        self._threads: set[threading.Thread] = set()
        self._closing = ""
        self._failed: str | None = None
        # One for a session, and one for a client on this machine.
        self._has_cpus = may_linger(2)
        # Not empty in a process that an environment of a session has forked.
        self._forked: list[int] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._note_fork)
        self._door = threading.Thread(
            target=self._listen, name="envkit-serve-door", daemon=True
        )
        self._door.start()

    def _invitation(self) -> str:
        if not self._secret.is_drawn:
            return ""
        address = with_reachable_host(self.address, self._options.host)
        name = "" if len(self._menu.offers) == 1 else f"/{self._menu.names[0]}"
        return (
            "other users and machines connect with "
            f'envkit.connect("{address}{name}", token="{self._secret.text}")'
        )

    def _note_fork(self) -> None:
        self._forked.append(os.getppid())

    def ended(self) -> str | None:
        """Returns why the server has ended unasked; `None` as long as it serves."""
        return self._failed

    def close(self, reason: str) -> None:
        """Tells clients the reason, closes their environments, and stops listening."""
        with self._lock:
            self._closing = self._closing or reason or "the server is stopping"
            sessions = list(self._sessions.values())
            strangers, starting = list(self._strangers), list(self._starting)
        for session in sessions:
            session.stop(self._closing)
        for each in starting:
            each.cut()
        for sock in strangers:
            _shut(sock)
        deadline = time.monotonic() + _GRACE
        self._door.join(_GRACE)
        while (threads := self._living()) and time.monotonic() < deadline:
            threads[0].join(max(0.0, deadline - time.monotonic()))
        for session in sessions:
            session.cut()
        self._secret.close()
        self._listener.close()
        self._guardian.dismiss()

    def _living(self) -> list[threading.Thread]:
        with self._lock:
            return [each for each in self._threads if each.is_alive()]

    # The door.

    def _listen(self) -> None:
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        try:
            while not self._closing:
                if poller.poll(1000 * _POLL_INTERVAL):
                    self._accept()
                self._look(time.monotonic())
        except Exception as error:
            self._failed = f"{type(error).__name__}: {error}"
            raise

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # No descriptor is left: those that are open may end.
            time.sleep(_POLL_INTERVAL)
            return
        with self._lock:
            if len(self._strangers) >= _MOST_STRANGERS:
                oldest = min(self._strangers, key=self._strangers.__getitem__)
                del self._strangers[oldest]
                _shut(oldest)
            self._strangers[sock] = time.monotonic()
            thread = threading.Thread(
                target=self._meet, args=(sock,), name="envkit-serve", daemon=True
            )
            self._threads.add(thread)
        thread.start()

    def _look(self, now: float) -> None:
        with self._lock:
            for sock, since in list(self._strangers.items()):
                if now - since > self._to_prove + 1.0:
                    del self._strangers[sock]
                    _shut(sock)
            self._threads = {each for each in self._threads if each.is_alive()}
            sessions = list(self._sessions.values())
        for session in sessions:
            session.look(now)

    # One connection, in a thread of its own.

    def _meet(self, sock: socket.socket) -> None:
        original = sock
        peer = _peer_of(sock)
        try:
            keep_alive(sock, is_pool=False)
            wire = Wire(sock, time.monotonic() + self._to_prove)
            try:
                if self._options.tls is not None:
                    sock.settimeout(self._to_prove)
                    if sock.recv(1, socket.MSG_PEEK) == MAGIC[:1]:
                        raise Refusal(
                            "This server uses TLS: its address begins with tls://."
                        )
                    sock = self._options.tls.wrap_socket(sock, server_side=True)
                    wire.sock = sock
                greeting, wants = self._greet(wire)
            except Refusal as refusal:
                if isinstance(refusal, _WrongTokenError):
                    self._delay(sock, peer)
                self._refuse(sock, str(refusal), peer)
                return
            finally:
                with self._lock:
                    was_known = self._strangers.pop(original, None) is not None
            if was_known and self._admit(sock, wire, greeting, wants, peer):
                # It belongs to a session, or to what it shows.
                sock = original = None  # type: ignore[assignment]
        except (OSError, ProtocolError, ValueError) as error:
            if sock is not None:
                self._refuse(sock, str(error), peer)
        finally:
            for each in (sock, original):
                if each is not None:
                    each.close()

    def _greet(self, wire: Wire) -> tuple[Greeting, dict[str, Any]]:
        """Finds out what a connection is and wants.

        Raises:
            Refusal: It is none of ours, or does not know the token.
        """
        if wire.read(len(MAGIC)) != MAGIC:
            raise Refusal(
                "This is a server of envkit environments, and what was sent is not "
                "its protocol: envkit.connect speaks it."
            )
        said = wire.receive(MOST_BEFORE)
        protocol, order = said.get("protocol"), said.get("order")
        if not isinstance(protocol, list) or protocol[:1] != [PROTOCOL[0]]:
            raise Refusal(
                f"The server speaks protocol {PROTOCOL[0]}.{PROTOCOL[1]} (envkit "
                f"{envkit_version()}), and the client {_version_text(protocol)} "
                f"(envkit {said.get('envkit')!r:.40}). Both must have the same major "
                "number: update the older envkit."
            )
        if order != ORDER:
            raise Refusal(
                "The two machines have different orders of bytes, and arrays travel "
                "as they lie in memory."
            )
        nonce = _nonce(said.get("nonce"))
        greeting = Greeting(nonce, new_nonce())
        token = self.token
        wire.send(
            {
                "protocol": list(PROTOCOL),
                "envkit": envkit_version(),
                "nonce": greeting.server.hex(),
                "token": token is not None,
            }
        )
        wants = wire.receive(MOST_BEFORE)
        if token is not None:
            proof = wants.get("proof")
            if not isinstance(proof, str) or not hmac.compare_digest(
                proof.encode(), proof_of(token, b"client", greeting).encode()
            ):
                if proof:
                    raise _WrongTokenError("The token is not the one of this server.")
                raise Refusal(
                    "This server has a token, and the client has given none: "
                    "connect(..., token=...)."
                )
        return greeting, wants

    def _delay(self, sock: socket.socket, peer: str) -> None:
        """Waits before a wrong guess is answered, unless its client leaves."""
        with self._guesses.late(peer.rpartition(":")[0]) as seconds:
            poller = select.poll()
            poller.register(sock, getattr(select, "POLLRDHUP", 0))
            poller.poll(1000 * seconds)

    def _refuse(self, sock: socket.socket, reason: str, peer: str) -> None:
        reason = self._menu.hide(reason)
        _LOGGER.warning("%s was refused: %s", peer, escaped(reason.partition("\n")[0]))
        with contextlib.suppress(OSError, ValueError):
            sock.settimeout(1.0)
            sock.sendall(b"".join(frame_of({"refused": reason})))
            # Unread bytes in a socket that is closed would make the system drop the
            # reason on its way.
            sock.shutdown(socket.SHUT_WR)
            deadline = time.monotonic() + 1.0
            while time.monotonic() < deadline and sock.recv(MOST_BEFORE):
                pass

    def _admit(
        self,
        sock: socket.socket,
        wire: Wire,
        greeting: Greeting,
        wants: dict[str, Any],
        peer: str,
    ) -> bool:
        """Does what a connection wants; returns True if that has taken the socket."""
        token = self.token
        proof = {} if token is None else {"proof": proof_of(token, b"server", greeting)}
        try:
            if "resume" in wants:
                return self._resume_session(sock, wire, proof, wants["resume"], peer)
            if "observe" in wants:
                return self._observe(sock, proof, wants["observe"], peer)
            if "list" in wants:
                _LOGGER.info("%s asked for the list of environments", peer)
                wire.send({**proof, "environments": self._listed()})
                return False
            return self._open(sock, wire, proof, wants.get("open"), peer)
        except Refusal as refusal:
            self._refuse(sock, str(refusal), peer)
            return False

    def _listed(self) -> list[dict[str, Any]]:
        return [
            {"name": offer.name, "id": offer.id, "version": offer.version}
            for offer in self._menu.offers
        ]

    def _open(
        self,
        sock: socket.socket,
        wire: Wire,
        proof: dict[str, Any],
        said: Any,
        peer: str,
    ) -> bool:
        wanted = request_of(said, self._menu, self._options)
        with self._lock:
            if self._closing:
                raise Refusal(self._closing)
            most = self._options.max_sessions
            if len(self._sessions) + self._opening >= most:
                raise Refusal(
                    f"The server has {counted(most, 'session')}, as many as it allows "
                    "(--max-sessions). Try again when one has ended."
                )
            self._opening += 1
        try:
            session, facts = self._built(said, wanted)
        finally:
            with self._lock:
                self._opening -= 1
        try:
            try:
                sock.settimeout(self._to_prove)
                sock.sendall(b"".join(frame_of({**proof, **facts})))
            except OSError:
                session.discard()
                raise
            count = counted(len(wanted.names), "environment")
            _LOGGER.info("%s opened the session %s of %s", peer, session.id, count)
            session.serve(sock)
        finally:
            with self._lock:
                self._sessions.pop(session.id, None)
                if isinstance(session, SessionProcess) and session.end:
                    self._crashed[session.id] = session.end
                    while len(self._crashed) > _MOST_CRASHED:
                        del self._crashed[next(iter(self._crashed))]
            self._tell_how_many()
        return True

    def _built(
        self, said: Any, wanted: SessionRequest
    ) -> tuple[Session | SessionProcess, dict[str, Any]]:
        """Starts a session, and returns it with what its client is told."""
        session: Session | SessionProcess
        if self._options.processes:
            session = SessionProcess(
                said,
                self._menu,
                self._options,
                resume=self._resume,
                guardian=self._guardian,
            )
            with self._lock:
                self._starting.add(session)
        else:
            session = Session(
                wanted,
                self._options,
                resume=self._resume,
                forked=self._forked,
                # Several that linger would keep each other from Python.
                may_linger=lambda: self._has_cpus and len(self._sessions) == 1,
            )
        try:
            facts = session.build()
            with self._lock:
                reason = self._closing
                if not reason:
                    self._sessions[session.id] = session
        finally:
            with self._lock:
                if isinstance(session, SessionProcess):
                    self._starting.discard(session)
        if reason:
            session.discard()
            raise Refusal(reason)
        self._tell_how_many()
        return session, facts

    def _tell_how_many(self) -> None:
        """Tells processes of sessions whether they are alone."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            if isinstance(session, SessionProcess):
                session.set_alone(len(sessions) == 1)

    def _known(self, said: Any) -> Session | SessionProcess:
        if not isinstance(said, dict):
            raise Refusal("A session must be named.")
        with self._lock:
            name = str(said.get("session"))
            session = self._sessions.get(name)
            crash = self._crashed.get(name)
        # It may have ended just now, and its thread has not noted that yet.
        if isinstance(session, SessionProcess) and session.ended:
            crash = session.end
        if crash:
            raise Refusal(f"The process of the session {crash}.")
        if session is None or session.ended:
            raise Refusal(
                "The server has no such session (any more): it has ended, or the "
                "server has been started again since."
            )
        return session

    def _resume_session(
        self,
        sock: socket.socket,
        wire: Wire,
        proof: dict[str, Any],
        said: Any,
        peer: str,
    ) -> bool:
        session = self._known(said)
        secret = str(said.get("secret"))
        if not hmac.compare_digest(secret.encode(), session.secret.encode()):
            raise Refusal("The session is another client's.")
        wire.send({**proof, "session": session.id})
        if not session.resume(sock, said):
            self._known(said)
            raise Refusal("The session has ended.")
        _LOGGER.info("%s took up the session %s", peer, session.id)
        return True

    def _observe(
        self, sock: socket.socket, proof: dict[str, Any], said: Any, peer: str
    ) -> bool:
        if not self._options.observers:
            raise Refusal("This server lets nothing observe (--observers N).")
        if isinstance(said, dict) and not said.get("session"):
            said = {"session": self._only_session()}
        session = self._known(said)
        session.observe(sock, proof)
        _LOGGER.info("%s observes the session %s", peer, session.id)
        return True

    def _only_session(self) -> str:
        with self._lock:
            names = list(self._sessions)
        if len(names) != 1:
            raise Refusal(
                f"The server has {counted(len(names), 'session')}; to observe one of "
                "several, name it: connect's environment has its name as `session`."
            )
        return names[0]


def _version_text(protocol: Any) -> str:
    return ".".join(map(str, protocol[:2])) if isinstance(protocol, list) else "none"


def _nonce(text: Any) -> bytes:
    try:
        nonce = bytes.fromhex(text)
    except (TypeError, ValueError):
        nonce = b""
    if len(nonce) != NONCE:
        raise Refusal(f"nonce must be {NONCE} bytes in hexadecimal digits.")
    return nonce


def _peer_of(sock: socket.socket) -> str:
    """Returns where a connection comes from, for the log."""
    try:
        host, port = sock.getpeername()[:2]
    except OSError:  # It has left already.
        return "a client that has left"
    return f"{host}:{port}"


def _port(options: ServeOptions) -> int:
    return PORT if options.port is None else options.port


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
