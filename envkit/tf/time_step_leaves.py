"""`TimeStepLeaves`: what a Python environment returned, checked, for TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from envkit import nest
from envkit.errors import SpecError
from envkit.specs.validation import check_fits
from envkit.tf.aligned import AlignedCopies
from envkit.time_step import TimeStep
from envkit.types import Array

__all__ = ["TimeStepLeaves"]


class TimeStepLeaves:
    """Turns time steps into flat lists that TensorFlow may keep, or refuses them.

    Attributes:
        dtypes: Of each leaf, what TensorFlow calls its dtype.
        shapes: Of each leaf, with the dimension of rows.
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
        # Of text the dtype depends on the longest.
        self._expected = [
            (leaf.dtype, leaf.dtype.kind if leaf.dtype.kind in "SU" else "", shape)
            for leaf, shape in zip(specs, self.shapes, strict=True)
        ]
        self._in_unicode = [
            index for index, leaf in enumerate(specs) if leaf.dtype.kind == "U"
        ]
        self._copies = AlignedCopies(
            [
                (shape, np.dtype(dtype.as_numpy_dtype))
                for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
            ]
        )
        self._makers = [_maker(dtype) for dtype in self.dtypes]

    def arrays(self, time_step: Any, call: str) -> list[Array]:
        """Returns copies of the leaves of what an environment returned from `call`.

        Copies, because TensorFlow may take over their memory, and the environment may
        go on writing to its own.

        Raises:
            SpecError: Shape or dtype of a leaf is not that of its spec.
        """
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
        return self.aligned(self.encoded(leaves))

    def aligned(self, leaves: list[Array]) -> list[Array]:
        """Returns copies of leaves that fit, as `tensors` wants them."""
        return self._copies.of(leaves)

    def encoded(self, leaves: list[Array]) -> list[Array]:
        """Returns leaves with their text in UTF-8, as TensorFlow has it."""
        for index in self._in_unicode:
            leaves[index] = np.char.encode(leaves[index], "utf-8")
        return leaves

    def tensors(self, leaves: Sequence[Array]) -> TimeStep:
        """Returns eager tensors of what `arrays` returned, packed as a time step."""
        # Hot: called once per step.
        tensors = [make(leaf) for make, leaf in zip(self._makers, leaves, strict=True)]
        packed: TimeStep = self._tensors.unflatten(tensors)
        return packed

    def packed(self, tensors: Sequence[Any]) -> TimeStep:
        """Returns a graph's tensors as a time step, with their shapes."""
        for tensor, shape in zip(tensors, self.shapes, strict=True):
            tensor.set_shape(shape)
        packed: TimeStep = self._tensors.unflatten(tensors)
        return packed

    def _check(self, time_step: Any, call: str) -> None:
        """Raises the error that says what does not fit, if anything does not."""
        check_fits(
            time_step,
            self._structure.template,
            subject=f"{call} returned a time step that",
            outer_dims=(self._rows,),
        )


def _maker(dtype: Any) -> Callable[[Array], Any]:
    """Returns the fastest way to an eager tensor of a dtype."""
    numpy_dtype = np.dtype(dtype.as_numpy_dtype)
    (probe,) = AlignedCopies([((1,), numpy_dtype)]).of([np.zeros(1, numpy_dtype)])
    try:
        if _handed_over(probe).dtype == dtype:
            return _handed_over
    except (BufferError, RuntimeError, TypeError, ValueError, tf.errors.OpError):
        # Text cannot be handed over, nor can what this TensorFlow or NumPy does not
        # know how to. Which error says so depends on both.
        pass
    return _constant


def _handed_over(array: Array) -> Any:
    """Returns a tensor in the array's memory, in a tenth of `tf.constant`'s time."""
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def _constant(array: Array) -> Any:
    return tf.constant(array)
