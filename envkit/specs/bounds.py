"""The bounds of a spec: checked, and stored as read-only arrays of its dtype."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any

import numpy as np

from envkit.arrays import as_array
from envkit.types import Array

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["equal_bounds", "stored_bounds", "within"]


def stored_bounds(
    minimum: npt.ArrayLike | None,
    maximum: npt.ArrayLike | None,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> tuple[Array, Array]:
    """Checks two bounds and returns them as a spec keeps them.

    A bound that is `None` is the limit of the dtype. They keep the shape in which they
    were given, which broadcasts to that of the spec.
    """
    lowest, highest = _limits(dtype)
    given_low = _exactly("minimum", lowest if minimum is None else minimum, dtype)
    given_high = _exactly("maximum", highest if maximum is None else maximum, dtype)
    low = _stored("minimum", given_low, shape, dtype)
    high = _stored("maximum", given_high, shape, dtype)
    with np.errstate(invalid="ignore"):  # NaN is neither above nor below.
        # As they were given, too: bounds of integers lose their fractions.
        above = np.asarray((low > high) | (given_low > given_high), bool)
    if above.any():
        raise ValueError(
            "BoundedArraySpec min has values greater than max: "
            f"minimum {_first(given_low, above)!s} is above maximum "
            f"{_first(given_high, above)!s}."
        )
    return low, high


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    info: Any
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
    elif np.issubdtype(dtype, np.floating):
        info = np.finfo(dtype)
    else:
        raise TypeError(
            f"BoundedArraySpec needs an integer or floating dtype, not {dtype}: only "
            "numbers have bounds. Use ArraySpec for it."
        )
    return info.min, info.max


def _stored(
    which: str, given: Array, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> Array:
    """Checks one bound and stores it as a read-only array of the spec's dtype."""
    try:
        broadcast = np.broadcast_shapes(given.shape, shape)
    except ValueError:
        broadcast = None
    # broadcast_to alone would let a bound be larger than the array it bounds.
    if broadcast != shape:
        raise ValueError(
            f"{which} is not compatible with shape {shape}: its own shape is "
            f"{given.shape}, which does not broadcast to it."
        )
    return _within_dtype(which, given, dtype)


def _exactly(which: str, bound: npt.ArrayLike, dtype: np.dtype[Any]) -> Array:
    """Makes an array of a bound without losing digits."""
    given = as_array(bound)
    if dtype.kind in "iu" and given.dtype.kind == "f" and given is not bound:
        # [2**64 - 1, 7] has no integer dtype in common, so NumPy makes it float64
        # and loses the last digits. Python's own numbers keep them.
        given = np.asarray(bound, dtype=object)
    numbers_only = given.dtype.kind in "biuf" or (
        given.dtype.kind == "O"
        and all(isinstance(number, numbers.Real) for number in given.flat)
    )
    if not numbers_only:
        raise TypeError(f"{which} must be numbers, not {bound!r:.80}.")
    return given


def _within_dtype(which: str, given: Array, dtype: np.dtype[Any]) -> Array:
    lowest, highest = _limits(dtype)
    stored, outside = (
        _as_floats(given, dtype) if dtype.kind == "f" else _as_integers(given, dtype)
    )
    if outside.any():
        raise ValueError(
            f"{which} is not within the range of {dtype}: "
            f"{_first(given, outside)!s} is not between {lowest!s} and {highest!s}."
        )
    stored.setflags(write=False)
    return stored


def _as_floats(given: Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    lowest, highest = _limits(dtype)
    if given.dtype.kind == "O":
        overflowing = np.array([_overflows(number) for number in given.flat], bool)
        if overflowing.any():
            return given, overflowing.reshape(given.shape)
    with np.errstate(over="ignore"):
        stored = given.astype(dtype)
        wide = given.astype(np.promote_types(dtype, np.float64))
    # What became infinite only now was too large. What was infinite before stands for
    # the largest finite number: a bound can then be reached.
    outside = np.isinf(stored) & ~np.isinf(wide)
    stored = np.where(np.isposinf(wide), highest, stored)
    stored = np.where(np.isneginf(wide), lowest, stored)
    return stored.astype(dtype), np.asarray(outside)


def _overflows(number: Any) -> bool:
    try:
        float(number)
    except OverflowError:
        return True
    return False


def _as_integers(given: Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    if given.dtype == dtype:
        return np.array(given), np.zeros((), bool)
    lowest, highest = _limits(dtype)
    # Python compares its integers exactly with all numbers but those of NumPy.
    exact = np.array([_plain(number) for number in given.astype(object).flat], object)
    exact = exact.reshape(given.shape)
    with np.errstate(invalid="ignore"):  # NaN is nowhere.
        inside = np.greater_equal(exact, lowest) & np.less_equal(exact, highest)
    outside = ~np.asarray(inside, bool)
    return np.where(outside, 0, exact).astype(dtype), outside


def _plain(number: Any) -> Any:
    return number.item() if isinstance(number, np.generic) else number


def _first(values: Array, where: Array) -> Any:
    values, where = np.broadcast_arrays(values, where)
    return values[where].flat[0]


def equal_bounds(first: Array, second: Array, shape: tuple[int, ...]) -> bool:
    """Says whether two bounds mean the same, in whatever shape they were given."""
    return bool(
        np.array_equal(
            np.broadcast_to(first, shape),
            np.broadcast_to(second, shape),
            equal_nan=first.dtype.kind == "f",
        )
    )


def within(values: Any, minimum: Array, maximum: Array) -> bool:
    """Says whether every value lies between two bounds, both included.

    The values may have dimensions before those of their spec; NaN lies nowhere.
    """
    return bool(np.all(values >= minimum) and np.all(values <= maximum))
