"""Waits for other threads in a way that Ctrl-C can interrupt.

Python checks for interrupts before it waits, and wakes up for one that arrives during
the wait. One that arrives in between goes unnoticed until the wait ends, so all waits
here are short and repeated.
"""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

__all__ = ["result_of", "wait_for_change", "wait_for_end", "wait_for_event"]

Result = TypeVar("Result")

_LONGEST = 0.5  # seconds: short enough for Ctrl-C


def wait_for_change(changed: threading.Condition, timeout: float | None = None) -> None:
    """Waits briefly for a change; the caller checks, and calls again."""
    changed.wait(_LONGEST if timeout is None else min(timeout, _LONGEST))


def result_of(future: Future[Result], timeout: float | None = None) -> Result:
    """Waits for a future, and returns its result or raises its error.

    After `timeout` seconds it raises the same error as `future.result(timeout)`.

    Example:
        >>> from concurrent.futures import Future
        >>> future = Future()
        >>> future.set_result(3)
        >>> result_of(future)
        3
    """
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        left = max(deadline - time.monotonic(), 0.0)
        try:
            return future.result(min(left, _LONGEST))
        except FutureTimeoutError:
            if future.done():  # it has just arrived, or the error is its own
                return future.result()
            if left <= _LONGEST:
                raise


def wait_for_event(event: threading.Event) -> None:
    """Waits until an event is set.

    Example:
        >>> event = threading.Event()
        >>> event.set()
        >>> wait_for_event(event)
    """
    while not event.wait(_LONGEST):
        pass


def wait_for_end(thread: threading.Thread) -> None:
    """Waits until a thread has ended.

    Example:
        >>> thread = threading.Thread(target=list)
        >>> thread.start()
        >>> wait_for_end(thread)
        >>> thread.is_alive()
        False
    """
    while thread.is_alive():
        thread.join(_LONGEST)
