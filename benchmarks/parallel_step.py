"""How long a batch of Gymnasium's CartPole takes to step, by library.

    python benchmarks/parallel_step.py

The environment is so cheap that this measures the way to it and back. All libraries
step the same environments with the same random actions, and reset the ones that have
ended, as training does; only EnvPool has a CartPole of its own, in C++. The plain loops
step all environments in one process. The ideal is two processes that each loop over
half of them and never talk; possible here is the same two processes, woken for each
step by a bare system call. The second table shows how the time grows with the number of
environments.
"""

from __future__ import annotations

import functools
import itertools

import gymnasium
import numpy as np
import peers
from apart import apart, rung_loops
from peers import installed
from side_by_side import Contender, Report, best, opened, options, take_turns

import envkit
from envkit import ParallelPyEnvironment

TARGET = "gymnasium:CartPole-v1"
WORKERS = 2


def batches(num_envs: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 2, num_envs) for _ in range(50)]


def ours(num_envs: int, zero_copy: bool = False) -> Contender:
    env = ParallelPyEnvironment(
        [TARGET] * num_envs,
        num_workers=min(WORKERS, num_envs),
        zero_copy=zero_copy,
    )
    env.reset()
    actions = itertools.cycle(batches(num_envs))
    return Contender(lambda: env.step(next(actions)), env.close)


def our_loop(num_envs: int) -> Contender:
    envs = [envkit.make(TARGET) for _ in range(num_envs)]
    actions = itertools.cycle(batches(num_envs))

    def step() -> None:
        for env, action in zip(envs, next(actions), strict=True):
            env.step(action)

    return Contender(step)


# What is asked: how many times as fast as this, in the order of the table.
BARS = {
    "Gymnasium AsyncVectorEnv": 12.0,
    "Stable-Baselines3 SubprocVecEnv": 12.0,
    "TF-Agents ParallelPyEnvironment": 20.0,
    "ideal: two loops that never talk": 0.7,
    "a loop over Gymnasium's": 1.25,
    "a loop over envkit's": 1.6,
}
RUNG = "possible here: two loops that are rung for each step"
PUFFERS = ["PufferLib, 1 worker", "PufferLib, 2 workers"]


def compare(report: Report, num_envs: int, rounds: int, seconds: float) -> None:
    makers = [functools.partial(gymnasium.make, "CartPole-v1")] * num_envs
    given = makers, batches(num_envs)
    contenders = {
        "envkit": functools.partial(ours, num_envs),
        "envkit, zero_copy": functools.partial(ours, num_envs, zero_copy=True),
        "ideal: two loops that never talk": functools.partial(
            apart, makers[0], num_envs, given[1], WORKERS, peers.loop
        ),
        RUNG: functools.partial(rung_loops, *given, WORKERS, peers.loop),
        "a loop over Gymnasium's": functools.partial(peers.loop, *given),
        "a loop over envkit's": functools.partial(our_loop, num_envs),
        "Gymnasium SyncVectorEnv": functools.partial(peers.gymnasium_sync, *given),
        "Gymnasium AsyncVectorEnv": functools.partial(peers.gymnasium_async, *given),
        "Stable-Baselines3 SubprocVecEnv": installed(peers.stable_baselines3, *given),
        PUFFERS[0]: installed(peers.pufferlib, *given, workers=1),
        PUFFERS[1]: installed(peers.pufferlib, *given, workers=2),
        "TorchRL ParallelEnv": installed(peers.torchrl, *given),
        "TF-Agents ParallelPyEnvironment": installed(peers.tf_agents, *given),
        "EnvPool (its own, in C++)": installed(peers.envpool, *given),
    }
    with opened(contenders) as players:
        figures = take_turns(players, rounds, seconds)
    report.table(f"one step of {num_envs} environments, {WORKERS} workers", figures)
    for name, bar in BARS.items():
        report.ratio(
            f"as fast as {name}", figures[name], figures["envkit"], at_least=bar
        )
    for name in BARS:
        report.ratio(f"possible here, over {name}", figures[name], figures[RUNG])
    report.ratio("share of what is possible here", figures[RUNG], figures["envkit"])
    puffer = best(figures, PUFFERS)
    report.ratio(
        f"as fast as {puffer}", figures[puffer], figures["envkit"], at_least=2.0
    )
    report.ratio(f"possible here, over {puffer}", figures[puffer], figures[RUNG])
    for name in (
        "TorchRL ParallelEnv",
        "EnvPool (its own, in C++)",
    ):
        report.ratio(f"as fast as {name}", figures[name], figures["envkit"])


def grow(report: Report, sizes: list[int], rounds: int, seconds: float) -> None:
    """Measures how the time of a step grows with the number of environments."""
    base = next((size for size in sizes if size >= 64), sizes[-1])
    larger = sizes[sizes.index(base) :]
    make = functools.partial(gymnasium.make, "CartPole-v1")
    contenders = {str(size): functools.partial(ours, size) for size in sizes} | {
        apart_of(size): functools.partial(
            apart, make, size, batches(size), WORKERS, peers.loop
        )
        for size in larger
    }
    with opened(contenders) as players:
        figures = take_turns(players, rounds, seconds)
    for title, names in [
        ("one step, by number of environments", list(map(str, sizes))),
        ("the same, loops that never talk", list(map(apart_of, larger))),
    ]:
        report.table(title, {name: figures[name] for name in names})
    for size in larger[1:]:
        # Equal but for noise.
        for name, end, bar in [(str, "", 1.05), (apart_of, ", never talk", None)]:
            report.ratio(
                f"{size} environments instead of {base}{end}: "
                f"time over {size // base} times the time",
                figures[name(size)],
                [value * size / base for value in figures[name(base)]],
                at_most=bar,
            )


def apart_of(size: int) -> str:
    return f"{size}, never talk"


def main() -> None:
    parser = options(__doc__, rounds=9, seconds=0.4, num_envs=64)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1, 8, 64, 256, 1024], metavar="N"
    )
    told = parser.parse_args()
    report = Report("parallel_step")
    compare(report, told.num_envs, told.rounds, told.seconds)
    grow(report, told.sizes, told.rounds, told.seconds)
    report.finish(told.json)


if __name__ == "__main__":
    main()
