"""Prints answers safely, and separately from the output of other code.

Names, infos and messages may come from others, and a terminal obeys control characters
in them. So everything that commands print goes through `escaped`, in `say`,
`print_json` or a console.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from envkit._shared.text import escaped, exit_call
from envkit.errors import EnvkitError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = [
    "error_text",
    "escaped",
    "print_trimmed",
    "say",
    "stdout_on_stderr",
    "unwritable",
]


def say(*lines: str, file: TextIO | None = None) -> None:
    """Prints each text on one line, on standard output or to a file."""
    for line in lines:
        print(escaped(line).replace("\n", "\\n"), file=file)


def error_text(error: BaseException) -> str:
    """Describes an error in a moderately long line, with its class if that helps."""
    if isinstance(error, SystemExit):
        return f"it called {exit_call(error)}"
    if isinstance(error, EnvkitError):
        return str(error).strip().partition("\n")[0]
    message = " ".join(str(error).split())[:300]
    if isinstance(error, NotImplementedError) and message:
        return message
    return f"{type(error).__name__}: {message}".rstrip(": ")


def unwritable(path: Path, error: OSError) -> OSError:
    """Returns the error for an output that cannot be written."""
    return OSError(f"{str(path)!r} cannot be written: {error.strerror}.")


def print_trimmed(console: Console, *parts: RenderableType) -> None:
    """Prints tables and trees without trailing spaces."""
    with console.capture() as written:
        for part in parts:
            console.print(part)
    for line in written.get().splitlines():
        print(line.rstrip(), file=console.file)


@contextlib.contextmanager
def stdout_on_stderr() -> Iterator[None]:
    """Sends output, even that of native code, to standard error inside the context.

    Libraries and games print while they are imported and played, but other programs
    read a command's answer from standard output.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # there is none
        kept = -1
    with contextlib.redirect_stdout(sys.stderr):
        if kept >= 0:
            os.dup2(2, 1)
        try:
            yield
        finally:
            if kept >= 0:
                os.dup2(kept, 1)
                os.close(kept)
