"""Trains a lamplighter on a compiled batch, in NumPy alone.

    python examples/lamplighter.py

A lamplighter walks around a square with eight lamps while the wind blows them out. The
rules of the game are three plain functions about one square; numba makes a batch of
thousands of them. The policy is linear and learns by REINFORCE: the actions of a short
stretch of play are made likelier by as much as what followed was better than usual.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from envkit import BoundedArraySpec
from envkit.envs.compiled import CompiledEnvironment, Rules, check_rules

LAMPS = 8
LEFT, RIGHT, LIGHT = 0, 1, 2
GUSTS = 4 * LAMPS  # One gust in four hits a lamp.

Floats = npt.NDArray[np.floating]


def reset(state: Any, rng: Any) -> None:
    state.place = rng.integers(0, LAMPS)
    for lamp in range(LAMPS):
        state.lit[lamp] = rng.integers(0, 2)
        state.burning += state.lit[lamp]


def step(state: Any, action: int, rng: Any) -> tuple[float, bool, bool]:
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


def observe(state: Any, out: Any) -> None:
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


def chances(weights: Floats, seen: Floats) -> Floats:
    """Returns how likely a linear policy makes each action."""
    wishes = seen @ weights[:-1] + weights[-1]
    powers = np.exp(wishes - wishes.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def arguments() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--num_envs", type=int, default=1024, help="rows of the batch")
    parser.add_argument("--updates", type=int, default=150, help="of the policy")
    parser.add_argument("--horizon", type=int, default=16, help="steps for an update")
    parser.add_argument("--seed", type=int, default=0, help="of everything random")
    parser.add_argument(
        "--plain", action="store_true", help="run the rules in plain Python"
    )
    return parser.parse_args()


def main() -> None:
    """Checks the rules, measures the batch, and learns."""
    options = arguments()
    if not options.plain:
        check_rules(Lamplighter, steps=100)
    rows = options.num_envs
    env = Lamplighter(rows, seed=options.seed, compiled=not options.plain)
    rng = np.random.default_rng(options.seed)
    time_step = env.reset()

    actions = rng.integers(0, 3, (50, rows))
    began = time.perf_counter()
    for action in actions:
        time_step = env.step(action)
    speed = actions.size / (time.perf_counter() - began)
    print(f"{speed / 1e6:.3g} million steps a second")

    weights = np.zeros((LAMPS + 1, 3))
    for update in range(options.updates):
        stretch = []
        for _ in range(options.horizon):
            seen = time_step.observation
            likely = chances(weights, seen)
            action = (rng.random((rows, 1)) > likely.cumsum(axis=1)).sum(axis=1)
            action = action.clip(0, 2)
            fresh = time_step.is_last()  # The next step begins: it ignores the action.
            time_step = env.step(action)
            stretch.append((seen, likely, action, fresh, time_step))
        slope, following = np.zeros_like(weights), np.zeros(rows)
        for seen, likely, action, fresh, after in reversed(stretch):
            # Where an episode begins, nothing that follows is owed to what came before.
            following = np.where(fresh, 0.0, after.reward + 0.9 * following)
            better = np.where(fresh, 0.0, following - following.mean())
            surprise = (np.eye(3)[action] - likely) * better[:, np.newaxis]
            slope[:-1] += seen.T @ surprise
            slope[-1] += surprise.sum(axis=0)
        weights += 2.0 * slope / (rows * options.horizon)
        if update % 30 == 0 or update == options.updates - 1:
            burning = float(np.mean([after.reward.mean() for *_, after in stretch]))
            print(f"update {update:4}   {burning:.2f} of the lamps burn")


if __name__ == "__main__":
    main()
