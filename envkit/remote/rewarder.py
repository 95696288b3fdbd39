"""Universe's rewarder: rewards, ends and resets as JSON over a WebSocket, both ends.

| message                   | from   | body                                            |
|---------------------------|--------|-------------------------------------------------|
| `v0.env.describe`         | server | `env_id`, `env_state`, `fps`: first, and at     |
|                           |        | every change                                    |
| `v0.env.reward`           | server | `reward`, `done`, `info`                        |
| `v0.env.text`             | server | `text`                                          |
| `v0.env.observation`      | server | `observation`                                   |
| `v0.env.reset`            | client | `env_id`, `seed`, `fps`                         |
| `v0.reply.env.reset`      | server | nothing: the header has the new episode         |
| `v0.agent.action`         | client | `env_id`, `action`: a list of events            |
| `v0.control.ping`         | client | nothing                                         |
| `v0.reply.control.ping`   | server | nothing                                         |
| `v0.reply.error`          | server | `message`                                       |
| `v0.connection.close`     | server | `message`: the server hangs up                  |

Headers have `sent_at` in seconds and `message_id`, which counts the messages of one
connection from 0; what is about the environment has `episode_id`, a number as text; a
reply has `parent_message_id`. The password is the name of the user of HTTP's basic
authentication. All clients receive what happens; one of them, the first that says
something and is not an observer, may say what is to happen.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hmac
import http
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from envkit._shared.admission import Admission
from envkit._shared.admitting_loop import AdmittingLoop
from envkit._shared.health import HEALTH_PATH, HealthAnswer
from envkit._shared.listening import listener, place_of
from envkit._shared.server_secret import ServerSecret, WrongSecretError
from envkit._shared.text import escaped
from envkit._shared.web_pages import web_page_refusal
from envkit.errors import EnvkitError, MissingDependencyError
from envkit.extend import counted

__all__ = [
    "JOYSTICK",
    "Message",
    "RewarderError",
    "RewarderLink",
    "RewarderServer",
    "authorization",
    "packed",
    "unpacked",
]

_log = logging.getLogger(__name__)

# Messages are small; the largest are structured observations.
_MOST_TO_SERVER, _MOST_TO_CLIENT = 1 << 16, 1 << 24
# Messages that may wait for a client that takes them slowly.
_MOST_WAITING = 1 << 13
_PATIENCE = 2.0


class RewarderError(EnvkitError, ConnectionError):
    """A connection to a rewarder was refused or lost, or broke the protocol."""

    def __init__(self, message: str = "") -> None:
        # The text may be the other end's, and terminals obey control characters.
        super().__init__(escaped(message))


class Message(NamedTuple):
    """A message of the rewarder.

    Attributes:
        method: What it is.
        body: What it says.
        headers: When it was sent, its number, and what it is about.
    """

    method: str
    body: dict[str, Any]
    headers: dict[str, Any]

    @property
    def episode(self) -> int | None:
        """The number of the episode that it is about.

        Raises:
            RewarderError: It is not a number.
        """
        told = self.headers.get("episode_id")
        if told is None:
            return None
        # Of what looks like a fraction the first part counts.
        whole = str(told).partition(".")[0]
        if not (whole.isascii() and whole.isdecimal() and len(whole) < 16):
            raise RewarderError(
                f"episode_id must be a number as text, got {str(told)[:40]!r}."
            )
        return int(whole)


def packed(method: str, body: Mapping[str, Any], headers: Mapping[str, Any]) -> str:
    """Writes a message.

    Example:
        >>> packed("v0.control.ping", {}, {"message_id": 0})
        '{"method": "v0.control.ping", "body": {}, "headers": {"message_id": 0}}'
    """
    message = {"method": method, "body": dict(body), "headers": dict(headers)}
    return json.dumps(message, allow_nan=False)


def unpacked(text: str | bytes) -> Message:
    """Reads a message.

    Example:
        >>> unpacked('{"method": "v0.env.reset", "body": {}, "headers": {}}').method
        'v0.env.reset'
        >>> unpacked('{"method": 3}')
        Traceback (most recent call last):
        envkit.remote.rewarder.RewarderError: A message must be a JSON object with \
