"""`HistoryWrapper`: shows the last observations, and the actions between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import nest
from envkit.arrays import as_array
from envkit.envs.base import checked_size
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec
from envkit.specs.validation import check_fits, flatten_as
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray
from envkit.wrappers.arguments import checked_flag
from envkit.wrappers.history.remembering import Remembering
from envkit.wrappers.history.row_history import (
    history_of,
    stacked_spec,
    with_zero,
)
from envkit.wrappers.rows import where_rows

__all__ = ["HistoryWrapper"]

_LAST = StepType.LAST


class HistoryWrapper(Remembering):
    """Shows the last `history_length` observations, and the actions between them.

    They are along a new first axis of every array, the newest last. At the beginning of
    an episode zeros stand for the observations that were not there yet, or, with
    `tile_first_step_obs`, the first observation does.

    With `include_actions` the observation is a dictionary: under `observation` what has
    been said, under `action` the actions that led to each of those observations. None
    led to the first, nor to what stands before it, and there the actions are zeros.
    Actions are shown as they were given; if a policy goes beyond their bounds, put
    `ActionClipWrapper` around this one.

    Bounds are those of one observation or action; where zeros fill up they are widened
    to hold zeros. Each row of a batch has a history of its own.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = HistoryWrapper(CountingEnv(), history_length=3, include_actions=True)
        >>> time_step = [env.reset(), env.step(1), env.step(0)][-1]
        >>> time_step.observation["observation"]
        array([0, 1, 2], dtype=int32)
        >>> time_step.observation["action"]
        array([0, 1, 0], dtype=int32)
    """

    _shown = ("history_length", "include_actions", "tile_first_step_obs")

    def __init__(
        self,
        env: Any,
        history_length: int = 3,
        include_actions: bool = False,
        tile_first_step_obs: bool = False,
        handle_auto_reset: bool = False,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            history_length: How many observations are shown.
            include_actions: Whether actions are shown, too.
            tile_first_step_obs: Whether the first observation of an episode, rather
                than zeros, stands for those before it.
            handle_auto_reset: As with every wrapper.
        """
        length = checked_size("history_length", history_length)
        include_actions = checked_flag("include_actions", include_actions)
        tiles = checked_flag("tile_first_step_obs", tile_first_step_obs)
        super().__init__(env, length, tiles, handle_auto_reset)
        self._history_length = length
        self._include_actions = include_actions
        self._observation_spec = self._structure.unflatten(
            [stacked_spec(spec, length, 0) for spec in self._padded_specs]
        )
        self._actions = nest.Structure(env.action_spec() if include_actions else ())
        specs = self._actions.leaves
        self._past_actions = history_of(self, "actions", specs, length, self._dims)
        self._no_action = [
            np.zeros((*self._dims, *spec.shape), spec.dtype) for spec in specs
        ]
        # The action of the step that is going on. An episode that begins clears it.
        self._action: list[Array] = self._no_action
        # Where the current time step is a LAST: no action leads on from there.
        self._over = np.zeros(self._dims, bool)
        if self._include_actions:
            self._observation_spec = {
                "observation": self._observation_spec,
                "action": self._actions.unflatten(
                    [stacked_spec(with_zero(spec), length, 0) for spec in specs]
                ),
            }

    @property
    def history_length(self) -> int:
        """How many observations are shown."""
        return self._history_length

    @property
    def include_actions(self) -> bool:
        """Whether actions are shown, too."""
        return self._include_actions

    @property
    def tile_first_step_obs(self) -> bool:
        """Whether the first observation stands for those before it."""
        return self._repeats_first

    def _act(self, action: NestedArray) -> NestedArray:
        if self._include_actions:
            self._action = self._taken(action)
        return action

    def _taken(self, action: NestedArray) -> list[Array]:
        """Copies the arrays of an action; zeros if it fits no spec and need not."""
        if not self._no_action:  # Some environments take any action and say ().
            return self._no_action
        try:
            return self._copied(action)
        except SpecError:
            if not self._dims and self._over:
                return self._no_action  # The environment ignores it.
            raise

    def _copied(self, action: NestedArray) -> list[Array]:
        subject = f"{type(self).__name__}.step() was given an action that"
        leaves = flatten_as(self._actions, action, subject=subject, root="action")
        for index, leaf in enumerate(leaves):
            spec = self._actions.leaves[index]
            array = as_array(leaf)
            leaves[index] = _converted(array, spec, self._dims)
            if leaves[index] is None:
                self._refuse(leaf if array.dtype.hasobject else array, index, subject)
        return leaves

    def _refuse(self, value: Any, index: int, subject: str) -> None:
        spec = self._actions.leaves[index]
        if isinstance(value, np.ndarray):
            # Any integers will do, so where they fit the dtype is not what is wrong.
            fitting = _converted(value, ArraySpec(value.shape, spec.dtype), ())
            value = value if fitting is None else fitting
        check_fits(
            value,
            spec,
            subject=subject,
            root="action",
            path=self._actions.paths[index],
            outer_dims=self._dims,
            context="The environment has not moved.",
        )

    def _remember(
        self, time_step: TimeStep, rows: Array | None, begun: Array | slice | None
    ) -> None:
        super()._remember(time_step, rows, begun)
        if not self._include_actions:
            return
        self._past_actions.push(self._effective_action(), rows)
        over = np.asarray(time_step.step_type) == _LAST
        self._over = over if rows is None else np.where(rows, over, self._over)
        if begun is not None:
            self._past_actions.clear(begun)

    def _effective_action(self) -> list[Array]:
        """Returns the action, with zeros in rows whose environment ignores it."""
        if not self._over.any():
            return self._action
        pairs = zip(self._no_action, self._action, strict=True)
        return [where_rows(self._over, zeros, leaf) for zeros, leaf in pairs]

    def _shown_now(self) -> NestedArray:
        stacks = self._past.stacked([0] * len(self._leaf_specs))
        observations = self._structure.unflatten(stacks)
        if not self._include_actions:
            return observations
        stacks = self._past_actions.stacked([0] * len(self._no_action))
        actions = self._actions.unflatten(stacks)
        return {"observation": observations, "action": actions}

    def _save(self) -> Any:
        actions = self._past_actions.save()
        return {**super()._save(), "actions": actions, "over": self._over}

    def _restore(self, saved: Any) -> None:
        super()._restore(saved)
        self._past_actions.restore(saved["actions"])
        self._over = saved["over"]

    def _fits(self, saved: Any) -> bool:
        return super()._fits(saved) and self._past_actions.fits(saved["actions"])


def _converted(array: Array, spec: ArraySpec, dims: tuple[int, ...]) -> Array | None:
    """Copies an action as its spec has it; `None` if that would lose something."""
    if array.shape != (*dims, *spec.shape):
        return None
    integers = array.dtype.kind in "biu" and spec.dtype.kind in "iu"
    if not integers and not np.can_cast(array.dtype, spec.dtype, "same_kind"):
        return None
    converted = array.astype(spec.dtype)
    # That digits get lost is what floats are about.
    if array.dtype == spec.dtype or spec.dtype.kind in "fc":
        return converted
    return converted if np.array_equal(converted, array) else None
