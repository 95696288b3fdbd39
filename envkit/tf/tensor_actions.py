"""`TensorActions`: refuses actions that an environment of tensors cannot take.

Structure, shapes and dtypes are known wherever an action is looked at, so what is wrong
with them is an error at once. Values are known eagerly. In a graph they are not, so
there the check is an operation, which XLA leaves out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from envkit import nest
from envkit.errors import SpecError
from envkit.specs.validation import describe, flatten_as
from envkit.tf.autograph import as_written
from envkit.tf.tensor_spec import is_bounded
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wording import bound_text

__all__ = ["TensorActions"]


class TensorActions:
    """Checks batches of actions against the specs of one row's action.

    Attributes:
        structure: The structure of an action; its template is the nest of specs.

    Example:
        >>> actions = TensorActions("Game", tf.TensorSpec([], tf.int64), rows=2)
        >>> [leaf.dtype.name for leaf in actions.leaves([0, 1])]
        ['int64']
    """

    def __init__(
        self,
        environment: str,
        spec: NestedSpec,
        rows: int | None,
        *,
        cast: bool = False,
    ) -> None:
        """Prepares for the actions of an environment.

        Args:
            environment: What it is called, for errors.
            spec: The tensor specs of one row's action.
            rows: The size of a batch; `None` for any.
            cast: Whether an integer of one dtype is as good as one of another.
        """
        self.structure = nest.Structure(spec)
        self._subject = f"{environment}.step() was given an action that"
        self._rows = rows
        self._cast = cast

    @as_written
    def leaves(self, action: NestedArray) -> list[Any]:
        """Returns the leaves as tensors of the right shapes and dtypes.

        Raises:
            SpecError: Structure, shape or dtype of something is another.
        """
        given = flatten_as(self.structure, action, subject=self._subject, root="action")
        return [self._tensor(index, leaf) for index, leaf in enumerate(given)]

    @as_written
    def check_bounds(self, leaves: list[Any], ignored: Any) -> list[Any]:
        """Refuses values that are out of bounds.

        Args:
            leaves: What `leaves` returned.
            ignored: A boolean for each row: true where the action does not matter.

        Returns:
            The operations that do it in a graph, none eagerly. What changes variables
            has to wait for them: `with tf.control_dependencies(...)`.

        Raises:
            SpecError: A value is known and out of bounds.
        """
        checks = []
        for index, leaf in enumerate(leaves):
            spec = self.structure.leaves[index]
            if not is_bounded(spec):
                continue
            rows = tf.reshape(ignored, [-1] + [1] * (leaf.shape.rank - 1))
            fits = rows | ((leaf >= spec.minimum) & (leaf <= spec.maximum))
            if tf.executing_eagerly():
                self._check_values(index, leaf.numpy(), fits.numpy())
            else:
                checks.append(self._assert(index, leaf, tf.reduce_all(fits)))
        return checks

    def _tensor(self, index: int, leaf: Any) -> Any:
        spec = self.structure.leaves[index]
        tensor = _as_tensor(leaf, spec)
        if tensor is None:
            self._refuse(index, f"{leaf!r:.80}", "It cannot be made a tensor.")
        if not self._is_as_good_as(tensor.dtype, spec.dtype):
            reason = f"dtype is {tensor.dtype.name}; the spec says {spec.dtype.name}."
            self._refuse(index, _text(tensor), reason)
        expected = self._shape(spec)
        if not tensor.shape.is_compatible_with(expected):
            self._refuse(index, _text(tensor), self._reason_for_shape(tensor, spec))
        if not tensor.shape.is_fully_defined():
            # What is not known yet is looked at when the graph runs.
            tensor = tf.ensure_shape(tensor, expected)
        return tf.cast(tensor, spec.dtype)

    def _is_as_good_as(self, dtype: Any, wanted: Any) -> bool:
        if self._cast and wanted.is_integer:
            return bool(dtype.is_integer)
        return bool(dtype == wanted)

    def _shape(self, spec: Any) -> Any:
        return tf.TensorShape([self._rows]).concatenate(spec.shape)

    def _reason_for_shape(self, tensor: Any, spec: Any) -> str:
        if tensor.shape == spec.shape:
            return "The whole batch dimension is missing."
        if tensor.shape[1:].is_compatible_with(spec.shape):
            return f"The batch has {tensor.shape[0]} rows instead of {self._rows}."
        return f"The shape is {tensor.shape} instead of {self._shape(spec)}."

    def _expected(self, spec: Any) -> str:
        text = f"tensor of shape {self._shape(spec)}, dtype {spec.dtype.name}"
        if not is_bounded(spec):
            return text
        low, high = bound_text(spec.minimum), bound_text(spec.maximum)
        return f"{text}, values {low} … {high}"

    def _check_values(self, index: int, values: Array, fits: Array) -> None:
        if fits.all():
            return
        place = tuple(int(axis) for axis in np.argwhere(~fits)[0])
        self._refuse(
            index,
            describe(values).replace("array", "tensor", 1),
            f"The value {values[place]!s} at index {place} is out of bounds.",
        )

    def _assert(self, index: int, leaf: Any, fits: Any) -> Any:
        path = self.structure.paths[index]
        place = f" at {nest.join('action', path)}" if path else ""
        expected = self._expected(self.structure.leaves[index])
        message = f"{self._subject} does not fit its spec{place}: {expected} expected."
        extremes = [tf.reduce_min(leaf), "…", tf.reduce_max(leaf)]
        return tf.debugging.Assert(fits, [message, "Got values", *extremes])

    def _refuse(self, index: int, got: str, reason: str) -> None:
        raise SpecError.does_not_fit(
            self._subject,
            path=nest.join("action", self.structure.paths[index]),
            root="action",
            expected=self._expected(self.structure.leaves[index]),
            got=got,
            reason=reason,
        )


def _as_tensor(leaf: Any, spec: Any) -> Any:
    """Returns a tensor, or `None` for what cannot be one."""
    try:
        # Of Python's numbers the dtype is nobody's choice.
        hint = None if hasattr(leaf, "dtype") else spec.dtype
        return tf.convert_to_tensor(leaf, dtype_hint=hint)
    except (TypeError, ValueError, tf.errors.OpError):
        # Which of them TensorFlow raises depends on the value.
        return None


def _text(tensor: Any) -> str:
    return f"tensor of shape {tensor.shape}, dtype {tensor.dtype.name}"
