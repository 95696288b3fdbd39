"""`ActionLeaves`: a batch of actions on its way from TensorFlow to Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from envkit import nest
from envkit.arrays import as_array
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import check_fits, flatten_as
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wording import counted

__all__ = ["ActionLeaves"]


class ActionLeaves:
    """Flattens actions for a graph, and makes of leaves what an environment takes."""

    def __init__(
        self, spec: NestedSpec, rows: int, subject: str, *, check_dims: bool
    ) -> None:
        """Prepares for batches of actions.

        Args:
            spec: The array specs of one row's action.
            rows: The size of a batch.
            subject: What was given an action, as the sentence of an error begins.
            check_dims: Whether to look whether each leaf has that size.
        """
        self._structure = nest.Structure(spec)
        self._rows = rows
        self._subject = f"{subject} was given an action that"
        self._check_dims = check_dims
        # No text, which TensorFlow has in another form, and nothing to look at.
        self._is_plain = not check_dims and not any(
            leaf.dtype.kind in "SUO" for leaf in self._structure.leaves
        )

    def flat(self, action: NestedArray) -> list[Any]:
        """Returns the leaves as they were given; those of a graph have to be tensors.

        Raises:
            SpecError: The structure is not that of the spec, or, where `check_dims`
                was asked for, a size that is known is wrong.
        """
        leaves = flatten_as(
            self._structure, action, subject=self._subject, root="action"
        )
        if self._check_dims:
            for index, leaf in enumerate(leaves):
                self._check_shape(index, getattr(leaf, "shape", None))
        return leaves

    def tensors(self, action: NestedArray) -> list[Any]:
        """Returns the leaves as tensors of a graph."""
        return [
            self._as_tensor(leaf, index) for index, leaf in enumerate(self.flat(action))
        ]

    def packed(self, arrays: Sequence[Array]) -> NestedArray:
        """Returns the action that has these leaves."""
        return self._structure.unflatten(arrays)

    def arrays_of_graph(self, leaves: Sequence[Array]) -> list[Array]:
        """Does what `arrays` does with arrays that a graph passes."""
        # Hot: called once per step.
        if self._is_plain:
            return [leaf.copy() for leaf in leaves]
        return self.arrays(leaves)

    def arrays(self, leaves: Sequence[Any]) -> list[Array]:
        """Returns copies of leaves as arrays, whose shapes are right if that matters.

        The dtypes are those that were given, except of Python's numbers.
        """
        # Hot: called once per step.
        arrays = [
            self._as_array(leaf, spec)
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
            # A list of what the graph calculates.
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
        # Hot: called for each leaf of an action.
        if type(leaf) is np.ndarray and not leaf.dtype.hasobject:
            return leaf.copy()
        if hasattr(leaf, "dtype"):
            # TensorFlow's own memory must not be written to.
            array = np.array(leaf.numpy() if isinstance(leaf, tf.Variable) else leaf)
            return array if array.dtype != object else _as_text(array, spec)
        array = as_array(leaf)
        # Of Python's numbers the dtype is nobody's choice.
        if array.dtype.kind == spec.dtype.kind:
            cast = array.astype(spec.dtype)
            if np.array_equal(cast, array) or spec.dtype.kind in "fc":
                return cast
        return array

    def _check_shape(self, index: int, shape: Any) -> None:
        """Refuses a shape that is known and not that of a batch."""
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
    """Returns TensorFlow's strings as the environment's; others are left alone."""
    if spec.dtype.kind == "U":
        return np.char.decode(array.astype(np.bytes_), "utf-8")
    return array.astype(np.bytes_) if spec.dtype.kind == "S" else array
