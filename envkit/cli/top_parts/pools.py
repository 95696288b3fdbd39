"""Which pools are running, and which of them is meant."""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from envkit.cli.top_parts import processes
from envkit.parallel.nameplate import Nameplate
from envkit.wording import listed

__all__ = ["FoundPool", "running_pools", "wanted_pools"]


class FoundPool(NamedTuple):
    """A pool of another process.

    Attributes:
        pid: The process that runs it, as it is called here.
        path: Its memory, as a file.
        inode: The number of that file, which no other has.
        plate: What it tells of itself.
        members: What the processes that hold the memory are called here, by what they
            take for their own number.
    """

    pid: int
    path: str
    inode: int
    plate: Nameplate
    members: dict[int, int]

    def __str__(self) -> str:
        return f"{self.plate.program} (pid {self.pid})"

    def answers_to(self, name: str) -> bool:
        """Says whether this may be the pool that somebody means."""
        plate = self.plate
        names = {str(self.pid), plate.program, os.path.splitext(plate.program)[0]}
        return name in names or any(
            name == target or target.startswith(f"{name}-v") for target in plate.targets
        )


def running_pools() -> list[FoundPool]:
    """Returns the pools of this user that run now, the oldest first."""
    holders: dict[int, dict[int, str]] = {}
    for pid in processes.pids():
        for path, inode in processes.shared(pid):
            holders.setdefault(inode, {}).setdefault(pid, path)
    found = [_pool_of(inode, paths) for inode, paths in holders.items()]
    return sorted(
        (pool for pool in found if pool is not None), key=lambda pool: pool.plate.began
    )


def _pool_of(inode: int, paths: dict[int, str]) -> FoundPool | None:
    # A worker holds it too, and so may a fork that is about to let go of it.
    members = {processes.inner_pid(pid): pid for pid in paths}
    for path in paths.values():
        plate = _plate_of(path)
        if plate is not None:
            pid = members.get(plate.pid)
            if pid is None:  # Who ran it is gone, and its workers will be.
                return None
            return FoundPool(pid, paths[pid], inode, plate, members)
    return None


def _plate_of(path: str) -> Nameplate | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return Nameplate.read(fd)
        finally:
            os.close(fd)
    return None


def wanted_pools(name: str) -> list[FoundPool]:
    """Returns the pools that a process id or a name stands for.

    Raises:
        LookupError: There is none; the message says what there is.
    """
    pools = running_pools()
    meant = [pool for pool in pools if pool.answers_to(name)]
    if not meant:
        raise LookupError(_nobody(name, pools))
    return meant


def _nobody(name: str, pools: list[FoundPool]) -> str:
    there_are = (
        f"Pools are run by {listed(dict.fromkeys(map(str, pools)))}."
        if pools
        else "No pool of worker processes is running."
    )
    if not name.isdigit():
        return f"No pool answers to {name!r}. {there_are}"
    user = processes.owner_of(int(name))
    if user is None:
        return f"There is no process {name}. {there_are}"
    if user != os.getuid():
        return (
            f"Process {name} is another user's, and only that user may look at its "
            f"pools. {there_are}"
        )
    return (
        f"Process {name} runs no pool of worker processes that this envkit knows; the "
        f"backends thread and inline cannot be seen from outside. {there_are}"
    )
