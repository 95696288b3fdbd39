"""`ForkserverLauncher`: workers forked by a process that has everything loaded.

```
parent                                         server
  starts it, with a channel and a lifeline ─▶   loads NumPy and what a worker needs
  Fork(number) + the worker's descriptors  ─▶   forks ──▶ worker: worker.main.main
                                           ◀─   Forked(number, pid) + its pidfd
                                           ◀─   Ended({number: status}), when it ends
  closes the channel                       ─▶   ends
```

Forking the parent itself is risky because of its threads and locks. The server has only
descriptors of the parent. It has one thread and does nothing but fork and wait, so its
forks start in a clean state.

Workers are the server's children, so only the server learns how they end. If it is
killed, its workers live on and the next worker gets a new server. Of the old workers we
then learn only that they ended, not how.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from envkit.errors import WorkerError
from envkit.parallel.backends.launch import (
    STATUS_UNKNOWN,
    SpawnLauncher,
    WorkerEnds,
    WorkerProcess,
    run_in_fork,
)
from envkit.parallel.messages import WorkerJob
from envkit.parallel.system.channel import Channel
from envkit.parallel.system.doorbell import is_readable
from envkit.parallel.system.lifeline import end_with
from envkit.parallel.system.signals import signal_process

__all__ = ["Ended", "Fork", "Forked", "ForkserverLauncher", "Refused", "main"]

# Modules that every worker needs. The environments' own modules are not among them:
# they may start threads or open windows, which do not survive a fork.
_PRELOADED = (
    "numpy.random",
    "envkit.parallel.worker.main",
    "envkit.py_environment",
    "envkit.batched_py_environment",
)

# Seconds for the server to load all that, on a busy machine with slow disks, and to
# fork.
_START_TIMEOUT = 60.0
# The wait is cut into pieces of this many seconds. If nothing ran for long, as in a
# paused container, that counts as one piece.
_PIECE = 1.0
# Seconds after a worker's end for the server to report how it ended.
_STATUS_TIMEOUT = 1.0
# Seconds for the server to end, once asked.
_GRACE = 1.0


@dataclass(frozen=True, slots=True)
class Fork:
    """The order to fork a worker; its descriptors come with it.

    Attributes:
        number: The worker's number in later messages.
        path: The parent's present module search path.
        folder: The parent's working directory, if it has one.
    """

    number: int
    path: tuple[str, ...]
    folder: str | None


@dataclass(frozen=True, slots=True)
class Forked:
    """The answer: a worker's process, with its pidfd on systems that have one."""

    number: int
    pid: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer if the system cannot create another process."""

    number: int
    errno: int
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The exit statuses of workers by their numbers, as in `subprocess`."""

    statuses: dict[int, int]


class ForkserverLauncher:
    """Makes a server fork each worker, which takes milliseconds.

    The server starts with the first worker. A worker gets its parent's working
    directory and search path at that moment.
    """

    def __init__(self, worker_env: Mapping[str, str]) -> None:
        """Takes environment variables that are set before anything is imported."""
        self._spawner = SpawnLauncher(worker_env, __name__)
        self._server: _ForkServer | None = None

    def start(self, inherited: WorkerJob | None = None) -> WorkerProcess:
        """Starts a process that runs `worker.main.main`."""
        if self._server is not None:
            try:
                return self._server.start_worker()
            except (EOFError, ConnectionError, TimeoutError):
                # The server was killed or stopped from outside. A new one starts the
                # worker.
                self.close()
        self._server = server = _ForkServer(self._spawner.start())
        try:
            return server.start_worker()
        except (EOFError, BrokenPipeError, TimeoutError) as error:
            self.close()
            raise server.failure(error) from error

    def prepare(self, count: int) -> None:
        """Does nothing: the server's forks have loaded everything."""

    def close(self) -> None:
        """Ends the server; workers that are still running are not affected."""
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def forget(self) -> None:
        """Closes only the descriptors; called in forks of the parent."""
        server, self._server = self._server, None
        if server is not None:
            server.forget()


# The parent's side.


