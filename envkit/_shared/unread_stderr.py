"""Standard error of a server, which waits for no reader.

A pipe that nothing reads is full after some 64 KB, and a terminal may be stopped by
Ctrl-S. A thread that prints then waits, and a server would stand still for its clients,
also when it is told to end.
"""

from __future__ import annotations

import contextlib
import io
import os
import queue
import sys
import threading
from collections.abc import Iterator

__all__ = ["unhurried_stderr"]

# Lines that may wait for a slow reader, and the bytes that count of each.
_MOST_WAITING, _LONGEST = 1024, 1 << 16
# Seconds that a reader has for the last lines.
_LAST_WORDS = 1.0


@contextlib.contextmanager
def unhurried_stderr() -> Iterator[None]:
    """Lets whatever Python prints on standard error meanwhile wait in a queue.

    A thread writes it. Where the queue is full, lines are left out.
    """
    before = sys.stderr
    try:
        before.flush()
        sink = _Sink(before.fileno())
    except (AttributeError, OSError, ValueError):  # It is closed, or replaced.
        yield
        return
    sys.stderr = io.TextIOWrapper(
        sink, before.encoding, "backslashreplace", line_buffering=True
    )
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.stderr.flush()
        sys.stderr = before
        sink.finish()


class _Sink(io.RawIOBase):
    """Takes bytes at once, and writes them in a thread."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pid = os.getpid()
        # One that takes lines also from within a `put`, as of a finalizer.
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._left_out = 0
        self._thread = threading.Thread(
            target=self._run, name="envkit-stderr", daemon=True
        )
        self._thread.start()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def write(self, data: object) -> int:
        text = bytes(data)  # type: ignore[call-overload]  # a buffer of any kind
        if os.getpid() != self._pid:
            # Threads do not live on in a forked process.
            os.write(self._fd, text)
        elif self._waiting.qsize() < _MOST_WAITING:
            self._waiting.put(text[:_LONGEST])
        else:
            self._left_out += 1
        return len(text)

    def finish(self) -> None:
        """Waits for a moment until all is written."""
        self._waiting.put(None)
        self._thread.join(_LAST_WORDS)

    def _run(self) -> None:
        while (text := self._waiting.get()) is not None:
            if self._left_out and self._waiting.empty():
                left_out, self._left_out = self._left_out, 0
                text += f"({left_out} lines were left out here)\n".encode()
            with contextlib.suppress(OSError):  # The reader has gone.
                while text:
                    text = text[os.write(self._fd, text) :]
