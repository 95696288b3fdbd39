"""The `env_ids` that calls take: rows of an asynchronous environment, environments."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.specs.validation import describe
from envkit.types import Array
from envkit.wording import listed

__all__ = ["as_envs", "check_env_ids"]


def as_envs(env_ids: Sequence[int] | None, count: int) -> list[int]:
    """Returns the environments that `env_ids` names, and all of them for `None`.

    Args:
        env_ids: Indices of environments, none of them twice.
        count: How many environments there are.

    Example:
        >>> as_envs([2, 0], 3), as_envs(None, 3)
        ([2, 0], [0, 1, 2])
    """
    if env_ids is None:
        return list(range(count))
    try:
        envs = [operator.index(env) for env in np.asarray(env_ids).tolist()]
    except TypeError:
        raise TypeError(
            f"env_ids is {describe(env_ids)}; it is a list of indices such as [3]."
        ) from None
    wrong = [env for env in envs if not 0 <= env < count]
    if wrong or len(set(envs)) < len(envs):
        what = f"has {wrong[0]}" if wrong else "names an environment twice"
        raise ValueError(
            f"env_ids {what}; there are {count} environments, 0 to {count - 1}."
        )
    return envs


def check_env_ids(given: Any, rows: Array, count: int) -> None:
    """Refuses what is no list of different rows.

    Args:
        given: What was given, for the message.
        rows: The same as an array.
        count: How many rows there are.

    Example:
        >>> import numpy as np
        >>> check_env_ids([0, 7], np.array([0, 7]), 4)
        Traceback (most recent call last):
        ValueError: env_ids has 7; there are 4 environments, 0 to 3.
    """
    # Hot: called once per send.
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise TypeError(
            f"env_ids is {describe(given)}; it is a list of row numbers, such as "
            "the env_ids that recv() returned."
        )
    # Of the few numbers that these are, Python finds the least sooner than NumPy.
    distinct: set[int] = set(rows.tolist())
    if distinct and (min(distinct) < 0 or max(distinct) >= count):
        wrong = rows[(rows < 0) | (rows >= count)]
        raise ValueError(
            f"env_ids has {listed(wrong)}; there are {count} environments, 0 "
            f"to {count - 1}."
        )
    if len(distinct) < rows.size:
        raise ValueError(
            "env_ids names an environment twice; each takes one action at a time."
        )
