"""The names that signatures use for nests, specs, seeds and constructors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "Array",
    "EnvConstructor",
    "NestedArray",
    "NestedSpec",
    "Options",
    "RandomSource",
    "ResetSeed",
    "Seed",
    "Shape",
]

# A leaf is whatever the user's data is: arrays, numbers, tensors. Python's type
# system cannot say "any nest of these", so the two nests stay open.
NestedArray: TypeAlias = Any
NestedSpec: TypeAlias = Any

Array: TypeAlias = "npt.NDArray[Any]"
Shape: TypeAlias = Sequence[int]
Seed: TypeAlias = int | Sequence[int] | None
# What a reset with a seed is given: in a list, None is for a row that goes on.
ResetSeed: TypeAlias = int | Sequence[int | None] | None
# A dictionary for all rows, or one for each.
Options: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None
EnvConstructor: TypeAlias = Callable[[], Any]
RandomSource: TypeAlias = "np.random.Generator | np.random.RandomState"
