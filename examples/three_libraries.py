"""Plays three libraries, each in worker processes.

    pip install open_spiel rlcard highway-env
    python examples/three_libraries.py

envkit has no adapter for RLCard: all that it has to know is in a class of twenty lines,
written as "Supporting a new library" in the documentation has it. OpenSpiel has an
adapter, and the environments of highway-env are Gymnasium's, so their names are enough.
Libraries that are not installed are left out.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util

import envkit
from envkit.adapters import Adapter


class RLCardEnv(Adapter):
    """A game of cards for one player, against the dealer."""

    game = "blackjack"

    def start(self):
        game = importlib.import_module("rlcard").make(self.game)
        self.num_actions = game.num_actions
        return game

    def seed(self, seed):
        self.env_instance.seed(seed)

    def reset(self):
        return self.env_instance.reset()[0]["obs"]

    def legal_actions(self, observation):
        return set(self.env_instance.get_state(0)["legal_actions"])

    def step(self, action):
        game = self.env_instance
        state, _ = game.step(action)
        over = game.is_over()
        return state["obs"], game.get_payoffs()[0] if over else 0.0, over


# From here on it is an environment like any other.

LIBRARIES = {
    "pyspiel": "open_spiel:tic_tac_toe",
    "rlcard": RLCardEnv,
    "highway_env": "gymnasium:highway_env:highway-fast-v0",
}


def play(target: type | str, num_envs: int, steps: int, seed: int) -> str:
    """Plays legal actions at random, and returns what has come of it."""
    if isinstance(target, str):
        env = envkit.make(target, num_envs=num_envs, num_workers=2)
    else:
        env = envkit.ParallelPyEnvironment([target] * num_envs, num_workers=2)
    with env:
        act = envkit.random_actions(env, seed)
        env.seed(seed)
        time_step = env.reset()
        rewards, episodes = 0.0, 0
        for _ in range(steps):
            time_step = env.step(act(time_step))
            rewards += float(time_step.reward.sum())
            episodes += int(time_step.is_last().sum())
    return f"{episodes} episodes, {rewards / max(episodes, 1):.2f} per episode"


def main() -> None:
    """Plays each library that is installed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_envs", type=int, default=4, help="Environments.")
    parser.add_argument("--steps", type=int, default=100, help="Steps of each.")
    parser.add_argument("--seed", type=int, default=0, help="For all that is random.")
    options = parser.parse_args()
    for module, target in LIBRARIES.items():
        if importlib.util.find_spec(module) is None:
            print(f"{module:12} is not installed")
        else:
            played = play(target, options.num_envs, options.steps, options.seed)
            print(f"{module:12} {played}")


if __name__ == "__main__":
    main()
