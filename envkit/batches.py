"""Batches: the row methods of `PyEnvironment`, and moving some of the rows."""

from __future__ import annotations

import abc
import functools
from typing import Any

import numpy as np

from envkit._internal.first_look import look_at
from envkit._internal.internals import Internals
from envkit._internal.masks import (
    STEPS,
    as_mask,
    as_moves,
    check_others_have_begun,
    check_time_step,
    merge,
)
from envkit._internal.missing_names import Derived, no_word
from envkit._internal.options import hand_options, options_copy, options_per_row
from envkit._internal.reset_order import (
    copied_arrays,
    get_order,
    move_in_order,
    moves_in_other_order,
    refuse_ended,
    rely_on_size,
    reset_in_order,
    set_order,
)
from envkit._internal.resets import begin, begin_rows, keep_seeds_of_rows, reset_with
from envkit._internal.text import listed, named_rows
from envkit.errors import CallOrderError
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, NestedArray, Options, ResetSeed

__all__ = [
    "STEPS",
    "MaskedRows",
    "as_mask",
    "as_moves",
    "copied_arrays",
    "hand_options",
    "options_copy",
    "options_per_row",
    "refuse_ended",
    "rely_on_size",
    "reset",
    "step",
]

_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST


def _num_envs(env: Any) -> int:
    """The number of rows of a batch, as `batch_size`; a single environment has none."""
    if env._envkit.wraps and hasattr(env._env, "num_envs"):
        return env._env.num_envs  # type: ignore[no-any-return]  # an author's, perhaps
    if env.batched:
        return env.batch_size  # type: ignore[no-any-return]  # a batch has one
    raise no_word(
        type(env).__name__,
        "num_envs",
        "it is a single environment. envkit.make(target, num_envs=8) and "
        "ParallelPyEnvironment make a batch",
    )


