"""What an environment of dm_env is made of: environments, tasks, physics, generators.

dm_env says nothing about what is within an environment. What is looked for, among the
attributes of each part, are other parts:

- an environment that it wraps, which has `reset`, `step` and the specs;
- a task of dm_control, which begins episodes and says what they earn.
"""

from __future__ import annotations

import random
from typing import Any, TypeAlias

import numpy as np

from envkit.adapters.dm.mujoco_state import is_mujoco

__all__ = ["Generator", "generators_of", "parts_of", "physics_of", "reseed"]

Generator: TypeAlias = "np.random.RandomState | np.random.Generator | random.Random"

_ENVIRONMENT = ("reset", "step", "observation_spec", "action_spec")
_TASK = ("initialize_episode", "get_reward")
_MOST = 2**32  # a RandomState takes no larger seed


def parts_of(env: Any) -> list[Any]:
    """Lists an environment, those that it wraps, and their tasks, from the outside."""
    parts = [env]
    for part in parts:  # It grows meanwhile.
        for name, value in _attributes(part):
            if name in ("task", "_task") or _is_part(value):
                _add(parts, value)
    return parts


def physics_of(parts: list[Any]) -> list[Any]:
    """Lists what simulates for an environment with MuJoCo."""
    physics: list[Any] = []
    for part in parts:
        for _, value in _attributes(part):
            if is_mujoco(value):
                _add(physics, value)
    return physics


def generators_of(parts: list[Any]) -> list[Generator]:
    """Lists the random generators of an environment."""
    generators: list[Generator] = []
    kinds = np.random.RandomState, np.random.Generator, random.Random
    for part in parts:
        for _, value in _attributes(part):
            if isinstance(value, kinds):
                _add(generators, value)
    return generators


def reseed(generators: list[Generator], seed: int) -> None:
    """Seeds generators: one with the seed itself, several with seeds made of it.

    Example:
        >>> generator = np.random.RandomState()
        >>> reseed([generator], 7)
        >>> generator.rand() == np.random.RandomState(7).rand()
        True
    """
    if len(generators) == 1 and seed < _MOST:
        seeds = [seed]
    else:
        seeds = np.random.SeedSequence(seed).generate_state(len(generators)).tolist()
    for generator, own in zip(generators, seeds, strict=True):
        if isinstance(generator, np.random.Generator):
            bits = generator.bit_generator
            bits.state = type(bits)(own).state
        else:
            generator.seed(own)


def _attributes(part: Any) -> list[tuple[str, Any]]:
    return list(getattr(part, "__dict__", {}).items())


def _is_part(value: Any) -> bool:
    # Its class is asked: some wrappers look for what they do not have elsewhere.
    kind = type(value)
    return any(
        all(callable(getattr(kind, name, None)) for name in methods)
        for methods in (_ENVIRONMENT, _TASK)
    )


def _add(found: list[Any], value: Any) -> None:
    if not any(value is other for other in found):
        found.append(value)
