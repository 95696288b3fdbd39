"""Defers Ctrl-C while the engine works, and lets it through during waits.

Bookkeeping runs under `uninterrupted()`, so it happens wholly or not at all. Waits do
not, so Ctrl-C ends them at once. The regular step needs no protection, thanks to the
numbers in the slab.
"""

from __future__ import annotations

# The C module beneath `signal`, which turns handlers into enum members. That takes ten
# times as long as the call itself, and every step over links does it twice.
import _signal  # type: ignore[import-not-found]
import signal
import threading
from typing import Any

__all__ = ["uninterrupted"]


class uninterrupted:  # it is used like a function
    """Defers Ctrl-C while the block runs.

    Use it for bookkeeping that takes milliseconds, never around a wait.

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
        # Python runs handlers only in the main thread, so other threads need no
        # protection, and they may not change handlers. A handler that is not a Python
        # function is left alone.
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
