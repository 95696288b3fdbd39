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

from envkit._shared.admission import Admission
from envkit._shared.admitting_loop import AdmittingLoop
from envkit._shared.health import HEALTH_PATH, HealthAnswer
from envkit._shared.listening import listener, place_of
from envkit._shared.server_secret import Holder, ServerSecret, WrongSecretError
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
        self._admission = Admission("openenv")
        self._reason: str | None = None
        self._is_closing = False
        with contextlib.ExitStack() as stack:
            self._sites: list[Site] = []
            for offer in menu.offers:
                self._sites.append(Site(offer, options, self._admission))
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

    def health(self) -> list[dict[str, Any]]:
        """Returns where it serves, and how many sessions it has."""
        sessions = sum(site.sessions for site in self._sites)
        return [{"address": self.url, "sessions": sessions}]

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
        config.http_protocol_class = self._refusing(config.http_protocol_class)
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
            self._admission.refuse(place_of(request.client), told)
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
        return _sending_safely(self._guarded(app))

    def _guarded(self, app: Any) -> Any:
        """Returns the application for those who may use it, with lines in the log."""
        from starlette.datastructures import Headers
        from starlette.responses import JSONResponse, Response

        async def guarded(scope: Any, receive: Any, send: Any) -> None:
            headers, place = Headers(scope=scope), place_of(scope.get("client"))
            if scope["type"] == "http" and scope["path"] == HEALTH_PATH:
                answer = HealthAnswer.to(
                    HEALTH_PATH, headers.items(), self._options.host, self._health()
                )
                if answer.refused:
                    self._admission.refuse(place, answer.refused)
                self._admission.excuse(place)
                told = Response(answer.body, answer.status, media_type=_JSON)
                await told(scope, receive, send)
                return
            try:
                client = self._holder_of(headers).at(place)
            except WrongSecretError as error:
                self._admission.refuse(place, error.reason)
                if error.is_guess:
                    host = place.rpartition(":")[0]
                    with self._admission.guesses.late(host) as seconds:
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
            if scope["type"] == "websocket" or scope.get("method") == "POST":
                what = scope.get("method", "a session by")
                self._admission.log(client, f"asks for {what} {scope['path'][:80]}")
            await app(scope, receive, send)

        return guarded

    def _health(self) -> dict[str, Any]:
        """Returns what anyone may know."""
        status = "stopping" if self._is_closing else "ok"
        return {"status": status, "protocol": self._admission.protocol}

    def _holder_of(self, headers: Any) -> Holder:
        """Returns whose token a request has.

        Raises:
            WrongSecretError: It has none that is valid.
        """
        given = _token_in(headers)
        if given is None:
            return self._secret.holder_of(None)
        return self._secret.holder_of(lambda token: hmac.compare_digest(given, token))

    def _refusing(self, protocol: Any) -> Any:
        """Returns uvicorn's protocol with a line in the log for what is not HTTP."""
        admission = self._admission

        class Refusing(protocol):  # type: ignore[misc]  # a class of uvicorn's
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                # Its own line has no address.
                self.logger = _UVICORN

            def send_400_response(self, message: str) -> None:
                admission.refuse(place_of(self.client), message)
                super().send_400_response(message)

        return Refusing


_JSON = "application/json"
_WANTED = (
    "The header 'Authorization: Bearer TOKEN' must have the token, or the address: "
    "http://token:TOKEN@HOST:PORT."
)
_UVICORN = logging.getLogger(f"{__name__}.uvicorn")
_UVICORN.addFilter(lambda record: "Invalid HTTP request" not in record.getMessage())


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
