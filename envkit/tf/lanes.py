"""Lanes: in which thread the calls to a Python environment run, one at a time.

TensorFlow calls Python from threads of its own, and two calls of one environment must
not meet in it. `CallersThread` lets whoever calls do the work and refuses a second
call; `OneThread` and `GivenThreads` let the second wait.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from typing import Any, Protocol

from envkit.errors import CallOrderError, ClosedError
from envkit.interruptible import result_of, wait_for_end
from envkit.specs.validation import describe

__all__ = ["CallersThread", "GivenThreads", "Lane", "OneThread", "lane_for"]


class Lane(Protocol):
    """Runs functions, never two at a time."""

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Runs a function, and returns or raises what it does."""

    def close(self) -> None:
        """Ends what the lane has started; calling it again does nothing."""


def lane_for(isolation: Any) -> Lane:
    """Returns the lane that `isolation` asks for.

    Example:
        >>> lane = lane_for(True)
        >>> lane.run(sum, [1, 2])
        3
        >>> lane.close()
    """
    if isolation is True:
        return OneThread()
    if isolation is False:
        return CallersThread()
    if isinstance(isolation, ProcessPoolExecutor):
        submit = None
    else:
        submit = _submit_of(isolation)
    if submit is None:
        raise TypeError(
            f"isolation is {describe(isolation)}; it is True for a thread of its own, "
            "False for the thread of whoever calls, or a pool of threads to use: a "
            "concurrent.futures.ThreadPoolExecutor or multiprocessing.pool.ThreadPool."
        )
    return GivenThreads(submit)


def _submit_of(pool: Any) -> Callable[..., Any] | None:
    """Returns what runs a function in a pool's threads; `None` if it is no pool."""
    if isinstance(pool, Executor):
        return lambda function, *args: result_of(pool.submit(function, *args))
    from multiprocessing.pool import ThreadPool

    if isinstance(pool, ThreadPool):
        return lambda function, *args: pool.apply(function, args)
    return None


class CallersThread:
    """Runs functions in the thread that calls, and refuses a second one meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Runs a function, and returns or raises what it does."""
        # Hot: called once per step.
        lock = self._lock
        if not lock.acquire(False):
            raise CallOrderError(
                "Detected concurrent execution of two calls to one environment: a step "
                "or reset was called while another is still running. Take turns, or "
                "use TFPyEnvironment(environment, isolation=True), which lets the "
                "second call wait."
            )
        try:
            return function(*args)
        finally:
            lock.release()

    def close(self) -> None:
        """Does nothing: no thread was started."""


class GivenThreads:
    """Runs functions in somebody's pool of threads, one at a time."""

    def __init__(self, submit: Callable[..., Any]) -> None:
        """Takes what runs a function in the pool and waits for it."""
        self._submit = submit
        # Taken where the function runs: who waits for it may be interrupted meanwhile.
        self._lock = threading.RLock()
        self._threads: set[int] = set()

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Runs a function, and returns or raises what it does."""
        if threading.get_ident() in self._threads:
            # One of the pool's own, which may be all there are.
            return self._run_here(function, args)
        return self._submit(self._run_here, function, args)

    def _run_here(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self._threads.add(threading.get_ident())
        with self._lock:
            return function(*args)

    def close(self) -> None:
        """Does nothing: the pool is its owner's."""


class OneThread:
    """Runs functions in one thread of its own, in the order in which they come.

    Some environments only work in the thread that made them: those with a window, an
    OpenGL context, an event loop.
    """

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        # A daemon, so that an environment that hangs does not keep Python from ending.
        self._thread = threading.Thread(
            target=_work, args=(self._tasks,), name="envkit-isolation", daemon=True
        )
        self._thread.start()
        self._lock = threading.Lock()
        self._has_ended = False
        self._end = weakref.finalize(self, self._tasks.put, None)

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Runs a function, and returns or raises what it does."""
        if threading.current_thread() is self._thread:
            # The environment itself is asking; waiting for it would be for ever.
            return function(*args)
        future: Future[Any] = Future()
        # What came after the end would be waited for, for ever.
        with self._lock:
            if self._has_ended:
                raise ClosedError(
                    "An environment was used after close(), which ended its thread. "
                    "Make a new one."
                )
            self._tasks.put((future, function, args))
        try:
            return result_of(future)
        finally:
            # The exception refers to this frame, which would keep it alive.
            del future

    def close(self) -> None:
        """Ends the thread when it has done what it was asked for."""
        with self._lock:
            self._has_ended = True
            self._end()
        if threading.current_thread() is not self._thread:
            wait_for_end(self._thread)


_Task = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


def _work(tasks: queue.SimpleQueue[_Task | None]) -> None:
    """Does tasks until it is told to stop."""
    while True:
        task = tasks.get()
        if task is None:
            return
        future, function, args = task
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)
        # Nobody else may keep alive what the caller has let go.
        del task, future, function, args
