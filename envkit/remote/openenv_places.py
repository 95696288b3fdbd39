"""Places of OpenEnv's clients: sessions with their environments.

A WebSocket has a place of its own. OpenEnv's `MCPToolClient` asks for one over HTTP,
uses it by its name in further requests, and may share it with a WebSocket.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from envkit.remote.env_threads import EnvThread
from envkit.remote.openenv_messages import (
    JsonAnswer,
    Left,
    MessageError,
    PlaceAsked,
    ServedSession,
    ServerEvent,
    SessionState,
    rpc_answer,
)

__all__ = ["Ask", "Place", "Places"]

# Carries out a request, in the environment's thread, even if the client leaves.
Ask = Callable[[EnvThread, ServedSession, ServerEvent], Awaitable[JsonAnswer]]

_INVALID_PARAMS, _SERVER_ERROR = -32602, -32000


class Place:
    """A session and its environment, used by one request at a time.

    Attributes:
        session: The session.
        has_socket: Whether a WebSocket uses it.
        is_leaving: Whether it ends when the WebSocket does.
        used: How many messages it has had.
    """

    def __init__(self, env: EnvThread, session: ServedSession, ask: Ask) -> None:
        """Takes both, and what carries out requests."""
        self._env, self.session, self._ask = env, session, ask
        self._lock = asyncio.Lock()
        self.has_socket = self.is_leaving = False
        self.used = 0

    async def receive(self, text: str | bytes | None) -> JsonAnswer | Left:
        """Answers a message from a WebSocket."""
        # Hot: called once per step.
        async with self._lock:
            return await self._answered(self.session.receive(text))

    async def receive_rpc(self, body: bytes) -> JsonAnswer | Left:
        """Answers a request by JSON-RPC."""
        async with self._lock:
            return await self._answered(self.session.receive_body("mcp", body))

    async def _answered(self, event: ServerEvent) -> JsonAnswer | Left:
        # Hot: called once per step.
        self.used += 1
        if isinstance(event, JsonAnswer | Left):
            return event
        return await self._ask(self._env, self.session, event)


class Places:
    """Places that clients have asked for over HTTP."""

    def __init__(
        self,
        new_place: Callable[[], AbstractAsyncContextManager[Place]],
        idle_timeout: float,
    ) -> None:
        """Takes what makes a place, and how long one may be unused."""
        self._new_place, self._idle_timeout = new_place, idle_timeout
        self._places: dict[str, tuple[Place, contextlib.AsyncExitStack]] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Returns how many there are without a WebSocket."""
        return sum(not place.has_socket for place, _ in self._places.values())

    def end(self) -> list[asyncio.Task[None]]:
        """Starts ending all of them, as the server stops."""
        for place, _ in self._places.values():
            place.is_leaving = True
        return [
            asyncio.ensure_future(self._end(name))
            for name, (place, _) in self._places.items()
            if not place.has_socket
        ]

    async def answer(self, asked: PlaceAsked, body: bytes) -> JsonAnswer:
        """Makes, uses or ends a place."""
        if asked.what == "create":
            return await self._create(asked)
        found = self._places.get(asked.name)
        if found is None:
            return _refusal(asked, _INVALID_PARAMS, "Unknown session_id.")
        if asked.what == "close":
            return await self._close(asked, found[0])
        answer = await found[0].receive_rpc(body)
        if isinstance(answer, Left):
            return _refusal(asked, _INVALID_PARAMS, "The session has ended.")
        return answer

    async def _create(self, asked: PlaceAsked) -> JsonAnswer:
        stack = contextlib.AsyncExitStack()
        try:
            place = await stack.enter_async_context(self._new_place())
        except MessageError as error:
            return _refusal(asked, _SERVER_ERROR, str(error))
        name = secrets.token_urlsafe(24)
        self._places[name] = place, stack
        self._watch(name, place)
        return rpc_answer(asked.id, result={"session_id": name})

    async def _close(self, asked: PlaceAsked, place: Place) -> JsonAnswer:
        result = {"session_id": asked.name, "closed": not place.has_socket}
        if place.has_socket:
            place.is_leaving = result["closing"] = True
        else:
            await self._end(asked.name)
        return rpc_answer(asked.id, result=result)

    @contextlib.asynccontextmanager
    async def shared(self, name: str) -> AsyncIterator[Place]:
        """Lends a place to a WebSocket.

        Raises:
            MessageError: There is no such place, or another WebSocket uses it.
        """
        place, _ = self._places.get(name, (None, None))
        if place is None or place.has_socket:
            what = "Unknown session_id." if place is None else "The session is in use."
            raise MessageError("SESSION_ERROR", what)
        place.has_socket = True
        try:
            yield place
        finally:
            place.has_socket = False
            if place.is_leaving or place.session.state is SessionState.CLOSED:
                await self._end(name)

    async def _end(self, name: str) -> None:
        _, stack = self._places.pop(name, (None, None))
        if stack is not None:
            await stack.aclose()

    def _watch(self, name: str, place: Place, used: int = 0) -> None:
        """Ends a place that nobody uses for too long."""

        def look() -> None:
            if self._places.get(name, (None,))[0] is not place:
                return
            if place.used != used or place.has_socket:
                self._watch(name, place, place.used)
                return
            task = asyncio.ensure_future(self._end(name))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

        asyncio.get_running_loop().call_later(self._idle_timeout, look)


def _refusal(asked: PlaceAsked, code: int, what: str) -> JsonAnswer:
    return rpc_answer(asked.id, error={"code": code, "message": what})
