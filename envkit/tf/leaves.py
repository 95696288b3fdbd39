"""Moves batches between TensorFlow and Python: actions there, time steps back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from envkit import nest
from envkit.errors import SpecError
from envkit.extend import as_array, counted, flatten_as
from envkit.specs.arrays import ArraySpec
from envkit.specs.validation import check_fits
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, NestedSpec

__all__ = ["ActionLeaves", "TimeStepLeaves"]


class ActionLeaves:
    """Flattens actions for a graph, and converts the leaves to arrays."""

    def __init__(
        self, spec: NestedSpec, rows: int, subject: str, *, check_dims: bool
    ) -> None:
        """Prepares for batches of actions.

        Args:
            spec: The array specs of one row's action.
            rows: The size of a batch.
            subject: The call that takes the action, as the beginning of an error.
            check_dims: True to check that each leaf has `rows` rows.
        """
        self._structure = nest.Structure(spec)
        self._rows = rows
        self._subject = f"{subject} was given an action that"
        self._check_dims = check_dims

    def flat(self, action: NestedArray) -> list[Any]:
        """Returns the leaves of an action unchanged.

        Raises:
            SpecError: The structure differs from the spec's, or, with `check_dims`, a
                known size is wrong.
        """
        leaves = flatten_as(
            self._structure, action, subject=self._subject, root="action"
        )
        if self._check_dims:
            for index, leaf in enumerate(leaves):
                self._check_shape(index, getattr(leaf, "shape", None))
        return leaves

    def tensors(self, action: NestedArray) -> list[Any]:
        """Returns the leaves of an action as tensors of a graph."""
        return [
            self._as_tensor(leaf, index) for index, leaf in enumerate(self.flat(action))
        ]

    def packed(self, arrays: Sequence[Array]) -> NestedArray:
        """Returns the action with these leaves."""
        return self._structure.unflatten(arrays)

    def arrays(self, leaves: Sequence[Any]) -> list[Array]:
        """Returns copies of leaves as arrays; checks shapes if asked to.

        Dtypes stay the same, except for Python numbers.
        """
        # Hot: called once per step.
        arrays = [
            leaf.copy()
            if type(leaf) is np.ndarray and not leaf.dtype.hasobject
            else self._as_array(leaf, spec)
            for leaf, spec in zip(leaves, self._structure.leaves, strict=True)
        ]
        if self._check_dims:
            for index, array in enumerate(arrays):
                self._check_shape(index, array.shape)
        return arrays

    def _as_tensor(self, leaf: Any, index: int) -> Any:
        if hasattr(leaf, "dtype"):
            return leaf
        if any(map(tf.is_tensor, tf.nest.flatten(leaf))):
            # A list of tensors computed by the graph.
            return tf.convert_to_tensor(leaf)
        spec = self._structure.leaves[index]
        array = self._as_array(leaf, spec)
        if array.dtype.hasobject:
            check_fits(
                leaf,
                spec,
                subject=self._subject,
                root="action",
                path=self._structure.paths[index],
                outer_dims=(self._rows,),
            )
        return tf.constant(array)

    def _as_array(self, leaf: Any, spec: ArraySpec) -> Array:
        if hasattr(leaf, "dtype"):
            # TensorFlow's own memory must not be written to.
            array = np.array(leaf.numpy() if isinstance(leaf, tf.Variable) else leaf)
            return array if array.dtype != object else _as_text(array, spec)
        array = as_array(leaf)
        # Python numbers have no dtype, so they get the spec's.
        if array.dtype.kind == spec.dtype.kind:
            cast = array.astype(spec.dtype)
            if np.array_equal(cast, array) or spec.dtype.kind in "fc":
                return cast
        return array

    def _check_shape(self, index: int, shape: Any) -> None:
        """Raises for a known shape that is not a batch's."""
        spec = self._structure.leaves[index]
        expected = (self._rows, *spec.shape)
        if shape is None or tf.TensorShape(shape).is_compatible_with(expected):
            return
        sizes = tuple(tf.TensorShape(shape).as_list())
        reason = (
            "The whole batch dimension is missing."
            if sizes == spec.shape
            else f"A batch of {counted(self._rows, 'environment')} takes one action "
            "for each."
        )
        raise SpecError.does_not_fit(
            self._subject,
            path=nest.join("action", self._structure.paths[index]),
            root="action",
            expected=repr(spec.replace(shape=expected)),
            got=f"shape {sizes}",
            reason=reason,
        )


