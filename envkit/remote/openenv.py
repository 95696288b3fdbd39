"""Serves OpenEnv's protocol: `envkit serve TARGET --openenv`.

`openenv_messages` defines the messages and states; this module adds sockets and
threads. `OpenEnvServer` listens and admits clients. Each served environment is a
`Site`. A WebSocket is a session there, and an HTTP request is a session of one message;
each session has its own environment in its own thread.

OpenEnv's own package is neither needed nor imported.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import threading
import time
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from envkit._shared.admission import MOST_STRANGERS, Admission, WrongSecretError
from envkit._shared.admitting_loop import AdmittingLoop
from envkit._shared.closing import Closable
from envkit._shared.health import HEALTH_PATH, HealthAnswer
from envkit._shared.http_tokens import token_in
from envkit._shared.json_schema import EXACT_SCHEMA
from envkit._shared.listening import listener, place_of
from envkit._shared.server_secret import Holder, ServerSecret
from envkit._shared.web_pages import is_json, web_page_refusal
from envkit.adapters.foreign import require
from envkit.provenance import envkit_version
from envkit.remote.env_threads import (
    EnvThread,
    EnvThreads,
    FullError,
    LoopAnswers,
    SingleEnv,
    flags_of,
)
from envkit.remote.offers import Menu, Offer, ServeOptions, with_reachable_host
from envkit.remote.openenv_messages import (
    SERVER,
    TASKS,
    Forms,
    JsonAnswer,
    Left,
    MessageError,
    PlaceAsked,
    ResetAsked,
    ServedSession,
    ServerEvent,
    SessionState,
    StepAsked,
    TasksAsked,
)
from envkit.remote.openenv_places import Place, Places
from envkit.remote.openenv_reading import pausing_late
from envkit.remote.plugins import OPENENV_PORT

__all__ = ["OpenEnvServer", "Site", "serve"]

_LOGGER = logging.getLogger(__name__)

# The key in a request's scope for the client's name in the log.
_CLIENT = "envkit.client"
# Seconds that connections have to end when the server stops, and that an environment
# has to close when its client has left.
_GRACE = 2
_BODY_PATIENCE = 60  # seconds for the body of a request
_STANDARD = "1.0.0"  # the version of OpenEnv's endpoints, for their validator
_HEALTHY = {"status": "healthy"}
_STOPPING = "The server is stopping."
# The request without a body, and those whose body is optional.
_VERBS = {"splits": ["GET"], "state": ["GET", "POST"]}


def serve(menu: Menu, options: ServeOptions) -> OpenEnvServer:
    """Serves the environments of a menu to clients of OpenEnv.

    Raises:
        ValueError: An environment does not fit the protocol.
        MissingDependencyError: The extra `openenv` is not installed.
    """
    return OpenEnvServer(menu, options)


class OpenEnvServer(Closable):
    """A server for OpenEnv's clients, in its own thread.

    Attributes:
        line: The protocol and the address, for people.
        url: The address for clients. If there are several environments, each has its
            name appended.
        token: The token that clients need, drawn unless given; `None` if they need
            none.
        invitation: The address for clients that cannot find a drawn token.
    """

    def __init__(self, menu: Menu, options: ServeOptions) -> None:
        """Makes each environment once, for its specs, and starts listening."""
        for package in ("starlette", "uvicorn", "websockets"):
            needed_by = "Serving by OpenEnv's protocol"
            require(package, needed_by=needed_by, extra="openenv")
        self._options = options
        self._secret = ServerSecret("token", options.token)
        self.token = self._secret.data
        # All clients may come at once.
        most = max(MOST_STRANGERS, options.max_sessions)
        self._admission = Admission("openenv", most=most)
        self._reason: str | None = None
        self._is_closing = False
        with contextlib.ExitStack() as stack:
            self._sites: list[Site] = []
            for offer in menu.offers:
                self._sites.append(Site(offer, options, self._admission))
                stack.callback(self._sites[-1].close)
            self._socket = listener(options.host, options.port_or_socket(OPENENV_PORT))
            stack.callback(self._socket.close)
            self._server = self._make_server()
            self._secret.publish(self._socket.getsockname())
            stack.pop_all()
        scheme = "http" if options.tls is None else "https"
        port = self._socket.getsockname()[1]
        self.url = f"{scheme}://{place_of((options.host, port))}"
        urls = [f"{self.url}/{site.offer.name}" for site in self._sites]
        self.line = f"openenv: {' '.join(urls) if len(urls) > 1 else self.url}"
        self.invitation = self._invitation(urls[0] if len(urls) > 1 else self.url)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(
            target=self._run, daemon=True, name="envkit-openenv"
        )
        self._thread.start()

    def _invitation(self, url: str) -> str:
        if not self._secret.is_drawn:
            return ""
        token = self._secret.text
        scheme, _, place = with_reachable_host(url, self._options.host).partition("://")
        return (
            f"other users, machines and libraries connect with {scheme}://token:{token}"
            f"@{place}, or the header 'Authorization: Bearer {token}'"
        )

    def health(self) -> list[dict[str, Any]]:
        """Returns the address and the number of sessions."""
        sessions = sum(site.sessions for site in self._sites)
        return [{"address": self.url, "sessions": sessions}]

    def ended(self) -> str | None:
        """Returns why it stopped; `None` while it serves."""
        if self._thread.is_alive() or self._is_closing:
            return None
        return self._reason or "it has stopped"

    def close(self, reason: str = "the server is stopping") -> None:
        """Sends clients the reason, closes their environments, and stops listening."""
        if self._is_closing:
            return
        self._is_closing = True
        for site in self._sites:
            site.is_closing = True
        self._end_sessions(reason)
        self._server.should_exit = True
        self._thread.join(_GRACE + 5)
        for site in self._sites:
            site.close()
        self._secret.close()
        self._socket.close()

    def _make_server(self) -> Any:
        import uvicorn

        config = uvicorn.Config(
            self._app(),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws_max_size=max(site.forms.largest_message for site in self._sites),
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=_GRACE,
        )
        config.load()
        config.ssl = self._options.tls
        config.http_protocol_class = self._refusing(config.http_protocol_class)
        config.ws_protocol_class = pausing_late(config.ws_protocol_class)
        return uvicorn.Server(config)

    def _run(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[self._socket])

        try:
            with contextlib.closing(AdmittingLoop(self._admission)) as loop:
                loop.run_until_complete(main())
        except (Exception, SystemExit) as error:
            self._reason = f"{type(error).__name__}: {error}"
            _LOGGER.exception("The server for OpenEnv has ended")

    def _end_sessions(self, reason: str) -> None:
        """Ends all sessions; waits briefly for clients to receive the reason."""
        if self._loop is None or not self._thread.is_alive():
            return

        async def end() -> None:
            ends = [end for site in self._sites for end in site.end(reason)]
            if ends:
                await asyncio.wait(ends, timeout=_GRACE)

        # Before uvicorn ends the connections without a reason.
        ending = asyncio.run_coroutine_threadsafe(end(), self._loop)
        with contextlib.suppress(FutureTimeoutError):
            ending.result(2 * _GRACE)

    def _app(self) -> Any:
        from starlette.applications import Starlette
        from starlette.responses import JSONResponse
        from starlette.routing import Mount

        async def nothing_there(request: Any, _: Any) -> Any:
            places = ", ".join(f"/{site.offer.name}" for site in self._sites)
            told = f"There is nothing at {request.url.path[:80]}."
            if len(self._sites) > 1:
                told += f" The environments are at {places}."
            self._admission.refuse(place_of(request.client), told)
            return JSONResponse({"detail": told}, 404)

        if len(self._sites) == 1:
            routes = self._sites[0].routes()
        else:
            names = [site.offer.name for site in self._sites]
            routes = [
                _fixed("/list_environments", names),
                _fixed("/health", _HEALTHY),
                *(
                    Mount(f"/{site.offer.name}", routes=site.routes())
                    for site in self._sites
                ),
            ]
        app: Any = Starlette(routes=routes, exception_handlers={404: nothing_there})
        return _sending_safely(self._guarded(app))

    def _guarded(self, app: Any) -> Any:
        """Returns the application with access control and log lines."""
        from starlette.datastructures import Headers
        from starlette.responses import JSONResponse, Response

        async def guarded(scope: Any, receive: Any, send: Any) -> None:
            headers, place = Headers(scope=scope), place_of(scope.get("client"))
            if scope["type"] == "http" and scope["path"] == HEALTH_PATH:
                report = self._admission.health(is_stopping=self._is_closing)
                answer = HealthAnswer.to(
                    HEALTH_PATH, headers.items(), self._options.host, report
                )
                if answer.refused:
                    self._admission.refuse(place, answer.refused)
                self._admission.excuse(place)
                told = Response(
                    answer.body, answer.status, media_type=answer.content_type
                )
                await told(scope, receive, send)
                return
            try:
                client = self._holder_of(headers).at(place)
            except WrongSecretError as error:
                with self._admission.refusing(place, error) as seconds:
                    await asyncio.sleep(seconds)
                refusal = JSONResponse({"detail": _WANTED}, 401)
                await _refuse(refusal, scope, receive, send)
                return
            if not self._secret.is_needed:
                bound, method = self._options.host, scope.get("method")
                reason, status = web_page_refusal(headers.items(), bound), 403
                if reason is None and method in ("POST", "PUT", "PATCH"):
                    reason, status = _no_json(headers), 415
                if reason is not None:
                    self._admission.refuse(place, reason)
                    refusal = JSONResponse({"detail": reason}, status)
                    await _refuse(refusal, scope, receive, send)
                    return
            self._admission.leave(place)
            scope[_CLIENT] = client
            if scope["type"] == "websocket" or scope.get("method") == "POST":
                what = scope.get("method", "a session by")
                self._admission.log(client, f"asks for {what} {scope['path'][:80]}")
            await app(scope, receive, send)

        return guarded

    def _holder_of(self, headers: Any) -> Holder:
        """Returns the holder of a request's token.

        Raises:
            WrongSecretError: The token is missing or not valid.
        """
        given = token_in(headers)
        if given is None:
            return self._secret.holder_of(None)
        return self._secret.holder_of(lambda token: hmac.compare_digest(given, token))

    def _refusing(self, protocol: Any) -> Any:
        """Returns uvicorn's protocol, which then logs data that is not HTTP."""
        admission = self._admission

        class Refusing(protocol):  # type: ignore[misc]  # a class of uvicorn's
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                # uvicorn's own line has no address.
                self.logger = _UVICORN

            def send_400_response(self, message: str) -> None:
                admission.refuse(place_of(self.client), message)
                super().send_400_response(message)

        return Refusing


