"""What this run of the tests has running and open: what a test left, and what hangs.

`Residue` is what there is at one moment; the fixture `nothing_left_behind` compares
two. `Watchdog` is a process that shows what hangs and ends it. That process runs this
file as a program, so the file imports nothing but the standard library.

Everything is read from `/proc`. Elsewhere than on Linux only threads are seen, and no
dog watches: pytest's own `faulthandler_timeout` shows the stacks there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import mmap
import os
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple

SHARED_MEMORY = "/dev/shm"
ON_LINUX = sys.platform == "linux"

# How long a test may take to be rid of what it started. Processes take a moment to end.
PATIENCE = 20.0

# How many times as much a test may compute as it may wait: some machines are slow.
SLOWNESS = 10.0

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
    ticks: int  # that it has computed, with its children that have ended
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
            sum(int(field) for field in fields[11:15]),
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
        self.watchdogs: set[int] = set()

    def processes(self) -> list[Process]:
        """Lists all but the first, and but watchdogs."""
        found = {
            each.pid: each for each in map(Process.read, _numbered("/proc")) if each
        }
        not_meant = {self.pid, *self.watchdogs}
        ours = {each.pid for each in found.values() if self._got_away(each)}
        more = {each.pid for each in found.values() if each.parent == self.pid}
        while not more <= ours | not_meant:
            ours |= more - not_meant
            groups = self.groups(found[pid] for pid in ours)
            more = {
                each.pid
                for each in found.values()
                if each.parent in ours or each.group in groups
            }
        return [found[pid] for pid in sorted(ours)]

    def groups(self, processes: Iterable[Process]) -> set[int]:
        """Returns the process groups that the run's processes have made."""
        # All that one of them belongs to, but for the one that the run was started in.
        return {each.group for each in processes} - {self._group}

    def _got_away(self, process: Process) -> bool:
        if process.parent not in self._ancestors or process.started < self._started:
            return False
        if process.pid in self._ancestors | self.watchdogs | {self.pid}:
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
    for line in _text("/proc/self/maps").splitlines():
        addresses, rights, _, device, inode, *path = line.split(maxsplit=5)
        # Files that are only read are nobody's memory; the C library has some.
        if rights.startswith("rw") and rights.endswith("s"):
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


# What hangs.


class Watchdog:
    """A process that ends this one if it hangs, and shows before that what hangs.

    What counts is the time in which all of the test's processes sleep, and ten times as
    much that they compute. When one of them could run and another program has the CPU,
    that is nothing to the test. Setting a limit and taking it back is a write to a pipe
    each.
    """

    def __init__(self, stderr: int) -> None:
        """Takes the descriptor to write to; the process starts when it is needed."""
        self._stderr = stderr
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self, test: str, seconds: float) -> None:
        """Sets a limit."""
        # So short that it is written whole or not at all.
        self._tell(f"{seconds:g} {test[:1000]!a}")

    def rest(self) -> None:
        """Takes the limit back."""
        if self._process is not None:
            self._tell("")

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
            self._process.wait()
            self._process = None

    def _tell(self, line: str) -> None:
        message = f"{line}\n".encode()
        try:
            os.write(self._pipe(), message)
        except BrokenPipeError:  # A test has ended it: there is another.
            self.close()
            os.write(self._pipe(), message)

    def _pipe(self) -> int:
        if self._process is None:
            self._process = self._start()
        return self._process.stdin.fileno()  # type: ignore[union-attr]  # it is a pipe

    def _start(self) -> subprocess.Popen[bytes]:
        run = this_run()
        process = subprocess.Popen(
            # Without the site's packages it is there at once.
            [sys.executable, "-I", "-S", __file__, str(run.pid), run.mark],
            stdin=subprocess.PIPE,
            stdout=self._stderr,
            stderr=self._stderr,
            # Ctrl-C, or a signal to the group, is not meant for it.
            start_new_session=True,
            bufsize=0,
        )
        run.watchdogs.add(process.pid)
        return process


def keep_watch(run: Run) -> None:
    """Waits for a limit to pass; this is all that the watchdog's process does."""
    alive = os.pidfd_open(run.pid)
    poll = select.poll()
    poll.register(sys.stdin.fileno(), select.POLLIN)
    poll.register(alive, select.POLLIN)
    order, spent, pause = "", Spent(run), None
    while True:
        ready = dict(poll.poll(None if pause is None else 1000 * pause))
        if not ready and pause is not None:
            spent.look(pause)
            seconds = float(order.split()[0])
            if spent.asleep >= seconds or spent.computing >= SLOWNESS * seconds:
                end_what_hangs(run, alive, order)
                return
            continue
        if alive in ready or not (
            lines := os.read(sys.stdin.fileno(), 1 << 20).decode().splitlines()
        ):
            return
        order = lines[-1]
        pause = None
        if order:
            spent = Spent(run)
            pause = min(1.0, max(0.02, float(order.split()[0]) / 20))


