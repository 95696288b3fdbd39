"""`BatchRows`: runs the rows of environments that are batches themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from envkit._internal.text import listed
from envkit.errors import CallOrderError
from envkit.parallel.slab import REBUILD, RESETS, SAME_STEP_ORDER, SAME_STEP_SLOT, STEP
from envkit.parallel.worker.env_rows import Seat, Seats
from envkit.parallel.worker.environments import end_fork
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray

__all__ = ["BatchRows"]

_FIRST, _LAST = StepType.FIRST, StepType.LAST


class BatchRows:
    """Steps and resets batches, all of their rows or some."""

    def __init__(self, seats: Seats, first_row: int) -> None:
        """Takes the environments.

        Args:
            seats: The environments with their rows.
            first_row: Which of the pool's rows is the first of the slab.
        """
        self._seats, self._slab, self._host = seats, seats.slab, seats.host
        self._first_row = first_row
        self._structure = seats.slab.layout.action
        self._steps, self._meters = seats.steps, seats.meters
        self._writer, self._infos = seats.writer, seats.infos
        self._notes_infos = seats.infos.wanted

    def step_together(self, seat: Seat, slot: int) -> None:
        """Steps all rows of a batch into one slot."""
        # Hot: called once per step of a batch.
        time_step = self._steps[seat.place](self._batch_of_actions(seat))
        end_fork(self._host.forked)
        self._writer.write_batch(seat.block, time_step, slot)
        if self._notes_infos[0]:
            self._note(seat, np.ones(len(seat.rows), bool), time_step)
        # Most steps neither begin nor end an episode: there is nothing to turn then.
        types = self._slab.steps[0][slot, seat.block].tobytes()
        if types != seat.all_mid or 1 in self._seats.ended_of(seat).tobytes():
            everyone = np.ones(len(seat.rows), bool)
            self._turn(seat, time_step, everyone, ~everyone)

    def move(self, seat: Seat, rows: Sequence[int]) -> None:
        """Steps some rows of a batch and begins others anew, each into its slot."""
        mask = np.zeros(len(seat.rows), bool)
        mask[np.asarray(rows) - seat.rows.start] = True
        slots = self._slab.slots(seat.block)
        stepping = mask & (self._slab.command[seat.block] == STEP)
        beginning = mask & ~stepping
        if stepping.any():
            time_step, has_begun = self._step(seat, stepping, beginning)
            end_fork(self._host.forked)
            moved = stepping | has_begun
            self._writer.write_batch(seat.block, time_step, slots, moved)
            self._note(seat, moved, time_step)
            beginning &= ~has_begun
            self._turn(seat, time_step, stepping, has_begun)
        if beginning.any():
            time_step = self._reset(seat, beginning)
            self._seats.note_times(seat)
            end_fork(self._host.forked)
            self._seats.check_begun(seat, time_step, beginning)
            self._seats.ended_of(seat)[beginning] = False
            self._writer.write_batch(seat.block, time_step, slots, beginning)
            self._note(seat, beginning, time_step)

    def _batch_of_actions(self, seat: Seat) -> NestedArray:
        return self._structure.unflatten(self._slab.read_actions(seat.block))

    def _step(
        self, seat: Seat, stepping: Array, beginning: Array
    ) -> tuple[TimeStep, Array]:
        """Steps some rows; returns in which others an episode has begun meanwhile."""
        action, env, block = self._batch_of_actions(seat), seat.env, seat.block
        is_rebuilt = (self._slab.command[block][beginning] == REBUILD).any()
        # What else may stand in place of its own step raises an error.
        is_sound = self._steps[seat.place] is seat.own_step
        if not stepping.all() and env.holds_rows and is_sound and not is_rebuilt:
            time_step = env.step_rows(action, stepping, beginning)
            self._seats.check_always(seat, time_step, "step")
            self._meters[RESETS] += int(beginning.sum())
            return time_step, beginning.copy()
        # The whole batch steps: rows that are to begin anew move, too, and are reset
        # right after.
        idle = np.flatnonzero(~(stepping | beginning))
        if idle.size:
            first = self._first_row + block.start
            raise CallOrderError(
                f"Rows {listed(np.flatnonzero(stepping) + first)} were to step "
                f"without rows {listed(idle + first)}, but all of them are one "
                f"{type(env).__name__}, a batch that moves together."
            )
        return self._steps[seat.place](action), np.zeros_like(beginning)

    def _turn(
        self, seat: Seat, time_step: TimeStep, stepping: Array, has_begun: Array
    ) -> None:
        """Handles the begins and ends of episodes in rows that have moved.

        Under NEXT_STEP a batch begins the next episodes without being asked.
        """
        # Hot: called once per step of a batch.
        ended = self._seats.ended_of(seat)
        types = np.asarray(time_step.step_type)
        begun: Array = types == _FIRST
        last: Array = types == _LAST
        moved = stepping | has_begun
        due = has_begun | (ended & stepping)
        wrong = moved & ((begun != due) | (types < 0) | (types > 2))
        if wrong.any():
            if seat.repeats_last:
                wrong &= ~(due & last)
            if seat.continues:  # Whether it begins anew after a LAST is its own affair.
                wrong &= ~(ended & stepping)
            doubted = self._seats.doubted[seat.place : seat.place + len(wrong)]
            wrong &= ~(begun & doubted)
            doubted[:] = False
            for row in np.flatnonzero(wrong).tolist():
                must_be = "0 (FIRST)" if due[row] else "1 (MID) or 2 (LAST)"
                call = "reset" if has_begun[row] else "step"
                self._seats.refuse_type(seat.rows[row], types[row], call, must_be)
        resets = int(np.count_nonzero(begun & stepping))
        if resets:
            self._meters[RESETS] += resets
            self._seats.note_times(seat)
        last &= stepping
        ended[moved] = False
        ended |= last
        if last.any() and not seat.continues:
            if self._slab.autoreset == SAME_STEP_ORDER:
                self._begin_at_once(seat, last, time_step)
            else:
                self._seats.ahead.note_ends(seat)

    def _reset(self, seat: Seat, mask: Array) -> TimeStep:
        self._meters[RESETS] += int(mask.sum())
        self._infos.forget(seat.index)
        is_rebuilt = (self._slab.command[seat.block][mask] == REBUILD).any()
        if is_rebuilt:
            self._seats.rebuild(seat)
        self._steps[seat.place] = seat.own_step
        env = seat.env
        # One that has not begun yet begins as a whole; only some rows of it are used.
        if mask.all() or is_rebuilt or getattr(env, "_current_time_step", None) is None:
            return self._seats.reset(seat)
        return self._seats.with_options(seat, lambda: env.reset(mask))

    def _begin_at_once(self, seat: Seat, ended: Array, last: TimeStep) -> None:
        self._infos.keep_final(seat.index, seat.rows.start)
        self._meters[RESETS] += int(ended.sum())
        try:
            is_whole = ended.all()
            time_step = self._seats.reset(seat) if is_whole else seat.env.reset(ended)
            self._seats.note_times(seat)
            self._seats.check_always(seat, time_step, "reset")
            self._seats.check_begun(seat, time_step, ended)
            self._seats.ended_of(seat)[ended] = False
        except BaseException as error:
            self._host.let_through(error)
            # As with a single environment: the next step raises it.
            self._seats.fail_next(seat, error)
            time_step = last
        self._writer.write_batch(seat.block, time_step, SAME_STEP_SLOT, ended)
        if self._notes_infos[0]:
            rows = seat.rows.start + np.flatnonzero(ended)
            self._infos.note_begun(seat.index, rows, time_step)

    def _note(self, seat: Seat, moved: Array, time_step: TimeStep) -> None:
        if self._notes_infos[0]:
            self._infos.note_batch(seat.index, seat.block, moved, time_step)
