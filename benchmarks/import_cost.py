"""What importing envkit's working set costs on top of NumPy, in fresh interpreters.

    python benchmarks/import_cost.py

Each program takes its turn in every round, in an interpreter of its own.
"""

from __future__ import annotations

import functools
import os
import resource
import subprocess
import sys

import numpy as np
from side_by_side import Contender, Report, opened, options, take_turns

PROGRAMS = {
    "nothing": "pass",
    "import numpy": "import numpy",
    "import envkit": "import envkit",
    "the working set": "from envkit import PyEnvironment, TimeStep, ArraySpec",
}
# The threads that NumPy's libraries start use CPU of their own accord.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def children_cpu() -> float:
    """Returns the seconds of CPU that finished children have used."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(statement: str) -> int:
    """Runs a statement and returns how many modules there are then."""
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys; print(len(sys.modules))"],
        env={**os.environ, **ONE_THREAD},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


def interpreter(statement: str) -> Contender:
    def measure(_: float) -> float:
        before = children_cpu()
        run(statement)
        return 1e3 * (children_cpu() - before)

    return Contender(measure=measure)


def main() -> None:
    told = options(__doc__, rounds=15, seconds=0.0).parse_args()
    report = Report("import_cost")
    makers = {
        name: functools.partial(interpreter, statement)
        for name, statement in PROGRAMS.items()
    }
    with opened(makers) as contenders:
        costs = take_turns(contenders, told.rounds, told.seconds)
    report.table("a fresh interpreter", costs, "ms of CPU")
    added = np.subtract(costs["the working set"], costs["import numpy"])
    report.ratio(
        "the working set on top of NumPy: ms of CPU", list(added), [1.0] * len(added)
    )
    modules = {name: run(statement) for name, statement in PROGRAMS.items()}
    report.fact(
        "modules on top of NumPy's",
        modules["the working set"] - modules["import numpy"],
    )
    report.finish(told.json)


if __name__ == "__main__":
    main()
