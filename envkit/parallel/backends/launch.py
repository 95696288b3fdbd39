"""How a worker's process is started, observed, and ended with all it has started."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import mmap
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from envkit.parallel.messages import ExitReport, WorkerJob
from envkit.parallel.system.channel import Channel
from envkit.parallel.system.cpus import ONE_THREAD, available_cpus
from envkit.parallel.system.ctrl_c import uninterrupted
from envkit.parallel.system.doorbell import is_readable
from envkit.parallel.system.interpreter import start_interpreter, text_file
from envkit.parallel.system.lifeline import (
    close_lifeline,
    open_lifeline,
    without_forks,
)
from envkit.parallel.system.shared_memory import anonymous_file
from envkit.parallel.system.signals import signal_group, signal_process
from envkit.parallel.worker.environments import resident_bytes

__all__ = [
    "STATUS_UNKNOWN",
    "ForkLauncher",
    "ProcessLauncher",
    "SpawnLauncher",
    "StartedCommand",
    "StderrFile",
    "WorkerEnds",
    "WorkerProcess",
    "environment_for",
    "run_in_fork",
    "search_path",
    "stderr_file",
    "wait_for_end",
]

# Stands for the status of a process whose end was not observed.
STATUS_UNKNOWN = 1 << 16

# A GPU's memory belongs to the process that learns, unless `worker_env` says else.
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}

# The parent's search path comes first: before it, any file in the current directory
# could stand in the way of a module. Nothing of the parent's main module is run.
# What `import envkit` warns of, the parent has said once for all workers.
_BOOTSTRAP = (
    "import sys, warnings\n"
    "with open(int(sys.argv[1]), encoding='ascii') as file:\n"
    "    sys.path[:] = eval(file.read())\n"
    "with warnings.catch_warnings():\n"
    "    warnings.simplefilter('ignore')\n"
    "    import envkit\n"
    "from {module} import main\n"
    "main(int(sys.argv[2]), int(sys.argv[3]))"
)

# Enough for the stacks of a crash, the innermost calls of which come first.
_TAIL_BYTES = 1 << 15
_TAIL_LINES = 200
# How much of a worker's standard error may wait to be passed on.
_BACKLOG_BYTES = 1 << 24
# A pipe that has room takes 4,096 bytes at once, and a byte may become six characters.
_CHUNK_BYTES = 4096 // 6
# The system gets memory back in pieces of this size.
_PIECE_BYTES = 1 << 18
# Seconds that showing the last words of a worker may take, and how many of them without
# a reader: every worker of a pool that closes may have some.
_LAST_WORDS = 2.0
_NO_READER = 0.1


class StderrFile:
    """The file that a worker writes its standard error to.

    It is a file and not a pipe, because a worker must never wait for its reader. Its
    memory is bounded whenever the parent looks: text that was passed on is freed, and
    text beyond `_BACKLOG_BYTES` is skipped.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._passed = self._freed = 0
        self._last = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def pass_on(self, pid: int, seconds: float, patience: float = 0.0) -> None:
        """Writes new text to this process's standard error.

        Args:
            pid: The worker, for the message about skipped text.
            seconds: How long this may take, should standard error be slow.
            patience: How long to wait for a standard error that takes nothing.
        """
        if self.fd < 0 or (size := os.fstat(self.fd).st_size) == self._passed:
            return
        until = time.monotonic() + seconds
        if size - self._passed > _BACKLOG_BYTES:
            skipped = size - self._passed - _BACKLOG_BYTES // 2
            self._passed += skipped
            _write_to_stderr(
                f"\n[envkit: {skipped:,} bytes of the standard error of worker process "
                f"{pid} were skipped; it writes faster than they can be shown]\n"
            )
        while self._passed < size and time.monotonic() <= until:
            # A standard error that is full would stop the parent and all its workers.
            if not _takes_text(patience):
                break
            data = os.pread(self.fd, _CHUNK_BYTES, self._passed)
            self._passed += len(data)
            _write_to_stderr(self._decoder.decode(data))
        self._free(min(self._passed, size - _TAIL_BYTES))

    def _free(self, stop: int) -> None:
        """Gives memory back; the file keeps its size, because writers append to it."""
        length = (stop - self._freed) // _PIECE_BYTES * _PIECE_BYTES
        if length > 0 and hasattr(mmap, "MADV_REMOVE"):
            # Text that is appended meanwhile would be lost if the file were truncated.
            with mmap.mmap(self.fd, length, offset=self._freed) as pages:
                pages.madvise(mmap.MADV_REMOVE)
            self._freed += length

    def tail(self) -> str:
        """Returns the last lines."""
        if self.fd < 0:
            return self._last
        start = max(0, os.fstat(self.fd).st_size - _TAIL_BYTES)
        text = os.pread(self.fd, _TAIL_BYTES, start).decode("utf-8", "replace")
        return "\n".join(text.rstrip("\n").splitlines()[-_TAIL_LINES:])

    def close(self) -> None:
        """Closes the file, and keeps its last lines."""
        if self.fd >= 0:
            self._last = self.tail()
            os.close(self.fd)
            self.fd = -1


