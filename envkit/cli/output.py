"""Answers without what else is printed: by other people's code, and as padding."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["print_trimmed", "stdout_on_stderr"]


def print_trimmed(console: Console, *parts: RenderableType) -> None:
    """Prints tables and trees without the spaces that fill their lines."""
    with console.capture() as written:
        for part in parts:
            console.print(part)
    for line in written.get().splitlines():
        print(line.rstrip(), file=console.file)


@contextlib.contextmanager
def stdout_on_stderr() -> Iterator[None]:
    """Sends what is printed meanwhile to standard error, also by native code.

    Libraries greet whoever imports them, and games have their say; what a command
    answers on standard output is for other programs to read.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # It has none.
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
