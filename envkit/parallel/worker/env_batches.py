"""`EnvBatches`: runs the rows of batched environments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from envkit._internal.text import listed
from envkit.errors import CallOrderError
from envkit.parallel.slab_layout import (
    REBUILD,
    RESETS,
    SAME_STEP_ORDER,
    SAME_STEP_SLOT,
    STEP,
)
from envkit.parallel.worker.env_row import EnvRow
from envkit.parallel.worker.env_rows import EnvRows
from envkit.parallel.worker.environments import end_fork
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray

__all__ = ["EnvBatches"]

_FIRST, _LAST = StepType.FIRST, StepType.LAST


class EnvBatches:
    """Steps and resets batched environments, all of their rows or some."""

    def __init__(self, env_rows: EnvRows, first_row: int) -> None:
        """Takes the environments.

        Args:
            env_rows: The environments with their rows.
            first_row: The pool's row that is the first of the slab.
        """
        self._env_rows, self._slab, self._host = env_rows, env_rows.slab, env_rows.host
        self._first_row = first_row
        self._structure = env_rows.slab.layout.action
        self._types = [env_rows.slab.columns(slot)[0] for slot in (0, 1)]
        self._steps, self._meters = env_rows.steps, env_rows.meters
        self._writer, self._infos = env_rows.writer, env_rows.infos
        self._records_infos = env_rows.infos.wanted

    def step_together(self, env_row: EnvRow, slot: int) -> None:
        """Steps all rows of a batch into one slot."""
        # Hot: called once per step of a batch.
        time_step = self._steps[env_row.place](self._batch_of_actions(env_row))
        end_fork(self._host.forked)
        self._writer.write_batch(env_row.block, time_step, slot)
        if self._records_infos[0]:
            self._record(env_row, np.ones(len(env_row.rows), bool), time_step)
        # Most steps neither begin nor end an episode.
        types = self._types[slot][env_row.block].tobytes()
        if types != env_row.all_mid or 1 in self._env_rows.ended_of(env_row).tobytes():
            everyone = np.ones(len(env_row.rows), bool)
            self._handle_edges(env_row, time_step, everyone, ~everyone)

    def move(self, env_row: EnvRow, rows: Sequence[int]) -> None:
        """Steps some rows of a batch and resets others, each into its slot."""
        mask = np.zeros(len(env_row.rows), bool)
        mask[np.asarray(rows) - env_row.rows.start] = True
        slots = self._slab.slots(env_row.block)
        stepping = mask & (self._slab.requested[env_row.block] == STEP)
        beginning = mask & ~stepping
        if stepping.any():
            time_step, has_begun = self._step(env_row, stepping, beginning)
            end_fork(self._host.forked)
            moved = stepping | has_begun
            self._writer.write_batch(env_row.block, time_step, slots, moved)
            self._record(env_row, moved, time_step)
            beginning &= ~has_begun
            self._handle_edges(env_row, time_step, stepping, has_begun)
        if beginning.any():
            time_step = self._reset(env_row, beginning)
            end_fork(self._host.forked)
            self._env_rows.check_begun(env_row, time_step, beginning)
            self._env_rows.ended_of(env_row)[beginning] = False
            self._writer.write_batch(env_row.block, time_step, slots, beginning)
            self._record(env_row, beginning, time_step)

    def _batch_of_actions(self, env_row: EnvRow) -> NestedArray:
        return self._structure.unflatten(self._slab.read_actions(env_row.block))

    def _step(
        self, env_row: EnvRow, stepping: Array, beginning: Array
    ) -> tuple[TimeStep, Array]:
        """Steps some rows; returns a mask of the others whose episodes began."""
        action, env, block = self._batch_of_actions(env_row), env_row.env, env_row.block
        is_rebuilt = (self._slab.requested[block][beginning] == REBUILD).any()
        # Any other function in place of its own step raises an error.
        is_sound = self._steps[env_row.place] is env_row.own_step
        if not stepping.all() and env.holds_rows and is_sound and not is_rebuilt:
            time_step = env.step_rows(action, stepping, beginning)
            self._env_rows.check_always(env_row, time_step, "step")
            self._meters[RESETS] += int(beginning.sum())
            return time_step, beginning.copy()
        # The whole batch steps: rows that must begin again move too, and are reset
        # right after.
        idle = np.flatnonzero(~(stepping | beginning))
        if idle.size:
            first = self._first_row + block.start
            raise CallOrderError(
                f"Rows {listed(np.flatnonzero(stepping) + first)} were to step "
                f"without rows {listed(idle + first)}, but all of them are one "
                f"{type(env).__name__}, a batch that moves together."
            )
        return self._steps[env_row.place](action), np.zeros_like(beginning)

    def _handle_edges(
        self, env_row: EnvRow, time_step: TimeStep, stepping: Array, has_begun: Array
    ) -> None:
        """Handles the beginnings and ends of episodes in rows that have moved.

        Under NEXT_STEP, a batch begins its next episodes by itself.
        """
        # Hot: called once per step of a batch.
        ended = self._env_rows.ended_of(env_row)
        types = np.asarray(time_step.step_type)
        begun: Array = types == _FIRST
        last: Array = types == _LAST
        moved = stepping | has_begun
        due = has_begun | (ended & stepping)
        wrong = moved & ((begun != due) | (types < 0) | (types > 2))
        if wrong.any():
            if env_row.repeats_last:
                wrong &= ~(due & last)
            if (
                env_row.continues
            ):  # Whether a FIRST follows a LAST is up to the environment.
                wrong &= ~(ended & stepping)
            doubted = self._env_rows.doubted[env_row.place : env_row.place + len(wrong)]
            wrong &= ~(begun & doubted)
            doubted[:] = False
            for row in np.flatnonzero(wrong).tolist():
                must_be = "0 (FIRST)" if due[row] else "1 (MID) or 2 (LAST)"
                call = "reset" if has_begun[row] else "step"
                self._env_rows.refuse_type(env_row.rows[row], types[row], call, must_be)
        resets = int(np.count_nonzero(begun & stepping))
        if resets:
            self._meters[RESETS] += resets
        last &= stepping
        if env_row.may_lose and last.any():
            self._env_rows.mark_losses(env_row, last)
        ended[moved] = False
        ended |= last
        is_same_step = self._slab.autoreset == SAME_STEP_ORDER
        if is_same_step and last.any() and not env_row.continues:
            self._begin_at_once(env_row, last, time_step)

    def _reset(self, env_row: EnvRow, mask: Array) -> TimeStep:
        self._meters[RESETS] += int(mask.sum())
        self._infos.forget(env_row.index)
        is_rebuilt = (self._slab.requested[env_row.block][mask] == REBUILD).any()
        if is_rebuilt:
            self._env_rows.rebuild(env_row)
        self._steps[env_row.place] = env_row.own_step
        env = env_row.env
        # An environment that has not begun is reset as a whole, even if only some rows
        # are used.
        if mask.all() or is_rebuilt or getattr(env, "_current_time_step", None) is None:
            return self._env_rows.reset(env_row)
        return self._env_rows.with_options(env_row, lambda: env.reset(mask))

    def _begin_at_once(self, env_row: EnvRow, ended: Array, last: TimeStep) -> None:
        self._infos.keep_final(env_row.index, env_row.rows.start)
        self._meters[RESETS] += int(ended.sum())
        try:
            is_whole = ended.all()
            time_step = (
                self._env_rows.reset(env_row) if is_whole else env_row.env.reset(ended)
            )
            self._env_rows.check_always(env_row, time_step, "reset")
            self._env_rows.check_begun(env_row, time_step, ended)
            self._env_rows.ended_of(env_row)[ended] = False
        except BaseException as error:
            self._host.let_through(error)
            # As with a single environment: the next step raises it.
            self._env_rows.fail_next(env_row, error)
            time_step = last
        self._writer.write_batch(env_row.block, time_step, SAME_STEP_SLOT, ended)
        if self._records_infos[0]:
            rows = env_row.rows.start + np.flatnonzero(ended)
            self._infos.record_begun(env_row.index, rows, time_step)

    def _record(self, env_row: EnvRow, moved: Array, time_step: TimeStep) -> None:
        if self._records_infos[0]:
            self._infos.record_batch(env_row.index, env_row.block, moved, time_step)
