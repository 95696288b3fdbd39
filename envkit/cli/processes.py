"""Finds other processes on Linux: their memory, and the pools they run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

from envkit.cli import processes
from envkit.extend import listed
from envkit.parallel.durability.published import PublishedPool

__all__ = [
    "FoundPool",
    "Memory",
    "exists",
    "inner_pid",
    "memory_cells",
    "memory_of",
    "owner_of",
    "pids",
    "pools_named",
    "running_pools",
    "shared",
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


def exists(pid: int) -> bool:
    """Returns True if the process exists and has not ended."""
    head, _, tail = _text(f"/proc/{pid}/stat").rpartition(")")
    return bool(head) and tail.split()[0] not in {"Z", "X"}


def owner_of(pid: int) -> int | None:
    """Returns the user that owns a process; `None` if there is no process."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


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


class Memory(NamedTuple):
    """The memory of a process, in bytes.

    Attributes:
        proportional: All of it, counting its share of shared memory (PSS).
        own: The memory that its end would free (USS).
    """

    proportional: int
    own: int


def memory_cells(memory: Memory | None) -> tuple[str, str]:
    """Formats both figures for a table, empty if unknown."""
    if memory is None:
        return "", ""
    return f"{memory.proportional / 2**20:,.0f} MB", f"{memory.own / 2**20:,.0f} MB"


def memory_of(pid: int) -> Memory | None:
    """Returns a process's memory; `None` if it has ended or is another user's."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    found = {}
    for line in lines:
        name, _, rest = line.partition(":")
        if rest.endswith("kB"):
            found[name] = int(rest.split()[0]) * 1024
    if "Pss" not in found:
        return None
    own = found.get("Private_Clean", 0) + found.get("Private_Dirty", 0)
    return Memory(found["Pss"], own)


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


def running_pools() -> list[FoundPool]:
    """Returns this user's running pools, the oldest first."""
    holders: dict[int, dict[int, str]] = {}
    for pid in processes.pids():
        for path, inode in processes.shared(pid):
            holders.setdefault(inode, {}).setdefault(pid, path)
    found = [_pool_of(inode, paths) for inode, paths in holders.items()]
    return sorted(
        (pool for pool in found if pool is not None),
        key=lambda pool: pool.facts.began,
    )


def _pool_of(inode: int, paths: dict[int, str]) -> FoundPool | None:
    # A worker holds it too, and so may a fork that is about to release it.
    members = {processes.inner_pid(pid): pid for pid in paths}
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


def pools_named(name: str) -> list[FoundPool]:
    """Returns the pools with a process id or a name.

    Raises:
        LookupError: There is none; the message lists the running pools.
    """
    pools = running_pools()
    meant = [pool for pool in pools if pool.answers_to(name)]
    if not meant:
        raise LookupError(_no_pool(name, pools))
    return meant


def _no_pool(name: str, pools: list[FoundPool]) -> str:
    there_are = (
        f"Pools run in {listed(dict.fromkeys(map(str, pools)))}."
        if pools
        else "No pool of worker processes is running."
    )
    if not name.isdigit():
        return f"There is no pool {name!r}. {there_are}"
    user = processes.owner_of(int(name))
    if user is None:
        return f"There is no process {name}. {there_are}"
    if user != os.getuid():
        return (
            f"Process {name} belongs to another user, and only that user can see its "
            f"pools. {there_are}"
        )
    return (
        f"Process {name} runs no pool of worker processes that this envkit can read. "
        f"The backends thread and inline cannot be seen from outside. {there_are}"
    )