'method' (text), 'headers' (an object) and 'body' (an object), got '{"method": 3}'.

    Raises:
        RewarderError: It is not a message.
    """
    try:
        given = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        given = None
    if isinstance(given, dict):
        method, body = given.get("method"), given.get("body", {})
        headers = given.get("headers", {})
        if (
            isinstance(method, str)
            and isinstance(body, dict)
            and isinstance(headers, dict)
        ):
            return Message(method, body, headers)
    raise RewarderError(
        "A message must be a JSON object with 'method' (text), 'headers' (an object) "
        f"and 'body' (an object), got {text[:80]!r}."
    )


def authorization(password: str) -> str:
    """Returns the header that has a password.

    Example:
        >>> authorization("openai")
        'Basic b3BlbmFpOg=='
    """
    return "Basic " + base64.b64encode(f"{password}:".encode()).decode()


def _password_in(header: str | None) -> str | None:
    scheme, _, coded = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(coded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return text.partition(":")[0]


def _websockets(what: str) -> None:
    """Raises unless the library is there."""
    from importlib.util import find_spec

    if find_spec("websockets") is None:
        raise MissingDependencyError.needed_by(
            what, package="websockets", extra="universe"
        )


# The axes of a joystick, as Universe calls their events.
JOYSTICK = (
    *(f"JoystickAxis{axis}Event" for axis in ("X", "Y", "Z", "Rx", "Ry", "Rz")),
    "JoystickSlider0Event",
    "JoystickSlider1Event",
)


class _Client:
    """A connection of the server, in its thread."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        headers = connection.request.headers
        self.observes = headers.get("openai-observer") == "true"
        self.active = False
        self.place = place_of(connection.remote_address)
        self.waiting: asyncio.Queue[tuple[str, dict[str, Any], dict[str, Any]]]
        self.waiting = asyncio.Queue(_MOST_WAITING)
        self._count = 0

    def send(
        self, method: str, body: dict[str, Any], headers: dict[str, Any] | None = None
    ) -> None:
        """Sends a message soon; ends the connection if too many wait already."""
        try:
            self.waiting.put_nowait((method, body, headers or {}))
        except asyncio.QueueFull:
            _log.warning("%s takes its messages too slowly.", self.place)
            self.connection.transport.abort()

    async def send_waiting(self) -> None:
        """Sends what waits, one message after the other."""
        while True:
            await self.send_now(*await self.waiting.get())

    async def send_now(
        self, method: str, body: dict[str, Any], headers: dict[str, Any]
    ) -> None:
        own = {"message_id": self._count, "sent_at": time.time()}
        self._count += 1
        await self.connection.send(packed(method, body, {**own, **headers}))


