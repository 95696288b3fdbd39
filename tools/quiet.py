"""Looks at what else uses a machine while benchmarks run, by name.

Processes that descend from this one are the benchmarks'; all others are not. What
cannot be seen, other containers and other virtual machines on the same processors,
shows in the machine's own counts while nothing of ours runs.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_PROC = Path("/proc")
# Whether this system tells what its processes use.
CAN_LOOK = (_PROC / "stat").exists()
# Busy is a machine of which others use more than this share.
SHARE = 0.1
# How often processes are looked at; each look takes a few milliseconds.
_INTERVAL = 3.0
# How long a look takes, and how long to wait until a machine is quiet: what was run
# before may have left something to be written to disks.
_LOOK, _PATIENCE = 1.0, 15.0
_PR_SET_CHILD_SUBREAPER = 36
# Of a line of /proc/stat: user, nice, system, irq, softirq and steal.
_COMPUTING = (0, 1, 2, 5, 6, 7)
_STEAL = 7


@dataclass(frozen=True)
class Process:
    """A process as it was at one moment.

    Attributes:
        pid: Its number.
        name: What it is called.
        parent: The number of its parent.
        ticks: How much CPU it has used, in ticks of the clock.
    """

    pid: int
    name: str
    parent: int
    ticks: int


@dataclass
class Found:
    """What others have used.

    Attributes:
        cpus: How many CPUs they have used, on average.
        named: Which of these are of processes, by name.
    """

    cpus: float = 0.0
    named: dict[str, float] = field(default_factory=dict)

    def is_busy(self, cpus: int) -> bool:
        """Returns whether others have used too much of so many CPUs."""
        return self.cpus > SHARE * cpus

    def __str__(self) -> str:
        most = sorted(self.named.items(), key=lambda pair: -pair[1])[:3]
        names = ", ".join(f"{name} {used:.2f}" for name, used in most if used >= 0.01)
        return f"others used {self.cpus:.2f} of a CPU{f' ({names})' * bool(names)}"


def processes() -> dict[int, Process]:
    """Returns the processes there are, without those of the kernel."""
    found = {}
    for folder in _PROC.iterdir():
        if not folder.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            text = (folder / "stat").read_text("utf-8", "replace")
            # The name is in parentheses and may have any of them in itself.
            begin, end = text.index("("), text.rindex(")")
            words = text[end + 1 :].split()
            pid, parent = int(folder.name), int(words[1])
            if 2 in (pid, parent):
                continue
            ticks = int(words[11]) + int(words[12])
            found[pid] = Process(pid, text[begin + 1 : end], parent, ticks)
    return found


def descendants(of: int, there: dict[int, Process]) -> set[int]:
    """Returns this process and those that it has started, at any remove."""
    ours = {of}
    children = collections.defaultdict(list)
    for process in there.values():
        children[process.parent].append(process.pid)
    todo = [of]
    while todo:
        new = children[todo.pop()]
        ours.update(new)
        todo += new
    return ours


def adopt_orphans() -> None:
    """Becomes the parent of descendants whose own parent has ended."""
    if not CAN_LOOK:
        return
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants() -> list[str]:
    """Kills what is left of a benchmark; returns the names."""
    if not CAN_LOOK:
        return []
    there = processes()
    left = descendants(os.getpid(), there) - {os.getpid()}
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while left and os.waitpid(-1, 0):
            pass
    return sorted(there[pid].name for pid in left)


def look(seconds: float) -> Found:
    """Looks for so long, while nothing of ours runs."""
    before, then = processes(), _ticks()
    time.sleep(seconds)
    after, now = processes(), _ticks()
    used = [n - t for n, t in zip(now, then, strict=True)]
    elapsed = seconds * os.sysconf("SC_CLK_TCK")
    own = after[os.getpid()].ticks - before[os.getpid()].ticks
    cpus = max(sum(used[place] for place in _COMPUTING) - own, 0) / elapsed
    return Found(cpus, _named(_by_others(before, after), elapsed))


def wait_for_quiet(cpus: int) -> Found:
    """Looks again and again until the machine is quiet; returns what was seen last."""
    if not CAN_LOOK:
        return Found()
    end = time.monotonic() + _PATIENCE
    while (found := look(_LOOK)).is_busy(cpus) and time.monotonic() < end:
        pass
    return found


@contextlib.contextmanager
def watched() -> Iterator[Found]:
    """Looks at others while a benchmark runs; the answer is there at the end."""
    found, over = Found(), threading.Event()
    if not CAN_LOOK:
        yield found
        return
    used: collections.Counter[str] = collections.Counter()
    before, then, began = processes(), _ticks(), time.monotonic()

    def count() -> None:
        nonlocal before
        after = processes()
        used.update(_by_others(before, after))
        before = after

    def watch() -> None:
        while not over.wait(_INTERVAL):
            count()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        count()
        elapsed = (time.monotonic() - began) * os.sysconf("SC_CLK_TCK")
        used["stolen by the host"] = _ticks()[_STEAL] - then[_STEAL]
        found.named = _named(used, elapsed)
        found.cpus = sum(found.named.values())


def _by_others(
    before: dict[int, Process], after: dict[int, Process]
) -> collections.Counter[str]:
    """Returns the ticks between, by name, of what does not descend from us."""
    ours = descendants(os.getpid(), after)
    used: collections.Counter[str] = collections.Counter()
    for pid, process in after.items():
        if pid not in ours:
            earlier = before.get(pid)
            used[f"{process.name} (pid {pid})"] += process.ticks - (
                earlier.ticks if earlier else 0
            )
    return used


def _named(used: collections.Counter[str], elapsed: float) -> dict[str, float]:
    return {name: ticks / elapsed for name, ticks in used.items() if ticks > 0}


def _ticks() -> list[int]:
    """Returns what all CPUs have done so far, by kind, since the machine started."""
    first = (_PROC / "stat").read_text("utf-8").partition("\n")[0]
    return [int(word) for word in first.split()[1:9]]