class _ForkServer:
    """The parent's view of the server.

    Attributes:
        is_gone: Whether no further message from it will arrive.
    """

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._number = 0
        self._statuses: dict[int, int] = {}
        self.is_gone = False

    def start_worker(self) -> WorkerProcess:
        """Makes the server fork a worker.

        Raises:
            EOFError: The server has ended.
            ConnectionError: The same, or this process has no room for a descriptor.
            TimeoutError: It does not answer.
            OSError: The system cannot create another process.
        """
        # Each order has a new number, because after Ctrl-C the answer to an abandoned
        # order still arrives.
        self._number += 1
        number = self._number
        ends = WorkerEnds()
        try:
            pid, life_fd = self._fork(number, ends)
        except BaseException:
            ends.close_theirs()
            # If a worker was forked nevertheless, it dies without its lifeline.
            ends.close_ours()
            raise
        return ends.process(pid, _WaitStatus(self, number, pid, life_fd), life_fd)

    def _fork(self, number: int, ends: WorkerEnds) -> tuple[int, int]:
        channel, life = self._process.channel, self._process.life_fd
        life_or_none = life if life >= 0 else None
        fds = (ends.theirs.fileno(), ends.life_read, ends.stderr)
        order = Fork(number, _search_path(), _folder())
        channel.send(order, fds, timeout=_START_TIMEOUT, life=life_or_none)
        while True:
            answer = self._receive(life_or_none)
            came = channel.receive_fds()
            if isinstance(answer, Ended):
                self._statuses.update(answer.statuses)
            elif answer.number != number:
                _close_all(came)
            elif isinstance(answer, Refused):
                raise OSError(answer.errno, answer.reason)
            else:
                return answer.pid, came[0] if came else -1

    def _receive(self, life: int | None) -> Forked | Refused | Ended:
        """Waits for the server's next message."""
        left = _START_TIMEOUT
        while True:
            piece = min(left, _PIECE)
            try:
                return self._process.channel.receive(piece, life=life)  # type: ignore[no-any-return] # it sends nothing else
            except TimeoutError:
                left -= piece
                if left <= 0.0:
                    raise

    def status(self, number: int) -> int | None:
        """Returns how a worker ended, or `None` before the server has sent it."""
        self._listen()
        return self._statuses.pop(number, None)

    def _listen(self) -> None:
        """Handles the server's messages so far, without waiting."""
        while not self.is_gone:
            try:
                messages = self._process.channel.receive_available()
                # They belong to interrupted orders.
                _close_all(self._process.channel.receive_fds())
            except (EOFError, ConnectionError):
                self.is_gone = True
                return
            if not messages:
                return
            for message in messages:
                if isinstance(message, Ended):
                    self._statuses.update(message.statuses)

    def close(self) -> None:
        """Ends the server, and keeps the messages it has sent."""
        process = self._process
        self._listen()
        self.is_gone = True
        process.channel.close()
        try:
            _wait_until(process.has_ended, process.life_fd, _GRACE)
        finally:
            if not process.has_ended():
                process.signal_group(signal.SIGKILL)
                _wait_until(process.has_ended, process.life_fd, _GRACE)
            process.forward_stderr()
            process.close()

    def forget(self) -> None:
        """Closes the descriptors only."""
        self.is_gone = True
        self._process.forget()

    def failure(self, error: Exception) -> WorkerError:
        """Returns the error for a server that was closed without starting a worker."""
        report = self._process.report(0)
        if isinstance(error, TimeoutError):
            end = f"started no worker within {_START_TIMEOUT:g} s"
        elif report.signal:
            end = f"was killed by {report.signal} before it had started a worker"
        else:
            end = f"exited with code {report.exitcode} before it had started a worker"
        tail = report.stderr_tail.replace("\n", f"\n{' ' * 18}")
        return WorkerError(
            f"the fork server (pid {report.pid}) {end}.\n\n"
            + (f"  last stderr     {tail}\n\n" if tail else "")
            + 'It loads NumPy and envkit, then forks the workers. start_method="spawn" '
            "does without it."
        )


