"""The few operations on sets of rows and workers that the engine needs.

NumPy has all of them, but its functions import `numpy.ma` on the first call. That opens
files, and when a worker is lost there may be no file descriptor left.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from envkit.types import Array

__all__ = ["are_among", "distinct"]


def distinct(numbers: Array) -> list[int]:
    """Returns the distinct numbers of an array, in ascending order.

    Example:
        >>> distinct(np.array([3, 1, 3]))
        [1, 3]
    """
    return sorted(set(numbers.tolist()))


def are_among(numbers: Array, chosen: Iterable[int]) -> Array:
    """Returns a mask of the chosen numbers, none of which may be negative.

    Example:
        >>> are_among(np.array([3, 1, 3]), [3, 9]).tolist()
        [True, False, True]
    """
    stop = int(numbers.max(initial=-1)) + 1
    flags = np.zeros(stop, bool)
    flags[[number for number in chosen if number < stop]] = True
    mask: Array = flags[numbers]
    return mask
