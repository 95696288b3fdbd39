"""Type aliases for nests, specs, seeds and constructors."""

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

# Leaves are user data: arrays, numbers, tensors. Python's type system cannot express
# "any nest of these", so both nest types stay open.
NestedArray: TypeAlias = Any
NestedSpec: TypeAlias = Any

Array: TypeAlias = "npt.NDArray[Any]"
Shape: TypeAlias = Sequence[int]
Seed: TypeAlias = int | Sequence[int] | None
# The seeds of a reset; in a list, None leaves a row's stream as it is.
ResetSeed: TypeAlias = int | Sequence[int | None] | None
# A dictionary for all rows, or one per row.
Options: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None
EnvConstructor: TypeAlias = Callable[[], Any]
RandomSource: TypeAlias = "np.random.Generator | np.random.RandomState"
