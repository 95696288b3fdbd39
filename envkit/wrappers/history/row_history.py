"""`RowHistory`: the last values of arrays, for each row of a batch by itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.types import Array

__all__ = ["RowHistory", "concatenated_spec", "history_of", "stacked_spec", "with_zero"]

# Copying runs of so many elements takes longer than copying each in a loop of its own.
_FEW = 4


class RowHistory:
    """Keeps the last values of some arrays, the same number of them for each row.

    An array's history is a ring of places, and the newest value of every row is at the
    same place of it. One step of all rows then writes one place. When some rows stay,
    either they or those that move are turned by a place, whichever are fewer.

    Values are copied when they come and when they are asked for.

    Example:
        >>> history = RowHistory([ArraySpec((), np.int64)], 3, (2,))
        >>> history.push([np.array([1, 7])])
        >>> history.push([np.array([2, 8])], np.array([True, False]))
        >>> history.stacked([0])
        [array([[0, 1, 2],
               [0, 0, 7]])]
        >>> history.repeat(np.array([0]))
        >>> history.stacked([0])
        [array([[2, 2, 2],
               [0, 0, 7]])]
    """

    def __init__(
        self, specs: Iterable[ArraySpec], length: int, dims: tuple[int, ...]
    ) -> None:
        """Makes a history of zeros.

        Args:
            specs: What the arrays look like in one row.
            length: How many values are kept.
            dims: The size of the batch in a tuple, or `()` without one. Arrays without
                a batch are kept as those of one row.
        """
        self._dims = dims
        self._length = length
        self._newest = 0
        rows = dims or (1,)
        self._rings = [
            np.zeros((*rows, length, *spec.shape), spec.dtype) for spec in specs
        ]

    def push(self, values: Sequence[Array], rows: Array | None = None) -> None:
        """Adds a value of each array in the rows of a mask, or in all."""
        # Hot: called once per step.
        self._make_place(rows)
        newest = self._newest
        for ring, value in zip(self._rings, values, strict=True):
            if rows is None:
                ring[:, newest] = value
            else:
                ring[rows, newest] = value[rows]

    def clear(self, rows: Array | slice) -> None:
        """Makes everything zero in these rows."""
        for ring in self._rings:
            ring[rows] = np.zeros((), ring.dtype)  # a plain 0 would be the text "0"

    def repeat(self, rows: Array | slice) -> None:
        """Makes everything the newest value in these rows."""
        for ring in self._rings:
            ring[rows] = ring[rows, self._newest][:, np.newaxis]

    def stacked(self, axes: Iterable[int]) -> list[Array]:
        """Returns all values of each array along a new axis, the oldest first.

        Args:
            axes: Where the new axis of each array is, counted in a row from the front.
        """
        return [
            self._stack(ring, axis)
            for ring, axis in zip(self._rings, axes, strict=True)
        ]

    def _stack(self, ring: Array, axis: int) -> Array:
        # Hot: called once per step for each array. Two large pieces are faster than
        # many small ones, where the new axis allows it.
        length, after = self._length, self._newest + 1
        shape = ring.shape[2:]
        whole = (*self._dims, *shape[:axis], length, *shape[axis:])
        stack = np.empty((len(ring), *whole[len(self._dims) :]), ring.dtype)
        if axis == 0:
            stack[:, : length - after] = ring[:, after:]
            stack[:, length - after :] = ring[:, :after]
            return stack.reshape(whole)
        # The sizes before and after the new axis.
        outer, inner = math.prod(shape[:axis]), math.prod(shape[axis:])
        places = stack.reshape(len(ring), outer, length, inner)
        values = ring.reshape(len(ring), length, outer, inner)
        # A few elements at a time are copied one by one; better each one everywhere.
        parts: Iterable[Any] = range(inner) if inner <= _FEW else [slice(None)]
        for part in parts:
            for place in range(length):
                places[:, :, place, part] = values[:, (after + place) % length, :, part]
        return stack.reshape(whole)

    def oldest(self) -> list[Array]:
        """Returns the oldest value of each array."""
        place = (self._newest + 1) % self._length
        return [
            ring[:, place].copy().reshape((*self._dims, *ring.shape[2:]))
            for ring in self._rings
        ]

    def save(self) -> dict[str, Any]:
        """Returns the state, which later steps change."""
        return {"newest": self._newest, "rings": self._rings}

    def fits(self, saved: Any) -> bool:
        """Says whether a state is of a history like this one."""
        return _kinds_of(saved["rings"]) == _kinds_of(self._rings)

    def restore(self, saved: Any) -> None:
        """Takes over a state; it belongs to this history from then on."""
        self._newest = saved["newest"]
        # Pickled arrays come back in native byte order.
        self._rings = [
            ring.astype(own.dtype, copy=False)
            for ring, own in zip(saved["rings"], self._rings, strict=True)
        ]

    def _make_place(self, rows: Array | None) -> None:
        """Sees to it that the newest place of the rows is their oldest value's."""
        next_place = (self._newest + 1) % self._length
        if rows is None:
            self._newest = next_place
            return
        most_move = 2 * np.count_nonzero(rows) > rows.size
        if most_move:
            self._newest = next_place
        turned = (~rows if most_move else rows).nonzero()[0]
        by = 1 if most_move else -1
        for ring in self._rings:
            ring[turned] = np.roll(ring[turned], by, axis=1)