class _WaitStatus:
    """Returns the exit status of a worker that the fork server forked."""

    def __init__(
        self, server: _ForkServer, number: int, pid: int, life_fd: int
    ) -> None:
        self._server = server
        self._number = number
        self._pid = pid
        self._life_fd = life_fd
        self._deadline: float | None = None

    def __call__(self) -> int | None:
        # Check this before reading messages: once a worker is gone, the message about
        # it has been sent or follows soon.
        has_gone = self._has_gone()
        status = self._server.status(self._number)
        if status is not None or not has_gone:
            return status
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + _STATUS_TIMEOUT
        # A server that was stopped from outside never sends the message.
        if self._server.is_gone or now >= self._deadline:
            return STATUS_UNKNOWN
        return None

    def _has_gone(self) -> bool:
        if self._life_fd >= 0:
            return is_readable(self._life_fd, 0.0)
        return not signal_process(self._pid, 0)


def _search_path() -> tuple[str, ...]:
    # Python too skips entries that are not strings.
    return tuple(entry for entry in sys.path if isinstance(entry, str))


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # The directory was removed.
        return None


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def _wait_until(has_ended: Callable[[], bool], life_fd: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not has_ended() and (left := deadline - time.monotonic()) > 0:
        if life_fd >= 0:
            is_readable(life_fd, left)
        else:
            time.sleep(min(left, 0.01))


# The server's side.


def main(channel_fd: int, lifeline_fd: int) -> None:
    """Runs a server until its channel is closed."""
    if sys.platform == "linux":
        # On other systems this would take a thread; there the closing channel must be
        # enough.
        end_with(lifeline_fd)
    for module in _PRELOADED:
        importlib.import_module(module)
    # These objects live as long as each worker. Freezing hides them from its garbage
    # collector, whose visits would copy their pages.
    gc.collect()
    gc.freeze()
    with Channel.attach(channel_fd) as channel:
        _Forker(channel, lifeline_fd).serve()


class _Forker:
    """Forks workers on request, and reports how they ended."""

    def __init__(self, channel: Channel, lifeline: int) -> None:
        self._channel = channel
        self._lifeline = lifeline
        self._number_of: dict[int, int] = {}
        # Gets a byte for each signal, so one wait covers orders and ends.
        self._heard, self._wakeup = os.pipe()
        for fd in (self._heard, self._wakeup):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def serve(self) -> None:
        """Handles requests until the channel is closed."""
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        poller.register(self._heard, select.POLLIN)
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                ready = {} if self._channel.pending else dict(poller.poll())
                if self._heard in ready:
                    # Empty it first: a worker that ends from now on wakes us again.
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._heard, 4096)
                    self._reap()
                if self._channel.pending or self._channel.fileno() in ready:
                    self._answer(self._channel.receive())

    def _reap(self) -> None:
        statuses = {}
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                statuses[self._number_of.pop(pid)] = os.waitstatus_to_exitcode(status)
        if statuses:
            self._channel.send(Ended(statuses))

    def _answer(self, order: Fork) -> None:
        fds = self._channel.receive_fds()
        try:
            pid = os.fork()
        except OSError as error:
            _close_all(fds)
            self._channel.send(
                Refused(order.number, error.errno or 0, error.strerror or "")
            )
            return
        if pid == 0:
            self._become_worker(order, fds)
        _close_all(fds)
        self._number_of[pid] = order.number
        # Opened here, because only the parent of a child can be sure that its number
        # still means this child.
        life = [os.pidfd_open(pid)] if hasattr(os, "pidfd_open") else []
        try:
            self._channel.send(Forked(order.number, pid), life)
        finally:
            _close_all(life)

    def _become_worker(self, order: Fork, fds: Sequence[int]) -> None:
        """Runs a worker in the process that was just forked; never returns."""
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # Otherwise the parent could mistake the child for the server.
            self._channel.close()
            _close_all((self._lifeline, self._heard, self._wakeup))
            sys.path[:] = order.path
            # If the directory cannot be entered, the worker stays in the server's.
            if order.folder is not None:
                with contextlib.suppress(OSError):
                    os.chdir(order.folder)
            importlib.invalidate_caches()
            channel, lifeline, stderr = fds
            run_in_fork(channel, lifeline, stderr, env={})
        finally:
            os._exit(1)
