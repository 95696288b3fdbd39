"""The names that signatures use for nests, specs, seeds and constructors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "Array",
    "EnvConstructor",
    "NestedArray",
    "NestedSpec",
    "RandomSource",
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
EnvConstructor: TypeAlias = Callable[[], Any]
RandomSource: TypeAlias = "np.random.Generator | np.random.RandomState"
