"""Checks batches of actions as a whole, and splits them by leaf: `ActionRows`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit import nest
from envkit._internal.text import counted
from envkit.errors import SpecError
from envkit.specs.arrays import ArraySpec, BoundedArraySpec, as_array, within
from envkit.specs.validation import check_fits, describe, flatten_as
from envkit.types import Array, NestedArray, NestedSpec

__all__ = [
    "ACCEPTED_KINDS",
    "ActionRows",
    "OwnActionRows",
    "action_rows",
]

_UNMOVED = "None of the environments has moved."
# The kinds of dtype accepted for each expected kind, because converting them loses
# nothing.
ACCEPTED_KINDS: dict[str, str] = {
    "b": "b",
    **dict.fromkeys("iu", "biu"),
    "f": "biuf",
    "c": "biufc",
}


class ActionRows:
    """Checks batches of actions against a spec.

    Example:
        >>> actions = ActionRows(BoundedArraySpec((), np.int32, 0, 1), 3, "step()")
        >>> actions.columns([0, 1, 1])
        [array([0, 1, 1])]
    """

    def __init__(self, spec: NestedSpec, rows: int, call: str) -> None:
        """Prepares to check actions of `rows` environments, for the call `call`."""
        self.structure = nest.Structure(spec)
        self._ranges = [_range(leaf) for leaf in self.structure.leaves]
        # Reading a spec's attributes takes longer than comparing them.
        self._kinds = [
            (leaf, leaf.dtype, leaf.shape, leaf.dtype.kind in "iu")
            for leaf in self.structure.leaves
        ]
        self._rows = rows
        self._subject = f"{call} was given an action that"

    def columns(
        self,
        action: NestedArray,
        *,
        rows: Sequence[int] | Array | None = None,
        ignored: Array | None = None,
        bounds: bool = True,
    ) -> list[Array]:
        """Returns one array per leaf; raises before any environment has stepped.

        The arrays may be the caller's own.

        Args:
            action: A batch of actions.
            rows: The rows they are for; `None` for one action per environment.
            ignored: A mask of rows whose action is not used.
            bounds: Whether integers must be within their bounds.
        """
        # Hot: called once per batch step.
        subject = self._subject
        leaves = flatten_as(self.structure, action, subject=subject, root="action")
        count = self._rows if rows is None else len(rows)
        return self.columns_of(leaves, count, ignored=ignored, bounds=bounds)

    def columns_of(
        self,
        leaves: Sequence[Any],
        count: int,
        *,
        ignored: Array | None = None,
        bounds: bool = True,
    ) -> list[Array]:
        """Does the work of `columns` for the leaves of actions for `count` rows."""
        # Hot: called once per batch step.
        columns = []
        for index, leaf in enumerate(leaves):
            spec, dtype, shape, has_bounds = self._kinds[index]
            if (
                type(leaf) is np.ndarray
                and leaf.dtype == dtype
                and leaf.shape == (count, *shape)
            ):
                column = leaf
            else:
                column = self._converted(leaf, index, spec, count)
            if bounds and has_bounds:
                self._check_bounds(column, index, spec, count, ignored)
            columns.append(column)
        return columns

    def _converted(self, leaf: Any, index: int, spec: ArraySpec, count: int) -> Array:
        kinds = ACCEPTED_KINDS.get(spec.dtype.kind, spec.dtype.kind)
        is_object = spec.dtype.hasobject
        column = _objects(leaf, spec, count) if is_object else as_array(leaf)
        if not is_object and column.dtype.kind not in kinds:
            # For other objects, the message describes the object.
            value: Any = leaf if column.dtype.hasobject else column
            self._refuse(value, index, spec, count)
        if column.shape != (count, *spec.shape):
            self._refuse_length(leaf, column, index, spec, count)
            self._refuse(column, index, spec, count)
        if _loses(column, spec.dtype):
            self._refuse(column, index, spec, count)
        return column

    def _check_bounds(
        self,
        column: Array,
        index: int,
        spec: ArraySpec,
        count: int,
        ignored: Array | None,
    ) -> None:
        """Raises for integers out of bounds, and for integers too large for the dtype.

        Floats may exceed their bounds: many policies do that on purpose, and
        environments clip.
        """
        if ignored is not None and ignored.any():
            column = column[~ignored]
            count = len(column)
        limits = self._ranges[index]
        # Hot: comparing arrays is most of the cost of a single row's step.
        is_one = limits is not None and column.size == 1
        if is_one and limits[0] <= column.item() <= limits[1]:  # type: ignore[index]  # there are
            return
        if isinstance(spec, BoundedArraySpec):
            low, high = spec.minimum, spec.maximum
        elif column.dtype == spec.dtype:
            return
        else:
            info = np.iinfo(spec.dtype)
            low, high = np.asarray(info.min), np.asarray(info.max)
        if not within(column, low, high):
            self._refuse(column, index, spec, count)

    def _refuse_length(
        self, leaf: Any, column: Array, index: int, spec: ArraySpec, count: int
    ) -> None:
        """Raises if the number of actions is wrong, and names it."""
        expected = (count, *spec.shape)
        if column.ndim != len(expected) or len(column) == count:
            return
        verb = "was" if len(column) == 1 else "were"
        raise SpecError.does_not_fit(
            self._subject,
            path=nest.join("action", self.structure.paths[index]),
            root="action",
            expected=repr(spec.replace(shape=expected)),
            got=describe(leaf),
            reason=f"{counted(len(column), 'action')} {verb} given for "
            f"{counted(count, 'environment')}.",
            note=_UNMOVED,
        )

    def _refuse(self, value: Any, index: int, spec: ArraySpec, count: int) -> None:
        is_number = spec.dtype.kind in "iufc"
        if is_number and isinstance(value, np.ndarray) and value.dtype.kind in "iu":
            # Any integers would do, so the message does not blame the dtype.
            fits = within(value, *_limits(spec.dtype))
            value = value.astype(spec.dtype) if fits else value
        check_fits(
            value,
            spec,
            subject=self._subject,
            root="action",
            path=self.structure.paths[index],
            outer_dims=(count,),
            context=_UNMOVED,
        )


class OwnActionRows(ActionRows):
    """Refuses actions outside their own row's bounds, for rows that differ.

    Example:
        >>> few, many = (BoundedArraySpec((), np.int32, 0, n) for n in (1, 4))
        >>> actions = OwnActionRows(many, [few, many], "step()")
        >>> actions.columns([1, 4])
        [array([1, 4])]
        >>> actions.columns([2, 4])
        Traceback (most recent call last):
        envkit.errors.SpecError: step() was given an action of row 0 that does not ...
    """

    def __init__(self, spec: NestedSpec, own: Sequence[NestedSpec], call: str) -> None:
        """Prepares to check actions of rows with these specs of their own."""
        super().__init__(spec, len(own), call)
        self._call = call
        by_leaf = zip(*[nest.flatten(each) for each in own], strict=True)
        self._own = list(by_leaf)
        self._bounds = [_stacked_bounds(specs) for specs in self._own]

    def columns(
        self,
        action: NestedArray,
        *,
        rows: Sequence[int] | Array | None = None,
        ignored: Array | None = None,
        bounds: bool = True,
    ) -> list[Array]:
        """Returns one array per leaf; raises before any environment has stepped.

        Takes the same arguments as `ActionRows.columns`.
        """
        columns = super().columns(action, rows=rows, ignored=ignored, bounds=bounds)
        if not bounds:
            return columns
        which = np.arange(self._rows) if rows is None else np.asarray(rows)
        for leaf, limits in enumerate(self._bounds):
            if limits is None:
                continue
            column = columns[leaf].astype(self.structure.leaves[leaf].dtype, copy=False)
            inside = (column >= limits[0][which]) & (column <= limits[1][which])
            outside = ~inside.reshape(len(column), -1).all(axis=1)
            if ignored is not None:
                outside &= ~ignored
            for place in np.flatnonzero(outside)[:1].tolist():
                self._refuse_own(column[place, ...], leaf, int(which[place]))
        return columns

    def _refuse_own(self, value: Array, leaf: int, row: int) -> None:
        raise SpecError.does_not_fit(
            f"{self._call} was given an action of row {row} that",
            path=nest.join("action", self.structure.paths[leaf]),
            root="action",
            expected=repr(self._own[leaf][row]),
            got=describe(value if value.ndim else value.item()),
            reason=f"That is the spec of row {row}; the bounds of the batch are the "
            "widest of all its rows.",
            note=_UNMOVED,
        )


def _stacked_bounds(specs: Sequence[Any]) -> tuple[Array, Array] | None:
    """Returns a leaf's bounds by row; `None` if all rows have the same."""
    if all(spec == specs[0] for spec in specs):
        return None
    bounded = [BoundedArraySpec.from_spec(spec) for spec in specs]
    low = [np.broadcast_to(spec.minimum, spec.shape) for spec in bounded]
    high = [np.broadcast_to(spec.maximum, spec.shape) for spec in bounded]
    return np.stack(low), np.stack(high)


