"""`ActionScale`: a linear function between the bounds of two specs."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.arrays import as_array
from envkit.specs.array_spec import BoundedArraySpec
from envkit.specs.validation import describe
from envkit.types import Array
from envkit.wording import bound_text

__all__ = ["ActionScale", "checked_ends"]


class ActionScale:
    """Maps what lies between the bounds of one spec to what does between another's.

    Attributes:
        spec: What is mapped.

    Example:
        >>> spec = BoundedArraySpec((), np.float32, minimum=-1.0, maximum=1.0)
        >>> inner = BoundedArraySpec((), np.float32, minimum=0.0, maximum=10.0)
        >>> ActionScale(spec, inner)(np.array([-1.0, 0.5]))
        array([0. , 7.5], dtype=float32)
    """

    __slots__ = (
        "_dtype",
        "_high",
        "_low",
        "_may_pass",
        "_start",
        "_wide",
        "_width",
        "spec",
    )

    def __init__(self, spec: BoundedArraySpec, inner: BoundedArraySpec) -> None:
        """Prepares for arrays of `spec`, or batches of them.

        Args:
            spec: What is mapped; its bounds are finite, and differ.
            inner: What comes out; its bounds are finite.
        """
        self.spec = spec
        self._dtype = inner.dtype
        wide = self._wide = np.promote_types(inner.dtype, np.float64)
        self._start = spec.minimum.astype(wide)
        # As they are stored: what was given may lie between two numbers of the dtype.
        self._width = spec.maximum.astype(wide) - self._start
        self._low = inner.minimum.astype(wide)
        self._high = inner.maximum.astype(wide)
        # Rounding to a narrower dtype undoes what rounding did before.
        self._may_pass = wide == inner.dtype

    def __call__(self, action: Array) -> Array:
        """Returns a new array of the dtype of `inner`."""
        # Hot: called once per step. Of the ways to write a linear function this one
        # hits both ends exactly, whatever their sizes.
        share = (action.astype(self._wide) - self._start) / self._width
        scaled = self._low * (1.0 - share) + self._high * share
        if self._may_pass:
            inside = (share >= 0.0) & (share <= 1.0)
            kept = np.minimum(np.maximum(scaled, self._low), self._high)
            scaled = np.where(inside, kept, scaled)
        return np.asarray(scaled, self._dtype)


def checked_ends(min_action: Any, max_action: Any) -> tuple[Array, Array]:
    """Returns the ends of a range as arrays, or says what is wrong with them.

    Example:
        >>> checked_ends(-1, [1.0, 2.0])
        (array(-1), array([1., 2.]))
    """
    low = _finite_numbers("min_action", min_action)
    high = _finite_numbers("max_action", max_action)
    try:
        in_order = np.all(low < high)
    except ValueError:
        raise ValueError(
            f"min_action has the shape {low.shape} and max_action {high.shape}; both "
            "broadcast to the shape of every continuous action."
        ) from None
    values = f"min_action is {bound_text(low)} and max_action is {bound_text(high)}"
    if not in_order:
        raise ValueError(f"{values}; min_action must be smaller, in every element.")
    with np.errstate(over="ignore"):
        if not np.isfinite(high.astype(np.float64) - low).all():
            raise ValueError(f"{values}, which is too far apart to compute with.")
    return low, high


def _finite_numbers(name: str, value: Any) -> Array:
    numbers = as_array(value)
    if numbers.dtype.kind not in "iuf":
        raise TypeError(
            f"{name} is {describe(value)}; it must be a number, or an array of numbers."
        )
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} is {bound_text(numbers)}; it must be finite.")
    return np.array(numbers)
