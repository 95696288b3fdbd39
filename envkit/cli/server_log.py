"""Logs `envkit serve` on standard error: a line per event, without blocking."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator

from envkit._shared.unread_stderr import queued_stderr
from envkit.cli.output import escaped

__all__ = ["logged"]


@contextlib.contextmanager
def logged(*, debug: bool = False) -> Iterator[None]:
    """Shows envkit's log and other libraries' warnings inside the context.

    Clients must be able neither to fill the log nor to stop the server: errors are
    logged in one line without a traceback, and lines that nobody reads are dropped.

    Args:
        debug: Whether to show tracebacks.
    """
    root, ours = logging.getLogger(), logging.getLogger("envkit")
    level = ours.level
    with queued_stderr():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(_FORMAT) if debug else _OneLine())
        root.addHandler(handler)
        if not ours.isEnabledFor(logging.INFO):
            ours.setLevel(logging.INFO)
        logging.captureWarnings(True)
        try:
            yield
        finally:
            logging.captureWarnings(False)
            ours.setLevel(level)
            root.removeHandler(handler)


_FORMAT = "envkit serve: %(asctime)s %(message)s"


class _OneLine(logging.Formatter):
    """Formats each record as one line, whatever it contains."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        record = logging.makeLogRecord(record.__dict__)
        error = record.exc_info[1] if record.exc_info else None
        message = record.getMessage().strip()
        if error is not None:
            message += f": {_described(error)} (--debug shows where)"
        record.msg, record.args = message, ()
        record.exc_info = record.exc_text = record.stack_info = None
        return escaped(super().format(record)).replace("\n", "\\n")


def _described(error: BaseException) -> str:
    """Returns an error's message, and where it was raised."""
    place, trace = "", error.__traceback__
    while trace is not None:
        file = os.path.basename(trace.tb_frame.f_code.co_filename)
        place, trace = f" at {file}:{trace.tb_lineno}", trace.tb_next
    told = str(error).partition("\n")[0][:500]
    return f"{type(error).__name__}{place}" + (f": {told}" if told else "")
