"""Wrappers of TensorFlow environments."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from envkit import nest
from envkit.extend import checked_size, describe, listed
from envkit.py_environment import PyEnvironment
from envkit.tf.tensor_spec import BoundedTensorSpec, is_bounded
from envkit.tf.tf_environment import TensorActions, TFEnvironment
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import NestedArray, NestedSpec

__all__ = ["OneHotActionWrapper", "TFEnvironmentBaseWrapper", "TFTimeLimit"]


class TFEnvironmentBaseWrapper(TFEnvironment):
    """Forwards everything to the environment it wraps.

    A subclass overrides the methods that differ: `_step`, `_reset` and
    `_current_time_step`. For other specs, it overrides `action_spec`, or
    `time_step_spec`, which contains the specs of observation, reward and discount. A
    subclass that keeps state per row overrides `_reset_rows(mask)` too.

    Public attributes that the wrapper lacks are looked up in the environment.

    Example:
        >>> from envkit.tf import TFCartPole
        >>> class Twice(TFEnvironmentBaseWrapper):
        ...     def _step(self, action):
        ...         self.wrapped_env().step(action)
        ...         return super()._step(action)
        >>> env = Twice(TFCartPole(seed=1))
        >>> env.reset().is_first().numpy()
        array([ True])
        >>> _ = env.step([1])
        >>> env.get_info()["episode_steps"].numpy()
        array([2])
    """

    def __init__(self, env: TFEnvironment) -> None:
        """Wraps an environment; closing the wrapper closes it."""
        if isinstance(env, PyEnvironment) or not hasattr(env, "time_step_spec"):
            hint = ""
            if isinstance(env, PyEnvironment):
                hint = " Make one of it first: TFPyEnvironment(env)."
            raise TypeError(
                f"The environment of {type(self).__name__} must be a TFEnvironment, "
                f"got {describe(env)}.{hint}"
            )
        super().__init__(env.time_step_spec(), env.action_spec(), env.batch_size)
        self._env = env

    def __getattr__(self, name: str) -> Any:
        # Private names are not forwarded, because `copy` asks for some before there is
        # an environment.
        if name.startswith("_"):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            )
        return getattr(self._env, name)

    def wrapped_env(self) -> TFEnvironment:
        """Returns the environment."""
        return self._env

    @property
    def batched(self) -> bool:
        """True: all TensorFlow environments are batches."""
        return self._env.batched

    @property
    def batch_size(self) -> int | None:
        """The number of rows."""
        return self._env.batch_size

    @property
    def resets_rows(self) -> bool:
        """True if `reset` takes a mask."""
        return bool(getattr(self._env, "resets_rows", False))

    @property
    def autoreset(self) -> AutoReset:
        """When the next episode begins after a `LAST`, as in the environment."""
        return AutoReset.kept_by(self._env)

    @autoreset.setter
    def autoreset(self, order: AutoReset | str) -> None:
        self._env.autoreset = order

    def time_step_spec(self) -> TimeStep:
        """Returns the tensor specs of one row's time step."""
        return self._env.time_step_spec()

    def action_spec(self) -> NestedSpec:
        """Returns the tensor specs of one row's action."""
        return self._env.action_spec()

    def render(self, mode: str = "rgb_array") -> Any:
        """Returns the environment's pictures."""
        return self._env.render(mode)

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()

    def get_state(self) -> Any:
        """Returns the environment's state, for `set_state`."""
        return self._env.get_state()

    def set_state(self, state: Any) -> None:
        """Restores a state returned by `get_state`."""
        self._env.set_state(state)

    def _current_time_step(self) -> TimeStep:
        return self._env.current_time_step()

    def _reset(self) -> TimeStep:
        return self._env.reset()

    def _reset_rows(self, mask: Any) -> TimeStep:
        return self._env.reset(mask)

    def _step(self, action: NestedArray) -> TimeStep:
        return self._env.step(action)


