"""Lets a policy think about one half of the environments while the other half steps.

    python examples/async_halves.py

A step takes as long here as the policy takes for one half, and both only wait, as if
for a game and for a GPU. In lockstep the environments wait for the policy and the
policy for them; with `send` and `recv` they work at the same time, and the same number
of transitions takes about two thirds of the time.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from absl import app, flags

from envkit import AsyncParallelPyEnvironment
from envkit.testing import SlowEnv

_NUM_ENVS = flags.DEFINE_integer("num_envs", 8, "Environments.", lower_bound=2)
_STEPS = flags.DEFINE_integer("steps", 100, "Steps of each environment.", lower_bound=1)
_MILLISECONDS = flags.DEFINE_float(
    "milliseconds", 4.0, "What a step takes, and the policy for one half."
)


def policy(observation: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    """Thinks about one half for as long as a step takes."""
    time.sleep(_MILLISECONDS.value / 1e3)
    return observation % 2


def in_lockstep(env: AsyncParallelPyEnvironment) -> float:
    """Steps all environments, then thinks about all of them; returns the seconds."""
    env.reset_async()
    batch = env.recv()
    began = time.perf_counter()
    for _ in range(_STEPS.value):
        # Two halves, so that the policy has the same to do in both ways.
        halves = np.array_split(np.arange(env.num_envs), 2)
        actions = [policy(batch.time_step.observation[half]) for half in halves]
        env.send(np.concatenate(actions), batch.env_ids)
        batch = env.recv()
    return time.perf_counter() - began


def in_halves(env: AsyncParallelPyEnvironment) -> float:
    """Thinks about whichever half is ready; returns the seconds."""
    env.reset_async()
    half = env.num_envs // 2
    transitions, wanted = 0, _STEPS.value * env.num_envs
    began = time.perf_counter()
    while transitions < wanted:
        batch = env.recv(count=half)
        env.send(policy(batch.time_step.observation), batch.env_ids)
        transitions += half
    seconds = time.perf_counter() - began
    env.recv()  # Whoever still owes an answer would be asked twice otherwise.
    return seconds


def main(_: Sequence[str]) -> None:
    """Steps the environments in both ways, and compares."""
    slow = functools.partial(SlowEnv, step_time=_MILLISECONDS.value / 1e3)
    # One worker for each: they wait, so they need no CPU of their own.
    with AsyncParallelPyEnvironment(
        [slow] * _NUM_ENVS.value, num_workers=_NUM_ENVS.value, backend="thread"
    ) as env:
        lockstep, halves = in_lockstep(env), in_halves(env)
    transitions = _STEPS.value * _NUM_ENVS.value
    print(f"in lockstep   {transitions / lockstep:8,.0f} transitions per second")
    print(f"in halves     {transitions / halves:8,.0f} transitions per second")


if __name__ == "__main__":
    app.run(main)
