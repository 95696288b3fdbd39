"""How much of two processors reaches the environments.

    python benchmarks/efficiency.py

64 environments compute for 0, 10, 100 or 1000 microseconds in each step. The ideal is
the same environments, looped over in two processes that never talk; an efficiency of
0.9 means that the pool makes nine steps where the ideal makes ten. Possible here is the
same two processes, woken for each step. With a single environment on a single worker
only the round trip is left; beside it stand two processes that wake each other.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import peers
from apart import apart, rung, rung_loops
from environments import Working, computing
from side_by_side import Contender, Report, opened, options, take_turns

from envkit import ParallelPyEnvironment

WORKERS = 2
# Efficiency that is asked for, by microseconds of work in a step.
BARS = {0: 0.25, 10: 0.9, 100: 0.95, 1000: 0.95}
SHORT = (0, 10, 100)  # steps beside which the bells count
RUNG = "possible here: loops that are rung for each step"


def pool(make: Callable[[], Any], num_envs: int, zero_copy: bool = False) -> Contender:
    env = ParallelPyEnvironment(
        [make] * num_envs, num_workers=min(WORKERS, num_envs), zero_copy=zero_copy
    )
    env.reset()
    actions = np.zeros(num_envs, np.int64)
    return Contender(lambda: env.step(actions), env.close)


def ping_pong() -> Contender:
    """A process that is rung, does nothing and rings back: a bare round trip."""
    return rung([lambda: lambda: None])


def compare_with_ideal(report: Report, told: argparse.Namespace, work: int) -> None:
    make, num_envs = functools.partial(Working, computing(work)), told.num_envs
    actions, is_short = [np.zeros(num_envs, np.int64)], work in SHORT
    given = [make] * num_envs, actions
    contenders = {
        "ideal": functools.partial(apart, make, num_envs, actions, WORKERS),
        **({RUNG: functools.partial(rung_loops, *given, WORKERS)} if is_short else {}),
        "envkit": functools.partial(pool, make, num_envs),
        "envkit, zero_copy": functools.partial(pool, make, num_envs, zero_copy=True),
    }
    with opened(contenders) as players:
        figures = take_turns(players, told.rounds, told.seconds)
    title = f"{num_envs} environments that compute {work} us, {WORKERS} workers"
    report.table(title, figures)
    for name, bar in [("envkit", BARS[work]), ("envkit, zero_copy", None)]:
        report.ratio(
            f"efficiency at {work} us per step, {name}",
            figures["ideal"],
            figures[name],
            at_least=bar,
        )
    if is_short:
        report.ratio(
            f"efficiency at {work} us per step, possible here",
            figures["ideal"],
            figures[RUNG],
        )


def compare_round_trips(report: Report, told: argparse.Namespace) -> None:
    actions = [np.zeros(1, np.int64)]
    contenders = {
        "eventfd ping-pong": ping_pong,
        "envkit": functools.partial(pool, Working, 1),
        "envkit, zero_copy": functools.partial(pool, Working, 1, zero_copy=True),
        "Gymnasium AsyncVectorEnv": functools.partial(
            peers.gymnasium_async, [peers.TheirWorking], actions
        ),
    }
    with opened(contenders) as players:
        figures = take_turns(players, told.rounds, told.seconds)
    report.table("a round trip: one environment on one worker", figures)
    bare, ours = figures["eventfd ping-pong"], figures["envkit"]
    report.ratio("a round trip, over a bare ping-pong", ours, bare, at_most=1.5)
    theirs = figures["Gymnasium AsyncVectorEnv"]
    report.ratio("as fast as AsyncVectorEnv with one", theirs, ours, at_least=4.0)


def main() -> None:
    told = options(__doc__, rounds=7, seconds=0.5, num_envs=64).parse_args()
    report = Report("efficiency")
    for work in BARS:
        compare_with_ideal(report, told, work)
    compare_round_trips(report, told)
    report.finish(told.json)


if __name__ == "__main__":
    main()