_JSON = "application/json"
_WANTED = (
    "The header 'Authorization: Bearer TOKEN' or the address must have the token: "
    "http://token:TOKEN@HOST:PORT."
)
_UVICORN = logging.getLogger(f"{__name__}.uvicorn")
_UVICORN.addFilter(lambda record: "Invalid HTTP request" not in record.getMessage())


def _sending_safely(app: Any) -> Any:
    """Returns the application without tracebacks for broken requests."""

    async def sending(scope: Any, receive: Any, send: Any) -> None:
        async def send_safely(message: Any) -> None:
            try:
                await send(message)
            except Exception:
                # uvicorn has answered the broken request itself and logged it, so this
                # answer comes too late, and a traceback would be noise.
                _LOGGER.debug("an answer came too late", exc_info=True)

        await app(scope, receive, send_safely if scope["type"] == "http" else send)

    return sending


async def _refuse(refusal: Any, scope: Any, receive: Any, send: Any) -> None:
    """Sends a refusal, even to a client that asks for a WebSocket."""
    from starlette.websockets import WebSocket

    if scope["type"] == "websocket":
        websocket = WebSocket(scope, receive, send)
        await websocket.receive()
        await websocket.send_denial_response(refusal)
    else:
        await refusal(scope, receive, send)


def _no_json(headers: Any) -> str | None:
    """Returns why a body is refused, or `None`; a request without one needs no type."""
    kind = headers.get("content-type", "")
    has_body = (
        "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
    )
    if is_json(kind) or not (kind or has_body):
        return None
    return f"The header Content-Type must be application/json, got {kind[:80]!r}."


