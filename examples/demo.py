"""How fast parallel environments are, and what happens when a worker is killed.

    pip install "gymnasium>=1.0"

`make demo` runs this program, and then `dqn_tensorflow.py`.
"""

import os
import signal
import sys
import time

import numpy as np

import envkit
from envkit import RestartPolicy

try:
    import gymnasium
except ModuleNotFoundError:
    sys.exit(
        "This example compares envkit with gymnasium, which is not installed. "
        'pip install "gymnasium>=1.0"'
    )

NUM_ENVS, NUM_WORKERS = 64, 2
SECONDS = 1.5  # for each way
rng = np.random.default_rng(0)
actions = rng.integers(0, 3, NUM_ENVS)


class Loop:
    """Steps Gymnasium's environments one after the other."""

    def __init__(self):
        self.envs = [gymnasium.make("Acrobot-v1") for _ in range(NUM_ENVS)]

    def reset(self):
        for env in self.envs:
            env.reset()

    def step(self, actions):
        for env, action in zip(self.envs, actions, strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    def close(self):
        pass


def gymnasium_processes():
    make = [lambda: gymnasium.make("Acrobot-v1")] * NUM_ENVS
    return gymnasium.vector.AsyncVectorEnv(make)


def envkit_processes():
    name = "gymnasium:Acrobot-v1"
    return envkit.make(name, num_envs=NUM_ENVS, num_workers=NUM_WORKERS)


def steps_per_second(env):
    env.reset()
    env.step(actions)
    calls, began = 0, time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        env.step(actions)
        calls += 1
    env.close()
    return calls * NUM_ENVS / (time.perf_counter() - began)


print(f"Steps per second of {NUM_ENVS} of Gymnasium's Acrobot-v1:")
for name, make in (
    ("a plain loop", Loop),
    (f"Gymnasium's AsyncVectorEnv, {NUM_ENVS} processes", gymnasium_processes),
    (f"envkit, {NUM_WORKERS} worker processes", envkit_processes),
):
    print(f"  {name:42} {steps_per_second(make()):9,.0f}", flush=True)

with envkit.make(
    "CartPole",
    num_envs=NUM_ENVS,
    num_workers=NUM_WORKERS,
    on_worker_failure=RestartPolicy(max_restarts=3),
) as env:
    env.reset()
    truncated = 0
    for step in range(400):
        if step == 200:
            os.kill(env.workers[0].pid, signal.SIGKILL)
        time_step = env.step(rng.integers(0, 2, NUM_ENVS))
        # The episodes of a dead worker end with a truncated LAST, and are marked.
        truncated += int((env.repaired & time_step.is_last()).sum())
    restarts = sum(worker.restarts for worker in env.workers)
print("A worker was killed at step 200 of 400, and the run went on to its end:")
print(
    f"{restarts} worker was replaced, and {truncated} of {NUM_ENVS} episodes were cut"
)