class OneHotActionWrapper(TFEnvironmentBaseWrapper):
    """Takes integer actions as one-hot vectors.

    Each integer leaf of the action spec, a number or a vector, gets one more dimension,
    with an element for each value from its minimum to its maximum. If all elements are
    equal, the first one counts. Other leaves stay as they are.

    Example:
        >>> from envkit.tf import TFCartPole
        >>> env = OneHotActionWrapper(TFCartPole(batch_size=2, seed=1))
        >>> env.action_spec().shape
        TensorShape([2])
        >>> time_step = env.reset()
        >>> env.step(tf.one_hot([0, 1], 2, dtype=tf.int64)).reward.shape
        TensorShape([2])
    """

    def __init__(self, env: TFEnvironment) -> None:
        """Wraps an environment.

        Raises:
            ValueError: An integer action has more than one dimension, no bounds, or
                elements with different numbers of values.
        """
        super().__init__(env)
        self._wanted = nest.Structure(env.action_spec())
        spec = self._wanted.unflatten(
            [
                _one_hot_spec(leaf, nest.join("action", path))
                for leaf, path in zip(
                    self._wanted.leaves, self._wanted.paths, strict=True
                )
            ]
        )
        self._actions = TensorActions("OneHotActionWrapper", spec, env.batch_size)

    def action_spec(self) -> NestedSpec:
        """Returns the tensor specs of one row's action: one-hot for integers."""
        return self._actions.structure.template

    def _step(self, action: NestedArray) -> TimeStep:
        chosen = [
            _chosen(leaf, spec)
            for leaf, spec in zip(
                self._actions.leaves(action), self._wanted.leaves, strict=True
            )
        ]
        return self._env.step(self._wanted.unflatten(chosen))


