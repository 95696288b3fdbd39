"""Lets a policy think about one half of the environments while the other half steps.

    python examples/async_halves.py

A step takes as long here as the policy takes for one half, and both only wait, as if
for a game and for a GPU. In lockstep the environments wait for the policy and the
policy for them; with `send` and `recv` they work at the same time, and the same number
of transitions takes about two thirds of the time.
"""

from __future__ import annotations

import argparse
import functools
import time

import numpy as np
import numpy.typing as npt

from envkit import AsyncParallelPyEnvironment
from envkit.testing import SlowEnv


def policy(
    options: argparse.Namespace, observation: npt.NDArray[np.integer]
) -> npt.NDArray[np.integer]:
    """Thinks about one half for as long as a step takes."""
    time.sleep(options.milliseconds / 1e3)
    return observation % 2


def in_lockstep(options: argparse.Namespace, env: AsyncParallelPyEnvironment) -> float:
    """Steps all environments, then thinks about all of them; returns the seconds."""
    env.reset_async()
    batch = env.recv()
    began = time.perf_counter()
    for _ in range(options.steps):
        # Two halves, so that the policy has the same to do in both ways.
        halves = np.array_split(np.arange(env.num_envs), 2)
        actions = [
            policy(options, batch.time_step.observation[half]) for half in halves
        ]
        env.send(np.concatenate(actions), batch.env_ids)
        batch = env.recv()
    return time.perf_counter() - began


def in_halves(options: argparse.Namespace, env: AsyncParallelPyEnvironment) -> float:
    """Thinks about whichever half is ready; returns the seconds."""
    env.reset_async()
    half = env.num_envs // 2
    transitions, wanted = 0, options.steps * env.num_envs
    began = time.perf_counter()
    while transitions < wanted:
        batch = env.recv(count=half)
        env.send(policy(options, batch.time_step.observation), batch.env_ids)
        transitions += half
    seconds = time.perf_counter() - began
    env.recv()  # Whoever still owes an answer would be asked twice otherwise.
    return seconds


def arguments() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--num_envs", type=int, default=8, help="environments")
    parser.add_argument(
        "--steps", type=int, default=100, help="steps of each environment"
    )
    parser.add_argument(
        "--milliseconds",
        type=float,
        default=4.0,
        help="what a step takes, and the policy for one half",
    )
    return parser.parse_args()


def main() -> None:
    """Steps the environments in both ways, and compares."""
    options = arguments()
    slow = functools.partial(SlowEnv, step_time=options.milliseconds / 1e3)
    # One worker for each: they wait, so they need no CPU of their own.
    with AsyncParallelPyEnvironment(
        [slow] * options.num_envs, num_workers=options.num_envs, backend="thread"
    ) as env:
        lockstep, halves = in_lockstep(options, env), in_halves(options, env)
    transitions = options.steps * options.num_envs
    print(f"in lockstep   {transitions / lockstep:8,.0f} transitions per second")
    print(f"in halves     {transitions / halves:8,.0f} transitions per second")


if __name__ == "__main__":
    main()