def _takes_text(patience: float) -> bool:
    """Returns whether standard error takes text without waiting."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, ValueError, OSError):
        return True  # It is kept in memory, or takes nothing and waits for nothing.
    poller = select.poll()
    poller.register(descriptor, select.POLLOUT)
    return bool(poller.poll(1000 * patience))


def _write_to_stderr(text: str) -> None:
    # It may be closed, or take no text; then there is no place to show it.
    with contextlib.suppress(AttributeError, ValueError, OSError, TypeError):
        sys.stderr.write(text)
        sys.stderr.flush()


def stderr_file() -> int:
    """Opens an anonymous file for what a worker writes to standard error."""
    fd = anonymous_file()
    # Helpers of the worker may open it anew, and all of them must append.
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
    return fd


class WorkerProcess:
    """A worker's process as its parent sees it.

    It leads a session and a process group of its own: Ctrl-C reaches the parent alone,
    and killing the group ends what the worker has started, too.

    Attributes:
        pid: The process.
        channel: The parent's end of the channel.
    """

    def __init__(
        self,
        pid: int,
        channel: Channel,
        lifeline: int,
        stderr: int,
        wait_status: Callable[[], int | None],
        life_fd: int | None = None,
    ) -> None:
        """Takes over a process that has just been started.

        Args:
            pid: The process.
            channel: The parent's end of the channel.
            lifeline: The writing end of the pipe whose closing kills the worker.
            stderr: The file it writes standard error to.
            wait_status: Returns how it ended, as `subprocess` says it, or
                `STATUS_UNKNOWN`; `None` while it runs.
            life_fd: Its pidfd if it is open already, -1 for none.
        """
        self.pid = pid
        self.channel = channel
        self._lifeline = lifeline
        self._stderr = StderrFile(stderr)
        self._wait_status = wait_status
        self._status: int | None = None
        self.resident = 0
        # Becomes readable when the process ends; elsewhere the channel's end says so.
        if life_fd is None:
            life_fd = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1
        self.life_fd = life_fd

    def has_ended(self) -> bool:
        """Returns whether the process is gone, and keeps how it ended."""
        if self._status is None:
            self._status = self._wait_status()
        return self._status is not None

    def report(self, worker: int) -> ExitReport:
        """Returns how it ended."""
        status = None if self._status == STATUS_UNKNOWN else self._status
        self._stderr.pass_on(self.pid, _LAST_WORDS, patience=_NO_READER)
        report = ExitReport.of_status(worker, self.pid, status, self.stderr_tail)
        return report._replace(resident=self.resident)

    @property
    def stderr_tail(self) -> str:
        """The last lines it wrote to standard error."""
        return self._stderr.tail()

    def forward_stderr(self, seconds: float = _LAST_WORDS) -> None:
        """Passes on what it wrote to standard error since the last time.

        Args:
            seconds: How long this may take, should our standard error be slow.
        """
        self._stderr.pass_on(self.pid, seconds)

    def measure_resident(self) -> int:
        """Returns the memory it holds, and keeps the figure for its exit report."""
        self.resident = resident_bytes(self.pid) or self.resident
        return self.resident

    def signal_group(self, number: int) -> None:
        """Sends a signal to the process and everything it has started."""
        # One that has just been forked has not made its group yet.
        if not signal_group(self.pid, number) and self._status is None:
            signal_process(self.pid, number)

    def close(self) -> None:
        """Gives the descriptors back, after the process has ended."""
        self.forget()

    def forget(self) -> None:
        """Closes the descriptors only; what a fork of the parent does."""
        self.channel.close()
        self._stderr.close()
        close_lifeline(self._lifeline)
        if self.life_fd >= 0:
            os.close(self.life_fd)
        self._lifeline = self.life_fd = -1


class StartedCommand:
    """A command that was started in a session of its own, such as ssh.

    Attributes:
        pid: Its process.

    Example:
        >>> command = StartedCommand(["sh", "-c", "echo moved >&2; exit 3"])
        >>> while not command.has_ended():
        ...     pass
        >>> report = command.report(worker=0)
        >>> report.exitcode, report.stderr_tail
        (3, 'moved')
        >>> command.forget()
    """

    def __init__(
        self, words: Sequence[str], variables: Mapping[str, str] | None = None
    ) -> None:
        """Starts a command.

        Args:
            words: Its words; there is no shell between.
            variables: Environment variables beside those of this process.

        Raises:
            OSError: It cannot be started.
        """
        fd = stderr_file()
        try:
            with without_forks():
                self._process = subprocess.Popen(
                    words,
                    env={**os.environ, **(variables or {})},
                    stdin=subprocess.DEVNULL,
                    stderr=fd,
                    start_new_session=True,
                )
        except BaseException:
            os.close(fd)
            raise
        self.pid = self._process.pid
        self._stderr = StderrFile(fd)
        self._is_killed = False

    def has_ended(self, seconds: float = _LAST_WORDS) -> bool:
        """Returns whether it has ended; passes on what it wrote to standard error.

        Args:
            seconds: How long passing that on may take.
        """
        self._stderr.pass_on(self.pid, seconds)
        return self._process.poll() is not None

    def report(self, worker: int, unknown: int | None = None) -> ExitReport:
        """Returns how it has ended, as far as that says how its worker has.

        Args:
            worker: The worker that it has started.
            unknown: An exit status with which it says that it does not know.
        """
        status = self._process.poll()
        self._stderr.pass_on(self.pid, _NO_READER, patience=_NO_READER)
        if self._is_killed or status == unknown:
            status = None
        return ExitReport.of_status(worker, self.pid, status, self._stderr.tail())

    def kill(self) -> None:
        """Ends it, and what it has started here; returns when it has ended."""
        self._is_killed |= self._process.poll() is None
        signal_group(self.pid, signal.SIGKILL)
        self._process.wait()

    def forget(self) -> None:
        """Closes the descriptor only; what a fork of this process does."""
        self._stderr.close()


class ProcessLauncher(Protocol):
    """Starts workers one way or another."""

    def start(self, inherited: WorkerJob | None = None) -> WorkerProcess:
        """Starts a process that runs `worker.main.main`.

        Args:
            inherited: The job whose constructors a forked worker has already.
        """

    def prepare(self, count: int) -> None:
        """Lets processes that are going to be started load what they need, if it can.

        Args:
            count: How many there are going to be; what was prepared before is counted.
        """

    def close(self) -> None:
        """Ends what the launcher itself needs, and processes that were not started."""

    def forget(self) -> None:
        """Closes descriptors only; what a fork of the parent does."""


class WorkerEnds:
    """The descriptors of a worker that is about to start: the parent's and its own."""

    def __init__(self) -> None:
        """Opens them all, or none."""
        with contextlib.ExitStack() as opened:
            self.ours, self.theirs = Channel.pair()
            opened.callback(self.ours.close)
            opened.callback(self.theirs.close)
            self.life_read, self.life_write = open_lifeline()
            opened.callback(os.close, self.life_read)
            opened.callback(close_lifeline, self.life_write)
            self.stderr = stderr_file()
            opened.pop_all()

    def process(
        self,
        pid: int,
        wait_status: Callable[[], int | None],
        life_fd: int | None = None,
    ) -> WorkerProcess:
        """Returns the process that has its own end of them now."""
        self.close_theirs()
        try:
            return WorkerProcess(
                pid, self.ours, self.life_write, self.stderr, wait_status, life_fd
            )
        except OSError:  # There is no room for the descriptor of the process.
            signal_process(pid, signal.SIGKILL)
            while wait_status() is None:
                time.sleep(0.001)
            self.close_ours()
            raise

    def close_theirs(self) -> None:
        """Closes what the worker has its own copies of."""
        self.theirs.close()
        os.close(self.life_read)

    def close_ours(self) -> None:
        """Closes what only its parent would need."""
        self.ours.close()
        close_lifeline(self.life_write)
        os.close(self.stderr)


