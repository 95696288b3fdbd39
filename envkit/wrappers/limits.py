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
)
from envkit.py_environment import PyEnvironment
from envkit.specs.arrays import ArraySpec
from envkit.specs.validation import check_fits
from envkit.time_step import AutoReset, StepType, TimeStep
from envkit.types import Array, NestedArray
from envkit.wrappers.rows import where_rows

__all__ = [
    "EpisodeLimit",
    "FixedLength",
    "TimeLimit",
    "info_at_limit",
    "stands_at_last",
]


_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST
# What decides what a step of `TimeLimit` is, and what is told of it.
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
    """Lets a worker count steps where it steps the environment without time steps."""

    def direct_row(self, env: Any) -> DirectRow | None:
        is_plain = not env._dims and env._seconds is None
        if not (is_plain and self.are_own(env, *_STEPPING)):
            return None
        row = self.inner_direct_row(env)
        if row is None or len(row.layers) > 1:
            return None
        row.limit(env, env._duration, count=env._count, see=env._see)
        return row

    def save(self, env: Any) -> Any:
        # What counts is how long it has been, on whatever clock.
        return {**super().save(env), "elapsed": env._now() - env._began}

    def fits(self, env: Any, saved: Any) -> bool:
        return (
            super().fits(env, saved) and np.asarray(saved["elapsed"]).dtype.kind in "fi"
        )

    def restore(self, env: Any, saved: Any) -> None:
        super().restore(env, saved)
        env._began = env._now() - saved["elapsed"]


class _CountedSteps:
    """Reads the number of steps of a layer that leaves it to its `DirectRow` to count.

    An attribute of the same name of the object goes before it.
    """

    def __get__(self, env: Any, owner: type) -> Any:
        direct: DirectRow | None = None if env is None else env._envkit.direct
        return None if direct is None else direct.count()


class TimeLimit(PyEnvironmentBaseWrapper):
    """Truncates episodes: their step number `duration` is the last.

    Or the first step after so many `seconds`, whichever comes first. That step becomes
    a `LAST` and keeps its discount, so that what would have come can still be
    estimated. Each row counts for itself. An environment that ends an episode earlier
    does so. Where it pads its episodes, as with `FixedLength`, the padding is left
    alone. A `FIRST` where no episode has ended counts as a step.

    The environment does not know that an episode was cut, so the wrapper begins the
    next one with the next step. A batch has to be able to reset single rows for that,
    as its `resets_rows` says.

    Where an episode has reached the limit, `get_info` says `truncated`, and whether the
    environment has `terminated` it in the same step.

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
            duration: The most steps an episode has; `None` for any number.
            handle_auto_reset: As with every wrapper.
            max_episode_steps: Gymnasium's name for `duration`.
            seconds: How long an episode lasts at most; `None` for any time.
            now: The clock for that.
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
        # As it was given, because that is shown.
        self._seconds = seconds
        # Only what was chosen.
        chosen = {"duration": duration, "seconds": seconds}
        self._shown = tuple(name for name in chosen if chosen[name] is not None)  # type: ignore[misc]  # of this one
        self._now = now
        # When the episode of each row began.
        self._began: Any = np.full(self._dims, now() if seconds is not None else 0.0)
        self._envkit.check_resets_rows(self)
        self._continues = self.continues_after_last
        self._steps = np.zeros(self._dims, np.int64)
        # Where the current time step is a LAST only here. Of a single environment it
        # is a Python bool, as its steps are a Python int.
        self._cut: Any = np.zeros(self._dims, bool)
        # Where it is a LAST at the limit, here or of its own.
        self._limited: Any = np.zeros(self._dims, bool)
        if not self._dims:
            self._steps, self._cut, self._limited = 0, False, False

    @property
    def duration(self) -> int | None:
        """The most steps an episode has; `None` for any number."""
        return None if self._duration == sys.maxsize else self._duration

    @property
    def seconds(self) -> float | None:
        """How long an episode lasts at most; `None` for any time."""
        return self._seconds

    def get_info(self) -> Any:
        """Returns the environment's info, and how an episode at the limit has ended."""
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
            # Nothing has ended: it is a step of the episode, however it is called.
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
        """Begins to count for a single environment."""
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

        A `FIRST` begins an episode where `begins` is true. Elsewhere it is a step like
        any other: an environment that answers `FIRST` for ever has to be ended, too.
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
        if self._continues:  # The next step is the first of another episode.
            over = step_type == _LAST
            steps = np.where(over, 0, steps)
            if self._seconds is not None:
                self._began = np.where(over, self._now(), self._began)
        self._steps, self._cut, self._limited = steps, cut, limited
        if not cut.any():
            return time_step
        return time_step._replace(step_type=np.where(cut, _LAST, step_type))

    def _is_out_of_time(self, begun: Array, rows: Array | None) -> Array:
        """Returns which rows have had their time; those that begin have all of it."""
        now = self._now()
        self._began = np.where(
            begun if rows is None else begun & rows, now, self._began
        )
        out: Array = now - self._began >= self._seconds
        return out


