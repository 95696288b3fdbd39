"""Steps per second as environments, workers, bytes and microseconds grow.

    python benchmarks/scaling.py

The ideal beside each figure is the same environments, looped over in as many processes
that never talk.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import peers
from apart import apart
from environments import Working, computing
from side_by_side import Contender, Figures, Report, opened, options, take_turns

from envkit import ParallelPyEnvironment
from envkit.adapters import PyToGymnasium

WORKERS = 2
Makers = dict[str, Callable[[], Contender]]


def pool(
    make: Callable[[], Any], num_envs: int, workers: int, zero_copy: bool = False
) -> Contender:
    env = ParallelPyEnvironment(
        [make] * num_envs, num_workers=min(workers, num_envs), zero_copy=zero_copy
    )
    env.reset()
    actions = np.zeros(num_envs, np.int64)
    return Contender(lambda: env.step(actions), env.close)


def contenders(make: Callable[[], Any], num_envs: int, workers: int) -> Makers:
    actions = [np.zeros(num_envs, np.int64)]
    processes = min(workers, num_envs)
    return {
        "envkit": functools.partial(pool, make, num_envs, workers),
        "ideal": functools.partial(apart, make, num_envs, actions, processes),
    }


def as_gymnasium(make: Callable[[], Any]) -> Any:
    return PyToGymnasium(make())


def by_environments(size: int, _: int) -> tuple[Makers, int]:
    make = functools.partial(Working, computing(10))
    return contenders(make, size, WORKERS), size


def by_workers(workers: int, num_envs: int) -> tuple[Makers, int]:
    make = functools.partial(Working, computing(100))
    return contenders(make, num_envs, workers), num_envs


def by_bytes(size: int, num_envs: int) -> tuple[Makers, int]:
    make = functools.partial(Working, None, (size,), "uint8")
    makers = contenders(make, num_envs, WORKERS)
    zero_copy = functools.partial(pool, make, num_envs, WORKERS, zero_copy=True)
    return {**makers, "envkit, zero_copy": zero_copy}, num_envs


def by_step_time(microseconds: int, num_envs: int) -> tuple[Makers, int]:
    make = functools.partial(Working, computing(microseconds))
    theirs = [functools.partial(as_gymnasium, make)] * num_envs
    actions = [np.zeros(num_envs, np.int64)]
    asynchronous = functools.partial(peers.gymnasium_async, theirs, actions)
    return {
        **contenders(make, num_envs, WORKERS),
        "Gymnasium AsyncVectorEnv": asynchronous,
    }, num_envs


def measure(
    report: Report,
    told: argparse.Namespace,
    title: str,
    axis: str,
    points: Sequence[int],
    at: Callable[[int, int], tuple[Makers, int]],
) -> dict[int, Figures]:
    """Measures one curve: at each point all contenders, side by side."""
    curves: dict[str, list[list[float]]] = {}
    found = {}
    for point in points:
        makers, num_envs = at(point, told.num_envs)
        with opened(makers) as players:
            times = take_turns(players, told.rounds, told.seconds)
        found[point] = times
        for name, values in times.items():
            speeds = [1e6 * num_envs / value for value in values]
            curves.setdefault(name, []).append(speeds)
    report.curve(title, axis, "steps per second", points, curves)
    return found


def main() -> None:
    parser = options(__doc__, rounds=5, seconds=0.2, num_envs=64)
    for name, points in {
        "sizes": [1, 4, 16, 64, 256, 1024],
        "workers": [1, 2, 4, 8],
        "bytes": [4, 256, 4096, 65536, 1048576],
        "step-times": [0, 10, 100, 1000],
    }.items():
        parser.add_argument(f"--{name}", type=int, nargs="+", default=points)
    told = parser.parse_args()
    report = Report("scaling")
    measure(
        report,
        told,
        f"environments that compute 10 us, {WORKERS} workers",
        "environments",
        told.sizes,
        by_environments,
    )
    measure(
        report,
        told,
        f"{told.num_envs} environments that compute 100 us",
        "workers",
        told.workers,
        by_workers,
    )
    measure(
        report,
        told,
        f"{told.num_envs} environments that do nothing, {WORKERS} workers",
        "bytes of an observation",
        told.bytes,
        by_bytes,
    )
    times = measure(
        report,
        told,
        f"{told.num_envs} environments that compute, {WORKERS} workers",
        "microseconds of a step",
        told.step_times,
        by_step_time,
    )
    for point, figures in times.items():
        report.ratio(
            f"share of the ideal at {point} us per step",
            figures["ideal"],
            figures["envkit"],
        )
    report.finish(told.json)


if __name__ == "__main__":
    main()