class SpawnLauncher:
    """Starts a fresh interpreter for each worker."""

    def __init__(
        self,
        worker_env: Mapping[str, str],
        module: str = "envkit.parallel.worker.main",
    ) -> None:
        """Takes environment variables that are set before anything is imported.

        Args:
            worker_env: The variables.
            module: Where the `main` is that takes the channel and the lifeline.
        """
        self._env = environment_for(worker_env)
        self._program = _BOOTSTRAP.format(module=module)
        self._prepared: deque[WorkerProcess] = deque()

    def prepare(self, count: int) -> None:
        """Starts interpreters, which wait for their jobs when they have loaded NumPy.

        No more than there are CPUs: more would load at the cost of those that build.
        """
        wanted = min(count, available_cpus())
        # Where there is no room now there may be some when they are needed.
        with contextlib.suppress(OSError):
            while len(self._prepared) < wanted:
                with uninterrupted():
                    self._prepared.append(self._start())

    def start(self, inherited: WorkerJob | None = None) -> WorkerProcess:
        """Starts a process that runs `worker.main.main`."""
        return self._prepared.popleft() if self._prepared else self._start()

    def _start(self) -> WorkerProcess:
        ends = WorkerEnds()
        try:
            with text_file(search_path()) as path:
                fds = (path, ends.theirs.fileno(), ends.life_read)
                process = start_interpreter(
                    [self._program, *map(str, fds)],
                    env=self._env,
                    fds=fds,
                    stderr=ends.stderr,
                )
        except BaseException:
            ends.close_theirs()
            ends.close_ours()
            raise
        return ends.process(process.pid, process.poll)

    def close(self) -> None:
        """Ends the processes that were prepared in vain."""
        while self._prepared:
            process = self._prepared.popleft()
            while not process.has_ended():
                process.signal_group(signal.SIGKILL)
                wait_for_end(process.life_fd, 0.02)
            process.close()

    def forget(self) -> None:
        """Closes the descriptors of processes that were prepared in vain."""
        while self._prepared:
            self._prepared.popleft().forget()


