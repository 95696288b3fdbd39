"""SIGTERM as an exception, so that what was begun is put in order."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["Terminated", "ended_by_sigterm"]


class Terminated(SystemExit):
    """The program was told to end, which no code of an environment does."""


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Lets SIGTERM end the program as `sys.exit` would, while the block runs."""
    # Python lets the main thread alone say what happens.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit(number: int, _: Any) -> None:
    raise Terminated(128 + number)
