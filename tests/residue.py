"""What this run of the tests has running and open, to see what a test left.

`Residue` is what there is at one moment; the fixture `nothing_left_behind` compares
two. Everything is read from `/proc`. Elsewhere than on Linux only threads are seen.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import mmap
import os
import signal
import sys
import threading
import time
from collections.abc import Container, Hashable, Iterator, Mapping
from typing import NamedTuple

from tests.waiting import PATIENCE

SHARED_MEMORY = "/dev/shm"
ON_LINUX = sys.platform == "linux"

# In which the system counts when processes have started.
_TICKS = os.sysconf("SC_CLK_TCK") if ON_LINUX else 1

# All that is started with this in its environment belongs to this run, and to the one
# that started this one.
MARK = "ENVKIT_TEST_RUN"


# Processes.


class Process(NamedTuple):
    """One line of the system's list of processes, or of a process's threads."""

    pid: int
    started: int
    name: str
    state: str
    parent: int
    group: int
    session: int

    @classmethod
    def read(cls, folder: str) -> Process | None:
        """Reads a folder of `/proc`; `None` if it has ended."""
        # The name is in parentheses, and may have some in it.
        head, _, tail = _text(f"{folder}/stat").rpartition(")")
        if not head:
            return None
        fields = tail.split()
        pid, _, name = head.partition(" (")
        return cls(
            int(pid),
            int(fields[19]),
            name,
            fields[0],
            *(int(field) for field in fields[1:4]),
        )

    def __str__(self) -> str:
        words = _text(f"/proc/{self.pid}/cmdline").replace("\0", " ").split()
        command = " ".join(words) or self.name
        return f"process {self.pid} ({STATES.get(self.state, self.state)}): {command}"


STATES = {
    "D": "waiting for a device",
    "R": "running",
    "S": "sleeping",
    "T": "stopped",
    "Z": "zombie",
}


def _text(path: str) -> str:
    """Reads what may be gone or forbidden."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall().decode("utf-8", "replace")
    except OSError:
        return ""


