"""Wrappers that change actions and leave their structure as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from envkit.specs.array_spec import (
    ArraySpec,
    BoundedArraySpec,
    is_continuous,
    is_discrete,
)
from envkit.specs.validation import describe
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wrappers.actions.action_scale import ActionScale, checked_ends
from envkit.wrappers.actions.action_wrapper import ActionWrapper
from envkit.wrappers.actions.given_actions import GivenActions
from envkit.wrappers.observations.leaf_specs import has_finite_bounds

__all__ = [
    "ActionClipWrapper",
    "ActionOffsetWrapper",
    "RescaleAction",
    "TransformAction",
]


class TransformAction(ActionWrapper):
    """Applies a function to actions before the environment gets them.

    In a batch the function is called once a step, with the actions of all rows: arrays
    then have the dimension of rows in front. What it is given is its own to change.

    Example:
        >>> from envkit.envs import Catch
        >>> env = TransformAction(Catch(seed=1), lambda action: 2 - action)
        >>> env.action_spec()
        BoundedArraySpec(shape=(), dtype=int64, minimum=0, maximum=2)
        >>> env.reset().observation[-1]
        array([0., 0., 1., 0., 0.], dtype=float32)
        >>> env.step(0).observation[-1]
        array([0., 0., 0., 1., 0.], dtype=float32)
    """

    def __init__(
        self,
        env: Any,
        function: Callable[[NestedArray], NestedArray],
        action_spec: NestedSpec | None = None,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            function: Takes an action of the new spec, and returns one of the
                environment's.
            action_spec: What actions are to look like from now on; as those of the
                environment, if it is `None`.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        if not callable(function):
            raise TypeError(
                f"TransformAction needs a function of the action, not "
                f"{describe(function)}."
            )
        self._function = function
        spec = env.action_spec()
        self._given = self._takes(spec if action_spec is None else action_spec)
        subject = "The function of TransformAction returned an action"
        # Whether bounds matter, the environment knows: it may be one that clips.
        self._returned = GivenActions(subject, spec, self._dims, bounds=False)

    def _translate(self, action: NestedArray) -> NestedArray:
        leaves = self._given.leaves(action, self._ignored)
        own = self._given.structure.unflatten([leaf.copy() for leaf in leaves])
        returned = self._returned.leaves(self._function(own), self._ignored)
        return self._returned.structure.unflatten(returned)


class ActionClipWrapper(ActionWrapper):
    """Brings actions within the bounds of the environment's spec.

    Parts of a nest that have no bounds stay as they are. The spec stays, too.

    Example:
        >>> from envkit.envs import Catch
        >>> env = ActionClipWrapper(Catch(batch_size=2, seed=1))
        >>> env.reset().observation[:, -1].argmax(axis=1)
        array([2, 2])
        >>> env.step([-5, 7]).observation[:, -1].argmax(axis=1)
        array([1, 3])
    """

    def __init__(self, env: Any, handle_auto_reset: bool = False) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        self._given = self._takes(env.action_spec())

    def _translate(self, action: NestedArray) -> NestedArray:
        structure = self._given.structure
        leaves = [
            _clipped(column, spec)
            if isinstance(spec, BoundedArraySpec)
            else self._given.settled(index, column, self._ignored)
            for index, (column, spec) in enumerate(
                zip(self._given.columns(action), structure.leaves, strict=True)
            )
        ]
        return structure.unflatten(leaves)


class RescaleAction(ActionWrapper):
    """Lets every continuous action go from `min_action` to `max_action`.

    They are mapped to the bounds of the environment's spec by a linear function, which
    is not cut off: an action beyond the new bounds becomes one beyond the old ones.
    Parts of a nest that are not floating numbers, or have no bounds, stay as they are.

    Example:
        >>> from envkit import ArraySpec, BoundedArraySpec, RandomPyEnvironment
        >>> env = RandomPyEnvironment(
        ...     ArraySpec((), np.float32),
        ...     BoundedArraySpec((), np.float32, minimum=0.0, maximum=10.0),
        ...     reward_fn=lambda step_type, action, observation: action,
        ... )
        >>> env = RescaleAction(env)
        >>> env.action_spec()
        BoundedArraySpec(shape=(), dtype=float32, minimum=-1.0, maximum=1.0)
        >>> time_step = env.reset()
        >>> [float(env.step(action).reward) for action in (-1.0, 0.0, 0.5)]
        [0.0, 5.0, 7.5]
    """

    _shown = ("min_action", "max_action")

    def __init__(
        self,
        env: Any,
        min_action: Any = -1,
        max_action: Any = 1,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            min_action: What becomes the environment's minimum: a number, or an array
                that broadcasts to the shape of each continuous action.
            max_action: What becomes the environment's maximum, likewise.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        self._min_action, self._max_action = checked_ends(min_action, max_action)
        own = GivenActions("An action", env.action_spec(), self._dims).structure
        self._scales = [
            self._scale_of(spec, path)
            for spec, path in zip(own.leaves, own.paths, strict=True)
        ]
        if not any(self._scales):
            raise ValueError(
                "RescaleAction needs an action of bounded floating numbers to scale, "
                f"and {self._spec_text(env.action_spec())}."
            )
        specs = [
            spec if scale is None else scale.spec
            for spec, scale in zip(own.leaves, self._scales, strict=True)
        ]
        self._given = self._takes(own.unflatten(specs))

    @property
    def min_action(self) -> Any:
        """What becomes the environment's minimum: a number, or a list of them."""
        return self._min_action.tolist()

    @property
    def max_action(self) -> Any:
        """What becomes the environment's maximum: a number, or a list of them."""
        return self._max_action.tolist()

    def _scale_of(self, spec: ArraySpec, path: str) -> ActionScale | None:
        if not isinstance(spec, BoundedArraySpec) or not is_continuous(spec):
            return None
        if has_finite_bounds(spec):
            return ActionScale(self._new_spec(spec, path), spec)
        if spec == BoundedArraySpec(spec.shape, spec.dtype):
            return None
        raise ValueError(
            "RescaleAction cannot scale an action that has a bound on one side only, "
            f"or in some elements only, and {self._spec_text(spec, path)}. Give it "
            "finite bounds with TransformAction first."
        )

    def _new_spec(self, spec: BoundedArraySpec, path: str) -> BoundedArraySpec:
        for name, bound in (
            ("min_action", self._min_action),
            ("max_action", self._max_action),
        ):
            try:
                np.broadcast_to(bound, spec.shape)
            except ValueError:
                raise ValueError(
                    f"{name} has the shape {bound.shape}, which does not broadcast to "
                    f"that of the action: {self._spec_text(spec, path)}."
                ) from None
        new = spec.replace(minimum=self._min_action, maximum=self._max_action)
        if not (new.minimum < new.maximum).all():
            raise ValueError(
                f"min_action and max_action are the same number in {spec.dtype}, the "
                f"dtype of the action: {self._spec_text(spec, path)}."
            )
        return new

    def _translate(self, action: NestedArray) -> NestedArray:
        leaves = self._given.leaves(action, self._ignored)
        return self._given.structure.unflatten(
            [
                leaf if scale is None else scale(leaf)
                for leaf, scale in zip(leaves, self._scales, strict=True)
            ]
        )


