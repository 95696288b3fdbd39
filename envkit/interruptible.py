"""Waiting that an interrupt ends, even one that comes just as the waiting begins.

Python looks for interrupts before it waits, and is woken by those that come meanwhile.
One that comes in between is overlooked until the waiting is over. So nobody waits for
long at a time here.
"""

from __future__ import annotations

import concurrent.futures
import threading
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["result_of", "wait_a_while", "wait_for_end"]

Result = TypeVar("Result")

_LONGEST = 0.5  # seconds: who has pressed Ctrl-C hardly notices


def wait_a_while(changed: threading.Condition, timeout: float | None = None) -> None:
    """Waits for a change, but not for ever: whoever calls looks, and calls again.

    Example:
        >>> changed = threading.Condition()
        >>> with changed:
        ...     wait_a_while(changed, timeout=0.0)
    """
    changed.wait(_LONGEST if timeout is None else min(timeout, _LONGEST))


def result_of(future: Future[Result]) -> Result:
    """Waits for the result of a future, and returns or raises it.

    Example:
        >>> future = Future()
        >>> future.set_result(3)
        >>> result_of(future)
        3
    """
    while True:
        try:
            return future.result(_LONGEST)
        except concurrent.futures.TimeoutError:
            if future.done():  # It has come by now, or the error is its own.
                return future.result()


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