class _FixedLengthInternals(WrapperInternals):
    """Knows the rows that are padded."""

    def padding_rows(self, env: Any) -> Array | None:
        over: Array = env._over & (env._steps < env._fix_length)
        return over


class FixedLength(PyEnvironmentBaseWrapper):
    """Gives every episode the same number of steps, `fix_length`.

    Longer episodes are cut there: the step becomes a `LAST` and keeps its discount.
    Shorter ones are padded: from the end on each step repeats the environment's last
    observation with reward and discount 0, without a step of the environment, until
    there are enough. The environment's own `LAST` is a `LAST` here too, and so is each
    of the repetitions, as in TF-Agents: to count episodes, count each `FIRST`.

    Each row of a batch counts for itself. The batch has to be able to leave rows where
    they are while others step, and to reset single rows, as its `holds_rows` and
    `resets_rows` say.

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
            handle_auto_reset: Makes no difference: the wrapper begins every episode
                itself, and a reset after the first `LAST` would leave nothing to pad.
        """
        super().__init__(env, handle_auto_reset)
        self._fix_length = checked_size("fix_length", fix_length)
        self._envkit.check_holds_rows(self)
        self._envkit.check_resets_rows(self)
        self._structure = nest.Structure(env.time_step_spec())
        self._steps = np.zeros(self._dims, np.int64)
        # Which rows stand at a LAST, and the time step there: what was returned belongs
        # to others.
        self._over = np.zeros(self._dims, bool)
        # Which of these the wrapper has cut, and which ended at the length at least.
        self._cut = np.zeros(self._dims, bool)
        self._limited = np.zeros(self._dims, bool)
        self._end: TimeStep = self._structure.map(
            lambda spec: np.zeros((*self._dims, *spec.shape), spec.dtype),
            self._structure.template,
        )

    @property
    def repeats_last(self) -> bool:
        """True: repetitions of a `LAST` pad short episodes."""
        return True

    @property
    def continues_after_last(self) -> bool:
        """False: the wrapper begins every episode itself."""
        return False

    def get_info(self) -> Any:
        """Returns the environment's info, and how an episode that was cut has ended."""
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
            # Nothing has ended, so that a FIRST is a step like any other.
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
        """Moves rows of a batch, and pads those that wait for the others."""
        if stepping.all():
            return self._count(self._env.step(action), None, beginning)
        moved = self._env.step_rows(action, stepping, beginning)
        time_step = self._count(moved, stepping | beginning, beginning)
        if not pads.any():
            return time_step
        self._steps = self._steps + pads
        return self._rows_of(pads, self._padded(), time_step)

    def _padded(self) -> TimeStep:
        """Returns the time step of the end once more, with nothing earned."""
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
        # Rows that are padded are held, which shows the environment's time step again;
        # a policy that takes the mask out of its observation must not empty that.
        repacked: TimeStep = self._structure.unflatten(
            self._structure.flatten(time_step)
        )
        return repacked

    def _set_state(self, state: Any) -> None:
        if isinstance(state, WrapperState) and state.wrapper == type(self).__qualname__:
            end = state.own["_end"]
            # A pickle does not keep the byte order.
            leaves = zip(nest.flatten(end), self._structure.leaves, strict=False)
            end = nest.unflatten_as(
                end, [leaf.astype(spec.dtype, copy=False) for leaf, spec in leaves]
            )
            # Where no row has ended yet there are zeros, whatever the bounds.
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
    """Returns in which rows the current time step is a `LAST`; all if there is none."""
    current = env._current_time_step
    if current is None:
        return np.ones(env.batch_size or (), bool)
    return np.asarray(np.asarray(current.step_type) == _LAST)