class TFTimeLimit(TFEnvironmentBaseWrapper):
    """Truncates episodes after `duration` steps.

    The last step becomes a `LAST` and keeps its discount, so later rewards can still be
    estimated. Each row counts on its own. The environment may end an episode earlier.

    The environment does not know that an episode was cut, so the wrapper begins the
    next one. If only some rows were cut, the environment must be able to reset these
    alone: its `resets_rows` must be true. A batch steps as a whole, so these rows make
    one more step first, whose time step is dropped. An environment that cannot reset
    rows can be wrapped if it has a single row.

    Example:
        >>> from envkit.tf import TFCartPole
        >>> env = TFTimeLimit(TFCartPole(seed=1), duration=2)
        >>> env.reset().step_type.numpy()
        array([0], dtype=int32)
        >>> [int(env.step([1]).step_type[0]) for _ in range(4)]
        [1, 2, 0, 1]
    """

    def __init__(self, env: TFEnvironment, duration: int) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            duration: The maximum number of steps in an episode.

        Raises:
            ValueError: The environment is a batch and cannot reset single rows.
        """
        super().__init__(env)
        self._duration = checked_size("duration", duration)
        self._check_order()
        if self.batch_size != 1 and not (self.batch_size and self.resets_rows):
            kind = type(env).__name__
            raise ValueError(
                f"TFTimeLimit cannot wrap {kind} of batch size {self.batch_size}: its "
                "rows end one by one, and it cannot reset single rows. Override "
                f"_reset_rows(mask) in {kind}, or have it limit its episodes itself: "
                "of a Python environment, wrap that before it becomes one of "
                "TensorFlow."
            )
        self._steps = tf.Variable(tf.zeros([self.batch_size], tf.int64), name="steps")
        # True where the current time step is a LAST here but not in the environment.
        self._cut = tf.Variable(tf.zeros([self.batch_size], tf.bool), name="cut")
        # True where the current time step is a LAST, or there is none.
        self._over = tf.Variable(tf.ones([self.batch_size], tf.bool), name="over")

    def _check_order(self) -> None:
        order = AutoReset.kept_by(self._env)
        if order is not AutoReset.NEXT_STEP:
            raise ValueError(
                f"TFTimeLimit cannot wrap an environment with AutoReset.{order.name}: "
                "where it cuts an episode, the next step begins another. Limit the "
                "Python environment in place of this one: "
                "TFPyEnvironment(TimeLimit(env, duration))."
            )

    @property
    def duration(self) -> int:
        """The maximum number of steps in an episode."""
        return self._duration

    def get_state(self) -> Any:
        """Returns the environment's state and the counters of each row."""
        counted = [variable.numpy() for variable in self._counted()]
        return self._env.get_state(), counted

    def set_state(self, state: Any) -> None:
        """Restores a state returned by `get_state`."""
        own, counted = state
        self._env.set_state(own)
        for variable, value in zip(self._counted(), counted, strict=True):
            variable.assign(value)

    def _counted(self) -> list[Any]:
        return [self._steps, self._cut, self._over]

    def reset_to(self, state: Any, mask: Any = None) -> TimeStep:
        """Starts episodes in given states, with the environment's own `reset_to`."""
        return self._begun(self._env.reset_to(state, mask))

    def _current_time_step(self) -> TimeStep:
        return _ended(self._env.current_time_step(), self._cut.read_value())

    def _reset(self) -> TimeStep:
        return self._begun(self._env.reset())

    def _reset_rows(self, mask: Any) -> TimeStep:
        return self._begun(self._env.reset(mask))

    def _begun(self, time_step: TimeStep) -> TimeStep:
        """Resets the counters of the rows that have begun an episode."""
        begun = time_step.is_first()
        self._steps.assign(tf.where(begun, tf.zeros_like(self._steps), self._steps))
        cut = self._cut & ~begun
        self._cut.assign(cut)
        self._over.assign(self._over & ~begun)
        return _ended(time_step, cut)

    def _step(self, action: NestedArray) -> TimeStep:
        self._check_order()
        time_step = self._step_or_reset(action)
        # Elsewhere a FIRST is a step like any other, and counts.
        begun = time_step.is_first() & self._over
        steps = tf.where(self._over, tf.zeros_like(self._steps), self._steps)
        steps = tf.where(begun, steps, steps + 1)
        cut = (steps >= self._duration) & ~time_step.is_last() & ~begun
        self._steps.assign(steps)
        self._cut.assign(cut)
        self._over.assign(time_step.is_last() | cut)
        return _ended(time_step, cut)

    def _step_or_reset(self, action: NestedArray) -> TimeStep:
        """Steps the rows, and begins an episode in those that were cut."""
        cut = self._cut.read_value()
        time_step: TimeStep = tf.cond(
            tf.reduce_all(cut),
            lambda: self._env.reset(),
            lambda: self._step_and_reset(action, cut),
        )
        return time_step

    def _step_and_reset(self, action: NestedArray, cut: Any) -> TimeStep:
        time_step = self._env.step(action)
        if self.batch_size == 1:
            return time_step
        merged: TimeStep = tf.cond(
            tf.reduce_any(cut), lambda: self._env.reset(cut), lambda: time_step
        )
        return merged


def _ended(time_step: TimeStep, rows: Any) -> TimeStep:
    """Returns a time step that is a `LAST` in these rows."""
    step_type = tf.where(rows, StepType.LAST, time_step.step_type)
    return time_step._replace(step_type=step_type)


def _one_hot_spec(spec: Any, place: str) -> Any:
    if not spec.dtype.is_integer:
        return spec
    if spec.shape.rank is None or spec.shape.rank > 1:
        raise ValueError(
            "Integer actions of OneHotActionWrapper must have at most one dimension, "
            f"and {place} has shape {spec.shape}."
        )
    if not is_bounded(spec):
        raise ValueError(
            f"Integer actions of OneHotActionWrapper must have bounds, and {place} has "
            "none, so that the vector would have no end."
        )
    values = np.unique(spec.maximum.astype(object) - spec.minimum.astype(object) + 1)
    if values.size != 1:
        raise ValueError(
            "All elements of an action of OneHotActionWrapper must have the "
            f"same number of values, but in {place} they have {listed(values, most=3)}."
        )
    return BoundedTensorSpec(
        [*spec.shape, int(values[0])], spec.dtype, 0, 1, name="one_hot_action_spec"
    )


def _chosen(leaf: Any, spec: Any) -> Any:
    if not spec.dtype.is_integer:
        return leaf
    return tf.cast(tf.argmax(leaf, axis=-1), spec.dtype) + spec.minimum
