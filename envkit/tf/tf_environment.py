"""`TFEnvironment`: what every environment is whose time steps are tensors."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import Any, TypeVar

import tensorflow as tf

from envkit.errors import SpecError
from envkit.tf.tf_time_step import derive_from_tf_agents
from envkit.time_step import TimeStep
from envkit.types import NestedArray, NestedSpec

__all__ = ["TFEnvironment"]

Self = TypeVar("Self", bound="TFEnvironment")


class TFEnvironment(tf.Module, abc.ABC):  # type: ignore[misc]  # TensorFlow has no types
    """An environment that takes and returns tensors, a batch of rows at a time.

    A subclass overrides `_current_time_step`, `_reset` and `_step`. Written with
    TensorFlow's operations, with what it remembers in variables, it runs wherever
    these do: eagerly, inside `tf.function` and `tf.while_loop`, compiled by XLA. Its
    variables go into a `tf.train.Checkpoint`.

    The grammar is that of every environment, and `_step` sees to it: each row is
    `FIRST (MID)* LAST`, over and over, and the action after a `LAST` is ignored.

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
        """Keeps what the environment says about itself.

        Args:
            time_step_spec: The tensor specs of one row's time step.
            action_spec: The tensor specs of one row's action.
            batch_size: How many rows there are.
        """
        super().__init__()
        self._said = _Said(time_step_spec, action_spec)
        self._batch_size = batch_size
        # Under the names that subclasses written for TF-Agents read, and past the
        # module, which would wrap them.
        object.__setattr__(self, "_time_step_spec", self._said.time_step)
        object.__setattr__(self, "_action_spec", self._said.action)

    def time_step_spec(self) -> TimeStep:
        """Returns the tensor specs of one row's time step."""
        derive_from_tf_agents()
        spec: TimeStep = self._said.time_step
        return spec

    def action_spec(self) -> NestedSpec:
        """Returns the tensor specs of one row's action."""
        return self._said.action

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
        """A name, which may be set; that of the class if it was not."""
        name: str = self._given_name or super().name
        return name

    @name.setter
    def name(self, name: str) -> None:
        self._given_name = name

    @property
    def batched(self) -> bool:
        """True: all tensors have a dimension of rows in front."""
        return True

    @property
    def batch_size(self) -> int | None:
        """How many rows there are."""
        return self._batch_size

    def current_time_step(self) -> TimeStep:
        """Returns where each row stands now: what a policy should act on."""
        return self._current_time_step()

    @property
    def resets_rows(self) -> bool:
        """Whether `reset` takes a mask."""
        return type(self)._reset_rows is not TFEnvironment._reset_rows

    def reset(self, mask: Any = None) -> TimeStep:
        """Starts an episode and returns the time step of all rows.

        Args:
            mask: A boolean for each row: true where an episode starts, while the other
                rows stay where they are. `None` means all rows. Only an environment
                whose `resets_rows` is true takes a mask.
        """
        if mask is None:
            return self._reset()
        return self._reset_rows(self._as_mask(mask))

    def step(self, action: NestedArray) -> TimeStep:
        """Applies one action for each row and returns what comes of them.

        A row whose last time step was a `LAST` ignores its action and starts an
        episode.
        """
        return self._step(action)

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns pictures of the current state, one for each row."""
        raise NotImplementedError(f"{type(self).__name__} cannot render.")

    def close(self) -> None:  # most environments hold nothing
        """Frees what the environment holds; calling it again does nothing."""

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
        """Returns the current time step, without a step or reset."""

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
        """Applies an action for each row and returns the time step that follows."""


class _Said:
    """Keeps specs as they are: as attributes of a module, nests become its own kind."""

    __slots__ = ("action", "time_step")

    def __init__(self, time_step: Any, action: Any) -> None:
        self.time_step = _as_given(time_step)
        self.action = _as_given(action)


def _as_given(nest: Any) -> Any:
    """Returns a nest as it was before it was an attribute of a module."""
    if isinstance(nest, list):
        return [_as_given(value) for value in nest]
    if not isinstance(nest, dict | tuple):
        return nest
    # What TensorFlow makes of these is a proxy.
    own = getattr(nest, "__wrapped__", nest)
    if isinstance(own, dict):
        copy = own.copy()
        copy.update((key, _as_given(value)) for key, value in own.items())
        return copy
    values = [_as_given(value) for value in own]
    return own._make(values) if hasattr(own, "_make") else tuple(values)
