"""The rows that somebody names to an asynchronous environment, looked at."""

from __future__ import annotations

from typing import Any

from envkit.specs.validation import describe
from envkit.types import Array
from envkit.wording import listed

__all__ = ["check_env_ids"]


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
