"""A policy thinks about one half of the environments while the other half steps.

A step takes as long here as the policy takes for one half, and both only wait, as if
for a game and for a GPU. In lockstep, the environments wait for the policy and the
policy waits for them. With `send` and `recv` they work at the same time, and the same
number of transitions takes about two thirds of the time.
"""

import functools
import time

import numpy as np

from envkit import AsyncParallelPyEnvironment
from envkit.testing import SlowEnv

NUM_ENVS = 8
STEPS = 100  # of each environment
SECONDS = 0.004  # for a step, and for the policy to think about one half


def policy(observation):
    time.sleep(SECONDS)
    return observation % 2


def lockstep(env):
    """Steps all environments, then thinks about each half; returns the seconds."""
    env.reset_async()
    batch = env.recv()
    began = time.perf_counter()
    for _ in range(STEPS):
        halves = np.split(batch.time_step.observation, 2)
        actions = np.concatenate([policy(half) for half in halves])
        env.send(actions, batch.env_ids)
        batch = env.recv()
    return time.perf_counter() - began


def in_halves(env):
    """Thinks about whichever half is ready; returns the seconds."""
    env.reset_async()
    began = time.perf_counter()
    for _ in range(2 * STEPS):
        batch = env.recv(count=NUM_ENVS // 2)
        env.send(policy(batch.time_step.observation), batch.env_ids)
    seconds = time.perf_counter() - began
    env.recv()  # All rows still owe an answer.
    return seconds


# The environments wait and need no CPU, so each may have a worker.
with AsyncParallelPyEnvironment(
    [functools.partial(SlowEnv, step_time=SECONDS)] * NUM_ENVS,
    num_workers=NUM_ENVS,
    backend="thread",
) as env:
    together, apart = lockstep(env), in_halves(env)

for name, seconds in (("lockstep", together), ("halves", apart)):
    print(f"{name:8}  {STEPS * NUM_ENVS / seconds:6,.0f} transitions per second")
print(f"halves are {together / apart:.2f} times as fast as lockstep")