class Spent:
    """What a run has spent since this was made, as seen by looking now and then.

    Attributes:
        asleep: Seconds in which all of its processes slept.
        computing: Seconds that they have computed.
    """

    def __init__(self, run: Run) -> None:
        """Begins to count."""
        self.asleep = self.computing = 0.0
        self._run = run
        self._ticks: int | None = None

    def look(self, pause: float) -> None:
        """Looks what the processes do, a pause after the last look.

        However late this process itself was: then the machine is busy.
        """
        first = Process.read(f"/proc/{self._run.pid}")
        processes = [*([first] if first else []), *self._run.processes()]
        ticks = sum(each.ticks for each in processes)
        if self._ticks is not None:
            # What somebody else has waited for is not counted any more.
            computed = max(0, ticks - self._ticks)
            self.computing += computed / os.sysconf("SC_CLK_TCK")
        self._ticks = ticks
        if not any(map(_is_working, processes)):
            self.asleep += pause


def _is_working(process: Process) -> bool:
    """Says whether a thread of a process computes, could, or waits for a device."""
    folders = _numbered(f"/proc/{process.pid}/task")
    return any(each.state in "RD" for each in map(Process.read, folders) if each)


def end_what_hangs(run: Run, alive: int, order: str) -> None:
    """Shows the stacks of all processes of a run, and ends them."""
    seconds, test = order.split(maxsplit=1)
    children = run.processes()
    first = Process.read(f"/proc/{run.pid}")
    _say(f"\nWATCHDOG: {test[1:-1]} takes longer than {seconds} s.")
    for each in [*([first] if first else []), *children]:
        _say(f"\n{each}")
        _say_threads(each)
    # Whoever still runs would answer to the end of the others, and that is not where
    # it hung.
    _send([run.pid, *(each.pid for each in children)], signal.SIGSTOP)
    _end_children(run, children)
    _say("\nThe stacks of the process that runs the tests:")
    _abort([run.pid])
    if not _has_ended(alive, within=2.0):
        _say("It has none to show.")
        _send([run.pid], signal.SIGKILL)


def _end_children(run: Run, children: Iterable[Process]) -> None:
    living = [each for each in children if each.state != "Z"]
    with contextlib.ExitStack() as stack:
        outputs = {}
        for each in living:
            if (output := _open_stderr(each)) is not None:
                stack.callback(os.close, output)
                outputs[each] = output
        _abort([each.pid for each in living if _has_faulthandler(each)])
        deadline = time.monotonic() + 2.0
        for each in filter(_has_faulthandler, living):
            with contextlib.suppress(ProcessLookupError):
                alive = os.pidfd_open(each.pid)
                stack.callback(os.close, alive)
                _has_ended(alive, within=deadline - time.monotonic())
        for each, output in outputs.items():
            if tail := _tail(output):
                _say(f"\nThe last that {each.pid} wrote to stderr:\n{tail}")
    _send([-group for group in run.groups(living)], signal.SIGKILL)
    _send([each.pid for each in living], signal.SIGKILL)


def _has_faulthandler(process: Process) -> bool:
    """Says whether SIGABRT would make it show its stacks, or something else at least.

    Whoever does not catch it would just be gone.
    """
    for line in _text(f"/proc/{process.pid}/status").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGABRT - 1) & 1)
    return False


def _abort(pids: Iterable[int]) -> None:
    import resource

    for pid in pids:
        # The stacks are enough; a core of all its memory nobody asked for.
        with contextlib.suppress(OSError, ValueError):
            _, hard = resource.prlimit(pid, resource.RLIMIT_CORE)
            resource.prlimit(pid, resource.RLIMIT_CORE, (0, hard))
        # It is stopped: the first thing it does when it goes on is to abort.
        _send([pid], signal.SIGABRT)
        _send([pid], signal.SIGCONT)


def _has_ended(alive: int, within: float) -> bool:
    return bool(select.select([alive], [], [], max(0.0, within))[0])


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _say(text: str) -> None:
    print(text, flush=True)


def _say_threads(process: Process) -> None:
    for folder in _numbered(f"/proc/{process.pid}/task"):
        if thread := Process.read(folder):
            # The kernel's own stack is for root alone to see.
            stack = " < ".join(
                line.split()[-1].partition("+")[0]
                for line in _text(f"{folder}/stack").splitlines()[:5]
            )
            place = stack or _text(f"{folder}/wchan").strip("0") or "its own code"
            state = STATES.get(thread.state, thread.state)
            _say(f"  thread {thread.pid} {thread.name!r} {state} in {place}")


def _open_stderr(process: Process) -> int | None:
    """Opens what a process writes its stderr to, unless whoever reads this sees it."""
    try:
        fd = os.open(f"/proc/{process.pid}/fd/2", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:  # a socket, or nothing
        return None
    found, ours = os.fstat(fd), os.fstat(2)
    is_ours = (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)
    if is_ours or not (stat.S_ISREG(found.st_mode) or stat.S_ISFIFO(found.st_mode)):
        os.close(fd)
        return None
    return fd


def _tail(fd: int, size: int = 8192) -> str:
    with contextlib.suppress(OSError):
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.lseek(fd, max(0, os.fstat(fd).st_size - size), os.SEEK_SET)
        return os.read(fd, size).decode("utf-8", "replace").rstrip()
    return ""


if __name__ == "__main__":
    run = Run(int(sys.argv[1]), sys.argv[2])
    run.watchdogs.add(os.getpid())
    keep_watch(run)
