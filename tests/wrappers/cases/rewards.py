"""Wrappers that change rewards."""

from typing import Any

import numpy as np

from envkit import ArraySpec
from envkit.wrappers.rewards import ClipReward, TransformReward
from tests.wrappers.case import Case
from tests.wrappers.environments import ALL

PAIR = ArraySpec((2,), np.float64)


def and_its_double(reward: Any) -> Any:
    return np.stack([reward, 2.0 * reward], axis=1).astype(np.float64)


CASES = [
    Case("clip_reward", lambda env: ClipReward(env, -0.5, 0.5), ALL),
    Case("clip_reward_above_0", lambda env: ClipReward(env, 0.1), ("catch", "drive")),
    Case("transform_reward", lambda env: TransformReward(env, np.square), ALL),
    Case(
        "transform_reward_into_two",
        lambda env: TransformReward(env, and_its_double, PAIR),
        ("catch", "drive"),
    ),
    Case(
        "clip_two_rewards",
        lambda env: ClipReward(
            TransformReward(env, and_its_double, PAIR), [-0.5, -1.0], [0.5, 1.0]
        ),
        ("bandit", "drive"),
    ),
]
