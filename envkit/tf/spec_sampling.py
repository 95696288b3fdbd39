"""Draws random tensors that fit tensor specs, dense and sparse."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.tensor_spec import BoundedTensorSpec

from envkit.tf.outer_dims import as_sizes, joined
from envkit.tf.sampling_seeds import seeds_of
from envkit.tf.spec_bounds import clipped, exact, has_order, limits, stored
from envkit.tf.spec_leaves import known_shape, misfit, spec_text
from envkit.tf.uniform_numbers import floats, integers
from envkit.types import Array
from envkit.wording import bound_text

__all__ = ["Sampler"]


# A sparse tensor gets so many elements, or all that it has room for.
_SPARSE_ELEMENTS = 7


class Sampler:
    """Draws a tensor for each spec that it is called with, all from one seed.

    Example:
        >>> sample = Sampler((1, 2), outer_dims=(5,))
        >>> sample(tf.TensorSpec([3], tf.int32), "['move']").shape
        TensorShape([5, 3])
    """

    def __init__(
        self,
        seed: Any,
        outer_dims: Any,
        minimum: float | None = None,
        maximum: float | None = None,
    ) -> None:
        """Prepares for the samples of one nest.

        Args:
            seed: As `seeds_of` takes it.
            outer_dims: As `as_sizes` takes them.
            minimum: No number shall be below it.
            maximum: No number shall be above it.
        """
        self._seeds = seeds_of(seed)
        self._sizes = as_sizes(outer_dims)
        self._minimum = _checked_bound("minimum", minimum)
        self._maximum = _checked_bound("maximum", maximum)

    def __call__(self, spec: Any, path: str) -> Any:
        """Draws a tensor for the spec of a dense or sparse one."""
        if isinstance(spec, tf.SparseTensorSpec):
            return self._sparse(spec, path)
        shape = joined(self._sizes, known_shape(spec, path, "A sample"))
        return self._values(spec, path, shape)

    def _values(self, spec: Any, path: str, shape: Any) -> Any:
        dtype = spec.dtype
        seed = next(self._seeds)
        if dtype == tf.string:
            return tf.strings.as_string(
                integers(tf.int32, np.array(0), np.array(10), shape, seed)
            )
        low, high = _bounds(spec, path)
        if dtype == tf.bool:
            return integers(dtype, low, high, shape, seed)
        low, high = self._narrowed(spec, path, low, high)
        draw = integers if dtype.is_integer else floats
        return draw(dtype, low, high, shape, seed)

    def _sparse(self, spec: Any, path: str) -> Any:
        if not isinstance(self._sizes, tuple):
            raise NotImplementedError(
                f"{spec_text(spec, path)} can only be sampled with outer_dims that are "
                "known when the function is traced."
            )
        shape = (*self._sizes, *known_shape(spec, path, "A sample"))
        room = math.prod(shape)
        count = min(_SPARSE_ELEMENTS, room)
        # One element from each of equal parts: no two are at one place, and they come
        # in the order that sparse tensors are in.
        ends = [room * part // count for part in range(count + 1)] if count else [0]
        places = integers(
            tf.int64,
            np.array(ends[:-1], np.int64),
            np.array(ends[1:], np.int64) - 1,
            [count],
            next(self._seeds),
        )
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        indices = (places[:, None] // np.array(strides, np.int64)) % np.array(
            shape, np.int64
        )
        values = self._values(tf.TensorSpec([], spec.dtype), path, [count])
        return tf.SparseTensor(indices, values, shape)

    def _narrowed(
        self, spec: Any, path: str, low: Array, high: Array
    ) -> tuple[Array, Array]:
        if self._minimum is None and self._maximum is None:
            return low, high
        least = -math.inf if self._minimum is None else self._minimum
        most = math.inf if self._maximum is None else self._maximum
        if spec.dtype.is_integer:
            least = math.ceil(least) if math.isfinite(least) else least
            most = math.floor(most) if math.isfinite(most) else most
        new_low = clipped(exact(low), least, math.inf)
        new_high = clipped(exact(high), -math.inf, most)
        if np.any(new_low > new_high):
            raise misfit(
                f"{spec_text(spec, path)} has no values left: they are between "
                f"{bound_text(low)} and {bound_text(high)}, and shall be between "
                f"{least} and {most}.",
                path,
            )
        return stored(new_low, spec.dtype), stored(new_high, spec.dtype)


def _checked_bound(name: str, bound: Any) -> Any:
    if bound is None or (isinstance(bound, numbers.Real) and not math.isnan(bound)):
        return bound
    raise TypeError(f"{name} is a number, not {bound!r:.80}.")


def _bounds(spec: Any, path: str) -> tuple[Array, Array]:
    """Returns the bounds of a spec, or the limits of its dtype, as they shall be."""
    dtype = spec.dtype
    if not has_order(dtype):
        raise TypeError(
            f"Cannot sample {spec_text(spec, path)}: no random value is defined for "
            f"{dtype.name}."
        )
    if not isinstance(spec, BoundedTensorSpec):
        lowest, highest = limits(dtype)
        return stored(np.array(lowest), dtype), stored(np.array(highest), dtype)
    # TensorFlow has not looked whether they make sense together.
    low, high = spec.minimum, spec.maximum
    if not np.all(low <= high):  # Said so that it is true of NaN, too.
        raise misfit(
            f"{spec_text(spec, path)} has no values: its minimum is "
            f"{bound_text(low)}, its maximum {bound_text(high)}.",
            path,
        )
    shape = tuple(spec.shape.as_list())
    if not _broadcasts(low.shape, shape) or not _broadcasts(high.shape, shape):
        raise misfit(
            f"{spec_text(spec, path)} has bounds of shapes {low.shape} and "
            f"{high.shape}, which do not broadcast to its own.",
            path,
        )
    return low, high


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    # That they are compatible, TensorFlow did look at: the result may be larger only.
    return np.broadcast_shapes(shape, to) == to
