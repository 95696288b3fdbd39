"""What trouble the soak makes, when, and what its two processes know of each other.

```
run.py                                     parts.py
  starts it in a session of its own  ─▶      opens a pool, steps it, judges answers
  reads how many steps were made    ◀─ board ─  has environments make trouble
  kills and pauses what it finds     ─▶      finds out what came of it
  reads its standard error, slowly   ◀─      tells that it is through
```

The schedule follows from the seed, so each process works it out by itself. Everything
that the second process starts, and all that these start, has `MARK` among its
environment variables.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tests.soak.environments import FLOOD, FORK, HANG, HELPER, SLOW

MARK = "ENVKIT_SOAK"


class Kind(NamedTuple):
    """A kind of trouble.

    Attributes:
        name: What the table calls it.
        share: Of all troubles.
        code: What has an environment make it, or be in the middle of a slow step; or 0.
        from_outside: Whether the process outside makes it.
        checked: How it is found out that it did no harm.
        needs: Which pools alone can have it: "linked", "ray", or "" for all.
    """

    name: str
    share: float
    code: int
    from_outside: bool
    checked: str
    needs: str = ""


(
    SIGNALS,
    HELPERS,
    FORKS,
    FLOODS,
    HANGS,
    PAUSES,
    STANDSTILLS,
    CUTS,
    SWALLOWS,
    ACTORS,
) = KINDS = [
    Kind(
        "signals to workers",
        0.45,
        0,
        True,
        "the worker is replaced, and none besides; its rows end as truncations",
    ),
    Kind(
        "helper processes",
        0.20,
        HELPER,
        False,
        "gone with its worker, at the latest with the pool; 2 of 3 have own sessions",
    ),
    Kind(
        "environments that fork",
        0.12,
        FORK,
        False,
        "the child has ended, also one that came back, and answered nothing",
    ),
    Kind(
        "floods of stderr",
        0.09,
        FLOOD,
        False,
        "no more than 17 MiB kept of a worker; the worker itself has not grown",
    ),
    Kind(
        "environments that hang",
        0.02,
        HANG,
        False,
        "the worker is replaced after step_timeout",
    ),
    Kind("single workers paused", 0.10, 0, True, "goes on; no worker is replaced"),
    Kind(
        "everything paused",
        0.02,
        SLOW,
        True,
        "amid a slow step: it goes on, and nothing counts as a timeout",
    ),
    Kind(
        "links cut",
        0.06,
        0,
        False,
        "the worker is replaced, and none besides; its rows end as truncations",
        needs="linked",
    ),
    Kind(
        "links that swallow",
        0.01,
        0,
        False,
        "the worker is replaced after step_timeout",
        needs="linked",
    ),
    Kind(
        "actors of Ray killed",
        0.02,
        0,
        False,
        "the worker is replaced, and none besides; its rows end as truncations",
        needs="ray",
    ),
]
# What happens all the time, in those parts that have a second thread.
THREADS = "calls of a second thread"


class Trouble(NamedTuple):
    """When, by steps made and seconds after that; what, where, and in which way."""

    steps: int
    pause: float
    kind: Kind
    env_id: int
    variant: int

    def __str__(self) -> str:
        return f"{self.steps:,}: {self.kind.name} {self.variant} (env {self.env_id})"


def schedule(
    troubles: int,
    seed: int,
    parts: int,
    steps: int,
    num_envs: int,
    able: Mapping[str, Sequence[int]],
) -> list[list[Trouble]]:
    """Plans the troubles of each part, in their order.

    Args:
        troubles: How many there are in all, of all kinds.
        seed: What everything random depends on.
        parts: How many parts there are.
        steps: How many steps each part makes.
        num_envs: How many environments there are.
        able: Which parts can have the troubles that not all can have, by their need.
    """
    rng = np.random.default_rng(seed)
    plan: list[list[Trouble]] = [[] for _ in range(parts)]
    for kind in KINDS:
        places = able.get(kind.needs, ()) if kind.needs else range(parts)
        first = rng.integers(parts)
        if not places:
            continue
        for index in range(count_of(kind, troubles)):
            trouble = Trouble(
                int(rng.integers(steps // 50, steps * 9 // 10)),
                round(float(rng.uniform(0.0, 0.003)), 6),
                kind,
                int(rng.integers(num_envs)),
                int(rng.integers(2**30)),
            )
            plan[places[(first + index) % len(places)]].append(trouble)
    for part in plan:
        part.sort(key=lambda trouble: trouble.steps)
    return plan


def count_of(kind: Kind, troubles: int) -> int:
    """Returns how many troubles are of a kind: at least one."""
    return max(1, round(kind.share * troubles))


# Where the numbers of the board are: which part goes on, how many steps it has made,
# which part is to have no more trouble, and gets no more; how many were killed.
PART, STEPS, OVER, QUIET, KILLED = range(5)
_HEAD = 8


class Board:
    """Memory that both processes see.

    Attributes:
        head: The numbers.
        pids: For each environment, the process that its last answer came from.
        killed: The processes that were sent a signal; `head[KILLED]` are valid.
    """

    def __init__(self, fd: int, num_envs: int, troubles: int) -> None:
        """Maps a descriptor's memory, which is made as large as is needed."""
        self.fd = fd
        count = _HEAD + num_envs + 2 * troubles + len(KINDS)
        os.ftruncate(fd, 8 * count)
        numbers = np.frombuffer(mmap.mmap(fd, 8 * count), np.int64)
        self.head = numbers[:_HEAD]
        self.pids = numbers[_HEAD : _HEAD + num_envs]
        self.killed = numbers[_HEAD + num_envs :]

    def note_killed(self, pid: int) -> None:
        self.killed[self.head[KILLED]] = pid
        self.head[KILLED] += 1

    def all_killed(self) -> set[int]:
        return set(self.killed[: self.head[KILLED]].tolist())


# Processes.


def marked(mark: str) -> list[int]:
    """Returns the processes that have the mark, but for those that have ended."""
    return [int(name) for name in os.listdir("/proc") if _has_mark(name, mark)]


def has_mark(pid: int, mark: str) -> bool:
    """Returns whether a process is there that has the mark."""
    return pid > 0 and _has_mark(str(pid), mark)


def _has_mark(name: str, mark: str) -> bool:
    # A process that has ended and was not waited for shows no variables.
    with contextlib.suppress(OSError):
        if name.isdigit():
            with open(f"/proc/{name}/environ", "rb") as file:
                return f"{MARK}={mark}".encode() in file.read()
    return False


class Started(NamedTuple):
    """A process that an environment has started, and the worker it did so in."""

    pid: int
    began: int
    worker: int

    @classmethod
    def by(cls, worker: int, pid: int) -> Started:
        return cls(pid, _birth_of(pid), worker)

    def is_there(self) -> bool:
        """Returns whether it is, and not another one that has its number."""
        return self.began != 0 and _birth_of(self.pid) == self.began


def _birth_of(pid: int) -> int:
    """Returns when a process began; 0 if it has ended."""
    path = f"/proc/{pid}/stat"
    with contextlib.suppress(OSError), open(path, errors="replace") as file:
        state, *fields = file.read().rpartition(")")[2].split()
        return 0 if state in "ZX" else int(fields[18])
    return 0


def command_of(pid: int) -> str:
    """Returns what a process is called, for a message."""
    path = f"/proc/{pid}/cmdline"
    with contextlib.suppress(OSError), open(path, errors="replace") as file:
        return f"process {pid}: {file.read().replace(chr(0), ' ')[:120]}"
    return f"process {pid}"
