"""Wrappers that limit episodes: `TimeLimit`, `FixedLength`, `EpisodeLimit`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from envkit import nest
from envkit._shared.arguments import checked_seconds
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.extend import (
    FLAGS,
    DirectRow,
    WrapperInternals,
    WrapperState,
    checked_size,
    may_lose,
)
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import ArraySpec
from envkit.specs.validation import check_fits
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, NestedArray
from envkit.wrappers.rows import complete, where_rows

__all__ = [
    "EpisodeLimit",
    "FixedLength",
    "TimeLimit",
    "info_at_limit",
    "stands_at_last",
]


_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST
# If a subclass overrides none of these, a worker may step `TimeLimit` directly.
_STEPPING = (
    "step",
    "_step",
    "_step_single",
    "_count",
    "reset",
    "_reset",
    "_see",
    "_begin",
    "should_reset",
    "get_info",
)


class _LimitInternals(WrapperInternals):
    """Lets a worker count the steps for which it creates no time steps."""

    def direct_row(self, env: Any) -> DirectRow | None:
        is_plain = not env._dims and env._seconds is None
        if not (is_plain and self.are_own(env, *_STEPPING)):
            return None
        row = self.inner_direct_row(env)
        if row is None or row.counter is not row:
            return None
        row.limit(env, env._duration, count=env._count, see=env._see)
        return row

    def save(self, env: Any) -> Any:
        # Saves the elapsed time: another clock may have another zero.
        return {**super().save(env), "elapsed": env._now() - env._began}

    def fits(self, env: Any, saved: Any) -> bool:
        return (
            super().fits(env, saved) and np.asarray(saved["elapsed"]).dtype.kind in "fi"
        )

    def restore(self, env: Any, saved: Any) -> None:
        super().restore(env, saved)
        env._began = env._now() - saved["elapsed"]


class _CountedSteps:
    """Reads the step count of a wrapper whose `DirectRow` counts for it.

    An instance attribute of the same name takes precedence.
    """

    def __get__(self, env: Any, owner: type) -> Any:
        direct: DirectRow | None = None if env is None else env._envkit.direct
        return None if direct is None else direct.count()


class TimeLimit(PyEnvironmentBaseWrapper):
    """Truncates episodes after `duration` steps, `seconds`, or whichever comes first.

    The last step becomes a `LAST` and keeps its discount, so the value of the future
    can still be estimated. Each row counts on its own. Episodes that the environment
    ends earlier stay as they are, and so does the padding of `FixedLength`. A `FIRST`
    counts as a step if no episode has ended.

    The environment does not know that an episode was cut, so the wrapper begins the
    next one with the next step. A batch must be able to reset single rows for that (see
    its `resets_rows`).

    When an episode reaches the limit, `get_info` has `truncated`, and `terminated` says
    whether the environment ended it in the same step.

    Example:
        >>> from envkit.envs import CartPole
        >>> env = TimeLimit(CartPole(seed=1), duration=2)
        >>> env.reset().step_type
        array(0, dtype=int32)
        >>> [int(env.step(1).step_type) for _ in range(4)]
        [1, 2, 0, 1]
        >>> TimeLimit(CartPole(), seconds=60)
        TimeLimit(CartPole(), seconds=60)
    """

    _kept = ("_steps", "_cut", "_limited")
    _envkit = _LimitInternals()
    _steps: Any = _CountedSteps()

    def __init__(
        self,
        env: Any,
        duration: int | None = None,
        handle_auto_reset: bool = False,
        *,
        max_episode_steps: int | None = None,
        seconds: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            duration: The number of steps after which an episode is truncated; `None`
                for no limit.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
            max_episode_steps: Gymnasium's name for `duration`.
            seconds: The time after which an episode is truncated; `None` for no limit.
            now: The clock that measures `seconds`.
        """
        super().__init__(env, handle_auto_reset)
        if max_episode_steps is not None:
            if duration is not None:
                raise TypeError(
                    f"TimeLimit was given duration={duration!r:.80} and "
                    f"max_episode_steps={max_episode_steps!r:.80}, which are two names "
                    "of one argument. Pass one of them."
                )
            duration = checked_size("max_episode_steps", max_episode_steps)
        if duration is None and seconds is None:
            raise TypeError("TimeLimit needs a duration in steps, or seconds, or both.")
        self._duration = (
            sys.maxsize if duration is None else checked_size("duration", duration)
        )
        if seconds is not None:
            checked_seconds("seconds", seconds, above_zero=True, hint=", such as 60")
        # Kept as given, for the repr.
        self._seconds = seconds
        # Shows only what was chosen.
        chosen = {"duration": duration, "seconds": seconds}
        self._shown = tuple(name for name in chosen if chosen[name] is not None)  # type: ignore[misc]  # of this one
        self._now = now
        # The time at which each row's episode began.
        self._began: Any = np.full(self._dims, now() if seconds is not None else 0.0)
        self._envkit.check_resets_rows(self)
        self._continues = self.continues_after_last
        self._steps = np.zeros(self._dims, np.int64)
        # Rows that only this wrapper has ended. A single environment has a Python bool
        # here, and a Python int as its step count.
        self._cut: Any = np.zeros(self._dims, bool)
        # Rows that ended at the limit, whoever ended them.
        self._limited: Any = np.zeros(self._dims, bool)
        if not self._dims:
            self._steps, self._cut, self._limited = 0, False, False

    @property
    def duration(self) -> int | None:
        """The number of steps that truncates an episode; `None` for no limit."""
        return None if self._duration == sys.maxsize else self._duration

    @property
    def seconds(self) -> float | None:
        """The seconds after which an episode is truncated; `None` for no limit."""
        return self._seconds

    def get_info(self) -> Any:
        """Returns the environment's info, and how an episode ended at the limit."""
        return info_at_limit(self)

    def _step(self, action: NestedArray) -> TimeStep:
        # Hot: called once per step.
        if not self._dims:
            return self._step_single(action)
        cut = self._cut
        begins = cut | stands_at_last(self)
        if not cut.any():
            return self._count_rows(self._env.step(action), None, begins)
        return self._count_rows(self._env.step_rows(action, ~cut, cut), None, begins)

    def _step_single(self, action: NestedArray) -> TimeStep:
        if self._cut:
            return self._reset()
        return self._count(self._env.step(action))

    def _count(self, time_step: TimeStep) -> TimeStep:
        """Counts a step of a single environment, and ends the episode at the limit."""
        self._steps += 1
        step_type = time_step.step_type
        is_amid = step_type is _MID or step_type == _MID
        if not is_amid and step_type == _FIRST:
            if stands_at_last(self):
                self._begin()
                return time_step
            # No episode has ended, so even a FIRST counts as a step.
            is_amid = True
        limited = self._steps >= self._duration or (
            self._seconds is not None and self._now() - self._began >= self._seconds
        )
        if is_amid and not limited:
            return time_step
        self._limited = limited
        if is_amid:
            self._cut = True
            return time_step._replace(step_type=_LAST)
        if self._continues:
            self._begin_next()
        return time_step

    def _begin(self) -> None:
        """Starts counting for a single environment."""
        self._limited = False
        self._begin_next()

    def _begin_next(self) -> None:
        self._steps = 0
        if self._seconds is not None:
            self._began = self._now()

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        cut = self._cut & stepping
        begins = beginning | cut | stands_at_last(self)
        time_step = self._env.step_rows(action, stepping & ~cut, beginning | cut)
        return self._count_rows(time_step, stepping | beginning, begins)

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # All of these rows have been reset.
        if not self._dims:
            self._begin()
            self._cut = False
            return time_step
        return self._count_rows(time_step, rows, np.ones(self._dims, bool))

    def _count_rows(
        self, time_step: TimeStep, rows: Array | None, begins: Array
    ) -> TimeStep:
        """Counts a step of some rows, or of all, and ends episodes at the limit.

        A `FIRST` begins an episode only where `begins` is true. Elsewhere it counts as
        a step: an environment that returns `FIRST` forever must be ended too.
        """
        step_type = time_step.step_type
        begun = begins & (step_type == _FIRST)
        steps = np.where(begun, 0, self._steps + 1)
        over = steps >= self._duration
        if self._seconds is not None:
            over |= self._is_out_of_time(begun, rows)
        limited = over & ~begun
        cut = limited & (step_type != _LAST)
        if rows is not None:
            steps = np.where(rows, steps, self._steps)
            cut = np.where(rows, cut, self._cut)
            limited = np.where(rows, limited, self._limited)
        if self._continues:  # the next step is the first of another episode
            over = step_type == _LAST
            steps = np.where(over, 0, steps)
            if self._seconds is not None:
                self._began = np.where(over, self._now(), self._began)
        self._steps, self._cut, self._limited = steps, cut, limited
        if not cut.any():
            return time_step
        return time_step._replace(step_type=np.where(cut, _LAST, step_type))

    def _is_out_of_time(self, begun: Array, rows: Array | None) -> Array:
        """Returns the rows whose time is up; rows that begin have their full time."""
        now = self._now()
        self._began = np.where(
            begun if rows is None else begun & rows, now, self._began
        )
        out: Array = now - self._began >= self._seconds
        return out


