"""`GivenActions`: takes the actions a wrapper is given apart, or says why not."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from envkit import nest
from envkit.action_rows import ACCEPTED_KINDS
from envkit.arrays import as_array
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.bounds import within
from envkit.specs.validation import check_fits, describe, flatten_as
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wrappers.actions.nearest_bounds import nearest_within
from envkit.wrappers.fresh_nests import fresh_nest
from envkit.wrappers.rows import beside

__all__ = ["GivenActions", "Ignored"]

# Says in which rows the action is not used. It is asked only where one does not fit.
Ignored: TypeAlias = Callable[[], Array]


class GivenActions:
    """What actions must look like, those of one environment or of all rows of a batch.

    Lists, numbers, and arrays of another dtype will do where nothing is lost. Integers
    have to be within their bounds. Beyond those of floating numbers many policies go on
    purpose, and environments clip what they do.

    Attributes:
        structure: The structure of one row's action, whose leaves are specs.

    Example:
        >>> spec = {"gear": BoundedArraySpec((), np.int64, 1, 3)}
        >>> actions = GivenActions("Car.step() was given an action", spec, (2,))
        >>> actions.leaves({"gear": [3, 1]}, ignored=lambda: np.zeros(2, bool))
        [array([3, 1])]
        >>> actions.leaves({"gear": [3, 0]}, ignored=lambda: np.array([False, True]))
        [array([3, 1])]
    """

    def __init__(
        self,
        subject: str,
        spec: NestedSpec,
        dims: tuple[int, ...],
        *,
        bounds: bool = True,
    ) -> None:
        """Prepares for actions.

        Args:
            subject: How a sentence about a wrong one begins.
            spec: The specs of one row's action.
            dims: The dimensions in front of every array: none, or that of the rows.
            bounds: Whether to look whether integers are within their bounds.
        """
        self._places = [
            _place(path, leaf, dims, bounds)
            for path, leaf in nest.flatten_with_paths(spec)
        ]
        # Of another nest, for whoever made the other one may change it.
        self.structure = nest.Structure(fresh_nest(spec))
        self._subject = subject
        self._dims = dims
        self._unmoved = (
            "None of the rows has moved." if dims else "The environment has not moved."
        )

    @property
    def spec(self) -> NestedSpec:
        """The specs of one row's action, in a nest of their own."""
        return self.structure.unflatten(self.structure.leaves)

    def leaves(self, action: NestedArray, ignored: Ignored) -> list[Array]:
        """Returns an array of exactly its spec's shape and dtype for each leaf.

        They may be the caller's own arrays. What an ignored row has out of bounds is
        replaced by something within them.
        """
        columns = self.columns(action)
        return [
            self.settled(index, column, ignored) for index, column in enumerate(columns)
        ]

    def columns(self, action: NestedArray) -> list[Array]:
        """Returns an array of the right shape, and kind of numbers, for each leaf."""
        # Hot: called once per step.
        leaves = flatten_as(
            self.structure, action, subject=f"{self._subject} that", root="action"
        )
        return [
            leaf
            if type(leaf) is np.ndarray
            and leaf.dtype == place.spec.dtype
            and leaf.shape == place.shape
            else self._converted(leaf, place)
            for leaf, place in zip(leaves, self._places, strict=True)
        ]

    def settled(self, index: int, column: Array, ignored: Ignored) -> Array:
        """Brings one leaf of the right shape to its dtype, within the bounds of that.

        Floating numbers become integers by losing their fractions.
        """
        # Hot: called once per step and leaf.
        place = self._places[index]
        dtype = place.spec.dtype
        if dtype.kind in "iu":
            return self._settled_integers(column, place, ignored)
        # Of objects nothing is known, not even that they are an array.
        if dtype.hasobject or column.dtype == dtype:
            return column
        with np.errstate(over="ignore"):
            converted = column.astype(dtype)
        if dtype.kind not in "fc":
            return converted
        # That digits get lost is what floats are about, but what is finite stays so.
        lost = np.isinf(converted) & ~np.isinf(column)
        if not lost.any():
            return converted
        self._check_ignored(lost, column, place, ignored)
        return np.where(lost, dtype.type(0), converted)

    def _settled_integers(
        self, column: Array, place: _Place, ignored: Ignored
    ) -> Array:
        dtype = place.spec.dtype
        whole, low, high = column, place.low, place.high
        if column.dtype.kind == "f":
            low, high = place.float_low, place.float_high
            whole = np.asarray(np.trunc(column.astype(low.dtype)))
        elif column.dtype == dtype and not place.has_bounds:
            return column
        # Hot: what comparing arrays costs is most of a step of a single row.
        is_one = place.limits is not None and column.size == 1
        if is_one and place.limits[0] <= whole.item() <= place.limits[1]:  # type: ignore[index]  # there are
            return whole.astype(dtype, copy=False)
        if within(whole, low, high):
            return whole.astype(dtype, copy=False)
        outside = ~((whole >= low) & (whole <= high))  # where there is NaN, too
        self._check_ignored(outside, column, place, ignored)
        with np.errstate(invalid="ignore"):
            return np.where(outside, place.low, whole.astype(dtype))

    def _converted(self, leaf: Any, place: _Place) -> Array:
        """Makes an array of a leaf; it keeps the dtype it gets."""
        dtype = place.spec.dtype
        if dtype.hasobject:
            return leaf  # type: ignore[no-any-return]  # it may be anything
        column = as_array(leaf)
        kinds = ACCEPTED_KINDS.get(dtype.kind, "")
        is_of_kind = (
            column.dtype.kind in kinds
            if kinds
            else np.can_cast(column.dtype, dtype, "safe")
        )
        if not is_of_kind or column.shape != place.shape:
            self._refuse(leaf, column, place, is_of_kind)
        return column

    def _refuse(
        self, leaf: Any, column: Array, place: _Place, is_of_kind: bool
    ) -> None:
        """Raises the error for a leaf of another shape or kind."""
        spec = place.spec
        subject = f"{self._subject} that"
        value: Any = column
        if column.dtype.hasobject or isinstance(leaf, numbers.Number | np.generic):
            value = leaf  # A sentence can say what it is.
        elif is_of_kind:
            # Any number of the kind will do, so the dtype is not what is wrong.
            with np.errstate(over="ignore"):
                value = column.astype(spec.dtype)
        if column.shape != place.shape and not column.dtype.hasobject:
            subject = f"{self._subject} of incorrect shape that"
        check_fits(
            value,
            spec,
            subject=subject,
            root="action",
            path=place.path,
            outer_dims=self._dims,
            context=self._unmoved,
        )

    def _check_ignored(
        self, wrong: Array, column: Array, place: _Place, ignored: Ignored
    ) -> None:
        """Refuses values that are wrong unless they are in rows that are ignored."""
        wrong = wrong & ~beside(ignored(), wrong)
        if not wrong.any():
            return
        first = tuple(np.argwhere(wrong)[0].tolist())
        value = column[first]
        row = f" of row {first[0]}" if self._dims else ""
        within_row = first[len(self._dims) :]
        at = f" at index {within_row}" if within_row else ""
        count = int(np.count_nonzero(wrong))
        others = f", and {count - 1} more of {wrong.size} do not fit"
        raise SpecError.does_not_fit(
            f"{self._subject} that",
            path=nest.join("action", place.path),
            root="action",
            expected=repr(place.spec.replace(shape=place.shape)),
            got=describe(column),
            reason=f"The value{row}{at} is {value!s}, {_fault(value, first, place)}"
            f"{others if count > 1 else ''}.",
            note=self._unmoved,
        )


