"""Writes the lists of wrappers from the tables in docs/reference/wrappers.md.

    python tools/wrappers.py

Each row of a table there declares a name of `envkit.wrappers`: what it does, what it
wraps, and the names of its counterparts. From the rows come the exports of
`envkit/wrappers/__init__.py`, the table in docs/wrappers.md, and the block below each
table of the reference, all between two comments. `tests/wrappers/test_declared.py`
fails if they differ, or if a wrapper has no case or no example.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_WIDTH = 88


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        group: The heading above its table.
        name: The exported name.
        text: What it does.
        wraps: "single", or "both" with the abilities that a batch must have; "" if it
            is not a wrapper.
        tf_agents: Its name in TF-Agents: "same", "–" or a name.
        gymnasium: Its name in Gymnasium, likewise.
    """

    group: str
    name: str
    text: str
    wraps: str
    tf_agents: str
    gymnasium: str


def rows() -> list[Row]:
    """Reads the tables of the reference."""
    _, section, _ = _parts("docs/reference/wrappers.md")
    found, group = [], ""
    for line in section.splitlines():
        if line.startswith("## "):
            group = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and (name := re.fullmatch(r"`(\w+)`", cells[0])):
            found.append(Row(group, name[1], *cells[1:]))
    return found


def homes() -> dict[str, str]:
    """Returns the module of each name."""
    defined = {
        node.name: module
        for path in [*(ROOT / "envkit/wrappers").glob("*.py"), _BASE]
        for module in [".".join(path.relative_to(ROOT).with_suffix("").parts)]
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    return {
        row.name: defined[row.name] for row in sorted(rows(), key=lambda it: it.name)
    }


_BASE = ROOT / "envkit/base_wrapper.py"


def imports() -> Iterator[str]:
    # As ruff sorts them: classes before functions.
    order = sorted(homes().items(), key=lambda it: (it[1], it[0][0].islower(), it[0]))
    yield "if TYPE_CHECKING:"
    for name, module in order:
        line = f"    from {module} import {name} as {name}"
        if len(line) <= _WIDTH:
            yield line
        else:
            yield f"    from {module} import ("
            yield f"        {name} as {name},"
            yield "    )"
    yield ""
    yield "_HOMES = {"
    yield from (f'    "{name}": "{module}",' for name, module in homes().items())
    yield "}"


def reference() -> Iterator[str]:
    for group, members in _groups():
        yield from ("", f"## {group}", "", *_HEADER)
        for row in members:
            cells = (f"`{row.name}`", *row[2:])
            yield f"| {' | '.join(cells)} |".replace("|  |", "| |")
        yield from ("", "```{names} envkit.wrappers")
        yield from (row.name for row in members)
        yield "```"
    yield ""


_HEADER = (
    "| wrapper | what it does | single or batched | in TF-Agents | in Gymnasium |",
    "|---|---|---|---|---|",
)


def overview() -> Iterator[str]:
    yield from ("", "| for | wrappers |", "|---|---|")
    for group, members in _groups():
        anchor = group.lower().replace(" ", "-")
        names = ", ".join(f"`{row.name}`" for row in members)
        yield f"| [{group}](reference/wrappers.md#{anchor}) | {names} |"
    yield ""


def _groups() -> list[tuple[str, list[Row]]]:
    return [
        (group, list(members))
        for group, members in itertools.groupby(rows(), lambda row: row.group)
    ]


PLACES: dict[str, Callable[[], Iterator[str]]] = {
    "envkit/wrappers/__init__.py": imports,
    "docs/reference/wrappers.md": reference,
    "docs/wrappers.md": overview,
}


def written(path: str) -> str:
    """Returns the text of a file with the lists that the rows declare."""
    before, _, after = _parts(path)
    new = "".join(f"{line}\n" for line in PLACES[path]())
    return f"{before}{new}{after}"


def _parts(path: str) -> tuple[str, str, str]:
    """Returns a file's text up to its first comment, between the two, and the rest."""
    is_code = path.endswith(".py")
    opening = "# wrappers\n" if is_code else "<!-- wrappers -->\n"
    closing = "# end of wrappers\n" if is_code else "<!-- end of wrappers -->\n"
    before, _, rest = (ROOT / path).read_text("utf-8").partition(opening)
    inside, closed, after = rest.partition(closing)
    assert closed, f"{path} has no place for the wrappers"
    return before + opening, inside, closing + after


def main() -> None:
    """Writes all files."""
    for path in PLACES:
        (ROOT / path).write_text(written(path), "utf-8")


if __name__ == "__main__":
    main()
