"""The one rule for Ctrl-C: the engine is protected, and a wait is the checkpoint.

Bookkeeping runs under `uninterrupted()`, so that it is done whole or not at all; waits
do not, so that Ctrl-C ends them at once. The numbers of the slab make the regular step
safe without it.
"""

from __future__ import annotations

# Beneath `signal`, which turns handlers into members of an enum: that takes ten times
# as long as the call itself, and this stands twice around every step over links.
import _signal  # type: ignore[import-not-found]
import signal
import threading
from typing import Any

__all__ = ["uninterrupted"]


class uninterrupted:  # it is used like a function
    """Holds Ctrl-C back for as long as the block runs.

    It is for bookkeeping that takes milliseconds, never for anything that waits.

    Example:
        >>> with uninterrupted():
        ...     books = ["both", "or none"]
        >>> len(books)
        2
    """

    __slots__ = ("_before", "_came")

    def __enter__(self) -> None:
        # Hot: called twice per batch step over links.
        self._before: Any = None
        # Because Python runs handlers in the main thread only, other threads need no
        # protection, and they may not change handlers. A handler that is not a function
        # of Python stays as it is.
        if threading.get_ident() == threading.main_thread().ident:
            before = _signal.getsignal(signal.SIGINT)
            if callable(before):
                self._came: list[tuple[Any, ...]] = []
                self._before = before
                _signal.signal(signal.SIGINT, self._hold_back)

    def _hold_back(self, *arguments: Any) -> None:
        self._came.append(arguments)

    def __exit__(self, *error: object) -> None:
        before = self._before
        if before is not None:
            _signal.signal(signal.SIGINT, before)
            if self._came:
                before(*self._came[-1])