class Site:
    """An environment that OpenEnv's clients find at an address.

    Attributes:
        offer: The environment.
        forms: Its specs in JSON.
        is_closing: Whether the server is stopping.
    """

    def __init__(
        self, offer: Offer, options: ServeOptions, admission: Admission
    ) -> None:
        """Makes an environment for its specs."""
        self._admission = admission
        self.offer = offer
        self.is_closing = False
        self._options = options
        self._envs = EnvThreads(offer, most=options.max_sessions)
        self._answers = LoopAnswers()
        self._connections: set[_TimedWebSocket] = set()
        self._places = Places(self._new_place, options.idle_timeout)
        # Request bodies that have not arrived yet.
        self._reading: set[asyncio.Task[bytes]] = set()
        try:
            envs = self._envs
            self.forms = Forms(envs.env_spec, offer.name, envs.tools)
        except BaseException:
            self._envs.close()
            raise

    def end(self, reason: str) -> list[asyncio.Task[None]]:
        """Starts sending the reason to all clients; call it in the server's loop."""
        for reading in self._reading:
            reading.cancel()
        ends = [connection.end(reason) for connection in self._connections]
        return [*ends, *self._places.end()]

    @property
    def sessions(self) -> int:
        """The number of clients that have an environment."""
        return len(self._connections) + len(self._places)

    def close(self) -> None:
        """Closes the environments."""
        self._envs.close()

    def routes(self) -> list[Any]:
        """Returns Starlette's routes for the environment."""
        from starlette.routing import Route, WebSocketRoute

        def asked(kind: str, path: str) -> Any:
            async def answer(request: Any) -> Any:
                return await self._answer(kind, request)

            return Route(path, answer, methods=_VERBS.get(kind, ["POST"]))

        kinds = SERVER[SessionState.ALONE].receives
        return [
            _fixed("/health", _HEALTHY),
            _fixed("/metadata", self._metadata()),
            _fixed("/openapi.json", self._openapi()),
            _fixed("/list_environments", [self.offer.name]),
            Route("/schema", self._schema),
            *(asked(kind, f"/{kind}") for kind in kinds),
            # If there are several environments, the address already contains the name.
            *(asked(kind, f"/{{env_name:path}}/{kind}") for kind in TASKS),
            WebSocketRoute("/ws", self._converse),
        ]

    async def _schema(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        is_exact = EXACT_SCHEMA in request.headers.get("accept", "")
        return JSONResponse(
            self.forms.exact_schema if is_exact else self.forms.schema,
            headers={"Vary": "Accept"},
            media_type=EXACT_SCHEMA if is_exact else "application/json",
        )

    def _metadata(self) -> dict[str, Any]:
        version = self.offer.version
        return {
            "name": self.offer.name,
            "description": f"{self.offer.id}, served by envkit {envkit_version()}.",
            "version": None if version is None else str(version),
            "readme_content": None,
            "author": None,
            "documentation_url": None,
        }

    def _openapi(self) -> dict[str, Any]:
        answers = {"responses": {"200": {"description": "As OpenEnv has it."}}}
        gets = ("health", "metadata", "schema", "state", "openapi.json")
        paths = {f"/{name}": {"get": answers} for name in gets}
        paths |= {f"/{name}": {"post": answers} for name in ("reset", "step", "mcp")}
        info = {"title": self.offer.name, "version": _STANDARD}
        return {"openapi": "3.1.0", "info": info, "paths": paths}

    # Requests, and sessions.

    def _session(self, *, alone: bool = False) -> ServedSession:
        return ServedSession(self.forms, _new_id, self.offer.hide, alone=alone)

    async def _answer(self, kind: str, request: Any) -> Any:
        """Answers an HTTP request."""
        from starlette.responses import Response

        session = self._session(alone=True)
        try:
            name = request.path_params.get("env_name", self.offer.name)
            if name.lower() != self.offer.name.lower():
                raise MessageError("NOT_FOUND", f"unknown environment {name[:80]!r}")
            body = await self._body(request) if request.method == "POST" else b""
            answer = session.receive_body(kind, body)
            if isinstance(answer, PlaceAsked):
                answer = await self._places.answer(answer, body)
            elif not isinstance(answer, JsonAnswer):
                async with self._environment() as env:
                    answer = await self._ask(env, session, answer)
        except MessageError as error:
            answer = session.refuse(error)
        except asyncio.CancelledError:
            if not self.is_closing:
                raise
            answer = session.refuse(MessageError("SESSION_ERROR", _STOPPING))
        if answer.code in ("CAPACITY_REACHED", "TOO_LARGE", "NOT_FOUND"):
            self._log_refusal(request, answer.message)
        return Response(answer.body, answer.status, media_type=_JSON)

    async def _body(self, request: Any) -> bytes:
        """Returns the body of a request, within limits on size and time."""
        from starlette.requests import ClientDisconnect

        reading = asyncio.ensure_future(self._bytes_of(request))
        self._reading.add(reading)
        patience = min(_BODY_PATIENCE, self._options.idle_timeout)
        try:
            return await asyncio.wait_for(reading, patience)
        except ClientDisconnect as error:
            what = "broke off before its end"
            raise self._given_up(request, "CLIENT_LEFT", what) from error
        except asyncio.TimeoutError as error:
            what = f"did not come within {patience:g} s"
            raise self._given_up(request, "TOO_SLOW", what) from error
        finally:
            self._reading.discard(reading)

    def _log_refusal(self, request: Any, reason: str) -> None:
        """Logs that a request or a WebSocket was refused."""
        place = place_of(request.client)
        self._admission.refuse(place, reason, request.scope.get(_CLIENT, ""))

    def _given_up(self, request: Any, code: str, what: str) -> MessageError:
        """Returns and logs the error for a request whose body does not arrive."""
        asked = f"its {request.method} {request.url.path[:80]!a}"
        self._log_refusal(request, f"{asked} {what}")
        return MessageError(code, f"The request {what}.")

    async def _bytes_of(self, request: Any) -> bytes:
        limit = self.forms.largest_message
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > limit:
                message = f"The body must have at most {limit} bytes."
                raise MessageError("TOO_LARGE", message)
        return body

    async def _converse(self, websocket: Any) -> None:
        """Answers a client's messages until it leaves."""
        session = self._session()
        connection = _TimedWebSocket(websocket, session, self._options.idle_timeout)
        await websocket.accept()
        self._connections.add(connection)
        try:
            if self.is_closing:
                raise MessageError("SESSION_ERROR", _STOPPING)
            name = websocket.query_params.get("session_id")
            lent = self._new_place() if name is None else self._places.shared(name)
            async with lent as place:
                session = connection.session = place.session
                while (text := await connection.receive()) is not _GONE:
                    # Hot: called once per step.
                    answer = await place.receive(text)
                    if isinstance(answer, Left):
                        return
                    if not await connection.send(answer):
                        return
        except MessageError as error:
            answer = session.refuse(error)
            self._log_refusal(websocket, answer.message)
            await connection.send(answer)
        except asyncio.CancelledError:
            if not self.is_closing:
                raise
        finally:
            self._connections.discard(connection)
            await connection.close()

    @contextlib.asynccontextmanager
    async def _new_place(self) -> AsyncIterator[Place]:
        """Holds an environment and a session with it.

        Raises:
            MessageError: There is no room for it, or it cannot be made.
        """
        async with self._environment() as env:
            yield Place(env, self._session(), self._ask)

    def _ask(
        self, thread: EnvThread, session: ServedSession, event: ServerEvent
    ) -> asyncio.Future[JsonAnswer]:
        """Carries out a request, even if the caller leaves."""
        # Hot: called once per step.
        return self._answers.ask(thread, lambda env: _do(env, session, event))

    @contextlib.asynccontextmanager
    async def _environment(self) -> AsyncIterator[EnvThread]:
        """Holds an environment for the duration of a session.

        Raises:
            MessageError: There is no room for it, or it cannot be made.
        """
        try:
            env = self._envs.enter()
        except FullError as error:
            raise MessageError("CAPACITY_REACHED", str(error)) from error
        try:
            made = asyncio.wrap_future(env.made)
            await asyncio.wait({made})
            if (raised := made.exception()) is not None:
                what = f"{type(raised).__name__}: {raised}"
                what = f"The environment could not be made: {what}"
                raise MessageError("FACTORY_ERROR", what) from raised
            yield env
        finally:
            await self._leave(env)

    async def _leave(self, env: EnvThread) -> None:
        """Takes back the environment; waits briefly until it is closed."""
        left = asyncio.wrap_future(self._envs.leave(env))
        if not self.is_closing:  # a client that reconnects must find room
            await asyncio.wait({left}, timeout=_GRACE)
        left.cancel()  # the loop may end before the environment is closed


def _new_id() -> str:
    return str(uuid.uuid4())


def _fixed(path: str, content: Any) -> Any:
    """Returns a route that always has the same answer."""
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def answer(_: Any) -> Any:
        return JSONResponse(content)

    return Route(path, answer)


def _do(env: SingleEnv, session: ServedSession, event: ServerEvent) -> JsonAnswer:
    """Carries out a client's request, in the environment's thread."""
    # Hot: called once per step.
    try:
        if isinstance(event, TasksAsked):
            return session.give_tasks(env.call(event.method, *event.arguments))
        if isinstance(event, ResetAsked):
            time_step = env.reset(event.seed, event.options)
        else:
            assert isinstance(event, StepAsked)  # nothing else is asked
            if event.begins:
                env.reset()
            time_step = env.step(event.action)
        info = env.info()
        return session.observe(time_step, info, flags_of(time_step, info))
    except BaseException as error:  # environments may raise anything
        return session.fail(error)


_GONE: Any = object()


class _TimedWebSocket:
    """A client's WebSocket, which ends when it is silent for too long."""

    def __init__(
        self, websocket: Any, session: ServedSession, idle_timeout: float
    ) -> None:
        self._websocket, self.session = websocket, session
        self._idle_timeout = idle_timeout
        self._received_at = time.monotonic()
        self._is_waiting = False
        self._ending: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(
            idle_timeout, self._end_if_idle
        )

    def _end_if_idle(self) -> None:
        """Ends the session if the client has been silent, or checks again later."""
        left = self._received_at + self._idle_timeout - time.monotonic()
        if left <= 0 and self._is_waiting:
            self.end(f"there was no request for {self._idle_timeout:g} s")
            return
        left = left if left > 0 else self._idle_timeout
        self._timer = asyncio.get_running_loop().call_later(left, self._end_if_idle)

    def end(self, reason: str) -> asyncio.Task[None]:
        """Sends the client the reason, and closes the connection."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._send_end(reason))
        return self._ending

    async def _send_end(self, reason: str) -> None:
        if self._is_waiting:  # otherwise it would answer another message
            message = f"The session has ended: {reason}."
            await self.send(self.session.refuse(MessageError("SESSION_ERROR", message)))
        await self.close(1001, reason[:120])

    async def receive(self) -> Any:
        """Returns the next message, or `_GONE`."""
        # Hot: called once per step.
        self._is_waiting = True
        message = await self._websocket.receive()
        self._is_waiting = False
        self._received_at = time.monotonic()
        if message["type"] != "websocket.receive":
            return _GONE
        return message.get("text")

    async def send(self, answer: JsonAnswer) -> bool:
        """Sends a message; returns False if the client is gone."""
        try:
            await self._websocket.send_text(answer.text)
        except Exception:
            # Starlette and uvicorn raise several kinds of errors for this.
            _LOGGER.debug("a client has gone", exc_info=True)
            return False
        return True

    async def close(self, code: int = 1000, reason: str | None = None) -> None:
        """Closes the connection if it is open."""
        self._timer.cancel()
        try:
            await self._websocket.close(code, reason)
        except Exception:  # likewise
            _LOGGER.debug("a client has gone", exc_info=True)
