"""Waits that Ctrl-C can end, and locks that make threads' calls take turns.

Python checks for interrupts before it waits, and an interrupt during the wait wakes it.
One that comes in between goes unnoticed until the wait is over. So all waits here are
short, and are repeated.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from envkit.errors import CallOrderError

if TYPE_CHECKING:
    pass

__all__ = [
    "CallLock",
    "locked",
    "wait_a_while",
]

Result = TypeVar("Result")
Method = TypeVar("Method", bound=Callable[..., Any])

_LONGEST = 0.5  # seconds: hardly noticeable after Ctrl-C
# Longest sleep of a waiting thread before it checks whether the environment was closed.
_POLL_INTERVAL = 0.05
_RLock: Any = type(threading.RLock())


def wait_a_while(changed: threading.Condition, timeout: float | None = None) -> None:
    """Waits a short time for a change: the caller checks, and calls again.

    Example:
        >>> changed = threading.Condition()
        >>> with changed:
        ...     wait_a_while(changed, timeout=0.0)
    """
    changed.wait(_LONGEST if timeout is None else min(timeout, _LONGEST))


class CallLock(_RLock):  # type: ignore[misc]  # whatever Python has as one
    """Locks an environment for a call; calls of other threads queue.

    The lock is taken in C, so Ctrl-C cannot come between taking it and entering the
    block. Copies and pickles are new locks.

    Attributes:
        call: The running call; the next call repairs what Ctrl-C has left here.
        waiting: The waiting calls, by thread.

    Example:
        >>> lock = CallLock()
        >>> with lock:
        ...     lock.is_mine()
        True
    """

    def __init__(self) -> None:
        """Makes a free lock."""
        self.call: str | None = None
        self.waiting: dict[int, str] = {}
        # Held by the thread that is next.
        self._next = threading.RLock()

    def __reduce__(self) -> Any:
        return CallLock, ()

    def is_mine(self) -> bool:
        """Returns True if this thread holds it."""
        return self._is_owned()  # type: ignore[no-any-return]  # as Condition asks

    def wait(self, call: str, check_open: Callable[[str], None]) -> None:
        """Waits until it is free, after the threads that came first.

        Args:
            call: The name of the call.
            check_open: Called with that name now and then; raises to end the wait.
        """
        me, locks = threading.get_ident(), (self._next, self)
        try:
            self.waiting[me] = call
            for lock in locks:
                while not lock.acquire(timeout=_POLL_INTERVAL):
                    check_open(call)
            check_open(call)
            self.call = None
        finally:
            for lock in locks:
                if lock._is_owned():  # type: ignore[union-attr]
                    lock.release()
            self.waiting.pop(me, None)

    def refuse(self, name: str, call: str) -> CallOrderError:
        """Returns the error for a call made inside another one."""
        under_way = self.call or "step"
        return CallOrderError(
            f"{name}.{call}() was called inside {name}.{under_way}(), which is under "
            "way: by an environment that uses what runs it, or by a signal handler. "
            f"Call it after {under_way}() has returned; close() alone may be called "
            "meanwhile."
        )


def locked(method: Method) -> Method:
    """Makes a method wait until other threads' calls have finished.

    The object must be an environment whose `Internals` have a lock.

    Example:
        >>> from envkit.envs import Catch
        >>> class Counter(Catch):
        ...     @locked
        ...     def call_under_way(self):
        ...         return self._envkit.lock.call
        >>> Counter().call_under_way()
        'call_under_way'
    """
    name = method.__name__

    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        internals = self._envkit
        lock = internals.lock
        if (lock.call is not None or lock.waiting) and not lock.is_mine():
            lock.wait(name, functools.partial(internals.check_open, self))
        with lock:
            before = lock.call
            try:
                lock.call = before or name
                return method(self, *args, **kwargs)
            finally:
                lock.call = before

    return cast(Method, run)
