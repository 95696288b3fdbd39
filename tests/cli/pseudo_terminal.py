"""A program in a terminal that only pretends to be one, as somebody at it sees it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

from tests.waiting import PATIENCE

_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|.)")


class PseudoTerminal:
    """A program with a terminal: what it shows, and keys for it."""

    def __init__(self, arguments: list[object]) -> None:
        self._ours, self._theirs = pty.openpty()
        size = struct.pack("HHHH", 24, 80, 0, 0)
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, size)
        self.before = termios.tcgetattr(self._theirs)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "envkit", *map(str, arguments)],
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
        )
        self.shown = ""
        self._seen = 0

    def wait_for(self, text: str) -> str:
        """Waits until it shows something new; returns all that is new until then."""
        deadline = time.monotonic() + PATIENCE
        while (place := self.shown.find(text, self._seen)) < 0:
            assert time.monotonic() < deadline, self.shown[-2000:]
            self._read(0.1)
        found = self.shown[self._seen : place]
        self._seen = place + len(text)
        return found

    def type(self, keys: str) -> None:
        """Types keys."""
        os.write(self._ours, keys.encode())

    def end(self) -> tuple[int, str]:
        """Waits for the end; returns the exit status and the last line."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.shown[-2000:]
            self._read(0.05)
        while self._read(0.0):
            pass
        lines = _ESCAPES.sub("", self.shown.rpartition("\x1b[?1049l")[2]).split("\r\n")
        return self.process.returncode, lines[-2].strip() if lines[1:] else lines[0]

    @property
    def is_as_before(self) -> bool:
        """Whether it has been given back as it was: settings, screen and cursor."""
        return (
            termios.tcgetattr(self._theirs) == self.before
            and self.shown.count("\x1b[?1049h") == self.shown.count("\x1b[?1049l")
            and self.shown.rfind("\x1b[?25h") > self.shown.rfind("\x1b[?25l")
        )

    def close(self) -> None:
        """Ends the program, if it goes on, and the terminal."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def _read(self, timeout: float) -> bool:
        if not select.select([self._ours], [], [], timeout)[0]:
            return False
        received = os.read(self._ours, 1 << 16)
        self.shown += received.decode(errors="replace")
        return bool(received)


@contextlib.contextmanager
def in_terminal(*arguments: object) -> Iterator[PseudoTerminal]:
    """Starts `envkit` in a terminal."""
    terminal = PseudoTerminal(list(arguments))
    try:
        yield terminal
    finally:
        terminal.close()
