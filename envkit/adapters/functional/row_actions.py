"""`RowActions`: actions of all rows as the compiled functions take them."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.action_rows import ActionRows
from envkit.adapters.spaces.values import (
    Converter,
    Leaf,
    array_leaf,
    bounded_leaf,
    map_specs,
)
from envkit.specs.array_spec import ArraySpec
from envkit.types import Array, NestedArray, NestedSpec

__all__ = ["RowActions"]


class RowActions:
    """Checks actions, and gives them the dtypes of the specs.

    Attributes:
        none: What those get that begin an episode: zeros for all rows.

    Example:
        >>> actions = RowActions(ArraySpec((), np.int32), 2, "step()")
        >>> actions.of_rows([1, 2], ignored=np.zeros(2, bool))
        array([1, 2], dtype=int32)
        >>> actions.of_one(3)
        array([3], dtype=int32)
    """

    def __init__(self, spec: NestedSpec, rows: int, call: str) -> None:
        """Prepares for the actions of `rows` rows, which `call` was given."""
        self._rows = ActionRows(spec, rows, call)
        self._structure = self._rows.structure
        self._spec = spec
        self._convert = Converter(
            spec,
            map_specs(_leaf, spec),
            subject=f"{call} was given an action that",
            root="action",
        )
        self.none: Any = self._structure.map(lambda leaf: _zeros(leaf, rows), spec)

    @property
    def example(self) -> Any:
        """An action of one row: zeros."""
        return self._structure.map(_zeros, self._spec)

    def of_rows(self, action: NestedArray, ignored: Array) -> Any:
        """Returns the actions of all rows, or raises before anything has moved."""
        # Hot: called once per batch step.
        columns = self._rows.columns(action, ignored=ignored)
        # That of an ignored row may be anything, so it may be too large for its dtype.
        return self._structure.unflatten(
            [
                column if column.dtype == spec.dtype else column.astype(spec.dtype)
                for column, spec in zip(columns, self._structure.leaves, strict=True)
            ]
        )

    def of_one(self, action: NestedArray) -> Any:
        """Returns the action of a single environment, with a dimension of rows."""
        return self._structure.map(_with_row, self._convert(action))


def _leaf(spec: ArraySpec) -> Leaf:
    # Beyond the bounds of a float many policies go on purpose, and environments clip.
    return bounded_leaf(spec) if spec.dtype.kind in "iu" else array_leaf(spec)


def _zeros(spec: ArraySpec, *dims: int) -> Array:
    return np.zeros((*dims, *spec.shape), spec.dtype)


def _with_row(array: Array) -> Array:
    return array[np.newaxis]
