"""How much an agent loses by thinking: Catch goes on meanwhile.

    python examples/realtime_catch.py

The ball falls 20 times a second, whether the agent has made up its mind or not; until
it has, its last action goes on. Its think time is declared, and the clock is counted
and not waited for, so hundreds of episodes take a second, and the same numbers come out
on every machine. A picture shows the mean return against the think time.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from envkit import TimeStep
from envkit.envs import Catch
from envkit.extend import install_command
from envkit.realtime import RealTimeEnvironment

LEFT, STAY, RIGHT = range(3)


def follow(time_step: TimeStep) -> int:
    """Moves the paddle towards the column of the ball: what a quick agent does."""
    board = time_step.observation
    paddle = int(np.argmax(board[-1]))
    ball = int(np.argmax(board[:-1].max(axis=0)))
    return STAY if ball == paddle else RIGHT if ball > paddle else LEFT


def returns_of(
    options: argparse.Namespace, think_time: float
) -> tuple[list[float], float]:
    """Returns what each episode brought, and how many ticks passed per action."""
    returns: list[float] = []
    merged: list[int] = []
    game = Catch(seed=0, rows=20, columns=9)
    with RealTimeEnvironment(
        game, options.hz, host="virtual", think_time=think_time
    ) as env:
        time_step = env.reset()
        while len(returns) < options.episodes:
            time_step = env.step(follow(time_step))
            if time_step.is_mid():
                merged.append(int(env.lag().ticks_merged))
            if time_step.is_last():
                returns.append(float(time_step.reward))
    return returns, float(np.mean(merged))


def draw(
    options: argparse.Namespace, think_times: Sequence[float], means: Sequence[float]
) -> pathlib.Path:
    """Draws the picture; returns where it is."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(think_times, means, marker="o")
    axes.set(
        title=f"Catch at {options.hz:g} Hz, and an agent that thinks",
        xlabel="think time (ms)",
        ylabel=f"mean return of {options.episodes} episodes",
        ylim=(-1.05, 1.05),
    )
    axes.grid(alpha=0.3)
    path = pathlib.Path(options.out).resolve()
    figure.savefig(path, dpi=120)
    return path


def arguments() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--think_times",
        type=lambda text: text.split(","),
        default=["0", "50", "150"],
        help="in milliseconds",
    )
    parser.add_argument(
        "--hz", type=float, default=20.0, help="how often the ball falls, in a second"
    )
    parser.add_argument("--episodes", type=int, default=300, help="for each think time")
    parser.add_argument(
        "--out", default="realtime_catch.png", help="where the picture goes"
    )
    return parser.parse_args()


def main() -> None:
    options = arguments()
    table = Table(title=f"Catch at {options.hz:g} Hz")
    for heading in ("think time (ms)", "ticks per action", "mean return"):
        table.add_column(heading, justify="right")
    think_times = sorted(float(text) for text in options.think_times)
    means = []
    for milliseconds in think_times:
        returns, ticks = returns_of(options, milliseconds / 1000)
        means.append(float(np.mean(returns)))
        table.add_row(f"{milliseconds:g}", f"{ticks:.2f}", f"{means[-1]:+.2f}")
    console = Console()
    console.print(table)
    try:
        path = draw(options, think_times, means)
    except ModuleNotFoundError:
        console.print(f"No picture: {install_command('plot')} for that.")
        return
    console.print(f"The picture: {path}", soft_wrap=True)


if __name__ == "__main__":
    main()
