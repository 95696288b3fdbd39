"""Steps a pool of environments in worker processes with a random policy.

    python examples/parallel_random_policy.py
    python examples/parallel_random_policy.py --env=gymnasium:CartPole-v1 --num_envs=64

It prints how many steps per second that makes, and what each worker did: the column
`us/step` shows a straggler, and `busy` for how much of its time a worker had work.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from absl import app, flags

import envkit
from envkit.specs import sample_spec_nest

_ENV = flags.DEFINE_string("env", "CartPole", "Which environment to step.")
_NUM_ENVS = flags.DEFINE_integer("num_envs", 16, "Environments.", lower_bound=1)
_NUM_WORKERS = flags.DEFINE_integer(
    "num_workers", None, "Workers; one per CPU if not given.", lower_bound=1
)
_BACKEND = flags.DEFINE_enum(
    "backend", "process", ["inline", "thread", "process"], "Where workers run."
)
_STEPS = flags.DEFINE_integer("steps", 1000, "Steps of the batch.", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 0, "What the random numbers depend on.")


def main(_: Sequence[str]) -> None:
    """Steps, and prints the figures."""
    rng = np.random.default_rng(_SEED.value)
    with envkit.make(
        _ENV.value,
        num_envs=_NUM_ENVS.value,
        num_workers=_NUM_WORKERS.value,
        backend=_BACKEND.value,
    ) as env:
        env.seed(_SEED.value)
        env.reset()
        returns = np.zeros(env.batch_size)
        finished: list[float] = []
        began = time.perf_counter()
        for _step in range(_STEPS.value):
            action = sample_spec_nest(env.action_spec(), rng, (env.batch_size,))
            time_step = env.step(action)
            returns += time_step.reward
            # A row that was made up after a crash is no result of the policy's.
            finished.extend(returns[time_step.is_last() & ~env.repaired])
            returns[time_step.is_last()] = 0.0
        seconds = time.perf_counter() - began
        print(f"{_STEPS.value * env.batch_size / seconds:,.0f} steps per second")
        if finished:
            print(f"{len(finished)} episodes, mean return {np.mean(finished):.2f}")
        print(env.statistics())


if __name__ == "__main__":
    app.run(main)