def _numbered(folder: str) -> Iterator[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    yield from (f"{folder}/{name}" for name in names if name.isdigit())


class Run:
    """The processes of a run: those below its first one, and those that got away."""

    def __init__(self, pid: int, mark: str) -> None:
        """Takes the first process, and what it marked all it started with."""
        self.pid = pid
        self.mark = mark
        # A process that loses its parent goes to one of these, or to the first of all.
        self._ancestors = set(_ancestors(pid))
        first = Process.read(f"/proc/{pid}")
        self._started = 0 if first is None else first.started
        self._group = 0 if first is None else first.group
        # Those of others, until their numbers might be given to new ones.
        self._others: set[str] = set()
        self._others_until = 0.0

    def processes(self) -> list[Process]:
        """Lists all but the first."""
        # Every test asks twice, and most of what a machine runs stays the same.
        if time.monotonic() > self._others_until:
            self._others, self._others_until = set(), time.monotonic() + 2.0
        folders = set(_numbered("/proc")) - self._others
        found = {each.pid: each for each in map(Process.read, folders) if each}
        ours = {each.pid for each in found.values() if self._got_away(each)}
        more = {each.pid for each in found.values() if each.parent == self.pid}
        while not more <= ours | {self.pid}:
            ours |= more - {self.pid}
            # All of the groups that they have made.
            groups = {found[pid].group for pid in ours} - {self._group}
            more = {
                each.pid
                for each in found.values()
                if each.parent in ours or each.group in groups
            }
        # A process that has just begun a program may have no environment yet.
        young = time.clock_gettime(time.CLOCK_BOOTTIME) - 1.0
        self._others |= {
            f"/proc/{pid}"
            for pid in found.keys() - ours
            if found[pid].started < young * _TICKS
        }
        return [found[pid] for pid in sorted(ours)]

    def _got_away(self, process: Process) -> bool:
        if process.parent not in self._ancestors or process.started < self._started:
            return False
        if process.pid in self._ancestors | {self.pid}:
            return False
        folder = f"/proc/{process.pid}"
        # What was forked and started no other program has the environment of this
        # process's own start; but it maps what this process maps.
        return self.mark in _text(f"{folder}/environ") + _text(f"{folder}/maps")


def _ancestors(pid: int) -> Iterator[int]:
    yield 1
    while (process := Process.read(f"/proc/{pid}")) and process.parent > 0:
        yield (pid := process.parent)


_this_run: Run | None = None
_marked: list[mmap.mmap] = []


def this_run() -> Run:
    """Returns the run that this process is the first of, and marks what it starts."""
    global _this_run
    if _this_run is None or _this_run.pid != os.getpid():
        mark = f"envkit-tests-{os.getpid()}-{os.urandom(4).hex()}"
        os.environ[MARK] = f"{os.environ.get(MARK, '')},{mark}"
        fd = os.memfd_create(mark)
        os.ftruncate(fd, mmap.PAGESIZE)
        _marked.append(mmap.mmap(fd, mmap.PAGESIZE))
        os.close(fd)
        _this_run = Run(os.getpid(), mark)
    return _this_run


# What is left.


@dataclasses.dataclass(frozen=True)
class Residue:
    """What this process has running and open.

    Attributes:
        things: What each is called, by what tells it from all others, those included
            that get its number later.
    """

    things: Mapping[Hashable, str]

    @classmethod
    def now(cls) -> Residue:
        """Looks: processes with zombies, threads, descriptors and shared memory."""
        if not ON_LINUX:
            return cls(
                {thread: f"thread {thread.name!r}" for thread in threading.enumerate()}
            )
        return cls(
            {
                **_processes(),
                **_threads(),
                **_descriptors(),
                **_segments(),
                **_mappings(),
            }
        )

    def since(self, before: Residue) -> dict[Hashable, str]:
        """Returns what there was not before."""
        return {
            key: text for key, text in self.things.items() if key not in before.things
        }


def _processes() -> dict[Hashable, str]:
    return {
        ("process", each.pid, each.started): str(each)
        for each in this_run().processes()
    }


def _threads() -> dict[Hashable, str]:
    # Those that Python knows nothing of, too.
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    found = map(Process.read, _listed_threads())
    return {
        ("thread", each.pid, each.started): (
            f"thread {names.get(each.pid, each.name)!r} ({each.pid})"
        )
        for each in found
        if each
    }


def _listed_threads() -> list[str]:
    # Linux ends the list early where a thread ends while it is being read, as pytest's
    # own timer of the test before does: so it is read until it stays the same.
    folder = "/proc/self/task"
    before, listed = None, list(_numbered(folder))
    while listed != before:
        before, listed = listed, list(_numbered(folder))
    return listed


def _descriptors() -> dict[Hashable, str]:
    found: dict[Hashable, str] = {}
    for link in _numbered("/proc/self/fd"):
        # The one that lists them has been closed in the meantime.
        with contextlib.suppress(FileNotFoundError):
            number, target = os.path.basename(link), os.readlink(link)
            # Not by its target, which changes when somebody renames the file.
            file = os.stat(link)
            key = ("descriptor", number, file.st_dev, file.st_ino)
            found[key] = f"descriptor {number}: {target}"
    return found


def shared_names() -> set[str]:
    """Returns what shared memory is called that a test of this run may have made.

    The other tests that run at the same time play games that have some, and share
    semaphores.
    """
    names = os.listdir(SHARED_MEMORY) if os.path.isdir(SHARED_MEMORY) else []
    return {name for name in names if not name.startswith(("sem.", "ViZDoom"))}


def _segments() -> dict[Hashable, str]:
    found: dict[Hashable, str] = {}
    for name in shared_names():
        path = f"{SHARED_MEMORY}/{name}"
        with contextlib.suppress(FileNotFoundError):
            facts = os.stat(path, follow_symlinks=False)
            text = f"named segment {path}: {facts.st_size:,} bytes"
            found["segment", path, facts.st_ino] = text
    return found


def _mappings() -> dict[Hashable, str]:
    found: dict[Hashable, str] = {}
    # Files that are only read are nobody's memory; the C library has some.
    for line in _text("/proc/self/maps").splitlines():
        if " rw-s " in line:
            addresses, _, _, device, inode, *path = line.split(maxsplit=5)
            text = f"shared memory at {addresses}: {' '.join(path)}"
            found["mapping", device, inode, " ".join(path)] = text
    return found


def left_behind(before: Residue, within: float | None = None) -> dict[Hashable, str]:
    """Waits until nothing is left that was not there before; returns what still is.

    Garbage is collected only if something seems to be left: what is open is open
    because of something that lives, and collecting takes longer than most tests.
    """
    deadline = time.monotonic() + (PATIENCE if within is None else within)
    pause = 0.001
    left = at_first = Residue.now().since(before)
    if left:
        gc.collect()
    while left:
        left = Residue.now().since(before)
        remaining = deadline - time.monotonic()
        if not left or remaining <= 0:
            break
        time.sleep(min(pause, remaining))
        pause *= 2
    return {key: text for key, text in left.items() if not _is_of_others(key, at_first)}


def _is_of_others(key: Hashable, at_first: Container[Hashable]) -> bool:
    """Says whether a named segment is somebody else's on this machine.

    It is, if it came after the test or if a process of others uses it.
    """
    if not isinstance(key, tuple) or key[0] != "segment":
        return False
    if key not in at_first:
        return True
    ours = {os.getpid(), *(each.pid for each in this_run().processes())}
    return any(
        f" {key[1]}\n" in _text(f"{folder}/maps")
        for folder in _numbered("/proc")
        if int(os.path.basename(folder)) not in ours
    )


def described(left: Mapping[Hashable, str]) -> str:
    """Says what is left, a line for each."""
    lines = "".join(f"\n  {text}" for text in left.values())
    return (
        f"The test left behind:\n{lines}\n\n"
        "What a test starts or opens it ends or closes, also where it fails."
    )


def end_processes(left: Mapping[Hashable, str]) -> None:
    """Ends the processes that were left, for the sake of the tests that follow."""
    for each in this_run().processes() if ON_LINUX else ():
        if ("process", each.pid, each.started) in left and each.state != "Z":
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
