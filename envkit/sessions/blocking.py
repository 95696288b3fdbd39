"""`BlockingSessions`: sessions for programs that call from threads, and block."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from envkit.errors import CallOrderError, ClosedError
from envkit.sessions.session import Session
from envkit.sessions.sessions import Sessions

__all__ = ["BlockingSessions"]

T = TypeVar("T")

# Seconds between two looks at whether the program ends.
_GLANCE = 1.0
# Seconds for the thread to close the environments, when Python exits.
_PATIENCE = 10.0


class BlockingSessions:
    """Sessions whose event loop has a thread of its own.

    The thread starts with the first call. It ends with `close`, when nothing refers to
    this object any more, or when Python exits.

    Example:
        >>> from envkit.sessions import Sessions
        >>> async def first_text(sessions):
        ...     async with sessions.lease(seed=7) as session:
        ...         return (await session.reset()).text[:3]
        >>> shared = BlockingSessions(Sessions("GridWorld", 1))
        >>> shared.call(first_text, shared.sessions)
        '[[['
        >>> shared.close()
    """

    def __init__(self, sessions: Sessions) -> None:
        """Takes sessions that are not open yet."""
        self.sessions = sessions
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._thread: _LoopThread | None = None
        self._is_closed = False

    def call(
        self, function: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any
    ) -> T:
        """Calls a coroutine function in the event loop, and returns its result."""

        async def answer() -> T:
            return await function(*args, **kwargs)

        return self._opened().wait(answer)

    def _opened(self) -> _LoopThread:
        if os.getpid() != self._pid:
            raise CallOrderError(
                "The environments were started in another process, of which this one "
                "is a fork: make the view anew here."
            )
        with self._lock:
            if self._is_closed:
                raise ClosedError.used("Sessions", "lease")
            if self._thread is None:
                self._thread = thread = _LoopThread(self.sessions)
                weakref.finalize(self, thread.stop).atexit = False
                _THREADS.add(thread)
                thread.start()
            return self._thread

    def release(self, session: Session) -> None:
        """Gives a session's environment back."""
        with contextlib.suppress(ClosedError):
            self.call(_release, session)

    def close(self) -> None:
        """Closes the environments and ends the thread; again, it does nothing."""
        with self._lock:
            self._is_closed = True
            if self._thread is not None and os.getpid() == self._pid:
                self._thread.stop()
                self._thread.join()


class _LoopThread:
    """The thread, and the way into its event loop."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._has_loop = threading.Event()
        self._is_open: concurrent.futures.Future[None] = concurrent.futures.Future()
        # A daemon: Python waits for other threads before it calls `_close_all`.
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()),
            name="envkit-sessions-loop",
            daemon=True,
        )

    def start(self) -> None:
        """Starts the thread, which builds the environments."""
        self._thread.start()
        self._has_loop.wait()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        self._has_loop.set()
        try:
            await self._sessions.open()
        except BaseException as error:
            self._is_open.set_exception(error)
            return
        self._is_open.set_result(None)
        try:
            await self._stopped.wait()
        finally:
            await self._sessions.close()

    def wait(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine function in the loop, and returns its result.

        Whatever kept the environments from being built is raised in every call.
        """
        self._is_open.result()
        coroutine = function()
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the loop is closed
            coroutine.close()
            raise ClosedError.used("Sessions", "lease") from None
        try:
            while not concurrent.futures.wait([future], _GLANCE).done:
                if not threading.main_thread().is_alive():
                    # Python is about to exit, and waits for this thread.
                    raise ClosedError("The program ends while an environment answers.")
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClosedError(
                "The sessions were closed while an environment was answering."
            ) from None
        finally:
            future.cancel()

    def stop(self) -> None:
        """Makes the thread close the environments and end; waits for nothing."""
        # The loop may be closed: the environments are, or could not be built.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopped.set)

    def join(self, timeout: float | None = None) -> None:
        """Waits until the thread has ended."""
        self._thread.join(timeout)


async def _release(session: Session) -> None:
    session.release()


_THREADS: weakref.WeakSet[_LoopThread] = weakref.WeakSet()


def _close_all() -> None:
    for thread in list(_THREADS):
        thread.stop()
        thread.join(_PATIENCE)


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):  # a fork has none of the threads
    os.register_at_fork(after_in_child=_THREADS.clear)
