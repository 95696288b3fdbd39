"""`EpisodeLimit`: so many episodes, and then nothing more."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import nest
from envkit.autoreset import AutoReset
from envkit.envs.base import checked_size
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray
from envkit.wrappers.base import PyEnvironmentBaseWrapper
from envkit.wrappers.rows import where_rows

__all__ = ["EpisodeLimit"]

_LAST = StepType.LAST


class EpisodeLimit(PyEnvironmentBaseWrapper):
    """Ends a run after so many episodes, in each row of a batch by itself.

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
        self._check_holds_rows()
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

    def _padding_rows(self) -> Array | None:
        return self._ended >= self._episodes  # type: ignore[no-any-return]  # an array

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
        ended = stands & ~self._stood_at_end
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