def action_rows(spec: NestedSpec, own: Sequence[NestedSpec], call: str) -> ActionRows:
    """Returns the checker for a batch's actions.

    Args:
        spec: The batch's action spec.
        own: The action spec of each row.
        call: The name of the call that takes the actions.
    """
    if all(_equal(spec, each) for each in own):
        return ActionRows(spec, len(own), call)
    return OwnActionRows(spec, own, call)


def _equal(first: NestedSpec, second: NestedSpec) -> bool:
    return first is second or nest.flatten(first) == nest.flatten(second)


def _range(spec: Any) -> tuple[Any, Any] | None:
    """Returns the bounds as Python numbers, if one pair holds for all elements."""
    if not isinstance(spec, BoundedArraySpec) or spec.minimum.ndim or spec.maximum.ndim:
        return None
    return spec.minimum.item(), spec.maximum.item()


def _limits(dtype: np.dtype[Any]) -> tuple[Array, Array]:
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.asarray(info.min), np.asarray(info.max)
    return np.asarray(-np.inf), np.asarray(np.inf)


def _objects(leaf: Any, spec: ArraySpec, count: int) -> Array:
    """Returns an array of objects, one per row, whatever the objects are."""
    if isinstance(leaf, np.ndarray) and leaf.dtype == object:
        return leaf
    if spec.shape == () and hasattr(leaf, "__len__") and len(leaf) == count:
        column = np.empty(count, object)
        for row, value in enumerate(leaf):
            column[row] = value
        return column
    try:
        return np.array(leaf, object)  # as_array would turn all into text
    except ValueError:  # ragged
        return np.array(None)


def _loses(column: Array, dtype: np.dtype[Any]) -> bool:
    """Returns True if converting a column to a dtype would lose something."""
    if column.dtype == dtype:
        return False
    if dtype.kind in "iu":
        return not within(column, *_limits(dtype))
    if dtype.kind in "fc":
        # Finite numbers stay finite; that floats lose digits is accepted.
        with np.errstate(over="ignore"):
            return bool((np.isinf(column.astype(dtype)) & ~np.isinf(column)).any())
    if dtype.kind in "mM":
        return not np.can_cast(column.dtype, dtype, "safe")
    return dtype.kind in "SU" and _is_cut_off(column, dtype)


def _is_cut_off(column: Array, dtype: np.dtype[Any]) -> bool:
    """Returns True if a dtype would cut off the end of a text."""
    if dtype.itemsize == 0 or column.dtype.itemsize <= dtype.itemsize:
        return False
    width = dtype.itemsize // (4 if dtype.kind == "U" else 1)
    return bool((np.char.str_len(column) > width).any())
