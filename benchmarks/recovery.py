"""What recovery by replay costs a step, and how long a lost worker takes.

    python benchmarks/recovery.py

The pools differ in their `RestartPolicy` alone, and all of them save their states now
and then, which is part of the figures. A step in which a worker is killed takes as long
as starting another one; recovery then replays the steps since the last state.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from side_by_side import Contender, Figures, Report, opened, options, take_turns

from envkit import ParallelPyEnvironment, PyEnvironment, RestartPolicy
from envkit.envs import CartPole

WORKERS = 2
POLICY: dict[str, Any] = {"max_restarts": 10_000, "within": None, "backoff": 0.0}
POLICIES = {
    "episodes end": RestartPolicy(**POLICY),
    "environments continue": RestartPolicy(**POLICY, recover="replay"),
}


def pool_of(
    makers: list[Callable[[], PyEnvironment]], kind: str, **how: Any
) -> ParallelPyEnvironment:
    env = ParallelPyEnvironment(
        makers,
        num_workers=WORKERS,
        start_serially=False,
        on_worker_failure=POLICIES[kind],
        **how,
    )
    env.seed(0)
    env.reset()
    return env


def stepped(makers: list[Callable[[], PyEnvironment]], kind: str) -> Contender:
    env = pool_of(makers, kind)
    actions = np.random.default_rng(0).integers(0, 2, env.batch_size)
    return Contender(lambda: env.step(actions), env.close)


def losses(
    makers: list[Callable[[], PyEnvironment]], rounds: int, seconds: float
) -> Figures:
    """Returns the microseconds of steps amid which a worker was killed."""
    figures: Figures = {}
    steps = max(1, int(400 * min(seconds, 1.0)))
    for kind in POLICIES:
        figures[kind] = []
        with pool_of(makers, kind, start_method="forkserver") as env:
            actions = np.zeros(env.batch_size, np.int64)
            for _ in range(rounds):
                for _ in range(steps):
                    env.step(actions)
                os.kill(env.workers[0].pid, signal.SIGKILL)
                began = time.perf_counter()
                # Where episodes end, the new environments are waited for as well.
                for _ in range(2):
                    env.step(actions)
                figures[kind].append(1e6 * (time.perf_counter() - began))
    return figures


def main() -> None:
    told = options(__doc__, rounds=7, seconds=0.5, num_envs=64).parse_args()
    report = Report("recovery")
    each: list[Callable[[], PyEnvironment]] = [CartPole] * told.num_envs
    with opened(
        {kind: functools.partial(stepped, each, kind) for kind in POLICIES}
    ) as contenders:
        figures = take_turns(contenders, told.rounds, told.seconds)
    report.table(f"{told.num_envs} CartPoles, {WORKERS} workers", figures)
    keeps, ends = figures["environments continue"], figures["episodes end"]
    report.ratio("a step with recovery takes this much", keeps, ends, at_most=1.03)
    lost = losses(each, told.rounds, told.seconds)
    report.table(f"{told.num_envs} CartPoles, two steps amid a loss", lost)
    keeps, ends = lost["environments continue"], lost["episodes end"]
    report.ratio("a loss with recovery takes this much", keeps, ends)
    report.finish(told.json)


if __name__ == "__main__":
    main()
