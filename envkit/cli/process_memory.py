"""What a process holds in memory, as far as Linux tells."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Memory", "memory_of"]


class Memory(NamedTuple):
    """What a process holds in memory, in bytes.

    Attributes:
        proportional: All of it, with its share of what it shares with others (PSS).
        own: What would be free without it (USS).
    """

    proportional: int
    own: int


def memory_of(pid: int) -> Memory | None:
    """Returns the memory of a process; `None` where nobody may ask or it has ended."""
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
