"""What the sum of several rewards looks like."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.types import Array

__all__ = ["sum_spec"]


def sum_spec(spec: ArraySpec, most: int) -> ArraySpec:
    """Makes the spec of sums of one reward up to `most` of them.

    Example:
        >>> sum_spec(BoundedArraySpec((), np.float32, -1.0, 2.0), 4)
        BoundedArraySpec(shape=(), dtype=float32, minimum=-4.0, maximum=8.0)
    """
    if not isinstance(spec, BoundedArraySpec):
        return spec
    info: Any = np.finfo if spec.dtype.kind == "f" else np.iinfo
    limits = info(spec.dtype)
    low, high = spec.minimum, spec.maximum
    return spec.replace(
        minimum=np.where(low < 0, _times(low, most, limits.min), low),
        maximum=np.where(high > 0, _times(high, most, limits.max), high),
    )


def _times(bound: Array, most: int, limit: Any) -> Array:
    """Multiplies a bound; beyond what its dtype can hold there is the limit."""
    fits = np.abs(bound.astype(np.float64)) <= abs(float(limit)) / most
    return np.where(fits, np.where(fits, bound, 0) * most, limit).astype(bound.dtype)
