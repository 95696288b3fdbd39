"""A lamplighter learns on a compiled batch of 1,024 squares, in NumPy alone.

    pip install "numba>=0.61"

A lamplighter walks around a square with eight lamps while the wind blows them out. The
rules of the game are three plain functions about one square; numba makes a batch of
thousands of them. The policy is linear and learns by REINFORCE: the actions of a short
stretch of play become likelier by as much as what followed was better than usual.
"""

import time

import numpy as np

from envkit import BoundedArraySpec
from envkit.envs.compiled import CompiledEnvironment, Rules, check_rules

LAMPS = 8
LEFT, RIGHT, LIGHT = 0, 1, 2
GUSTS = 4 * LAMPS  # One gust in four hits a lamp.
NUM_ENVS = 1024
UPDATES, HORIZON = 150, 16  # of the policy, and steps for each
SEED = 0


def reset(state, rng):
    state.place = rng.integers(0, LAMPS)
    for lamp in range(LAMPS):
        state.lit[lamp] = rng.integers(0, 2)
        state.burning += state.lit[lamp]


def step(state, action, rng):
    # Of eight lamps the number after the last is 8 & 7, which is 0: around the square.
    state.place = (state.place + (action == RIGHT) - (action == LEFT)) & 7
    lights = (action == LIGHT) & (state.lit[state.place] == 0)
    state.lit[state.place] += lights
    gust = rng.integers(0, GUSTS)
    if gust < LAMPS:
        lights -= state.lit[gust]
        state.lit[gust] = 0
    state.burning += lights
    return state.burning / LAMPS, state.burning == 0, False


def observe(state, out):
    # As the lamplighter sees them: the lamp at hand first, then around the square.
    for ahead in range(LAMPS):
        out[ahead] = state.lit[(state.place + ahead) & 7]


class Lamplighter(CompiledEnvironment):
    """Keeping eight lamps alight in the wind."""

    action_names = ("left", "right", "light")
    rules = Rules(
        state={"place": 0, "burning": 0, "lit": np.zeros(LAMPS, np.int8)},
        observation_spec=BoundedArraySpec((LAMPS,), np.float32, 0.0, 1.0),
        action_spec=BoundedArraySpec((), np.int64, 0, 2),
        reset=reset,
        step=step,
        observe=observe,
        max_episode_steps=100,
        info=("burning",),
    )


def chances(weights, seen):
    """Returns how likely a linear policy takes each action."""
    wishes = seen @ weights[:-1] + weights[-1]
    powers = np.exp(wishes - wishes.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def train(env):
    rng = np.random.default_rng(SEED)
    weights, time_step = np.zeros((LAMPS + 1, 3)), env.reset()
    for update in range(UPDATES):
        stretch = []
        for _ in range(HORIZON):
            seen = time_step.observation
            likely = chances(weights, seen)
            drawn = rng.random((NUM_ENVS, 1))
            action = (drawn > likely.cumsum(axis=1)).sum(axis=1).clip(0, 2)
            fresh = time_step.is_last()  # The next step begins: it ignores the action.
            time_step = env.step(action)
            stretch.append((seen, likely, action, fresh, time_step))
        slope, following = np.zeros_like(weights), np.zeros(NUM_ENVS)
        for seen, likely, action, fresh, after in reversed(stretch):
            # Rewards after an episode's beginning are not due to what came before.
            following = np.where(fresh, 0.0, after.reward + 0.9 * following)
            better = np.where(fresh, 0.0, following - following.mean())
            surprise = (np.eye(3)[action] - likely) * better[:, np.newaxis]
            slope[:-1] += seen.T @ surprise
            slope[-1] += surprise.sum(axis=0)
        weights += 2.0 * slope / (NUM_ENVS * HORIZON)
        if update % 30 == 0 or update == UPDATES - 1:
            burning = np.mean([after.reward.mean() for *_, after in stretch])
            print(f"update {update:4}   {burning:.2f} of the lamps burn")


# A benchmark imports this file for Lamplighter, and wants no training.
if __name__ == "__main__":
    check_rules(Lamplighter, steps=100)
    env = Lamplighter(NUM_ENVS, seed=SEED)
    env.reset()
    actions = np.random.default_rng(SEED).integers(0, 3, (50, NUM_ENVS))
    began = time.perf_counter()
    for action in actions:
        env.step(action)
    seconds = time.perf_counter() - began
    print(f"{actions.size / seconds / 1e6:.0f} million steps a second")
    train(env)
