"""Stable-Baselines3's PPO balances a pole, on a pool whose workers may die.

    pip install "gymnasium>=1.0" "stable-baselines3>=2.4" matplotlib

`to_sb3` gives Stable-Baselines3 the vector environment that its algorithms ask for.
With a `RestartPolicy`, a worker that dies is replaced, and its episodes end truncated;
`DropLostSteps` keeps the agent from learning from those made-up ends.
"""

import sys

import envkit
from envkit import RestartPolicy
from envkit.adapters import DropLostSteps, to_sb3
from envkit.wrappers import LogEpisodes

try:
    from stable_baselines3 import PPO
except ModuleNotFoundError:
    sys.exit(
        'The example needs Stable-Baselines3. pip install "stable-baselines3>=2.4"'
    )
import torch
from stable_baselines3.common.evaluation import evaluate_policy

STEPS = 100_000  # of all environments together
NUM_ENVS = 8
SEED = 0

torch.set_num_threads(1)  # networks this small are slower on several threads


def falling(first):
    """Falls to zero, so that the last policy is a steady one."""
    return lambda remaining: first * remaining


pool = envkit.make(
    "gymnasium:CartPole-v1", num_envs=NUM_ENVS, on_worker_failure=RestartPolicy()
)
# Writes a line for each episode, to draw the learning curve from.
env = LogEpisodes(pool, "runs/sb3", overwrite=True)
envs = to_sb3(env, infos="final")
model = PPO(
    "MlpPolicy",
    envs,
    n_steps=32,
    batch_size=256,
    n_epochs=20,
    gamma=0.98,
    gae_lambda=0.8,
    learning_rate=falling(1e-3),
    clip_range=falling(0.2),
    device="cpu",
    seed=SEED,
)
model.learn(STEPS, callback=DropLostSteps())
envs.close()

test = to_sb3(envkit.make("CartPole", batch_size=50, seed=SEED + 1), infos="final")
mean, _ = evaluate_policy(model, test, n_eval_episodes=50, warn=False)

try:
    envkit.plot("runs/sb3").savefig("sb3.png")
    print("learning curve: sb3.png")
except ImportError as error:  # Matplotlib is only for the picture.
    print(error)
print(f"mean return of 50 test episodes: {mean:.0f} of 500")
