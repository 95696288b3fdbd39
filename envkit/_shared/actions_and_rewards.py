"""Actions that do almost nothing, and rewards as plain numbers."""

from __future__ import annotations

import numpy as np

from envkit import nest
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.types import Array, NestedArray, NestedSpec

__all__ = ["agent_rewards", "nearest_to_zero"]


def nearest_to_zero(spec: NestedSpec) -> NestedArray:
    """Returns the action nearest to 0 in every element, which usually does nothing.

    Example:
        >>> nearest_to_zero(BoundedArraySpec((2,), np.float32, [-1.0, 0.5], 2.0))
        array([0. , 0.5], dtype=float32)
    """
    return nest.map_structure(_leaf_nearest_to_zero, spec)


def _leaf_nearest_to_zero(spec: ArraySpec) -> Array:
    value = np.zeros(spec.shape, spec.dtype)
    if isinstance(spec, BoundedArraySpec):
        return np.clip(value, spec.minimum, spec.maximum).astype(spec.dtype)
    return value


def agent_rewards(reward: NestedArray, row: int | None = None) -> Array:
    """Returns the rewards of a step in one array, with a number for each agent.

    Args:
        reward: The rewards of a time step.
        row: The row, if it is a batch's time step.

    Example:
        >>> agent_rewards({"white": np.float32(1), "black": np.float32(-1)})
        array([-1.,  1.])
    """
    leaves = [np.asarray(leaf, np.float64) for leaf in nest.flatten(reward)]
    rows = leaves if row is None else [leaf[row] for leaf in leaves]
    return np.concatenate([leaf.reshape(-1) for leaf in rows])
