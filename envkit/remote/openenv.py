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
import base64
import contextlib
import hmac
import importlib.util
import logging
import socket
import threading
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from envkit._shared.guesses import Guesses
from envkit._shared.listening import listener
from envkit._shared.server_secret import ServerSecret
from envkit._shared.text import escaped
from envkit._shared.web_pages import is_json, web_page_refusal
from envkit.errors import MissingDependencyError
from envkit.remote.offers import Menu, ServeOptions, with_reachable_host
from envkit.remote.openenv_site import Site

__all__ = ["OpenEnvServer", "serve"]

_LOGGER = logging.getLogger(__name__)

_PORT = 8000
_GRACE = 2  # seconds that connections have to end when the server does


def serve(menu: Menu, options: ServeOptions) -> OpenEnvServer:
    """Serves the environments of a menu to clients of OpenEnv.

    Raises:
        ValueError: An environment does not fit the protocol.
        MissingDependencyError: The extra `openenv` is not installed.
    """
    return OpenEnvServer(menu, options)


class OpenEnvServer:
    """A server for OpenEnv's clients, in a thread of its own.

    Attributes:
        line: The protocol and the address, for people.
        url: The address that clients take; of several environments each is below it,
            at its name.
        token: What clients must know, drawn unless given; `None` if they need not.
        invitation: The address for clients that do not find a drawn token.
    """

    def __init__(self, menu: Menu, options: ServeOptions) -> None:
        """Makes an environment of each kind, for its specs, and listens."""
        _require()
        self._options = options
        self._secret = ServerSecret("token", options.token)
        self.token = self._secret.data
        self._guesses = Guesses()
        self._reason: str | None = None
        self._is_closing = False
        with contextlib.ExitStack() as stack:
            self._sites: list[Site] = []
            for offer in menu.offers:
                self._sites.append(Site(offer, options))
                stack.callback(self._sites[-1].close)
            self._socket = _listening(options)
            stack.callback(self._socket.close)
            self._server = self._made_server()
            self._secret.publish(self._socket.getsockname())
            stack.pop_all()
        port = self._socket.getsockname()[1]
        scheme = "http" if options.tls is None else "https"
        name = f"[{options.host}]" if ":" in options.host else options.host
        self.url = f"{scheme}://{name}:{port}"
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
        for site in self._sites:
            site.is_closing = True
        self._say_goodbye(reason)
        self._server.should_exit = True
        self._thread.join(_GRACE + 5)
        for site in self._sites:
            site.close()
        self._secret.close()
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
            ws_max_size=max(site.forms.largest_message for site in self._sites),
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
            ends = [end for site in self._sites for end in site.end(reason)]
            if ends:
                await asyncio.wait(ends, timeout=_GRACE)

        # Before uvicorn ends the connections itself, without a reason.
        saying = asyncio.run_coroutine_threadsafe(end(), self._loop)
        with contextlib.suppress(FutureTimeoutError):
            saying.result(2 * _GRACE)

    def _app(self) -> Any:
        from starlette.applications import Starlette
        from starlette.responses import JSONResponse
        from starlette.routing import Mount, Route

        async def names(_: Any) -> Any:
            return JSONResponse([site.offer.name for site in self._sites])

        async def health(_: Any) -> Any:
            return JSONResponse({"status": "healthy"})

        async def nothing_there(request: Any, _: Any) -> Any:
            places = ", ".join(f"/{site.offer.name}" for site in self._sites)
            told = f"Nothing is at {request.url.path[:80]}."
            if len(self._sites) > 1:
                told += f" The environments are at {places}."
            return JSONResponse({"detail": told}, 404)

        if len(self._sites) == 1:
            routes = self._sites[0].routes()
        else:
            routes = [Route("/list_environments", names), Route("/health", health)]
            routes += [
                Mount(f"/{site.offer.name}", routes=site.routes())
                for site in self._sites
            ]
        app: Any = Starlette(routes=routes, exception_handlers={404: nothing_there})
        app = _logged(app)
        if self.token is None:
            return _sending_safely(_without_web_pages(app, self._options.host))
        return _sending_safely(self._guarded(app))

    def _guarded(self, app: Any) -> Any:
        """Returns the application for those who know the token."""
        from starlette.requests import HTTPConnection
        from starlette.responses import JSONResponse

        token = self.token
        assert token is not None  # it is called for that
        refusal = JSONResponse(
            {
                "detail": "The header 'Authorization: Bearer TOKEN' must have the "
                "token, or the address: http://token:TOKEN@HOST:PORT."
            },
            401,
        )

        async def guarded(scope: Any, receive: Any, send: Any) -> None:
            given = _token_in(HTTPConnection(scope).headers)
            if given is not None and hmac.compare_digest(given, token):
                await app(scope, receive, send)
                return
            client = _client_of(scope)
            why = "it has given no token" if given is None else "the token is wrong"
            _LOGGER.warning("%s was refused: %s", client, why)
            if given is not None:
                with self._guesses.late(client.rpartition(":")[0]) as seconds:
                    await asyncio.sleep(seconds)
            await _refuse(refusal, scope, receive, send)

        return guarded


