"""What Linux tells of other processes: who they are, and which pools they hold."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

__all__ = ["exists", "inner_pid", "owner_of", "pids", "shared"]

# What envkit's anonymous memory is called there.
_SHARED = "/memfd:envkit "


def pids() -> list[int]:
    """Returns the processes that can be seen from here."""
    if not sys.platform.startswith("linux"):
        raise NotImplementedError(
            "Pools of other processes are found in /proc, which only Linux has."
        )
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def exists(pid: int) -> bool:
    """Says whether there is such a process that has not ended."""
    head, _, tail = _text(f"/proc/{pid}/stat").rpartition(")")
    return bool(head) and tail.split()[0] not in {"Z", "X"}


def owner_of(pid: int) -> int | None:
    """Returns the user whose process it is; `None` if there is none."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def inner_pid(pid: int) -> int:
    """Returns what a process takes for its own number, as in a container."""
    for line in _text(f"/proc/{pid}/status").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid


def shared(pid: int) -> Iterator[tuple[str, int]]:
    """Yields path and number of each memory of envkit that a process has open."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:  # It is another user's, or has ended.
        return
    for name in names:
        with contextlib.suppress(OSError):
            path = f"{folder}/{name}"
            if os.readlink(path).startswith(_SHARED):
                yield path, os.stat(path).st_ino


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
