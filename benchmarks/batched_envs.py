"""How many steps a second CartPole makes, in envkit and in Gymnasium.

    python benchmarks/batched_envs.py

Compared are one envkit object with many rows, Gymnasium's own vectorised CartPole with
as many, and a plain loop over a single environment of each. Both batches are given the
same random actions, and episodes end and begin anew as they do in training. A step is
that of one row: a call on a batch of 4096 counts as 4096.

Every contender takes its turn in every round, so that a machine that is busy for a
moment is unfair to nobody.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from envkit.envs import CartPole

# Plays for a while and returns how many steps that were.
Contender = Callable[[], int]


def our_batch(actions: list[np.ndarray], calls: int) -> Contender:
    env = CartPole(batch_size=len(actions[0]), seed=0)
    env.reset()

    def play() -> int:
        for call in range(calls):
            env.step(actions[call % len(actions)])
        return calls * len(actions[0])

    return play


def their_batch(actions: list[np.ndarray], calls: int) -> Contender:
    env = gymnasium.make_vec(
        "CartPole-v1",
        num_envs=len(actions[0]),
        vectorization_mode="vector_entry_point",
    )
    env.reset(seed=0)

    def play() -> int:
        for call in range(calls):
            env.step(actions[call % len(actions)])
        return calls * len(actions[0])

    return play


def our_loop(actions: list[int]) -> Contender:
    env = CartPole(seed=0)
    env.reset()

    def play() -> int:
        for action in actions:
            env.step(action)
        return len(actions)

    return play


def their_loop(actions: list[int]) -> Contender:
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=0)

    def play() -> int:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return len(actions)

    return play


def contenders(batch_size: int, calls: int) -> dict[str, Contender]:
    rng = np.random.default_rng(0)
    batches = [rng.integers(0, 2, batch_size) for _ in range(50)]
    actions = rng.integers(0, 2, 10_000).tolist()
    return {
        f"envkit, a batch of {batch_size}": our_batch(batches, calls),
        f"Gymnasium, a batch of {batch_size}": their_batch(batches, calls),
        "envkit, one in a loop": our_loop(actions),
        "Gymnasium, one in a loop": their_loop(actions),
    }


def steps_per_second(play: Contender) -> float:
    start = time.perf_counter()
    steps = play()
    return steps / (time.perf_counter() - start)


def measure(players: dict[str, Contender], rounds: int) -> dict[str, list[float]]:
    """Times each contender once per round, after a round that does not count."""
    for play in players.values():
        play()
    speeds: dict[str, list[float]] = {name: [] for name in players}
    for _ in track(range(rounds), description="measuring", transient=True):
        for name, play in players.items():
            speeds[name].append(steps_per_second(play))
    return speeds


def table(speeds: dict[str, list[float]]) -> Table:
    """Lists the speeds, and how many times as fast envkit's batch is."""
    ours, *_ = speeds.values()
    result = Table(title="CartPole, millions of steps per second")
    for heading in ("", "median", "middle half", "envkit's batch is"):
        result.add_column(heading, justify="right" if heading else "left")
    for name, values in speeds.items():
        low, median, high = np.percentile(values, [25, 50, 75]) / 1e6
        # Of each round by itself, so that what slowed both down cancels out.
        ratio = np.median(np.divide(ours, values))
        result.add_row(
            name,
            f"{median:.3f}",
            f"{low:.3f} … {high:.3f}",
            "" if values is ours else f"{ratio:.2f}x as fast",
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=500, help="on a batch, per round")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()

    speeds = measure(contenders(options.batch_size, options.calls), options.rounds)
    Console().print(table(speeds))
    if options.json:
        options.json.write_text(json.dumps(speeds, indent=1))


if __name__ == "__main__":
    main()
