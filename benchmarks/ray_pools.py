"""A pool on Ray beside Ray's own ways to step environments.

    python benchmarks/ray_pools.py

All step the same rows on two workers: a pool in processes, on linked workers and on
Ray, two actors that are called for each step, and RLlib's environment runners. The
runners choose actions themselves and return a sample with each call: of one step, as
the others do, or of 50 steps, which leaves out the way to a learner and back. They draw
actions at random, or from a network with two layers of 256 units; the pool's caller
then has such a network too. Two actors that loop over half of the environments each
show how fast two workers can be at most.

In the last two tables an RLlib runner steps the vector environment that it makes
itself, or a pool made by `to_rllib`, of the same environments. The script starts its
own cluster.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import ray
from environments import Working
from side_by_side import Contender, Report, microseconds, opened, options, take_turns

from envkit import ParallelPyEnvironment, PyEnvironment, RestartPolicy
from envkit.adapters import GymnasiumWrapper, to_rllib
from envkit.batched_py_environment import BatchedPyEnvironment
from envkit.distributed.links import linked
from envkit.envs import CartPole
from envkit.testing import CountingEnv

WORKERS = 2
# RLlib itself comes with Ray; what it imports does not.
HAS_RLLIB = all(map(importlib.util.find_spec, ("torch", "tensorboardX")))
# The numbers that an environment adds up in each step.
COUNT = 5000
POOL, CALLS, RLLIB = "pool on Ray", "two actors, a call a step", "RLlib's runners"
POOL_ACTS, RLLIB_ACTS = f"{POOL}, with a network", f"{RLLIB}, with their network"
POOL_BATCHES, RLLIB_BATCHES = f"{POOL}, two batches", f"{RLLIB}, two batches"
ALONE, ALONE_BATCH = "two loops over environments", "two loops over a batch"
ALONE_GYMNASIUM = f"{ALONE} of Gymnasium"
OWN_VECTOR, OWN_POOL = "its own vector", f"a pool, {WORKERS} workers"
# How RLlib makes each of them: its gym_env_vectorize_mode.
VECTORS = {
    OWN_VECTOR: "sync",
    f"{OWN_VECTOR}, processes": "async",
    OWN_POOL: "vector_entry_point",
}
# How many steps of each row a sample of RLlib's has.
STEP, SAMPLE = "a step a call", "50 steps a call"
SAMPLES = {STEP: 1, SAMPLE: 50}


def pool_of(
    make: Callable[[], PyEnvironment], count: int, backend: Any
) -> ParallelPyEnvironment:
    """Opens a pool on two workers."""
    if backend == "linked":
        backend = linked(["envkit worker {address}"] * WORKERS)
    return ParallelPyEnvironment(
        [make] * count,
        num_workers=WORKERS,
        backend=backend,
        start_serially=False,
        on_worker_failure=RestartPolicy(max_restarts=99, backoff=0.0),
    )


def pool(make: Callable[[], PyEnvironment], rows: int, backend: str) -> Contender:
    """Returns a pool as a contender."""
    env = pool_of(make, rows, backend)
    env.reset()
    return Contender(functools.partial(env.step, np.zeros(rows, np.int64)), env.close)


def pool_of_batches(rows: int) -> Contender:
    """Returns a pool of two batches as a contender."""
    make = functools.partial(CartPole, batch_size=rows // WORKERS)
    env = pool_of(make, WORKERS, "ray")
    env.reset()
    return Contender(functools.partial(env.step, np.zeros(rows, np.int64)), env.close)


class Alone:
    """An actor that steps the environments of one worker, without anything around."""

    def __init__(self, rows: int, kind: str) -> None:
        self._actions = np.zeros(rows, np.int64)
        if kind == ALONE_BATCH:
            self._envs: list[Any] = [CartPole(batch_size=rows)]
        elif kind == ALONE:
            self._envs = [CartPole() for _ in range(rows)]
        else:
            self._envs = [gymnasium.make("CartPole-v1") for _ in range(rows)]
        steps = {ALONE: self._step_rows, ALONE_BATCH: self._step_batch}
        self._step = steps.get(kind, self._step_games)
        for env in self._envs:
            env.reset()

    def _step_rows(self) -> None:
        for env in self._envs:
            env.step(0)

    def _step_batch(self) -> None:
        self._envs[0].step(self._actions)

    def _step_games(self) -> None:
        for env in self._envs:
            _, _, is_terminated, is_truncated, _ = env.step(0)
            if is_terminated or is_truncated:
                env.reset()

    def run(self, seconds: float) -> float:
        """Returns how many microseconds a step of all of them takes."""
        return microseconds(self._step, seconds)


def alone(rows: int, kind: str) -> Contender:
    """Returns two actors as a contender that step their halves at the same time."""
    halves = [ray.remote(Alone).remote(rows // WORKERS, kind) for _ in range(WORKERS)]

    def measure(seconds: float) -> float:
        return max(ray.get([half.run.remote(seconds) for half in halves]))

    def close() -> None:
        for half in halves:
            ray.kill(half)

    return Contender(close=close, measure=measure)


class Rows:
    """An actor that steps its rows when it is called."""

    def __init__(self, make: Callable[[], PyEnvironment], rows: int) -> None:
        self._env = BatchedPyEnvironment([make() for _ in range(rows)])
        self._env.reset()

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        """Returns the time step's arrays."""
        return tuple(self._env.step(actions))


