"""Making arrays of what people pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.types import Array

__all__ = ["as_array"]


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
