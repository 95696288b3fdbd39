"""`envkit serve`: the server of envkit's own protocol.

```
listener ── a thread for each connection: greeting, proofs, request
               ├─ open: a new process builds the environments, and answers the client
               ├─ resume: the session's process gets the new connection
               └─ observe: the session's process sends it the time steps too
```

`ConnectionThreads` and `Admission` handle listening, TLS, strangers and the log. Only a
few bytes are read from a connection that has proved nothing. Everything else that a
client can ask for has a limit, and each refusal is a message that the client can read.
"""

from __future__ import annotations

import hmac
import os
import socket
import threading
import time
from typing import Any

from envkit._shared.admission import MOST_STRANGERS, Admission
from envkit._shared.connection_threads import Connection, ConnectionThreads
from envkit._shared.health import answer_http, is_http
from envkit._shared.listening import listener, place_of
from envkit._shared.protocol_end import run_handshake
from envkit._shared.server_secret import ServerSecret
from envkit.distributed.link import keep_alive
from envkit.extend import counted
from envkit.parallel.system.guardian import Guardian
from envkit.remote.offers import (
    Menu,
    Refusal,
    ServeOptions,
    with_reachable_host,
)
from envkit.remote.plugins import PORT
from envkit.remote.protocol import (
    MAGIC,
    NONCE,
    RequestReceived,
    ServerHandshake,
    refusal_of,
)
from envkit.remote.session_process import SessionProcess, StartSession, Templates
from envkit.remote.session_request import request_of
from envkit.remote.shared_processes import SharedProcesses

__all__ = ["Server", "serve"]

# The number of crashed sessions to remember.
_MOST_CRASHED = 64
# Seconds that environments have to finish when the server stops.
_GRACE = 10.0


