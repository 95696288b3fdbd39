"""`RewarderServer` and `RewarderLink`: the two ends of a rewarder on WebSockets.

`rewarder.py` defines the messages and when they may come.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import http
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from envkit._shared.admission import Admission, WrongSecretError
from envkit._shared.admitting_loop import AdmittingLoop
from envkit._shared.health import HEALTH_PATH, HealthAnswer
from envkit._shared.listening import listener, place_of
from envkit._shared.server_secret import ServerSecret
from envkit._shared.web_pages import web_page_refusal
from envkit.adapters.foreign import require
from envkit.extend import counted
from envkit.remote.rewarder import (
    Action,
    ClientEnd,
    Describe,
    ErrorReply,
    Message,
    Received,
    RemoteEvent,
    Reset,
    RewarderError,
    RewarderState,
    ServerEnd,
    is_observer,
    password_in,
    request_headers,
)

__all__ = ["ResetRequest", "RewarderLink", "RewarderServer"]

_log = logging.getLogger(__name__)

# Messages are small; the largest are structured observations.
_MOST_TO_SERVER, _MOST_TO_CLIENT = 1 << 16, 1 << 24
# The maximum number of messages waiting for a slow client.
_MOST_WAITING = 1 << 13
_PATIENCE = 2.0


class _Client:
    """A client's connection, in the server's thread."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.end = ServerEnd(observer=is_observer(connection.request.headers))
        self.place = place_of(connection.remote_address)
        self._waiting: asyncio.Queue[str] = asyncio.Queue(_MOST_WAITING)

    def send(self, message: Message) -> None:
        """Queues a message."""
        self.end.send(message, time.time())
        self.flush()

    def flush(self) -> None:
        """Queues the due messages; ends the connection if too many are waiting."""
        try:
            for text in self.end.texts_to_send():
                self._waiting.put_nowait(text)
        except asyncio.QueueFull:
            _log.warning("%s reads its messages too slowly.", self.place)
            self.connection.transport.abort()

    async def send_waiting(self) -> None:
        """Sends the queued messages, one after the other."""
        while True:
            await self.connection.send(await self._waiting.get())


class ResetRequest(NamedTuple):
    """A client's request for a reset, which `RewarderServer.reply` answers."""

    client: Any
    received: Received
    reset: Reset