def actors(make: Callable[[], PyEnvironment], rows: int) -> Contender:
    """Returns two actors as a contender: a call a step, and the rows put together."""
    halves = [ray.remote(Rows).remote(make, rows // WORKERS) for _ in range(WORKERS)]
    actions = np.zeros(rows // WORKERS, np.int64)

    def step() -> tuple[Any, ...]:
        found = ray.get([half.step.remote(actions) for half in halves])
        return tuple(map(np.concatenate, zip(*found, strict=True)))

    def close() -> None:
        for half in halves:
            ray.kill(half)

    return Contender(step, close)


def pool_with_network(make: Callable[[], PyEnvironment], rows: int) -> Contender:
    """Returns a pool as a contender whose caller draws the actions from a network."""
    import torch

    network = torch.nn.Sequential(
        torch.nn.Linear(4, 256),
        torch.nn.Tanh(),
        torch.nn.Linear(256, 256),
        torch.nn.Tanh(),
        torch.nn.Linear(256, 2),
    )
    env = pool_of(make, rows, "ray")
    seen = env.reset().observation

    @torch.no_grad()
    def step() -> None:
        nonlocal seen
        logits = network(torch.as_tensor(seen))
        actions = torch.distributions.Categorical(logits=logits).sample()
        seen = env.step(actions.numpy()).observation

    return Contender(step, env.close)


def runners(
    rows: int, steps: int, *, is_random: bool = True, are_batches: bool = False
) -> Contender:
    """Returns two of RLlib's environment runners as a contender."""
    from gymnasium import VectorizeMode
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=rows // WORKERS,
            gym_env_vectorize_mode=VectorizeMode.VECTOR_ENTRY_POINT
            if are_batches
            else VectorizeMode.SYNC,
        )
    )
    found = [
        ray.remote(SingleAgentEnvRunner).remote(config=config, worker_index=index + 1)
        for index in range(WORKERS)
    ]

    def sample() -> int:
        calls = [
            runner.sample.remote(
                num_timesteps=steps * rows // WORKERS, random_actions=is_random
            )
            for runner in found
        ]
        return sum(len(episode) for part in ray.get(calls) for episode in part)

    def measure(seconds: float) -> float:
        count, began = 0, time.perf_counter()
        while (taken := time.perf_counter() - began) < seconds or not count:
            count += sample()
        return 1e6 * taken * rows / count

    def close() -> None:
        for runner in found:
            ray.kill(runner)

    sample()
    return Contender(close=close, measure=measure)


class Counted(gymnasium.Env):
    """Counts to a number in each step, which takes a tenth of a millisecond or so."""

    observation_space = gymnasium.spaces.Box(0.0, np.inf, (4,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict]:
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        return np.full(4, sum(range(COUNT)), np.float32), 1.0, False, False, {}


def env_runner(make: Callable[[], Any], rows: int, mode: str) -> Contender:
    """Returns one env runner of RLlib in this process as a contender."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    is_pool = mode == "vector_entry_point"
    creator = to_rllib(functools.partial(gymnasium_env, make), num_workers=WORKERS)
    config = (
        PPOConfig()
        .environment(creator if is_pool else lambda _: make())
        .env_runners(num_envs_per_env_runner=rows, gym_env_vectorize_mode=mode)
    )
    runner = SingleAgentEnvRunner(config=config, worker_index=1)

    def measure(seconds: float) -> float:
        count, began = 0, time.perf_counter()
        while (taken := time.perf_counter() - began) < seconds or not count:
            sample = runner.sample(num_timesteps=50 * rows, random_actions=True)
            count += sum(map(len, sample))
        return 1e6 * taken * rows / count

    measure(0.0)
    return Contender(close=runner.stop, measure=measure)


def gymnasium_env(make: Callable[[], Any]) -> PyEnvironment:
    return GymnasiumWrapper(make())


def compare_env_runners(report: Report, told: Any) -> None:
    """Adds how long an env runner takes with its own vector, and with a pool."""
    cartpole = functools.partial(gymnasium.make, "CartPole-v1")
    kinds = {"CartPoles": cartpole, "environments that count": Counted}
    for name, make in kinds.items():
        makers = {
            way: functools.partial(env_runner, make, told.num_envs, mode)
            for way, mode in VECTORS.items()
        }
        with opened(makers) as contenders:
            figures = take_turns(contenders, told.rounds, told.seconds)
        report.table(f"an env runner of RLlib, {told.num_envs} {name}", figures)
        report.ratio(
            f"{name}: an env runner with a pool is as fast as with its own vector",
            figures[OWN_VECTOR],
            figures[OWN_POOL],
        )


def compare(
    report: Report,
    name: str,
    make: Callable[[], PyEnvironment],
    told: Any,
) -> None:
    """Adds how long a step of all rows takes in each way."""
    rows = told.num_envs
    makers: dict[str, Callable[[], Contender] | None] = {
        "pool in processes": functools.partial(pool, make, rows, "process"),
        "pool on linked workers": functools.partial(pool, make, rows, "linked"),
        POOL: functools.partial(pool, make, rows, "ray"),
        CALLS: functools.partial(actors, make, rows),
    }
    if make is CartPole:
        ways: dict[str, Callable[[], Contender]] = {
            POOL_ACTS: functools.partial(pool_with_network, make, rows),
            POOL_BATCHES: functools.partial(pool_of_batches, rows),
        }
        for kind in (ALONE, ALONE_BATCH, ALONE_GYMNASIUM):
            ways[kind] = functools.partial(alone, rows, kind)
        for sample, steps in SAMPLES.items():
            play = functools.partial(runners, rows, steps)
            ways[f"{RLLIB}, {sample}"] = play
            ways[f"{RLLIB_ACTS}, {sample}"] = functools.partial(play, is_random=False)
        ways[f"{RLLIB_BATCHES}, {SAMPLE}"] = functools.partial(play, are_batches=True)
        makers |= {name: way if HAS_RLLIB else None for name, way in ways.items()}
    with opened(makers) as contenders:
        figures = take_turns(contenders, told.rounds, told.seconds)
    report.table(f"{rows} {name}, {WORKERS} workers", figures)
    report.ratio(
        f"{name}: a pool on Ray takes this much of two actors",
        figures[POOL],
        figures[CALLS],
        at_most=0.6,
    )
    for theirs, ours in {
        RLLIB: POOL,
        RLLIB_ACTS: POOL_ACTS,
        RLLIB_BATCHES: POOL_BATCHES,
    }.items():
        most = ALONE_BATCH if ours == POOL_BATCHES else ALONE
        for sample in SAMPLES:
            slow = figures.get(f"{theirs}, {sample}")
            if slow:
                claim = f"{name}: a {ours} is as fast as {theirs}, {sample}"
                bar = 4.0 if sample == STEP else None
                report.ratio(claim, slow, figures[ours], at_least=bar)
                if ours != POOL_ACTS:
                    claim = f"{name}: {most} are as fast as {theirs}, {sample}"
                    report.ratio(claim, slow, figures[most])


def ends(report: Report, rounds: int) -> None:
    """Adds how long a pool takes to start, and to go on after a loss."""
    seconds: dict[str, list[float]] = {
        "start": [],
        "a worker is killed": [],
        "an actor is killed": [],
    }
    for _ in range(rounds):
        began = time.perf_counter()
        # Long episodes: a loss between two of them is repaired without a sign.
        env = pool_of(functools.partial(CountingEnv, 10**6), 4, "ray")
        env.reset()
        seconds["start"].append(time.perf_counter() - began)
        for loss in list(seconds)[1:]:
            pid = env.workers[0].pid
            if "actor" in loss:
                with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                    pid = int(file.read().rpartition(")")[2].split()[1])
            began = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            while not env.repaired.any():
                env.step([0] * 4)
            env.step([0] * 4)
            seconds[loss].append(time.perf_counter() - began)
            # The next one may be killed once this one is there.
            env.step([0] * 4)
        env.close()
    report.table(f"a pool on Ray, {WORKERS} workers", seconds, "seconds")


def main() -> None:
    told = options(__doc__, rounds=5, seconds=1.0, num_envs=64).parse_args()
    report = Report("ray_pools")
    began = time.perf_counter()
    ray.init(num_cpus=16, include_dashboard=False, logging_level=40)
    report.fact("seconds to start Ray", round(time.perf_counter() - began, 1))
    try:
        ends(report, min(told.rounds, 3))
        nothing = functools.partial(Working, None, (4,))
        pictures = functools.partial(Working, None, (84, 84), "uint8")
        compare(report, "CartPoles", CartPole, told)
        compare(report, "environments that do nothing", nothing, told)
        compare(report, "environments that show 84 x 84 bytes", pictures, told)
        if HAS_RLLIB:
            compare_env_runners(report, told)
    finally:
        ray.shutdown()
    report.finish(told.json)


if __name__ == "__main__":
    main()
