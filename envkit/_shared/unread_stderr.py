"""Writes a server's standard error without waiting for a reader.

An unread pipe is full after about 64 KB, and Ctrl-S stops a terminal. A thread that
prints then blocks, and the server would stop responding to its clients, and even to a
signal to end.
"""

from __future__ import annotations

import contextlib
import io
import os
import queue
import sys
import threading
from collections.abc import Iterator

__all__ = ["queued_stderr"]

# Lines that may wait for a slow reader, and the bytes kept of each.
_MOST_WAITING, _LONGEST = 1024, 1 << 16
# Seconds that a reader has for the last lines.
_LAST_WORDS = 1.0


@contextlib.contextmanager
def queued_stderr() -> Iterator[None]:
    """Queues everything that Python prints on standard error inside the context.

    A thread writes it. If the queue is full, lines are dropped.
    """
    before = sys.stderr
    try:
        before.flush()
        sink = _Sink(before.fileno())
    except (AttributeError, OSError, ValueError):  # closed, or replaced
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
        # A SimpleQueue may be used even within a `put`, as a finalizer may do.
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
            # Threads do not survive a fork.
            os.write(self._fd, text)
        elif self._waiting.qsize() < _MOST_WAITING:
            self._waiting.put(text[:_LONGEST])
        else:
            self._left_out += 1
        return len(text)

    def finish(self) -> None:
        """Waits briefly until everything is written."""
        self._waiting.put(None)
        self._thread.join(_LAST_WORDS)

    def _run(self) -> None:
        while (text := self._waiting.get()) is not None:
            if self._left_out and self._waiting.empty():
                left_out, self._left_out = self._left_out, 0
                text += f"({left_out} lines were left out here)\n".encode()
            with contextlib.suppress(OSError):  # the reader has gone
                while text:
                    text = text[os.write(self._fd, text) :]
