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
import json
import logging
import math
import socket
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import numpy as np

from envkit.errors import MissingDependencyError, SpecError
from envkit.provenance import envkit_version
from envkit.remote.hosted import FullError, Host, Hosted, Single, flags_of
from envkit.remote.serving import Menu, ServeOptions
from envkit.specs.json_schema import JsonForm, schema_of
from envkit.time_step import TimeStep
from envkit.types import NestedSpec

__all__ = ["OpenEnvServer", "serve"]

_LOGGER = logging.getLogger(__name__)

_PORT = 8000
_STANDARD = "1.0.0"  # of OpenEnv's endpoints, as their validator reads it
_GRACE = 2  # seconds that connections have to end when the server does
# Bytes of a message, beside those of an action: names, and what resets are told.
_LEAST_MESSAGE = 1 << 16
# Bytes that a number takes as text, and those of a text or an object.
_NUMBER, _OBJECT = 32, 1 << 20
_LONGEST_ID = 255
_LARGEST_SEED = 2**63
_NO_MCP = "This environment has no tools: use reset and step."
_STATE = {
    "title": "State",
    "type": "object",
    "properties": {
        "episode_id": {"type": ["string", "null"]},
        "step_count": {"type": "integer", "minimum": 0},
    },
}


def serve(menu: Menu, options: ServeOptions) -> OpenEnvServer:
    """Serves the one environment of a menu to clients of OpenEnv.

    Raises:
        ValueError: There are several, or the environment does not fit the protocol.
        MissingDependencyError: The extra `openenv` is not installed.
    """
    return OpenEnvServer(menu, options)


