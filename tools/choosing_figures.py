"""Writes measured figures into the tutorial's end and into docs/more_machines.md.

    python tools/choosing_figures.py

The text between a page's pair of comments is replaced: in docs/tutorial.md by the
medians of the ways to run environments, in docs/more_machines.md by those of links and
of Ray.
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results"
_CARTPOLES = "one step of 64 environments, 2 workers"
_PICTURES = "64 pictures of (210, 160, 3), 2 workers"
_STRAGGLERS = "16 environments, 5% of the steps 50 times slower"
_ALONE = "one environment that does nothing"
_BATCH = "CartPole, a batch of 64"
_POOL, _ACTORS = "pool on Ray", "two actors, a call a step"

# What is stepped, how, and where that was measured: file, table, contender.
CHOICES = [
    (
        "64 of Gymnasium's CartPoles, a batch",
        "one after the other, in this process",
        ("parallel_step", _CARTPOLES, "a loop over envkit's"),
    ),
    ("", "in two worker processes", ("parallel_step", _CARTPOLES, "envkit")),
    (
        "64 rows of the built-in CartPole, a batch",
        "one object in this process",
        ("tf_environment", _BATCH, "without TensorFlow"),
    ),
    (
        "64 pictures of 210 × 160 × 3 bytes, a batch",
        "copies",
        ("images", _PICTURES, "envkit"),
    ),
    ("", "views, `zero_copy=True`", ("images", _PICTURES, "envkit, zero_copy")),
    (
        "16 environments, now and then a slow step, a transition",
        "in lockstep",
        ("stragglers", _STRAGGLERS, "envkit, in lockstep"),
    ),
    ("", "rows that are ready, `recv(4)`", ("stragglers", _STRAGGLERS, "envkit, recv")),
    (
        "an environment that does nothing, from TensorFlow",
        "eagerly",
        ("tf_environment", _ALONE, "eager"),
    ),
    ("", "eagerly, `isolation=True`", ("tf_environment", _ALONE, "eager, isolation")),
    ("", "in a loop of a graph", ("tf_environment", _ALONE, "in a loop")),
]


def choices(results: Path = RESULTS) -> str:
    """Returns the table of what can be chosen between."""
    lines = ["| what a step is of | how | median us |", "| :--- | :--- | ---: |"]
    machines = set()
    for what, how, (file, table, contender) in CHOICES:
        result = json.loads((results / f"{file}.json").read_text("utf-8"))
        values = result["tables"][table]["figures"][contender]
        machine = result["machine"]
        machines.add((machine["cpus"], machine["python"]))
        lines.append(f"| {what} | {how} | {_number(statistics.median(values))} |")
    source = "; ".join(f"{cpus} CPUs, Python {python}" for cpus, python in machines)
    return "\n".join([*lines, "", f"Measured with {source}."])


def links(results: Path = RESULTS) -> str:
    """Returns the table of what steps over links take."""
    found = _tables("links", results)
    kinds = ("process", "linked", "bare socket")
    lines = [
        f"| median us of a step of | {' | '.join(kinds)} |",
        "| :--- |" + " ---: |" * 3,
    ]
    for title, table in found.items():
        if "linked" in table["figures"]:
            times = [_median(table, kind) for kind in kinds]
            lines.append(f"| {title} | {' | '.join(times)} |")
    return "\n".join(lines)


def pools_on_ray(results: Path = RESULTS) -> str:
    """Returns the table of a pool on Ray beside actors that are called."""
    kinds = (_POOL, _ACTORS)
    lines = [
        f"| median us of a step of | {' | '.join(kinds)} |",
        "| :--- | ---: | ---: |",
    ]
    for title, table in _tables("ray_pools", results).items():
        if _ACTORS in table["figures"]:
            times = [_median(table, kind) for kind in kinds]
            lines.append(f"| {title} | {' | '.join(times)} |")
    return "\n".join(lines)


def _tables(name: str, results: Path) -> dict[str, Any]:
    found = json.loads((results / f"{name}.json").read_text("utf-8"))
    tables: dict[str, Any] = found["tables"]
    return tables


def _median(table: dict[str, Any], name: str) -> str:
    return _number(statistics.median(table["figures"][name]))


def fill(page: Path, name: str, text: str) -> None:
    """Replaces what stands between the page's comments of this name."""
    place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.S)
    old = page.read_text("utf-8")
    page.write_text(place.sub(lambda m: f"{m[1]}\n{text}\n\n{m[2]}", old), "utf-8")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


# The parts of docs/more_machines.md.
MACHINES = {
    "links": links,
    "pools on Ray": pools_on_ray,
}


def main() -> None:
    fill(ROOT / "docs/tutorial.md", "choices", choices())
    machines = ROOT / "docs/more_machines.md"
    for name, table in MACHINES.items():
        fill(machines, name, table())


if __name__ == "__main__":
    main()
