"""What waiting for slow environments costs, and what not waiting gains.

    python benchmarks/stragglers.py

In the first table every step computes, and one in twenty takes fifty times as long. In
lockstep all environments wait for it; `recv(4)` takes the first four that are ready.
Times are per transition. Two processes that never talk never wait, so no pool can make
more transitions on two CPUs.

In the second table every environment waits for a millisecond, as one does that talks to
a game or a server. What remains of a step is waking that many processes and running a
few lines in each; bare processes that only sleep show what that takes.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable

import numpy as np
import peers
from apart import apart, rung
from environments import Straggling, Work, Working
from peers import installed
from side_by_side import Contender, Report, best, opened, options, take_turns

from envkit import AsyncParallelPyEnvironment, ParallelPyEnvironment

SHARE, TIMES = 0.05, 50
# How many are received at once; the time is given per so many transitions.
COUNT = 4
WORKERS = 2
APART = f"{WORKERS} processes that never talk"
# How long an environment waits, in seconds.
WAIT = 0.001
BARE = "bare processes"


def in_lockstep(
    makers: list[Callable[[], Working]], workers: int, backend: str = "process"
) -> Contender:
    env = ParallelPyEnvironment(makers, num_workers=workers, backend=backend)
    env.reset()
    actions = np.zeros(len(makers), np.int64)
    return Contender(lambda: env.step(actions), env.close)


def first_come(makers: list[Callable[[], Working]], workers: int) -> Contender:
    env = AsyncParallelPyEnvironment(makers, num_workers=workers)
    env.reset_async()
    count = min(COUNT, len(makers))
    actions = np.zeros(count, np.int64)

    def step() -> None:
        env.send(actions, env.recv(count).env_ids)

    return Contender(step, env.close)


def compare_stragglers(report: Report, told: argparse.Namespace) -> None:
    works = [Straggling(told.work, SHARE, TIMES, i) for i in range(told.num_envs)]
    mine = [functools.partial(Working, work) for work in works]
    theirs = [functools.partial(peers.TheirWorking, work) for work in works]
    given = theirs, [np.zeros(told.num_envs, np.int64)]
    half, quarter = told.num_envs // 2, told.num_envs // 4
    # Everything that its documentation advises for such environments.
    puffers = {
        "PufferLib, 2 workers in lockstep": (2, None),
        "PufferLib, 2 workers, first of them": (2, half),
        "PufferLib, 4 workers, first of them": (4, quarter),
        "PufferLib, 4 workers, first two": (4, half),
    }
    contenders = {
        "envkit, recv": functools.partial(first_come, mine, WORKERS),
        "envkit, in lockstep": functools.partial(in_lockstep, mine, WORKERS),
        APART: functools.partial(apart, mine, len(mine), given[1], WORKERS),
        "Gymnasium AsyncVectorEnv": functools.partial(peers.gymnasium_async, *given),
        **{
            name: installed(peers.pufferlib, *given, workers=workers, batch=batch)
            for name, (workers, batch) in puffers.items()
        },
    }
    # How many transitions a step of each brings.
    brings = {name: batch or told.num_envs for name, (_, batch) in puffers.items()}
    brings["envkit, recv"] = min(COUNT, told.num_envs)
    with opened(contenders) as players:
        times = take_turns(players, told.rounds, told.seconds)
    figures = {
        name: [value / brings.get(name, told.num_envs) for value in values]
        for name, values in times.items()
    }
    report.table(
        f"{told.num_envs} environments, {SHARE:.0%} of the steps {TIMES} times slower",
        figures,
        "us per transition",
    )
    ours = figures["envkit, recv"]
    report.ratio(
        f"recv({COUNT}): transitions, over lockstep",
        figures["envkit, in lockstep"],
        ours,
        at_least=1.4,
    )
    puffer = best(figures, list(puffers))
    report.ratio(
        f"recv({COUNT}): transitions, over {puffer}",
        figures[puffer],
        ours,
        at_least=2.5,
    )
    limit, lockstep = figures[APART], figures["envkit, in lockstep"]
    report.ratio(f"possible here over lockstep: {APART}", lockstep, limit)
    report.ratio(f"possible here over {puffer}: {APART}", figures[puffer], limit)
    report.ratio(f"recv({COUNT}): share of what is possible here", limit, ours)


def compare_waiting(report: Report, told: argparse.Namespace) -> None:
    wait: Work = functools.partial(time.sleep, WAIT)
    num_envs = told.num_envs
    mine = [functools.partial(Working, wait)] * num_envs
    theirs = [functools.partial(peers.TheirWorking, wait)] * num_envs
    given = theirs, [np.zeros(num_envs, np.int64)]
    contenders = {
        "envkit": functools.partial(in_lockstep, mine, num_envs),
        "envkit, threads": functools.partial(
            in_lockstep, mine, num_envs, backend="thread"
        ),
        BARE: functools.partial(rung, [lambda: wait] * num_envs),
        "Gymnasium AsyncVectorEnv": functools.partial(peers.gymnasium_async, *given),
        "Stable-Baselines3 SubprocVecEnv": installed(peers.stable_baselines3, *given),
    }
    with opened(contenders) as players:
        figures = take_turns(players, told.rounds, told.seconds)
    report.table(f"{num_envs} environments that wait 1 ms, {num_envs} workers", figures)
    report.ratio(
        "environments that wait: as fast as AsyncVectorEnv",
        figures["Gymnasium AsyncVectorEnv"],
        figures["envkit"],
        at_least=1.8,
    )
    report.ratio(
        f"possible here over AsyncVectorEnv: {BARE} that wait",
        figures["Gymnasium AsyncVectorEnv"],
        figures[BARE],
    )
    report.ratio(
        "environments that wait: share of what is possible here",
        figures[BARE],
        figures["envkit"],
    )


def main() -> None:
    parser = options(__doc__, rounds=7, seconds=0.7, num_envs=16)
    parser.add_argument("--work", type=float, default=100.0, help="us of a usual step")
    told = parser.parse_args()
    report = Report("stragglers")
    compare_stragglers(report, told)
    compare_waiting(report, told)
    report.finish(told.json)


if __name__ == "__main__":
    main()
