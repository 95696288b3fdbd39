"""Finds the processes of this machine, and the pools they run, on Linux."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from envkit.parallel.durability.published import PublishedMemory, PublishedPool

__all__ = [
    "FoundPool",
    "exists",
    "inner_pid",
    "pids",
    "running_pools",
    "shared",
    "tree_of",
]

# The name of envkit's anonymous memory in /proc.
_SHARED = "/memfd:envkit "


def pids() -> list[int]:
    """Lists the processes that are visible from here."""
    if not sys.platform.startswith("linux"):
        raise NotImplementedError(
            "Pools of other processes are found in /proc, which only Linux has."
        )
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def tree_of(root: int) -> list[int]:
    """Returns a process and all processes below it."""
    children = defaultdict(list)
    for pid in pids():
        _, _, tail = _text(f"/proc/{pid}/stat").rpartition(")")
        if tail:
            children[int(tail.split()[1])].append(pid)
    found = [root]
    for pid in found:
        found += children[pid]
    return found


def exists(pid: int) -> bool:
    """Returns True if the process exists and has not ended."""
    head, _, tail = _text(f"/proc/{pid}/stat").rpartition(")")
    return bool(head) and tail.split()[0] not in {"Z", "X"}


def inner_pid(pid: int) -> int:
    """Returns a process's own view of its pid, which differs in a container."""
    for line in _text(f"/proc/{pid}/status").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid


def shared(pid: int) -> Iterator[tuple[str, int]]:
    """Yields path and inode of each envkit memory that a process has open."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:  # another user's, or it has ended
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


class FoundPool(NamedTuple):
    """A pool of another process.

    Attributes:
        pid: The process that runs it, as seen from here.
        path: Its memory, as a file.
        inode: That file's inode, which is unique.
        facts: Its own description.
        members: The pids, as seen from here, of the processes that hold the memory, by
            their own view of their pid.
    """

    pid: int
    path: str
    inode: int
    facts: PublishedPool
    members: dict[int, int]

    def __str__(self) -> str:
        return f"{self.facts.program} (pid {self.pid})"

    def workers(self) -> dict[int, int]:
        """Returns the pids of its workers that have a process, by their index."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # it has ended
            return {}
        try:
            workers = PublishedMemory(fd, self.facts).workers()
        finally:
            os.close(fd)
        return {
            index: self.members[worker.process]
            for index, worker in enumerate(workers)
            if worker.process in self.members
        }

    def answers_to(self, name: str) -> bool:
        """Returns True if a pid or a name means this pool."""
        facts = self.facts
        names = {
            str(self.pid),
            facts.program,
            os.path.splitext(facts.program)[0],
        }
        return name in names or any(
            name == target or target.startswith(f"{name}-v") for target in facts.targets
        )


def running_pools(among: Iterable[int] | None = None) -> list[FoundPool]:
    """Returns this user's running pools, the oldest first.

    Args:
        among: The processes to look at; `None` for all.
    """
    holders: dict[int, dict[int, str]] = {}
    for pid in pids() if among is None else among:
        for path, inode in shared(pid):
            holders.setdefault(inode, {}).setdefault(pid, path)
    found = [_pool_of(inode, paths) for inode, paths in holders.items()]
    return sorted(
        (pool for pool in found if pool is not None),
        key=lambda pool: pool.facts.began,
    )


def _pool_of(inode: int, paths: dict[int, str]) -> FoundPool | None:
    # A worker holds it too, and so may a fork that is about to release it.
    members = {inner_pid(pid): pid for pid in paths}
    for path in paths.values():
        facts = _facts_in(path)
        if facts is not None:
            pid = members.get(facts.pid)
            if pid is None:  # its owner has ended, and its workers will
                return None
            return FoundPool(pid, paths[pid], inode, facts, members)
    return None


def _facts_in(path: str) -> PublishedPool | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return PublishedPool.read(fd)
        finally:
            os.close(fd)
    return None
