"""Random actions for a batch: drawn before, so that drawing them is not measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from envkit import nest
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.sampling import sample_spec_nest
from envkit.types import NestedArray, NestedSpec

__all__ = ["random_actions"]

_BATCHES = 32
# No motor and no wheel is told such numbers.
_LARGE = 1e6


def random_actions(spec: NestedSpec, rows: int) -> Iterator[NestedArray]:
    """Returns actions for a batch, over and over."""
    rng = np.random.default_rng(0)
    moderate = nest.map_structure(_moderate, spec)
    return itertools.cycle(
        [sample_spec_nest(moderate, rng, (rows,)) for _ in range(_BATCHES)]
    )


def _moderate(spec: Any) -> Any:
    """Returns a spec whose values an environment can compute with."""
    if not isinstance(spec, ArraySpec) or spec.dtype.kind != "f":
        return spec
    low = np.maximum(getattr(spec, "minimum", -np.inf), -_LARGE)
    high = np.minimum(getattr(spec, "maximum", np.inf), _LARGE)
    if type(spec) is BoundedArraySpec and (high - low < _LARGE).all():
        return spec
    low, high = np.maximum(low, -1.0), np.minimum(high, 1.0)
    if (low > high).any():  # All that it may be is far from zero.
        return spec
    return BoundedArraySpec(spec.shape, spec.dtype, low, high)
