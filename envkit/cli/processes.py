"""Measures other processes on Linux, and finds pools by name."""

from __future__ import annotations

import os
from typing import NamedTuple

from envkit._shared.running_pools import FoundPool, running_pools
from envkit.extend import listed

__all__ = [
    "Memory",
    "memory_cells",
    "memory_of",
    "owner_of",
    "pools_named",
]


def owner_of(pid: int) -> int | None:
    """Returns the user that owns a process; `None` if there is no process."""
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


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
    user = owner_of(int(name))
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
