"""`SharedProcesses`: processes with several sessions each, in threads.

Environments that wait, for a browser or for another program, need little of a CPU. With
a process for each of them, much of it is spent on changing processes, and their
interpreters take most of the memory.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterable

from envkit.remote.offers import Refusal
from envkit.remote.session_host import SessionChannel
from envkit.remote.session_process import (
    TO_REPORT_END,
    TRIES,
    OwnProcess,
    Templates,
    begun,
    end_text,
)

__all__ = ["SharedProcess", "SharedProcesses"]


class SharedProcesses:
    """Starts sessions in processes that have room for them."""

    def __init__(self, templates: Templates, most: int, idle_timeout: float) -> None:
        """Prepares.

        Args:
            templates: Start the processes.
            most: The maximum number of sessions of a process.
            idle_timeout: Seconds without a request after which a session ends.
        """
        self._templates, self._most = templates, most
        self._idle_timeout = idle_timeout
        self._lock = threading.Lock()
        self._running: dict[tuple[str, ...], list[SharedProcess]] = {}

    def start(self, libraries: Iterable[str]) -> tuple[SessionChannel, SharedProcess]:
        """Starts a session; as `Templates.start`."""
        key = tuple(libraries)
        for _ in range(TRIES):
            process = self._with_room(key)
            try:
                return process.begin(), process
            except EOFError:
                process.is_full = True
                process.leave(0)
        raise Refusal("The session's process cannot be started.")

    def _with_room(self, libraries: tuple[str, ...]) -> SharedProcess:
        """Returns a process that will have another session."""
        with self._lock:
            running = self._running.get(libraries, [])
            running = [each for each in running if not each.is_over]
            self._running[libraries] = running
            for process in running:
                if process.take(self._most):
                    return process
            channel, own = self._templates.start(libraries)
            channel.send({"options": {"idle_timeout": self._idle_timeout}})
            process = SharedProcess(channel, own)
            process.take(self._most)
            running.append(process)
            return process


class SharedProcess:
    """A process with several sessions, until the last one has ended.

    Attributes:
        is_full: Whether it gets no more sessions.
        is_over: Whether it is being ended.
    """

    def __init__(self, channel: SessionChannel, process: OwnProcess) -> None:
        self._channel, self._process = channel, process
        self.is_full = self.is_over = False
        self._sessions = 0
        self._lock = threading.Lock()
        self._code: int | None = None

    @property
    def pidfd(self) -> int:
        """Becomes readable when the process has ended; -1 if the system has none."""
        return self._process.pidfd

    def take(self, most: int) -> bool:
        """Takes a place for a session; returns False if there is none."""
        with self._lock:
            if self.is_over or self.is_full or self._sessions >= most:
                return False
            self._sessions += 1
            return True

    def begin(self) -> SessionChannel:
        """Starts a session in a place that was taken.

        Raises:
            EOFError: The process has ended.
        """
        here, there = socket.socketpair()
        with there:
            self._channel.send({}, there.fileno())
        channel, _, pidfd = begun(SessionChannel(here))
        if pidfd is not None:
            os.close(pidfd)
        return channel

    def kill(self, channel: SessionChannel) -> None:
        """Gives a session up whose environments do not end.

        Its thread cannot be ended, so no more sessions come here, and the process is
        killed after the last of the others.
        """
        self.is_full = True
        channel.shut()

    def leave(self, code: int | None) -> str:
        """Gives a place back; returns how the session crashed, or "".

        Args:
            code: The exit code that the session reported; `None` if it could not.
        """
        with self._lock:
            if code is None:
                code = self._reported_code()
            self._sessions -= 1
            if not self._sessions:
                self.is_over = True
                self._process.kill(self._channel)
                self._process.leave(code)
                self._channel.close()
        return end_text(code)

    def _reported_code(self) -> int | None:
        """Returns the exit code of the process; 0 while it runs."""
        if self._code is None:
            # A session that was given up may have left the others alone.
            patience = 0.0 if self.is_full else TO_REPORT_END
            if not self._channel.has_message(patience):
                return 0 if self.is_full else None
            with contextlib.suppress(EOFError):
                message, _ = self._channel.receive()
                self._code = int(message["ended"])
        return self._code
