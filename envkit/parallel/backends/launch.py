"""Starts a worker's process, observes it, and ends it with its helpers."""

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

# The status of a process whose end was not observed.
STATUS_UNKNOWN = 1 << 16

# The GPU's memory is for the learner's process, unless `worker_env` says otherwise.
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}

# Sets the parent's search path first: without it, any file in the current directory
# could hide a module. The parent's main module is not run. Warnings of `import envkit`
# are suppressed, because the parent has shown them once for all workers.
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

# Enough for the stacks of a crash report, which begins with the innermost calls.
_TAIL_BYTES = 1 << 15
_TAIL_LINES = 200
# How many bytes of a worker's standard error may wait to be forwarded.
_BACKLOG_BYTES = 1 << 24
# A pipe that is writable takes 4,096 bytes at once, and a byte may become six
# characters.
_CHUNK_BYTES = 4096 // 6
# Memory is given back in pieces of this size.
_PIECE_BYTES = 1 << 18
# Seconds for showing a worker's last output, and how many of them to wait for a reader.
# Each worker of a closing pool may have some.
_LAST_WORDS = 2.0
_NO_READER = 0.1


class StderrFile:
    """The file that receives a worker's standard error.

    It is a file and not a pipe, because a worker must never wait for its reader. The
    parent bounds its memory whenever it looks: forwarded text is freed, and text beyond
    `_BACKLOG_BYTES` is skipped.
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
            seconds: How long this may take if standard error is slow.
            patience: How long to wait for a standard error that is full.
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
            # Writing to a full standard error would block the parent and all its
            # workers.
            if not _takes_text(patience):
                break
            data = os.pread(self.fd, _CHUNK_BYTES, self._passed)
            self._passed += len(data)
            _write_to_stderr(self._decoder.decode(data))
        self._free(min(self._passed, size - _TAIL_BYTES))

    def _free(self, stop: int) -> None:
        """Frees memory; the file keeps its size, because writers append to it."""
        length = (stop - self._freed) // _PIECE_BYTES * _PIECE_BYTES
        if length > 0 and hasattr(mmap, "MADV_REMOVE"):
            # Truncating the file would lose text that is appended meanwhile.
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
    """Returns True if standard error can be written without blocking."""
    try:
        descriptor = sys.stderr.fileno()
    except (AttributeError, ValueError, OSError):
        return True  # It is in memory, or discards text; either way it does not block.
    poller = select.poll()
    poller.register(descriptor, select.POLLOUT)
    return bool(poller.poll(1000 * patience))


def _write_to_stderr(text: str) -> None:
    # It may be closed, or accept no text; then there is nowhere to show it.
    with contextlib.suppress(AttributeError, ValueError, OSError, TypeError):
        sys.stderr.write(text)
        sys.stderr.flush()


def stderr_file() -> int:
    """Opens an anonymous file for a worker's standard error."""
    fd = anonymous_file()
    # The worker's helpers may reopen it, and all of them must append.
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
    return fd


class WorkerProcess:
    """The parent's view of a worker's process.

    It leads its own session and process group: Ctrl-C reaches only the parent, and
    killing the group also ends the worker's helpers.

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
            stderr: The file for its standard error.
            wait_status: Returns its exit status as in `subprocess`, or
                `STATUS_UNKNOWN`; `None` while it runs.
            life_fd: Its pidfd if one is open already, -1 for none.
        """
        self.pid = pid
        self.channel = channel
        self._lifeline = lifeline
        self._stderr = StderrFile(stderr)
        self._wait_status = wait_status
        self._status: int | None = None
        self.resident = 0
        # Becomes readable when the process ends; without pidfds the channel's end
        # tells.
        if life_fd is None:
            life_fd = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1
        self.life_fd = life_fd

    def has_ended(self) -> bool:
        """Returns True if the process has ended, and keeps its exit status."""
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
        """The last lines of its standard error."""
        return self._stderr.tail()

    def forward_stderr(self, seconds: float = _LAST_WORDS) -> None:
        """Forwards its new text to this process's standard error.

        Args:
            seconds: How long this may take if our standard error is slow.
        """
        self._stderr.pass_on(self.pid, seconds)

    def measure_resident(self) -> int:
        """Returns its memory in bytes, and keeps the figure for its exit report."""
        self.resident = resident_bytes(self.pid) or self.resident
        return self.resident

    def signal_group(self, number: int) -> None:
        """Sends a signal to the process and its helpers."""
        # A process that has just been forked may not have made its group yet.
        if not signal_group(self.pid, number) and self._status is None:
            signal_process(self.pid, number)

    def close(self) -> None:
        """Closes the descriptors, after the process has ended."""
        self.forget()

    def forget(self) -> None:
        """Closes only the descriptors, as a fork of the parent must."""
        self.channel.close()
        self._stderr.close()
        close_lifeline(self._lifeline)
        if self.life_fd >= 0:
            os.close(self.life_fd)
        self._lifeline = self.life_fd = -1


