"""Shows how fast parallel environments are, and that a killed worker stops nothing.

    pip install -e ".[gymnasium]"
    python examples/demo.py
    python examples/demo.py --num_envs=256 --seconds=5

`make demo` runs this first, and then `tf_reinforce.py`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress, track
from rich.table import Table

import envkit
from envkit import RestartPolicy
from envkit.adapters import vectorize
from envkit.extend import install_command

try:
    import gymnasium
except ModuleNotFoundError:
    sys.exit(
        "This example needs the package gymnasium, which is not installed. "
        f"{install_command('gymnasium')}"
    )


_TARGET = "Acrobot-v1"
# Steps all environments once, with these actions.
Step = Callable[[np.ndarray], Any]


def a_loop(options: argparse.Namespace) -> tuple[Step, Callable[[], None]]:
    """Gymnasium's environments, one after the other."""
    envs = [gymnasium.make(_TARGET) for _ in range(options.num_envs)]
    for env in envs:
        env.reset()

    def step(actions: np.ndarray) -> None:
        for env, action in zip(envs, actions, strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return step, lambda: None


def gymnasiums_processes(
    options: argparse.Namespace,
) -> tuple[Step, Callable[[], None]]:
    """A process for each, as Gymnasium has it."""
    env = gymnasium.vector.AsyncVectorEnv(
        [lambda: gymnasium.make(_TARGET)] * options.num_envs
    )
    env.reset()
    return env.step, env.close


def envkits_processes(options: argparse.Namespace) -> tuple[Step, Callable[[], None]]:
    """The same environments in a few workers."""
    env = envkit.make(
        f"gymnasium:{_TARGET}",
        num_envs=options.num_envs,
        num_workers=options.num_workers,
    )
    env.reset()
    return env.step, env.close


def gymnasiums_interface(
    options: argparse.Namespace,
) -> tuple[Step, Callable[[], None]]:
    """What `AsyncVectorEnv` is replaced by in a program for Gymnasium."""
    env = vectorize(
        [lambda: gymnasium.make(_TARGET)] * options.num_envs,
        num_workers=options.num_workers,
    )
    env.reset()
    return env.step, env.close


def steps_per_second(options: argparse.Namespace, step: Step) -> float:
    """Steps for a while, and returns how many environments that were per second."""
    rng = np.random.default_rng(0)
    batches = itertools.cycle(rng.integers(0, 3, (50, options.num_envs)))
    step(next(batches))
    calls, began = 0, time.perf_counter()
    while time.perf_counter() - began < options.seconds:
        step(next(batches))
        calls += 1
    return calls * options.num_envs / (time.perf_counter() - began)


def show_speed(options: argparse.Namespace, console: Console) -> None:
    """Prints how many steps a second each way makes."""
    workers = options.num_workers
    ways = {
        "a plain loop": a_loop,
        f"Gymnasium's AsyncVectorEnv, {options.num_envs} processes": (
            gymnasiums_processes
        ),
        f"envkit, {workers} worker processes": envkits_processes,
        "envkit.adapters.vectorize": gymnasiums_interface,
    }
    speeds = {}
    silent = not console.is_terminal
    for name, way in track(
        list(ways.items()),
        "stepping",
        console=console,
        transient=True,
        disable=silent,
    ):
        step, close = way(options)
        speeds[name] = steps_per_second(options, step)
        close()
    table = Table(title=f"{options.num_envs} of Gymnasium's {_TARGET}")
    table.add_column("")
    for heading in ("steps per second", "against the loop"):
        table.add_column(heading, justify="right")
    loop = speeds["a plain loop"]
    for name, speed in speeds.items():
        table.add_row(name, f"{speed:,.0f}", f"{speed / loop:.2f}x")
    console.print(table)


def show_a_death(options: argparse.Namespace, console: Console) -> None:
    """Kills a worker in the middle, and shows what becomes of the run."""
    rng = np.random.default_rng(0)
    steps, killed_at = 400, 200
    silent = not console.is_terminal
    with (
        envkit.make(
            "CartPole",
            num_envs=options.num_envs,
            num_workers=options.num_workers,
            on_worker_failure=RestartPolicy(max_restarts=3),
        ) as env,
        Progress(console=console, transient=True, disable=silent) as progress,
    ):
        task = progress.add_task("stepping", total=steps)
        env.reset()
        cut: list[int] = []
        for number in range(steps):
            if number == killed_at:
                victim = env.workers[0]
                os.kill(victim.pid, signal.SIGKILL)
            time_step = env.step(rng.integers(0, 2, options.num_envs))
            # What ends because a worker died is truncated, and marked.
            cut += (env.repaired & time_step.is_last()).nonzero()[0].tolist()
            progress.advance(task)
        restarts = sum(worker.restarts for worker in env.workers)
    console.print(
        f"Worker 0 (process {victim.pid}) was killed at step {killed_at} of {steps}.\n"
        f"The run went on: all {steps} steps were made, {restarts} worker was "
        f"replaced, and {len(cut)} of {options.num_envs} episodes were cut, each with "
        "a truncated LAST."
    )


def arguments() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--num_envs", type=int, default=64, help="environments")
    parser.add_argument("--num_workers", type=int, default=2, help="processes")
    parser.add_argument(
        "--seconds", type=float, default=1.5, help="for how long to step each"
    )
    return parser.parse_args()


def main() -> None:
    """Runs the demo."""
    options = arguments()
    console = Console()
    show_speed(options, console)
    console.print()
    show_a_death(options, console)


if __name__ == "__main__":
    main()
