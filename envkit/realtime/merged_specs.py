"""What merged rewards and discounts look like, and which cannot be merged."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from envkit import nest
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.wrappers.reward_sums import sum_spec

__all__ = ["check_mergeable", "merged_spec"]


def merged_spec(spec: EnvironmentSpec) -> EnvironmentSpec:
    """Returns what time steps are like that several are merged in.

    Example:
        >>> from envkit.envs import Catch
        >>> merged_spec(EnvironmentSpec.of(Catch())).reward
        ArraySpec(shape=(), dtype=float32, name='reward')
    """
    return spec._replace(
        reward=nest.map_structure(_summed, spec.reward),
        discount=nest.map_structure(_multiplied, spec.discount),
    )


def _summed(spec: ArraySpec) -> ArraySpec:
    summed = sum_spec(spec, sys.maxsize)
    if isinstance(summed, BoundedArraySpec):
        # Where nothing new has happened, nothing is earned.
        zero = np.zeros((), spec.dtype)
        return summed.replace(
            minimum=np.minimum(summed.minimum, zero),
            maximum=np.maximum(summed.maximum, zero),
        )
    return summed


def _multiplied(spec: ArraySpec) -> ArraySpec:
    if not isinstance(spec, BoundedArraySpec):
        return spec
    if np.all(spec.minimum >= 0) and np.all(spec.maximum <= 1):
        # Products get smaller, and where nothing has happened the discount is 1.
        zero, one = np.zeros((), spec.dtype), np.ones((), spec.dtype)
        return spec.replace(
            minimum=np.minimum(spec.minimum, zero),
            maximum=np.maximum(spec.maximum, one),
        )
    return ArraySpec(spec.shape, spec.dtype, spec.name)


def check_mergeable(env: Any, discounted: bool) -> None:
    """Refuses an environment whose time steps cannot be merged.

    Args:
        env: The environment.
        discounted: Whether rewards are to be multiplied with discounts.
    """
    name = type(env).__name__
    if getattr(env, "repeats_last", False) is True:
        raise ValueError(
            f"RealTimeEnvironment cannot run {name}, which repeats the LAST of an "
            "episode: of steps that are merged nobody would see how often. Wrap the "
            "RealTimeEnvironment instead."
        )
    rewards = nest.flatten_with_paths(env.reward_spec())
    for path, spec in rewards:
        _check_number(name, nest.join("reward", path), spec, discounted)
    if not discounted:
        return
    discounts = nest.flatten_with_paths(env.discount_spec())
    factors = discounts
    if len(discounts) == 1:
        factors = [(path, discounts[0][1]) for path, _ in rewards]
    fit = [path for path, _ in rewards] == [path for path, _ in factors] and all(
        _reaches(factor.shape, reward.shape)
        for (_, reward), (_, factor) in zip(rewards, factors, strict=True)
    )
    if not fit:
        raise ValueError(
            f"RealTimeEnvironment cannot merge the rewards of {name} with its "
            f"discounts: {_shapes(rewards)} and {_shapes(discounts)}. There is one "
            "discount for all rewards, or one for each. merge='sum' leaves discounts "
            "out of the rewards."
        )


def _check_number(name: str, path: str, spec: ArraySpec, discounted: bool) -> None:
    if spec.dtype.kind not in "iuf":
        raise ValueError(
            f"RealTimeEnvironment cannot add up the rewards of {name}: {path} is of "
            f"dtype {spec.dtype}."
        )
    if discounted and spec.dtype.kind != "f":
        raise ValueError(
            f"RealTimeEnvironment cannot merge the rewards of {name} with its "
            f"discounts: {path} is of dtype {spec.dtype}, and what is discounted is no "
            "whole number. Use merge='sum'."
        )


def _reaches(discount: tuple[int, ...], reward: tuple[int, ...]) -> bool:
    """Says whether a discount multiplies a reward without changing its shape."""
    try:
        return np.broadcast_shapes(discount, reward) == reward
    except ValueError:
        return False


def _shapes(leaves: Any) -> str:
    parts = [
        f"{path}: {spec.shape}" if path else f"{spec.shape}" for path, spec in leaves
    ]
    return ", ".join(parts)
