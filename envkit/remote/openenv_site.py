"""`Site`: one environment at an address of a server for OpenEnv.

It has the endpoints of HTTP and the WebSocket, and an environment for each connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from envkit._shared.admission import Admission
from envkit._shared.json_schema import EXACT_SCHEMA
from envkit._shared.listening import place_of
from envkit.provenance import envkit_version
from envkit.remote.env_threads import EnvThread, EnvThreads, FullError, Single
from envkit.remote.offers import Offer, ServeOptions
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

__all__ = ["Site"]

_LOGGER = logging.getLogger(__name__)

_STANDARD = "1.0.0"  # of OpenEnv's endpoints, as their validator reads it
_GRACE = 2  # seconds in which an environment that is left may close
_BODY_PATIENCE = 60  # seconds that the body of a request may take
_STOPPING = "The server is stopping."
_NO_MCP = "This environment has no tools: use reset and step."


class Site:
    """One environment that clients of OpenEnv find at an address.

    Attributes:
        offer: The environment.
        forms: Its specs in JSON.
        is_closing: Whether the server is stopping.
    """

    def __init__(
        self, offer: Offer, options: ServeOptions, admission: Admission
    ) -> None:
        """Makes an environment, for its specs."""
        self._admission = admission
        self.offer = offer
        self.is_closing = False
        self._options = options
        self._host = EnvThreads(offer, most=options.max_sessions)
        self._connections: set[_Connection] = set()
        # Bodies of requests that have not come yet.
        self._reading: set[asyncio.Task[bytes]] = set()
        try:
            self.forms = Forms(self._host.env_spec, offer.name)
        except BaseException:
            self._host.close()
            raise

    def end(self, reason: str) -> list[asyncio.Task[None]]:
        """Begins to tell all clients why their sessions end; in the server's loop."""
        for reading in self._reading:
            reading.cancel()
        return [connection.end(reason) for connection in self._connections]

    @property
    def sessions(self) -> int:
        """How many clients have an environment."""
        return len(self._connections)

    def close(self) -> None:
        """Closes the environments."""
        self._host.close()

    def routes(self) -> list[Any]:
        """Returns what Starlette needs to serve the environment at one address."""
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
                except RefusedError as refused:
                    error = refused.hidden(self.offer.hide)
                    self._log_refusal(request, error)
                    status = _STATUS.get(error.code, 500)
                    detail = error.errors or error.message
                    return JSONResponse({"detail": detail, **error.data()}, status)
                except asyncio.CancelledError:
                    if not self.is_closing:
                        raise
                    return JSONResponse({"detail": _STOPPING}, 503)

            return answer

        state = {"episode_id": None, "step_count": 0}
        return [
            Route("/health", fixed({"status": "healthy"})),
            Route("/metadata", fixed(self._metadata())),
            Route("/schema", self._get_schema),
            Route("/openapi.json", fixed(self._openapi())),
            Route("/state", fixed(state), methods=["GET", "POST"]),
            Route("/mcp", posted(_mcp), methods=["POST"]),
            Route("/reset", posted(self._post_reset), methods=["POST"]),
            Route("/step", posted(self._post_step), methods=["POST"]),
            Route("/list_environments", fixed([self.offer.name])),
            *self._task_routes(),
            WebSocketRoute("/ws", self._websocket),
        ]

    async def _get_schema(self, request: Any) -> Any:
        from starlette.responses import JSONResponse

        is_exact = EXACT_SCHEMA in request.headers.get("accept", "")
        forms = self.forms
        return JSONResponse(
            forms.exact_schema if is_exact else forms.schema,
            headers={"Vary": "Accept"},
            media_type=EXACT_SCHEMA if is_exact else "application/json",
        )

    def _task_routes(self) -> list[Any]:
        """Returns the routes by which clients find the tasks of an environment."""
        from starlette.responses import JSONResponse
        from starlette.routing import Route

        def routes(path: str, method: str, keys: tuple[str, ...], wrap: Any) -> Any:
            async def answer(request: Any) -> Any:
                try:
                    name = request.path_params.get("env_name", self.offer.name)
                    if name.lower() != self.offer.name.lower():
                        message = f"unknown environment {name[:80]!r}"
                        raise RefusedError("NOT_FOUND", message)
                    body = await self._body(request) if keys else {}
                    given = _task_arguments(body, keys)
                    found = await self._once(
                        lambda _, env: task_answer(env, method, given)
                    )
                except RefusedError as refused:
                    error = refused.hidden(self.offer.hide)
                    self._log_refusal(request, error)
                    return JSONResponse(
                        {"detail": error.errors or error.message},
                        _STATUS.get(error.code, 500),
                    )
                except asyncio.CancelledError:
                    if not self.is_closing:
                        raise
                    return JSONResponse({"detail": _STOPPING}, 503)
                return JSONResponse(wrap(found))

            verb = "POST" if keys else "GET"
            # Among several environments, the name is a part of the address.
            paths = (f"/{path}", f"/{{env_name:path}}/{path}")
            return [Route(each, answer, methods=[verb]) for each in paths]

        name = self.offer.name
        return [
            *routes("splits", "list_splits", (), lambda found: found),
            *routes(
                "tasks",
                "list_tasks",
                ("split",),
                lambda found: {"tasks": found, "env_name": name},
            ),
            *routes("num_tasks", "num_tasks", ("split",), lambda n: {"num_tasks": n}),
            *routes("task", "get_task", ("split", "index"), lambda one: {"task": one}),
            *routes(
                "task_range",
                "get_task_range",
                ("split", "start", "stop"),
                lambda found: {"tasks": found},
            ),
        ]

    async def _body(self, request: Any) -> Any:
        """Returns the object of a request; its size and its time are limited."""
        from starlette.requests import ClientDisconnect

        reading = asyncio.ensure_future(self._bytes_of(request))
        self._reading.add(reading)
        patience = min(_BODY_PATIENCE, self._options.idle_timeout)
        try:
            body = await asyncio.wait_for(reading, patience)
        except ClientDisconnect as error:
            what = "broke off before its end"
            raise self._given_up(request, "CLIENT_LEFT", what) from error
        except asyncio.TimeoutError as error:
            what = f"did not come within {patience:g} s"
            raise self._given_up(request, "TOO_SLOW", what) from error
        finally:
            self._reading.discard(reading)
        if not body:
            return {}
        try:
            return parsed(body.decode("utf-8"))
        except UnicodeDecodeError as error:
            message = "The body must be JSON in UTF-8."
            raise RefusedError("INVALID_JSON", message) from error

    async def _bytes_of(self, request: Any) -> bytes:
        limit = self.forms.largest_message
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > limit:
                message = f"The body must have {limit} bytes at most."
                raise RefusedError("TOO_LARGE", message)
        return body

    def _given_up(self, request: Any, code: str, what: str) -> RefusedError:
        """Returns the error for a request that does not come, and logs it."""
        asked = f"its {request.method} {request.url.path[:80]!a}"
        self._admission.refuse(place_of(request.client), f"{asked} {what}")
        return RefusedError(code, f"The request {what}.")

    def _log_refusal(self, request: Any, error: RefusedError) -> None:
        """Logs that a request gets nothing, unless its environment was asked."""
        if error.code in ("CAPACITY_REACHED", "TOO_LARGE", "NOT_FOUND"):
            self._admission.refuse(place_of(request.client), error.message)

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
        session = Episodes(self.forms)
        try:
            await self._made(hosted)
            return await asyncio.wrap_future(hosted.ask(lambda env: work(session, env)))
        finally:
            await self._left(hosted, session)

    def _enter(self) -> EnvThread:
        try:
            return self._host.enter()
        except FullError as error:
            raise RefusedError("CAPACITY_REACHED", str(error)) from error

    async def _made(self, hosted: EnvThread) -> None:
        try:
            await asyncio.wrap_future(hosted.made)
        except Exception as error:
            message = f"The environment could not be made: {raised(error).message}"
            raise RefusedError("FACTORY_ERROR", message) from error

    async def _left(self, hosted: EnvThread, session: Episodes) -> None:
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
        if not self.is_closing:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended, _GRACE)

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
        done = {"200": {"description": "As OpenEnv has it."}}
        gets = ("/health", "/metadata", "/schema", "/state", "/openapi.json")
        posts = ("/reset", "/step", "/mcp")
        return {
            "openapi": "3.1.0",
            "info": {"title": self.offer.name, "version": _STANDARD},
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
        hosted: EnvThread | None = None
        session = Episodes(self.forms)
        try:
            if self.is_closing:
                raise RefusedError("SESSION_ERROR", _STOPPING)
            hosted = self._enter()
            await self._made(hosted)
            await self._converse(connection, hosted, session)
        except RefusedError as refused:
            error = refused.hidden(self.offer.hide)
            self._admission.refuse(place_of(websocket.client), error.message)
            await connection.send({"type": "error", "data": error.data()})
        except asyncio.CancelledError:
            if not self.is_closing:
                raise
        finally:
            self._connections.discard(connection)
            if hosted is not None:
                await self._left(hosted, session)
            await connection.close()

    async def _converse(
        self, connection: _Connection, hosted: EnvThread, session: Episodes
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
                hidden = error.hidden(self.offer.hide)
                answer = {"type": "error", "data": hidden.data()}
            if not await connection.send(answer):
                return


async def _asked(
    hosted: EnvThread, work: Callable[[Single, Any], Any], data: Any
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
    "CLIENT_LEFT": 400,
    "TOO_SLOW": 408,
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
