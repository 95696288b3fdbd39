"""Wrappers that change the leaves of observations."""

from typing import Any

import numpy as np

from envkit import ArraySpec, BoundedArraySpec, nest
from envkit.wrappers.observations import (
    DiscretizeObservation,
    DtypeObservation,
    RescaleObservation,
    ReshapeObservation,
    TransformObservation,
)
from tests.wrappers.case import Case
from tests.wrappers.environments import ALL

BOUNDED = ("bandit", "catch", "gridworld", "tictactoe", "wheel", "camera")


def negated(observation: Any) -> Any:
    """Changes every leaf and keeps its dtype, in place and for any number of rows."""
    for leaf in nest.flatten(observation):
        np.invert(leaf, out=leaf) if leaf.dtype == bool else np.negative(leaf, out=leaf)
    return observation


def seen_by_drive(observation: Any) -> Any:
    return {
        "brightness": observation["camera"].mean(axis=(-3, -2)).astype(np.float32),
        # Of a single environment this is a number and no array.
        "noise": 2 * observation["rest"][0],
    }


DRIVE_SPEC = {
    "brightness": BoundedArraySpec((3,), np.float32, 0.0, 255.0),
    "noise": ArraySpec((), np.float32),
}

CASES = [
    Case("transform", lambda env: TransformObservation(env, negated), ALL),
    Case(
        "transform_vector",
        lambda env: TransformObservation(
            env, lambda vector: vector[..., :1], ArraySpec((1,), np.float32)
        ),
        ("cartpole",),
    ),
    Case(
        "transform_drive",
        lambda env: TransformObservation(env, seen_by_drive, DRIVE_SPEC),
        ("drive",),
    ),
    Case("rescale", lambda env: RescaleObservation(env, -1.0, 1.0), BOUNDED),
    Case(
        "rescale_uneven",
        lambda env: RescaleObservation(env, [-0.3, -7.0], [0.1, 1e6]),
        ("wheel",),
    ),
    Case(
        "discretize_observation",
        lambda env: DiscretizeObservation(env, 2),
        ("bandit", "catch", "wheel"),
    ),
    Case(
        "discretize_multi_observation",
        lambda env: DiscretizeObservation(env, 3, multidiscrete=True),
        ("gridworld", "wheel", "camera"),
    ),
    Case("float16", lambda env: DtypeObservation(env, np.float16), ALL),
    Case(
        "integers",
        lambda env: DtypeObservation(env, np.int16),
        ("gridworld", "tictactoe", "wheel"),
    ),
    Case(
        "reshape_flat",
        lambda env: ReshapeObservation(env, (-1,)),
        ("bandit", "tictactoe", "drive"),
    ),
    Case(
        "reshape",
        lambda env: ReshapeObservation(env, (2, -1)),
        ("cartpole", "catch", "gridworld", "wheel", "camera"),
    ),
]