def history_of(
    wrapper: Any,
    what: str,
    specs: Iterable[ArraySpec],
    length: int,
    dims: tuple[int, ...],
) -> RowHistory:
    """Makes a wrapper's history, or says that it would be too long.

    Args:
        wrapper: The wrapper.
        what: What is kept, in the plural.
        specs: What the arrays look like in one row.
        length: How many values are kept.
        dims: The size of the batch in a tuple, or `()` without one.
    """
    try:
        return RowHistory(specs, length, dims)
    except (MemoryError, OverflowError, ValueError) as error:
        raise ValueError(
            f"{type(wrapper).__name__} cannot keep {length} {what} of each row: there "
            "is no memory for an array as large as that."
        ) from error


def _kinds_of(arrays: Iterable[Array]) -> list[Any]:
    """Returns the shapes and dtypes of arrays, in whatever byte order they are."""
    return [(array.shape, array.dtype.newbyteorder("=")) for array in arrays]


def with_zero(spec: ArraySpec) -> ArraySpec:
    """Returns a spec whose bounds hold zeros, too.

    Example:
        >>> with_zero(BoundedArraySpec((), np.int64, 1, 3))
        BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=3)
    """
    if not isinstance(spec, BoundedArraySpec):
        return spec
    # Of the same dtype, or NumPy before 2 makes floats of large integers.
    zero = np.zeros((), spec.dtype)
    return spec.replace(
        minimum=np.minimum(spec.minimum, zero), maximum=np.maximum(spec.maximum, zero)
    )


def stacked_spec(spec: ArraySpec, count: int, axis: int) -> ArraySpec:
    """Returns the spec of `count` arrays along a new axis.

    Example:
        >>> stacked_spec(BoundedArraySpec((2,), np.int64, 0, [4, 5]), 3, 1)
        BoundedArraySpec(shape=(2, 3), dtype=int64, minimum=0, maximum=[[4], [5]])
    """
    shape = (*spec.shape[:axis], count, *spec.shape[axis:])
    return _reshaped(spec, shape, lambda bound: np.expand_dims(bound, axis))


def concatenated_spec(spec: ArraySpec, count: int, axis: int) -> ArraySpec:
    """Returns the spec of `count` arrays one after the other along an axis.

    Example:
        >>> concatenated_spec(BoundedArraySpec((2,), np.int64, 0, [4, 5]), 2, 0)
        BoundedArraySpec(shape=(4,), dtype=int64, minimum=0, maximum=[4, 5, 4, 5])
    """
    shape = list(spec.shape)
    shape[axis] *= count

    def repeated(bound: Array) -> Array:
        if bound.shape[axis] == 1:
            return bound  # It is the same along the whole axis.
        return np.concatenate([bound] * count, axis)

    return _reshaped(spec, shape, repeated)


def _reshaped(spec: ArraySpec, shape: Sequence[int], bound_of: Any) -> ArraySpec:
    if not isinstance(spec, BoundedArraySpec):
        return spec.replace(shape=shape)

    def moved(bound: Array) -> Array:
        if not bound.ndim:
            return bound
        missing = len(spec.shape) - bound.ndim
        moved: Array = bound_of(bound.reshape((1,) * missing + bound.shape))
        return moved

    return spec.replace(
        shape=shape, minimum=moved(spec.minimum), maximum=moved(spec.maximum)
    )
