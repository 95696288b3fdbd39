"""Writes what docs/wrappers.md says of the wrappers into the package and the reference.

    python tools/wrappers.py

A row of a table there declares a name of `envkit.wrappers`: what it does, what it
wraps, and what its counterparts are called. From the rows come the exports of
`envkit/wrappers/__init__.py` and the blocks of docs/reference/wrappers.md, between two
comments; `tests/wrappers/test_declared.py` fails where these say something else, and
where a wrapper has no case.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_WIDTH = 88


class Row(NamedTuple):
    """A row.

    Attributes:
        group: The heading of its table.
        name: What is exported.
        text: What it does.
        wraps: "single", or "both", with the abilities that a batch must have; "" for
            what is no wrapper.
        tf_agents: What it is called in TF-Agents: "same", "–" or a name.
        gymnasium: What it is called in Gymnasium.
    """

    group: str
    name: str
    text: str
    wraps: str
    tf_agents: str
    gymnasium: str


def rows() -> list[Row]:
    """Reads the tables of the section "All of them"."""
    page = (ROOT / "docs/wrappers.md").read_text("utf-8")
    section = page.partition("\n## All of them\n")[2].partition("\n## ")[0]
    found, group = [], ""
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 5 or set(line) <= set("|-: "):
            continue
        if cells[1] == "what it does":
            group = cells[0]
        else:
            name = re.fullmatch(r"`(\w+)`", cells[0])
            assert name is not None, f"{cells[0]} is no link to a wrapper"
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
    for group in dict.fromkeys(row.group for row in rows()):
        yield from ("", f"## {group}", "", "```{names} envkit.wrappers")
        yield from (row.name for row in rows() if row.group == group)
        yield "```"
    yield ""


PLACES: dict[str, tuple[str, str, Callable[[], Iterator[str]]]] = {
    "envkit/wrappers/__init__.py": ("# wrappers\n", "# end of wrappers\n", imports),
    "docs/reference/wrappers.md": (
        "<!-- wrappers -->\n",
        "<!-- end of wrappers -->\n",
        reference,
    ),
}


def written(path: str) -> str:
    """Returns the text of a file with what the rows say in its place."""
    opening, closing, lines = PLACES[path]
    before, _, rest = (ROOT / path).read_text("utf-8").partition(opening)
    _, closed, after = rest.partition(closing)
    assert closed, f"{path} has no place for the wrappers"
    new = "".join(f"{line}\n" for line in lines())
    return f"{before}{opening}{new}{closing}{after}"


def main() -> None:
    """Writes both files."""
    for path in PLACES:
        (ROOT / path).write_text(written(path), "utf-8")


if __name__ == "__main__":
    main()
