"""Checks bounds that wrappers are given, and converts them to another dtype."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from envkit.extend import as_array, bound_text, describe
from envkit.types import Array

__all__ = ["checked_range", "nearest_within", "range_text"]


def checked_range(
    names: tuple[str, str], ends: Any, leaves: str
) -> tuple[Array, Array]:
    """Returns the ends of a range as arrays; raises if they are wrong.

    Args:
        names: The names of the lower and the upper end.
        ends: Both ends, each a number or an array.
        leaves: The arrays they must broadcast to, in words.

    Example:
        >>> checked_range(("low", "high"), (-1, [1.0, 2.0]), "every action")
        (array(-1), array([1., 2.]))
    """
    low, high = map(_finite_numbers, names, ends)
    try:
        in_order = bool(np.all(low < high))
    except ValueError:
        raise ValueError(
            f"{names[0]} and {names[1]} must both broadcast to the shape of "
            f"{leaves}, got the shapes {low.shape} and {high.shape}."
        ) from None
    if not in_order:
        raise ValueError(
            f"{range_text(names, low, high)}; {names[0]} must be smaller, in every "
            "element."
        )
    return low, high


def range_text(names: tuple[str, str], low: Array, high: Array) -> str:
    """Returns the ends of a range in words.

    Example:
        >>> range_text(("low", "high"), np.array(0), np.array([1.5, 2.0]))
        'low is 0 and high is [1.5, 2.0]'
    """
    return f"{names[0]} is {bound_text(low)} and {names[1]} is {bound_text(high)}"


def _finite_numbers(name: str, value: Any) -> Array:
    numbers = as_array(value)
    if numbers.dtype.kind not in "iuf":
        raise TypeError(
            f"{name} must be a number, or an array of numbers, got {describe(value)}."
        )
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} must be finite, got {bound_text(numbers)}.")
    return np.array(numbers)


def nearest_within(bounds: Array, dtype: np.dtype[Any], inwards: float) -> Array:
    """Converts bounds to another dtype without widening the range.

    A bound that the dtype cannot represent becomes the next number towards `inwards`:
    infinity for lower bounds, minus infinity for upper ones.

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
    number: float = min(max(bound, lowest), highest)  # always finite
    return math.ceil(number) if inwards > 0 else math.floor(number)
