"""Packing the leaves of a nest, one after another, into one vector."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.types import Array
from envkit.wrappers.observations.leaf_specs import known_bounds

__all__ = ["Packing"]


class Packing:
    """Puts leaves one after another into a vector, for each row of a batch.

    Attributes:
        spec: What the vector looks like. It has bounds if every leaf has.

    Example:
        >>> leaves = [ArraySpec((2, 2), np.uint8), ArraySpec((), np.uint8)]
        >>> packing = Packing(leaves, (3,), np.uint8)
        >>> packing.spec
        ArraySpec(shape=(5,), dtype=uint8)
        >>> packing.pack([np.zeros((3, 2, 2), np.uint8), np.ones(3, np.uint8)]).shape
        (3, 5)
    """

    __slots__ = ("_shapes", "spec")

    def __init__(
        self,
        specs: Sequence[ArraySpec],
        dims: tuple[int, ...],
        dtype: npt.DTypeLike,
        name: str | None = None,
    ) -> None:
        """Prepares for leaves with the dimensions `dims` before those of their specs.

        Args:
            specs: The specs of the leaves, in order; there is at least one.
            dims: The dimension of the rows, or nothing.
            dtype: What the vector consists of; every leaf has to fit into it.
            name: The name of the vector.
        """
        sizes = [math.prod(spec.shape) for spec in specs]
        self._shapes = [(*dims, size) for size in sizes]
        self.spec = _vector(specs, ArraySpec((sum(sizes),), dtype, name))

    def pack(self, leaves: Sequence[Any]) -> Array:
        """Returns a new array of the leaves' elements, each leaf in row-major order."""
        # Hot: called once per step.
        parts = [
            np.reshape(leaf, shape)
            for leaf, shape in zip(leaves, self._shapes, strict=True)
        ]
        return np.concatenate(parts, axis=-1, dtype=self.spec.dtype)


def _vector(specs: Sequence[ArraySpec], plain: ArraySpec) -> ArraySpec:
    """Adds bounds to the spec of a vector, if they are known of all its elements."""
    if plain.dtype.kind not in "iuf":
        return plain
    lows, highs = [], []
    for spec in specs:
        bounds = known_bounds(spec)
        # Without bounds an element may even be NaN, which no bounds contain.
        if bounds is None:
            return plain
        low, high = (np.broadcast_to(bound, spec.shape).ravel() for bound in bounds)
        lows.append(low.astype(plain.dtype))
        highs.append(high.astype(plain.dtype))
    return BoundedArraySpec(
        plain.shape,
        plain.dtype,
        np.concatenate(lows),
        np.concatenate(highs),
        plain.name,
    )
