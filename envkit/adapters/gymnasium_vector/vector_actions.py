"""`VectorActions`: batches of actions as Gymnasium's vector environments take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from envkit.action_rows import ActionRows
from envkit.adapters.spaces.members import to_members
from envkit.arrays import PythonNumbers
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.bounds import within
from envkit.specs.text_spec import TextSpec
from envkit.specs.validation import check_fits
from envkit.types import Array, NestedArray, NestedSpec

__all__ = ["VectorActions"]

_CALL = "GymnasiumVectorWrapper.step()"
_INTEGER = np.dtype(np.int64)
# So many choices are not kept in a table.
_MANY = 1 << 16


class VectorActions:
    """Checks a batch of actions, and makes a member of a batched space of it.

    Example:
        >>> from gymnasium import spaces
        >>> spec = BoundedArraySpec((), np.int64, 0, 2)
        >>> VectorActions(spaces.Discrete(3), spec, rows=2).members([0, 2])
        array([0, 2])
    """

    def __init__(self, space: Any, spec: NestedSpec, rows: int) -> None:
        """Prepares.

        Args:
            space: The space of one row's action.
            spec: Its specs.
            rows: How many rows there are.
        """
        self._rows = rows
        self._columns = ActionRows(spec, rows, _CALL)
        self._structure = self._columns.structure
        self._to_members: Callable[[Any], Any] = to_members(space, spec)
        self._choices = _choices(spec)
        self._shape = (rows,)

    def members(self, action: NestedArray, unused: Sequence[int] | Array = ()) -> Any:
        """Returns the actions in arrays of their own, or raises.

        Args:
            action: A batch of actions.
            unused: The rows whose action is not used. There the vector environment gets
                any that fits.
        """
        # Hot: called once per batch step. The first case is what nearly all have. To
        # look choices up takes a fifth of the time that comparing them takes; those
        # below 0 are counted from the end and come back as others.
        if (
            self._choices is not None
            and type(action) is np.ndarray
            and action.dtype is _INTEGER
            and action.shape == self._shape
        ):
            try:
                chosen = self._choices[action]
                if chosen.tobytes() == action.tobytes():
                    return chosen
            except IndexError:
                pass  # The next lines say which.
        ignored = None
        if len(unused):
            ignored = np.zeros(self._rows, bool)
            ignored[unused] = True
        columns = self._columns.columns(action, ignored=ignored)
        if ignored is not None:
            columns = [
                self._without_ignored(*pair, ignored)
                for pair in zip(columns, self._structure.leaves, strict=True)
            ]
        for index, column in enumerate(columns):
            self._check_further(index, column, ignored)
        own = [
            _own(*pair) for pair in zip(columns, self._structure.leaves, strict=True)
        ]
        return self._to_members(self._structure.unflatten(own))

    def _without_ignored(self, column: Array, spec: ArraySpec, ignored: Array) -> Array:
        """Replaces the actions of rows that begin an episode by what fits."""
        if not isinstance(spec, BoundedArraySpec):
            return column
        if spec.keeps_floats:
            column = column.copy()
            column[ignored] = np.clip(0, spec.minimum, spec.maximum)
            return column
        where = ignored.reshape(-1, *[1] * len(spec.shape))
        return np.where(where, spec.minimum, column)

    def _check_further(self, index: int, column: Array, ignored: Array | None) -> None:
        """Looks at what `ActionRows` leaves to environments: bounds of floats, text."""
        spec = self._structure.leaves[index]
        if isinstance(spec, BoundedArraySpec) and spec.dtype.kind == "f":
            if within(column, spec.minimum, spec.maximum):
                return
        elif not isinstance(spec, TextSpec):
            return
        column = column if ignored is None else column[~ignored]
        check_fits(
            column.astype(spec.dtype),
            spec,
            subject=f"{_CALL} was given an action that",
            root="action",
            path=self._structure.paths[index],
            outer_dims=column.shape[:1],
        )


def _own(column: Array, spec: ArraySpec) -> Any:
    """Returns a copy of a column, as a vector environment takes it."""
    if type(column) is PythonNumbers:
        return column.tolist()
    return np.array(column, None if spec.keeps_floats else spec.dtype)


def _choices(spec: NestedSpec) -> Array | None:
    """Returns the choices of which an action is one; `None` if it is something else."""
    is_one = isinstance(spec, BoundedArraySpec) and spec.shape == ()
    if is_one and spec.dtype == _INTEGER and spec.minimum == 0 <= spec.maximum < _MANY:
        return np.arange(int(spec.maximum) + 1, dtype=_INTEGER)
    return None
