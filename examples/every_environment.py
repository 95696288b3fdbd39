"""Steps a batch of every built-in environment with a random policy.

python examples/every_environment.py
python examples/every_environment.py --num_envs=4096 --steps=500 --envs=CartPole

It prints steps per second, episodes and mean returns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

import envkit
from envkit.registry import registered
from envkit.specs import sample_spec_nest


class Result(NamedTuple):
    """What one environment's run came to."""

    name: str
    steps_per_second: float
    episodes: int
    mean_return: float


def run(options: argparse.Namespace, name: str, progress: Progress) -> Result:
    """Steps one batch and counts."""
    rng = np.random.default_rng(options.seed)
    returns = np.zeros(options.num_envs)
    finished: list[float] = []
    with envkit.make(name, batch_size=options.num_envs) as env:
        env.seed(options.seed)
        env.reset()
        stepping = 0.0
        for _ in progress.track(range(options.steps), description=name):
            action = sample_spec_nest(env.action_spec(), rng, (options.num_envs,))
            start = time.perf_counter()
            time_step = env.step(action)
            stepping += time.perf_counter() - start
            returns += time_step.reward
            ended = time_step.is_last()
            finished.extend(returns[ended])
            returns[ended] = 0.0
    return Result(
        name,
        options.num_envs * options.steps / stepping,
        len(finished),
        float(np.mean(finished)) if finished else float("nan"),
    )


def show(
    options: argparse.Namespace, results: Sequence[Result], console: Console
) -> None:
    """Prints the table."""
    table = Table(title=f"{options.num_envs} environments each, random policy")
    table.add_column("environment")
    for heading in ("steps per second", "episodes", "mean return"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(
            result.name,
            f"{result.steps_per_second:,.0f}",
            f"{result.episodes:,}",
            f"{result.mean_return:.2f}" if result.episodes else "no episode ended",
        )
    console.print(table)


def arguments() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--num_envs", type=int, default=1024, help="rows of each batch")
    parser.add_argument("--steps", type=int, default=1000, help="steps of each batch")
    parser.add_argument(
        "--seed", type=int, default=0, help="what the random numbers depend on"
    )
    parser.add_argument(
        "--envs",
        type=lambda text: text.split(","),
        default=registered(),
        help="which environments to step",
    )
    return parser.parse_args()


def main() -> None:
    """Runs the demo."""
    options = arguments()
    console = Console()
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
    )
    # Without a terminal the bar would be a line of clutter per environment.
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        results = [run(options, name, bar) for name in options.envs]
    show(options, results, console)


if __name__ == "__main__":
    main()
