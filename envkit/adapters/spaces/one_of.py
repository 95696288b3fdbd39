"""`OneOf`: a value of one of several specs, as arrays that all are there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from envkit.adapters.spaces.values import map_specs
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.text_spec import TextSpec
from envkit.types import Array, NestedArray, NestedSpec

__all__ = ["OneOf", "neutral_value"]


class OneOf(NamedTuple):
    """A union: a number that says which branch counts, and a value for every branch.

    As a nest of specs it describes such values. Those of the branches that do not
    count are there for the sake of the arrays, and mean nothing.

    Attributes:
        tag: Which branch counts, from 0.
        branches: One value for each branch.
    """

    tag: Any
    branches: tuple[Any, ...]


def neutral_value(spec: NestedSpec) -> NestedArray:
    """Makes a value that says nothing: zeros, or what is nearest to them and fits.

    Example:
        >>> from envkit.specs import BoundedArraySpec
        >>> neutral_value(
        ...     (ArraySpec((2,), np.float32), BoundedArraySpec((), np.int64, 5, 9))
        ... )
        (array([0., 0.], dtype=float32), array(5))
    """
    return map_specs(_neutral_leaf, spec)


def _neutral_leaf(spec: ArraySpec) -> Array:
    zeros = np.zeros(spec.shape, spec.dtype)
    if isinstance(spec, BoundedArraySpec):
        return np.asarray(np.clip(zeros, spec.minimum, spec.maximum), spec.dtype)
    if isinstance(spec, TextSpec) and spec.min_length:
        zeros[...] = (spec.letters or " ")[0] * spec.min_length
    return zeros
