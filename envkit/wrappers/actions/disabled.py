"""`ExtraDisabledActionsWrapper`: actions that a mask tells agents not to take."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.envs.base import checked_size
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec, is_discrete
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, NestedSpec
from envkit.wrappers.actions.action_wrapper import MOST_CHOICES, ActionWrapper
from envkit.wrappers.rows import beside

__all__ = ["ExtraDisabledActionsWrapper"]


class ExtraDisabledActionsWrapper(ActionWrapper):
    """Adds actions that must not be taken, and a mask that says so.

    The observation becomes a pair of the environment's observation and the mask, an
    int64 array with a 1 for every action of the environment followed by a 0 for every
    extra one. It is for trying out agents that mask actions. One that takes an extra
    action all the same gets an error.

    The environment's action must be an array of integers, all with the same bounds.

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
            handle_auto_reset: As with every wrapper.
        """
        super().__init__(env, handle_auto_reset)
        extra = checked_size("num_extra_actions", num_extra_actions, least=0)
        spec = self._checked_spec(env.action_spec())
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
            "Those above are extra ones that the mask, observation[1], tells agents "
            "not to take: choose among the actions with a 1 there. Agents of TF-Agents "
            "do so when they are given observation_and_action_constraint_splitter="
            f"lambda observation: observation.\n{unmoved} moved."
        )

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        return time_step._replace(
            observation=(time_step.observation, self._mask.copy())
        )


def _is_one(bound: Array) -> bool:
    return bool(bound.size and (bound == bound.flat[0]).all())
