"""`Launched`: a server that a client has started, and ends."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

from envkit._shared.text import escaped
from envkit.errors import EnvkitError
from envkit.parallel.system.guardian import Guardian

__all__ = ["LaunchError", "Launched"]

_LOGGER = logging.getLogger(__name__)

_ADDRESS = re.compile(rb"\bt(?:cp|ls)://[^\s,]+")
_POLL_INTERVAL = 0.05
_GRACE = 5.0
_TAIL = 2000


class LaunchError(EnvkitError, RuntimeError):
    """A server that was to be started has ended, or does not answer."""


class Launched:
    """A command that runs a server, as a process with a group of its own."""

    def __init__(self, command: Sequence[str], start_timeout: float) -> None:
        """Starts the command.

        Raises:
            LaunchError: It cannot be started.
        """
        if isinstance(command, str) or not command:
            raise TypeError(
                "command must be a list of words, such as ['envkit', 'serve', "
                f"'CartPole'], got {command!r:.80}."
            )
        self._command = [os.fspath(word) for word in command]
        self._timeout = start_timeout
        self._changed = threading.Condition()
        self._is_closed = self._has_printed = False
        # Held while the command is started again.
        self._reviving = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed in _end()
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise LaunchError(
                f"The command {self._command[0]!r} cannot be started: "
                f"{error.strerror or error}."
            ) from error
        # It ends the command where this process ends without doing so.
        guardian = Guardian()
        guardian.start()
        guardian.watch(self._process.pid)
        self._printed: list[bytes] = []
        reader = threading.Thread(
            target=_read, args=(self._process.stdout, self._printed, self._changed)
        )
        reader.daemon = True
        reader.start()
        self._finalizer = weakref.finalize(
            self, _end, os.getpid(), self._process, self._errors, guardian
        )

    def revive(self) -> str | None:
        """Starts the command again if it has ended.

        Returns:
            The address that it has printed; `None` if it prints none.

        Raises:
            LaunchError: It cannot be started, or has ended again.
        """
        with self._reviving:
            problem = self.problem()
            if problem is not None and not self._is_closed:
                _LOGGER.warning("%s It is started again.", problem)
                self._finalizer()
                self._start()
            return self.await_address() if self._has_printed else None

    def await_address(self) -> str:
        """Returns the first address that the command prints.

        Raises:
            LaunchError: It has ended before, or printed none in time.
        """
        deadline = time.monotonic() + self._timeout
        with self._changed:
            while True:
                found = _ADDRESS.search(b"".join(self._printed))
                if found is not None:
                    self._has_printed = True
                    return found[0].decode("ascii", "replace")
                problem = self.problem()
                if problem is not None or self._is_closed:
                    raise LaunchError(problem or "The server was closed.")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise LaunchError(
                        f"The command {self._command[0]!r} has printed no address for "
                        f"{self._timeout:g} s (start_timeout).{self._tail()} Pass the "
                        "address if it prints none."
                    )
                self._changed.wait(min(left, _POLL_INTERVAL))

    def problem(self) -> str | None:
        """Returns how the command has ended; `None` as long as it runs."""
        code = self._process.poll()
        if code is None:
            return None
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code < 0
            else f"exited with code {code}"
        )
        return f"The command {self._command[0]!r} {how}.{self._tail()}"

    def _tail(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            size = os.fstat(self._errors.fileno()).st_size
            data = os.pread(self._errors.fileno(), _TAIL, max(0, size - _TAIL))
            text = data.decode(errors="replace").strip()
            if text:
                return f" It has said: {escaped(text)}"
        return ""

    def close(self) -> None:
        """Ends the command and what it has started; returns when it has ended."""
        self._is_closed = True
        with self._reviving:
            self._finalizer()


def _read(stream: Any, lines: list[bytes], changed: threading.Condition) -> None:
    """Reads what a command prints, so that it never waits for room."""
    for line in stream:
        with changed:
            if len(lines) < 100:
                lines.append(line)
            changed.notify_all()
    stream.close()


def _end(
    owner: int, process: subprocess.Popen[bytes], errors: Any, guardian: Guardian
) -> None:
    if os.getpid() != owner:
        return  # A fork of the client, which has not started it.
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
            break
    # Helpers that have outlived it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    errors.close()
    guardian.leave(process.pid)
    guardian.dismiss()
