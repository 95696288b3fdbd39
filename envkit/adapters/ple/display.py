"""Reserves pygame's display: a process has only one, for only one game.

A second game would resize it, draw over the first game's picture and take its keys from
the queue; both would then return wrong results. So the display belongs to one wrapper
until that is closed or garbage-collected.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from typing import Any

from envkit.play.window import WINDOW, surface

__all__ = [
    "acquire",
    "blank_of",
    "close",
    "forget_keys",
    "put_blank",
    "release",
]

_lock = threading.Lock()
# The owner and its process: a fork copies this variable, but not the game.
_holder: tuple[int, weakref.ref[Any]] | None = None


def acquire(owner: object) -> None:
    """Gives the display to `owner`.

    Raises:
        RuntimeError: Another object owns it.
    """
    global _holder
    if WINDOW.is_open:
        raise RuntimeError(
            "An environment shows its picture in a window, and pygame has one display "
            "for all of a process: a game of PLE would draw over it. Close that "
            "environment first, or run the game in a worker process: "
            "ParallelPyEnvironment([make_game])."
        )
    with _lock:
        if _is_held():
            # An owner that is only kept alive by a reference cycle is unused.
            gc.collect()
        if _is_held():
            raise RuntimeError(
                "There is a game of PLE in this process already, and pygame has one "
                "display for all of a process: two games would draw over each other "
                "and take each other's keys. Close the first one, or give each game "
                "a worker process of its own: "
                "ParallelPyEnvironment([make_game] * 8, num_workers=8)."
            )
        _holder = os.getpid(), weakref.ref(owner)


def release(owner: object) -> None:
    """Frees the display if `owner` owns it."""
    global _holder
    with _lock:
        if _holder is not None and _holder[1]() is owner:
            _holder = None


def close(owner: object) -> None:
    """Closes the display and frees it if `owner` owns it."""
    if _holder is not None and _holder[1]() is owner:
        if surface() is not None:
            sys.modules["pygame"].display.quit()
        release(owner)


def _is_held() -> bool:
    return (
        _holder is not None and _holder[0] == os.getpid() and _holder[1]() is not None
    )


def blank_of() -> Any:
    """Returns a copy of the display's picture; `None` without a display."""
    shown = surface()
    return None if shown is None else shown.copy()


def put_blank(blank: Any) -> None:
    """Shows a result of `blank_of`."""
    shown = surface()
    if blank is not None and shown is not None:
        shown.blit(blank, (0, 0))


def forget_keys() -> None:
    """Empties the queue of unread key presses."""
    if surface() is not None:
        sys.modules["pygame"].event.clear()
