"""Output of the commands: tables for people, JSON for scripts, progress bars."""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table

from envkit.cli.output import escaped
from envkit.play.console import SafeConsole

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = [
    "Fitting",
    "add_json",
    "print_json",
    "progress_bar",
    "terminal",
]


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--json`."""
    parser.add_argument(
        "--json", action="store_true", help="print JSON, for other programs"
    )


def print_json(answer: Any) -> None:
    """Prints an answer as JSON; nan and infinity become null."""
    plain = _finite(answer)
    # Encodings other than UTF-8 may lack characters, so escape them.
    ascii_only = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    text = json.dumps(plain, indent=2, allow_nan=False, ensure_ascii=ascii_only)
    print(escaped(text))


def _finite(answer: Any) -> Any:
    if isinstance(answer, float):
        return answer if math.isfinite(answer) else None
    if isinstance(answer, dict):
        return {name: _finite(item) for name, item in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [_finite(item) for item in answer]
    return answer


_NO_LIMIT = 10_000


class Fitting:
    """A table that drops its frame if there is no room for it.

    Figures are never truncated: if they do not fit either, the lines are longer than
    the terminal is wide.
    """

    def __init__(self, table: Table) -> None:
        """Takes the table, whose first column may have several lines."""
        self._table = table

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        """Shows it in one of its two forms."""
        table, anywhere = self._table, options.update(width=_NO_LIMIT)
        for column in table.columns[1:]:
            column.no_wrap = True
        if Measurement.get(console, anywhere, table).maximum > options.max_width:
            table.box, table.show_edge, table.padding = SIMPLE_HEAD, False, (0,)
            for column in table.columns:
                column.header = str(column.header).replace(" ", "\n")
            first = table.columns[0]
            texts = [first.header, *first.cells]
            words = [word for text in texts for word in str(text).split()]
            first.min_width = max(map(len, words), default=0)
            least = Measurement.get(console, anywhere, table).minimum
            table.width = least if least > options.max_width else None
        yield table


def terminal() -> Console:
    """Returns the console for tables.

    Files and pipes have no width, so lines may be of any length.
    """
    console = SafeConsole(file=sys.stdout, highlight=False, soft_wrap=False)
    return (
        console
        if console.is_terminal
        else SafeConsole(file=sys.stdout, highlight=False, width=200)
    )


def progress_bar(*columns: Any) -> Progress:
    """Returns a progress bar beside the output, or a silent one without a terminal."""
    # It is a fifth of what the commands import, and few show a bar.
    from rich.progress import Progress

    console = SafeConsole(file=sys.stderr)
    return Progress(
        *(columns or Progress.get_default_columns()),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
