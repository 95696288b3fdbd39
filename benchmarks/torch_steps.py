"""What a step costs on its way to PyTorch and TorchRL.

    python benchmarks/torch_steps.py

A pool of environments that do nothing, and one that shows pictures, return arrays, or
tensors by `TorchEnvironment`, by `torch.from_numpy`, or by a copy of each array.
Rollouts come from `RolloutBuffer`, and from a loop by hand that writes the same tensors
and computes nothing. TorchRL's collector then steps the same CartPoles in its own
processes and in a pool of as many workers.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from environments import Working
from side_by_side import Contender, Report, opened, options, take_turns

import envkit
from envkit import nest
from envkit.torch import RolloutBuffer, TorchEnvironment, as_torchrl

WORKERS = 2
GAME = "CartPole-v1"
ARRAYS, TENSORS = "arrays", "TorchEnvironment"
EACH, COPIES = "torch.from_numpy of each", "torch.tensor of each"
BUFFER, BY_HAND = "RolloutBuffer", "a loop by hand, without final values"
OURS, THEIRS = "collector on a pool", "collector on ParallelEnv"
STEPS = 32


def pool(make: Callable[[], Any] | str, rows: int) -> Any:
    return envkit.ParallelPyEnvironment(
        [make] * rows, num_workers=WORKERS, zero_copy=True
    )


def stepped(way: str, make: Callable[[], Any], rows: int) -> Contender:
    """Returns a pool as a contender whose time steps become tensors in some way."""
    env = pool(make, rows)
    env.reset()
    actions = np.zeros(rows, np.int64)
    if way == TENSORS:
        torch_env = TorchEnvironment(env)
        tensors = torch.zeros(rows, dtype=torch.int64)
        return Contender(lambda: torch_env.step(tensors), torch_env.close)
    made: dict[str, Callable[[Any], Any]] = {
        ARRAYS: lambda array: array,
        EACH: torch.from_numpy,
        COPIES: torch.tensor,
    }
    convert = made[way]
    if way == ARRAYS:
        return Contender(lambda: env.step(actions), env.close)
    return Contender(lambda: nest.map_structure(convert, env.step(actions)), env.close)


def collected(way: str, make: Callable[[], Any], rows: int) -> Contender:
    """Returns a contender that collects rollouts; a step of it is one of all rows."""
    env = TorchEnvironment(pool(make, rows))
    zeros, value = torch.zeros(rows, dtype=torch.int64), torch.zeros(rows)

    def policy(_: Any) -> Any:
        return zeros, {"value": value}

    buffer = RolloutBuffer(env, STEPS)
    leaves = nest.flatten(env.empty(STEPS, rows))
    actions = torch.zeros(STEPS, rows, dtype=torch.int64)
    values = torch.zeros(STEPS, rows)

    def by_hand() -> None:
        time_step = env.current_time_step()
        for step in range(STEPS):
            for leaf, seen in zip(leaves, nest.flatten(time_step), strict=True):
                leaf[step] = seen
            action, extras = policy(time_step)
            actions[step], values[step] = action, extras["value"]
            time_step = env.step(action)

    collect = functools.partial(buffer.collect, env, policy)
    rollout = collect if way == BUFFER else by_hand
    return Contender(
        close=env.close, measure=lambda seconds: _per_step(rollout, seconds, STEPS)
    )


def _per_step(rollout: Callable[[], object], seconds: float, steps: int) -> float:
    rollout()
    count, began = 0, time.perf_counter()
    while (taken := time.perf_counter() - began) < seconds or not count:
        rollout()
        count += steps
    return 1e6 * taken / count


def gymnasium_of_torchrl() -> Any:
    from torchrl.envs import GymEnv

    return GymEnv(GAME)


def part_of_torchrl(rows: int) -> Any:
    from torchrl.envs import SerialEnv

    return SerialEnv(rows, gymnasium_of_torchrl)


def collector(way: str, rows: int) -> Contender:
    """Returns a collector of TorchRL, with random actions, as a contender."""
    from torchrl.collectors import Collector
    from torchrl.envs import ParallelEnv

    if way == OURS:
        env = as_torchrl(
            envkit.make(f"gymnasium:{GAME}", num_envs=rows, num_workers=WORKERS)
        )
    else:
        part = functools.partial(part_of_torchrl, rows // WORKERS)
        env = ParallelEnv(WORKERS, part)
    found = Collector(env, None, frames_per_batch=STEPS * rows, total_frames=-1)
    batches = iter(found)
    return Contender(
        close=found.shutdown,
        measure=lambda seconds: _per_step(lambda: next(batches), seconds, STEPS),
    )


def measure(
    report: Report,
    told: argparse.Namespace,
    title: str,
    makers: dict[str, Callable[[], Contender] | None],
) -> dict[str, list[float]]:
    with opened(makers) as contenders:
        figures = take_turns(contenders, told.rounds, told.seconds)
    report.table(title, figures)
    return figures


def main() -> None:
    # What libraries say of one another while they are loaded.
    warnings.filterwarnings("ignore")
    told = options(__doc__, rounds=9, seconds=0.5, num_envs=64).parse_args()
    report, rows = Report("torch_steps"), told.num_envs
    games: dict[str, Any] = {
        "environments that do nothing": functools.partial(Working, None, (4,)),
        "pictures of 84 x 84 x 4": functools.partial(
            Working, None, (84, 84, 4), "uint8"
        ),
    }
    for name, make in games.items():
        ways = (ARRAYS, TENSORS, EACH, COPIES)
        figures = measure(
            report,
            told,
            f"{rows} {name}, {WORKERS} workers",
            {way: functools.partial(stepped, way, make, rows) for way in ways},
        )
        report.ratio(
            f"{name}: time of tensors over that of arrays",
            figures[TENSORS],
            figures[ARRAYS],
            at_most=1.1,
        )
        figures = measure(
            report,
            told,
            f"{rows} {name}, rollouts",
            {
                way: functools.partial(collected, way, make, rows)
                for way in (BUFFER, BY_HAND)
            },
        )
        report.ratio(
            f"{name}: time of a RolloutBuffer over that of a loop by hand",
            figures[BUFFER],
            figures[BY_HAND],
            at_most=1.2,
        )
    has_torchrl = importlib.util.find_spec("torchrl") is not None
    figures = measure(
        report,
        told,
        f"{rows} of Gymnasium's CartPoles, TorchRL's collector",
        {
            way: functools.partial(collector, way, rows) if has_torchrl else None
            for way in (OURS, THEIRS)
        },
    )
    report.ratio(
        "CartPole: time of TorchRL's processes over that of a pool",
        figures[THEIRS],
        figures[OURS],
        at_least=1.0,
    )
    report.finish(told.json)


if __name__ == "__main__":
    main()
