"""`nearest_within`: bounds in another dtype, rounded such that none is passed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from envkit.types import Array

__all__ = ["nearest_within"]


def nearest_within(bounds: Array, dtype: np.dtype[Any], inwards: float) -> Array:
    """Converts bounds to another dtype such that none of them is passed.

    A bound that the dtype cannot hold becomes the next number towards `inwards`, which
    is infinity for lower bounds and minus infinity for upper ones.

    Example:
        >>> nearest_within(np.array([0.5, 2.0]), np.dtype(np.int64), math.inf)
        array([1, 2])
    """
    # Called when a wrapper is made. Python compares its numbers exactly.
    converted = np.empty(bounds.shape, dtype)
    for index in np.ndindex(*bounds.shape):
        bound = bounds[index].item()
        converted[index] = (
            _nearest_float(bound, dtype, inwards)
            if dtype.kind == "f"
            else _nearest_integer(bound, dtype, inwards)
        )
    return converted


def _nearest_float(bound: Any, dtype: np.dtype[Any], inwards: float) -> Any:
    with np.errstate(over="ignore"):
        number = dtype.type(bound)
    passed = number.item() < bound if inwards > 0 else number.item() > bound
    return np.nextafter(number, dtype.type(inwards)) if passed else number


def _nearest_integer(bound: Any, dtype: np.dtype[Any], inwards: float) -> int:
    info = np.iinfo(dtype)
    lowest, highest = int(info.min), int(info.max)
    number: float = min(max(bound, lowest), highest)  # none of which is infinite
    return math.ceil(number) if inwards > 0 else math.floor(number)
