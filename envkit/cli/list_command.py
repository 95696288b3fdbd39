"""`envkit list [PATTERN]`: lists the available environments by library."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from envkit import registry
from envkit.cli.findings import Findings, matches, schemes_for
from envkit.cli.output import print_trimmed
from envkit.cli.survey import built_in, survey
from envkit.cli.terminal import add_json, print_json, progress_bar, terminal
from envkit.extend import suggestion
from envkit.registry import registered

__all__ = ["EXAMPLE", "add_arguments", "run"]

EXAMPLE = "envkit list 'gymnasium:*Cart*'"

_FOUND, _NOTHING = 0, 1
_PARTS = ("observation", "action")
# The number of names per library in an overview.
_SHOWN = 4
_UNKNOWN = "names that its package does not list"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        f"{parser.description}\n"
        "Exit status: 0 if environments were found, 1 if none match."
    )
    parser.add_argument(
        "pattern",
        nargs="?",
        metavar="PATTERN",
        help="part of a name, or a glob, in any case: pole, 'ale:*ram*'. gymnasium: "
        "lists that library and asks no other (default: envkit's own environments, and "
        "a count for each library)",
    )
    parser.add_argument(
        "--specs",
        action="store_true",
        help="show the specs of all listed environments, which takes long for hundreds "
        "because each must be made; ten matches or fewer always show theirs",
    )
    parser.add_argument(
        "--refresh",
        action="store_true",
        help="ask the libraries again; names are cached in $XDG_CACHE_HOME or ~/.cache "
        "until a library changes",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Lists environments; the status is 1 if there are none."""
    pattern = arguments.pattern
    schemes = schemes_for(pattern, registry.schemes())
    libraries = survey(
        schemes,
        pattern,
        specs=arguments.specs,
        debug=arguments.debug,
        refresh=arguments.refresh,
        watch=_bar,
    )
    own = built_in(pattern, refresh=arguments.refresh)
    rows = own + [row for found in libraries for row in _rows(found, pattern)]
    if arguments.json:
        print_json({"environments": rows, **_others(libraries)})
    elif pattern is None and not arguments.specs:
        _show_overview(own, libraries)
    else:
        _show_matches(rows, libraries, pattern)
    return _FOUND if rows else _NOTHING


@contextlib.contextmanager
def _bar(schemes: Sequence[str]) -> Iterator[Callable[[str], None]]:
    """Shows a bar while libraries are asked; yields a function that counts answers."""
    # If none is asked, this import would take a sixth of the command's time.
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with progress_bar(*columns) as progress:
        asking = progress.add_task("asking libraries", total=len(schemes))
        waiting = set(schemes)

        def answered(scheme: str) -> None:
            waiting.discard(scheme)
            first = min(waiting, default="")
            progress.update(asking, advance=1, description=f"asking {first}")

        yield answered


def _rows(found: Findings, pattern: str | None) -> list[dict[str, Any]]:
    return [
        {"target": target, "scheme": found.scheme, **found.specs.get(name, {})}
        for name in found.names or ()
        if matches(target := f"{found.scheme}:{name}", pattern)
    ]


def _others(libraries: list[Findings]) -> dict[str, Any]:
    """Returns the libraries that are missing, broken or silent, as plain data."""
    return {
        "missing": [
            {
                "scheme": found.scheme,
                "package": found.package,
                "install": found.command or None,
                "reason": found.missing,
            }
            for found in libraries
            if found.missing
        ],
        "broken": [
            {"scheme": found.scheme, "reason": found.broken}
            for found in libraries
            if found.broken
        ],
        "unlisted": [found.scheme for found in libraries if _is_unlisted(found)],
    }


def _is_unlisted(found: Findings) -> bool:
    return found.names is None and not found.missing and not found.broken


def _show_overview(own: list[dict[str, Any]], libraries: list[Findings]) -> None:
    table = _grid("library", "", "environments, such as")
    table.columns[1].justify = "right"
    for found in libraries:
        if found.names:
            first = ", ".join(found.names[:_SHOWN])
            more = ", …" if len(found.names) > _SHOWN else ""
            count = str(len(found.names))
            table.add_row(Text(found.scheme), count, Text(first + more))
    parts: list[Any] = [_table(own, "built in")]
    if table.row_count:
        parts += ["", table]
    hint = (
        "'envkit list gymnasium:' lists one library, 'envkit list pole' searches all."
    )
    print_trimmed(terminal(), *parts, *_remarks(libraries), "", hint)


def _show_matches(
    rows: list[dict[str, Any]], libraries: list[Findings], pattern: str | None
) -> None:
    found = _table(rows, "environment") if rows else Text(_nothing(libraries, pattern))
    # For a single library, the reason why it has nothing is the answer; for many, their
    # names are enough.
    if len(libraries) == 1 or pattern is None:
        print_trimmed(terminal(), found, *_remarks(libraries))
        return
    remarks = _remarks([library for library in libraries if library.broken])
    missing = [library.scheme for library in libraries if library.missing]
    if missing:
        names = ", ".join(missing)
        remarks += [
            "",
            Text(f"not installed: {names} ('envkit list' says how to install them)"),
        ]
    print_trimmed(terminal(), found, *remarks)


def _nothing(libraries: list[Findings], pattern: str | None) -> str:
    """Says that nothing matches, or no such scheme exists, with a suggestion."""
    scheme, colon, _ = (pattern or "").partition(":")
    if colon and not libraries:
        known = registry.schemes()
        return (
            f"There is no scheme {scheme!r}.{suggestion(scheme, known)} Schemes are "
            f"{', '.join(known)}."
        )
    names = [name for found in libraries for name in found.names or ()]
    wanted = (pattern or "").rpartition(":")[2]
    # Of a family such as `cartpole/0`, `cartpole/1`, its name is enough.
    families = dict.fromkeys(re.sub(r"/\d+$", "", name) for name in names)
    return f"Nothing matches.{suggestion(wanted, [*registered(), *families])}"


def _remarks(libraries: list[Findings]) -> list[Any]:
    """Returns tables of the libraries that are missing, broken or silent."""
    groups = {
        "not installed": {
            found.scheme: found.command or found.missing
            for found in libraries
            if found.missing
        },
        "broken": {found.scheme: found.broken for found in libraries if found.broken},
        "not listed": {
            found.scheme: f"make takes {found.takes or _UNKNOWN}"
            for found in libraries
            if _is_unlisted(found)
        },
    }
    parts: list[Any] = []
    for title, lines in groups.items():
        if lines:
            table = _grid(title, "")
            for scheme, text in lines.items():
                table.add_row(Text(scheme), Text(text))
            parts += ["", table]
    return parts


def _table(rows: list[dict[str, Any]], title: str) -> Table:
    if not any("observation" in row or "error" in row for row in rows):
        table = _grid(title)
        for row in rows:
            table.add_row(Text(row["target"]))
        return table
    table = _grid(title, *_PARTS)
    for row in rows:
        if "error" in row:
            error = Text(row["error"], style="red")
            table.add_row(Text(row["target"]), error, "")
        else:
            parts = [row.get(part, {}).get("text", "") for part in _PARTS]
            table.add_row(Text(row["target"]), *map(Text, parts))
    return table


def _grid(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column(first, no_wrap=True, overflow="fold")
    for title in others:
        table.add_column(title, overflow="fold")
    return table