class _FixedLengthInternals(WrapperInternals):
    """Tracks the rows that are padded."""

    def padding_rows(self, env: Any) -> Array | None:
        over: Array = env._over & (env._steps < env._fix_length)
        return over


class FixedLength(PyEnvironmentBaseWrapper):
    """Gives every episode the same number of steps, `fix_length`.

    Longer episodes are cut: step number `fix_length` becomes a `LAST` and keeps its
    discount. Shorter ones are padded: after the end, each step repeats the
    environment's last observation with reward and discount 0, without stepping the
    environment. The environment's own `LAST` stays a `LAST`, and each repetition is one
    too, as in TF-Agents. To count episodes, count each `FIRST`.

    Each row of a batch counts on its own. The batch must be able to hold and to reset
    single rows (see its `holds_rows` and `resets_rows`).

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = FixedLength(CountingEnv(steps_per_episode=2), fix_length=4)
        >>> [int(env.step(0).observation) for _ in range(6)]
        [0, 1, 2, 2, 2, 10]
    """

    _kept = ("_steps", "_over", "_cut", "_limited", "_end")
    _envkit = _FixedLengthInternals()
    _shown = ("fix_length",)

    def __init__(
        self, env: Any, fix_length: int, handle_auto_reset: bool = False
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            fix_length: How many steps every episode has.
            handle_auto_reset: Has no effect: the wrapper begins every episode itself,
                and a reset after the first `LAST` would leave nothing to pad.
        """
        super().__init__(env, handle_auto_reset)
        self._fix_length = checked_size("fix_length", fix_length)
        self._envkit.check_holds_rows(self)
        self._envkit.check_resets_rows(self)
        self._structure = nest.Structure(self._env.time_step_spec())
        self._steps = np.zeros(self._dims, np.int64)
        # Rows at a LAST. `_end` has copies of their time steps, because those that were
        # returned belong to the caller.
        self._over = np.zeros(self._dims, bool)
        # Rows that the wrapper has cut, and rows that ended at the length or later.
        self._cut = np.zeros(self._dims, bool)
        self._limited = np.zeros(self._dims, bool)
        self._end: TimeStep = self._structure.map(
            lambda spec: np.zeros((*self._dims, *spec.shape), spec.dtype),
            self._structure.template,
        )

    @property
    def repeats_last(self) -> bool:
        """True: repetitions of `LAST` pad short episodes."""
        return True

    @property
    def continues_after_last(self) -> bool:
        """False: the wrapper begins every episode itself."""
        return False

    def get_info(self) -> Any:
        """Returns the environment's info, and how an episode that was cut ended."""
        return info_at_limit(self)

    @property
    def fix_length(self) -> int:
        """How many steps every episode has."""
        return self._fix_length

    def _step(self, action: NestedArray) -> TimeStep:
        over = self._over
        pads = over & (self._steps < self._fix_length)
        if self._dims:
            return self._move(action, ~over, over & ~pads, pads)
        if not over:
            # No episode has ended, so even a FIRST counts as a step.
            return self._count(self._env.step(action), None, over)
        if not pads:
            return self._reset()
        self._steps = self._steps + 1
        return self._padded()

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        over = self._over & stepping
        pads = over & (self._steps < self._fix_length)
        return self._move(action, stepping & ~over, beginning | (over & ~pads), pads)

    def _move(
        self, action: NestedArray, stepping: Array, beginning: Array, pads: Array
    ) -> TimeStep:
        """Steps rows of a batch, and pads rows that have ended early."""
        if stepping.all():
            return self._count(self._env.step(action), None, beginning)
        moved = self._env.step_rows(action, stepping, beginning)
        time_step = self._count(moved, stepping | beginning, beginning)
        if not pads.any():
            return time_step
        self._steps = self._steps + pads
        return self._rows_of(pads, self._padded(), time_step)

    def _padded(self) -> TimeStep:
        """Returns the last time step again, with reward and discount 0."""
        again: TimeStep = self._structure.map(np.array, self._end)
        return again._replace(
            reward=nest.map_structure(np.zeros_like, again.reward),
            discount=nest.map_structure(np.zeros_like, again.discount),
        )

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        return self._count(time_step, rows, np.ones(self._dims, bool))

    def _count(
        self, time_step: TimeStep, rows: Array | None, begins: Array
    ) -> TimeStep:
        """Counts a step of some rows, or of all, and ends episodes at the length.

        A `FIRST` begins an episode where `begins` is true, and is a step elsewhere.
        """
        step_type = np.asarray(time_step.step_type)
        begun = begins & (step_type == _FIRST)
        steps = np.where(begun, 0, self._steps + 1)
        cut = (steps >= self._fix_length) & (step_type != _LAST) & ~begun
        over = cut | (step_type == _LAST)
        limited = over & (steps >= self._fix_length)
        if rows is not None:
            steps = np.where(rows, steps, self._steps)
            over = np.where(rows, over, self._over)
            limited = np.where(rows, limited, self._limited)
        self._steps, self._limited = steps, limited
        self._cut = cut if rows is None else np.where(rows, cut, self._cut)
        if cut.any():
            step_type = np.where(cut, _LAST, step_type)
            time_step = time_step._replace(step_type=step_type)
        ends = over if rows is None else over & rows
        if ends.any():
            self._end = self._rows_of(ends, time_step, self._end)
        self._over = over
        if not self._dims:
            return time_step
        # Padded rows are held, and show the environment's time step again; a policy
        # that removes the mask from its observation must not damage the copy.
        repacked: TimeStep = self._structure.unflatten(
            self._structure.flatten(time_step)
        )
        return repacked

    def _set_state(self, state: Any) -> None:
        if isinstance(state, WrapperState) and state.wrapper == type(self).__qualname__:
            end = state.own["_end"]
            # Pickling does not keep the byte order.
            leaves = zip(nest.flatten(end), self._structure.leaves, strict=False)
            end = nest.unflatten_as(
                end, [leaf.astype(spec.dtype, copy=False) for leaf, spec in leaves]
            )
            # Rows that have not ended hold zeros, whatever the bounds.
            check_fits(
                end,
                self._structure.map(_without_bounds, self._structure.template),
                subject="FixedLength.set_state() was given a state whose time step",
                outer_dims=self._dims,
            )
            state = state._replace(own={**state.own, "_end": end})
        super()._set_state(state)

    def _rows_of(self, rows: Array, chosen: TimeStep, other: TimeStep) -> TimeStep:
        """Takes some rows from one time step and the rest from another."""
        flatten = self._structure.flatten
        leaves = [
            where_rows(rows, ours, theirs)
            for ours, theirs in zip(flatten(chosen), flatten(other), strict=True)
        ]
        picked: TimeStep = self._structure.unflatten(leaves)
        return picked


def stands_at_last(env: PyEnvironment) -> Array:
    """Returns the rows at a `LAST`; all rows if there is no time step."""
    current = env._current_time_step
    if current is None:
        return np.ones(env.batch_size or (), bool)
    return np.asarray(np.asarray(current.step_type) == _LAST)


def info_at_limit(wrapper: Any) -> Any:
    """Returns the environment's info, with both flags for episodes at a limit.

    Args:
        wrapper: The wrapper that limits the episodes. `_limited` marks rows that ended
            at the limit, `_cut` marks those of them that the environment did not end.
            The environment need not have an info.
    """
    # Hot: called once per step if infos are read.
    try:
        info = wrapper._env.get_info()
    except NotImplementedError:
        info = {}
    limited = wrapper._limited
    if limited is False or not np.any(limited):
        return info
    time_step = wrapper._current_time_step
    over = (np.asarray(time_step.step_type) == _LAST) & ~np.asarray(wrapper._cut)
    if not nest.is_nested(time_step.discount):
        zero = np.asarray(time_step.discount) == 0.0
        if zero.ndim > over.ndim:
            # Agents end one by one, and the info has an entry for each.
            return info
        over = over & zero
    if isinstance(info, list) and len(info) == np.size(limited):
        by_row = zip(info, np.atleast_1d(limited), np.atleast_1d(over), strict=True)
        return [_with_flags(*row) if row[1] else row[0] for row in by_row]
    return _with_flags(info, limited, over)


def _with_flags(info: Any, limited: Any, over: Any) -> Any:
    """Adds the flags to one row's info, or to an info of arrays for all rows."""
    if not isinstance(info, Mapping):
        return info
    given = [np.asarray(info.get(name)) for name in FLAGS]
    are_arrays = any(isinstance(info.get(name), np.ndarray) for name in FLAGS)
    if all(
        flag.dtype == np.bool_ and flag.shape == np.shape(limited) for flag in given
    ):
        # What the environment says about its own end takes precedence.
        over = np.where(given[0] | given[1], given[0], limited & over)
        limited = given[1] | limited
    if np.ndim(limited) or are_arrays:
        return {**info, "terminated": np.array(over), "truncated": np.array(limited)}
    return {**info, "terminated": bool(over), "truncated": bool(limited)}


def _without_bounds(spec: ArraySpec) -> ArraySpec:
    return ArraySpec(spec.shape, spec.dtype, spec.name)


class _EpisodeLimitInternals(WrapperInternals):
    """Tracks the rows that have finished their episodes."""

    def padding_rows(self, env: Any) -> Array | None:
        over: Array = env._ended >= env._episodes
        return over


class EpisodeLimit(PyEnvironmentBaseWrapper):
    """Ends a run after a number of episodes, counted in each row.

    An episode that was lost with its environment does not count, so another is played.
    A finished row stays at the `LAST` of its last episode: further steps do not reach
    the environment and show that `LAST` again, with reward and discount 0. `valid` is
    false there. `is_over` is true once every row is finished, and ends your loop.
    `reset()` begins a new run.

    In a batch whose `autoreset` is not `NEXT_STEP`, resetting a row after its episode
    begins the next episode of its run, if one is left.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = EpisodeLimit(CountingEnv(steps_per_episode=2), episodes=2)
        >>> time_step, steps = env.reset(), 0
        >>> while not env.is_over:
        ...     time_step, steps = env.step(0), steps + 1
        >>> steps, int(time_step.observation)
        (5, 12)
    """

    _kept = ("_ended", "_was_over", "_stood_at_end", "_end")
    _envkit = _EpisodeLimitInternals()
    _shown = ("episodes",)

    def __init__(self, env: Any, episodes: int) -> None:
        """Wraps an environment.

        Args:
            env: The environment. A batch must be able to hold rows (see its
                `holds_rows`).
            episodes: How many episodes a run has.
        """
        super().__init__(env)
        self._episodes = checked_size("episodes", episodes)
        self._envkit.check_holds_rows(self)
        self._may_lose = may_lose(self._env)
        self._structure = nest.Structure(self._env.time_step_spec())
        # Per row: how many episodes have ended, and whether the row was already
        # finished before the last step.
        self._ended: Any = np.zeros(self._dims, np.int64)
        self._was_over: Any = np.zeros(self._dims, bool)
        # Per row: whether its episode had ended before, so that another LAST is
        # padding.
        self._stood_at_end: Any = np.ones(self._dims, bool)
        self._end: TimeStep | None = None

    @property
    def episodes(self) -> int:
        """How many episodes a run has."""
        return self._episodes

    @property
    def repeats_last(self) -> bool:
        """True: finished rows show their last time step again."""
        return True

    @property
    def valid(self) -> Array:
        """The rows whose last time step was new; a scalar for a single environment."""
        return ~np.asarray(self._was_over)

    @property
    def is_over(self) -> bool:
        """Whether every row has finished its episodes."""
        return bool(np.all(self._ended >= self._episodes))

    def _reset(self) -> TimeStep:
        self._begin_runs(np.ones(self._dims, bool))
        return super()._reset()

    def _reset_rows(self, mask: Array) -> TimeStep:
        self._begin_runs(mask)
        return super()._reset_rows(mask)

    def _begin_runs(self, rows: Array) -> None:
        """Begins new runs; abandoned episodes do not count."""
        if self.autoreset is not AutoReset.NEXT_STEP:
            # In such a batch, a reset begins the next episode of a run.
            has_next = (self._ended > 0) & (self._ended < self._episodes)
            rows = rows & ~(self._stood_at_end & has_next)
        self._ended = np.where(rows, 0, self._ended)
        self._was_over = np.where(rows, False, self._was_over)

    def _step(self, action: NestedArray) -> TimeStep:
        over = np.asarray(self._ended >= self._episodes)
        if not over.any():
            self._was_over = over
            return super()._step(action)
        if not self._dims:
            self._was_over = over
            return self._again()
        return self._step_rows(action, np.ones(self._dims, bool), np.zeros_like(over))

    def _step_rows(
        self, action: NestedArray, stepping: Array, beginning: Array
    ) -> TimeStep:
        over = (self._ended >= self._episodes) & stepping
        self._was_over = np.where(stepping, over, self._was_over)
        self._ended = np.where(beginning, 0, self._ended)
        self._was_over &= ~beginning
        if (over | ~(stepping | beginning)).all():
            return self._again()
        moved = super()._step_rows(action, stepping & ~over, beginning)
        if not over.any():
            return moved
        return self._rows_of(over, self._again(), moved)

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        stands = np.asarray(time_step.step_type) == _LAST
        # Without a FIRST after it, each LAST ends an episode of its own.
        ended = stands & (~self._stood_at_end | self.continues_after_last)
        if rows is not None:
            ended &= rows
            stands = np.where(rows, stands, self._stood_at_end)
        self._stood_at_end = stands
        if self._may_lose:
            ended = complete(self._env, ended)
        if ended.any():
            self._ended = self._ended + ended
            before = time_step if self._end is None else self._end
            kept = self._rows_of(ended, time_step, before)
            self._end = self._structure.map(np.array, kept)
        return time_step

    def _again(self) -> TimeStep:
        """Returns the last time steps again, with reward and discount 0."""
        again: TimeStep = self._structure.map(np.array, self._end)
        return again._replace(
            reward=nest.map_structure(np.zeros_like, again.reward),
            discount=nest.map_structure(np.zeros_like, again.discount),
        )

    def _rows_of(self, rows: Array, chosen: TimeStep, other: TimeStep) -> TimeStep:
        """Takes some rows from one time step and the rest from another."""
        flatten = self._structure.flatten
        leaves = [
            where_rows(rows, ours, theirs)
            for ours, theirs in zip(flatten(chosen), flatten(other), strict=True)
        ]
        return self._structure.unflatten(leaves)  # type: ignore[no-any-return]
