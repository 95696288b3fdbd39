"""Wrappers that make actions discrete, encode discrete ones, or disable some."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import nest
from envkit.errors import SpecError
from envkit.extend import as_array, checked_flag, checked_size, counted
from envkit.specs.arrays import ArraySpec, BoundedArraySpec, is_continuous, is_discrete
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wrappers.actions import (
    MOST_CHOICES,
    ActionWrapper,
    GivenActions,
)
from envkit.wrappers.observations import Bins, has_finite_bounds
from envkit.wrappers.rows import beside

__all__ = [
    "ActionDiscretizeWrapper",
    "DiscretizeAction",
    "ExtraDisabledActionsWrapper",
    "OneHotActionWrapper",
]


class ActionDiscretizeWrapper(ActionWrapper):
    """Offers a continuous action as a choice between `num_actions` values.

    The values are spread evenly between the bounds, and include both bounds. The
    environment's action must be one array of bounded floats. It may be in a nest; the
    discrete action is not. An action of shape `(1,)` becomes a scalar.

    Example:
        >>> from envkit import ArraySpec, BoundedArraySpec, RandomPyEnvironment
        >>> env = RandomPyEnvironment(
        ...     ArraySpec((), np.float32),
        ...     BoundedArraySpec((1,), np.float32, minimum=-2.0, maximum=2.0),
        ...     reward_fn=lambda step_type, action, observation: action[0],
        ... )
        >>> env = ActionDiscretizeWrapper(env, num_actions=5)
        >>> env.action_spec()
        BoundedArraySpec(shape=(), dtype=int32, minimum=0, maximum=4)
        >>> time_step = env.reset()
        >>> [float(env.step(action).reward) for action in range(5)]
        [-2.0, -1.0, 0.0, 1.0, 2.0]
    """

    _shown = ("num_actions",)

    def __init__(
        self, env: Any, num_actions: Any, handle_auto_reset: bool = False
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            num_actions: How many values to offer, at least 2: an integer, or an array
                that broadcasts to the shape of the action.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        inner = GivenActions("An action", self._env.action_spec(), self._dims)
        self._structure = inner.structure
        spec = _continuous(self, self._structure)
        counts = self._checked_counts(num_actions, spec)
        self._num_actions = np.array(num_actions)
        self._given = self._takes(
            BoundedArraySpec(
                # Agents handle scalars best.
                () if spec.shape == (1,) else spec.shape,
                np.int32,
                minimum=0,
                maximum=_as_one(counts) - 1,
                name=spec.name,
            )
        )
        self._shape = (*self._dims, *spec.shape)
        values = _evenly_spread(spec, counts)
        # All values in one flat array, and where the values of each element begin.
        self._values = values.reshape(-1)
        self._begins = np.arange(counts.size) * values.shape[1]

    @property
    def num_actions(self) -> Any:
        """How many values are offered: a number, or a list of numbers."""
        return self._num_actions.tolist()

    def _checked_counts(self, num_actions: Any, spec: ArraySpec) -> Array:
        text = self._spec_text(spec, self._structure.paths[0])
        counts = as_array(num_actions)
        if counts.dtype.kind not in "iu":
            raise ValueError(
                "num_actions must be an integer, or an array of them, got "
                f"{num_actions!r:.80}."
            )
        try:
            counts = np.broadcast_to(counts, spec.shape).astype(np.int64)
        except ValueError:
            raise ValueError(
                f"num_actions has the shape {counts.shape}, which does not broadcast "
                f"to that of the action: {text}."
            ) from None
        if not (counts >= 2).all():
            raise ValueError(
                f"num_actions is {num_actions!r:.80}; num_actions should all be at "
                "least size 2."
            )
        return counts

    def _translate(self, action: NestedArray) -> NestedArray:
        (column,) = self._given.leaves(action, self._ignored)
        # Hot: called once per step.
        chosen = column.reshape(*self._dims, self._begins.size)
        values = self._values.take(chosen + self._begins)
        return self._structure.unflatten([values.reshape(self._shape)])


class DiscretizeAction(ActionWrapper):
    """Offers a continuous action as a choice between the midpoints of equal intervals.

    Each element's range is divided into `bins` intervals. One number encodes the
    choices of all elements, the last element counting fastest; with `multidiscrete` an
    array has one number per element. `ActionDiscretizeWrapper` offers the bounds
    themselves too.

    Example:
        >>> from envkit import ArraySpec, BoundedArraySpec, RandomPyEnvironment
        >>> env = RandomPyEnvironment(
        ...     ArraySpec((), np.float32),
        ...     BoundedArraySpec((1,), np.float32, minimum=-2.0, maximum=2.0),
        ...     reward_fn=lambda step_type, action, observation: action[0],
        ... )
        >>> env = DiscretizeAction(env, bins=4)
        >>> env.action_spec()
        BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=3)
        >>> time_step = env.reset()
        >>> [float(env.step(action).reward) for action in range(4)]
        [-1.5, -0.5, 0.5, 1.5]
    """

    _shown = ("bins", "multidiscrete")

    def __init__(
        self,
        env: Any,
        bins: Any,
        multidiscrete: bool = False,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap, whose action is one array of bounded floats.
            bins: How many intervals each element has: an integer, or one per element.
            multidiscrete: Whether an action has one number per element.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        inner = GivenActions("An action", self._env.action_spec(), self._dims)
        self._structure = inner.structure
        spec = _continuous(self, self._structure)
        self._bins = Bins(bins, spec)
        self._is_multi = checked_flag("multidiscrete", multidiscrete)
        self._given = self._takes(self._bins.spec(self._is_multi, spec.name))
        self._shape = (*self._dims, *spec.shape)
        self._middles = self._bins.middles()

    @property
    def bins(self) -> Any:
        """How many intervals each element has."""
        return self._bins.given

    @property
    def multidiscrete(self) -> bool:
        """Whether an action has one number per element."""
        return self._is_multi

    def _translate(self, action: NestedArray) -> NestedArray:
        # Hot: called once per step.
        (column,) = self._given.leaves(action, self._ignored)
        chosen = column if self._is_multi else self._bins.apart(column)
        values = self._middles[np.arange(chosen.shape[-1]), chosen]
        return self._structure.unflatten([values.reshape(self._shape)])


class OneHotActionWrapper(ActionWrapper):
    """Takes each discrete action as a one-hot array.

    The environment gets the index of the array's first maximum, plus the spec's
    minimum. Leaves that are not integers stay as they are.

    Example:
        >>> from envkit.envs import Catch
        >>> env = OneHotActionWrapper(Catch(batch_size=2, seed=1))
        >>> env.action_spec().shape, env.action_spec().name
        ((3,), 'one_hot_action_spec')
        >>> env.reset().observation[:, -1].argmax(axis=1)
        array([2, 2])
        >>> env.step([[1, 0, 0], [0, 0, 1]]).observation[:, -1].argmax(axis=1)
        array([1, 3])
    """

    def __init__(self, env: Any, handle_auto_reset: bool = False) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        inner = GivenActions("An action", self._env.action_spec(), self._dims)
        self._structure = inner.structure
        specs = [
            self._one_hot(spec, path) if is_discrete(spec) else spec
            for spec, path in zip(
                self._structure.leaves, self._structure.paths, strict=True
            )
        ]
        self._given = self._takes(self._structure.unflatten(specs))

    def _one_hot(self, spec: ArraySpec, path: str) -> BoundedArraySpec:
        name, text = type(self).__name__, self._spec_text(spec, path)
        if not isinstance(spec, BoundedArraySpec):
            raise ValueError(
                f"{name} needs to know how many actions there are, but there are no "
                f"bounds: {text}."
            )
        if len(spec.shape) > 1:
            raise ValueError(
                f"{name} only supports single action, a number or an array with one "
                f"dimension, and {text}."
            )
        counts = np.asarray(spec.num_values)
        if counts.size and (counts != counts.flat[0]).any():
            raise ValueError(
                f"{name} needs the same number of actions in every element, and {text}."
            )
        count = int(counts.flat[0]) if counts.size else 1
        if count > MOST_CHOICES:
            raise ValueError(
                f"{name} cannot make an array with a place for each of "
                f"{counted(count, 'action')}: {text}."
            )
        return BoundedArraySpec(
            (*spec.shape, count),
            spec.dtype,
            minimum=0,
            maximum=1,
            name="one_hot_action_spec",
        )

    def _translate(self, action: NestedArray) -> NestedArray:
        leaves = zip(
            self._given.leaves(action, self._ignored),
            self._structure.leaves,
            strict=True,
        )
        return self._structure.unflatten(
            [
                _chosen(leaf, spec) if is_discrete(spec) else leaf
                for leaf, spec in leaves
            ]
        )


def _continuous(wrapper: ActionWrapper, structure: nest.Structure) -> BoundedArraySpec:
    """Returns the spec of the only action, if it can be made discrete."""
    name, leaves = type(wrapper).__name__, structure.leaves
    if len(leaves) != 1:
        raise ValueError(
            f"{name} only supports environments with a single action spec, and "
            f"{type(wrapper.wrapped_env()).__name__} has {len(leaves)}: "
            f"{nest.outline(structure.template)}."
        )
    spec, path = leaves[0], structure.paths[0]
    if not is_continuous(spec):
        raise ValueError(
            f"{name} makes continuous actions discrete, and "
            f"{wrapper._spec_text(spec, path)}."
        )
    if not isinstance(spec, BoundedArraySpec) or not has_finite_bounds(spec):
        raise ValueError(
            f"{name} spreads actions between two bounds, and one is missing: "
            f"{wrapper._spec_text(spec, path)}."
        )
    return spec


def _evenly_spread(spec: BoundedArraySpec, counts: Array) -> Array:
    """Returns a row of values for each element of a spec, as long as the longest."""
    wide = np.promote_types(spec.dtype, np.float64)
    low = np.broadcast_to(spec.minimum, spec.shape).astype(wide).reshape(-1, 1)
    high = np.broadcast_to(spec.maximum, spec.shape).astype(wide).reshape(-1, 1)
    last = counts.reshape(-1, 1) - 1
    share = np.minimum(np.arange(counts.max(initial=2)) / last, 1.0)
    # Both ends are exact, and the difference of the bounds cannot overflow.
    values = low * (1.0 - share) + high * share
    return np.asarray(np.clip(values, low, high), spec.dtype)


def _as_one(counts: Array) -> Array:
    """Returns a single number if all counts are equal."""
    if counts.size and (counts == counts.flat[0]).all():
        return np.asarray(counts.flat[0])
    return counts


def _chosen(one_hot: Array, spec: BoundedArraySpec) -> Array:
    # Hot: called once per step. Computes in 64 bits: an index may exceed the action's
    # dtype if actions begin below 0.
    wide = np.uint64 if spec.dtype == np.uint64 else np.int64
    index = np.asarray(one_hot.argmax(axis=-1), wide)
    return np.asarray(index + spec.minimum.astype(wide), spec.dtype)


class ExtraDisabledActionsWrapper(ActionWrapper):
    """Adds actions that must not be taken, and a mask that marks them.

    The observation becomes a pair: the environment's observation and the mask, an int64
    array with 1 for each of the environment's actions followed by 0 for each extra one.
    Use it to test agents that mask actions. An extra action raises an error.

    The environment's action must be an array of integers with the same bounds for all.

    Example:
        >>> from envkit.envs import Catch
        >>> env = ExtraDisabledActionsWrapper(Catch(seed=1), num_extra_actions=2)
        >>> env.action_spec()
        BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=4)
        >>> observation, mask = env.reset().observation
        >>> mask
        array([1, 1, 1, 0, 0])
    """

    _shown = ("num_extra_actions",)

    def __init__(
        self, env: Any, num_extra_actions: int, handle_auto_reset: bool = False
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            num_extra_actions: How many actions to add.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        extra = checked_size("num_extra_actions", num_extra_actions, least=0)
        spec = self._checked_spec(self._env.action_spec())
        low, high = int(spec.minimum.flat[0]), int(spec.maximum.flat[0])
        if high + extra > np.iinfo(spec.dtype).max:
            raise ValueError(
                f"num_extra_actions is {extra}, and {spec.dtype} cannot count as far "
                f"as {high + extra}: {self._spec_text(spec)}."
            )
        if high - low + extra >= MOST_CHOICES:
            raise ValueError(
                "ExtraDisabledActionsWrapper cannot make a mask for each of "
                f"{high - low + 1 + extra} actions: {self._spec_text(spec)}."
            )
        self._num_extra_actions = extra
        self._low, self._high = low, high
        self._given = self._takes(
            BoundedArraySpec(spec.shape, spec.dtype, low, high + extra, spec.name)
        )
        mask = np.repeat(np.array([1, 0], np.int64), [high - low + 1, extra])
        self._mask = np.broadcast_to(mask, (*self._dims, *mask.shape))

    @property
    def num_extra_actions(self) -> int:
        """How many actions were added."""
        return self._num_extra_actions

    def observation_spec(self) -> NestedSpec:
        """Returns the specs of the environment's observation and of the mask."""
        mask = BoundedArraySpec(self._mask.shape[-1:], np.int64, 0, 1, name="mask")
        return self._env.observation_spec(), mask

    def _checked_spec(self, spec: NestedSpec) -> BoundedArraySpec:
        if not isinstance(spec, ArraySpec):
            kind = "a single array, not a nest"
        elif not is_discrete(spec) or not isinstance(spec, BoundedArraySpec):
            kind = "integers with bounds"
        elif not (_is_one(spec.minimum) and _is_one(spec.maximum)):
            kind = "integers that all have the same bounds"
        else:
            return spec
        raise ValueError(
            f"ExtraDisabledActionsWrapper needs actions that are {kind}, and "
            f"{self._spec_text(spec)}."
        )

    def _translate(self, action: NestedArray) -> NestedArray:
        (column,) = self._given.leaves(action, self._ignored)
        disabled = column > self._high
        if not disabled.any():
            return column
        taken = disabled & ~beside(self._ignored(), disabled)
        if taken.any():
            self._refuse(column, np.argwhere(taken)[0])
        return np.where(disabled, self._given.spec.minimum, column)

    def _refuse(self, column: Array, first: Array) -> None:
        index = tuple(first.tolist())
        row = f" in row {index[0]}" if self._dims else ""
        unmoved = "None of the rows has" if self._dims else "The environment has not"
        raise SpecError(
            f"{type(self).__name__}.step() was given an action that is disabled.\n\n"
            f"  expected   an action from {self._low} to {self._high}\n"
            f"  got        {column[index]}{row}\n\n"
            "Higher actions are the extra ones, which the mask in observation[1] "
            "forbids: choose among the actions with a 1 there. TF-Agents' agents do "
            "so with observation_and_action_constraint_splitter="
            f"lambda observation: observation.\n{unmoved} moved."
        )

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        return time_step._replace(
            observation=(time_step.observation, self._mask.copy())
        )


def _is_one(bound: Array) -> bool:
    return bool(bound.size and (bound == bound.flat[0]).all())
