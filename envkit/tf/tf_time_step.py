"""Makes time steps of tensors, eagerly and inside `tf.function`.

Users do not import this module: `envkit.restart` and its siblings call it for tensors.
The checks are the same as for arrays, as far as shapes are known: a size that is known
only when a traced function runs is not checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

# It has no public name, but TensorFlow's own checks look for this class.
from tensorflow.python.framework.tensor_spec import BoundedTensorSpec

from envkit import nest
from envkit.errors import SpecError
from envkit.extend import derive_from_tf_agents as derive_arrays
from envkit.extend import describe
from envkit.time_step import StepType, TimeStep
from envkit.types import NestedArray, NestedSpec

__all__ = [
    "as_written",
    "derive_from_tf_agents",
    "restart",
    "termination",
    "time_step_spec",
    "transition",
    "truncation",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def as_written(function: _Function) -> _Function:
    """Keeps AutoGraph from rewriting a function inside `tf.function`.

    The function must branch only on values known at tracing; then rewriting would take
    long and change nothing.
    """
    kept: _Function = tf.autograph.experimental.do_not_convert(function)
    return kept


derive_from_tf_agents = as_written(derive_arrays)


@as_written
def restart(
    observation: NestedArray,
    batch_size: Any = None,
    reward_spec: NestedSpec | None = None,
) -> TimeStep:
    """Returns `FIRST` tensors; `batch_size` may itself be a tensor of rank 0 or 1."""
    sizes = _as_sizes("restart", () if batch_size is None else batch_size, "batch_size")
    reward = (
        tf.zeros(sizes, tf.float32)
        if reward_spec is None
        else _zero_rewards(reward_spec, sizes)
    )
    return TimeStep(
        _filled(StepType.FIRST, sizes), reward, tf.ones(sizes, tf.float32), observation
    )


@as_written
def transition(
    observation: NestedArray,
    reward: NestedArray,
    discount: Any = 1.0,
    outer_dims: Any = None,
) -> TimeStep:
    """Returns `MID` tensors; the reward keeps its dtype."""
    return _step("transition", StepType.MID, observation, reward, discount, outer_dims)


@as_written
def termination(
    observation: NestedArray, reward: NestedArray, outer_dims: Any = None
) -> TimeStep:
    """Returns `LAST` tensors with discount 0; the reward keeps its dtype."""
    return _step("termination", StepType.LAST, observation, reward, 0.0, outer_dims)


@as_written
def truncation(
    observation: NestedArray,
    reward: NestedArray,
    discount: Any = 1.0,
    outer_dims: Any = None,
) -> TimeStep:
    """Returns `LAST` tensors with the discount as given; the reward keeps its dtype."""
    return _step("truncation", StepType.LAST, observation, reward, discount, outer_dims)


@as_written
def time_step_spec(
    observation_spec: NestedSpec, reward_spec: NestedSpec | None = None
) -> TimeStep:
    """Returns the tensor specs of a time step's four fields."""
    derive_from_tf_agents()
    _check_kind("observation", observation_spec, "its first leaf is a tensor spec. All")
    _check_kind(
        "reward",
        reward_spec or (),
        "the observation spec is made of tensor specs. Both",
    )
    return TimeStep(
        step_type=tf.TensorSpec([], tf.int32, name="step_type"),
        reward=reward_spec or tf.TensorSpec([], tf.float32, name="reward"),
        discount=BoundedTensorSpec([], tf.float32, 0.0, 1.0, name="discount"),
        observation=observation_spec,
    )


def _check_kind(part: str, spec: NestedSpec, standard: str) -> None:
    for path, leaf in nest.flatten_with_paths(spec):
        if not isinstance(leaf, tf.TypeSpec):
            place = f" at {path}" if path else ""
            raise TypeError(
                f"The {part} spec{place} is {leaf!r:.80}, but {standard} must be of "
                "one kind."
            )


def _step(
    call: str,
    step_type: Any,
    observation: NestedArray,
    reward: NestedArray,
    discount: Any,
    outer_dims: Any,
) -> TimeStep:
    reward = _map_reward(call, reward)
    if outer_dims is not None:
        sizes = _as_sizes(call, outer_dims, "outer_dims")
    else:
        first = nest.first_leaf(reward)
        # Rank 0 has no first dimension to take, and an empty slice stays empty.
        sizes = tf.zeros([0], tf.int32) if first is None else tf.shape(first)[:1]
    step_types = _filled(step_type, sizes)
    # TensorFlow knows this shape as far as it can be known at tracing.
    dims = step_types.shape
    _check_reward_dims(call, reward, dims)
    return TimeStep(
        step_types, reward, _as_discount(call, discount, sizes, dims), observation
    )


def _as_sizes(call: str, dims: Any, name: str) -> Any:
    """Returns one or several sizes as an int32 tensor of rank 1."""
    sizes = _as_tensor(dims)
    if sizes is not None and sizes.shape.num_elements() == 0:
        return tf.zeros([0], tf.int32)
    if sizes is None or not _are_sizes(sizes):
        raise SpecError(
            f"The {name} of {call}() must be a size or a sequence of sizes, got "
            f"{dims!r:.80}."
        )
    sizes = tf.cast(sizes, tf.int32)
    # Only if necessary, because reshaping forgets which of the sizes are known.
    return sizes if sizes.shape.rank == 1 else tf.reshape(sizes, [-1])


