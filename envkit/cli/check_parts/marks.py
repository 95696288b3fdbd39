"""The report of a check for people: a tick for each promise, or what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from envkit.cli.output import print_trimmed

if TYPE_CHECKING:
    from rich.console import Console

    from envkit.testing.report import EnvironmentReport

__all__ = ["show"]

_MARKS = {"passed": "✓", "failed": "✗", "skipped": "-"}
# For what cannot show them.
_WORDS = {"passed": "ok", "failed": "FAILED", "skipped": "-"}
_STYLES = {"passed": "green", "failed": "bold red", "skipped": "dim"}


def show(console: Console, report: EnvironmentReport, title: str) -> None:
    """Prints a report: all checks, and then in whole what is wrong and what helps."""
    marks = _MARKS if _can_show(console) else _WORDS
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for outcome in report.outcomes:
        style = _STYLES[outcome.status]
        why = f" ({outcome.text})" if outcome.status == "skipped" else ""
        table.add_row(
            Text(marks[outcome.status], style=style),
            Text(outcome.check, style=style if outcome.status != "passed" else ""),
            Text(f"{outcome.promise}{why}", style="dim" if why else ""),
        )
    parts: list[Any] = [table]
    for outcome in report.outcomes:
        if outcome.status == "failed":
            head = f"{marks['failed']} {outcome.check}: {outcome.promise}"
            parts += ["", Text(head, style="bold red")]
            parts.append(Padding(Text(outcome.text), (1, 0, 0, 2)))
    print_trimmed(console, *parts, "", Text(f"{title}: {report.summary()}"))


def _can_show(console: Console) -> bool:
    try:
        "".join(_MARKS.values()).encode(console.encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True
