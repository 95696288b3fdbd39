"""Learns to balance a pole on a cluster of Ray, by the cross-entropy method, in NumPy.

    python examples/ray_cross_entropy.py

It needs Ray: pip install "ray>=2.40". Without a cluster Ray starts one on this
machine. Each row of the batch plays an episode with weights of its own; the weights of
the next generation are drawn around those that have played best. A worker that is lost
costs its rows their episodes, and nothing else.
"""

from __future__ import annotations

import argparse

import numpy as np
import numpy.typing as npt

import envkit
from envkit import ParallelPyEnvironment, RestartPolicy

Floats = npt.NDArray[np.floating]


def arguments() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--num_envs", type=int, default=64, help="rows of the batch")
    parser.add_argument(
        "--num_workers", type=int, help="as it is, one for each CPU of the cluster"
    )
    parser.add_argument(
        "--backend", default="ray", help='"ray", or "process" for this machine alone'
    )
    parser.add_argument("--generations", type=int, default=8)
    parser.add_argument(
        "--seed", type=int, default=0, help="what the random numbers depend on"
    )
    return parser.parse_args()


def returns_of(env: ParallelPyEnvironment, weights: Floats) -> Floats:
    """Plays an episode in each row, by the weights of the row; returns their sums."""
    time_step = env.reset()
    returns = np.zeros(len(weights))
    playing = np.ones(len(weights), bool)
    lost = np.zeros(len(weights), bool)
    while playing.any():
        # The cart goes to the right if the weighted sum of what is seen is positive.
        score = np.einsum("ij,ij->i", time_step.observation, weights)
        time_step = env.step((score > 0).astype(np.int64))
        # The row of a lost worker has not played to its end.
        lost |= playing & env.repaired
        returns += np.where(playing, time_step.reward, 0.0)
        playing &= ~time_step.is_last()
    return np.where(lost, 0.0, returns)


def main() -> None:
    """Learns, and prints how well each generation plays."""
    options = arguments()
    rng = np.random.default_rng(options.seed)
    env = envkit.make(
        "CartPole",
        num_envs=options.num_envs,
        num_workers=options.num_workers,
        backend=options.backend,
        on_worker_failure=RestartPolicy(),
    )
    with env:
        env.seed(options.seed)
        hosts = sorted({worker.host for worker in env.workers})
        print(f"{env.num_workers} workers, {options.backend}: {', '.join(hosts)}")
        size = env.observation_spec().shape[0]
        mean, spread = np.zeros(size), np.ones(size)
        for generation in range(1, options.generations + 1):
            weights = mean + spread * rng.standard_normal((options.num_envs, size))
            returns = returns_of(env, weights)
            best = weights[np.argsort(returns)[-max(2, options.num_envs // 5) :]]
            mean, spread = best.mean(axis=0), best.std(axis=0) + 0.01
            print(f"generation {generation}   mean return {returns.mean():.0f}")


if __name__ == "__main__":
    main()
