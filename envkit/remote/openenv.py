"""OpenEnv's protocol, as a server: `envkit serve TARGET --openenv`.

```
client                                        server
  ── GET /schema ──────────────────────────▶  JSON Schemas of action, observation, state
  ── WebSocket /ws ────────────────────────▶  an environment for this connection
  ── {"type": "reset", "data": {"seed"}} ──▶  {"type": "observation", "data": {…}}
  ── {"type": "step", "data": {action}} ───▶  {"type": "observation", "data": {…}}
  ── {"type": "state"} ────────────────────▶  {"type": "state", "data": {…}}
  ── {"type": "close"} ────────────────────▶  closes the connection
```

A message is answered by one message, in order. What cannot be done is answered by
`{"type": "error", "data": {"message", "code"}}`, after which the session goes on. Where
`done` cannot tell how an episode ended, the metadata of an observation can: it has
`discount`, `terminated`, `truncated`, and the infos of the environment.

OpenEnv's own package is not needed here, nor imported.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import importlib.util
import logging
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from envkit.errors import MissingDependencyError
from envkit.provenance import envkit_version
from envkit.remote.hosted import FullError, Host, Hosted, Single
from envkit.remote.openenv_messages import (
    Episodes,
    Forms,
    RefusedError,
    data_of,
    dumped,
    invalid,
    parsed,
    raised,
    task_answer,
)
from envkit.remote.serving import Menu, ServeOptions

__all__ = ["OpenEnvServer", "serve"]

_LOGGER = logging.getLogger(__name__)

_PORT = 8000
_STANDARD = "1.0.0"  # of OpenEnv's endpoints, as their validator reads it
_GRACE = 2  # seconds that connections have to end when the server does
_NO_MCP = "This environment has no tools: use reset and step."


def serve(menu: Menu, options: ServeOptions) -> OpenEnvServer:
    """Serves the one environment of a menu to clients of OpenEnv.

    Raises:
        ValueError: There are several, or the environment does not fit the protocol.
        MissingDependencyError: The extra `openenv` is not installed.
    """
    return OpenEnvServer(menu, options)


class OpenEnvServer:
    """A server of one environment for OpenEnv's clients, in a thread of its own.

    Attributes:
        line: The protocol and the address, for people.
        url: The address that clients take.
    """

    def __init__(self, menu: Menu, options: ServeOptions) -> None:
        """Makes an environment, for its specs, and listens."""
        _require()
        if len(menu.offers) != 1:
            raise ValueError(
                f"OpenEnv has one environment at an address, and there are "
                f"{len(menu.offers)}: {', '.join(menu.names)}. Start a server for each."
            )
        self._offer = menu.offers[0]
        self._options = options
        self._host = Host(
            self._offer, most=options.max_sessions, num_workers=options.num_workers
        )
        self._connections: set[_Connection] = set()
        self._reason: str | None = None
        self._is_closing = False
        try:
            self._forms = Forms(self._host.env_spec)
            self._socket = _listening(options)
            self._server = self._made_server()
        except BaseException:
            self._host.close()
            raise
        port = self._socket.getsockname()[1]
        scheme = "http" if options.tls is None else "https"
        name = f"[{options.host}]" if ":" in options.host else options.host
        self.url = f"{scheme}://{name}:{port}"
        self.line = f"openenv: {self.url}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(
            target=self._run, daemon=True, name="envkit-openenv"
        )
        self._thread.start()

    def ended(self) -> str | None:
        """Returns why it has ended, `None` as long as it serves."""
        if self._thread.is_alive() or self._is_closing:
            return None
        return self._reason or "it has stopped"

    def close(self, reason: str = "the server is stopping") -> None:
        """Tells clients the reason, closes their environments, and stops listening."""
        if self._is_closing:
            return
        self._is_closing = True
        self._say_goodbye(reason)
        self._server.should_exit = True
        self._thread.join(_GRACE + 5)
        self._host.close()
        self._socket.close()

    def __enter__(self) -> OpenEnvServer:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _made_server(self) -> Any:
        import uvicorn

        config = uvicorn.Config(
            self._app(),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws_max_size=self._forms.largest_message,
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=_GRACE,
        )
        config.load()
        config.ssl = self._options.tls
        return uvicorn.Server(config)

    def _run(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[self._socket])

        try:
            asyncio.run(main())
        except (Exception, SystemExit) as error:
            self._reason = f"{type(error).__name__}: {error}"
            _LOGGER.exception("The server for OpenEnv has ended")

    def _say_goodbye(self, reason: str) -> None:
        """Ends all sessions; waits until clients have been told, for a moment."""
        if self._loop is None or not self._thread.is_alive():
            return

        async def end() -> None:
            ends = [connection.end(reason) for connection in self._connections]
            if ends:
                await asyncio.wait(ends, timeout=_GRACE)

        # Before uvicorn ends the connections itself, without a reason.
        saying = asyncio.run_coroutine_threadsafe(end(), self._loop)
        with contextlib.suppress(FutureTimeoutError):
            saying.result(2 * _GRACE)

    # HTTP.

    def _app(self) -> Any:
        from starlette.applications import Starlette
        from starlette.responses import JSONResponse
        from starlette.routing import Route, WebSocketRoute

        def fixed(content: Any) -> Callable[[Any], Awaitable[Any]]:
            async def answer(_: Any) -> Any:
                return JSONResponse(content)

            return answer

        def posted(work: Callable[[Any], Awaitable[Any]]) -> Callable[..., Any]:
            async def answer(request: Any) -> Any:
                try:
                    return JSONResponse(await work(await self._body(request)))
                except RefusedError as error:
                    status = _STATUS.get(error.code, 500)
                    detail = error.errors or error.message
                    return JSONResponse({"detail": detail, **error.data()}, status)

            return answer

        state = {"episode_id": None, "step_count": 0}
        app = Starlette(
            routes=[
                Route("/health", fixed({"status": "healthy"})),
                Route("/metadata", fixed(self._metadata())),
                Route("/schema", fixed(self._forms.schema)),
                Route("/openapi.json", fixed(self._openapi())),
                Route("/state", fixed(state), methods=["GET", "POST"]),
                Route("/mcp", posted(_mcp), methods=["POST"]),
                Route("/reset", posted(self._post_reset), methods=["POST"]),
                Route("/step", posted(self._post_step), methods=["POST"]),
                Route("/list_environments", fixed([self._offer.name])),
                *self._task_routes(),
                WebSocketRoute("/ws", self._websocket),
            ]
        )
        return app if self._options.token is None else self._guarded(app)

    def _guarded(self, app: Any) -> Any:
        """Returns the application for those who know the token."""
        from starlette.requests import HTTPConnection
        from starlette.responses import JSONResponse
        from starlette.websockets import WebSocket

        assert self._options.token is not None  # it is called for that
        wanted = b"Bearer " + self._options.token
        refusal = JSONResponse(
            {"detail": "The header 'Authorization: Bearer TOKEN' must have the token."},
            401,
        )

        async def guarded(scope: Any, receive: Any, send: Any) -> None:
            given = HTTPConnection(scope).headers.get("authorization", "")
            if hmac.compare_digest(given.encode("latin-1"), wanted):
                await app(scope, receive, send)
            elif scope["type"] == "websocket":
                websocket = WebSocket(scope, receive, send)
                await websocket.receive()
                await websocket.send_denial_response(refusal)
            else:
                await refusal(scope, receive, send)

        return guarded

    def _task_routes(self) -> list[Any]:
        """Returns the routes by which clients find the tasks of an environment."""
        from starlette.responses import JSONResponse
        from starlette.routing import Route

        def route(path: str, method: str, keys: tuple[str, ...], wrap: Any) -> Any:
            async def answer(request: Any) -> Any:
                try:
                    name = request.path_params["env_name"]
                    if name.lower() != self._offer.name.lower():
                        message = f"unknown environment {name[:80]!r}"
                        raise RefusedError("NOT_FOUND", message)
                    body = await self._body(request) if keys else {}
                    given = _task_arguments(body, keys)
                    found = await self._once(
                        lambda _, env: task_answer(env, method, given)
                    )
                except RefusedError as error:
                    return JSONResponse(
                        {"detail": error.errors or error.message},
                        _STATUS.get(error.code, 500),
                    )
                return JSONResponse(wrap(found))

            verb = "POST" if keys else "GET"
            return Route(f"/{{env_name:path}}/{path}", answer, methods=[verb])

        name = self._offer.name
        return [
            route("splits", "list_splits", (), lambda found: found),
            route(
                "tasks",
                "list_tasks",
                ("split",),
                lambda found: {"tasks": found, "env_name": name},
            ),
            route("num_tasks", "num_tasks", ("split",), lambda n: {"num_tasks": n}),
            route("task", "get_task", ("split", "index"), lambda one: {"task": one}),
            route(
                "task_range",
                "get_task_range",
                ("split", "start", "stop"),
                lambda found: {"tasks": found},
            ),
        ]

    async def _body(self, request: Any) -> Any:
        """Returns the object of a request; its size is limited."""
        limit = self._forms.largest_message
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > limit:
                message = f"The body must have {limit} bytes at most."
                raise RefusedError("TOO_LARGE", message)
        if not body:
            return {}
        try:
            return parsed(body.decode("utf-8"))
        except UnicodeDecodeError as error:
            message = "The body must be JSON in UTF-8."
            raise RefusedError("INVALID_JSON", message) from error

    async def _post_reset(self, body: dict[str, Any]) -> Any:
        return await self._once(lambda session, env: session.reset(env, body))

    async def _post_step(self, body: dict[str, Any]) -> Any:
        if "action" not in body:
            raise invalid(["body", "action"], "The body must have the key 'action'.")
        action = body["action"]
        return await self._once(
            lambda session, env: session.reset_and_step(env, action)
        )

    async def _once(self, work: Callable[[Episodes, Single], Any]) -> Any:
        """Does one thing with an environment of its own."""
        hosted = self._enter()
        session = Episodes(self._forms)
        try:
            await self._made(hosted)
            return await asyncio.wrap_future(hosted.ask(lambda env: work(session, env)))
        finally:
            await self._left(hosted, session)

    def _enter(self) -> Hosted:
        try:
            return self._host.enter()
        except FullError as error:
            raise RefusedError("CAPACITY_REACHED", str(error)) from error

    async def _made(self, hosted: Hosted) -> None:
        try:
            await asyncio.wrap_future(hosted.made)
        except Exception as error:
            message = f"The environment could not be made: {raised(error).message}"
            raise RefusedError("FACTORY_ERROR", message) from error

    async def _left(self, hosted: Hosted, session: Episodes) -> None:
        """Takes the environment back; waits for a moment until it is closed."""
        # Because one who then connects again is to find room.
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def set_ended() -> None:
            if not ended.done():
                ended.set_result(None)

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # The loop has ended meanwhile.
                loop.call_soon_threadsafe(set_ended)

        self._host.leave(hosted, keep=not session.has_raised, on_left=tell)
        if not self._is_closing:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended, _GRACE)

    def _metadata(self) -> dict[str, Any]:
        version = self._offer.version
        return {
            "name": self._offer.name,
            "description": f"{self._offer.id}, served by envkit {envkit_version()}.",
            "version": None if version is None else str(version),
            "readme_content": None,
            "author": None,
            "documentation_url": None,
        }

    def _openapi(self) -> dict[str, Any]:
        done = {"200": {"description": "As OpenEnv has it."}}
        gets = ("/health", "/metadata", "/schema", "/state", "/openapi.json")
        posts = ("/reset", "/step", "/mcp")
        return {
            "openapi": "3.1.0",
            "info": {"title": self._offer.name, "version": _STANDARD},
            "paths": {
                **{path: {"get": {"responses": done}} for path in gets},
                **{path: {"post": {"responses": done}} for path in posts},
            },
        }

    # Sessions.

    async def _websocket(self, websocket: Any) -> None:
        connection = _Connection(websocket, self._options.idle_timeout)
        await websocket.accept()
        self._connections.add(connection)
        hosted: Hosted | None = None
        session = Episodes(self._forms)
        try:
            if self._is_closing:
                raise RefusedError("SESSION_ERROR", "The server is stopping.")
            hosted = self._enter()
            await self._made(hosted)
            await self._converse(connection, hosted, session)
        except RefusedError as error:
            await connection.send({"type": "error", "data": error.data()})
        except asyncio.CancelledError:
            if not self._is_closing:
                raise
        finally:
            self._connections.discard(connection)
            if hosted is not None:
                await self._left(hosted, session)
            await connection.close()

    async def _converse(
        self, connection: _Connection, hosted: Hosted, session: Episodes
    ) -> None:
        """Answers the messages of a client until it leaves."""
        while (text := await connection.receive()) is not _GONE:
            # Hot: called once per step.
            try:
                message = parsed(text)
                kind = message.get("type")
                if kind == "step":
                    data = data_of(message)
                    answer = await _asked(hosted, session.step, data)
                elif kind == "reset":
                    data = data_of(message, {})
                    answer = await _asked(hosted, session.reset, data)
                elif kind == "state":
                    data_of(message, {})
                    answer = {"type": "state", "data": session.state()}
                elif kind == "mcp":
                    answer = {"type": "mcp", "data": await _mcp(data_of(message, {}))}
                elif kind == "close":
                    return
                else:
                    raise RefusedError(
                        "UNKNOWN_TYPE",
                        f"Unknown message type: {kind!r:.80}. The types are 'reset', "
                        "'step', 'state' and 'close'.",
                    )
            except RefusedError as error:
                answer = {"type": "error", "data": error.data()}
            if not await connection.send(answer):
                return


async def _asked(
    hosted: Hosted, work: Callable[[Single, Any], Any], data: Any
) -> dict[str, Any]:
    # Hot: called once per step.
    found = await asyncio.wrap_future(hosted.ask(lambda env: work(env, data)))
    return {"type": "observation", "data": found}


_GONE: Any = object()
_STATUS = {
    "VALIDATION_ERROR": 422,
    "INVALID_JSON": 422,
    "CAPACITY_REACHED": 503,
    "TOO_LARGE": 413,
    "NOT_FOUND": 404,
    "NOT_IMPLEMENTED": 501,
    "INVALID_INDEX": 400,
}


def _task_arguments(body: dict[str, Any], keys: tuple[str, ...]) -> tuple[Any, ...]:
    """Returns what a request has under some keys: a split, and numbers of tasks."""
    for key in body.keys() - {*keys}:
        raise invalid(["body", key[:80]], f"The body must not have {key[:80]!r}.")
    for key in keys:
        value, is_open = body.get(key), key in ("start", "stop")
        kind, what = (str, "text") if key == "split" else (int, "an integer")
        if type(value) is not kind and not (is_open and value is None):
            raise invalid(["body", key], f"{key} must be {what}.")
    return tuple(body.get(key) for key in keys)


class _Connection:
    """A client's WebSocket, with an end when it is silent for too long."""

    def __init__(self, websocket: Any, idle_timeout: float) -> None:
        self._websocket = websocket
        self._idle_timeout = idle_timeout
        self._heard = time.monotonic()
        self._is_waiting = False
        self._ending: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(idle_timeout, self._look)

    def _look(self) -> None:
        """Ends the session if the client has been silent; else looks again later."""
        left = self._heard + self._idle_timeout - time.monotonic()
        if left <= 0 and self._is_waiting:
            self.end(f"nothing was asked for {self._idle_timeout:g} s")
            return
        left = left if left > 0 else self._idle_timeout
        self._timer = asyncio.get_running_loop().call_later(left, self._look)

    def end(self, reason: str) -> asyncio.Task[None]:
        """Tells the client why, and closes the connection."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._say(reason))
        return self._ending

    async def _say(self, reason: str) -> None:
        message = f"The session has ended: {reason}."
        data = {"message": message, "code": "SESSION_ERROR"}
        if self._is_waiting:  # Otherwise it would be the answer to something else.
            await self.send({"type": "error", "data": data})
        await self.close(1001, reason[:120])

    async def receive(self) -> Any:
        """Returns the next message, or `_GONE`."""
        # Hot: called once per step.
        self._is_waiting = True
        message = await self._websocket.receive()
        self._is_waiting = False
        self._heard = time.monotonic()
        if message["type"] != "websocket.receive":
            return _GONE
        return message.get("text")

    async def send(self, message: Any) -> bool:
        """Sends a message; returns False if the client has gone."""
        try:
            await self._websocket.send_text(dumped(message))
        except Exception:
            # Starlette and uvicorn raise errors of several kinds for the same.
            _LOGGER.debug("a client has gone", exc_info=True)
            return False
        return True

    async def close(self, code: int = 1000, reason: str | None = None) -> None:
        """Closes the connection, if it is open."""
        self._timer.cancel()
        try:
            await self._websocket.close(code, reason)
        except Exception:  # Likewise.
            _LOGGER.debug("a client has gone", exc_info=True)


async def _mcp(body: Any) -> dict[str, Any]:
    """Answers a call of a tool by JSON-RPC: there are no tools."""
    number = body.get("id")
    number = number if isinstance(number, str | int) else None
    is_request = body.get("jsonrpc") == "2.0" and isinstance(body.get("method"), str)
    error = {"code": -32601, "message": _NO_MCP}
    if not is_request:
        message = (
            "A request must have the keys 'jsonrpc', which is '2.0', and 'method'."
        )
        error = {"code": -32600, "message": message}
    return {"jsonrpc": "2.0", "id": number, "error": error}


def _listening(options: ServeOptions) -> socket.socket:
    port = _PORT if options.port is None else options.port
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    return socket.create_server((options.host.strip("[]"), port), family=family)


def _require() -> None:
    for package in ("starlette", "uvicorn", "websockets"):
        if importlib.util.find_spec(package) is None:
            raise MissingDependencyError.needed_by(
                "Serving by OpenEnv's protocol", package=package, extra="openenv"
            )
