"""Wrappers that learn what is normal."""

from typing import Any

import numpy as np

from envkit import nest
from envkit.wrappers.normalization import (
    NormalizeObservation,
    NormalizeReward,
    RunningStatistics,
)
from tests.wrappers.case import Case
from tests.wrappers.environments import ALL

FLOATS = ("bandit", "cartpole", "catch", "drive", "wheel")
INTEGERS = ("gridworld", "tictactoe", "drive", "camera")

# What was learnt is for all rows of a batch, so it is for another wrapper to learn
# something else where rows are wrapped one by one.
LEARNS = {"commutes": False}


def learnt(spec: Any) -> Any:
    """Makes statistics of a leaf, the same in every call."""
    if spec.dtype.kind not in "iuf":
        return None
    statistics = RunningStatistics(spec.shape)
    values = np.random.default_rng(0).normal(0.5, 2.0, (9, *spec.shape))
    statistics.update(values)
    return statistics


def frozen_observation(env: Any) -> Any:
    statistics = nest.map_structure(learnt, env.observation_spec())
    return NormalizeObservation(env, statistics=statistics, frozen=True)


def frozen_reward(env: Any) -> Any:
    statistics = learnt(env.reward_spec())
    return NormalizeReward(env, clip=1.0, statistics=statistics, frozen=True)


CASES = [
    Case("normalize_observation", NormalizeObservation, FLOATS, **LEARNS),
    Case(
        "normalize_integers",
        lambda env: NormalizeObservation(env, clip=2.0, integers=True),
        INTEGERS,
        **LEARNS,
    ),
    Case("normalize_reward", NormalizeReward, ALL, **LEARNS),
    Case(
        "normalize_both",
        lambda env: NormalizeReward(NormalizeObservation(env, clip=3.0), 0.5, clip=3.0),
        ("cartpole", "drive"),
        **LEARNS,
    ),
    # What is only used, and is the same everywhere, makes rows independent again.
    Case("frozen_observation", frozen_observation, ("cartpole", "drive", "camera")),
    Case("frozen_reward", frozen_reward, ("bandit", "cartpole", "drive")),
]
