"""Leases of environments, in the order in which they were asked for."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

from envkit.errors import EnvkitError
from envkit.extend import counted
from envkit.sessions.session import Session, Slot

__all__ = ["Group", "Lease", "LeaseTimeout", "Lender", "Queue"]

T = TypeVar("T")


if sys.version_info >= (3, 11):
    _TimeoutError = TimeoutError
else:

    class _TimeoutError(asyncio.TimeoutError, TimeoutError):
        """Both classes, which are one since Python 3.11."""


class LeaseTimeout(EnvkitError, _TimeoutError):
    """No environment became free in time."""


class Lender(Protocol):
    """What a lease asks of `Sessions`."""

    async def acquire(
        self,
        seeds: Sequence[int | None],
        timeout: float | None,
        *,
        has_one_episode: bool = False,
    ) -> list[Session]:
        """Waits for free environments, and returns sessions with them."""


class Queue:
    """Free slots, and coroutines that wait for some, first come, first served."""

    def __init__(self) -> None:
        self.free: deque[Slot] = deque()
        self._waiting: deque[tuple[int, asyncio.Future[list[Slot]]]] = deque()

    @property
    def waiting(self) -> int:
        """How many coroutines wait."""
        return sum(not future.done() for _, future in self._waiting)

    def add(self, slot: Slot) -> None:
        """Adds a free slot."""
        self.free.append(slot)
        self._serve()

    async def take(self, count: int, timeout: float | None) -> list[Slot]:
        """Waits until `count` slots are free and all earlier callers are served.

        Raises:
            LeaseTimeout: They were not within `timeout` seconds.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Slot]] = loop.create_future()
        self._waiting.append((count, future))
        self._serve()
        alarm = None
        if timeout is not None:
            alarm = loop.call_later(timeout, self._expire, count, future, timeout)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and not future.exception():
                # It was cancelled after it had been served.
                self.free.extend(future.result())
            future.cancel()
            self._serve()
            raise
        finally:
            if alarm is not None:
                alarm.cancel()

    def _expire(
        self, count: int, future: asyncio.Future[list[Slot]], timeout: float
    ) -> None:
        if future.done():
            return
        ahead = self.waiting - 1
        wanted = "No environment" if count == 1 else f"No {count} environments"
        future.set_exception(
            LeaseTimeout(
                f"{wanted} became free within {timeout:g} seconds; "
                f"{counted(ahead, 'other coroutine')} waited too. Pass a larger size, "
                "a longer timeout, or an idle_timeout, which takes forgotten sessions "
                "back."
            )
        )
        self._serve()

    def refuse(self, error: Callable[[], BaseException], *, most: int = 0) -> None:
        """Raises in the coroutines that wait for more than `most` slots."""
        for count, future in self._waiting:
            if count > most and not future.done():
                future.set_exception(error())
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            count, future = self._waiting[0]
            if not future.done():
                if len(self.free) < count:
                    return
                future.set_result([self.free.popleft() for _ in range(count)])
            self._waiting.popleft()


class Lease:
    """An environment to be leased: `async with sessions.lease() as session`.

    `await sessions.lease()` also returns the session, which is then given back with
    `session.release()`, or with `async with session`.
    """

    def __init__(self, lender: Lender, seed: int | None, timeout: float | None) -> None:
        """Stores the terms; use `Sessions.lease` to make one."""
        self._lender = lender
        self._seed = seed
        self._timeout = timeout
        self._sessions: list[Session] = []

    async def _take(self) -> Session:
        (session,) = await self._lender.acquire([self._seed], self._timeout)
        return session

    def __await__(self) -> Generator[Any, None, Session]:
        return self._take().__await__()

    async def __aenter__(self) -> Session:
        session = await self._take()
        self._sessions.append(session)
        return session

    async def __aexit__(self, *_: Any) -> None:
        self._sessions.pop().release()


class Group:
    """Several attempts at the same episode.

    Each member has one episode. When that has ended, its environment is given back,
    and `turn` still shows how it ended.

    Example:
        >>> import asyncio
        >>> from envkit.sessions import Sessions
        >>> async def attempt(session):
        ...     turn = await session.reset()
        ...     while turn.end is None:
        ...         turn = await session.step(1)
        ...     return turn.total
        >>> async def play():
        ...     async with Sessions("Catch", size=4) as sessions:
        ...         return await sessions.group(seed=7, size=8).run(attempt)
        >>> asyncio.run(play())
        [-1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0]
    """

    def __init__(
        self, lender: Lender, seed: int, size: int, timeout: float | None
    ) -> None:
        """Stores the terms; use `Sessions.group` to make one."""
        self._lender = lender
        self._seed = seed
        self._size = size
        self._timeout = timeout
        self._members: list[Session] = []

    async def _take(self, count: int) -> list[Session]:
        return await self._lender.acquire(
            [self._seed] * count, self._timeout, has_one_episode=True
        )

    async def __aiter__(self) -> AsyncIterator[Session]:
        """Yields the members one by one, each as soon as an environment is free."""
        for _ in range(self._size):
            (session,) = await self._take(1)
            yield session

    async def __aenter__(self) -> list[Session]:
        """Waits until there is an environment for every member."""
        self._members = await self._take(self._size)
        return self._members

    async def __aexit__(self, *_: Any) -> None:
        for session in self._members:
            session.release()

    async def run(self, attempt: Callable[[Session], Awaitable[T]]) -> list[T]:
        """Runs a coroutine function with each member, all at once.

        If one raises, the others are cancelled, and its exception is raised. A lost
        environment raises nothing: it shows in the member's last turn.

        Args:
            attempt: Plays an episode with a session.

        Returns:
            What the attempts returned.
        """

        async def one() -> T:
            (session,) = await self._take(1)
            async with session:
                return await attempt(session)

        tasks = [asyncio.ensure_future(one()) for _ in range(self._size)]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
