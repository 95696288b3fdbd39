"""What envkit itself costs: around an environment's `_step`, and for a nest.

    python benchmarks/overhead.py

Every contender takes its turn in every round, and the figures are medians over rounds,
so that a machine that is busy for a moment is unfair to nobody.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import timeit
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import tree
from rich.console import Console
from rich.table import Table

from envkit import ArraySpec, PyEnvironment, TimeStep, restart, transition
from envkit.nest import Structure

OBSERVATION = np.zeros(4, np.float32)
TIME_STEP = transition(OBSERVATION, reward=0.0)
NEST = {
    "camera": {"left": 0, "right": 1},
    "joints": (2, 3),
    "goal": [4],
    "time": 5,
}


class Trivial(PyEnvironment):
    """Does nothing, so that what remains is envkit's own share."""

    def observation_spec(self) -> ArraySpec:
        return ArraySpec((4,), np.float32)

    def action_spec(self) -> ArraySpec:
        return ArraySpec((), np.int64)

    def _reset(self) -> TimeStep:
        return restart(OBSERVATION)

    def _step(self, action: object) -> TimeStep:
        return TIME_STEP


class Bare:
    """The same work behind a bare method: what Python charges for a call."""

    def step(self, action: object) -> TimeStep:
        return self._step(action)

    def _step(self, action: object) -> TimeStep:
        return TIME_STEP


def microseconds(
    contenders: dict[str, Callable[[], object]], calls: int, rounds: int
) -> dict[str, list[float]]:
    """Times each contender once per round."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            seconds = timeit.timeit(call, number=calls)
            times[name].append(1e6 * seconds / calls)
    return times


def step_contenders() -> dict[str, Callable[[], object]]:
    env, handled, bare = Trivial(), Trivial(handle_auto_reset=True), Bare()
    env.reset()
    handled.reset()
    handled.step(0)
    return {
        "a bare method that calls _step": functools.partial(bare.step, 0),
        "PyEnvironment.step": functools.partial(env.step, 0),
        "PyEnvironment.step, handle_auto_reset": functools.partial(handled.step, 0),
    }


def nest_contenders() -> dict[str, Callable[[], object]]:
    structure = Structure(NEST)
    leaves = structure.flatten(NEST)
    return {
        "tree.flatten": functools.partial(tree.flatten, NEST),
        "tree.flatten_up_to": functools.partial(tree.flatten_up_to, NEST, NEST),
        "tree.unflatten_as": functools.partial(tree.unflatten_as, NEST, leaves),
        "Structure.flatten": functools.partial(structure.flatten, NEST),
        "Structure.unflatten": functools.partial(structure.unflatten, leaves),
    }


def show(title: str, times: dict[str, list[float]], console: Console) -> None:
    table = Table(title=title)
    table.add_column("")
    for heading in ("median", "fastest", "slowest"):
        table.add_column(f"{heading} us", justify="right")
    for name, values in times.items():
        figures = (statistics.median(values), min(values), max(values))
        table.add_row(name, *(f"{figure:.3f}" for figure in figures))
    console.print(table)


def sum_of_medians(times: dict[str, list[float]], names: Sequence[str]) -> float:
    """Sums the medians of several contenders."""
    return sum(statistics.median(times[name]) for name in names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    console = Console()

    step = microseconds(step_contenders(), options.calls, options.rounds)
    show("one step of an environment that does nothing", step, console)
    bare, ours, handled = (statistics.median(values) for values in step.values())
    console.print(
        f"PyEnvironment.step adds {ours - bare:.3f} us to a bare method call "
        f"({handled - bare:.3f} us with handle_auto_reset)\n"
    )

    nests = microseconds(nest_contenders(), options.calls // 10, options.rounds)
    show("a nest of 6 leaves, taken apart and rebuilt", nests, console)
    tree_time = sum_of_medians(nests, ["tree.flatten", "tree.unflatten_as"])
    our_time = sum_of_medians(nests, ["Structure.flatten", "Structure.unflatten"])
    console.print(
        f"taken apart and rebuilt: dm-tree {tree_time:.2f} us, Structure "
        f"{our_time:.2f} us, {tree_time / our_time:.1f}x less"
    )
    if options.json:
        options.json.write_text(json.dumps({"step": step, "nest": nests}, indent=1))


if __name__ == "__main__":
    main()