class StartedCommand:
    """Runs a command in its own session, such as ssh.

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
            words: Its words; no shell interprets them.
            variables: Environment variables in addition to this process's.

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
        """Returns True if it has ended; forwards its standard error.

        Args:
            seconds: How long forwarding may take.
        """
        self._stderr.pass_on(self.pid, seconds)
        return self._process.poll() is not None

    def report(self, worker: int, unknown: int | None = None) -> ExitReport:
        """Returns how it ended, which may also explain how its worker ended.

        Args:
            worker: The worker that it started.
            unknown: The exit status that means that it does not know.
        """
        status = self._process.poll()
        self._stderr.pass_on(self.pid, _NO_READER, patience=_NO_READER)
        if self._is_killed or status == unknown:
            status = None
        return ExitReport.of_status(worker, self.pid, status, self._stderr.tail())

    def kill(self) -> None:
        """Kills it and its helpers on this machine; returns once it has ended."""
        self._is_killed |= self._process.poll() is None
        signal_group(self.pid, signal.SIGKILL)
        self._process.wait()

    def forget(self) -> None:
        """Closes only the descriptor; called in forks of this process."""
        self._stderr.close()


class ProcessLauncher(Protocol):
    """Starts workers by one start method."""

    def start(self, inherited: WorkerJob | None = None) -> WorkerProcess:
        """Starts a process that runs `worker.main.main`.

        Args:
            inherited: The job, if a forked worker inherits its constructors.
        """

    def prepare(self, count: int) -> None:
        """Starts processes early so that they load their modules, if possible.

        Args:
            count: How many will be started in all, including those prepared before.
        """

    def close(self) -> None:
        """Ends the launcher's own processes, and prepared ones that were never used."""

    def forget(self) -> None:
        """Closes only descriptors, as a fork of the parent must."""


class WorkerEnds:
    """Both ends of the descriptors of a worker that is about to start."""

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
        """Returns the process, which has its own ends by now."""
        self.close_theirs()
        try:
            return WorkerProcess(
                pid, self.ours, self.life_write, self.stderr, wait_status, life_fd
            )
        except OSError:  # There is no room for the pidfd.
            signal_process(pid, signal.SIGKILL)
            while wait_status() is None:
                time.sleep(0.001)
            self.close_ours()
            raise

    def close_theirs(self) -> None:
        """Closes the worker's ends; the worker has its own copies."""
        self.theirs.close()
        os.close(self.life_read)

    def close_ours(self) -> None:
        """Closes the parent's ends."""
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
            module: The module whose `main` takes the channel and the lifeline.
        """
        self._env = environment_for(worker_env)
        self._program = _BOOTSTRAP.format(module=module)
        self._prepared: deque[WorkerProcess] = deque()

    def prepare(self, count: int) -> None:
        """Starts interpreters, which load NumPy and then wait for their jobs.

        There are no more than CPUs: further ones would slow down those that build.
        """
        wanted = min(count, available_cpus())
        # If there is no room now, there may be when they are needed.
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
        """Ends prepared processes that were never used."""
        while self._prepared:
            process = self._prepared.popleft()
            while not process.has_ended():
                process.signal_group(signal.SIGKILL)
                wait_for_end(process.life_fd, 0.02)
            process.close()

    def forget(self) -> None:
        """Closes the descriptors of prepared processes that were never used."""
        while self._prepared:
            self._prepared.popleft().forget()


class ForkLauncher:
    """Forks this process for each worker; the child inherits everything.

    That is fast, and constructors need no pickling. But the child also inherits locks
    that other threads hold at that moment. With TensorFlow or other threads in the
    parent it may hang, so fork is not the default.
    """

    def __init__(self, worker_env: Mapping[str, str]) -> None:
        """Takes environment variables; modules already imported don't see them."""
        self._env = environment_for(worker_env)

    def start(self, inherited: WorkerJob | None = None) -> WorkerProcess:
        """Forks a process that runs `worker.main.main`."""
        ends = WorkerEnds()
        with contextlib.suppress(AttributeError, ValueError, OSError):
            sys.stdout.flush()  # The child would print buffered text again.
        try:
            pid = os.fork()
        except OSError:  # The system cannot create another process.
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
        """Does nothing: a fork has already loaded everything."""

    def close(self) -> None:
        """Does nothing."""

    def forget(self) -> None:
        """Does nothing."""


def wait_for_end(life_fd: int, seconds: float) -> None:
    """Waits until a process has ended, for at most `seconds`."""
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
        # As in a spawned process, the terminal belongs to the parent.
        nothing = os.open(os.devnull, os.O_RDONLY)
        if nothing:
            os.dup2(nothing, 0)
            os.close(nothing)
        # The parent may have replaced sys.stdout, but nobody reads its object here.
        sys.stdout = sys.__stdout__
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        os.environ.update(env)
        # Otherwise all workers would draw the same random numbers. Python's `random`
        # reseeds itself.
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
    """Returns the search path as Python source, for the worker's program."""
    # Python too skips entries that are not strings.
    return ascii([entry for entry in sys.path if isinstance(entry, str)])


def environment_for(worker_env: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables of a worker."""
    return {**ONE_THREAD, **os.environ, **_NO_GPU, **worker_env}


def _status_of_child(pid: int) -> int | None:
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # Other code in the program has waited for it.
        return STATUS_UNKNOWN
    return os.waitstatus_to_exitcode(status) if ended else None
