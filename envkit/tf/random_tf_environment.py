"""Fills any tensor specs with random values: `RandomTFEnvironment`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from envkit import nest
from envkit.extend import checked_size
from envkit.seeding import checked_seeds
from envkit.tf.tensor_spec import (
    from_spec,
    is_bounded,
    sample_spec_nest,
    zero_spec_nest,
)
from envkit.tf.tf_environment import TensorActions, TFEnvironment
from envkit.tf.tf_time_step import as_written
from envkit.time_step import StepType, TimeStep
from envkit.types import NestedArray, NestedSpec

__all__ = ["RandomTFEnvironment"]


class RandomTFEnvironment(TFEnvironment):
    """Returns random observations and rewards, in episodes of random length.

    It replaces an environment in tests. All rows end together. The current time step is
    stored in variables; before the first call it is zeros.

    Example:
        >>> import envkit
        >>> spec = envkit.time_step_spec({"image": tf.TensorSpec([4, 4, 3], tf.uint8)})
        >>> env = RandomTFEnvironment(spec, tf.TensorSpec([], tf.int32), batch_size=2)
        >>> env.reset().observation["image"].shape
        TensorShape([2, 4, 4, 3])
    """

    def __init__(
        self,
        time_step_spec: TimeStep,
        action_spec: NestedSpec,
        batch_size: int = 1,
        episode_end_probability: float = 0.1,
        *,
        seed: int | None = None,
    ) -> None:
        """Makes a random environment.

        Args:
            time_step_spec: The specs to sample from, made by `envkit.time_step_spec`.
            action_spec: The specs of one row's action.
            batch_size: The number of rows.
            episode_end_probability: The probability that a step ends the episode.
            seed: The integer seed of the random values. Without it they depend on
                `tf.random.set_seed`, if that was called.
        """
        rows = checked_size("batch_size", batch_size)
        if not 0.0 <= episode_end_probability <= 1.0:
            raise ValueError(
                "episode_end_probability must be between 0 and 1, got "
                f"{episode_end_probability}."
            )
        super().__init__(from_spec(time_step_spec), from_spec(action_spec), rows)
        self._episode_end_probability = episode_end_probability
        self._actions = TensorActions("RandomTFEnvironment", self.action_spec(), rows)
        self._structure = nest.Structure(self.time_step_spec())
        zeros = zero_spec_nest(self.time_step_spec(), outer_dims=(rows,))
        # In a flat list, because a module wraps nests that are its attributes.
        self._leaves = [tf.Variable(leaf) for leaf in self._structure.flatten(zeros)]
        self._has_begun = tf.Variable(False, name="has_begun")
        # The key of the random values, and how many have been drawn.
        self._stream = tf.Variable([_as_key(seed), 0], dtype=tf.int64, name="stream")

    @as_written
    def _current_time_step(self) -> TimeStep:
        leaves = [variable.read_value() for variable in self._leaves]
        time_step: TimeStep = self._structure.unflatten(leaves)
        return time_step

    @as_written
    def _reset(self) -> TimeStep:
        return self._keep(self._first(self._sample()))

    @as_written
    def _reset_rows(self, mask: Any) -> TimeStep:
        rows = mask | ~self._has_begun
        first = self._first(self._sample())
        return self._keep(self._merged(rows, first, self._current_time_step()))

    @as_written
    def _step(self, action: NestedArray) -> TimeStep:
        ended = tf.equal(self._current_time_step().step_type, StepType.LAST)
        begins = ended | ~self._has_begun
        leaves = self._actions.leaves(action)
        with tf.control_dependencies(self._actions.check_bounds(leaves, begins)):
            ends = tf.random.stateless_uniform([], self._next_seed())
            sample = self._sample()
            stepped = self._stepped(sample, ends < self._episode_end_probability)
            return self._keep(self._merged(begins, self._first(sample), stepped))

    def _sample(self) -> TimeStep:
        spec = self.time_step_spec()
        reward, observation = sample_spec_nest(
            (spec.reward, spec.observation), self._next_seed(), (self.batch_size,)
        )
        return TimeStep((), reward, (), observation)

    def _next_seed(self) -> Any:
        return self._stream.assign_add(tf.constant([0, 1], tf.int64), read_value=True)

    def _first(self, sample: TimeStep) -> TimeStep:
        reward = tf.nest.map_structure(tf.zeros_like, sample.reward)
        return TimeStep(
            self._step_types(StepType.FIRST), reward, self._discount(1.0), sample[3]
        )

    def _stepped(self, sample: TimeStep, ends: Any) -> TimeStep:
        return TimeStep(
            self._step_types(tf.where(ends, StepType.LAST, StepType.MID)),
            sample.reward,
            self._discount(tf.where(ends, 0.0, 1.0)),
            sample.observation,
        )

    def _step_types(self, step_type: Any) -> Any:
        return tf.fill([self.batch_size], tf.convert_to_tensor(step_type))

    def _discount(self, value: Any) -> Any:
        """Returns the discounts nearest to `value` that their spec allows."""

        def filled(spec: Any) -> Any:
            size = [self.batch_size, *spec.shape]
            discount = tf.fill(size, tf.cast(value, spec.dtype))
            if not is_bounded(spec):
                return discount
            return tf.clip_by_value(discount, spec.minimum, spec.maximum)

        return nest.map_structure(filled, self.discount_spec())

    def _merged(self, rows: Any, ours: TimeStep, theirs: TimeStep) -> TimeStep:
        """Returns a time step with `ours` in these rows and `theirs` in the others."""

        def chosen(our: Any, their: Any) -> Any:
            mask = tf.reshape(rows, [-1] + [1] * (our.shape.rank - 1))
            return tf.where(mask, our, their)

        merged: TimeStep = self._structure.map(chosen, ours, theirs)
        return merged

    def _keep(self, time_step: TimeStep) -> TimeStep:
        leaves = self._structure.flatten(time_step)
        for variable, leaf in zip(self._leaves, leaves, strict=True):
            variable.assign(leaf)
        self._has_begun.assign(True)
        return time_step


def _as_key(seed: int | None) -> Any:
    if seed is not None:
        (number,) = checked_seeds(seed, 1)
        return (number or 0) % 2**63
    return tf.random.uniform([], maxval=tf.int64.max, dtype=tf.int64)
