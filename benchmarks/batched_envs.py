"""How long a step of CartPole takes per row, in batches and alone.

    python benchmarks/batched_envs.py

One envkit object with many rows, in NumPy and compiled, beside Gymnasium's own
vectorised CartPole, PufferLib's loop in C (of an installed package, or of the folder
named by `--pufferlib`), and a plain loop over a single environment of each. All get the
same random actions, and reset the episodes that have ended. A call on a batch of 4096
counts as 4096 steps. The lamplighter of `examples/` stands for rules that a user
writes.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np
import puffer_cartpole
from side_by_side import Contender, Report, microseconds, opened, options, take_turns

from envkit.envs import CartPole


def of_a_row(step: Callable[[], object], rows: int) -> Contender:
    return Contender(measure=lambda seconds: microseconds(step, seconds) / rows)


def our_batch(actions: list[np.ndarray], compiled: bool = False) -> Contender:
    env = CartPole(batch_size=len(actions[0]), seed=0, compiled=compiled)
    env.reset()
    batches = itertools.cycle(actions)
    return of_a_row(lambda: env.step(next(batches)), len(actions[0]))


def our_rules(actions: list[np.ndarray]) -> Contender:
    sys.path.append(str(Path(__file__).parents[1] / "examples"))
    from lamplighter import Lamplighter

    env = Lamplighter(len(actions[0]), seed=0, num_threads=1)
    env.reset()
    batches = itertools.cycle(actions)
    return of_a_row(lambda: env.step(next(batches)), len(actions[0]))


def pufferlib_loop(source: Path, actions: list[np.ndarray]) -> Contender:
    return of_a_row(puffer_cartpole.stepper(source, actions), len(actions[0]))


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
    parser.add_argument("--pufferlib", type=Path, help="a folder that has its source")
    told = parser.parse_args()
    report = Report("batched_envs")
    rng = np.random.default_rng(0)
    batches = [rng.integers(0, 2, told.batch_size) for _ in range(50)]
    actions = rng.integers(0, 2, 10_000).tolist()
    ours = f"envkit, a batch of {told.batch_size}"
    compiled, puffer = f"{ours}, compiled", f"PufferLib's C, {told.batch_size}"
    has_numba = importlib.util.find_spec("numba") is not None
    source = puffer_cartpole.header(told.pufferlib)
    makers = {
        ours: functools.partial(our_batch, batches),
        compiled: functools.partial(our_batch, batches, True) if has_numba else None,
        puffer: source and functools.partial(pufferlib_loop, source, batches),
        f"Gymnasium, a batch of {told.batch_size}": functools.partial(
            their_batch, batches
        ),
        "envkit, one in a loop": functools.partial(our_loop, actions),
        "Gymnasium, one in a loop": functools.partial(their_loop, actions),
    }
    with opened(makers) as players:
        figures = take_turns(players, told.rounds, told.seconds)
    report.table("a step of CartPole", figures, "us per row")
    for name in [name for name in makers if name not in {ours, compiled, puffer}]:
        report.ratio(
            f"envkit's batch is as fast as {name}", figures[name], figures[ours]
        )
    for name, least in ((ours, 2.2), (puffer, 1.0)):
        report.ratio(
            f"envkit's compiled batch is as fast as {name}",
            figures[name],
            figures[compiled],
            at_least=least,
        )
    rules = {"the lamplighter, compiled": None}
    if has_numba:
        moves = [rng.integers(0, 3, told.batch_size) for _ in range(50)]
        rules = {name: functools.partial(our_rules, moves) for name in rules}
    with opened(rules) as players:
        figures = take_turns(players, told.rounds, told.seconds)
    report.table("a step of rules that a user writes", figures, "us per row")
    report.finish(told.json)


if __name__ == "__main__":
    main()
