"""The base class of TensorFlow environments, and the check of their actions."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from envkit import nest
from envkit.errors import SpecError
from envkit.extend import bound_text, describe, flatten_as
from envkit.tf.tensor_spec import is_bounded
from envkit.tf.tf_time_step import as_written, derive_from_tf_agents
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, NestedSpec

__all__ = ["TFEnvironment", "TensorActions"]

Self = TypeVar("Self", bound="TFEnvironment")


class TFEnvironment(tf.Module, abc.ABC):  # type: ignore[misc]  # TensorFlow has no types
    """Takes and returns tensors, a batch of rows at a time.

    A subclass overrides `_current_time_step`, `_reset` and `_step`. If it uses
    TensorFlow's operations and keeps its state in variables, it runs wherever they do:
    eagerly, inside `tf.function` and `tf.while_loop`, compiled by XLA. Its variables
    can be saved in a `tf.train.Checkpoint`.

    As in every environment, `_step` must produce `FIRST (MID)* LAST` in each row, over
    and over, and ignore the action after a `LAST`.

    Example:
        >>> import envkit
        >>> class Countdown(TFEnvironment):
        ...     def __init__(self):
        ...         spec = envkit.time_step_spec(tf.TensorSpec([], tf.int32))
        ...         super().__init__(spec, tf.TensorSpec([], tf.int32))
        ...         self._left = tf.Variable(3)
        ...     def _current_time_step(self):
        ...         left = tf.reshape(self._left, [1])
        ...         if tf.equal(self._left, 3):
        ...             return envkit.restart(left, batch_size=1)
        ...         if tf.equal(self._left, 0):
        ...             return envkit.termination(left, tf.ones([1]))
        ...         return envkit.transition(left, tf.zeros([1]))
        ...     def _reset(self):
        ...         self._left.assign(3)
        ...         return self._current_time_step()
        ...     def _step(self, action):
        ...         self._left.assign((self._left - 1) % 4)
        ...         return self._current_time_step()
        >>> env = Countdown()
        >>> [int(env.step(tf.constant([0])).step_type[0]) for _ in range(5)]
        [1, 1, 2, 0, 1]
    """

    _given_name: str | None = None

    def __init__(
        self,
        time_step_spec: TimeStep | None = None,
        action_spec: NestedSpec | None = None,
        batch_size: int | None = 1,
    ) -> None:
        """Keeps the specs and the batch size.

        Args:
            time_step_spec: The tensor specs of one row's time step.
            action_spec: The tensor specs of one row's action.
            batch_size: The number of rows.
        """
        super().__init__()
        self._specs = _Specs(time_step_spec, action_spec)
        self._batch_size = batch_size
        # Under the names that subclasses written for TF-Agents read, and bypassing the
        # module, which would wrap them.
        object.__setattr__(self, "_time_step_spec", self._specs.time_step)
        object.__setattr__(self, "_action_spec", self._specs.action)

    def time_step_spec(self) -> TimeStep:
        """Returns the tensor specs of one row's time step."""
        derive_from_tf_agents()
        spec: TimeStep = self._specs.time_step
        return spec

    def action_spec(self) -> NestedSpec:
        """Returns the tensor specs of one row's action."""
        return self._specs.action

    def observation_spec(self) -> NestedSpec:
        """Returns the tensor specs of one row's observation."""
        return self.time_step_spec().observation

    def reward_spec(self) -> NestedSpec:
        """Returns the tensor spec of one row's reward."""
        return self.time_step_spec().reward

    def discount_spec(self) -> NestedSpec:
        """Returns the tensor spec of one row's discount."""
        return self.time_step_spec().discount

    @property
    def name(self) -> str:
        """The name that was set; by default the class's."""
        name: str = self._given_name or super().name
        return name

    @name.setter
    def name(self, name: str) -> None:
        self._given_name = name

    @property
    def batched(self) -> bool:
        """True: all tensors have a leading dimension of rows."""
        return True

    @property
    def batch_size(self) -> int | None:
        """The number of rows."""
        return self._batch_size

    def current_time_step(self) -> TimeStep:
        """Returns the current time step, on which a policy should act."""
        return self._current_time_step()

    @property
    def resets_rows(self) -> bool:
        """True if `reset` takes a mask."""
        return type(self)._reset_rows is not TFEnvironment._reset_rows

    def reset(self, mask: Any = None) -> TimeStep:
        """Starts an episode and returns the time step of all rows.

        Args:
            mask: A boolean per row: True where an episode starts; the other rows stay
                where they are. `None` means all rows. Only an environment whose
                `resets_rows` is true accepts a mask.
        """
        if mask is None:
            return self._reset()
        return self._reset_rows(self._as_mask(mask))

    def step(self, action: NestedArray) -> TimeStep:
        """Applies one action per row and returns the next time step.

        A row whose last time step was a `LAST` ignores its action and starts an
        episode.
        """
        return self._step(action)

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns pictures of the current state, one per row."""
        raise NotImplementedError(f"{type(self).__name__} cannot render.")

    def close(self) -> None:  # most environments hold nothing
        """Frees the environment's resources; later calls do nothing."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @abc.abstractmethod
    def _current_time_step(self) -> TimeStep:
        """Returns the current time step, without stepping or resetting."""

    @abc.abstractmethod
    def _reset(self) -> TimeStep:
        """Starts an episode in every row and returns a `FIRST`."""

    def _reset_rows(self, mask: Any) -> TimeStep:
        """Starts an episode in the masked rows and returns the whole time step.

        Rows that have never begun start one too.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot reset single rows. Call reset() without a "
            "mask, or override _reset_rows(mask), which starts an episode in the "
            "masked rows only."
        )

    def _as_mask(self, mask: Any) -> Any:
        rows, shape = tf.convert_to_tensor(mask), [self.batch_size]
        if rows.dtype != tf.bool or not rows.shape.is_compatible_with(shape):
            raise SpecError.does_not_fit(
                f"{type(self).__name__}.reset() was given a mask that",
                path="",
                expected=f"boolean tensor of shape ({self.batch_size},)",
                got=f"tensor of shape {rows.shape}, dtype {rows.dtype.name}",
                reason="A mask has one boolean for each row: true where an episode is "
                "to begin.",
            )
        return tf.ensure_shape(rows, shape)

    @abc.abstractmethod
    def _step(self, action: NestedArray) -> TimeStep:
        """Applies one action per row and returns the next time step."""


class _Specs:
    """Keeps specs unchanged, because a module wraps nests that are its attributes."""

    __slots__ = ("action", "time_step")

    def __init__(self, time_step: Any, action: Any) -> None:
        self.time_step = _as_given(time_step)
        self.action = _as_given(action)


def _as_given(nest: Any) -> Any:
    """Returns a nest as it was before it became an attribute of a module."""
    if isinstance(nest, list):
        return [_as_given(value) for value in nest]
    if not isinstance(nest, dict | tuple):
        return nest
    # TensorFlow makes proxies of these.
    own = getattr(nest, "__wrapped__", nest)
    if isinstance(own, dict):
        copy = own.copy()
        copy.update((key, _as_given(value)) for key, value in own.items())
        return copy
    values = [_as_given(value) for value in own]
    return own._make(values) if hasattr(own, "_make") else tuple(values)


class TensorActions:
    """Checks batches of actions against the specs of one row's action.

    Structure, shapes and dtypes are always known, so errors in them are raised at once.
    Values are known only eagerly. In a graph the check of values is an operation, which
    XLA leaves out.

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
            environment: The environment's name in errors.
            spec: The tensor specs of one row's action.
            rows: The size of a batch; `None` for any.
            cast: True to accept integers of any dtype for those of another.
        """
        self.structure = nest.Structure(spec)
        self._subject = f"{environment}.step() was given an action that"
        self._rows = rows
        self._cast = cast

    @as_written
    def leaves(self, action: NestedArray) -> list[Any]:
        """Returns the leaves as tensors of the right shapes and dtypes.

        Raises:
            SpecError: Structure, a shape or a dtype differs from the specs.
        """
        given = flatten_as(self.structure, action, subject=self._subject, root="action")
        return [self._tensor(index, leaf) for index, leaf in enumerate(given)]

    @as_written
    def check_bounds(self, leaves: list[Any], ignored: Any) -> list[Any]:
        """Raises for values that are out of bounds.

        Args:
            leaves: The result of `leaves`.
            ignored: A boolean per row: True where the action is ignored.

        Returns:
            The checking operations in a graph; none eagerly. Operations that change
            variables must wait for them: `with tf.control_dependencies(...)`.

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
        if not self._accepts(tensor.dtype, spec.dtype):
            reason = f"dtype is {tensor.dtype.name}; the spec says {spec.dtype.name}."
            self._refuse(index, _text(tensor), reason)
        expected = self._shape(spec)
        if not tensor.shape.is_compatible_with(expected):
            self._refuse(index, _text(tensor), self._reason_for_shape(tensor, spec))
        if not tensor.shape.is_fully_defined():
            # Sizes that are not known yet are checked when the graph runs.
            tensor = tf.ensure_shape(tensor, expected)
        return tf.cast(tensor, spec.dtype)

    def _accepts(self, dtype: Any, wanted: Any) -> bool:
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
    """Returns a tensor, or `None` for a value that cannot be one."""
    try:
        # Python numbers have no dtype, so they get the spec's.
        hint = None if hasattr(leaf, "dtype") else spec.dtype
        return tf.convert_to_tensor(leaf, dtype_hint=hint)
    except (TypeError, ValueError, tf.errors.OpError):
        # The value decides which of them TensorFlow raises.
        return None


def _text(tensor: Any) -> str:
    return f"tensor of shape {tensor.shape}, dtype {tensor.dtype.name}"
