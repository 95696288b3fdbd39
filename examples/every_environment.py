"""Steps a batch of every built-in environment with a random policy.

python examples/every_environment.py
python examples/every_environment.py --num_envs=4096 --steps=500 --envs=CartPole

It prints steps per second, episodes and mean returns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from absl import app, flags
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

import envkit
from envkit.constructors import registered
from envkit.specs import sample_spec_nest

_NUM_ENVS = flags.DEFINE_integer("num_envs", 1024, "Rows of each batch.", lower_bound=1)
_STEPS = flags.DEFINE_integer("steps", 1000, "Steps of each batch.", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 0, "What the random numbers depend on.")
_ENVS = flags.DEFINE_list("envs", registered(), "Which environments to step.")


class Result(NamedTuple):
    """What one environment's run came to."""

    name: str
    steps_per_second: float
    episodes: int
    mean_return: float


def run(name: str, progress: Progress) -> Result:
    """Steps one batch and counts."""
    rng = np.random.default_rng(_SEED.value)
    returns = np.zeros(_NUM_ENVS.value)
    finished: list[float] = []
    with envkit.make(name, batch_size=_NUM_ENVS.value) as env:
        env.seed(_SEED.value)
        env.reset()
        stepping = 0.0
        for _ in progress.track(range(_STEPS.value), description=name):
            action = sample_spec_nest(env.action_spec(), rng, (_NUM_ENVS.value,))
            start = time.perf_counter()
            time_step = env.step(action)
            stepping += time.perf_counter() - start
            returns += time_step.reward
            ended = time_step.is_last()
            finished.extend(returns[ended])
            returns[ended] = 0.0
    return Result(
        name,
        _NUM_ENVS.value * _STEPS.value / stepping,
        len(finished),
        float(np.mean(finished)) if finished else float("nan"),
    )


def show(results: Sequence[Result], console: Console) -> None:
    """Prints the table."""
    table = Table(title=f"{_NUM_ENVS.value} environments each, random policy")
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


def main(_: Sequence[str]) -> None:
    """Runs the demo."""
    console = Console()
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
    )
    # Without a terminal the bar would be a line of clutter per environment.
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        results = [run(name, bar) for name in _ENVS.value]
    show(results, console)


if __name__ == "__main__":
    app.run(main)
