"""`EnvRunner`: runs environments on rows of a slab; no input, no output, no waiting."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.errors import CallOrderError, SpecError
from envkit.masked_rows import hand_options
from envkit.parallel import serialize
from envkit.parallel.hosting import EnvironmentHost, end_fork
from envkit.parallel.info_notes import InfoNotes
from envkit.parallel.memory import KEEPS_ORDER, fence
from envkit.parallel.messages import (
    Hello,
    RemoteFailure,
    Reply,
    Request,
    WorkerJob,
    question_text,
)
from envkit.parallel.row_writer import MisfitError, RowWriter
from envkit.parallel.slab import (
    REBUILD,
    RESET,
    RESETS,
    SAME_STEP_ORDER,
    SAME_STEP_SLOT,
    STEP,
    STEPS,
    Slab,
    bytes_of,
    slot_of,
    view_of,
)
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray
from envkit.wording import listed
from envkit.wrappers.base import rows_in_wrapper, set_attribute
from envkit.wrappers.pictures.rendered import rendered

__all__ = ["EnvRunner"]

_COMMANDS = {STEP: "step", RESET: "reset", REBUILD: "rebuild"}
_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST
# How long writing a request may take, in seconds, and how often to look for its end.
_TO_WRITE, _A_MOMENT = 10.0, 1e-5
_LARGEST = 2**32 - 1


class _Options(NamedTuple):
    """Options that an environment has been given for one reset of some rows.

    Attributes:
        env: The environment.
        row: One of the rows.
        number: The request of that row which is the reset.
        options: The options.
        mask: Of a batch, which of its rows; `None` for all.
    """

    env: Any
    row: int
    number: int
    options: Any
    mask: Array | None


class EnvRunner:
    """Runs environments on rows of a slab.

    A runner does no input or output and waits for nobody. Whoever carries it decides
    when rows are ready and whom to tell when they are done: `tell_failure` is called
    before a row that raised is marked, `before_last_mark` before the last row of a run
    is, `after_row`, if there is one, after every row.

    Attributes:
        is_single: Whether each environment is one row; the others are batches.
    """

    def __init__(
        self,
        job: WorkerJob,
        passes: tuple[type[BaseException], ...] = (),
        neighbours: list[EnvironmentHost] | None = None,
        forked: Sequence[int] = (),
    ) -> None:
        """Takes a job; `build` makes its environments.

        Whatever environments raise is theirs, SystemExit and KeyboardInterrupt too: it
        must not take their neighbours with it. What `passes` is the carrier's own.
        `neighbours` gathers the hosts of one process. `forked` is not empty in a
        process that an environment has forked: one that comes back ends.
        """
        self._host = EnvironmentHost(job, passes, neighbours, forked)
        self._validate = job.validate
        self._first_env = job.first_env
        self.tell_failure: Callable[[Sequence[int], RemoteFailure], None] = _nobody
        self.before_last_mark: Callable[[], None] = _uncounted
        self.after_row: Callable[[], None] | None = None
        # Of the run that is going on: the row that is marked last.
        self._last_row = -1

    def build(self) -> Hello | RemoteFailure:
        """Builds the environments; says what they are, or what went wrong."""
        return self._host.build()

    def bind(
        self,
        slab: Slab,
        worker: int,
        send_objects: Callable[[int, int, dict[int, Any]], None] | None = None,
        may_write: Callable[[], None] | None = None,
    ) -> None:
        """Prepares to run on the rows of one worker of a slab."""
        self._slab = slab
        self._host.pad(slab.layout.spec)
        self._first, self._stop = slab.layout.blocks[worker]
        self.writer = RowWriter(slab, send_objects, may_write, self._name_of)
        self._sequence = view_of(slab.sequence)
        self._command = view_of(slab.command)
        self._answered = view_of(slab.answered)
        self._meters = view_of(slab.meters[worker])
        self._infos = InfoNotes(slab, self._host, may_write, self._name_of)
        # Whether infos are to be noted; the other side may change it.
        self._notes_infos = self._infos.wanted
        self._structure = slab.layout.action
        # Scalars of these dtypes would come as objects that are no arrays and fit no
        # spec.
        self._as_0d_arrays = [
            leaf
            for leaf, spec in enumerate(self._structure.leaves)
            if spec.shape == ()
            and not spec.dtype.hasobject
            and (spec.dtype.kind not in "iufc" or not spec.dtype.isnative)
        ]
        self._action_is_leaf = not nest.is_nested(self._structure.template)
        self.is_single = not any(env.batched for env in self._host.envs)
        self._has_one_env = len(self._host.envs) == 1
        # By row of this block: which environment it belongs to.
        self._env_of_row = [
            index
            for index, env in enumerate(self._host.envs)
            for _ in range(env.batch_size if env.batched else 1)
        ]
        envs = range(len(self._host.envs))
        # By environment: its first row, counted from the block's.
        self._starts = [self._env_of_row.index(index) for index in envs]
        # By row of this block: whether its next step begins an episode.
        self._ended = np.ones(len(self._env_of_row), bool)
        # The time step with which the last episode has begun.
        self._first_step_of_episode: TimeStep | None = None
        self._resets_checked = [self._validate == "never"] * len(envs)
        # By environment: its step, which checks itself at first, and what the next
        # STEP of a single environment does, which is a reset after a LAST.
        self._own_steps = [self._first_step(index) for index in envs]
        self._steps = list(self._own_steps)
        self._is_in_reset = False
        # By environment: options that have been sent ahead of a reset.
        self._options: dict[int, _Options] = {}
        self._rows = range(self._first, self._stop)
        self._everyone = np.ones(len(self._rows), bool)
        self._plain_views = [
            self.writer.plain_views(slot, self._rows) for slot in (0, 1)
        ]
        block = slice(self._first, self._stop)
        self._block_sequence = bytes_of(slab.sequence[block])
        self._block_answered = bytes_of(slab.answered[block])
        self._block_command = bytes_of(slab.command[block])
        self._all_step = bytes([STEP]) * len(self._rows)

    def _name_of(self, row: int) -> str:
        return f"env {self._first_env + self._env_of_row[row - self._first]}"

    # Rows.

    def pending(self) -> list[int]:
        """Returns the rows that were asked and have not answered."""
        if self.is_single:
            return self._slab.pending(self._first, self._stop)
        # A ring may be heard late, while the next request is being written; the rows
        # of a batch are to be seen together.
        give_up = time.monotonic() + _TO_WRITE
        while time.monotonic() < give_up:
            rows = self._slab.pending_as_asked(self._first, self._stop)
            if rows is not None:
                return rows
            time.sleep(_A_MOMENT)
        return self._slab.pending(self._first, self._stop)

    def run_pending(self) -> int:
        """Runs the rows that were asked and have not answered; returns how many."""
        # Hot: called at every wake-up of a worker.
        number = self._sequence[self._first]
        if self._moves_together and self._all_step_to(number):
            fence()
            self._meters[STEPS] += len(self._rows)
            self._last_row = self._stop - 1
            if not self.is_single:
                self._run_whole_batch(number)
            elif self._notes_infos[0]:
                self._run_single(self._rows)
            else:
                self._run_lockstep(number)
            return len(self._rows)
        rows = self.pending()
        if rows:
            self.run(rows)
        return len(rows)

    @property
    def _moves_together(self) -> bool:
        """Whether a step of all rows may be done in one piece."""
        return self.after_row is None and (self.is_single or self._has_one_env)

    def _all_step_to(self, number: int) -> bool:
        """Says whether all rows are to step, and answer with this number."""
        # Read in this order for the reasons that `Slab.pending` has.
        sequence = _repeated(number, len(self._rows))
        if self._block_sequence != sequence:
            return False
        fence()
        if self._block_command != self._all_step:
            return False
        fence()
        answered = _repeated((number - 2) & _LARGEST, len(self._rows))
        if self._block_answered != answered:
            return False
        fence()
        return self._block_sequence == sequence

    def run(self, rows: Sequence[int]) -> None:
        """Executes the command in each row and writes the answer beside it."""
        self._meters[STEPS] += len(rows)
        self._last_row = rows[-1]
        if self.is_single:
            self._run_single(rows)
        else:
            self._run_batches(rows)

    def _run_lockstep(self, number: int) -> None:
        """Steps all environments, each of which has answered the request before."""
        # Hot: each line in the loops runs once per environment and step.
        slot = slot_of(number)
        plain = self._plain_views[slot]
        if plain is None:
            self._run_nests(number, self.writer.writer_for(slot))
            return
        # What `RowWriter` does for such rows, without the call.
        types, rewards, discounts, observations, shape, dtypes = plain
        answered, first, last = self._answered, self._first, self._last_row
        forked = self._host.forked
        for row, step, action, place in zip(
            self._rows,
            self._steps,
            self._actions(self._rows),
            observations,
            strict=True,
        ):
            try:
                time_step = step(action)
            except BaseException as error:
                self._host.let_through(error)
                self._fail([row], row - first, error)
                continue
            if forked:
                end_fork(forked)
            try:
                step_type, reward, discount, observation = time_step
                if (
                    observation.shape != shape
                    or reward.ndim
                    or discount.ndim
                    or observation.dtype not in dtypes
                ):
                    raise ValueError
                place[...] = observation
                rewards[row] = reward
                discounts[row] = discount
                if step_type is _MID:
                    types[row] = step_type
                    if row == last:
                        self.before_last_mark()
                    if not KEEPS_ORDER:
                        fence()
                    answered[row] = number
                    continue
            except Exception:
                pass  # Whatever is wrong with it, the next lines say.
            self._finish_row(row, slot, number, time_step)

    def _finish_row(
        self, row: int, slot: int, number: int, time_step: TimeStep
    ) -> None:
        """Writes a time step that is not an ordinary one, and commits the row."""
        index = row - self._first
        try:
            self.writer.write(row, slot, time_step)
            if time_step.step_type is not _MID:
                self._turn(row, index, time_step)
        except BaseException as error:
            self._host.let_through(error)
            self._fail([row], index, error)
            return
        self._count_before([row])
        fence()
        self._answered[row] = number

    def _run_nests(self, number: int, write: Callable[[int, TimeStep], None]) -> None:
        # Hot: each line in the loop runs once per environment and step.
        answered, first, last = self._answered, self._first, self._last_row
        forked = self._host.forked
        for row, step, action in zip(
            self._rows, self._steps, self._actions(self._rows), strict=True
        ):
            try:
                time_step = step(action)
                if forked:
                    end_fork(forked)
                write(row, time_step)
                if time_step.step_type is not _MID:
                    self._turn(row, row - first, time_step)
            except BaseException as error:
                self._host.let_through(error)
                self._fail([row], row - first, error)
                continue
            if row == last:
                self.before_last_mark()
            if not KEEPS_ORDER:
                fence()
            answered[row] = number

    def _run_single(self, rows: Sequence[int]) -> None:
        """Runs some single environments, whatever each was asked."""
        # Hot in asynchronous use: called for every few rows.
        first, last, forked = self._first, self._last_row, self._host.forked
        sequence, command, answered = self._sequence, self._command, self._answered
        steps = self._steps
        write = self.writer.write
        after_row = self.after_row
        note = self._infos.note if self._notes_infos[0] else None
        for row, action in zip(rows, self._actions(rows), strict=True):
            index = row - first
            number = sequence[row]
            try:
                if command[row] == STEP:
                    time_step = steps[index](action)
                else:
                    time_step = self._begin(index, command[row])
                if forked:
                    end_fork(forked)
                write(row, (number >> 1) & 1, time_step)
                if note is not None:
                    note(index, row, time_step)
                if time_step.step_type is not _MID:
                    self._turn(row, index, time_step)
            except BaseException as error:
                self._host.let_through(error)
                self._fail([row], index, error)
            else:
                if row == last:
                    self.before_last_mark()
                if not KEEPS_ORDER:
                    fence()
                answered[row] = number
            if after_row is not None:
                after_row()

    def _actions(self, rows: Sequence[int]) -> Iterable[NestedArray]:
        """Returns each row's action, none of which changes when the next ones come."""
        # Hot: one copy for all rows, which environments may keep their part of.
        is_all = len(rows) == self._stop - self._first
        chosen = slice(self._first, self._stop) if is_all else rows
        columns = self._slab.read_actions(chosen)
        for leaf in self._as_0d_arrays:
            columns[leaf] = _0d_arrays(columns[leaf])
        if self._action_is_leaf:
            return columns[0]  # type: ignore[no-any-return]  # an array
        if not columns:
            return (self._structure.unflatten([]) for _ in rows)
        return map(self._structure.unflatten, zip(*columns, strict=True))

    def _begin(self, index: int, command: int) -> TimeStep:
        """Begins an episode of a single environment."""
        self._meters[RESETS] += 1
        self._infos.forget(index)
        if command == REBUILD:
            self._rebuild(index)
        time_step = self._reset(index)
        # Not before: if the reset raises, the episode before has ended all the same.
        self._steps[index] = self._own_steps[index]
        return time_step

    def _let_begin_after_last(self, index: int) -> None:
        """Lets the next step of an environment begin an episode."""
        if not self._repeats_last(index):
            self._steps[index] = self._begin_after_last(index)

    def _repeats_last(self, index: int) -> bool:
        # What has the methods of an environment need not be one of ours.
        return getattr(self._host.envs[index], "repeats_last", False) is True

    def _begin_after_last(self, index: int) -> Callable[[Any], TimeStep]:
        """Returns the step that follows a `LAST`: a reset, whatever the action."""

        def begin(action: Any) -> TimeStep:
            return self._begin(index, RESET)

        return begin

    def _reset(self, index: int) -> TimeStep:
        self._is_in_reset = True
        if not self._host.envs[index].batched:
            # Until it has begun there is no episode, and a step may begin one.
            self._ended[self._starts[index]] = True
        reset: Callable[[], TimeStep] = self._host.envs[index].reset
        has_options = index in self._options
        time_step = self._with_options(index, reset) if has_options else reset()
        end_fork(self._host.forked)
        if not self._resets_checked[index] or self._validate == "always":
            self._check(index, time_step, "reset")
            self._resets_checked[index] = True
        self._check_begun(index, time_step)
        self._is_in_reset = False
        self._first_step_of_episode = time_step
        return time_step

    def _check_begun(
        self, index: int, time_step: TimeStep, mask: Array | bool = True
    ) -> None:
        """Refuses a reset that returns anything but a `FIRST`, in the masked rows."""
        types = np.asarray(getattr(time_step, "step_type", _FIRST))
        wrong = np.flatnonzero(mask & (types != _FIRST))
        if wrong.size:
            row = self._first + self._rows_of(index).start + int(wrong[0])
            self._refuse_type(row, types.flat[wrong[0]], "reset", "0 (FIRST)")

    def _refuse_type(self, row: int, step_type: Any, call: str, must_be: str) -> None:
        name = self._name_of(row)
        if self._host.envs[self._env_of_row[row - self._first]].batched:
            name += f" (row {row})"
        raise MisfitError from SpecError(
            f"{name} returned the step type {step_type} from {call}(); it must be "
            f"{must_be}. An episode is FIRST, any number of MID, LAST: only a reset "
            "returns FIRST, and the pool resets an environment after its LAST."
        )

    def _rebuild(self, index: int) -> None:
        self._host.rebuild(index)
        self._own_steps[index] = self._first_step(index)
        self._steps[index] = self._own_steps[index]
        self._resets_checked[index] = self._validate == "never"

    def _first_step(self, index: int) -> Callable[[Any], TimeStep]:
        """Returns the step of an environment that checks itself, once or always."""
        step: Callable[[Any], TimeStep] = self._host.envs[index].step
        if self._validate == "never":
            return step

        def checked(action: Any) -> TimeStep:
            time_step = step(action)
            self._check(index, time_step, "step")
            if self._validate == "first":
                self._own_steps[index] = self._steps[index] = step
            return time_step

        return checked

    def _check(self, index: int, time_step: Any, call: str) -> None:
        env = self._host.envs[index]
        which = "" if self._validate == "always" else "the first "
        occasion = f"This was {which}observation after {call}() of {_kind_of(env)}."
        if self._validate == "always":
            occasion = f"It came from {call}() of {_kind_of(env)}."
        if env.batched:
            row = self._first + self._rows_of(index).start
            self.writer.check_batch(row, env.batch_size, time_step, occasion)
        else:
            row = self._first + self._rows_of(index).start
            self.writer.check(row, time_step, occasion)

    def _turn(self, row: int, index: int, time_step: TimeStep) -> None:
        """Looks at a time step that may be the begin or the end of an episode."""
        step_type = time_step.step_type
        place = row - self._first
        if step_type != _LAST:
            if (
                step_type == _FIRST
                and time_step is not self._first_step_of_episode
                and not self._ended[place]
            ) or step_type not in (_FIRST, _MID):
                self._refuse_type(row, step_type, "step", "1 (MID) or 2 (LAST)")
            self._ended[place] = False
        elif self._slab.autoreset == SAME_STEP_ORDER:
            self._begin_at_once(row, index, time_step)
        else:
            self._ended[place] = True
            self._let_begin_after_last(index)

    def _begin_at_once(self, row: int, index: int, last: TimeStep) -> None:
        """Begins the next episode in the step that ended the one before."""
        self._infos.keep_final(index, row)
        first = last
        try:
            self._meters[RESETS] += 1
            first = self._reset(index)
            self._ended[row - self._first] = False
            self.writer.write(row, SAME_STEP_SLOT, first)
        except BaseException as error:
            self._host.let_through(error)
            # The end of the episode is an answer all the same; that the next one does
            # not begin is what the next step says.
            self.writer.write(row, SAME_STEP_SLOT, last)
            self._is_in_reset = False
            self._steps[index] = _raising(error)
        if self._notes_infos[0]:
            self._infos.note_begun(index, row, first)

    def _fail(self, rows: Sequence[int], index: int, error: BaseException) -> None:
        kind = "raised"
        if isinstance(error, MisfitError) and error.__cause__ is not None:
            kind, error = "misfit", error.__cause__
        command = _COMMANDS.get(self._command[rows[0]], "")
        if self._is_in_reset:
            self._is_in_reset = False
            command = "reset" if command == "step" else command
        failure = RemoteFailure.of(
            error,
            kind=kind,
            env=self._first_env + index,
            command=command,
            pid=os.getpid(),
        )
        self.tell_failure(rows, failure)
        self._count_before(rows)
        for row in rows:
            self._slab.fail(row)

    def _count_before(self, rows: Sequence[int]) -> None:
        """Lets the carrier count the run if these rows are the last to be marked."""
        if rows[-1] == self._last_row:
            self.before_last_mark()

    # Environments that are batches themselves.

    def _rows_of(self, index: int) -> range:
        """Returns the rows of an environment, counted from the block's first."""
        start = self._env_of_row.index(index)
        return range(start, start + self._env_of_row.count(index))

    def _run_batches(self, rows: Sequence[int]) -> None:
        wanted = np.zeros(self._stop - self._first, bool)
        wanted[np.asarray(rows) - self._first] = True
        for index in dict.fromkeys(self._env_of_row[row - self._first] for row in rows):
            block = self._rows_of(index)
            mask = wanted[block.start : block.stop]
            mine = [self._first + block.start + int(i) for i in np.flatnonzero(mask)]
            if self._host.envs[index].batched:
                self._run_batch(index, mine, mask)
            else:
                self._run_one(index, mine[0])
            if self.after_row is not None:
                self.after_row()

    def _run_one(self, index: int, row: int) -> None:
        """Runs a single environment that lives among batches."""
        try:
            if self._command[row] == STEP:
                action = next(iter(self._actions([row])))
                time_step = self._steps[index](action)
            else:
                time_step = self._begin(index, self._command[row])
            end_fork(self._host.forked)
            self.writer.write(row, slot_of(self._sequence[row]), time_step)
            if self._notes_infos[0]:
                self._infos.note(index, row, time_step)
            self._turn(row, index, time_step)
        except BaseException as error:
            self._host.let_through(error)
            self._fail([row], index, error)
        else:
            self._count_before([row])
            self._slab.commit(row)

    def _run_batch(self, index: int, rows: Sequence[int], mask: Array) -> None:
        """Runs a batched environment; some rows may step while others begin anew."""
        first = self._first + self._rows_of(index).start
        block = slice(first, first + len(mask))
        slots = ((self._slab.sequence[block] >> 1) & 1).astype(np.intp)
        stepping = mask & (self._slab.command[block] == STEP)
        beginning = mask & ~stepping
        try:
            if stepping.any():
                time_step, has_begun = self._step_batch(
                    index, stepping, beginning, block
                )
                end_fork(self._host.forked)
                moved = stepping | has_begun
                self.writer.write_batch(first, slots, time_step, moved)
                self._note_batch(index, block, moved, time_step)
                beginning &= ~has_begun
                last = self._turn_batch(index, first, time_step, stepping, has_begun)
                if last.any() and self._slab.autoreset == SAME_STEP_ORDER:
                    self._begin_batch_at_once(index, first, last, time_step)
            if beginning.any():
                time_step = self._reset_batch(index, beginning, block)
                end_fork(self._host.forked)
                self._check_begun(index, time_step, beginning)
                place = first - self._first
                self._ended[place : place + len(mask)] &= ~beginning
                self.writer.write_batch(first, slots, time_step, beginning)
                self._note_batch(index, block, beginning, time_step)
        except BaseException as error:
            self._host.let_through(error)
            self._fail(rows, index, error)
        else:
            self._count_before(rows)
            for row in rows:
                self._slab.commit(row)

    def _run_whole_batch(self, number: int) -> None:
        """Steps all rows of the only environment, which is a batch."""
        # Hot: what `_run_batch` does if nothing but that is to be done.
        first, slot = self._first, slot_of(number)
        block = slice(first, self._stop)
        try:
            columns = self._slab.read_actions(block)
            time_step = self._steps[0](self._structure.unflatten(columns))
            end_fork(self._host.forked)
            self.writer.write_whole_batch(first, slot, time_step, len(self._rows))
            self._note_batch(0, block, self._everyone, time_step)
            everyone = self._everyone
            last = self._turn_batch(0, first, time_step, everyone, ~everyone)
            if last.any() and self._slab.autoreset == SAME_STEP_ORDER:
                self._begin_batch_at_once(0, first, last, time_step)
        except BaseException as error:
            self._host.let_through(error)
            self._fail(self._rows, 0, error)
        else:
            self.before_last_mark()
            fence()
            self._slab.answered[block] = number

    def _turn_batch(
        self,
        index: int,
        first: int,
        time_step: TimeStep,
        stepping: Array,
        has_begun: Array,
    ) -> Array:
        """Looks at the begins and ends of episodes; returns which rows have ended.

        Under NEXT_STEP a batch begins the next episodes without being asked.
        """
        # Hot: called once per step of a batch.
        ended = self._ended[first - self._first :][: len(stepping)]
        types = np.asarray(time_step.step_type)
        begun: Array = types == _FIRST
        last: Array = types == _LAST
        due = has_begun | (ended & stepping)
        wrong = (stepping | has_begun) & ((begun != due) | (types < 0) | (types > 2))
        if wrong.any():
            if self._repeats_last(index):
                wrong &= ~(due & last)
            for row in np.flatnonzero(wrong).tolist():
                must_be = "0 (FIRST)" if due[row] else "1 (MID) or 2 (LAST)"
                call = "reset" if has_begun[row] else "step"
                self._refuse_type(first + row, types[row], call, must_be)
        self._meters[RESETS] += int(np.count_nonzero(begun & stepping))
        last &= stepping
        ended[stepping | has_begun] = False
        ended |= last
        return last

    def _step_batch(
        self, index: int, stepping: Array, beginning: Array, block: slice
    ) -> tuple[TimeStep, Array]:
        """Steps some rows; says in which others an episode has begun meanwhile."""
        columns = self._slab.read_actions(block)
        action = self._structure.unflatten(columns)
        env = self._host.envs[index]
        is_rebuilt = (self._slab.command[block][beginning] == REBUILD).any()
        # What else there may be in place of its own step is an error to raise.
        is_sound = self._steps[index] is self._own_steps[index]
        if not stepping.all() and env.holds_rows and is_sound and not is_rebuilt:
            time_step = env.step_rows(action, stepping, beginning)
            if self._validate == "always":
                self._check(index, time_step, "step")
            self._meters[RESETS] += int(beginning.sum())
            return time_step, beginning.copy()
        # Whoever steps, steps the whole batch: rows that are to begin anew move, too,
        # and are reset right after.
        idle = np.flatnonzero(~(stepping | beginning))
        if idle.size:
            raise CallOrderError(
                f"Rows {listed(np.flatnonzero(stepping) + block.start)} were to step "
                f"without rows {listed(idle + block.start)}, but all of them are one "
                f"{type(env).__name__}, a batch that moves together."
            )
        return self._steps[index](action), np.zeros_like(beginning)

    def _reset_batch(self, index: int, mask: Array, block: slice) -> TimeStep:
        self._meters[RESETS] += int(mask.sum())
        self._infos.forget(index)
        rebuilt = (self._slab.command[block][mask] == REBUILD).any()
        if rebuilt:
            self._rebuild(index)
        self._steps[index] = self._own_steps[index]
        env = self._host.envs[index]
        # One that has not begun yet begins as a whole; only some rows of it are used.
        if mask.all() or rebuilt or getattr(env, "_current_time_step", None) is None:
            return self._reset(index)
        if index in self._options:
            return self._with_options(index, lambda: env.reset(mask))
        time_step: TimeStep = env.reset(mask)
        return time_step

    def _begin_batch_at_once(
        self, index: int, first: int, ended: Array, last: TimeStep
    ) -> None:
        self._infos.keep_final(index, first)
        env = self._host.envs[index]
        slots = np.full(len(ended), SAME_STEP_SLOT)
        self._meters[RESETS] += int(ended.sum())
        try:
            time_step = self._reset(index) if ended.all() else env.reset(ended)
            if self._validate == "always":
                self._check(index, time_step, "reset")
            self._check_begun(index, time_step, ended)
            place = first - self._first
            self._ended[place : place + len(ended)] &= ~ended
        except BaseException as error:
            self._host.let_through(error)
            # As with a single environment: the next step says so.
            self._is_in_reset = False
            time_step = last
            self._steps[index] = _raising(error)
        self.writer.write_batch(first, slots, time_step, ended)
        if self._notes_infos[0]:
            rows = first + np.flatnonzero(ended)
            self._infos.note_begun(index, rows, time_step)

    def _note_batch(
        self, index: int, block: slice, moved: Array, time_step: TimeStep
    ) -> None:
        if self._notes_infos[0]:
            self._infos.note_batch(index, block, moved, time_step)

    # Everything that is not rows.

    def handle(self, request: Request) -> Reply:
        """Does what a request asks of each environment."""
        results = tuple(
            self._handle_one(request.method, env - self._first_env, argument)
            for env, argument in zip(request.envs, request.arguments, strict=True)
        )
        return Reply(request.number, results)

    def _handle_one(self, method: str, index: int, argument: Any) -> Any:
        try:
            result = self._answer(method, index, argument)
            end_fork(self._host.forked)
        except BaseException as error:
            self._host.let_through(error)
            name = question_text(method, [argument])
            return RemoteFailure.of(
                error, env=self._first_env + index, command=name, pid=os.getpid()
            )
        return result

    def _answer(self, method: str, index: int, argument: Any) -> Any:
        env = self._host.envs[index]
        if method != "get_info":
            rows = self._rows_of(index)
            block = slice(self._first + rows.start, self._first + rows.stop)
            self._infos.note_question(index, block)
        match method:
            case "call":
                name, args, kwargs = argument
                return getattr(env, name)(*args, **kwargs)
            case "access":
                return getattr(env, argument[0])
            case "set_attr":
                return set_attribute(env, *argument)
            case "env_is_wrapped":
                return rows_in_wrapper(env, *argument)
            case "render":
                return rendered(env, argument)
            case "seed":
                return self._host.seed(index, argument)
            case "seed_rows":
                return self._host.seed_rows(index, argument)
            case "reset":
                return self._note_options(index, *argument)
            case "get_info":
                row = self._first + self._rows_of(index).start
                return self._infos.answer(index, row)
            case "get_state":
                # Bytes, so that nothing that happens later changes it, and that only
                # an environment has to know what is in it.
                return serialize.dump_value(env.get_state(), "The state")
            case "set_state":
                return self._set_state(index, *argument)
        raise ValueError(f"Nobody knows the request {method!r}.")

    def _note_options(self, index: int, options: Any, mask: Array | None) -> None:
        """Hands over options for the reset that is asked for next, and for no other."""
        self._options.pop(index, None)
        env = self._host.envs[index]
        hand_options(env, options, mask)
        if options is None:
            return
        row = self._first + self._rows_of(index).start
        row += 0 if mask is None else int(np.argmax(mask))
        number = (self._sequence[row] + 2) & _LARGEST
        self._options[index] = _Options(env, row, number, options, mask)

    def _with_options(self, index: int, reset: Callable[[], TimeStep]) -> TimeStep:
        """Resets an environment with the options that were sent ahead."""
        sent = self._options.pop(index)
        env = self._host.envs[index]
        is_meant = self._sequence[sent.row] == sent.number
        if self._command[sent.row] == STEP or not is_meant:
            hand_options(env, None)  # The reset that they were for never came.
        elif env is not sent.env:  # It has been rebuilt since.
            hand_options(env, sent.options, sent.mask)
        try:
            return reset()
        finally:
            hand_options(env, None)

    def _set_state(self, index: int, state: bytes, ended: Sequence[bool]) -> None:
        try:
            token = serialize.load_value(state)
        except Exception as error:  # Broken bytes may raise anything.
            raise ValueError(
                f"The state cannot be read: {type(error).__name__}: {error}"
            ) from error
        self._host.envs[index].set_state(token)
        rows = self._rows_of(index)
        self._ended[rows.start : rows.stop] = ended
        self._infos.forget(index)
        self._steps[index] = self._own_steps[index]
        if any(ended) and not self._host.envs[index].batched:
            self._let_begin_after_last(index)

    def close(self) -> list[BaseException]:
        """Closes the environments; returns what their `close` raised."""
        return self._host.close()


def _0d_arrays(column: Array) -> Array:
    """Returns the elements of a column, each as an array."""
    elements = np.empty(len(column), object)
    for row in range(len(column)):
        elements[row] = column[row, ...]
    return elements


def _repeated(number: int, times: int) -> bytes:
    return number.to_bytes(4, sys.byteorder) * times


def _raising(error: BaseException) -> Callable[[Any], TimeStep]:
    def step(action: Any) -> TimeStep:
        raise error

    return step


def _uncounted() -> None:
    """Counts no run."""


def _nobody(rows: Sequence[int], failure: RemoteFailure) -> None:
    """Takes down a failure that nobody wants to hear of."""


def _kind_of(env: Any) -> str:
    kind = type(env)
    return f"{kind.__module__}.{kind.__qualname__}"
