"""Signals to end as an exception, so that what was begun is put in order."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["Terminated", "ended_by_signals"]

# The second one comes when a terminal is closed.
_TO_END = ("SIGTERM", "SIGHUP")


class Terminated(SystemExit):
    """The program was told to end, which no code of an environment does."""


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Lets signals end the program as `sys.exit` would, while the block runs."""
    # Python lets the main thread alone say what happens.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    known = [getattr(signal, name) for name in _TO_END if hasattr(signal, name)]
    # What nohup and others ignore is left to them.
    before = {
        number: signal.signal(number, _exit)
        for number in known
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, _: Any) -> None:
    raise Terminated(128 + number)
