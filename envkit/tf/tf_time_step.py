"""Time steps made of tensors, eagerly and inside `tf.function`.

Nobody needs to import this module: `envkit.restart` and its siblings come here when
they are given tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from envkit.errors import SpecError
from envkit.time_step import StepType, TimeStep
from envkit.types import NestedArray, NestedSpec

__all__ = ["restart", "termination", "time_step_spec", "transition", "truncation"]


def restart(
    observation: NestedArray,
    batch_size: Any = None,
    reward_spec: NestedSpec | None = None,
) -> TimeStep:
    """Returns `FIRST` tensors; `batch_size` may itself be a tensor of rank 0 or 1."""
    dims = _as_dims(() if batch_size is None else batch_size)
    if reward_spec is None:
        reward = tf.zeros(dims, tf.float32)
    else:
        reward = tf.nest.map_structure(
            lambda spec: tf.zeros(
                tf.concat([dims, tf.constant(list(spec.shape), tf.int32)], axis=0),
                tf.as_dtype(spec.dtype),
            ),
            reward_spec,
        )
    return TimeStep(
        _filled(StepType.FIRST, dims), reward, tf.ones(dims, tf.float32), observation
    )


def transition(
    observation: NestedArray,
    reward: NestedArray,
    discount: Any = 1.0,
    outer_dims: Any = None,
) -> TimeStep:
    """Returns `MID` tensors; the reward keeps its dtype."""
    return _step("transition", StepType.MID, observation, reward, discount, outer_dims)


def termination(
    observation: NestedArray, reward: NestedArray, outer_dims: Any = None
) -> TimeStep:
    """Returns `LAST` tensors with discount 0; the reward keeps its dtype."""
    return _step("termination", StepType.LAST, observation, reward, 0.0, outer_dims)


def truncation(
    observation: NestedArray,
    reward: NestedArray,
    discount: Any = 1.0,
    outer_dims: Any = None,
) -> TimeStep:
    """Returns `LAST` tensors with the discount as given; the reward keeps its dtype."""
    return _step("truncation", StepType.LAST, observation, reward, discount, outer_dims)


def time_step_spec(
    observation_spec: NestedSpec, reward_spec: NestedSpec | None = None
) -> TimeStep:
    """Returns the tensor specs of a time step's four fields."""
    for spec in tf.nest.flatten(reward_spec or ()):
        if not isinstance(spec, tf.TypeSpec):
            raise TypeError(
                f"The reward spec holds {spec!r:.80}, but the observation spec is made "
                "of tensor specs. Both must be of one kind."
            )
    # TensorFlow has no public name for the class that its own checks look for.
    from tensorflow.python.framework.tensor_spec import BoundedTensorSpec

    return TimeStep(
        step_type=tf.TensorSpec([], tf.int32, name="step_type"),
        reward=reward_spec or tf.TensorSpec([], tf.float32, name="reward"),
        discount=BoundedTensorSpec([], tf.float32, 0.0, 1.0, name="discount"),
        observation=observation_spec,
    )


def _step(
    call: str,
    step_type: Any,
    observation: NestedArray,
    reward: NestedArray,
    discount: Any,
    outer_dims: Any,
) -> TimeStep:
    reward = tf.nest.map_structure(lambda leaf: _as_reward(call, leaf), reward)
    if outer_dims is not None:
        dims = _as_dims(outer_dims)
    else:
        leaves = tf.nest.flatten(reward)
        # Rank 0 has no first dimension to take, and the slice of nothing is nothing.
        dims = tf.shape(leaves[0])[:1] if leaves else _as_dims(())
    return TimeStep(
        _filled(step_type, dims),
        reward,
        _as_discount(call, discount, dims),
        observation,
    )


def _as_dims(dims: Any) -> Any:
    if isinstance(dims, tf.TensorShape):
        dims = dims.as_list()
    if isinstance(dims, Sequence) and not len(dims):
        return tf.zeros([0], tf.int32)
    return tf.reshape(tf.cast(dims, tf.int32), [-1])


def _filled(value: Any, dims: Any) -> Any:
    return tf.fill(dims, tf.constant(value))


def _as_reward(call: str, reward: Any) -> Any:
    if reward is None:
        raise SpecError(
            f"{call}() was given None as reward. A reward is a number, an array or a "
            "tensor; where nothing was earned, pass 0.0."
        )
    if isinstance(reward, int | float):
        return tf.constant(reward, tf.float32)
    return tf.convert_to_tensor(reward)


def _as_discount(call: str, discount: Any, dims: Any) -> Any:
    if discount is None:
        raise SpecError(
            f"{call}() was given None as discount. Pass 1.0 where later rewards count "
            "in full, 0.0 where the episode is over for good."
        )
    if not tf.is_tensor(discount):
        discount = tf.constant(discount, tf.float32)
    discount = tf.cast(discount, tf.float32)
    return tf.fill(dims, discount) if discount.shape.rank == 0 else discount
