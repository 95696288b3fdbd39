"""Bounds of every dtype of numbers that TensorFlow has, compared and cut exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from envkit.types import Array

__all__ = ["clipped", "exact", "has_order", "is_number", "limits", "stored"]


def is_number(dtype: Any) -> bool:
    """Says whether a dtype of TensorFlow is one of numbers that have an order."""
    return bool(dtype.is_integer or dtype.is_floating)


def has_order(dtype: Any) -> bool:
    """Says whether of any two values of a dtype one is the smaller."""
    return is_number(dtype) or bool(dtype == tf.bool)


# Calculated here: in a thread of TensorFlow's, where the tiniest numbers are zero,
# NumPy 1.26 would warn of that each time.
_FLOATS = {
    kind.__name__: (float(np.finfo(kind).min), float(np.finfo(kind).max))
    for kind in (np.float16, np.float32, np.float64)
}


def limits(dtype: Any) -> tuple[Any, Any]:
    """Returns the smallest and the largest value of a dtype as Python's numbers.

    Example:
        >>> limits(tf.uint8)
        (0, 255)
    """
    if dtype == tf.bool:
        return False, True
    if dtype.name in _FLOATS:
        return _FLOATS[dtype.name]
    kind = int if dtype.is_integer else float
    return kind(dtype.min), kind(dtype.max)


def exact(bound: Array) -> Any:
    """Returns a bound as Python's numbers, which compare exactly with any others."""
    if bound.dtype.kind in "iub":
        return bound.astype(object)
    # TensorFlow's floating dtypes that NumPy does not have are smaller than this one.
    return bound.astype(np.float64).astype(object)


def clipped(bound: Array, lowest: Any, highest: Any) -> Array:
    """Returns an `exact` bound with what lies beyond two numbers moved to them."""
    # NumPy would make int64 of single integers, and not all are.
    clipped = [min(max(value, lowest), highest) for value in bound.flat]
    return np.array(clipped, dtype=object).reshape(bound.shape)


def stored(bound: Array, dtype: Any) -> Array:
    """Returns an `exact` bound as an array of a dtype of TensorFlow."""
    wide = bound if dtype.is_integer else bound.astype(np.float64)
    return wide.astype(dtype.as_numpy_dtype)
