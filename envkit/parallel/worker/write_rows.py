"""`RowWriter`: writes environments' time steps into their rows of a slab."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit.errors import SpecError
from envkit.nest import is_nested
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import SAME_STEP_SLOT, is_private, slot_of
from envkit.specs.arrays import ArraySpec, as_array
from envkit.specs.validation import check_fits
from envkit.time_step import StepType, TimeStep
from envkit.types import Array

__all__ = ["MisfitError", "PlainViews", "RowWriter"]

_MID = StepType.MID

# The least size in bytes of a batch's leaf that is worth not copying.
_WORTH_LENDING = 1 << 14

# Takes a row, a slot and the leaves that shared memory cannot hold.
ObjectSink = Callable[[int, int, dict[int, Any]], None]


class MisfitError(Exception):
    """An answer does not fit its spec; the `SpecError` is the cause."""


class PlainViews(NamedTuple):
    """Views of rows whose time steps are three numbers and one array."""

    step_types: Any
    rewards: Any
    discounts: Any
    observations: Any
    shape: tuple[int, ...]
    dtypes: set[Any]


class RowWriter:
    """Writes time steps into rows; raises if that would change a value.

    Shapes are always checked: nothing is broadcast into a row. So are dtypes: floats
    may lose precision, and everything else must keep its value. `check` checks bounds.

    Attributes:
        lends: Whether to leave large leaves of batches where they are.
        lent: Such leaves of the last step, by number, until `write_lent` writes them.
            Only a batch with all rows of the slab has any.
    """

    def __init__(
        self,
        slab: Slab,
        send_objects: ObjectSink | None = None,
        may_write: Callable[[], None] | None = None,
        name_of: Callable[[int], str] = "env {}".format,
        first_row: int = 0,
    ) -> None:
        """Prepares for a slab.

        Args:
            slab: The slab.
            send_objects: Sends the leaves that shared memory cannot hold; `None` if
                both sides share the same arrays.
            may_write: Called before each write; raises if writing is forbidden.
            name_of: Names the environment of a row.
            first_row: The pool's row that is the first of the slab.
        """
        self._first_row = first_row
        self.lends = False
        self.lent: dict[int, Array] = {}
        self._structure = slab.layout.time_step
        self._slab = slab
        self._send_objects = send_objects
        self._private = slab.layout.private_steps
        specs = self._structure.leaves
        # A view of each row, made once because making it costs as much as writing to
        # it.
        self._views = [
            [
                list(column) if spec.shape else column
                for column, spec in zip(slab.columns(slot), specs, strict=True)
            ]
            for slot in (0, 1, SAME_STEP_SLOT)
        ]
        self._shapes = [spec.shape for spec in specs]
        # By the number of rows in a batch.
        self._batch_shapes: dict[int, list[tuple[int, ...]]] = {}
        # By leaf: the dtypes that may be written without checking the values.
        self._dtypes = [_harmless_for(spec.dtype) for spec in specs]
        self._may_write = may_write
        self._names = name_of
        # For each slot: the function that writes a row there.
        writers = self._array_writer if self._is_plain() else self._nest_writer
        self._writers = [writers(slot) for slot in range(len(self._views))]
        if may_write is not None:
            self._writers = [_guarded(write, may_write) for write in self._writers]

    def plain_views(self, slot: int, rows: range) -> PlainViews | None:
        """Returns views of the rows, if a time step is three numbers and one array.

        It also returns `None` if `may_write` must be called before each row.
        """
        if self._may_write is not None or not self._is_plain():
            return None
        types, rewards, discounts, observations = self._views[slot]
        block = observations[rows.start : rows.stop]
        return PlainViews(
            types, rewards, discounts, block, self._shapes[3], self._dtypes[3]
        )

    def writer_for(self, slot: int) -> Callable[[int, TimeStep], None]:
        """Returns a function that writes a time step into a row of a slot."""
        return self._writers[slot]

    def write(self, row: int, slot: int, time_step: TimeStep) -> None:
        """Writes a time step into a row of a slot."""
        self._writers[slot](row, time_step)

    def _is_plain(self) -> bool:
        """Returns True if a time step is three numbers and one array."""
        *numbers, observation = self._structure.template
        return (
            not self._private
            and not (
                is_nested(observation)
                or not observation.shape
                or any(is_nested(spec) or spec.shape for spec in numbers)
                # Other numbers than floats could change on the way.
                or any(spec.dtype.kind != "f" for spec in numbers[1:])
            )
        )

    def check(
        self, rows: range, time_step: Any, occasion: str = "", *, is_batch: bool = False
    ) -> None:
        """Raises a `MisfitError` unless a time step fits its spec in every respect."""
        name = self._names(rows.start)
        if is_batch:
            start, stop = self._first_row + rows.start, self._first_row + rows.stop
            name += f" (rows {start} to {stop - 1})"
        try:
            check_fits(
                time_step,
                self._structure.template,
                subject=f"{name} returned a time step that",
                outer_dims=(len(rows),) if is_batch else (),
                context=occasion,
            )
        except SpecError as error:
            raise MisfitError from error

    def _array_writer(self, slot: int) -> Callable[[int, TimeStep], None]:
        """Returns `writer_for` for scalars and one array as observation."""
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
            # Plain numbers and lists have no shape; anything else is no time step at
            # all.
            except _UNFIT:
                self._write_slowly(row, slot, time_step)

        return write

    def _nest_writer(self, slot: int) -> Callable[[int, TimeStep], None]:
        """Returns `writer_for` for any structure."""
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
            except _UNFIT:
                self._write_slowly(row, slot, time_step)

        return write

    def _write_slowly(self, row: int, slot: int, time_step: Any) -> None:
        """Writes a time step that is not all arrays, or raises if it does not fit."""
        if not hasattr(time_step, "step_type"):
            self.check(range(row, row + 1), time_step)
        try:
            leaves = self._structure.flatten(time_step)
        except SpecError:
            self.check(range(row, row + 1), time_step)
            raise
        specs = self._structure.leaves
        try:
            values = [
                _as_leaf(leaf, spec) for leaf, spec in zip(leaves, specs, strict=True)
            ]
            self._store(row, slot, time_step, values)
        except (TypeError, ValueError):
            # For example, text in place of a number.
            self.check(range(row, row + 1), time_step)
            raise

    def _store(
        self, row: int, slot: int, time_step: Any, values: Sequence[Array]
    ) -> None:
        specs = self._structure.leaves
        if any(
            value.shape != spec.shape
            # NumPy would convert an object: None becomes a NaN.
            or (value.dtype.hasobject and not is_private(spec.dtype))
            or not _fits_exactly(value, spec.dtype, dtypes)
            for value, spec, dtypes in zip(values, specs, self._dtypes, strict=True)
        ):
            self.check(range(row, row + 1), time_step)
        self._slab.write(row, slot, [value[()] for value in values])
        if self._private and self._send_objects is not None:
            objects = {index: values[index] for index in self._private}
            self._send_objects(row, slot, objects)

    def write_batch(
        self,
        block: slice,
        time_step: TimeStep,
        slots: int | Array,
        moved: Array | None = None,
    ) -> None:
        """Writes rows of a batch's time step.

        Args:
            block: The rows of the batch.
            time_step: The time step of the whole batch.
            slots: One slot for all rows, or one for each.
            moved: A mask of the rows to write; `None` for all.
        """
        # Hot: called once per step of a batch.
        leaves = self._batch_leaves(block, time_step)
        if self._may_write is not None:
            self._may_write()
        if moved is None:
            if self.lends:
                self.lent = self._to_lend(leaves)
            left_out = self.lent if self.lends else ()
            self._slab.write(block, slots, leaves, left_out)
        else:
            chosen = np.flatnonzero(moved)
            slots = slots[chosen] if isinstance(slots, np.ndarray) else slots
            rows = block.start + chosen
            self._slab.write(rows, slots, [leaf[chosen] for leaf in leaves])
        if self._private and self._send_objects is not None:
            indices = range(len(leaves[0])) if moved is None else chosen.tolist()
            places = np.broadcast_to(slots, len(indices)).tolist()
            for index, slot in zip(indices, places, strict=True):
                # The ellipsis keeps a single object an array.
                objects = {leaf: leaves[leaf][index, ...] for leaf in self._private}
                self._send_objects(block.start + index, slot, objects)

    def _to_lend(self, leaves: Sequence[Array]) -> dict[int, Array]:
        """Returns the leaves that need no copy, by number."""
        pairs = zip(leaves, self._structure.leaves, strict=True)
        return {
            index: leaf
            for index, (leaf, spec) in enumerate(pairs)
            if index and _can_lend(leaf, spec.dtype)
        }

    def write_lent(self) -> None:
        """Writes the leaves that were not copied."""
        slot = slot_of(int(self._slab.numbers[0]))
        for index, leaf in self.lent.items():
            self._slab.write_leaf(index, slot, leaf)
        self.lent.clear()

    def _batch_leaves(self, block: slice, time_step: Any) -> Sequence[Array]:
        # Hot: called once per step of a batch.
        rows = range(block.start, block.stop)
        try:
            given: Sequence[Any] = self._structure.flatten(time_step)
        except SpecError:
            given = []
        if len(given) == len(self._shapes):
            for leaf, shape, dtypes in zip(
                given, self._shapes_of(len(rows)), self._dtypes, strict=True
            ):
                if (
                    type(leaf) is not np.ndarray
                    or leaf.shape != shape
                    or leaf.dtype not in dtypes
                ):
                    break
            else:
                return given
        leaves = [as_array(leaf) for leaf in given]
        if len(leaves) != len(self._shapes) or any(
            leaf.shape != shape or not _fits_exactly(leaf, spec.dtype, dtypes)
            for leaf, shape, spec, dtypes in zip(
                leaves,
                self._shapes_of(len(rows)),
                self._structure.leaves,
                self._dtypes,
                strict=True,
            )
        ):
            self.check(rows, time_step, is_batch=True)
        return leaves

    def _shapes_of(self, count: int) -> list[tuple[int, ...]]:
        """Returns the shapes of the leaves of a batch of `count` rows."""
        shapes = self._batch_shapes.get(count)
        if shapes is None:
            shapes = [(count, *shape) for shape in self._shapes]
            self._batch_shapes[count] = shapes
        return shapes


def _can_lend(leaf: Array, dtype: Any) -> bool:
    """Returns True if writing a leaf would not change its bytes."""
    return (
        leaf.nbytes >= _WORTH_LENDING
        and leaf.dtype == dtype
        and leaf.flags.c_contiguous
        and not dtype.hasobject
    )


def _guarded(
    write: Callable[[int, TimeStep], None], check: Callable[[], None]
) -> Callable[[int, TimeStep], None]:
    def guarded(row: int, time_step: TimeStep) -> None:
        check()
        write(row, time_step)

    return guarded


class _ShapeError(Exception):
    """A leaf's shape differs from its row's."""


# The exceptions from values that cannot be written directly.
_UNFIT = (_ShapeError, AttributeError, TypeError, ValueError, OverflowError)


def _harmless_for(dtype: Any) -> set[Any]:
    """Returns the dtypes whose values can all be written to a dtype unchanged."""
    numbers = [np.dtype(code) for code in np.typecodes["AllInteger"] + "?efdgFDG"]
    harmless = {other for other in numbers if np.can_cast(other, dtype, "safe")}
    if dtype.kind in "fc":
        # Floats may lose precision, or overflow to infinity.
        floats = {other for other in numbers if np.can_cast(other, dtype, "same_kind")}
        harmless |= floats
    return {dtype, *harmless}


def _fits_exactly(value: Array, dtype: Any, dtypes: set[Any]) -> bool:
    """Returns True if values stay the same in another dtype."""
    if value.dtype in dtypes or is_private(dtype) or value.dtype.hasobject:
        return True
    with np.errstate(all="ignore"):
        return bool((value.astype(dtype) == value).all())


def _as_leaf(leaf: Any, spec: ArraySpec) -> Array:
    """Returns the array to write for one leaf."""
    if is_private(spec.dtype):
        if isinstance(leaf, np.ndarray) and leaf.shape == spec.shape:
            return leaf
        value = np.empty((), object)
        value[()] = leaf
        return value
    if isinstance(leaf, np.ndarray):
        return leaf
    array = as_array(leaf)
    # NumPy gives an empty list a float dtype, whatever the spec says.
    return array.astype(spec.dtype) if not array.size else array
