"""Ctrl-C waits until something that must not be half done is done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["uninterrupted"]


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Holds Ctrl-C back for as long as the block runs.

    It is for bookkeeping that takes milliseconds, never for anything that waits.

    Example:
        >>> with uninterrupted():
        ...     books = ["both", "or none"]
        >>> len(books)
        2
    """
    before = None
    # Python runs handlers in the main thread only, so nobody else is interrupted; and
    # only there may they be changed. What is not Python's own handler is not touched.
    if threading.current_thread() is threading.main_thread():
        before = signal.getsignal(signal.SIGINT)
    if not callable(before):
        yield
        return
    came: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *arguments: came.append(arguments))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            before(*came[-1])