class ForkLauncher:
    """Forks this process for each worker; the child inherits all there is.

    That is quick, and constructors need not travel. It also inherits locks that other
    threads hold at that moment: with TensorFlow or other threads in the parent it may
    hang, which is why it is not the default.
    """

    def __init__(self, worker_env: Mapping[str, str]) -> None:
        """Takes environment variables; what is imported already does not see them."""
        self._env = environment_for(worker_env)

    def start(self, inherited: WorkerJob | None = None) -> WorkerProcess:
        """Forks a process that runs `worker.main.main`."""
        ends = WorkerEnds()
        with contextlib.suppress(AttributeError, ValueError, OSError):
            sys.stdout.flush()  # The child would print what is waiting again.
        try:
            pid = os.fork()
        except OSError:  # The system makes no more processes.
            ends.close_theirs()
            ends.close_ours()
            raise
        if pid == 0:
            ends.ours.close()
            run_in_fork(
                ends.theirs.fileno(), ends.life_read, ends.stderr, self._env, inherited
            )
        return ends.process(pid, lambda: _status_of_child(pid))

    def prepare(self, count: int) -> None:
        """Needs nothing: a fork has loaded everything."""

    def close(self) -> None:
        """Needs nothing."""

    def forget(self) -> None:
        """Needs nothing."""


def wait_for_end(life_fd: int, seconds: float) -> None:
    """Waits until a process has ended, for so long at most."""
    if life_fd >= 0:
        is_readable(life_fd, seconds)
    else:
        time.sleep(seconds)


def run_in_fork(
    channel: int,
    lifeline: int,
    stderr: int,
    env: Mapping[str, str],
    inherited: WorkerJob | None = None,
) -> None:
    """Turns a process that was just forked into a worker; never returns."""
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(stderr, 2)
        # As in a process that was spawned: the terminal is the parent's.
        nothing = os.open(os.devnull, os.O_RDONLY)
        if nothing:
            os.dup2(nothing, 0)
            os.close(nothing)
        # An object that stands in for it in the parent is not read here.
        sys.stdout = sys.__stdout__
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        os.environ.update(env)
        # Random numbers of its own: all workers would have the same ones otherwise.
        # Python's `random` sees to that itself.
        np.random.seed()  # noqa: NPY002  # environments that use it need it
        from envkit.parallel.worker.main import main

        main(channel, lifeline, inherited)
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(status)


def search_path() -> str:
    """Returns the search path as a program that Python can read in a worker."""
    # Other entries than strings are skipped by Python, too.
    return ascii([entry for entry in sys.path if isinstance(entry, str)])


def environment_for(worker_env: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables of a worker."""
    return {**ONE_THREAD, **os.environ, **_NO_GPU, **worker_env}


def _status_of_child(pid: int) -> int | None:
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # Other code of the program has waited for it.
        return STATUS_UNKNOWN
    return os.waitstatus_to_exitcode(status) if ended else None
