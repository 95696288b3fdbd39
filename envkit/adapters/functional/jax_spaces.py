"""Spaces of functional environments as specs.

They look like those of Gymnasium and are none: `Discrete` has `n`, `Box` has `low` and
`high`, `Dict` and `Tuple` have `spaces`. What they say about dtypes is not always what
the environments return, so shapes and dtypes of observations are read off the functions
and the spaces add bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from envkit.adapters.spaces.values import map_with_paths, rebuilt
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.validation import describe
from envkit.types import Array, NestedSpec

__all__ = ["action_spec_from_space", "spec_of_shapes", "with_bounds"]


def spec_of_shapes(shapes: Any, name: str) -> NestedSpec:
    """Returns specs without bounds for a nest of shapes and dtypes."""
    return map_with_paths(
        lambda leaf, _: ArraySpec(leaf.shape, np.dtype(leaf.dtype), name), shapes
    )


def with_bounds(spec: NestedSpec, space: Any) -> NestedSpec:
    """Returns specs with the bounds that a space has where it matches them.

    Example:
        >>> from gymnasium import spaces
        >>> with_bounds(ArraySpec((2,), np.float32), spaces.Box(0, 9, (2,), np.int32))
        BoundedArraySpec(shape=(2,), dtype=float32, minimum=0.0, maximum=9.0)
    """
    parts = getattr(space, "spaces", None)
    if isinstance(spec, dict) and isinstance(parts, Mapping):
        return {key: with_bounds(child, parts.get(key)) for key, child in spec.items()}
    if isinstance(spec, list | tuple) and isinstance(parts, list | tuple):
        if len(spec) != len(parts):
            return spec
        pairs = zip(spec, parts, strict=True)
        return rebuilt(spec, [with_bounds(*pair) for pair in pairs])
    if isinstance(spec, ArraySpec) and spec.dtype.kind in "iuf":
        return _bounded(spec, space)
    return spec


def action_spec_from_space(space: Any, path: str = "action") -> NestedSpec:
    """Returns the specs of the actions in a space.

    Raises:
        TypeError: It is nothing like a space.

    Example:
        >>> from gymnasium import spaces
        >>> action_spec_from_space(spaces.Discrete(3))
        BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=2, name='action')
    """
    parts = getattr(space, "spaces", None)
    if isinstance(parts, Mapping):
        return {
            key: action_spec_from_space(child, f"{path}[{key!r}]")
            for key, child in parts.items()
        }
    if isinstance(parts, list | tuple):
        return tuple(
            action_spec_from_space(child, f"{path}[{index}]")
            for index, child in enumerate(parts)
        )
    if not hasattr(space, "shape") or not hasattr(space, "dtype"):
        raise TypeError(
            f"The space of {path} is {describe(space)}; it has neither `spaces`, "
            "as those that contain others have, nor `shape` and `dtype`."
        )
    spec = ArraySpec(tuple(space.shape), np.dtype(space.dtype), path)
    return _bounded(spec, space) if spec.dtype.kind in "iuf" else spec


def _bounded(spec: ArraySpec, space: Any) -> ArraySpec:
    if hasattr(space, "n"):
        start = int(getattr(space, "start", 0))
        low, high = np.asarray(start), np.asarray(start + int(space.n) - 1)
    elif hasattr(space, "low") and hasattr(space, "high"):
        low, high = np.asarray(space.low), np.asarray(space.high)
    else:
        return spec
    try:
        low, high = (np.broadcast_to(bound, spec.shape) for bound in (low, high))
    except ValueError:  # Of another shape, so it speaks of something else.
        return spec
    low, high = _in(spec.dtype, low), _in(spec.dtype, high)
    same = low.size and (low == low.flat[0]).all() and (high == high.flat[0]).all()
    if same:
        low, high = low.flat[0], high.flat[0]
    return BoundedArraySpec(spec.shape, spec.dtype, low, high, spec.name)


def _in(dtype: np.dtype[Any], bound: Array) -> Array:
    """Returns a bound in a dtype, the nearest that it has."""
    if dtype.kind == "f":
        return bound.astype(dtype)
    info = np.iinfo(dtype)
    # Infinity is no integer, and the largest integers are no floats.
    inside = (bound > info.min) & (bound < info.max)
    edge = np.where(bound > 0, info.max, info.min).astype(dtype)
    return np.where(inside, np.where(inside, bound, 0).astype(dtype), edge)
