"""A leaf's spec: its bounds, its kind, and what becomes of both if it is changed."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.object_spec import ObjectSpec
from envkit.types import Array

__all__ = [
    "cast_spec",
    "has_finite_bounds",
    "known_bounds",
    "reshaped_spec",
    "usual_kind",
]


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


def usual_kind(spec: ArraySpec) -> str:
    """Names the space that a spec becomes which does not remember one.

    A single integer is a choice and thus `Discrete`, and a row of integers a
    `MultiDiscrete`, where its dtype and bounds are none that pictures have. "" is for
    what no space of Gymnasium's describes.

    Example:
        >>> usual_kind(BoundedArraySpec((), np.int64, 5, 7))
        'Discrete'
        >>> usual_kind(BoundedArraySpec((3,), np.int32, 0, [1, 2, 3]))
        'MultiDiscrete'
        >>> usual_kind(BoundedArraySpec((84, 84), np.uint8, 0, 255))
        'Box'
    """
    if isinstance(spec, ObjectSpec) or spec.dtype.kind not in "biufU":
        return ""
    if spec.dtype.kind == "U":
        is_text = spec.shape == () and spec.dtype.itemsize and spec.dtype.isnative
        return "Text" if is_text else ""
    if spec.dtype.kind in "bf" or not isinstance(spec, BoundedArraySpec):
        return "Box"
    return _kind_of_integers(spec)


def _kind_of_integers(spec: BoundedArraySpec) -> str:
    largest = int(np.iinfo(spec.dtype).max)
    low = np.asarray(spec.minimum).astype(object)
    high = np.asarray(spec.maximum).astype(object)
    # Spaces count their choices in the dtype of these.
    if not spec.minimum.size or not np.all(high - low < largest):
        return "Box"
    if spec.shape == ():
        return "Discrete"
    binary = spec.dtype == np.int8 and np.all(low == 0) and np.all(high == 1)
    if binary and 0 not in spec.shape:
        return "MultiBinary"
    if len(spec.shape) == 1 and spec.dtype.kind == "i" and spec.shape != (0,):
        return "MultiDiscrete"
    return "Box"