def serve(menu: Menu, options: ServeOptions) -> Server:
    """Starts a server; `close` stops it.

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
        line: The environments that it serves, and its address.
        address: The address for clients.
        token: The token that clients need, drawn unless given; `None` if they need
            none.
        invitation: The call for clients that cannot find a drawn token.
    """

    def __init__(
        self,
        menu: Menu,
        options: ServeOptions,
        *,
        resume: float = 30.0,
        to_prove: float = 10.0,
    ) -> None:
        """Starts listening.

        Args:
            menu: The environments.
            options: The address, the secret, and the limits.
            resume: Seconds that a session waits for its client after a lost link.
            to_prove: Seconds that a connection has to prove itself.
        """
        self._menu = menu
        self._options = options
        self._resume = resume
        self._secret = ServerSecret("token", options.token)
        self.token = self._secret.data
        # All clients may come at once.
        most = max(MOST_STRANGERS, options.max_sessions)
        self._admission = Admission("envkit", most=most, patience=to_prove)
        sock = listener(options.host, options.port_or_socket(PORT))
        try:
            self._secret.publish(sock.getsockname())
        except BaseException:
            sock.close()
            raise
        host, port = sock.getsockname()[:2]
        host = options.host if options.host not in ("", "0.0.0.0", "::") else host
        scheme = "tcp" if options.tls is None else "tls"
        self.address = f"{scheme}://{place_of((host, port))}"
        self.line = f"envkit serves {', '.join(menu.names)} at {self.address}"
        self.invitation = self._invitation()
        self._lock = threading.Lock()
        self._sessions: dict[str, SessionProcess] = {}
        # Sessions whose environments are being built, and their number.
        self._starting: set[SessionProcess] = set()
        self._opening = 0
        # How the processes of crashed sessions ended.
        self._crashed: dict[str, str] = {}
        self._guardian = Guardian()
        self._guardian.start()
        self._templates = Templates(menu.offers, self._guardian)
        self._start: StartSession = self._templates.start
        most = options.sessions_per_process
        if most > 1:
            shared = SharedProcesses(self._templates, most, options.idle_timeout)
            self._start = shared.start
        self._closing = ""
        self._connections = ConnectionThreads(
            sock, self._admission, self, name="envkit-serve", tls=options.tls
        )

    def _invitation(self) -> str:
        if not self._secret.is_drawn:
            return ""
        address = with_reachable_host(self.address, self._options.host)
        name = "" if len(self._menu.offers) == 1 else f"/{self._menu.names[0]}"
        return (
            "other users and machines connect with "
            f'envkit.connect("{address}{name}", token="{self._secret.text}")'
        )

    def health(self) -> list[dict[str, Any]]:
        """Returns the address and the number of sessions."""
        return [{"address": self.address, "sessions": len(self._sessions)}]

    def ended(self) -> str | None:
        """Returns why the server stopped without `close`; `None` while it serves."""
        return self._connections.ended()

    def close(self, reason: str) -> None:
        """Sends clients the reason, closes their environments, and stops listening."""
        with self._lock:
            self._closing = self._closing or reason or "the server is stopping"
            sessions = list(self._sessions.values())
            starting = list(self._starting)
        for session in sessions:
            session.stop(self._closing)
        self._templates.stop()
        for each in starting:
            each.cut()
        # Remove the file before another server can take the port.
        self._secret.close()
        self._connections.close(self._closing, time.monotonic() + _GRACE)
        for session in sessions:
            session.cut()
        self._templates.close()
        self._guardian.dismiss()

    # One connection, in its own thread.

    def serve(self, connection: Connection) -> None:
        """Runs the handshake, and carries out the client's request."""
        keep_alive(connection.sock, is_pool=False)
        handshake = ServerHandshake(
            os.urandom(NONCE), needs_token=self._secret.is_needed
        )
        deadline = connection.stranger.deadline
        try:
            begun = connection.read(len(MAGIC))
            if is_http(begun):
                report = self._admission.health(is_stopping=bool(self._closing))
                host = self._options.host
                answer_http(connection, self._admission, begun, host, report)
                return
            handshake.receive(begun)
            asked = run_handshake(handshake, connection.sock, deadline)
            assert isinstance(asked, RequestReceived)  # a server's only event
            holder = self._secret.holder_of(asked.knows if asked.proof else None)
            handshake.admit(holder.secret if self._secret.is_needed else None)
            connection.admit(holder)
            self._do(connection, handshake, asked)
        except Refusal as refusal:
            reason = self._menu.hide(str(refusal))
            raise Refusal(reason, kind=refusal.kind) from refusal

    def refusal(self, error: Exception) -> bytes:
        """Returns the message for a refused client."""
        kind = error.kind if isinstance(error, Refusal) else ""
        return refusal_of(str(error), kind)

    def _do(
        self, connection: Connection, handshake: ServerHandshake, asked: RequestReceived
    ) -> None:
        """Carries out a client's request."""
        if asked.request == "resume":
            self._resume_session(connection, handshake, asked.details)
        elif asked.request == "observe":
            self._observe(connection, handshake.proof, asked.details)
        elif asked.request == "list":
            self._admission.log(connection.client, "asked for the list of environments")
            self._answer(connection, handshake, {"environments": self._listed()})
        else:
            self._open(connection, handshake, asked.details)

    def _answer(
        self, connection: Connection, handshake: ServerHandshake, facts: dict[str, Any]
    ) -> None:
        handshake.answer(facts)
        connection.sock.settimeout(self._admission.patience)
        connection.sock.sendall(handshake.data_to_send())

    def _listed(self) -> list[dict[str, Any]]:
        return [
            {"name": offer.name, "id": offer.id, "version": offer.version}
            for offer in self._menu.offers
        ]

    def _open(
        self, connection: Connection, handshake: ServerHandshake, request: Any
    ) -> None:
        wanted = request_of(request, self._menu, self._options)
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
            session, facts = self._built(request, connection.sock)
        finally:
            with self._lock:
                self._opening -= 1
        try:
            try:
                self._answer(connection, handshake, facts)
            except OSError:
                session.discard()
                raise
            count = counted(len(wanted.names), "environment")
            self._admission.log(
                connection.client, f"opened the session {session.id} of {count}"
            )
            session.serve(connection.release())
        finally:
            with self._lock:
                self._sessions.pop(session.id, None)
                if session.end:
                    self._crashed[session.id] = session.end
                    while len(self._crashed) > _MOST_CRASHED:
                        del self._crashed[next(iter(self._crashed))]
            self._update_alone()

    def _built(
        self, request: dict[str, Any], client: socket.socket
    ) -> tuple[SessionProcess, dict[str, Any]]:
        """Starts a session, and returns it with the facts for its client."""
        session = SessionProcess(self._start)
        with self._lock:
            self._starting.add(session)
        try:
            facts = session.build(
                request, self._menu, self._options, self._resume, client
            )
            with self._lock:
                reason = self._closing
                if not reason:
                    self._sessions[session.id] = session
        except Refusal as refusal:  # perhaps `close` has killed its process
            raise Refusal(self._closing or str(refusal)) from refusal
        finally:
            with self._lock:
                self._starting.discard(session)
        if reason:
            session.discard()
            raise Refusal(reason)
        self._update_alone()
        return session, facts

    def _update_alone(self) -> None:
        """Tells sessions whether they are the only one."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            session.set_alone(len(sessions) == 1)

    def _session_of(self, details: Any) -> SessionProcess:
        if not isinstance(details, dict):
            raise Refusal("The request must name a session.")
        with self._lock:
            name = str(details.get("session"))
            session = self._sessions.get(name)
            crash = self._crashed.get(name)
        # Its process may have ended before its thread noticed.
        if session is not None and session.ended:
            crash = session.end
        if crash:
            raise Refusal(f"The session's process {crash}.", kind="crashed")
        if session is None or session.ended:
            raise Refusal(
                "The server has no such session: it has ended, or the server has been "
                "restarted."
            )
        return session

    def _resume_session(
        self, connection: Connection, handshake: ServerHandshake, details: Any
    ) -> None:
        session = self._session_of(details)
        secret = str(details.get("secret"))
        if not hmac.compare_digest(secret.encode(), session.secret.encode()):
            raise Refusal("The session belongs to another client.")
        self._answer(connection, handshake, {"session": session.id})
        if not session.resume(connection.sock, details):
            self._session_of(details)
            raise Refusal("The session has ended.")
        connection.release()
        self._admission.log(connection.client, f"resumed the session {session.id}")

    def _observe(
        self, connection: Connection, proof: dict[str, Any], details: Any
    ) -> None:
        if not self._options.observers:
            raise Refusal("This server allows no observers (--observers N).")
        if isinstance(details, dict) and not details.get("session"):
            details = {"session": self._only_session()}
        session = self._session_of(details)
        session.observe(connection.sock, proof)
        connection.release()
        self._admission.log(connection.client, f"observes the session {session.id}")

    def _only_session(self) -> str:
        with self._lock:
            names = list(self._sessions)
        if len(names) != 1:
            raise Refusal(
                f"The server has {counted(len(names), 'session')}. Name the one to "
                "observe: it is the attribute `session` of connect's environment."
            )
        return names[0]