def _as_text(array: Array, spec: ArraySpec) -> Array:
    """Converts TensorFlow's strings to the environment's; others stay as they are."""
    if spec.dtype.kind == "U":
        return np.char.decode(array.astype(np.bytes_), "utf-8")
    return array.astype(np.bytes_) if spec.dtype.kind == "S" else array


# TensorFlow's own tensors begin at such addresses. It accepts memory at other addresses
# too, and then aborts the process when it computes with it.
_ALIGNMENT = 64
# A larger array gets memory of its own, because keeping a reward must not keep a
# picture alive.
_LARGE = 1 << 12


class _AlignedCopies:
    """Copies lists of arrays, each of a shape and dtype, to aligned addresses."""

    def __init__(self, kinds: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> None:
        # For each array, its field in the record that small arrays share; `None` for
        # large arrays, and for text, whose width is unknown.
        self._fields: list[str | None] = []
        self._kinds = list(kinds)
        names, formats, offsets, size = [], [], [], 0
        for index, (shape, dtype) in enumerate(kinds):
            bytes_needed = dtype.itemsize * int(np.prod(shape))
            if dtype.kind in "SUO" or bytes_needed > _LARGE:
                self._fields.append(None)
                continue
            self._fields.append(str(index))
            names.append(str(index))
            formats.append((dtype, shape))
            offsets.append(size)
            size += bytes_needed + -bytes_needed % _ALIGNMENT
        self._size = size
        self._record = np.dtype(
            {"names": names, "formats": formats, "offsets": offsets, "itemsize": size}
        )

    def large_ones(self, arrays: Sequence[Array]) -> list[Array]:
        """Returns copies; only large arrays are aligned."""
        # Hot: called once per step by graphs.
        return [
            array.astype(kind[1]) if field is not None else self._alone(kind, array)
            for field, kind, array in zip(
                self._fields, self._kinds, arrays, strict=True
            )
        ]

    def _alone(self, kind: tuple[tuple[int, ...], Any], array: Array) -> Array:
        if array.dtype.kind in "SUO":
            return array.copy()
        copy = _aligned(array.nbytes, *kind)
        copy[...] = array
        return copy

    def of(self, arrays: Sequence[Array]) -> list[Array]:
        """Returns the copies."""
        # Hot: called once per step.
        record = _aligned(self._size, (), self._record)
        copies = []
        for field, kind, array in zip(self._fields, self._kinds, arrays, strict=True):
            if field is not None:
                copy = record[field]
                copy[...] = array
            else:
                copy = self._alone(kind, array)
            copies.append(copy)
        return copies


def _aligned(size: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Returns an array that begins at an aligned address."""
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    begin = -memory.__array_interface__["data"][0] % _ALIGNMENT
    return np.ndarray(shape, dtype, memory, begin)


class TimeStepLeaves:
    """Converts time steps to flat lists that TensorFlow may keep; raises if unfit.

    Attributes:
        dtypes: TensorFlow's dtype of each leaf.
        shapes: The shape of each leaf, including the dimension of rows.
    """

    def __init__(self, spec: TimeStep, tensor_spec: TimeStep, rows: int) -> None:
        """Prepares for the time steps of a batch.

        Args:
            spec: The array specs of one row's time step.
            tensor_spec: The same as tensor specs.
            rows: The size of the batch.
        """
        self._structure = nest.Structure(spec)
        self._tensors = nest.Structure(tensor_spec)
        self._rows = rows
        specs = self._structure.leaves
        self.dtypes = [leaf.dtype for leaf in self._tensors.leaves]
        self.shapes = [(rows, *leaf.shape) for leaf in specs]
        # The dtype of text depends on the longest one, so only its kind is compared.
        self._expected = [
            (leaf.dtype, leaf.dtype.kind if leaf.dtype.kind in "SU" else "", shape)
            for leaf, shape in zip(specs, self.shapes, strict=True)
        ]
        self._in_unicode = [
            index for index, leaf in enumerate(specs) if leaf.dtype.kind == "U"
        ]
        self._copies = _AlignedCopies(
            [
                (shape, np.dtype(dtype.as_numpy_dtype))
                for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
            ]
        )
        self._makers = [_maker(dtype) for dtype in self.dtypes]

    def arrays(self, time_step: Any, call: str) -> list[Array]:
        """Returns copies of the leaves of a time step that `call` returned.

        They are copies because TensorFlow may take over their memory while the
        environment writes to its own. Pass them to `tensors`, or to a graph.

        Raises:
            SpecError: A leaf's shape or dtype differs from its spec's.
        """
        return self.aligned(self._fitting(time_step, call))

    def for_graph(self, time_step: Any, call: str) -> list[Array]:
        """Returns the result of `arrays`, in less time and only for graphs.

        A graph copies unaligned arrays, which for small ones is faster than aligning
        them here.
        """
        # Hot: called once per step.
        return self._copies.large_ones(self._fitting(time_step, call))

    def _fitting(self, time_step: Any, call: str) -> list[Array]:
        """Returns the leaves of a time step; raises if they do not fit."""
        # Hot: called once per step.
        try:
            leaves = self._structure.flatten(time_step)
        except SpecError:
            self._check(time_step, call)
            raise
        for leaf, (dtype, text, shape) in zip(leaves, self._expected, strict=True):
            if (
                type(leaf) is not np.ndarray
                or leaf.shape != shape
                # NumPy has one object for each of its own dtypes.
                or (
                    leaf.dtype is not dtype
                    and leaf.dtype != dtype
                    and leaf.dtype.kind != text
                )
            ):
                self._check(time_step, call)
                leaves = [np.asarray(leaf) for leaf in leaves]
                break
        return self.encoded(leaves)

    def aligned(self, leaves: list[Array]) -> list[Array]:
        """Returns copies of leaves that fit, at addresses for `tensors`."""
        return self._copies.of(leaves)

    def encoded(self, leaves: list[Array]) -> list[Array]:
        """Returns leaves with their text in UTF-8, for TensorFlow."""
        for index in self._in_unicode:
            leaves[index] = np.char.encode(leaves[index], "utf-8")
        return leaves

    def tensors(self, leaves: Sequence[Array]) -> TimeStep:
        """Returns a time step of eager tensors from the result of `arrays`."""
        # Hot: called once per step.
        tensors = [make(leaf) for make, leaf in zip(self._makers, leaves, strict=True)]
        packed: TimeStep = self._tensors.unflatten(tensors)
        return packed

    def packed(self, tensors: Sequence[Any]) -> TimeStep:
        """Returns a time step of a graph's tensors, with their shapes."""
        for tensor, shape in zip(tensors, self.shapes, strict=True):
            tensor.set_shape(shape)
        packed: TimeStep = self._tensors.unflatten(tensors)
        return packed

    def _check(self, time_step: Any, call: str) -> None:
        """Raises an error that names a leaf, if one does not fit."""
        check_fits(
            time_step,
            self._structure.template,
            subject=f"{call} returned a time step that",
            outer_dims=(self._rows,),
        )


def _maker(dtype: Any) -> Callable[[Array], Any]:
    """Returns the fastest conversion to an eager tensor of a dtype."""
    numpy_dtype = np.dtype(dtype.as_numpy_dtype)
    (probe,) = _AlignedCopies([((1,), numpy_dtype)]).of([np.zeros(1, numpy_dtype)])
    try:
        if _handed_over(probe).dtype == dtype:
            return _handed_over
    except (BufferError, RuntimeError, TypeError, ValueError, tf.errors.OpError):
        # Text cannot be handed over, nor can dtypes that this TensorFlow or NumPy does
        # not support. Both decide which error they raise.
        pass
    return _constant


def _handed_over(array: Array) -> Any:
    """Returns a tensor in the array's memory, in a tenth of `tf.constant`'s time."""
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def _constant(array: Array) -> Any:
    return tf.constant(array)
