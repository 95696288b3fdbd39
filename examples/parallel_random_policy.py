"""Steps a pool of environments in worker processes with a random policy.

    python examples/parallel_random_policy.py
    python examples/parallel_random_policy.py --env=gymnasium:CartPole-v1 --num_envs=64

It prints how many steps per second that makes, and what each worker did: the column
`us/step` shows a straggler, and `busy` for how much of its time a worker had work.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import envkit
from envkit.specs import sample_spec_nest


def arguments() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--env", default="CartPole", help="which environment to step")
    parser.add_argument("--num_envs", type=int, default=16, help="environments")
    parser.add_argument(
        "--num_workers",
        type=int,
        default=None,
        help="workers; one per CPU if not given",
    )
    parser.add_argument(
        "--backend",
        default="process",
        choices=["inline", "thread", "process"],
        help="where workers run",
    )
    parser.add_argument("--steps", type=int, default=1000, help="steps of the batch")
    parser.add_argument(
        "--seed", type=int, default=0, help="what the random numbers depend on"
    )
    return parser.parse_args()


def main() -> None:
    """Steps, and prints the figures."""
    options = arguments()
    rng = np.random.default_rng(options.seed)
    with envkit.make(
        options.env,
        num_envs=options.num_envs,
        num_workers=options.num_workers,
        backend=options.backend,
    ) as env:
        env.seed(options.seed)
        env.reset()
        returns = np.zeros(env.batch_size)
        finished: list[float] = []
        began = time.perf_counter()
        for _step in range(options.steps):
            action = sample_spec_nest(env.action_spec(), rng, (env.batch_size,))
            time_step = env.step(action)
            returns += time_step.reward
            # A row that was made up after a crash is no result of the policy's.
            finished.extend(returns[time_step.is_last() & ~env.repaired])
            returns[time_step.is_last()] = 0.0
        seconds = time.perf_counter() - began
        print(f"{options.steps * env.batch_size / seconds:,.0f} steps per second")
        if finished:
            print(f"{len(finished)} episodes, mean return {np.mean(finished):.2f}")
        print(env.statistics())


if __name__ == "__main__":
    main()
