"""The ends of a range that somebody wants numbers to be in."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.arrays import as_array
from envkit.specs.validation import describe
from envkit.types import Array
from envkit.wording import bound_text

__all__ = ["checked_range", "range_text"]


def checked_range(
    names: tuple[str, str], ends: Any, leaves: str
) -> tuple[Array, Array]:
    """Returns the ends of a range as arrays, or says what is wrong with them.

    Args:
        names: What the lower and the upper one are called.
        ends: The two, each a number or an array.
        leaves: To what they broadcast, in words.

    Example:
        >>> checked_range(("low", "high"), (-1, [1.0, 2.0]), "every action")
        (array(-1), array([1., 2.]))
    """
    low, high = map(_finite_numbers, names, ends)
    try:
        in_order = bool(np.all(low < high))
    except ValueError:
        raise ValueError(
            f"{names[0]} has the shape {low.shape} and {names[1]} {high.shape}; both "
            f"broadcast to the shape of {leaves}."
        ) from None
    if not in_order:
        raise ValueError(
            f"{range_text(names, low, high)}; {names[0]} must be smaller, in every "
            "element."
        )
    return low, high


def range_text(names: tuple[str, str], low: Array, high: Array) -> str:
    """Says what the ends are.

    Example:
        >>> range_text(("low", "high"), np.array(0), np.array([1.5, 2.0]))
        'low is 0 and high is [1.5, 2.0]'
    """
    return f"{names[0]} is {bound_text(low)} and {names[1]} is {bound_text(high)}"


def _finite_numbers(name: str, value: Any) -> Array:
    numbers = as_array(value)
    if numbers.dtype.kind not in "iuf":
        raise TypeError(
            f"{name} is {describe(value)}; it must be a number, or an array of numbers."
        )
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} is {bound_text(numbers)}; it must be finite.")
    return np.array(numbers)
