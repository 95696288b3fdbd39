"""`envkit list [PATTERN]`: the environments that are available here, by library."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.table import Table
from rich.text import Text

from envkit.cli.output import print_trimmed
from envkit.cli.terminal import add_json, print_json, progress_bar, terminal

if TYPE_CHECKING:
    from envkit.cli.list_parts.survey import Findings

__all__ = ["EXAMPLE", "add_arguments", "run"]

EXAMPLE = "envkit list 'gymnasium:*Cart*'"

_FOUND, _NOTHING = 0, 1
_PARTS = ("observation", "action")
# How many names of a library an overview shows.
_SHOWN = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Says what the command takes."""
    parser.description = (
        f"{parser.description}\n"
        "Exit status: 0 if there are some, 1 if nothing matches the pattern."
    )
    parser.add_argument(
        "pattern",
        nargs="?",
        metavar="PATTERN",
        help="a part of the name, or a glob, in any case: pole, 'ale:*ram*', or "
        "gymnasium: for all of a library, which asks no other. Without one: what "
        "envkit brings along, and how many there are of each library.",
    )
    parser.add_argument(
        "--specs",
        action="store_true",
        help="show the specs of all that is listed. For that each environment is made, "
        "which takes long where there are hundreds; without this option that is done "
        "where a pattern matches ten or fewer in all libraries together.",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Lists environments; the status is 1 if there are none."""
    from envkit import targets
    from envkit.cli.list_parts.matching import schemes_for
    from envkit.cli.list_parts.survey import survey

    pattern = arguments.pattern
    schemes = schemes_for(pattern, targets.schemes())
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with progress_bar(*columns) as progress:
        asking = progress.add_task("asking libraries", total=len(schemes))
        waiting = set(schemes)

        def answered(scheme: str) -> None:
            waiting.discard(scheme)
            first = min(waiting, default="")
            progress.update(asking, advance=1, description=f"asking {first}")

        libraries = survey(
            schemes,
            pattern,
            specs=arguments.specs,
            debug=arguments.debug,
            on_answer=answered,
        )
    own = _built_in(pattern)
    rows = own + [row for found in libraries for row in _rows(found, pattern)]
    if arguments.json:
        print_json({"environments": rows, **_others(libraries)})
    elif pattern is None and not arguments.specs:
        _show_overview(own, libraries)
    else:
        _show_matches(rows, libraries, pattern)
    return _FOUND if rows else _NOTHING


def _built_in(pattern: str | None) -> list[dict[str, Any]]:
    from envkit.cli.list_parts.look import specs_of
    from envkit.cli.list_parts.matching import matches
    from envkit.constructors import registered

    names = [name for name in registered() if matches(name, pattern)]
    return [{"target": name, "scheme": None, **specs_of(name)} for name in names]


def _rows(found: Findings, pattern: str | None) -> list[dict[str, Any]]:
    from envkit.cli.list_parts.matching import matches

    return [
        {"target": target, "scheme": found.scheme, **found.specs.get(name, {})}
        for name in found.names or ()
        if matches(target := f"{found.scheme}:{name}", pattern)
    ]


def _others(libraries: list[Findings]) -> dict[str, Any]:
    """Returns what there is to say of libraries beside their environments."""
    return {
        "missing": [
            {
                "scheme": found.scheme,
                "package": found.package,
                "install": _command(found),
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


def _command(found: Findings) -> str | None:
    """Returns the pip command for what is missing, if that is all it takes."""
    command = f'pip install "envkit[{found.extra}]"'
    return command if found.missing.endswith(f"is not installed. {command}") else None


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
    hint = "'envkit list gymnasium:' lists a library's, 'envkit list pole' finds."
    print_trimmed(terminal(), *parts, *_remarks(libraries), "", hint)


def _show_matches(
    rows: list[dict[str, Any]], libraries: list[Findings], pattern: str | None
) -> None:
    near = "" if rows else _near(libraries, pattern)
    found = _table(rows, "environment") if rows else Text(f"Nothing matches.{near}")
    # Whoever asks for one library wants to know why it has nothing; of the others it
    # is enough to know that they were not asked.
    if len(libraries) == 1 or pattern is None:
        print_trimmed(terminal(), found, *_remarks(libraries))
        return
    remarks = _remarks([library for library in libraries if library.broken])
    missing = [library.scheme for library in libraries if library.missing]
    if missing:
        names = ", ".join(missing)
        remarks += ["", Text(f"not installed: {names} ('envkit list' says more)")]
    print_trimmed(terminal(), found, *remarks)


def _near(libraries: list[Findings], pattern: str | None) -> str:
    from envkit.constructors import registered
    from envkit.targets import suggestion

    known = [name for found in libraries for name in found.names or ()]
    return suggestion((pattern or "").rpartition(":")[2], [*registered(), *known])


def _remarks(libraries: list[Findings]) -> list[Any]:
    """Says what is missing, and what went wrong."""
    groups = {
        "not installed": {
            found.scheme: _command(found) or found.missing
            for found in libraries
            if found.missing
        },
        "broken": {found.scheme: found.broken for found in libraries if found.broken},
        "not listed": {
            found.scheme: "make takes what its package knows, which it does not tell"
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