class MaskedRows(abc.ABC):
    """The part of `PyEnvironment` that only batches use.

    A batch that can reset some of its rows overrides `_reset_rows`, and one that can
    step some of its rows overrides `_step_rows`.
    """

    _envkit: Internals

    @property
    def batched(self) -> bool:
        """Whether this is a batch, whose arrays have a dimension of rows in front."""
        return False

    @property
    def batch_size(self) -> int | None:
        """The number of rows of a batch; `None` for a single environment.

        A batch has it as `num_envs` too, where a single environment has nothing.
        """
        if self.batched:
            raise RuntimeError(
                f"{type(self).__name__} says it is batched but has no batch_size: "
                "override the property batch_size."
            )
        return None

    num_envs = Derived(_num_envs)

    @property
    def resets_rows(self) -> bool:
        """Whether `reset` takes a mask of rows."""
        return self.batched and type(self)._reset_rows is not MaskedRows._reset_rows

    @property
    def holds_rows(self) -> bool:
        """Whether `step` takes a mask of rows."""
        return self.batched and type(self)._step_rows is not MaskedRows._step_rows

    @property
    def seeds_rows(self) -> bool:
        """Whether `reset` takes seeds for some of the rows."""
        methods = self._envkit.methods
        return self.batched and (
            methods.seeds_rows or "seed" in methods.reset_rows_takes
        )

    @property
    def autoreset(self) -> AutoReset:
        """When a row begins the episode after a `LAST`; assign to it to change it.

        A wrapper has the order of the batch inside, and changes it too.

        Example:
            >>> from envkit.envs import Catch
            >>> env = Catch(batch_size=2)
            >>> env.autoreset = "same_step"
            >>> env.autoreset
            <AutoReset.SAME_STEP: 'same_step'>
        """
        return get_order(self)

    @autoreset.setter
    def autoreset(self, order: AutoReset | str) -> None:
        set_order(self, order)

    def step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array | None = None
    ) -> TimeStep:
        """Steps some rows of a batch, resets others, and leaves the rest as they are.

        This is `step(action, stepping)` and `reset(beginning)` in one call.

        Args:
            action: A batch of actions; rows that don't step ignore theirs.
            stepping: The mask of the rows that step. Ended rows among them begin the
                next episode, as in every step.
            beginning: The mask of the rows that begin an episode in any case.

        Returns:
            The current time step of the whole batch.
        """
        return _step_rows(self, action, *as_moves(self, stepping, beginning))

    def _reset_rows(self, mask: Array) -> TimeStep:
        """Starts an episode in the rows where `mask` is true; for batches.

        Returns the time step of the whole batch; only its masked rows are used.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot reset single rows: override "
            "_reset_rows(mask), which begins an episode in the masked rows only."
        )

    def _seed_rows(self, seeds: list[int | None]) -> None:
        """Seeds some rows from their next reset on; for batches.

        Args:
            seeds: An entry for each row: its seed, or `None` to continue its stream.
        """
        keep_seeds_of_rows(self, seeds)

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        """Steps some rows, begins an episode in others, and holds the rest.

        Args:
            action: A batch of actions; only stepping rows use theirs.
            stepping: The mask of the rows that step: some, but not all.
            beginning: The mask of the rows that begin an episode; they don't step.

        Returns:
            The time step of the whole batch, of which held rows are ignored.
        """
        held = ~(stepping | beginning)
        if held.any():
            raise NotImplementedError(
                f"{type(self).__name__} cannot leave rows {listed(held.nonzero()[0])} "
                "where they are while others step: override _step_rows(action, "
                "stepping, beginning)."
            )
        # No row is held, so step all of them: time steps of rows that begin an episode
        # right after are not used.
        env: Any = self
        stepped = check_time_step(env, env._step(action), "_step")
        return merge(env, beginning, begin_rows(env, beginning), stepped)


def reset(
    env: Any, mask: Any = None, seed: ResetSeed = None, options: Options = None
) -> TimeStep:
    """Implements `reset` for batches and for first results."""
    if seed is not None or options is not None:
        return reset_with(env, mask, seed, options)
    if moves_in_other_order(env):
        return reset_in_order(env, mask)
    if mask is not None:
        return _reset_masked(env, mask)
    time_step = check_time_step(env, begin(env), "_reset")
    internals = env._envkit
    if "reset" in internals.unseen:
        look_at(env, time_step, "_reset")
    elif not internals.unseen:
        stays_special = internals.methods.asks_should_reset or env.batched
        env._envkit = internals.look((), stays_special)
    env._current_time_step = time_step
    return time_step


def _reset_masked(env: Any, mask: Any) -> TimeStep:
    rows = as_mask(env, mask)
    if rows.all():
        return env.reset()  # type: ignore[no-any-return]  # a time step
    check_others_have_begun(env, rows)
    current: TimeStep = env._current_time_step
    if rows.any():
        current = merge(env, rows, begin_rows(env, rows), current)
        env._current_time_step = current
    return current


def step(env: Any, action: NestedArray, mask: Any = None) -> TimeStep:
    """Implements `step` for batches and for first results."""
    # Hot: called once per step of a batch.
    stepping = None if mask is None else as_mask(env, mask, "step", STEPS)
    internals = env._envkit
    if internals.order is not None and moves_in_other_order(env):
        move = functools.partial(env.step, action, mask)
        return move_in_order(env, move, stepping)
    if stepping is not None:
        return env.step_rows(action, stepping)  # type: ignore[no-any-return]
    current = env._current_time_step
    if current is None:
        return env.reset()  # type: ignore[no-any-return]
    if internals.methods.asks_should_reset or current.step_type is not _MID:
        if env.should_reset(current):
            return env.reset()  # type: ignore[no-any-return]
        if _begins_after_last(env) and env.batched:
            ended = np.asarray(current.step_type) == _LAST
            if ended.any():
                return _step_and_reset(env, action, ended)
    stepped = check_time_step(env, env._step(action), "_step")
    if "step" in internals.unseen:
        look_at(env, stepped, "_step")
    env._current_time_step = stepped
    return stepped


def _begins_after_last(env: Any) -> bool:
    """Returns True if an episode begins with the step after a `LAST`."""
    return env._handle_auto_reset and not env.continues_after_last


def _step_rows(
    env: Any, action: NestedArray, stepping: Array, beginning: Array
) -> TimeStep:
    """Steps some rows and resets others, in the order of the batch."""
    if moves_in_other_order(env):
        move = functools.partial(env.step_rows, action, stepping, beginning)
        return move_in_order(env, move, stepping)
    current: TimeStep | None = env._current_time_step
    if current is None:
        if (stepping | beginning).all():
            return env.reset()  # type: ignore[no-any-return]
        raise CallOrderError(
            f"{type(env).__name__}.step_rows() was called before the first "
            "reset(): the rows that are to stay have no time step yet. Call "
            "reset() first."
        )
    if _begins_after_last(env):
        over = stepping & (np.asarray(current.step_type) == _LAST)
        stepping, beginning = stepping & ~over, beginning | over
    if not stepping.any():
        return env.reset(beginning) if beginning.any() else current
    moved = _moved(env, action, stepping, beginning, current)
    if "step" in env._envkit.unseen:
        look_at(env, moved, "_step" if stepping.all() else "_step_rows")
    env._current_time_step = moved
    return moved


def _moved(
    env: Any, action: NestedArray, stepping: Array, beginning: Array, current: TimeStep
) -> TimeStep:
    """Returns the time step after some rows, or all, have moved."""
    if stepping.all():
        return check_time_step(env, env._step(action), "_step")
    moved = env._step_rows(action, stepping, beginning)
    moved = check_time_step(env, moved, "_step_rows")
    touched = stepping | beginning
    if touched.all():
        return moved
    return merge(env, touched, moved, current, "_step_rows")


def _step_and_reset(env: Any, action: NestedArray, ended: Array) -> TimeStep:
    """Steps a batch in which some rows have ended and begin a new episode."""
    if env.resets_rows or env.holds_rows:
        stepped = env._step_rows(action, ~ended, ended)
        stepped = check_time_step(env, stepped, "_step_rows")
    else:
        # Without a hook the environment has to do it alone, as in TF-Agents.
        stepped = check_time_step(env, env._step(action), "_step")
        _check_has_reset(env, ended, stepped)
    env._current_time_step = stepped
    return stepped


def _check_has_reset(env: Any, ended: Array, stepped: TimeStep) -> None:
    stuck = np.flatnonzero(ended & (np.asarray(stepped.step_type) != _FIRST))
    if stuck.size:
        raise NotImplementedError(
            f"{named_rows(stuck)} of {type(env).__name__} ended with the last step, "
            "and this step did not begin a new episode there. Override "
            "_reset_rows(mask), which begins an episode in the masked rows only, "
            "or let _step() do it."
        )