class _RefusedError(Exception):
    """A message that is answered by an error; the session goes on."""

    def __init__(self, code: str, message: str, errors: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.errors = code, message, errors

    def data(self) -> dict[str, Any]:
        """Returns what the client is told."""
        data: dict[str, Any] = {"message": self.message, "code": self.code}
        return data if self.errors is None else {**data, "errors": self.errors}


def _invalid(place: list[str], message: str) -> _RefusedError:
    errors = [{"type": "value_error", "loc": place, "msg": message}]
    return _RefusedError("VALIDATION_ERROR", message, errors)


class _Forms:
    """What the specs are in JSON: the schemas, and how values are written and read."""

    def __init__(self, spec: Any) -> None:
        if getattr(spec.reward, "shape", None) != ():
            raise ValueError(
                f"OpenEnv has one number as the reward, and that of the environment is "
                f"{spec.reward!r:.200}. Wrap it so that the reward is a scalar."
            )
        self.action = JsonForm(spec.action, subject="The action", root="action")
        self.observation = JsonForm(
            spec.observation, subject="The observation", root="observation"
        )
        self.largest_message = _LEAST_MESSAGE + _size_of(spec.action)
        observation = schema_of(spec.observation, "Observation")
        reward, discount = (
            schema_of(part)["properties"]["value"]
            for part in (spec.reward, spec.discount)
        )
        observation["properties"] = {
            **observation["properties"],
            "done": {"type": "boolean"},
            "reward": {"anyOf": [reward, {"type": "null"}]},
            "metadata": {"type": "object", "properties": {"discount": discount}},
        }
        self.schema = {
            "action": schema_of(spec.action, "Action"),
            "observation": observation,
            "state": _STATE,
        }


def _size_of(spec: NestedSpec) -> int:
    """Returns how many bytes an action takes at most."""
    from envkit.nest import flatten

    sizes = []
    for leaf in flatten(spec):
        elements = math.prod(leaf.shape)
        is_number = leaf.dtype.kind in "biuf"
        # A character takes up to twelve bytes, as two escaped halves.
        letters = 0 if is_number else leaf.dtype.itemsize * 3
        if leaf.dtype.kind == "O":
            letters = _OBJECT
        sizes.append(elements * (_NUMBER + letters))
    return sum(sizes)


class _Session:
    """One client's episodes; its methods are called by the environment's thread."""

    def __init__(self, forms: _Forms) -> None:
        self._forms = forms
        self._episode_id: str | None = None
        self._steps = 0
        # Why there can be no step now.
        self._needs_reset = "No episode has begun"
        self.has_raised = False

    def reset(self, env: Single, data: Mapping[str, Any]) -> dict[str, Any]:
        """Begins an episode."""
        seed, episode_id, options = _reset_data(data)
        try:
            time_step = env.reset(seed, options)
        except NotImplementedError as error:
            part = "seed" if options is None else "options"
            raise _invalid(["data"], f"reset: {part}: {error}") from error
        except Exception as error:
            raise self._broken(error) from error
        self._episode_id = episode_id or str(uuid.uuid4())
        self._steps, self._needs_reset, self.has_raised = 0, "", False
        return {**self._told(env, time_step), "reward": None}

    def step(self, env: Single, data: Any) -> dict[str, Any]:
        """Applies an action."""
        # Hot: called once per step.
        action = self._read(data)
        if self._needs_reset:
            raise _RefusedError(
                "EXECUTION_ERROR", f"{self._needs_reset}: reset comes before step."
            )
        try:
            time_step = env.step(action)
        except Exception as error:
            raise self._broken(error) from error
        self._steps += 1
        return self._told(env, time_step)

    def reset_and_step(self, env: Single, data: Any) -> dict[str, Any]:
        """Begins an episode and applies one action: for a request without a session."""
        self._read(data)
        self.reset(env, {})
        return self.step(env, data)

    def state(self) -> dict[str, Any]:
        """Returns where the session stands."""
        return {"episode_id": self._episode_id, "step_count": self._steps}

    def _broken(self, error: Exception) -> _RefusedError:
        self.has_raised, self._needs_reset = True, "The environment has raised"
        return _raised(error)

    def _read(self, data: Any) -> Any:
        try:
            return self._forms.action.read(data)
        except SpecError as error:
            place = ["action", error.path.removeprefix("action")]
            raise _invalid([part for part in place if part], str(error)) from error

    def _told(self, env: Single, time_step: TimeStep) -> dict[str, Any]:
        # Hot: called once per step.
        try:
            observation = self._forms.observation.write(time_step.observation)
        except SpecError as error:
            raise self._broken(error) from error
        info = env.info()
        terminated, truncated = flags_of(time_step, info)
        is_done = bool(time_step.is_last())
        if is_done:
            self._needs_reset = "The episode has ended"
        metadata = {
            "discount": _plain(time_step.discount),
            "terminated": terminated,
            "truncated": truncated,
        }
        if isinstance(info, Mapping):
            for key, value in info.items():
                if isinstance(key, str) and (plain := _plain(value)) is not _NOTHING:
                    metadata.setdefault(key, plain)
        return {
            "observation": observation,
            "reward": _plain(time_step.reward),
            "done": is_done,
            "metadata": metadata,
        }


def _raised(error: Exception) -> _RefusedError:
    kind, text = type(error).__name__, str(error)
    return _RefusedError("EXECUTION_ERROR", f"{kind}: {text}" if text else kind)


def _reset_data(data: Mapping[str, Any]) -> tuple[int | None, str | None, Any]:
    """Returns the seed, the episode's name, and what the environment is told."""
    rest = dict(data)
    seed, episode_id = rest.pop("seed", None), rest.pop("episode_id", None)
    is_integer = type(seed) is int and 0 <= seed < _LARGEST_SEED
    if seed is not None and not is_integer:
        message = "seed must be an integer of at least 0, with at most 63 bits."
        raise _invalid(["data", "seed"], message)
    is_name = isinstance(episode_id, str) and len(episode_id) <= _LONGEST_ID
    if episode_id is not None and not is_name:
        message = f"episode_id must be a text of at most {_LONGEST_ID} characters."
        raise _invalid(["data", "episode_id"], message)
    return seed, episode_id, rest or None


_NOTHING: Any = object()


def _plain(value: Any, depth: int = 0) -> Any:
    """Returns what JSON can hold of a value: `_NOTHING` if it can hold none of it."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else str(value)
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in "biufUO":
            return _NOTHING
        return _plain(value.tolist(), depth)
    if depth > 8:
        return _NOTHING
    if isinstance(value, Mapping):
        pairs = {str(key): _plain(child, depth + 1) for key, child in value.items()}
        return {key: child for key, child in pairs.items() if child is not _NOTHING}
    if isinstance(value, list | tuple):
        items = [_plain(child, depth + 1) for child in value]
        return [None if item is _NOTHING else item for item in items]
    return _NOTHING


def _parsed(text: str | bytes | None) -> dict[str, Any]:
    """Returns a message of a client."""
    if not isinstance(text, str):
        raise _RefusedError("INVALID_JSON", "A message must be text, not bytes.")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _RefusedError("INVALID_JSON", f"Invalid JSON: {error!s:.200}") from error
    if not isinstance(message, dict):
        raise _invalid([], "A message must be an object with the key 'type'.")
    return message


def _data_of(message: dict[str, Any], default: Any = None) -> dict[str, Any]:
    strange = sorted(message.keys() - {"type", "data"})
    if strange:
        raise _invalid(
            [strange[0][:80]],
            f"A message has the keys 'type' and 'data', not {strange[0][:80]!r}.",
        )
    data = message.get("data", default)
    if not isinstance(data, dict):
        raise _invalid(["data"], f"data of {message['type']!r} must be an object.")
    return data


def _dumped(message: Any) -> str:
    # ASCII alone, because a text may have halves of characters, which UTF-8 has not.
    return json.dumps(message, separators=(",", ":"))


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
            self._forms = _Forms(self._host.env_spec)
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
                except _RefusedError as error:
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

    async def _body(self, request: Any) -> Any:
        """Returns the object of a request; its size is limited."""
        limit = self._forms.largest_message
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > limit:
                message = f"The body must have {limit} bytes at most."
                raise _RefusedError("TOO_LARGE", message)
        if not body:
            return {}
        try:
            return _parsed(body.decode("utf-8"))
        except UnicodeDecodeError as error:
            message = "The body must be JSON in UTF-8."
            raise _RefusedError("INVALID_JSON", message) from error

    async def _post_reset(self, body: dict[str, Any]) -> Any:
        return await self._once(lambda session, env: session.reset(env, body))

    async def _post_step(self, body: dict[str, Any]) -> Any:
        if "action" not in body:
            raise _invalid(["body", "action"], "The body must have the key 'action'.")
        action = body["action"]
        return await self._once(
            lambda session, env: session.reset_and_step(env, action)
        )

    async def _once(self, work: Callable[[_Session, Single], Any]) -> Any:
        """Does one thing with an environment of its own."""
        hosted = self._enter()
        session = _Session(self._forms)
        try:
            await self._made(hosted)
            return await asyncio.wrap_future(hosted.ask(lambda env: work(session, env)))
        finally:
            await self._left(hosted, session)

    def _enter(self) -> Hosted:
        try:
            return self._host.enter()
        except FullError as error:
            raise _RefusedError("CAPACITY_REACHED", str(error)) from error

    async def _made(self, hosted: Hosted) -> None:
        try:
            await asyncio.wrap_future(hosted.made)
        except Exception as error:
            message = f"The environment could not be made: {_raised(error).message}"
            raise _RefusedError("FACTORY_ERROR", message) from error

    async def _left(self, hosted: Hosted, session: _Session) -> None:
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
        session = _Session(self._forms)
        try:
            if self._is_closing:
                raise _RefusedError("SESSION_ERROR", "The server is stopping.")
            hosted = self._enter()
            await self._made(hosted)
            await self._converse(connection, hosted, session)
        except _RefusedError as error:
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
        self, connection: _Connection, hosted: Hosted, session: _Session
    ) -> None:
        """Answers the messages of a client until it leaves."""
        while (text := await connection.receive()) is not _GONE:
            # Hot: called once per step.
            try:
                message = _parsed(text)
                kind = message.get("type")
                if kind == "step":
                    data = _data_of(message)
                    answer = await _asked(hosted, session.step, data)
                elif kind == "reset":
                    data = _data_of(message, {})
                    answer = await _asked(hosted, session.reset, data)
                elif kind == "state":
                    _data_of(message, {})
                    answer = {"type": "state", "data": session.state()}
                elif kind == "mcp":
                    answer = {"type": "mcp", "data": await _mcp(_data_of(message, {}))}
                elif kind == "close":
                    return
                else:
                    raise _RefusedError(
                        "UNKNOWN_TYPE",
                        f"Unknown message type: {kind!r:.80}. The types are 'reset', "
                        "'step', 'state' and 'close'.",
                    )
            except _RefusedError as error:
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
}


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
            await self._websocket.send_text(_dumped(message))
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