def _as_tensor(value: Any, dtype: Any = None) -> Any:
    """Returns a tensor, or `None` for a value that cannot be one."""
    try:
        return tf.convert_to_tensor(value, dtype)
    except (TypeError, ValueError, OverflowError, tf.errors.OpError):
        # The value decides which of them TensorFlow raises.
        return None


def _are_sizes(sizes: Any) -> bool:
    if (sizes.shape.rank or 0) > 1 or not sizes.dtype.is_integer:
        return False
    known = tf.get_static_value(sizes, partial=True)
    return known is None or all(
        size is None or size >= 0 for size in np.ravel(known).tolist()
    )


def _filled(value: Any, sizes: Any) -> Any:
    return tf.fill(sizes, tf.constant(value))


def _zero_rewards(reward_spec: NestedSpec, sizes: Any) -> NestedArray:
    for path, leaf in nest.flatten_with_paths(reward_spec):
        # NumPy's scalar types have both attributes too, but describe no array.
        is_spec = hasattr(leaf, "shape") and hasattr(leaf, "dtype")
        if isinstance(leaf, type) or not is_spec:
            place = nest.join("reward_spec", path)
            raise TypeError(
                f"The {place} of restart() must be a spec, got {leaf!r:.80}."
            )
    return nest.map_structure(lambda spec: _zeros(spec, sizes), reward_spec)


def _zeros(spec: Any, sizes: Any) -> Any:
    shape = tf.concat([sizes, tf.constant(list(spec.shape), tf.int32)], axis=0)
    return tf.zeros(shape, tf.as_dtype(spec.dtype))


def _map_reward(call: str, reward: NestedArray) -> NestedArray:
    paths = iter(
        [nest.join("reward", path) for path, _ in nest.flatten_with_paths(reward)]
    )
    return nest.map_structure(lambda leaf: _as_reward(call, leaf, next(paths)), reward)


def _as_reward(call: str, reward: Any, path: str) -> Any:
    if reward is None:
        raise SpecError(
            f"The {path} of {call}() must be a number, an array or a tensor, got None. "
            "Where nothing was earned, pass 0.0."
        )
    tensor = _as_numbers(reward)
    if tensor is None:
        raise SpecError(
            f"The {path} of {call}() must be a number or an array of numbers, got "
            f"{_described(reward)}."
        )
    return tensor


def _as_numbers(value: Any) -> Any:
    """Returns a tensor of numbers, Python numbers as float32; `None` for others."""
    # Some NumPy numbers are Python numbers too, but have a dtype.
    is_plain = isinstance(value, int | float) and not isinstance(value, np.generic)
    tensor = _as_tensor(value, tf.float32 if is_plain else None)
    if tensor is None:
        return None
    dtype = tensor.dtype
    return tensor if dtype.is_floating or dtype.is_integer or dtype.is_bool else None


def _described(value: Any) -> str:
    if isinstance(value, tf.Tensor):
        return f"a tensor of shape {value.shape}, dtype {value.dtype.name}"
    return describe(value)


def _check_reward_dims(call: str, reward: NestedArray, dims: Any) -> None:
    for path, leaf in nest.flatten_with_paths(reward):
        if _begins_with(leaf.shape, dims):
            continue
        place = f" at {path}" if path else ""
        hint = (
            " A list or tuple is a nest of rewards, not a batch: use np.array."
            if isinstance(reward, list | tuple) and leaf.shape.rank == 0
            else ""
        )
        raise SpecError(
            f"{call}() was given a reward of shape {_sizes_of(leaf.shape)}{place}, "
            f"which must begin with the batch's dimensions {_sizes_of(dims)}.{hint}"
        )


def _begins_with(shape: Any, dims: Any) -> bool:
    """Returns True if a shape can begin with `dims`, as far as both are known."""
    if shape.rank is None or dims.rank is None:
        return True
    return bool(shape[: dims.rank].is_compatible_with(dims))


def _sizes_of(shape: Any) -> tuple[int | None, ...]:
    return tuple(shape.as_list())


def _as_discount(call: str, discount: Any, sizes: Any, dims: Any) -> Any:
    if discount is None:
        raise SpecError(
            f"The discount of {call}() must be a number, an array or a tensor, got "
            "None. Pass 1.0 where later rewards count in full, and 0.0 where the task "
            "is over."
        )
    given = _as_numbers(discount)
    if given is None:
        raise SpecError(
            f"The discount of {call}() must be a number or an array of numbers, got "
            f"{_described(discount)}."
        )
    given = tf.cast(given, tf.float32)
    if given.shape.rank == 0:
        return tf.fill(sizes, given)
    if given.shape.rank is None:
        return tf.cond(
            tf.equal(tf.rank(given), 0),
            lambda: tf.broadcast_to(given, sizes),
            lambda: given,
        )
    if _begins_with(given.shape, dims):
        return given
    raise SpecError(
        f"{call}() was given a discount of shape {_sizes_of(given.shape)}, which must "
        f"begin with the batch's dimensions {_sizes_of(dims)}. Pass one number for all "
        "rows, or one for each."
    )
