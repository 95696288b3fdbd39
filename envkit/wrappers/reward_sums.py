"""What the sum of several rewards looks like, and how it is made."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.types import Array
from envkit.wrappers.rows import beside

__all__ = ["add_in_rows", "sum_spec"]

# Of how many rewards a bound is worked out; more are those of an episode of any length.
_MOST_FLOATS = 2**20


def add_in_rows(rows: Any, total: Array, reward: Array) -> Array:
    """Adds rewards in some rows, and returns a new array of the dtype of `total`.

    Sums beyond the limits of integers are these limits, as `sum_spec` has it.

    Example:
        >>> add_in_rows(np.array([True, False]), np.array([1, 2]), np.array([5, 5]))
        array([6, 2])
        >>> add_in_rows(np.array(True), np.array(100, np.int8), np.array(50, np.int8))
        array(127, dtype=int8)
    """
    dtype = total.dtype
    # Hot: called once per step. Of the same dtype, for with a plain 0 NumPy before 2
    # makes wider integers.
    more = np.where(beside(rows, reward), reward, np.zeros((), dtype))
    with np.errstate(over="ignore"):
        sums = np.asarray(total + more, dtype)
    if dtype.kind not in "iu":
        return sums
    # Integers that are too large wrap around: a sum is less than it was before.
    info = np.iinfo(dtype)
    too_large, too_small = (more > 0) & (sums < total), (more < 0) & (sums > total)
    if too_large.any() or too_small.any():
        sums = np.where(too_large, dtype.type(info.max), sums)
        sums = np.where(too_small, dtype.type(info.min), sums).astype(dtype, copy=False)
    return sums


def sum_spec(spec: ArraySpec, most: int) -> ArraySpec:
    """Makes the spec of sums of one reward up to `most` of them.

    Example:
        >>> sum_spec(BoundedArraySpec((), np.float32, -1.0, 2.0), 4)
        BoundedArraySpec(shape=(), dtype=float32, minimum=-4.0, maximum=8.0)
    """
    if not isinstance(spec, BoundedArraySpec):
        return spec
    summed = _float_sum if spec.dtype.kind == "f" else _integer_sum
    low, high = spec.minimum, spec.maximum
    return spec.replace(
        minimum=np.where(low < 0, summed(low, most), low),
        maximum=np.where(high > 0, summed(high, most), high),
    )


def _float_sum(bound: Array, most: int) -> Array:
    # A spec takes infinity for the limit of its dtype.
    if most > _MOST_FLOATS:
        return np.asarray(np.copysign(np.inf, bound))
    # Added one by one, as rewards are: a product is rounded in another way, and ten
    # times 0.1 would be more than the bound.
    with np.errstate(over="ignore"):
        sums = np.cumsum(np.broadcast_to(bound, (most, *bound.shape)), axis=0)
    last: Array = sums[-1, ...].astype(bound.dtype)
    return last


def _integer_sum(bound: Array, most: int) -> Array:
    # Of Python's integers, which do not overflow.
    info = np.iinfo(bound.dtype)
    products = [
        min(max(number * most, info.min), info.max) for number in bound.ravel().tolist()
    ]
    return np.array(products, bound.dtype).reshape(bound.shape)
