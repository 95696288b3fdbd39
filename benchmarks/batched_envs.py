"""How long a step of CartPole takes, in batches and alone, in envkit and in Gymnasium.

    python benchmarks/batched_envs.py

Compared are one envkit object with many rows, Gymnasium's own vectorised CartPole with
as many, and a plain loop over a single environment of each. Both batches are given the
same random actions, and episodes end and begin anew as they do in training. A step is
that of one row: a call on a batch of 4096 counts as 4096.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import gymnasium
import numpy as np
from side_by_side import Contender, Report, microseconds, opened, options, take_turns

from envkit.envs import CartPole


def of_a_row(step: Callable[[], object], rows: int) -> Contender:
    return Contender(measure=lambda seconds: microseconds(step, seconds) / rows)


def our_batch(actions: list[np.ndarray]) -> Contender:
    env = CartPole(batch_size=len(actions[0]), seed=0)
    env.reset()
    batches = itertools.cycle(actions)
    return of_a_row(lambda: env.step(next(batches)), len(actions[0]))


def their_batch(actions: list[np.ndarray]) -> Contender:
    env = gymnasium.make_vec(
        "CartPole-v1",
        num_envs=len(actions[0]),
        vectorization_mode="vector_entry_point",
    )
    env.reset(seed=0)
    batches = itertools.cycle(actions)
    return of_a_row(lambda: env.step(next(batches)), len(actions[0]))


def our_loop(actions: list[int]) -> Contender:
    env = CartPole(seed=0)
    env.reset()
    each = itertools.cycle(actions)
    return Contender(lambda: env.step(next(each)))


def their_loop(actions: list[int]) -> Contender:
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=0)
    each = itertools.cycle(actions)

    def step() -> None:
        _, _, terminated, truncated, _ = env.step(next(each))
        if terminated or truncated:
            env.reset()

    return Contender(step)


def main() -> None:
    parser = options(__doc__, rounds=9, seconds=0.4, batch_size=4096)
    told = parser.parse_args()
    report = Report("batched_envs")
    rng = np.random.default_rng(0)
    batches = [rng.integers(0, 2, told.batch_size) for _ in range(50)]
    actions = rng.integers(0, 2, 10_000).tolist()
    ours = f"envkit, a batch of {told.batch_size}"
    makers = {
        ours: functools.partial(our_batch, batches),
        f"Gymnasium, a batch of {told.batch_size}": functools.partial(
            their_batch, batches
        ),
        "envkit, one in a loop": functools.partial(our_loop, actions),
        "Gymnasium, one in a loop": functools.partial(their_loop, actions),
    }
    with opened(makers) as players:
        figures = take_turns(players, told.rounds, told.seconds)
    report.table("a step of CartPole", figures, "us per row")
    for name in list(makers)[1:]:
        report.ratio(
            f"envkit's batch is as fast as {name}", figures[name], figures[ours]
        )
    report.finish(told.json)


if __name__ == "__main__":
    main()