def info_at_limit(wrapper: Any) -> Any:
    """Returns an environment's info, with both flags where episodes reached a limit.

    Args:
        wrapper: What limits the episodes. Its `_limited` says where the time step is a
            `LAST` at the limit, and its `_cut` where the limit alone has made it one.
            The environment inside need not have an info.
    """
    # Hot: called once per step where somebody wants infos.
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
            # Each agent ends in its own way, and the info is by agents.
            return info
        over = over & zero
    if isinstance(info, list) and len(info) == np.size(limited):
        by_row = zip(info, np.atleast_1d(limited), np.atleast_1d(over), strict=True)
        return [_with_flags(*row) if row[1] else row[0] for row in by_row]
    return _with_flags(info, limited, over)


def _with_flags(info: Any, limited: Any, over: Any) -> Any:
    """Adds the flags to an info of one row, or to one of arrays for all rows."""
    if not isinstance(info, Mapping):
        return info
    given = [np.asarray(info.get(name)) for name in FLAGS]
    are_arrays = any(isinstance(info.get(name), np.ndarray) for name in FLAGS)
    if all(
        flag.dtype == np.bool_ and flag.shape == np.shape(limited) for flag in given
    ):
        # What the environment says of its own ends goes before what they are worth.
        over = np.where(given[0] | given[1], given[0], limited & over)
        limited = given[1] | limited
    if np.ndim(limited) or are_arrays:
        return {**info, "terminated": np.array(over), "truncated": np.array(limited)}
    return {**info, "terminated": bool(over), "truncated": bool(limited)}


def _without_bounds(spec: ArraySpec) -> ArraySpec:
    return ArraySpec(spec.shape, spec.dtype, spec.name)


class _EpisodeLimitInternals(WrapperInternals):
    """Knows the rows that have had their episodes."""

    def padding_rows(self, env: Any) -> Array | None:
        over: Array = env._ended >= env._episodes
        return over


class EpisodeLimit(PyEnvironmentBaseWrapper):
    """Ends a run after so many episodes, in each row of a batch alone.

    A row that has had its episodes stays at the `LAST` of the last one: every further
    step shows it again, with reward and discount 0, and does not reach the environment.
    `valid` is false there, and `is_over` is true when no row goes on; that is how a
    loop ends. `reset()` begins a new run.

    In a batch whose `autoreset` is another than `NEXT_STEP`, a reset of a row whose
    episode has ended begins the next episode of its run, if there is one.

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
            env: The environment. If it is a batch, it has to be able to leave rows
                where they are, as its `holds_rows` says.
            episodes: How many episodes a run has.
        """
        super().__init__(env)
        self._episodes = checked_size("episodes", episodes)
        self._envkit.check_holds_rows(self)
        self._structure = nest.Structure(env.time_step_spec())
        # By row: how many episodes have ended, and whether it stood still already when
        # the last step came.
        self._ended: Any = np.zeros(self._dims, np.int64)
        self._was_over: Any = np.zeros(self._dims, bool)
        # By row: whether its episode had ended before, so that another LAST pads.
        self._stood_at_end: Any = np.ones(self._dims, bool)
        self._end: TimeStep | None = None

    @property
    def episodes(self) -> int:
        """How many episodes a run has."""
        return self._episodes

    @property
    def repeats_last(self) -> bool:
        """True: rows that have had their episodes show their end again."""
        return True

    @property
    def valid(self) -> Array:
        """Which rows the last time step was new in; a scalar if there is one row."""
        return ~np.asarray(self._was_over)

    @property
    def is_over(self) -> bool:
        """Whether all episodes of the run have ended."""
        return bool(np.all(self._ended >= self._episodes))

    def _reset(self) -> TimeStep:
        self._begin_runs(np.ones(self._dims, bool))
        return super()._reset()

    def _reset_rows(self, mask: Array) -> TimeStep:
        self._begin_runs(mask)
        return super()._reset_rows(mask)

    def _begin_runs(self, rows: Array) -> None:
        """Begins new runs; episodes that are given up do not count in them."""
        if self.autoreset is not AutoReset.NEXT_STEP:
            # There a reset is what begins the next episode of a run.
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
        # Where no FIRST follows, each LAST ends an episode of its own.
        ended = stands & (~self._stood_at_end | self.continues_after_last)
        if rows is not None:
            ended &= rows
            stands = np.where(rows, stands, self._stood_at_end)
        self._stood_at_end = stands
        if ended.any():
            self._ended = self._ended + ended
            before = time_step if self._end is None else self._end
            kept = self._rows_of(ended, time_step, before)
            self._end = self._structure.map(np.array, kept)
        return time_step

    def _again(self) -> TimeStep:
        """Returns the ends of episodes once more, with nothing earned."""
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
