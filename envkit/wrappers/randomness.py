"""Random streams for wrappers: one per row, separate from the environment's."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.envs.streams import RowStreams
from envkit.seeding import seed_per_row
from envkit.types import Seed

__all__ = ["Branch", "branched", "wrapper_streams"]


class Branch(enum.IntEnum):
    """Distinguishes the seeds of wrappers from those of rows, which count from 0.

    Each kind of wrapper has its own branch; otherwise the randomness of two wrappers
    around one environment would be correlated.
    """

    STICKING = 2**31
    NOOPS = 2**31 + 1
    GLOBALS = 2**31 + 2


def wrapper_streams(wrapper: Any, seed: Seed, branch: Branch) -> RowStreams:
    """Returns the streams of a wrapper seeded with `seed`, one per row.

    They differ from the streams of the environment and of other wrappers around it. Row
    `i` has the same stream whether the wrapper is around the batch or around each
    environment.

    Example:
        >>> from envkit.envs import Catch
        >>> from envkit.wrappers import PyEnvironmentBaseWrapper
        >>> from envkit.seeding import seed_per_row
        >>> batch = PyEnvironmentBaseWrapper(Catch(batch_size=2))
        >>> both = wrapper_streams(batch, 7, Branch.NOOPS)
        >>> single, seed = PyEnvironmentBaseWrapper(Catch()), seed_per_row(7, 2)[1]
        >>> second = wrapper_streams(single, seed, Branch.NOOPS)
        >>> bool(both.keys[1] == second.keys[0])
        True
    """
    seeds: Any = seed
    if not wrapper.batched and np.ndim(seeds) == 0:
        seeds = [seed]  # used as it is, like one row's seed in a sequence
    seeds = seed_per_row(seeds, wrapper.batch_size if wrapper.batched else 1)
    return RowStreams(branched(wrapper, seeds, branch))


def branched(
    wrapper: Any, seeds: Sequence[int | None], branch: Branch
) -> list[int | None]:
    """Derives a wrapper's seed for each row from the row's seed."""
    key = (int(branch), _number_inside(wrapper))
    return [None if one is None else _derived(one, key) for one in seeds]


def _number_inside(wrapper: Any) -> int:
    """Counts the wrappers of the same class inside this one."""
    count, env = 0, wrapper
    while hasattr(env, "wrapped_env"):
        env = env.wrapped_env()
        count += type(env) is type(wrapper)
    return count


def _derived(seed: int, key: tuple[int, ...]) -> int:
    words = np.random.SeedSequence(seed, spawn_key=key).generate_state(2, np.uint64)
    return int(words[0]) << 64 | int(words[1])
