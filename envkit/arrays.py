"""Making arrays of what people pass, and copies of what somebody else writes to."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from envkit.types import Array

__all__ = ["as_array", "copied_arrays"]


def as_array(value: Any) -> Array:
    """Does what `numpy.asarray` does, without raising for lists of different lengths.

    Those are no array, and become one of dtype object without dimensions: whoever
    looks at dtype and shape afterwards refuses them in words of their own.

    Example:
        >>> as_array([[1], [2]]).shape, as_array([[1], [2, 3]]).dtype
        ((2, 1), dtype('O'))
    """
    try:
        return np.asarray(value)
    except ValueError:
        return np.array(None)


def copied_arrays(value: Any) -> Any:
    """Copies arrays, and the dictionaries, lists and tuples that they are in.

    Environments may go on writing to the infos that they have returned. Everything else
    stays the object that it is: it may be an environment, or what cannot be copied.

    Example:
        >>> board = np.array([1, 2])
        >>> info = {"board": board, "seen": [board]}
        >>> kept = copied_arrays(info)
        >>> board[:] = 0
        >>> kept
        {'board': array([1, 2]), 'seen': [array([1, 2])]}
    """
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        own = copy.copy(value)
        own.update((key, copied_arrays(item)) for key, item in value.items())
        return own
    if type(value) in {list, tuple}:
        return type(value)(map(copied_arrays, value))
    return value