class RewarderServer:
    """Sends clients the messages of an environment, and passes on their requests.

    It serves in its own thread; `broadcast` and `reply` may be called from any thread.

    Attributes:
        address: The host and port that it listens on.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int | socket.socket = 15900,
        password: str,
        on_reset: Callable[[ResetRequest], object],
        on_action: Callable[[list[RemoteEvent]], object],
        tls: ssl.SSLContext | None = None,
        max_clients: int = 64,
        is_public: bool = False,
    ) -> None:
        """Starts listening.

        Args:
            host: The address to listen on.
            port: The port, 0 for any free one; or a socket that is already listening.
            password: The password for clients.
            on_reset: Called with a reset, which `reply` answers.
            on_action: Called with a list of events. Both are called in the server's
                thread, so they must return quickly; a `RewarderError` that they raise
                becomes the client's answer.
            tls: An SSL context for connections.
            max_clients: The maximum number of clients at a time.
            is_public: Whether everyone knows the password, so that web pages must be
                refused.
        """
        require("websockets", needed_by="A server for Universe", extra="universe")
        self._host, self._is_public = host, is_public
        self._secret = ServerSecret("password", password)
        self._admission = Admission("universe")
        self._on_reset, self._on_action = on_reset, on_action
        self._most = max_clients
        self._clients: list[_Client] = []
        self._described: Describe | None = None
        self._failure: BaseException | None = None
        self._listener = listener(host, port)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._tls = tls
        self._loop = AdmittingLoop(self._admission)
        self._stop = asyncio.Event()
        self._reason = ""
        self._closed = False
        self._thread = threading.Thread(
            target=self._run, name=f"envkit rewarder {self.address[1]}", daemon=True
        )
        self._thread.start()

    def broadcast(self, message: Message) -> None:
        """Sends a message to all clients."""
        self._soon(self._broadcast, message)

    def reply(self, request: ResetRequest, message: Message) -> None:
        """Answers a client's request."""
        self._soon(self._reply, request, message)

    @property
    def clients(self) -> int:
        """The number of connected clients."""
        return len(self._clients)

    def ended(self) -> str | None:
        """Returns why it stopped without `close`; `None` while it serves."""
        return None if self._failure is None else repr(self._failure)

    def close(self, reason: str) -> None:
        """Sends clients the reason, and hangs up; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._reason = reason
            self._soon(self._stop.set)
            self._thread.join()

    def _soon(self, call: Callable[..., object], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:  # the loop is closed, so there are no clients
            return

    def _broadcast(self, message: Message) -> None:
        if isinstance(message, Describe):
            self._described = message
        for client in self._clients:
            client.send(message)

    def _reply(self, request: ResetRequest, message: Message) -> None:
        request.client.end.reply(request.received, message, time.time())
        request.client.flush()

    def _run(self) -> None:
        try:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(self._serve())
        except Exception as error:
            _log.exception("The rewarder at port %d has ended.", self.address[1])
            self._failure = error
        finally:
            self._listener.close()
            self._loop.close()

    async def _serve(self) -> None:
        from websockets.asyncio.server import ServerConnection, serve

        admission = self._admission

        class RewarderConnection(ServerConnection):  # type: ignore[misc]  # of no known type
            def connection_lost(self, exc: Exception | None) -> None:
                fault = self.protocol.handshake_exc
                if self.request is None and fault is not None:
                    reason = f"{fault}: {fault.__cause__ or 'it has left'}"
                    admission.set_fault(place_of(self.remote_address), reason)
                super().connection_lost(exc)

        async with serve(
            self._attend,
            sock=self._listener,
            ssl=self._tls,
            compression=None,
            max_size=_MOST_TO_SERVER,
            close_timeout=_PATIENCE,
            process_request=self._refuse,
            create_connection=RewarderConnection,
        ):
            await self._stop.wait()
            closing = [self._hang_up(one, self._reason) for one in self._clients]
            await asyncio.gather(*closing)

    def _refuse(self, connection: Any, request: Any) -> Any:
        """Answers health checks and refused clients; returns `None` for all others."""
        place = place_of(connection.remote_address)
        headers = [(name.lower(), one) for name, one in request.headers.raw_items()]
        reason, status = None, http.HTTPStatus.FORBIDDEN
        if request.path.partition("?")[0] == HEALTH_PATH:
            report = self._admission.health(is_stopping=self._closed)
            answer = HealthAnswer.to(request.path, headers, self._host, report)
            if not answer.refused:
                self._admission.excuse(place)
                response = connection.respond(
                    http.HTTPStatus(answer.status), answer.body
                )
                del response.headers["Content-Type"]
                response.headers["Content-Type"] = answer.content_type
                return response
            reason = answer.refused
        elif self._is_public:
            reason = web_page_refusal(headers, self._host)
        if reason is None and len(self._clients) >= self._most:
            are = "is" if self._most == 1 else "are"
            reason = f"There {are} already {counted(self._most, 'client')}."
            status = http.HTTPStatus.SERVICE_UNAVAILABLE
        if reason is None:
            return None
        self._admission.refuse(place, reason)
        return connection.respond(status, f"{reason}\n")

    async def _attend(self, connection: Any) -> None:
        from websockets.exceptions import ConnectionClosed

        client = _Client(connection)
        try:
            self._check_password(connection.request.headers.get("authorization"))
        except WrongSecretError as error:
            with (
                self._admission.refusing(client.place, error) as seconds,
                contextlib.suppress(asyncio.TimeoutError),
            ):
                await asyncio.wait_for(connection.wait_closed(), seconds)
            await self._hang_up(client, str(error))
            return
        self._admission.leave(client.place)
        self._admission.log(client.place, "connected to the rewarder")
        self._clients.append(client)
        sending = asyncio.ensure_future(client.send_waiting())
        try:
            if self._described is not None:
                client.send(self._described)
            async for text in connection:
                try:
                    self._receive(client, text)
                except RewarderError as error:
                    sending.cancel()
                    self._admission.refuse(client.place, str(error))
                    await self._hang_up(client, str(error))
                    return
                client.flush()
        except ConnectionClosed:
            return
        finally:
            self._clients.remove(client)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    def _check_password(self, header: str | None) -> None:
        """Refuses a client without the right password.

        Raises:
            WrongSecretError: The password is missing or wrong.
        """
        given = password_in(header)

        def matches(password: bytes) -> bool:
            return hmac.compare_digest((given or "").encode(), password)

        try:
            self._secret.holder_of(None if given is None else matches)
        except WrongSecretError as error:
            if given is not None:
                raise
            raise WrongSecretError(
                "There is no password. It must be the user name in the header of basic "
                "authentication.",
                error.reason,
            ) from error

    async def _hang_up(self, client: _Client, reason: str) -> None:
        """Sends the reason, and closes the connection even if the client does not."""
        from websockets.exceptions import ConnectionClosed

        client.end.close(reason, time.time())
        with contextlib.suppress(ConnectionClosed, asyncio.TimeoutError):
            for text in client.end.texts_to_send():
                await asyncio.wait_for(client.connection.send(text), _PATIENCE)
        # A close frame has room for about 120 bytes.
        short = reason.encode("utf-8", "replace")[:120].decode("utf-8", "ignore")
        await client.connection.close(1000, short)

    def _receive(self, client: _Client, text: str | bytes) -> None:
        """Carries out a client's message.

        Raises:
            RewarderError: The connection must end with this reason.
        """
        may_act = all(
            one.end.state is not RewarderState.ACTIVE for one in self._clients
        )
        received = client.end.receive(text, time.time(), may_act=may_act)
        if received is None:
            return
        try:
            if isinstance(received.message, Reset):
                self._on_reset(ResetRequest(client, received, received.message))
            elif isinstance(received.message, Action):
                self._on_action(received.message.action)
        except RewarderError as error:
            client.end.reply(received, ErrorReply(str(error)), time.time())


class RewarderLink:
    """A client of a rewarder, with its own thread for received messages.

    Example:
        >>> link = RewarderLink("127.0.0.1:15900", "openai", print)  # doctest: +SKIP
        >>> link.send(Ping())  # doctest: +SKIP
    """

    def __init__(
        self,
        address: str,
        password: str,
        on_message: Callable[[Received | RewarderError], object],
        *,
        observer: bool = False,
        timeout: float = 30.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connects.

        Args:
            address: The host and port.
            password: The password.
            on_message: Called with each message in order, and finally with the error
                that ended the connection.
            observer: Whether to only watch.
            timeout: Seconds for making the connection.
            tls: An SSL context, which checks the certificate.

        Raises:
            RewarderError: The server refuses, or there is none.
        """
        require("websockets", needed_by="A client for Universe", extra="universe")
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        self._address = address
        self._on_message = on_message
        self._end = ClientEnd()
        self._lock = threading.Lock()
        self._stack = contextlib.ExitStack()
        self._why = ""
        try:
            # Newer versions of the library want it to be entered.
            connecting: Any = connect(
                f"{'ws' if tls is None else 'wss'}://{address}",
                ssl=tls,
                additional_headers=request_headers(password, observer=observer),
                compression=None,
                open_timeout=timeout,
                close_timeout=_PATIENCE,
                max_size=_MOST_TO_CLIENT,
                proxy=None,
            )
            self._connection = self._stack.enter_context(connecting)
        except (OSError, WebSocketException) as error:
            raise RewarderError(
                f"There is no rewarder at {address}: {error or type(error).__name__}."
            ) from error
        self._thread = threading.Thread(
            target=self._read, name=f"envkit rewarder of {address}", daemon=True
        )
        self._thread.start()

    def send(self, message: Message) -> int:
        """Sends a message; returns its number, which its reply refers to.

        Raises:
            RewarderError: The connection is lost.
        """
        from websockets.exceptions import WebSocketException

        with self._lock:
            number = self._end.send(message, time.time())
            try:
                for text in self._end.texts_to_send():
                    self._connection.send(text)
            except (OSError, WebSocketException) as error:
                # Its text may contain the other end's.
                raise self._lost(error) from None
        return number

    def close(self) -> None:
        """Closes the connection; calling it again does nothing."""
        self._stack.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _lost(self, error: object) -> RewarderError:
        return RewarderError(
            f"The rewarder at {self._address} is lost: {self._why or error}"
        )

    def _read(self) -> None:
        from websockets.exceptions import WebSocketException

        try:
            while True:
                text = self._connection.recv()
                try:
                    received = self._end.receive(text, time.time())
                except RewarderError as error:
                    self._why = str(error)
                    raise
                if received is not None:
                    self._on_message(received)
        except (OSError, WebSocketException, RewarderError) as error:
            self._on_message(self._lost(error))
        finally:
            self._connection.close()
