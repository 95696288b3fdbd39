"""What envkit itself costs: around an environment's `_step`, in a worker, for a nest.

python benchmarks/overhead.py
"""

from __future__ import annotations

import functools
import time
import timeit
from collections.abc import Callable

import gymnasium
import numpy as np
import tree
from environments import OBSERVATION, TIME_STEP, Trivial
from gymnasium import spaces
from side_by_side import Contender, Figures, Report, opened, options, take_turns

from envkit import TimeStep
from envkit.adapters import GymnasiumWrapper
from envkit.nest import Structure
from envkit.parallel.messages import Hello, WorkerJob
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import RESET, STEP, SlabLayout
from envkit.parallel.worker.runner import EnvRunner

NEST = {
    "camera": {"left": 0, "right": 1},
    "joints": (2, 3),
    "goal": [4],
    "time": 5,
}


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


class Idle(gymnasium.Env):
    """Does nothing, so that what remains is the loop around it."""

    observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)

    def __init__(self, action_space: spaces.Space) -> None:
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: object = None) -> object:
        return OBSERVATION, {}

    def step(self, action: object) -> object:
        return OBSERVATION, 1.0, False, False, {}


ROWS = 32
SPACES = {
    "Discrete": spaces.Discrete(2),
    "Box": spaces.Box(-1.0, 1.0, (2,), np.float32),
}


def cpu_of_a_row(step: Callable[[], object]) -> Contender:
    """Times the CPU of one row, of which others that use the CPU take nothing."""

    def measure(seconds: float) -> float:
        best, end = float("inf"), time.perf_counter() + seconds
        while time.perf_counter() < end:
            begun = time.thread_time_ns()
            step()
            best = min(best, time.thread_time_ns() - begun)
        return best / 1000 / ROWS

    return Contender(measure=measure)


def a_loop(space: spaces.Space) -> Contender:
    """The loop over environments of Gymnasium that a user writes."""
    envs = [Idle(space) for _ in range(ROWS)]
    actions = np.stack([np.asarray(space.sample()) for _ in range(ROWS)])

    def step() -> None:
        rows = actions.tolist() if actions.ndim == 1 else actions
        for env, action in zip(envs, rows, strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return cpu_of_a_row(step)


def a_worker(space: spaces.Space) -> Contender:
    """What a worker does between two bells: it reads, steps, writes and marks rows."""
    runner = EnvRunner(WorkerJob(0, 0, (lambda: GymnasiumWrapper(Idle(space)),) * ROWS))
    hello = runner.build()
    assert isinstance(hello, Hello), hello
    layout = SlabLayout(hello.specs[0], ((0, ROWS),))
    slab = Slab(layout, bytearray(layout.size))
    runner.bind(slab, 0)
    slab.request_all(RESET)
    runner.run_pending()
    slab.write_actions([np.stack([np.asarray(space.sample()) for _ in range(ROWS)])])
    own = cpu_of_a_row(lambda: slab.request_all(STEP)).measure
    both = cpu_of_a_row(lambda: (slab.request_all(STEP), runner.run_pending())).measure
    assert own is not None
    assert both is not None
    # The parent asks, and a request that is not answered counts for nothing.
    asking = own(0.01)
    slab.commit(slice(None))
    return Contender(measure=lambda seconds: both(seconds) - asking)


def row_contenders() -> dict[str, Callable[[], Contender]]:
    return {
        f"{who}, {name}": functools.partial(make, space)
        for name, space in SPACES.items()
        for who, make in (("a loop over Gymnasium's", a_loop), ("a worker", a_worker))
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

    with opened(row_contenders()) as contenders:
        rows = take_turns(contenders, told.rounds, told.seconds)
    report.table(
        f"a row of {ROWS} environments of Gymnasium that do nothing", rows, "us of CPU"
    )
    for name, bar in (("Discrete", 0.5), ("Box", 0.8)):
        added = np.subtract(
            rows[f"a worker, {name}"], rows[f"a loop over Gymnasium's, {name}"]
        )
        report.ratio(
            f"a worker's row, {name}: us added to a loop",
            list(added),
            [1.0] * len(added),
            at_most=bar,
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
