"""The numbers in an action, and the values that keys can choose: `ActionAxes`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.types import NestedArray, NestedSpec

__all__ = ["ActionAxes", "Axis"]

# With more choices than this, it is a quantity: one key lowers it, one raises it.
_MOST_CHOICES = 16


class Axis(NamedTuple):
    """Describes one number of an action.

    Attributes:
        label: Its name; "" if it is the only number.
        values: The values to choose from: all choices in ascending order, or the
            smallest, the middle and the largest value of a quantity.
        is_choice: Whether these are all values.
    """

    label: str
    values: tuple[float, ...]
    is_choice: bool


class ActionAxes:
    """Lists the numbers in an action.

    Attributes:
        axes: The numbers, in the order of the nest.

    Example:
        >>> parts = ActionAxes(BoundedArraySpec((2,), np.float32, -1.0, 1.0))
        >>> [axis.values for axis in parts.axes]
        [(-1.0, 0.0, 1.0), (-1.0, 0.0, 1.0)]
        >>> parts.action([1.0, -1.0])
        array([ 1., -1.], dtype=float32)
    """

    def __init__(self, spec: NestedSpec, most: int = 60) -> None:
        """Splits an action into numbers.

        Args:
            spec: The action's spec.
            most: The most choices of an action that consists of a single choice.

        Raises:
            ValueError: Keys cannot express the action.
        """
        self._structure = nest.Structure(spec)
        leaves = zip(self._structure.paths, self._structure.leaves, strict=True)
        pieces = [(path, _bounds(leaf, path), leaf) for path, leaf in leaves]
        count = sum(leaf.minimum.size for _, leaf, _ in pieces)
        if not count:
            raise ValueError("The action has no numbers, so there is nothing to press.")
        single = count == 1
        self.axes = tuple(
            axis
            for path, leaf, _ in pieces
            for axis in _axes(leaf, path, most if single else _MOST_CHOICES)
        )
        if single and not self.axes[0].is_choice and pieces[0][1].dtype.kind != "f":
            raise ValueError(
                f"The action is one of {_count(pieces[0][1])} numbers, and keys can "
                f"choose from {most}."
            )

    def action(self, values: Sequence[float]) -> NestedArray:
        """Builds an action from these numbers."""
        leaves, start = [], 0
        for spec in self._structure.leaves:
            size = int(np.prod(spec.shape))
            part = np.array(values[start : start + size], object)
            leaves.append(part.reshape(spec.shape).astype(spec.dtype))
            start += size
        return self._structure.unflatten(leaves)


class _Bounds(NamedTuple):
    """Holds the bounds of a leaf, one element per number."""

    minimum: Any
    maximum: Any
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def _bounds(spec: Any, path: str) -> _Bounds:
    kind = spec.dtype.kind if isinstance(spec, ArraySpec) else ""
    if kind not in ("b", "i", "u", "f"):
        place = f" at {path}" if path else ""
        raise ValueError(
            f"The action{place} is {spec!r:.80}, which keys cannot express: "
            "they choose numbers."
        )
    if kind == "b":
        low: Any = np.zeros(spec.shape, int)
        return _Bounds(low, low + 1, spec.dtype, spec.shape)
    limited = (
        spec
        if isinstance(spec, BoundedArraySpec)
        else BoundedArraySpec(spec.shape, spec.dtype)
    )
    low, high = (
        np.broadcast_to(bound, spec.shape)
        for bound in (limited.minimum, limited.maximum)
    )
    return _Bounds(low, high, spec.dtype, spec.shape)


def _axes(leaf: _Bounds, path: str, most: int) -> list[Axis]:
    axes = []
    for index in np.ndindex(leaf.shape):
        place = f"[{', '.join(map(str, index))}]" if index else ""
        low, high = leaf.minimum[index].item(), leaf.maximum[index].item()
        if leaf.dtype.kind != "f" and high - low < most:
            values: tuple[float, ...] = tuple(range(low, high + 1))
            axes.append(Axis(f"{path}{place}", values, is_choice=True))
        else:
            values = _low_middle_high(low, high, leaf.dtype.kind == "f")
            axes.append(Axis(f"{path}{place}", values, is_choice=False))
    return axes


def _low_middle_high(low: float, high: float, is_float: bool) -> tuple[float, ...]:
    # A missing limit, or the dtype's own, is too far from zero to play with.
    if high - low > 1e6:
        low, high = max(low, -1), min(high, 1)
    middle = 0.0 if low <= 0 <= high else (low + high) / 2
    return (low, middle, high) if is_float else (low, int(middle), high)


def _count(leaf: _Bounds) -> int:
    return int(leaf.maximum.item()) - int(leaf.minimum.item()) + 1
