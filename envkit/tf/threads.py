"""Runs calls to a Python environment in the right thread, one at a time.

TensorFlow calls Python from its own threads, and two calls must not run in one
environment at once. `CallersThread` runs each call in the calling thread and refuses a
second one; `OneThread` and `GivenThreads` make the second one wait.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from typing import Any

from envkit._shared.waits import result_of, wait_for_end
from envkit.errors import CallOrderError, ClosedError
from envkit.extend import describe

__all__ = ["CallersThread", "GivenThreads", "OneThread", "thread_for"]


def thread_for(isolation: Any) -> CallersThread | GivenThreads | OneThread:
    """Returns the thread or threads that `isolation` specifies.

    Example:
        >>> thread = thread_for(True)
        >>> thread.run("sum", sum, [1, 2])
        3
        >>> thread.close()
    """
    if isolation is True:
        return OneThread()
    if isolation is False:
        return CallersThread()
    submit = _submit_of(isolation)
    if submit is None:
        raise TypeError(
            "isolation must be True for a thread of its own, False for the thread of "
            "the caller, or a pool of threads (concurrent.futures.ThreadPoolExecutor "
            f"or multiprocessing.pool.ThreadPool), got {describe(isolation)}."
        )
    return GivenThreads(submit)


def _submit_of(pool: Any) -> Callable[..., Any] | None:
    """Returns a pool's function that runs others in its threads; `None` for no pool."""
    if isinstance(pool, Executor) and not isinstance(pool, ProcessPoolExecutor):
        return lambda function, *args: result_of(pool.submit(function, *args))
    from multiprocessing.pool import ThreadPool

    if isinstance(pool, ThreadPool):
        return lambda function, *args: pool.apply(function, args)
    return None


class CallersThread:
    """Runs calls in the calling thread, and refuses a second one meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way = ""

    def run(self, call: str, function: Callable[..., Any], *args: Any) -> Any:
        """Runs a function, and returns its result or raises its error."""
        # Hot: called once per step.
        lock = self._lock
        if not lock.acquire(False):
            # Users of TF-Agents search for the first words.
            raise CallOrderError(
                f"Detected concurrent execution: TFPyEnvironment.{call}() was called "
                f"while its {self._under_way}() is under way. Call it after "
                f"{self._under_way}() has returned, or use "
                "TFPyEnvironment(environment, isolation=True), with which the second "
                "call waits."
            )
        self._under_way = call
        try:
            return function(*args)
        finally:
            lock.release()

    def close(self) -> None:
        """Does nothing, because no thread was started."""


class GivenThreads:
    """Runs calls in the user's pool of threads, one at a time."""

    def __init__(self, submit: Callable[..., Any]) -> None:
        self._submit = submit
        # Acquired where the function runs, because Ctrl-C may end the caller's wait
        # before the function ends.
        self._lock = threading.RLock()
        self._threads: set[int] = set()

    def run(self, call: str, function: Callable[..., Any], *args: Any) -> Any:
        """Runs a function, and returns its result or raises its error."""
        if threading.get_ident() in self._threads:
            # This thread belongs to the pool, which may have no other.
            return self._run_here(function, args)
        return self._submit(self._run_here, function, args)

    def _run_here(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        self._threads.add(threading.get_ident())
        with self._lock:
            return function(*args)

    def close(self) -> None:
        """Does nothing, because the owner closes the pool."""


class OneThread:
    """Runs calls in its own single thread, in order.

    Some environments work only in the thread that made them: those with a window, an
    OpenGL context or an event loop.
    """

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        # A daemon, so that a hanging environment does not keep Python from ending.
        self._thread = threading.Thread(
            target=_work, args=(self._tasks,), name="envkit-isolation", daemon=True
        )
        self._thread.start()
        self._lock = threading.Lock()
        self._has_ended = False
        self._end = weakref.finalize(self, self._tasks.put, None)

    def run(self, call: str, function: Callable[..., Any], *args: Any) -> Any:
        """Runs a function, and returns its result or raises its error."""
        if threading.current_thread() is self._thread:
            # The environment calls its own wrapper, and would wait forever.
            return function(*args)
        future: Future[Any] = Future()
        # After the end, no thread would take the task.
        with self._lock:
            if self._has_ended:
                raise ClosedError.used("TFPyEnvironment", call)
            self._tasks.put((future, function, args))
        try:
            return result_of(future)
        finally:
            # The exception refers to this frame, which would keep it alive.
            del future

    def close(self) -> None:
        """Ends the thread after the calls already queued."""
        with self._lock:
            self._has_ended = True
            self._end()
        if threading.current_thread() is not self._thread:
            wait_for_end(self._thread)


_Task = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


def _work(tasks: queue.SimpleQueue[_Task | None]) -> None:
    """Runs tasks until there is a `None`."""
    while True:
        task = tasks.get()
        if task is None:
            return
        future, function, args = task
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)
        # Waiting for the next task must not keep alive objects that the caller has
        # released.
        del task, future, function, args
