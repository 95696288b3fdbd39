"""What it costs to be told of lost environments, in every step.

    python benchmarks/losses.py

A pool and `vectorize` step CartPoles, and their users read the marks after each step,
or not: `repaired` of the pool, `infos["repaired"]` of the vector environment.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from side_by_side import Contender, Report, opened, options, take_turns

from envkit import ParallelPyEnvironment, RestartPolicy
from envkit.adapters import vectorize
from envkit.envs import CartPole

HOW: dict[str, Any] = {"num_workers": 2, "on_worker_failure": RestartPolicy()}


def of_pool(num_envs: int, *, reads: bool) -> Contender:
    """Steps a lockstep pool."""
    env = ParallelPyEnvironment([CartPole] * num_envs, **HOW)
    env.seed(0)
    env.reset()
    actions = np.random.default_rng(0).integers(0, 2, num_envs)

    def step_and_read() -> bool:
        env.step(actions)
        return bool(env.repaired.any())

    return Contender(step_and_read if reads else lambda: env.step(actions), env.close)


def of_vector(num_envs: int, *, reads: bool) -> Contender:
    """Steps Gymnasium's interface to one."""
    envs = vectorize([CartPole] * num_envs, **HOW)
    envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 2, num_envs)

    def step_and_read() -> bool:
        return "repaired" in envs.step(actions)[4]

    return Contender(step_and_read if reads else lambda: envs.step(actions), envs.close)


def main() -> None:
    told = options(__doc__, rounds=7, seconds=0.5, num_envs=64).parse_args()
    report = Report("losses")
    kinds: dict[str, Callable[..., Contender]] = {
        "a pool": of_pool,
        "vectorize": of_vector,
    }
    for kind, make in kinds.items():
        ways = {
            f"{kind}, marks unread": functools.partial(
                make, told.num_envs, reads=False
            ),
            f"{kind}, marks read": functools.partial(make, told.num_envs, reads=True),
        }
        with opened(ways) as contenders:
            figures = take_turns(contenders, told.rounds, told.seconds)
        report.table(f"{told.num_envs} CartPoles, {kind}", figures)
        unread, read = figures.values()
        report.ratio(f"{kind} whose marks are read takes this much", read, unread)
    report.finish(told.json)


if __name__ == "__main__":
    main()
