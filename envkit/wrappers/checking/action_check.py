"""`ActionCheck`: whether actions fit their spec, and stay as they were given."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import nest
from envkit.action_rows import ACCEPTED_KINDS
from envkit.arrays import as_array
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.bounds import within
from envkit.specs.validation import check_fits, flatten_as
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wrappers.checking.faults import fault, same_values, unlike
from envkit.wrappers.rows import beside

__all__ = ["ActionCheck"]


class ActionCheck:
    """Looks at each action before and after the step that it is for.

    What holds an action without loss passes: integers of any dtype, lists, Python's
    numbers. So do floats beyond their bounds, which are only doubtful: many policies
    go there on purpose, and many environments clip what they do.

    Example:
        >>> spec = BoundedArraySpec((), np.float32, -1.0, 1.0)
        >>> check = ActionCheck(spec, (), "Car")
        >>> check.doubts(check.look(0.5, np.array(False)))
        {}
    """

    def __init__(self, spec: NestedSpec, dims: tuple[int, ...], name: str) -> None:
        """Prepares for the actions of an environment, or batch, called `name`."""
        self._structure = nest.Structure(spec)
        self._dims = dims
        self._call = f"{name}.step()"
        self._subject = f"{self._call} was given an action that"
        self._unmoved = (
            "None of the rows has moved." if dims else "The environment has not moved."
        )
        # Of floats, all but NaN and infinities.
        self._needed = [_without_bounds(leaf) for leaf in self._structure.leaves]

    def look(self, action: NestedArray, ignored: Array) -> list[Any]:
        """Raises unless an action fits; returns its leaves as the spec has them.

        Args:
            action: An action, or one for each row.
            ignored: In which rows it is not used.
        """
        leaves = flatten_as(
            self._structure, action, subject=self._subject, root="action"
        )
        columns = []
        for index, leaf in enumerate(leaves):
            spec = self._structure.leaves[index]
            column = _without(ignored, _as_spec(leaf, spec), spec)
            # First as the spec says it, which the reader knows.
            needed = self._needed[index]
            if not _fits(column, needed, self._dims):
                self._check(column, index, spec)
                self._check(column, index, needed)
            columns.append(column)
        return columns

    def doubts(self, columns: list[Any]) -> dict[str, str]:
        """Returns what is doubtful about an action, by the place."""
        found = {}
        for index, column in enumerate(columns):
            spec = self._structure.leaves[index]
            if not _fits(column, spec, self._dims):
                try:
                    self._check(column, index, spec, context="")
                except SpecError as error:
                    found[error.path] = (
                        f"{error}\n\nMany environments clip such actions, and some do "
                        "not. np.clip does it for sure."
                    )
        return found

    def taken(self, action: NestedArray) -> list[Any]:
        """Returns copies of the arrays of an action, for `check_untouched`."""
        return [
            leaf.copy() if isinstance(leaf, np.ndarray) else None
            for leaf in self._structure.flatten(action)
        ]

    def check_untouched(self, action: NestedArray, copies: list[Any]) -> None:
        """Raises if the environment has written into the action."""
        leaves = self._structure.flatten(action)
        for index, (leaf, copy) in enumerate(zip(leaves, copies, strict=True)):
            if copy is not None and not same_values(copy, leaf):
                path = nest.join("action", self._structure.paths[index])
                given, after = unlike(copy, leaf)
                raise fault(
                    f"{self._call} changed the action it was given.",
                    [("given", f"{path} = {given}"), ("after", f"{path} = {after}")],
                    "The action belongs to the caller, who may store it. Copy it "
                    "before changing it: np.clip(action, low, high) makes a new array.",
                )

    def check_separate(
        self, action: NestedArray, returned: list[tuple[str, Array]]
    ) -> None:
        """Raises if something that was returned is the action's own memory."""
        leaves = self._structure.flatten(action)
        for index, leaf in enumerate(leaves):
            if not isinstance(leaf, np.ndarray):
                continue
            for path, array in returned:
                if np.shares_memory(leaf, array):
                    place = nest.join("action", self._structure.paths[index])
                    raise fault(
                        f"{self._call} returned the action it was given: {path} and "
                        f"{place} share their memory.",
                        [
                            ("expected", "arrays that belong to the caller alone"),
                            ("got", f"{path} in the memory of {place}"),
                        ],
                        "The next action may be written into the same array. Return a "
                        "copy: np.array(action).",
                    )

    def _check(
        self, column: Any, index: int, spec: ArraySpec, context: str | None = None
    ) -> None:
        check_fits(
            column,
            spec,
            subject=self._subject,
            root="action",
            path=self._structure.paths[index],
            outer_dims=self._dims,
            context=self._unmoved if context is None else context,
        )


def _without_bounds(spec: ArraySpec) -> ArraySpec:
    if spec.dtype.kind != "f":
        return spec
    return BoundedArraySpec(spec.shape, spec.dtype, name=spec.name)


def _fits(value: Any, spec: ArraySpec, dims: tuple[int, ...]) -> bool:
    """Says whether an array has the shape, dtype and bounds of a spec."""
    return (
        isinstance(value, np.ndarray)
        and value.shape == dims + spec.shape
        and value.dtype == spec.dtype
        and (
            not isinstance(spec, BoundedArraySpec)
            or within(value, spec.minimum, spec.maximum)
        )
    )


def _as_spec(leaf: Any, spec: ArraySpec) -> Any:
    """Returns an array of the spec's dtype, if that loses nothing; else what came."""
    dtype = spec.dtype
    array = as_array(leaf)
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in ACCEPTED_KINDS.get(dtype.kind, dtype.kind):
        # Of what is no array of numbers, a sentence says more about the original.
        return leaf
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        holds = within(array, np.asarray(info.min), np.asarray(info.max))
    elif dtype.kind in "fc":
        # What is finite stays so; that digits get lost is what floats are about.
        with np.errstate(over="ignore"):
            infinite = np.isinf(array.astype(dtype)) & ~np.isinf(array)
        holds = not infinite.any()
    else:
        holds = array.dtype.itemsize <= dtype.itemsize
    return array.astype(dtype) if holds else array


def _without(ignored: Array, column: Any, spec: ArraySpec) -> Any:
    """Puts something that fits where an action is not used."""
    if not ignored.any() or not isinstance(column, np.ndarray):
        return column
    if column.shape != ignored.shape + spec.shape:
        return column
    filler = spec.minimum if isinstance(spec, BoundedArraySpec) else spec.dtype.type()
    return np.where(beside(ignored, column), filler, column).astype(column.dtype)
