"""The cross-entropy method balances a pole on the machines of a Ray cluster, in NumPy.

    pip install "ray>=2.40"

The program joins a cluster if there is one, and otherwise Ray starts one on this
machine. Each row of the pool plays an episode with weights of its own; the weights of
the next generation are drawn around those that have played best.
"""

import numpy as np

import envkit
from envkit import RestartPolicy

BACKEND = "ray"  # "process" for worker processes on this machine, without Ray
NUM_ENVS = 64
GENERATIONS = 10
SEED = 0


def play(env, weights):
    """Plays an episode in each row with the row's weights; returns their returns."""
    time_step = env.reset()
    returns = np.zeros(NUM_ENVS)
    playing, lost = np.ones(NUM_ENVS, bool), np.zeros(NUM_ENVS, bool)
    while playing.any():
        # Push the cart right if the weighted sum of the observation is positive.
        score = (time_step.observation * weights).sum(axis=1)
        time_step = env.step((score > 0).astype(np.int64))
        # A row that is lost with its worker has not played to its end.
        lost |= playing & env.repaired
        returns += np.where(playing, time_step.reward, 0.0)
        playing &= ~time_step.is_last()
    return np.where(lost, 0.0, returns)


rng = np.random.default_rng(SEED)
with envkit.make(
    "CartPole", num_envs=NUM_ENVS, backend=BACKEND, on_worker_failure=RestartPolicy()
) as env:
    env.seed(SEED)
    hosts = {worker.host for worker in env.workers}
    print(f"{env.num_workers} workers on {len(hosts)} machine(s)")
    mean, spread = np.zeros(4), np.ones(4)
    for generation in range(1, GENERATIONS + 1):
        weights = rng.normal(mean, spread, (NUM_ENVS, 4))
        returns = play(env, weights)
        best = weights[returns.argsort()[-NUM_ENVS // 5 :]]
        # A little more spread, so that one lucky generation does not end the search.
        mean, spread = best.mean(axis=0), best.std(axis=0) + 0.01
        print(f"generation {generation:2}   mean return {returns.mean():.0f} of 500")
