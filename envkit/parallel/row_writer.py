"""`RowWriter`: writes what environments return into their rows of a slab."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit.arrays import as_array
from envkit.errors import SpecError
from envkit.nest import is_nested
from envkit.parallel.slab import Slab, is_private
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import check_fits
from envkit.time_step import StepType, TimeStep
from envkit.types import Array

__all__ = ["MisfitError", "PlainViews", "RowWriter"]

_MID = StepType.MID

# Called with a row, a slot and the leaves that cannot lie in shared memory.
ObjectSink = Callable[[int, int, dict[int, Any]], None]


class MisfitError(Exception):
    """An answer does not fit its spec; the `SpecError` that says so is the cause."""


class PlainViews(NamedTuple):
    """Where rows go whose time steps are three numbers and one array."""

    step_types: Any
    rewards: Any
    discounts: Any
    observations: Any
    shape: tuple[int, ...]
    dtypes: set[Any]


class RowWriter:
    """Writes time steps into rows, and refuses those that would change on the way.

    Shapes are looked at always: nothing is broadcast into a row. So are dtypes: floats
    may lose precision, everything else is written only if its value stays. Bounds are
    looked at by `check`.
    """

    def __init__(
        self,
        slab: Slab,
        send_objects: ObjectSink | None = None,
        may_write: Callable[[], None] | None = None,
        name_of: Callable[[int], str] = "env {}".format,
    ) -> None:
        """Prepares for a slab.

        Args:
            slab: Where to write.
            send_objects: Who brings over what shared memory cannot hold; `None` where
                everybody sees the same arrays.
            may_write: Called before anything is written; raises if it may not be.
            name_of: Names the environment of a row.
        """
        self._structure = slab.layout.time_step
        self._slab = slab
        self._send_objects = send_objects
        self._private = slab.layout.private_steps
        specs = self._structure.leaves
        # A view of each row, made once: making it costs as much as writing to it.
        self._views = [
            [
                list(array[slot]) if spec.shape else array[slot]
                for array, spec in zip(slab.steps, specs, strict=True)
            ]
            for slot in range(len(slab.steps[0]))
        ]
        self._shapes = [spec.shape for spec in specs]
        # By leaf: the dtypes that may be written without a look at the values.
        self._dtypes = [_harmless_for(spec.dtype) for spec in specs]
        self._may_write = may_write
        self._names = name_of
        # For each slot: what writes a row there.
        writers = self._array_writer if self._is_plain() else self._nest_writer
        self._writers = [writers(slot) for slot in range(len(self._views))]
        if may_write is not None:
            self._writers = [_guarded(write, may_write) for write in self._writers]

    def plain_views(self, slot: int, rows: range) -> PlainViews | None:
        """Returns where to write rows of three numbers and one array, if all are that.

        `None` as well if somebody wants to be asked before anything is written.
        """
        if self._may_write is not None or not self._is_plain():
            return None
        types, rewards, discounts, observations = self._views[slot]
        block = observations[rows.start : rows.stop]
        return PlainViews(
            types, rewards, discounts, block, self._shapes[3], self._dtypes[3]
        )

    def writer_for(self, slot: int) -> Callable[[int, TimeStep], None]:
        """Returns what writes a time step into a row of a slot."""
        return self._writers[slot]

    def write(self, row: int, slot: int, time_step: TimeStep) -> None:
        """Writes a time step into a row of a slot."""
        self._writers[slot](row, time_step)

    def _is_plain(self) -> bool:
        """Says whether a time step is three numbers and one array."""
        *numbers, observation = self._structure.template
        return (
            not self._private
            and not (
                is_nested(observation)
                or not observation.shape
                or any(is_nested(spec) or spec.shape for spec in numbers)
                # Numbers that are no floats could change on the way.
                or any(spec.dtype.kind != "f" for spec in numbers[1:])
            )
        )

    def check(self, row: int, time_step: Any, occasion: str) -> None:
        """Raises a `MisfitError` unless a time step fits its spec in every respect."""
        name = self._names(row)
        self._check(time_step, f"{name} returned a time step that", (), occasion)

    def _check(
        self, time_step: Any, subject: str, dims: tuple[int, ...], occasion: str
    ) -> None:
        try:
            check_fits(
                time_step,
                self._structure.template,
                subject=subject,
                outer_dims=dims,
                context=occasion,
            )
        except SpecError as error:
            raise MisfitError from error

    def _array_writer(self, slot: int) -> Callable[[int, TimeStep], None]:
        """Returns what writes a time step of scalars with one array as observation."""
        types, rewards, discounts, observations = self._views[slot]
        shape, dtypes = self._shapes[3], self._dtypes[3]

        def write(row: int, time_step: TimeStep) -> None:
            # Hot: called once per row and step.
            try:
                step_type, reward, discount, observation = time_step
                if (
                    observation.shape != shape
                    or reward.ndim
                    or discount.ndim
                    or (step_type is not _MID and step_type.ndim)
                    or observation.dtype not in dtypes
                ):
                    raise _ShapeError
                types[row] = step_type
                rewards[row] = reward
                discounts[row] = discount
                observations[row][...] = observation
            # Plain numbers and lists have no shape; others are no time steps at all.
            except (_ShapeError, AttributeError, TypeError, ValueError):
                self._write_slowly(row, slot, time_step)

        return write

    def _nest_writer(self, slot: int) -> Callable[[int, TimeStep], None]:
        """Returns what writes a time step of any structure."""
        flatten, private = self._structure.flatten, self._private
        places = list(zip(self._views[slot], self._shapes, self._dtypes, strict=True))

        def write(row: int, time_step: TimeStep) -> None:
            # Hot: called once per row and step.
            try:
                if private:
                    raise _ShapeError
                for (views, shape, dtypes), leaf in zip(
                    places, flatten(time_step), strict=True
                ):
                    if leaf.shape != shape or leaf.dtype not in dtypes:
                        raise _ShapeError
                    if shape:
                        views[row][...] = leaf
                    else:
                        views[row] = leaf
            except (_ShapeError, AttributeError, TypeError, ValueError):
                self._write_slowly(row, slot, time_step)

        return write

    def _write_slowly(self, row: int, slot: int, time_step: Any) -> None:
        """Writes what is not made of arrays alone, or says why it does not fit."""
        if not hasattr(time_step, "step_type"):
            self.check(row, time_step, "")
        try:
            leaves = self._structure.flatten(time_step)
        except SpecError:
            self.check(row, time_step, "")
            raise
        specs = self._structure.leaves
        try:
            values = [
                _as_leaf(leaf, spec) for leaf, spec in zip(leaves, specs, strict=True)
            ]
            self._store(row, slot, time_step, values)
        except (TypeError, ValueError):
            # Text where a number belongs, and the like.
            self.check(row, time_step, "")
            raise

    def _store(
        self, row: int, slot: int, time_step: Any, values: Sequence[Array]
    ) -> None:
        specs = self._structure.leaves
        if any(
            value.shape != spec.shape
            # Of an object NumPy would make something: of None, a NaN.
            or (value.dtype.hasobject and not is_private(spec.dtype))
            or not _fits_exactly(value, spec.dtype, dtypes)
            for value, spec, dtypes in zip(values, specs, self._dtypes, strict=True)
        ):
            self.check(row, time_step, "")
        for array, value in zip(self._slab.steps, values, strict=True):
            array[slot, row] = value[()]
        if self._private and self._send_objects is not None:
            objects = {index: values[index] for index in self._private}
            self._send_objects(row, slot, objects)

    def write_batch(
        self, first: int, slots: Array, time_step: TimeStep, wanted: Array
    ) -> None:
        """Writes the wanted rows of a batch's time step.

        Args:
            first: The row of the batch's first environment.
            slots: For each of its rows, which slot to write to.
            time_step: The time step of the whole batch.
            wanted: Which of its rows to write, as a mask.
        """
        leaves = self._batch_leaves(first, len(slots), time_step)
        if self._may_write is not None:
            self._may_write()
        block = slice(first, first + len(slots))
        for slot in np.unique(slots[wanted]).tolist():
            rows = wanted & (slots == slot)
            for array, leaf in zip(self._slab.steps, leaves, strict=True):
                if rows.all():
                    array[slot, block] = leaf
                else:
                    array[slot, block][rows] = leaf[rows]
        self._send_rows(first, np.flatnonzero(wanted).tolist(), slots.tolist(), leaves)

    def write_whole_batch(
        self, first: int, slot: int, time_step: TimeStep, size: int
    ) -> None:
        """Writes all rows of a batch's time step into one slot."""
        # Hot: called once per batch step.
        leaves = self._batch_leaves(first, size, time_step)
        if self._may_write is not None:
            self._may_write()
        block = slice(first, first + size)
        for array, leaf in zip(self._slab.steps, leaves, strict=True):
            array[slot, block] = leaf
        self._send_rows(first, range(size), [slot] * size, leaves)

    def _send_rows(
        self,
        first: int,
        indices: Sequence[int],
        slots: Sequence[int],
        leaves: Sequence[Array],
    ) -> None:
        """Sends what memory cannot hold of some rows of a batch."""
        if not self._private or self._send_objects is None:
            return
        for index in indices:
            # With the dots it stays an array, also where it holds one object.
            objects = {leaf: leaves[leaf][index, ...] for leaf in self._private}
            self._send_objects(first + index, slots[index], objects)

    def check_batch(self, first: int, size: int, time_step: Any, occasion: str) -> None:
        """Raises a `MisfitError` unless a batch's time step fits in every respect."""
        rows = f"rows {first} to {first + size - 1}"
        subject = f"{self._names(first)} ({rows}) returned a time step that"
        self._check(time_step, subject, (size,), occasion)

    def _batch_leaves(self, first: int, size: int, time_step: Any) -> list[Array]:
        try:
            leaves = [as_array(leaf) for leaf in self._structure.flatten(time_step)]
        except SpecError:
            leaves = []
        if len(leaves) != len(self._shapes) or any(
            leaf.shape != (size, *shape) or not _fits_exactly(leaf, spec.dtype, dtypes)
            for leaf, shape, spec, dtypes in zip(
                leaves,
                self._shapes,
                self._structure.leaves,
                self._dtypes,
                strict=True,
            )
        ):
            self.check_batch(first, size, time_step, "")
        return leaves


