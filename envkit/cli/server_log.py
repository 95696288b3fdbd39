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


@contextlib.contextmanager
def logged() -> Iterator[None]:
    """Lets envkit's log be seen meanwhile: a line for each client."""
    logger, handler = logging.getLogger("envkit"), _Lines()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    before = logger.level
    logger.addHandler(handler)
    if not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
