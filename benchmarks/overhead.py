"""What envkit itself costs: around an environment's `_step`, and for a nest.

python benchmarks/overhead.py
"""

from __future__ import annotations

import functools
import timeit
from collections.abc import Callable

import numpy as np
import tree
from side_by_side import Contender, Figures, Report, opened, options, take_turns

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


def timed(call: Callable[[], object]) -> Contender:
    """Times calls that are too short for looking at the clock after each."""
    timer = timeit.Timer(call)

    def measure(seconds: float) -> float:
        calls = max(1, int(seconds / max(timer.timeit(100) / 100, 1e-9)))
        return 1e6 * timer.timeit(calls) / calls

    return Contender(measure=measure)


def measured(
    calls: dict[str, Callable[[], object]], rounds: int, seconds: float
) -> Figures:
    makers = {name: functools.partial(timed, call) for name, call in calls.items()}
    with opened(makers) as contenders:
        return take_turns(contenders, rounds, seconds)


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


def main() -> None:
    told = options(__doc__, rounds=25, seconds=0.02).parse_args()
    report = Report("overhead")

    step = measured(step_contenders(), told.rounds, told.seconds)
    report.table("one step of an environment that does nothing", step, "us")
    bare, *ours = step
    for name in ours:
        added = np.subtract(step[name], step[bare])
        report.ratio(
            f"{name}: us added to a bare method", list(added), [1.0] * len(added)
        )

    nests = measured(nest_contenders(), told.rounds, told.seconds)
    report.table("a nest of 6 leaves, taken apart and rebuilt", nests, "us")
    report.ratio(
        "Structure takes apart and rebuilds as fast as dm-tree",
        np.add(nests["tree.flatten"], nests["tree.unflatten_as"]).tolist(),
        np.add(nests["Structure.flatten"], nests["Structure.unflatten"]).tolist(),
    )
    report.finish(told.json)


if __name__ == "__main__":
    main()
