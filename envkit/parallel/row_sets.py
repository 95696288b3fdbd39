"""Sets of rows and workers, as far as the engine needs them.

NumPy has all of this, but its functions import `numpy.ma` when they are first called.
That opens files, for which there may be no room at the moment when a worker is lost.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from envkit.types import Array

__all__ = ["are_among", "distinct"]


def distinct(numbers: Array) -> list[int]:
    """Returns the numbers of an array, each once, in order.

    Example:
        >>> distinct(np.array([3, 1, 3]))
        [1, 3]
    """
    return sorted(set(numbers.tolist()))


def are_among(numbers: Array, chosen: Iterable[int]) -> Array:
    """Returns a mask of the numbers that are chosen; none is negative.

    Example:
        >>> are_among(np.array([3, 1, 3]), [3, 9]).tolist()
        [True, False, True]
    """
    stop = int(numbers.max(initial=-1)) + 1
    flags = np.zeros(stop, bool)
    flags[[number for number in chosen if number < stop]] = True
    mask: Array = flags[numbers]
    return mask