def _sending_safely(app: Any) -> Any:
    """Returns the application without errors for requests that broke the protocol."""

    async def sending(scope: Any, receive: Any, send: Any) -> None:
        async def send_safely(message: Any) -> None:
            try:
                await send(message)
            except Exception:
                # uvicorn has answered such a request itself, and then takes no answer.
                # It says so in the log, so a traceback for each is too much.
                _LOGGER.debug("an answer was not taken", exc_info=True)

        await app(scope, receive, send_safely if scope["type"] == "http" else send)

    return sending


def _without_web_pages(app: Any, bound: str) -> Any:
    """Returns the application for clients that are no web pages."""
    from starlette.datastructures import Headers
    from starlette.responses import JSONResponse

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        headers = Headers(scope=scope)
        reason, status = web_page_refusal(headers.items(), bound), 403
        if reason is None and scope.get("method") in ("POST", "PUT", "PATCH"):
            reason, status = _no_json(headers), 415
        if reason is None:
            await app(scope, receive, send)
            return
        _LOGGER.warning("%s was refused: %s", _client_of(scope), escaped(reason))
        refusal = JSONResponse({"detail": reason}, status)
        await _refuse(refusal, scope, receive, send)

    return guarded


async def _refuse(refusal: Any, scope: Any, receive: Any, send: Any) -> None:
    """Sends a refusal, to a client that asks for a WebSocket as well."""
    from starlette.websockets import WebSocket

    if scope["type"] == "websocket":
        websocket = WebSocket(scope, receive, send)
        await websocket.receive()
        await websocket.send_denial_response(refusal)
    else:
        await refusal(scope, receive, send)


def _no_json(headers: Any) -> str | None:
    """Returns why a body is not taken; a request without one needs no type."""
    kind = headers.get("content-type", "")
    has_body = (
        "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
    )
    if is_json(kind) or not (kind or has_body):
        return None
    return f"The header Content-Type must be application/json, got {kind[:80]!r}."


def _logged(app: Any) -> Any:
    """Returns the application with a line in the log for each client."""

    async def logged(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket" or scope.get("method") == "POST":
            what = scope.get("method", "a session by")
            _LOGGER.info("%s asks for %s %s", _client_of(scope), what, _path_of(scope))
        await app(scope, receive, send)

    return logged


def _client_of(scope: Any) -> str:
    host, port = scope.get("client") or ("?", 0)
    return f"{host}:{port}"


def _path_of(scope: Any) -> str:
    return escaped(scope["path"][:80])


def _token_in(headers: Any) -> bytes | None:
    """Returns the token in the header `Authorization`; `None` if there is none.

    OpenEnv's own client sends no header of its users', but their address may have a
    name and a password, which become one of the scheme `Basic`: the password is it.
    A browser adds that header to the requests of other sites' pages, too, which name
    their site.
    """
    header: str = headers.get("authorization", "")
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode("latin-1")
    if scheme.lower() != "basic" or "origin" in headers:
        return None
    try:
        return base64.b64decode(value.strip(), validate=True).partition(b":")[2]
    except ValueError:  # binascii.Error is one, too.
        return None


def _listening(options: ServeOptions) -> socket.socket:
    port = _PORT if options.port is None else options.port
    return listener(options.host, port)


def _require() -> None:
    for package in ("starlette", "uvicorn", "websockets"):
        if importlib.util.find_spec(package) is None:
            raise MissingDependencyError.needed_by(
                "Serving by OpenEnv's protocol", package=package, extra="openenv"
            )