class ActionOffsetWrapper(ActionWrapper):
    """Lets discrete actions count from 0, for agents that index with them.

    The environment's minimum is added to every action. Its action must be a single
    array of bounded integers.

    Example:
        >>> from envkit import ArraySpec, BoundedArraySpec, RandomPyEnvironment
        >>> env = RandomPyEnvironment(
        ...     ArraySpec((), np.float32),
        ...     BoundedArraySpec((), np.int32, minimum=-1, maximum=1),
        ...     reward_fn=lambda step_type, action, observation: action,
        ... )
        >>> env = ActionOffsetWrapper(env)
        >>> env.action_spec()
        BoundedArraySpec(shape=(), dtype=int32, minimum=0, maximum=2)
        >>> time_step = env.reset()
        >>> [float(env.step(action).reward) for action in (0, 1, 2)]
        [-1.0, 0.0, 1.0]
    """

    def __init__(self, env: Any, handle_auto_reset: bool = False) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        spec = self._checked_spec(env.action_spec())
        self._minimum = spec.minimum
        highest = _width(spec)
        if np.any(highest > np.iinfo(spec.dtype).max):
            raise ValueError(
                f"ActionOffsetWrapper counts from 0, and {spec.dtype} cannot count as "
                f"far as {np.max(highest)}: {self._spec_text(spec)}."
            )
        self._given = self._takes(
            spec.replace(minimum=0, maximum=highest.astype(spec.dtype))
        )

    def _checked_spec(self, spec: NestedSpec) -> BoundedArraySpec:
        if not isinstance(spec, ArraySpec):
            kind = "single-array action specs (not nested ones)"
        elif not isinstance(spec, BoundedArraySpec):
            kind = "bounded action specs"
        elif not is_discrete(spec):
            kind = "discrete action specs"
        else:
            return spec
        raise ValueError(
            f"ActionOffsetWrapper only works with {kind}, and {self._spec_text(spec)}."
        )

    def _translate(self, action: NestedArray) -> NestedArray:
        (column,) = self._given.leaves(action, self._ignored)
        return np.asarray(column + self._minimum)


def _clipped(column: Array, spec: BoundedArraySpec) -> Array:
    """Brings numbers of any dtype within bounds, and to their dtype."""
    low, high = spec.minimum, spec.maximum
    if column.dtype == spec.dtype:
        return np.asarray(np.minimum(np.maximum(column, low), high))
    # Compared as they came: the spec's dtype may not hold what has to be clipped.
    with np.errstate(over="ignore"):
        clipped = np.where(column < low, low, column.astype(spec.dtype))
    return np.where(column > high, high, clipped)


def _width(spec: BoundedArraySpec) -> Array:
    """Returns the differences between bounds as Python's integers."""
    return np.asarray(spec.maximum.astype(object) - spec.minimum.astype(object), object)
