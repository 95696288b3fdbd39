"""Lifelines and marks, which end workers and their helpers with the parent.

A lifeline is a pipe to which nothing is ever written. Its writing end closes however
the parent ends, and then the kernel kills the worker and everything in its process
group, even if it is stopped or busy in native code. Helpers that have left the group
are found by the mark, an environment variable that programs inherit.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from envkit.parallel.system.doorbell import is_readable

__all__ = [
    "MARK",
    "close_lifeline",
    "end_with",
    "forget_in_forks",
    "mark_helpers",
    "open_lifeline",
    "without_forks",
]

MARK = "ENVKIT_POOL"

# Descriptors whose closing tells workers that this process is gone. A fork must not
# hold them.
_lifelines: set[int] = set()
# Makes a fork in another thread wait until a new lifeline is in the set, and until a
# program that is being started has begun.
_opening = threading.RLock()
_hooked: list[bool] = []
# Objects with descriptors that a fork inherits and must close by their `forget()`.
_owners: weakref.WeakSet[Any] = weakref.WeakSet()
_forgetting: list[bool] = []


def open_lifeline() -> tuple[int, int]:
    """Opens a pipe whose reader becomes readable once this process has ended."""
    with without_forks():
        read, write = os.pipe()
        _lifelines.add(write)
    return read, write


@contextlib.contextmanager
def without_forks() -> Iterator[None]:
    """Delays forks in other threads until the block is over.

    `subprocess` waits for a pipe to close to know that a program has begun. A fork that
    inherits the pipe at that moment would hold it open as long as it runs.
    """
    if not _hooked and hasattr(os, "register_at_fork"):
        _hooked.append(True)
        os.register_at_fork(
            before=_opening.acquire,
            after_in_parent=_opening.release,
            after_in_child=_close_in_fork,
        )
    with _opening:
        yield


def close_lifeline(write: int) -> None:
    """Closes the writer, unless a fork has done so already."""
    with _opening:
        if write in _lifelines:
            _lifelines.discard(write)
            os.close(write)


def forget_in_forks(owner: Any) -> None:
    """Makes forks call `owner.forget()`, to close the descriptors they inherited.

    A lifeline or link held open by a fork would keep workers alive after their parent.

    Args:
        owner: An object such as a backend. Only a weak reference to it is kept.
    """
    if not _forgetting and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget_all)
        _forgetting.append(True)
    _owners.add(owner)


def _forget_all() -> None:
    for owner in list(_owners):
        owner.forget()


def _close_in_fork() -> None:
    for fd in _lifelines:
        with contextlib.suppress(OSError):
            os.close(fd)
    _lifelines.clear()
    _opening.release()


def end_with(lifeline_fd: int) -> None:
    """Ends this process and its children when the other end of the lifeline closes."""
    if sys.platform == "linux":
        fcntl.fcntl(lifeline_fd, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline_fd, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(lifeline_fd, fcntl.F_GETFL)
        fcntl.fcntl(lifeline_fd, fcntl.F_SETFL, flags | os.O_ASYNC)
        if is_readable(lifeline_fd, 0.0):  # The other end has closed already.
            os.killpg(0, signal.SIGKILL)
        return

    def watch() -> None:
        with contextlib.suppress(OSError):
            os.read(lifeline_fd, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="envkit-lifeline", daemon=True).start()


def mark_helpers() -> None:
    """Marks the future helpers of this worker as its own."""
    if MARK in os.environ:
        os.environ[MARK] += f"{os.getpid()}."
