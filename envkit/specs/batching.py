"""Outer dimensions on every spec of a nest: adding and removing them."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.types import Array, NestedSpec
from envkit.wording import foreign

__all__ = ["add_outer_dims_nest", "as_outer_dims", "remove_outer_dims_nest"]


def add_outer_dims_nest(structure: NestedSpec, outer_dims: Sequence[int]) -> NestedSpec:
    """Puts `outer_dims` before the shape of every spec; bounds and names stay.

    Example:
        >>> add_outer_dims_nest({"a": ArraySpec((3,), np.float32)}, (2,))
        {'a': ArraySpec(shape=(2, 3), dtype=float32)}
    """
    dims = as_outer_dims(outer_dims)
    return nest.map_structure(
        lambda spec: _as_spec(spec).replace(shape=(*dims, *spec.shape)), structure
    )


def remove_outer_dims_nest(structure: NestedSpec, num_outer_dims: int) -> NestedSpec:
    """Takes the first `num_outer_dims` sizes off the shape of every spec.

    Bounds that differ along a removed dimension widen to hold all of them.

    Example:
        >>> remove_outer_dims_nest(ArraySpec((8, 3), np.float32), 1)
        ArraySpec(shape=(3,), dtype=float32)
    """
    if not isinstance(num_outer_dims, numbers.Integral):
        raise TypeError(
            f"num_outer_dims is a number of dimensions, not {num_outer_dims!r:.80}."
        )
    return nest.map_structure(
        lambda spec: _without_outer_dims(_as_spec(spec), num_outer_dims), structure
    )


def as_outer_dims(outer_dims: Any) -> tuple[int, ...]:
    """Returns dimensions as a tuple; one size alone is refused, for it may be a slip.

    Example:
        >>> as_outer_dims([2, 3])
        (2, 3)
    """
    try:
        dims = tuple(outer_dims)
    except TypeError:
        hint = (
            f": for one dimension write ({outer_dims},)."
            if isinstance(outer_dims, numbers.Integral)
            else "."
        )
        raise TypeError(
            f"outer_dims is a sequence of sizes, not {outer_dims!s:.80}{hint}"
        ) from None
    for size in dims:
        if size is None:
            raise TypeError(
                "outer_dims holds None. The batch_size of an environment that is not "
                "batched is None: pass () for it."
            )
        if not isinstance(size, numbers.Integral) or size < 0:
            raise ValueError(
                f"outer_dims holds {size!r:.80}; a size is an integer of at least 0."
            )
    return dims


def _as_spec(spec: Any) -> ArraySpec:
    if not isinstance(spec, ArraySpec):
        shown = foreign(spec) or f"{spec!r:.80}"
        raise TypeError(f"{shown} is not an ArraySpec, so it has no dimensions.")
    return spec


def _without_outer_dims(spec: ArraySpec, count: int) -> ArraySpec:
    if count < 0 or count > len(spec.shape):
        raise ValueError(
            f"Cannot remove {count} outer dimensions from {spec}, which has "
            f"{len(spec.shape)}."
        )
    shape = spec.shape[count:]
    if not isinstance(spec, BoundedArraySpec):
        return spec.replace(shape=shape)
    reduced = BoundedArraySpec(
        shape,
        spec.dtype,
        _reduced(spec.minimum, len(shape), np.min),
        _reduced(spec.maximum, len(shape), np.max),
    )
    # Of the class that the spec is.
    return spec.replace(shape, minimum=reduced.minimum, maximum=reduced.maximum)


def _reduced(bound: Array, rank: int, reduce: Any) -> Array | None:
    extra = max(bound.ndim - rank, 0)
    if not extra:
        return bound
    if not bound.size:  # No row says anything, so the dtype's limit holds.
        return None
    return np.asarray(reduce(bound, axis=tuple(range(extra))))