def _guarded(
    write: Callable[[int, TimeStep], None], check: Callable[[], None]
) -> Callable[[int, TimeStep], None]:
    def guarded(row: int, time_step: TimeStep) -> None:
        check()
        write(row, time_step)

    return guarded


class _ShapeError(Exception):
    """A leaf has another shape than its row."""


def _harmless_for(dtype: Any) -> set[Any]:
    """Returns the dtypes of which every value may be written to another dtype."""
    numbers = [np.dtype(code) for code in np.typecodes["AllInteger"] + "?efdgFDG"]
    harmless = {other for other in numbers if np.can_cast(other, dtype, "safe")}
    if dtype.kind in "fc":
        # To lose precision, or to overflow to infinity, is what floats are for.
        floats = {other for other in numbers if np.can_cast(other, dtype, "same_kind")}
        harmless |= floats
    return {dtype, *harmless}


def _fits_exactly(value: Array, dtype: Any, dtypes: set[Any]) -> bool:
    """Returns whether values stay what they are in another dtype."""
    if value.dtype in dtypes or is_private(dtype) or value.dtype.hasobject:
        return True
    with np.errstate(all="ignore"):
        return bool((value.astype(dtype) == value).all())


def _as_leaf(leaf: Any, spec: ArraySpec) -> Array:
    """Returns what to write for one leaf, as an array."""
    if is_private(spec.dtype):
        if isinstance(leaf, np.ndarray) and leaf.shape == spec.shape:
            return leaf
        value = np.empty((), object)
        value[()] = leaf
        return value
    if isinstance(leaf, np.ndarray):
        return leaf
    array = as_array(leaf)
    # An empty list has the dtype of floats, whatever belongs there.
    return array.astype(spec.dtype) if not array.size else array