class RewarderServer:
    """Tells clients what happens in an environment, and takes their wishes.

    It serves in a thread of its own; `tell` and `reply` may be called from any.

    Attributes:
        address: The host and the port that it listens at.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 15900,
        password: str,
        on_reset: Callable[[Message, Any], object],
        on_action: Callable[[list[Any]], object],
        tls: ssl.SSLContext | None = None,
        max_clients: int = 64,
        is_public: bool = False,
    ) -> None:
        """Listens.

        Args:
            host: The address to listen at.
            port: The port; 0 for any that is free.
            password: What clients must know.
            on_reset: Called with the message of a reset and what `reply` takes.
            on_action: Called with a list of events. Both are called in the thread of
                the server, so they must return soon.
            tls: What encrypts connections.
            max_clients: How many may be connected at a time.
            is_public: Whether everyone knows the password, so that web pages must be
                refused.
        """
        _websockets("A server for Universe")
        self._host, self._is_public = host, is_public
        self._secret = ServerSecret("password", password)
        self._admission = Admission("universe")
        self._on_reset, self._on_action = on_reset, on_action
        self._most = max_clients
        self._clients: list[_Client] = []
        self._described: tuple[dict[str, Any], dict[str, Any]] | None = None
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

    def tell(self, method: str, body: dict[str, Any], headers: dict[str, Any]) -> None:
        """Sends a message to all clients."""
        self._soon(self._tell, method, body, headers)

    def reply(
        self, to: Any, method: str, body: dict[str, Any], headers: dict[str, Any]
    ) -> None:
        """Answers the request of one client."""
        client, number, since = to
        parent = {
            "parent_message_id": number,
            "parent_runtime": time.time() - since,
        }
        self._soon(client.send, method, body, {**headers, **parent})

    @property
    def clients(self) -> int:
        """How many clients are connected."""
        return len(self._clients)

    def ended(self) -> str | None:
        """Returns why it has ended unasked; `None` as long as it serves."""
        return None if self._failure is None else repr(self._failure)

    def close(self, reason: str) -> None:
        """Tells clients the reason, and hangs up; calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._reason = reason
            self._soon(self._stop.set)
            self._thread.join()

    def _soon(self, call: Callable[..., object], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:  # The loop is closed: there are no clients.
            return

    def _tell(self, method: str, body: dict[str, Any], headers: dict[str, Any]) -> None:
        if method == "v0.env.describe":
            self._described = (body, headers)
        for client in self._clients:
            client.send(method, body, headers)

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
        from websockets.asyncio.server import serve

        async with serve(
            self._attend,
            sock=self._listener,
            ssl=self._tls,
            compression=None,
            max_size=_MOST_TO_SERVER,
            close_timeout=_PATIENCE,
            process_request=self._refuse,
        ):
            await self._stop.wait()
            closing = [self._hang_up(one, self._reason) for one in self._clients]
            await asyncio.gather(*closing)

    def _refuse(self, connection: Any, request: Any) -> Any:
        """Answers clients that want no messages, or get none; `None` for the others."""
        place = place_of(connection.remote_address)
        headers = [(name.lower(), one) for name, one in request.headers.raw_items()]
        reason, status = None, http.HTTPStatus.FORBIDDEN
        if request.path.partition("?")[0] == HEALTH_PATH:
            answer = HealthAnswer.to(request.path, headers, self._host, self._health())
            if not answer.refused:
                self._admission.excuse(place)
                return connection.respond(http.HTTPStatus(answer.status), answer.body)
            reason = answer.refused
        elif self._is_public:
            reason = web_page_refusal(headers, self._host)
        if reason is None and len(self._clients) >= self._most:
            reason = f"There are {counted(self._most, 'client')} already."
            status = http.HTTPStatus.SERVICE_UNAVAILABLE
        if reason is None:
            return None
        self._admission.refuse(place, reason)
        return connection.respond(status, f"{reason}\n")

    def _health(self) -> dict[str, Any]:
        """Returns what anyone may know."""
        status = "stopping" if self._closed else "ok"
        return {"status": status, "protocol": self._admission.protocol}

    async def _attend(self, connection: Any) -> None:
        from websockets.exceptions import ConnectionClosed

        client = _Client(connection)
        try:
            self._check_password(connection.request.headers.get("authorization"))
        except WrongSecretError as error:
            self._admission.refuse(client.place, error.reason)
            host = client.place.rpartition(":")[0]
            if error.is_guess:
                with (
                    self._admission.guesses.late(host) as seconds,
                    contextlib.suppress(asyncio.TimeoutError),
                ):
                    await asyncio.wait_for(connection.wait_closed(), seconds)
            await self._hang_up(client, str(error))
            return
        self._admission.leave(client.place)
        self._admission.log(client.place, "has connected to the rewarder")
        self._clients.append(client)
        sending = asyncio.ensure_future(client.send_waiting())
        try:
            if self._described is not None:
                client.send("v0.env.describe", *self._described)
            async for text in connection:
                if (reason := self._take(client, text)) is not None:
                    sending.cancel()
                    self._admission.refuse(client.place, reason)
                    await self._hang_up(client, reason)
                    return
        except ConnectionClosed:
            return
        finally:
            self._clients.remove(client)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    def _check_password(self, header: str | None) -> None:
        """Refuses a client that does not know the password.

        Raises:
            WrongSecretError: It does not.
        """
        given = _password_in(header)

        def matches(password: bytes) -> bool:
            return hmac.compare_digest((given or "").encode(), password)

        try:
            self._secret.holder_of(None if given is None else matches)
        except WrongSecretError as error:
            if given is not None:
                raise
            raise WrongSecretError(
                "There is no password. It must be the name of the user in the header "
                "of basic authentication.",
                error.reason,
            ) from error

    async def _hang_up(self, client: _Client, reason: str) -> None:
        """Sends the reason, and closes the connection, which some clients never do."""
        from websockets.exceptions import ConnectionClosed

        told = client.send_now("v0.connection.close", {"message": reason}, {})
        with contextlib.suppress(ConnectionClosed, asyncio.TimeoutError):
            await asyncio.wait_for(told, _PATIENCE)
        # The frame that closes has room for some 120 bytes.
        short = reason.encode()[:120].decode("utf-8", "ignore")
        await client.connection.close(1000, short)

    def _take(self, client: _Client, text: str | bytes) -> str | None:
        """Does what a message asks; returns why its sender is to go, if so."""
        since = time.time()
        try:
            message = unpacked(text)
        except RewarderError as error:
            return str(error)
        to = (client, message.headers.get("message_id"), since)
        if not client.active and not client.observes:
            if any(one.active for one in self._clients):
                return (
                    "There is an active client already, and a rewarder has one at a "
                    "time. Others may connect as observers."
                )
            client.active = True
        try:
            self._do(client, message, to)
        except RewarderError as error:
            self.reply(to, "v0.reply.error", {"message": str(error)}, {})
        return None

    def _do(self, client: _Client, message: Message, to: Any) -> None:
        if message.method == "v0.control.ping":
            self.reply(to, "v0.reply.control.ping", {}, {})
        elif client.observes:
            raise RewarderError(f"An observer must not send {message.method[:60]!r}.")
        elif message.method == "v0.env.reset":
            self._on_reset(message, to)
        elif message.method == "v0.agent.action":
            events = message.body.get("action")
            if not isinstance(events, list):
                raise RewarderError("action must be a list of events.")
            self._on_action(events)
        else:
            raise RewarderError(f"There is no method {message.method[:60]!r}.")


class RewarderLink:
    """A client of a rewarder, whose messages are handed on in a thread of its own.

    Example:
        >>> link = RewarderLink("127.0.0.1:15900", "openai", print)  # doctest: +SKIP
        >>> link.send("v0.control.ping", {})  # doctest: +SKIP
    """

    def __init__(
        self,
        address: str,
        password: str,
        on_message: Callable[[Message | RewarderError, float], object],
        *,
        observer: bool = False,
        timeout: float = 30.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connects.

        Args:
            address: The host and the port.
            password: The password.
            on_message: Called with each message and when it came, in the order in which
                they come; at last with the error that ended the connection.
            observer: Whether it only watches.
            timeout: Seconds within which the connection must be made.
            tls: What encrypts the connection, and checks the certificate.

        Raises:
            RewarderError: The server refuses, or there is none.
        """
        _websockets("A client for Universe")
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        self._address = address
        self._on_message = on_message
        self._count = 0
        self._lock = threading.Lock()
        self._stack = contextlib.ExitStack()
        self._why = ""
        try:
            # It is entered, because new versions of the library ask for that.
            connecting: Any = connect(
                f"{'ws' if tls is None else 'wss'}://{address}",
                ssl=tls,
                additional_headers={
                    "authorization": authorization(password),
                    "openai-observer": "true" if observer else "false",
                },
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

    def send(
        self,
        method: str,
        body: Mapping[str, Any],
        headers: Mapping[str, Any] | None = None,
    ) -> int:
        """Sends a message; returns its number, which a reply has.

        Raises:
            RewarderError: The connection is lost.
        """
        from websockets.exceptions import WebSocketException

        with self._lock:
            number = self._count
            self._count += 1
            own = {"message_id": number, "sent_at": time.time(), **(headers or {})}
            try:
                self._connection.send(packed(method, body, own))
            except (OSError, WebSocketException) as error:
                # Its text may have the other end's.
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
                message = unpacked(text)
                if message.method == "v0.connection.close":
                    self._why = str(message.body.get("message", ""))[:1000]
                    raise RewarderError(self._why)
                self._on_message(message, time.time())
        except (OSError, WebSocketException, RewarderError) as error:
            self._on_message(self._lost(error), time.time())
        finally:
            self._connection.close()
