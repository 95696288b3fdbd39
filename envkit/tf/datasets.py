"""Turns an environment and a policy into a `tf.data.Dataset`: `dataset`.

```
policy(time_step) -> action -> environment.step -> rows -> prefetched elements
```

A TensorFlow thread steps the environment, ahead of the thread that reads the elements.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from envkit import nest
from envkit.errors import CallOrderError
from envkit.extend import describe
from envkit.py_environment import PyEnvironment
from envkit.registry import constructor
from envkit.tf.leaves import ActionLeaves
from envkit.tf.tensor_spec import to_nest_array_spec
from envkit.tf.tf_environment import TFEnvironment
from envkit.tf.tf_py_environment import TFPyEnvironment
from envkit.tf.tf_time_step import as_written
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray

__all__ = ["Transition", "dataset"]

_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)


class Transition(NamedTuple):
    """Holds one step of one environment, or all steps of an episode.

    Attributes:
        time_step: The time step on which the policy acted. Never a `LAST`.
        action: The policy's action.
        next_time_step: The next time step, with the reward. Never a `FIRST`.
        repaired: True if `next_time_step` is made up, because the environment was lost
            on the way to it.
    """

    time_step: TimeStep
    action: Any
    next_time_step: TimeStep
    repaired: Any = False


def dataset(
    environment: Any,
    policy: Any,
    *,
    whole_episodes: bool = False,
    drop_lost: bool = False,
    prefetch: int = tf.data.AUTOTUNE,
) -> tf.data.Dataset:
    """Returns an endless dataset of a policy's transitions in an environment.

    Each element is the `Transition` of one row; a batch's rows follow one another. A
    step that only begins an episode is not a transition. Each iteration continues from
    the current time step; the newest of several iterators steps the environment.

    Lists in a nest become tuples, as everywhere in `tf.data`.

    Args:
        environment: A Python or TensorFlow environment: single, batched or a pool. Or a
            constructor of one; then each iteration makes and closes its own.
        policy: A function that takes a batched time step of tensors and returns an
            action for each row; or an object with such a method `action`.
        whole_episodes: True to make each element an episode: its transitions with a
            leading dimension of time. An episode that had already begun is left out.
        drop_lost: True to leave out the transitions that are `repaired`, and with
            `whole_episodes` the episodes that end with one.
        prefetch: How many elements to prepare while the trainer trains.

    Example:
        >>> import envkit
        >>> def left(time_step):
        ...     return tf.zeros(time_step.step_type.shape, tf.int64)
        >>> steps = dataset(envkit.make("CartPole", batch_size=8, seed=1), left)
        >>> for batch in steps.batch(32).take(1):
        ...     print(batch.next_time_step.reward.shape)
        (32,)
        >>> episodes = dataset("CartPole", left, whole_episodes=True)
        >>> for episode in episodes.take(1):
        ...     print(bool(episode.next_time_step.is_last()[-1]))
        True
    """
    source = _Source(environment, policy)
    # TensorFlow splits batches quickly, but aborts on arrays without elements.
    by_row = not whole_episodes and any(
        spec.shape.num_elements() == 0 for spec in source.specs
    )
    leading: list[Any] = [] if by_row else [None]
    signature = tuple(
        tf.TensorSpec(leading + spec.shape.as_list(), spec.dtype)
        for spec in source.specs
    )
    kind = _Episodes if whole_episodes else _Rows if by_row else _Transitions
    flat = tf.data.Dataset.from_generator(
        lambda: source.iterate(kind(drop_lost)), output_signature=signature
    )
    rows = flat if whole_episodes or by_row else flat.unbatch()
    packed = rows.map(source.packed)
    if prefetch:
        return packed.prefetch(prefetch)
    # Otherwise TensorFlow would prefetch some by default.
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return packed.with_options(options)


class _Source:
    """Steps an environment for one iterator at a time."""

    def __init__(self, environment: Any, policy: Any) -> None:
        self._make, self._env = _maker_of(environment)
        self._policy = _function_of(policy)
        self._lock = threading.Lock()
        self._newest: object = None
        env = self._open()
        try:
            self._time_step = nest.Structure(env.time_step_spec())
            self._action = nest.Structure(env.action_spec())
            self._actions = ActionLeaves(
                to_nest_array_spec(env.action_spec()),
                env.batch_size,  # type: ignore[arg-type]  # a batch has one
                "dataset()",
                check_dims=True,
            )
        finally:
            self._release(env)
        self.specs = (
            *self._time_step.leaves,
            *self._action.leaves,
            *self._time_step.leaves,
            tf.TensorSpec([], tf.bool),
        )

    @as_written
    def packed(self, *leaves: Any) -> Transition:
        """Packs the leaves of an element."""
        begin, end = len(self._time_step.leaves), -len(self._time_step.leaves) - 1
        parts = leaves[:begin], leaves[begin:end], leaves[end:-1]
        structures = self._time_step, self._action, self._time_step
        time_step, action, next_time_step = (
            structure.unflatten(part)
            for structure, part in zip(structures, parts, strict=True)
        )
        return Transition(
            _without_lists(time_step),
            _without_lists(action),
            _without_lists(next_time_step),
            leaves[-1],
        )

    def iterate(self, collector: Any) -> Iterator[tuple[Array, ...]]:
        """Yields elements, until another iterator takes over the environment."""
        me = self._newest = object()
        env = self._open()
        try:
            while True:
                # A newer iterator waits here until this step has finished.
                with self._lock:
                    if self._newest is not me and self._make is None:
                        raise CallOrderError(
                            "Another iterator of this dataset has been started since, "
                            "and there is only one environment. Give dataset() "
                            "something that makes one, so that each iterator has its "
                            "own."
                        )
                    step = self._step(env)
                yield from collector.elements(step)
        finally:
            self._release(env)

    def _open(self) -> TFEnvironment:
        return _as_tensors(self._make()) if self._make is not None else self._env

    def _release(self, env: TFEnvironment) -> None:
        if self._make is not None:
            env.close()

    def _step(self, env: TFEnvironment) -> _Step:
        before = env.current_time_step()
        action = self._policy(before)
        # Copies, because a policy may write to the same arrays again.
        actions = self._actions.arrays(self._actions.flat(action))
        after = env.step(action)
        step_type = np.asarray(after.step_type)
        repaired = _repaired(env, step_type)
        _begin_anew(env, step_type)
        return _Step(
            _acted_on(env, np.asarray(before.step_type)),
            step_type,
            [
                *map(np.asarray, self._time_step.flatten(before)),
                *(
                    array.astype(spec.dtype.as_numpy_dtype, copy=False)
                    for array, spec in zip(actions, self._action.leaves, strict=True)
                ),
                *map(np.asarray, self._time_step.flatten(after)),
                repaired,
            ],
        )


def _maker_of(environment: Any) -> tuple[Callable[[], Any] | None, Any]:
    """Returns a function that makes environments, or the given environment."""
    if isinstance(environment, TFEnvironment):
        return None, environment
    if isinstance(environment, str):
        return constructor(environment), None
    if isinstance(environment, type):
        return environment, None
    if isinstance(environment, PyEnvironment) or hasattr(environment, "step"):
        return None, TFPyEnvironment(environment)
    if callable(environment):
        return environment, None
    raise TypeError(
        f"dataset() was given {describe(environment)} as environment. Pass one, or "
        "something to call that makes one."
    )


def _as_tensors(env: Any) -> TFEnvironment:
    return env if isinstance(env, TFEnvironment) else TFPyEnvironment(env)


def _function_of(policy: Any) -> Callable[[TimeStep], NestedArray]:
    """Returns a function that takes a time step and returns an action."""
    if callable(policy):
        return policy  # type: ignore[no-any-return]  # all that is known is that it can be called
    act = getattr(policy, "action", None)
    if not callable(act):
        raise TypeError(
            f"dataset() was given {describe(policy)} as policy. A policy is called "
            "with a time step and returns an action for each row, or has a method "
            "action() that is."
        )

    def action(time_step: TimeStep) -> NestedArray:
        answer = act(time_step)
        # Policies of TF-Agents return an action together with a state and an info.
        return answer.action if hasattr(answer, "info") else answer

    return action


def _acted_on(env: TFEnvironment, before: Array) -> Array:
    """Returns the step types on which a policy has acted.

    If no `FIRST` follows a `LAST`, the `LAST` counts as the beginning of an episode.
    """
    if getattr(env, "continues_after_last", False) is not True:
        return before
    return np.where(before == _LAST, np.int32(_FIRST), before)


def _repaired(env: TFEnvironment, after: Array) -> Array:
    """Returns a mask of the rows whose `LAST` is made up."""
    repaired: Array = after == _LAST
    if repaired.any():
        # An environment that is written in TensorFlow cannot be lost.
        repaired &= np.asarray(getattr(env, "repaired", False))
    return repaired


def _begin_anew(env: TFEnvironment, after: Array) -> None:
    """Begins episodes in rows that have ended and would not begin one themselves."""
    if getattr(env, "continues_after_last", False) is True:
        return
    order = getattr(getattr(env, "pyenv", None), "autoreset", None)
    if getattr(order, "name", "") == "DISABLED":
        ended = after == _LAST
        if ended.any():
            env.reset(ended)


def _without_lists(structure: Any) -> Any:
    """Replaces lists in a nest by tuples, because `tf.data` takes lists for tensors."""
    if isinstance(structure, dict):
        return {key: _without_lists(value) for key, value in structure.items()}
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*map(_without_lists, structure))
    if isinstance(structure, list | tuple):
        return tuple(map(_without_lists, structure))
    return structure


class _Step(NamedTuple):
    """Holds one step of all rows.

    Attributes:
        before: The step types on which the policy acted.
        after: The step types that followed.
        leaves: The leaves of the transitions; the last one is `repaired`.
    """

    before: Array
    after: Array
    leaves: list[Array]

    @property
    def repaired(self) -> Array:
        """A mask of the rows whose result is made up."""
        return self.leaves[-1]


class _Transitions:
    """Collects the transitions of each step as a batch."""

    def __init__(self, drop_lost: bool) -> None:
        self._drop_lost = drop_lost

    def elements(self, step: _Step) -> Iterator[tuple[Array, ...]]:
        """Yields the rows in which this step did not begin an episode."""
        went_on = (step.before != _LAST) & (step.after != _FIRST)
        if self._drop_lost:
            went_on &= ~step.repaired
        if went_on.all():
            yield tuple(step.leaves)
        elif went_on.any():
            yield tuple(leaf[went_on] for leaf in step.leaves)


class _Rows(_Transitions):
    """Collects the transitions of each step one by one."""

    def elements(self, step: _Step) -> Iterator[tuple[Array, ...]]:
        """Yields each row in which this step did not begin an episode."""
        for leaves in super().elements(step):
            yield from zip(*leaves, strict=True)


class _Episodes:
    """Keeps steps until episodes are complete."""

    def __init__(self, drop_lost: bool) -> None:
        self._drop_lost = drop_lost
        self._kept: list[list[Array]] = []
        # Per row: the index of the step with which the current episode began.
        self._begins: dict[int, int] = {}

    def elements(self, step: _Step) -> Iterator[tuple[Array, ...]]:
        """Yields the episodes that end with this step."""
        for row in np.flatnonzero(step.before == _FIRST).tolist():
            self._begins[row] = len(self._kept)
        # Some environments begin an episode with their first step.
        for row in np.flatnonzero(step.after == _FIRST).tolist():
            self._begins.pop(row, None)
        self._kept.append(step.leaves)
        for row in np.flatnonzero(step.after == _LAST).tolist():
            # An episode that had begun before the first step is not complete.
            begin = self._begins.pop(row, None)
            if begin is not None and not (self._drop_lost and step.repaired[row]):
                columns = zip(*self._kept[begin:], strict=True)
                yield tuple(
                    np.stack([leaf[row] for leaf in column]) for column in columns
                )
        self._forget(min(self._begins.values(), default=len(self._kept)))

    def _forget(self, count: int) -> None:
        """Drops the oldest steps, which belong to finished episodes."""
        if count:
            del self._kept[:count]
            self._begins = {row: begin - count for row, begin in self._begins.items()}
