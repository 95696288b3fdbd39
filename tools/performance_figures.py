"""Writes what the benchmarks measured into the page that shows it.

    make bench
    python tools/performance_figures.py benchmarks/results docs/performance.md

The page has a pair of comments for each benchmark, and what stands between them is
replaced:

    <!-- figures: parallel_step -->
    <!-- end of figures -->
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

_PLACE = re.compile(r"(<!-- figures: (\S+) -->\n).*?(<!-- end of figures -->)", re.S)


def fill(results: Path, page: Path) -> None:
    """Replaces every part of the page whose benchmark has a result."""

    def figures(match: re.Match[str]) -> str:
        path = results / f"{match[2]}.json"
        if not path.exists():
            print(f"{path} is not there; what the page says stays")
            return match[0]
        result = json.loads(path.read_text("utf-8"))
        text = _report(result) if "tables" in result else _soak(result)
        return f"{match[1]}\n{text}\n{match[3]}"

    page.write_text(_PLACE.sub(figures, page.read_text("utf-8")), "utf-8")


def _report(result: dict[str, Any]) -> str:
    parts = []
    for title, table in result["tables"].items():
        rows = [
            (name, _number(statistics.median(values)), _middle_half(values))
            for name, values in table["figures"].items()
            if values
        ]
        parts.append(_table((title, f"median {table['unit']}", "middle half"), rows))
    ratios = [
        (
            row["claim"],
            _number(row["ratio"]),
            " … ".join(map(_number, row["middle_half"])),
            _bar(row),
        )
        for row in result["ratios"]
        if row["ratio"] is not None
    ]
    parts.append(_table(("ratio", "measured", "middle half", "asked"), ratios))
    parts.append(_machine(result["machine"]))
    return "\n".join(parts)


def _soak(result: dict[str, Any]) -> str:
    names = ("steps", "kills", "restarts", "wrong transitions", "leaked things")
    return _table(names, [tuple(f"{result[name]:,}" for name in names)])


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    numbers = ["---:"] * (len(headings) - 1)
    lines = [headings, (":---", *numbers), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _machine(machine: dict[str, Any]) -> str:
    packages = ", ".join(
        f"{name} {version}" for name, version in machine["packages"].items()
    )
    return (
        f"{machine['cpus']} CPUs, {machine['system'].split('-')[0]}, Python "
        f"{machine['python']}, {packages}.\n"
    )


def _middle_half(values: list[float]) -> str:
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{_number(low)} … {_number(high)}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _bar(row: dict[str, Any]) -> str:
    for name, sign in (("at_least", "≥"), ("at_most", "≤")):
        if row[name] is not None:
            missed = "" if row["reached"] else ", missed"
            return f"{sign} {row[name]:g}{missed}"
    return ""


if __name__ == "__main__":
    fill(Path(sys.argv[1]), Path(sys.argv[2]))
