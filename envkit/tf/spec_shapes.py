"""Changes the shape or the dtype of one tensor spec; its bounds go along."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.tensor_spec import BoundedTensorSpec

from envkit.tf.spec_bounds import (
    clipped,
    exact,
    has_order,
    is_number,
    limits,
    stored,
)
from envkit.tf.spec_leaves import misfit, spec_text
from envkit.types import Array
from envkit.wording import bound_text

__all__ = ["longer", "shorter", "with_other_dtype"]


def longer(spec: Any, dims: Any) -> Any:
    """Puts dimensions before those of a spec of a dense or sparse tensor."""
    shape = dims.concatenate(spec.shape)
    if isinstance(spec, BoundedTensorSpec):
        return _bounded_like(spec, shape, spec.minimum, spec.maximum)
    return _unbounded_like(spec, shape, spec.dtype)


def shorter(spec: Any, path: str, count: int) -> Any:
    """Takes the first dimensions off a spec of a dense or sparse tensor."""
    rank = spec.shape.rank
    if count < 0 or (rank is not None and count > rank):
        has = "" if rank is None else f", which has {rank}"
        raise misfit(
            f"Cannot remove {count} outer dimensions from {spec_text(spec, path)}"
            f"{has}.",
            path,
        )
    if count == 0:
        return spec
    shape = spec.shape[count:]
    if not isinstance(spec, BoundedTensorSpec):
        return _unbounded_like(spec, shape, spec.dtype)
    # Where it is not known which dimensions are left, one bound holds for all elements.
    rank = shape.rank or 0
    if max(spec.minimum.ndim, spec.maximum.ndim) <= rank:
        return _bounded_like(spec, shape, spec.minimum, spec.maximum)
    if not has_order(spec.dtype):
        # Of texts or complex numbers there is no smallest to hold for all rows.
        return _unbounded_like(spec, shape, spec.dtype)
    lowest, highest = limits(spec.dtype)
    low = _reduced(spec.minimum, rank, np.min, lowest)
    high = _reduced(spec.maximum, rank, np.max, highest)
    return _bounded_like(spec, shape, low, high)


def with_other_dtype(spec: Any, path: str, dtype: Any) -> Any:
    """Changes the dtype of a spec of a dense or sparse tensor."""
    is_bounded = isinstance(spec, BoundedTensorSpec) and has_order(spec.dtype)
    if not is_bounded or not is_number(dtype):
        return _unbounded_like(spec, spec.shape, dtype)
    lowest, highest = limits(dtype)
    low, high = exact(spec.minimum), exact(spec.maximum)
    # Said so that it is true of NaN, too.
    if not np.all((low <= highest) & (high >= lowest)):
        raise misfit(
            f"{spec_text(spec, path)} has no values in common with {dtype.name}: they "
            f"are between {bound_text(spec.minimum)} and {bound_text(spec.maximum)}.",
            path,
        )
    return BoundedTensorSpec(
        spec.shape,
        dtype,
        stored(clipped(low, lowest, highest), dtype),
        stored(clipped(high, lowest, highest), dtype),
        spec.name,
    )


def _bounded_like(spec: Any, shape: Any, low: Any, high: Any) -> Any:
    return BoundedTensorSpec(shape, spec.dtype, low, high, spec.name)


def _unbounded_like(spec: Any, shape: Any, dtype: Any) -> Any:
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.SparseTensorSpec(shape, dtype)
    return tf.TensorSpec(shape, dtype, spec.name)


def _reduced(bound: Array, rank: int, reduce: Any, limit: Any) -> Any:
    """Takes dimensions off a bound until it has no more than `rank`."""
    extra = bound.ndim - rank
    if extra <= 0:
        return bound
    if not bound.size:  # There is no row, so the dtype's limit holds.
        return limit
    return reduce(bound, axis=tuple(range(extra)))
