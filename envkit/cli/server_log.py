"""The lines of a server's log on standard error, where a reader may be missing."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys
from collections.abc import Iterator

from envkit.cli.output import escaped, say

__all__ = ["logged"]

# A pipe that says that it has room has room for so many bytes.
_MOST = 4096


class _Lines(logging.Handler):
    """Writes each record in one go, and drops those that would have to wait.

    A pipe that is not read fills up, and a server that waits for it stands still.
    """

    def emit(self, record: logging.LogRecord) -> None:
        text = escaped(f"envkit serve: {self.format(record)}")
        try:
            fd = sys.stderr.fileno()
        except (AttributeError, OSError, ValueError):  # It is replaced, or closed.
            with contextlib.suppress(AttributeError, ValueError):
                say(text, file=sys.stderr)
            return
        poller = select.poll()
        poller.register(fd, select.POLLOUT)
        data = text.encode("utf-8", "replace")[: _MOST - 1] + b"\n"
        with contextlib.suppress(OSError):
            if any(found & select.POLLOUT for _, found in poller.poll(0)):
                os.write(fd, data)


_FORMAT = "%(asctime)s %(message)s"


class _Brief(logging.Formatter):
    """Writes of an exception what it says, without its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return super().format(record)
        said = f"{type(error).__name__}: {error} (--debug shows where)"
        plain = logging.makeLogRecord(
            {**record.__dict__, "exc_info": None, "exc_text": None}
        )
        return f"{super().format(plain)} {said}"


@contextlib.contextmanager
def logged(*, debug: bool = False) -> Iterator[None]:
    """Lets envkit's log be seen meanwhile: a line for each client.

    Args:
        debug: Whether to show tracebacks.
    """
    logger, handler = logging.getLogger("envkit"), _Lines()
    handler.setFormatter(logging.Formatter(_FORMAT) if debug else _Brief(_FORMAT))
    before = logger.level
    logger.addHandler(handler)
    if not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
