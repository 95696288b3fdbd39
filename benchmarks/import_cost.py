"""What importing envkit's working set costs on top of NumPy, in fresh interpreters.

    python benchmarks/import_cost.py

Each program takes its turn in every round; the figures are medians over rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

PROGRAMS = {
    "nothing": "pass",
    "import numpy": "import numpy",
    "import envkit": "import envkit",
    "the working set": "from envkit import PyEnvironment, TimeStep, ArraySpec",
}
# The threads that NumPy's libraries start use CPU of their own accord.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Cost(NamedTuple):
    """What one run of an interpreter took."""

    cpu_ms: float
    wall_ms: float
    modules: int


def children_cpu() -> float:
    """Returns the seconds of CPU that finished children have used."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def cost_of(statement: str) -> Cost:
    program = f"{statement}\nimport sys; print(len(sys.modules))"
    before, start = children_cpu(), time.perf_counter()
    output = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **ONE_THREAD},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    wall, cpu = time.perf_counter() - start, children_cpu() - before
    return Cost(1e3 * cpu, 1e3 * wall, int(output))


def measure(rounds: int) -> dict[str, Cost]:
    """Runs every program once per round, after a round that does not count."""
    runs: dict[str, list[Cost]] = {name: [] for name in PROGRAMS}
    for number in range(rounds + 1):
        for name, statement in PROGRAMS.items():
            cost = cost_of(statement)
            if number:
                runs[name].append(cost)
    return {
        name: Cost(*(statistics.median(column) for column in zip(*costs, strict=True)))
        for name, costs in runs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()

    costs = measure(options.rounds)
    table = Table(title="a fresh interpreter")
    table.add_column("runs")
    for heading in ("CPU ms", "wall ms", "modules"):
        table.add_column(heading, justify="right")
    for name, cost in costs.items():
        table.add_row(
            name, f"{cost.cpu_ms:.0f}", f"{cost.wall_ms:.0f}", f"{cost.modules:.0f}"
        )
    console = Console()
    console.print(table)
    ours, numpys = costs["the working set"], costs["import numpy"]
    console.print(
        f"on top of NumPy: {ours.cpu_ms - numpys.cpu_ms:.0f} ms of CPU and "
        f"{ours.modules - numpys.modules:.0f} modules"
    )
    if options.json:
        figures = {name: cost._asdict() for name, cost in costs.items()}
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
