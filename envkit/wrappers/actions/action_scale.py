"""`ActionScale`: a linear function between the bounds of two specs."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.specs.array_spec import BoundedArraySpec
from envkit.types import Array
from envkit.wrappers.ranges import checked_range, range_text

__all__ = ["ActionScale", "checked_ends"]

_NAMES = "min_action", "max_action"


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
    low, high = checked_range(
        _NAMES, (min_action, max_action), "every continuous action"
    )
    with np.errstate(over="ignore"):
        if not np.isfinite(high.astype(np.float64) - low).all():
            raise ValueError(
                f"{range_text(_NAMES, low, high)}, which is too far apart to compute "
                "with."
            )
    return low, high
