"""What becomes of a leaf's spec, and of its bounds, when the leaf is changed."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.types import Array

__all__ = ["cast_spec", "has_finite_bounds", "known_bounds", "reshaped_spec"]


def known_bounds(spec: ArraySpec) -> tuple[Array, Array] | None:
    """Returns the bounds of a spec in a form that survives a change of dtype.

    The largest number of a floating dtype stands for infinity in a spec, and does so
    in its own dtype only. Booleans lie between 0 and 1.

    Example:
        >>> known_bounds(BoundedArraySpec((), np.float32, minimum=0.0))
        (array(0., dtype=float32), array(inf, dtype=float32))
        >>> known_bounds(ArraySpec((), np.float32)) is None
        True
    """
    if spec.dtype.kind == "b":
        return np.array(0, np.uint8), np.array(1, np.uint8)
    if not isinstance(spec, BoundedArraySpec):
        return None
    low, high = spec.minimum, spec.maximum
    if spec.dtype.kind == "f":
        limits = np.finfo(spec.dtype)
        low = np.where(low <= limits.min, -np.inf, low).astype(spec.dtype)
        high = np.where(high >= limits.max, np.inf, high).astype(spec.dtype)
    return low, high


def has_finite_bounds(spec: ArraySpec) -> bool:
    """Says whether every element has two bounds, none of which stands for infinity.

    Example:
        >>> has_finite_bounds(BoundedArraySpec((), np.float32, minimum=0.0))
        False
    """
    bounds = known_bounds(spec)
    return bounds is not None and all(np.isfinite(bound).all() for bound in bounds)


def cast_spec(spec: ArraySpec, dtype: np.dtype[Any]) -> ArraySpec | None:
    """Makes the spec of a leaf that is cast; `None` if the dtype cannot hold it.

    Example:
        >>> cast_spec(BoundedArraySpec((2,), np.int64, 0, 200), np.dtype(np.uint8))
        BoundedArraySpec(shape=(2,), dtype=uint8, minimum=0, maximum=200)
        >>> cast_spec(BoundedArraySpec((2,), np.int64, 0, 300), np.dtype(np.uint8))
    """
    bounds = known_bounds(spec)
    if bounds is None:
        if spec.dtype.kind not in "iuf":
            return None
        low, high = _limits(spec.dtype)
    else:
        low, high = bounds
    if dtype.kind == "b":
        # Of fractions it could only say that they are not 0.
        is_bit = spec.dtype.kind != "f" and bool(np.all(low >= 0) and np.all(high <= 1))
        return ArraySpec(spec.shape, dtype, spec.name) if is_bit else None
    try:
        cast = BoundedArraySpec(spec.shape, dtype, low, high, spec.name)
    except ValueError:
        return None
    return ArraySpec.from_spec(cast) if bounds is None else cast


def _limits(dtype: np.dtype[Any]) -> tuple[Array, Array]:
    if dtype.kind == "f":
        return np.array(-np.inf), np.array(np.inf)
    info = np.iinfo(dtype)
    return np.array(info.min, dtype), np.array(info.max, dtype)


def reshaped_spec(spec: ArraySpec, shape: tuple[int, ...]) -> ArraySpec:
    """Makes the spec of a leaf that gets another shape, with as many elements.

    Example:
        >>> spec = BoundedArraySpec((4,), np.int64, 0, [1, 2, 3, 4])
        >>> reshaped_spec(spec, (2, 2)).maximum
        array([[1, 2],
               [3, 4]])
    """
    if not isinstance(spec, BoundedArraySpec):
        return spec.replace(shape=shape)
    low, high = (
        bound if bound.ndim == 0 else np.broadcast_to(bound, spec.shape).reshape(shape)
        for bound in (spec.minimum, spec.maximum)
    )
    return BoundedArraySpec(shape, spec.dtype, low, high, spec.name)