class _Place(NamedTuple):
    """Where a leaf goes: what is asked of it, bounds of integers in several forms.

    Attributes:
        path: The place in the nest.
        spec: The spec of one row.
        shape: The shape of all rows.
        has_bounds: Whether it is one of integers whose bounds are looked at.
        low: The smallest allowed values.
        high: The largest allowed values.
        limits: Both as Python's numbers, if one holds for all elements.
        float_low: The smallest allowed values as floating numbers.
        float_high: The largest allowed values as floating numbers.
    """

    path: str
    spec: ArraySpec
    shape: tuple[int, ...]
    has_bounds: bool = False
    low: Any = None
    high: Any = None
    limits: tuple[Any, Any] | None = None
    float_low: Any = None
    float_high: Any = None


def _place(path: str, spec: Any, dims: tuple[int, ...], bounds: bool) -> _Place:
    if not isinstance(spec, ArraySpec):
        at = f" at {path}" if path else ""
        raise TypeError(f"The action spec{at} is {describe(spec)}, not an ArraySpec.")
    place = _Place(path, spec, (*dims, *spec.shape))
    if spec.dtype.kind not in "iu":
        return place
    bounded = BoundedArraySpec((), spec.dtype)
    if bounds and isinstance(spec, BoundedArraySpec):
        bounded = spec
    low, high = bounded.minimum, bounded.maximum
    is_one = not low.ndim and not high.ndim
    return place._replace(
        has_bounds=bounded is spec,
        low=low,
        high=high,
        limits=(low.item(), high.item()) if is_one else None,
        float_low=nearest_within(low, np.dtype(np.float64), math.inf),
        float_high=nearest_within(high, np.dtype(np.float64), -math.inf),
    )


def _fault(value: Any, index: tuple[int, ...], place: _Place) -> str:
    """Says what is wrong with a number."""
    if place.low is None:
        return f"too large for {place.spec.dtype}"
    if np.isnan(value):
        return "which is no integer"
    low = np.broadcast_to(place.low, place.shape)[index]
    high = np.broadcast_to(place.high, place.shape)[index]
    if place.has_bounds:
        return (
            f"above the maximum {high}" if value > high else f"below the minimum {low}"
        )
    return f"too {'large' if value > high else 'small'} for {place.spec.dtype}"
