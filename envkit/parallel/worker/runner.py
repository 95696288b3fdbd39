"""`EnvRunner`: runs environments on rows of a slab; no input, no output, no waiting.

Rows run in one of three ways: all rows of single environments in lockstep, some rows of
single environments, or the rows of one environment that is a batch itself.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.errors import CallOrderError, SpecError
from envkit.parallel.messages import (
    Hello,
    RemoteFailure,
    Reply,
    Request,
    WorkerJob,
    question_text,
)
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
from envkit.parallel.system.shared_memory import KEEPS_ORDER, fence
from envkit.parallel.worker.direct_rows import DirectRows
from envkit.parallel.worker.environments import EnvironmentHost, end_fork
from envkit.parallel.worker.infos import InfoNotes
from envkit.parallel.worker.write_rows import MisfitError, RowWriter
from envkit.rows import hand_options
from envkit.text import listed
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray
from envkit.wrappers.base import rows_in_wrapper, set_attribute
from envkit.wrappers.pictures import rendered

__all__ = ["EnvRunner"]

_COMMANDS = {STEP: "step", RESET: "reset", REBUILD: "rebuild"}
_FIRST, _MID, _LAST = StepType.FIRST, StepType.MID, StepType.LAST
# How long writing a request may take, in seconds, and how often to look for its end.
_TO_WRITE, _A_MOMENT = 10.0, 1e-5
_LARGEST = 2**32 - 1

Step = Callable[[Any], TimeStep]


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


class _Seat:
    """An environment and the rows of the slab that it runs on.

    Attributes:
        index: Its place among the worker's environments.
        rows: Its rows.
        block: The same as a slice.
        place: Its first row, counted from the worker's first.
        is_batch: Whether the environment is a batch, which moves its rows together.
        own_step: The environment's step, which checks the first time step or all.
        is_reset_checked: Whether no further reset needs a check of everything.
        is_step_checked: Whether no further step does.
        options: The options that have been sent ahead of a reset.
    """

    __slots__ = (
        "_envs",
        "block",
        "index",
        "is_batch",
        "is_reset_checked",
        "is_step_checked",
        "options",
        "own_step",
        "place",
        "rows",
    )
    own_step: Step

    def __init__(self, envs: list[Any], index: int, first: int, place: int) -> None:
        # The host's own list: a rebuilt environment is found there.
        self._envs = envs
        self.index = index
        self.is_batch = bool(envs[index].batched)
        start = first + place
        self.rows = range(start, start + (self.env.batch_size if self.is_batch else 1))
        self.block = slice(start, self.rows.stop)
        self.place = place
        self.is_reset_checked = self.is_step_checked = False
        self.options: _Options | None = None

    @property
    def env(self) -> Any:
        """The environment."""
        return self._envs[self.index]

    @property
    def repeats_last(self) -> bool:
        """Whether the environment takes the step after a `LAST` itself."""
        # An object with the methods of an environment may lack this one.
        return getattr(self.env, "repeats_last", False) is True

    @property
    def kind(self) -> str:
        """The environment's class, with its module."""
        kind = type(self.env)
        return f"{kind.__module__}.{kind.__qualname__}"


class EnvRunner:
    """Runs environments on rows of a slab.

    A runner does no input or output and waits for nothing. Its carrier decides when
    rows are ready and where to report that they are done: `tell_failure` is called
    before a row that raised is marked, `before_last_mark` before the last row of a run
    is, `after_row`, if there is one, after every row.

    Attributes:
        is_single: Whether each environment is one row; the others are batches.
        messages_seen: What `Slab.messages` was when the carrier last looked for some.
        dump_state: Turns the state of an environment into bytes.
        load_state: Turns these bytes into the state.
    """

    def __init__(
        self,
        job: WorkerJob,
        passes: tuple[type[BaseException], ...] = (),
        neighbours: list[EnvironmentHost] | None = None,
        forked: Sequence[int] = (),
    ) -> None:
        """Takes a job; `build` makes its environments.

        Exceptions of environments, SystemExit and KeyboardInterrupt included, become
        failures of their rows, because an environment must not end its neighbours.
        Those in `passes` belong to the carrier and are raised. `neighbours` gathers the
        hosts of one process. `forked` is not empty in a process that an environment has
        forked: one that comes back ends.
        """
        self._host = EnvironmentHost(job, passes, neighbours, forked)
        self._validate = job.validate
        self._first_env = job.first_env
        self.tell_failure: Callable[[Sequence[int], RemoteFailure], None] = _untold
        self.before_last_mark: Callable[[], None] = _uncounted
        self.after_row: Callable[[], None] | None = None
        # Of the run that is going on: the row that is marked last.
        self._last_row = -1
        self._is_in_reset = False
        self.messages_seen = 0
        self.dump_state: Callable[[Any], bytes] = _pickled
        self.load_state: Callable[[bytes], Any] = _unpickled

    def build(self) -> Hello | RemoteFailure:
        """Builds the environments; returns their specs, or what went wrong."""
        return self._host.build()

    def environments(self) -> list[Any]:
        """Returns the environments as their constructors made them."""
        return self._host.built()

    def has_ended(self, row: int) -> bool:
        """True if the next step of a row begins an episode, whatever its action is."""
        return bool(self._ended[row - self._first])

    def bind(
        self,
        slab: Slab,
        worker: int,
        send_objects: Callable[[int, int, dict[int, Any]], None] | None = None,
        may_write: Callable[[], None] | None = None,
        first_row: int = 0,
    ) -> None:
        """Prepares to run on the rows of one worker of a slab.

        Args:
            slab: Where the rows are.
            worker: Whose rows they are.
            send_objects: Sends the leaves that the slab cannot hold.
            may_write: Called before anything is written; raises if it may not be.
            first_row: Which of the pool's rows is the first of the slab.
        """
        self._slab = slab
        self._first_row = first_row
        self._host.pad(slab.layout.spec)
        self._first, self._stop = first, stop = slab.layout.blocks[worker]
        self._rows = range(first, stop)
        self._seats: list[_Seat] = []
        for index in range(len(self._host.envs)):
            place = self._seats[-1].rows.stop - first if self._seats else 0
            self._seats.append(_Seat(self._host.envs, index, first, place))
        # By row of the block: the environment it belongs to, what its next STEP does
        # (of a batch, that of its first row), and whether that begins an episode.
        self._seat_of_row = [seat for seat in self._seats for _ in seat.rows]
        self._steps: list[Step] = [_missing] * len(self._rows)
        self._ended = np.ones(len(self._rows), bool)
        # Where Ctrl-C came amid a step, so that an episode may have ended unseen.
        self._doubted = np.zeros(len(self._rows), bool)
        is_sure = self._validate != "always" and may_write is None
        self._direct = DirectRows(slab, self._rows, self._host.forked, is_sure)
        for seat in self._seats:
            self._renew(seat)
        self.is_single = not any(seat.is_batch for seat in self._seats)
        self._moves_together = self.is_single or len(self._seats) == 1
        self._writer = RowWriter(
            slab, send_objects, may_write, self._name_of, first_row
        )
        self._has_info = view_of(slab.has_info)
        self._plain_views = [
            self._writer.plain_views(slot, self._rows) for slot in (0, 1)
        ]
        self._no_places = [None] * len(self._rows)
        self._infos = InfoNotes(slab, self._host, may_write, self._name_of)
        # Whether infos are to be noted; the other side may change it.
        self._notes_infos = self._infos.wanted
        self._structure = slab.layout.action
        self._action_is_leaf = not nest.is_nested(self._structure.template)
        # Scalars of these dtypes would come as objects that are no arrays and fit no
        # spec.
        self._as_0d_arrays = [
            leaf
            for leaf, spec in enumerate(self._structure.leaves)
            if spec.shape == ()
            and not spec.dtype.hasobject
            and (spec.dtype.kind not in "iufc" or not spec.dtype.isnative)
        ]
        self._sequence = view_of(slab.sequence)
        self._command = view_of(slab.command)
        self._answered = view_of(slab.answered)
        self._messages = slab.messages
        self._meters = view_of(slab.meters[worker])
        self._block_sequence = bytes_of(slab.sequence[first:stop])
        self._block_answered = bytes_of(slab.answered[first:stop])
        self._block_command = bytes_of(slab.command[first:stop])
        self._all_step = bytes([STEP]) * len(self._rows)

    def _name_of(self, row: int) -> str:
        return f"env {self._first_env + self._seat_of_row[row - self._first].index}"

    def _renew(self, seat: _Seat) -> None:
        """Lets an environment step itself, with the checks of a new one."""
        seat.own_step = self._steps[seat.place] = self._checking_step(seat)
        seat.is_reset_checked = seat.is_step_checked = self._validate == "never"
        if not seat.is_batch:
            self._direct.ask(seat.place, seat.env)

    # Which rows run.

    def pending(self) -> list[int]:
        """Returns the rows that were asked and have not answered."""
        if self.is_single:
            return self._slab.pending(self._first, self._stop)
        # A ring may be read late, while the next request is being written; the rows
        # of a batch must be seen together.
        give_up = time.monotonic() + _TO_WRITE
        while time.monotonic() < give_up:
            rows = self._slab.pending_as_asked(self._first, self._stop)
            if rows is not None:
                return rows
            time.sleep(_A_MOMENT)
        return self._slab.pending(self._first, self._stop)

    def run_pending(self) -> int:
        """Runs the rows that were asked and have not answered; returns how many.

        That is -1, and none has run, if messages were announced that may have been
        sent before these rows were asked: they are to be handled first.
        """
        # Hot: called at every wake-up of a worker.
        number = self._sequence[self._first]
        if (
            self._moves_together
            and self.after_row is None
            and self._all_step_to(number)
        ):
            fence()
            if self._messages[0] != self.messages_seen:
                return -1
            self._meters[STEPS] += len(self._rows)
            self._last_row = self._stop - 1
            if self._direct.are_offered:
                self._run_directly(number)
            elif self.is_single:
                self._run_lockstep(number)
            else:
                self._run_batch(self._seats[0], self._rows, number)
            return len(self._rows)
        rows = self.pending()
        if rows:
            if self._messages[0] != self.messages_seen:
                return -1
            self.run(rows)
        return len(rows)

    def _all_step_to(self, number: int) -> bool:
        """Returns whether all rows are to step, and answer with this number."""
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
            self._run_some(rows)
            return
        for seat in dict.fromkeys(self._seat_of_row[row - self._first] for row in rows):
            own = [row for row in rows if row in seat.rows]
            if not seat.is_batch:
                self._run_some(own)
                continue
            self._run_batch(seat, own)
            if self.after_row is not None:
                self.after_row()

    # Rows of single environments.

    def _run_lockstep(self, number: int) -> None:
        """Steps all environments, each of which has answered the request before."""
        # Hot: each line in the loop runs once per environment and step.
        slot = slot_of(number)
        plain = self._plain_views[slot]
        # Where time steps are three numbers and an array, what `write` does stands
        # here once more, because the call costs as much as the writing.
        write = self._writer.writer_for(slot)
        if plain is not None:
            types, rewards, discounts, places, shape, dtypes = plain
        else:
            places = self._no_places
        note = self._infos.note if self._notes_infos[0] else None
        answered, first, last = self._answered, self._first, self._last_row
        forked = self._host.forked
        for row, step, action, place in zip(
            self._rows, self._steps, self._actions(self._rows), places, strict=True
        ):
            try:
                time_step = step(action)
                if forked:
                    end_fork(forked)
                if plain is None:
                    write(row, time_step)
                    step_type = time_step.step_type
                else:
                    try:
                        step_type, reward, discount, observation = time_step
                        if (
                            observation.shape != shape
                            or reward.ndim
                            or discount.ndim
                            or (step_type is not _MID and step_type.ndim)
                            or observation.dtype not in dtypes
                        ):
                            raise ValueError
                        place[...] = observation
                        rewards[row] = reward
                        discounts[row] = discount
                        types[row] = step_type
                    except Exception:
                        # `write` takes other kinds of values, or raises what is wrong.
                        write(row, time_step)
                        step_type = time_step.step_type
                if note is not None:
                    note(row - first, row, time_step)
                if step_type is not _MID:
                    self._turn(row, time_step)
            except BaseException as error:
                self._let_through(self._seats[row - first], error)
                self._fail(self._seats[row - first], [row], error)
                continue
            if row == last:
                self.before_last_mark()
            if not KEEPS_ORDER:
                fence()
            answered[row] = number

    def _run_directly(self, number: int) -> None:
        """Does the same, without time steps in the rows that can do so."""
        # Hot: each line in the loop runs once per environment and step.
        direct, first, slot = self._direct, self._first, slot_of(number)
        (column,) = self._slab.read_actions(slice(first, self._stop))
        actions = direct.actions(column)
        if actions is None:
            for place in range(len(self._rows)):
                direct.leave(place)
            self._run_lockstep(number)
            return
        places, rewards = direct.begun(slot)
        inside, has_info = direct.inside, self._has_info
        wants_info = bool(self._notes_infos[0])
        answered, last = self._answered, self._last_row
        for row, stepper, action, place in zip(
            self._rows, inside, actions, places, strict=True
        ):
            time_step: TimeStep | None
            try:
                if stepper is None:
                    time_step = self._steps[row - first](column[row - first])
                else:
                    time_step = stepper.step(action, place, rewards, wants_info)
                    if time_step is not None:
                        inside[row - first] = None
                if time_step is not None:
                    self._show(row, slot, time_step)
                elif wants_info:
                    has_info[row] = 0
            except BaseException as error:
                self._let_through(self._seats[row - first], error)
                self._fail(self._seats[row - first], [row], error)
                continue
            if row == last:
                self.before_last_mark()
            if not KEEPS_ORDER:
                fence()
            answered[row] = number

    def _show(self, row: int, slot: int, time_step: TimeStep) -> None:
        """Writes a time step, and lets its environment do without the next one."""
        # Hot in asynchronous use: called once per row and step.
        place = row - self._first
        seat, direct = self._seat_of_row[place], self._direct
        if self._host.forked:
            end_fork(self._host.forked)
        self._writer.write(row, slot, time_step)
        if self._notes_infos[0]:
            self._infos.note(seat.index, row, time_step)
        if time_step.step_type is not _MID:
            self._turn(row, time_step)
        if direct.are_offered:
            is_amid = not self._ended[place] and self._steps[place] is seat.own_step
            if is_amid and seat.is_step_checked:
                direct.enter(place, seat.env)

    def _run_some(self, rows: Sequence[int]) -> None:
        """Runs some single environments, each with its own command."""
        # Hot in asynchronous use: called for every few rows.
        first, last = self._first, self._last_row
        sequence, command, answered = self._sequence, self._command, self._answered
        seats, steps, after_row = self._seat_of_row, self._steps, self.after_row
        direct, inside = self._direct, self._direct.inside
        wants_info = bool(self._notes_infos[0])
        for row, action in zip(rows, self._actions(rows), strict=True):
            place = row - first
            number = sequence[row]
            time_step: TimeStep | None
            try:
                if command[row] != STEP:
                    time_step = self._begin(seats[place], command[row])
                elif inside[place] is None:
                    time_step = steps[place](action)
                else:
                    slot = (number >> 1) & 1
                    time_step = direct.step(
                        place, slot, action, wants_info, steps[place]
                    )
                if time_step is not None:
                    self._show(row, (number >> 1) & 1, time_step)
                elif wants_info:
                    self._has_info[row] = 0
            except BaseException as error:
                self._let_through(seats[place], error)
                self._fail(seats[place], [row], error)
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
        is_all = len(rows) == len(self._rows)
        chosen = slice(self._first, self._stop) if is_all else rows
        columns = self._slab.read_actions(chosen)
        for leaf in self._as_0d_arrays:
            columns[leaf] = _0d_arrays(columns[leaf])
        if self._action_is_leaf:
            return columns[0]  # type: ignore[no-any-return]  # an array
        if not columns:
            return (self._structure.unflatten([]) for _ in rows)
        return map(self._structure.unflatten, zip(*columns, strict=True))

    def _turn(self, row: int, time_step: TimeStep) -> None:
        """Handles a time step that may begin or end an episode."""
        step_type = time_step.step_type
        place = row - self._first
        seat = self._seat_of_row[place]
        if step_type is _FIRST and self._ended[place]:
            self._ended[place] = False
        elif step_type != _LAST:
            is_amid = step_type == _FIRST and not self._ended[place]
            is_wrong = is_amid and not self._doubted[place]
            if is_wrong or step_type not in (_FIRST, _MID):
                self._refuse_type(row, step_type, "step", "1 (MID) or 2 (LAST)")
            self._ended[place] = self._doubted[place] = False
        elif self._slab.autoreset == SAME_STEP_ORDER:
            self._begin_at_once(seat, row, time_step)
        else:
            self._ended[place] = True
            self._let_begin_after_last(seat)

    def _begin(self, seat: _Seat, command: int) -> TimeStep:
        """Begins an episode of a single environment."""
        self._meters[RESETS] += 1
        self._infos.forget(seat.index)
        if command == REBUILD:
            self._rebuild(seat)
        time_step = self._reset(seat)
        # Not before: if the reset raises, the episode before has ended all the same.
        self._steps[seat.place] = seat.own_step
        return time_step

    def _let_begin_after_last(self, seat: _Seat) -> None:
        """Lets the next step of an environment begin an episode."""
        if not seat.repeats_last:
            # Whatever the action is, it resets.
            self._steps[seat.place] = lambda action: self._begin(seat, RESET)

    def _begin_at_once(self, seat: _Seat, row: int, last: TimeStep) -> None:
        """Begins the next episode in the step that ended the one before."""
        self._infos.keep_final(seat.index, row)
        first = last
        try:
            self._meters[RESETS] += 1
            first = self._reset(seat)
            self._ended[seat.place] = False
            self._writer.write(row, SAME_STEP_SLOT, first)
        except BaseException as error:
            self._host.let_through(error)
            # The end of the episode is an answer all the same; the next step raises
            # what kept the next episode from beginning.
            self._writer.write(row, SAME_STEP_SLOT, last)
            self._is_in_reset = False
            self._steps[seat.place] = _raising(error)
        if self._notes_infos[0]:
            self._infos.note_begun(seat.index, row, first)

    # Resets and checks, of single environments and of batches.

    def _reset(self, seat: _Seat) -> TimeStep:
        self._is_in_reset = True
        if not seat.is_batch:
            self._direct.leave(seat.place)
            # Until it has begun there is no episode, and a step may begin one.
            self._ended[seat.place] = True
        time_step = self._with_options(seat, seat.env.reset)
        end_fork(self._host.forked)
        if not seat.is_reset_checked or self._validate == "always":
            self._check(seat, time_step, "reset")
            seat.is_reset_checked = True
        self._check_begun(seat, time_step)
        self._is_in_reset = False
        return time_step

    def _rebuild(self, seat: _Seat) -> None:
        self._host.rebuild(seat.index)
        self._renew(seat)

    def _checking_step(self, seat: _Seat) -> Step:
        """Returns the step of an environment that checks itself, once or always."""
        step: Step = seat.env.step
        if self._validate == "never":
            return step

        def checked(action: Any) -> TimeStep:
            time_step = step(action)
            self._check(seat, time_step, "step")
            if self._validate == "first":
                seat.own_step = self._steps[seat.place] = step
                seat.is_step_checked = True
            return time_step

        return checked

    def _check(self, seat: _Seat, time_step: Any, call: str) -> None:
        if self._validate == "always":
            occasion = f"It came from {call}() of {seat.kind}."
        else:
            occasion = f"This was the first observation after {call}() of {seat.kind}."
        self._writer.check(seat.rows, time_step, occasion, is_batch=seat.is_batch)

    def _check_begun(
        self, seat: _Seat, time_step: TimeStep, mask: Array | bool = True
    ) -> None:
        """Refuses a reset that returns anything but a `FIRST`, in the masked rows."""
        if getattr(time_step, "step_type", _FIRST) is _FIRST:
            return
        types = np.asarray(getattr(time_step, "step_type", _FIRST))
        wrong = np.flatnonzero(mask & (types != _FIRST))
        if wrong.size:
            row = seat.rows[int(wrong[0])]
            self._refuse_type(row, types.flat[wrong[0]], "reset", "0 (FIRST)")

    def _refuse_type(self, row: int, step_type: Any, call: str, must_be: str) -> None:
        name = self._name_of(row)
        if self._seat_of_row[row - self._first].is_batch:
            name += f" (row {self._first_row + row})"
        raise MisfitError from SpecError(
            f"{name} returned the step type {step_type} from {call}(); it must be "
            f"{must_be}. An episode is FIRST, any number of MID, LAST: only a reset "
            "returns FIRST, and the pool resets an environment after its LAST."
        )

    def _let_through(self, seat: _Seat, error: BaseException) -> None:
        """Raises what is not the environment's but the carrier's own, as Ctrl-C is."""
        block = slice(seat.place, seat.place + len(seat.rows))
        self._doubted[block] = True
        self._host.let_through(error)
        self._doubted[block] = False

    def _fail(self, seat: _Seat, rows: Sequence[int], error: BaseException) -> None:
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
            env=self._first_env + seat.index,
            command=command,
            pid=os.getpid(),
        )
        self.tell_failure(rows, failure)
        self._count_before(rows)
        self._slab.fail(rows)

    def _count_before(self, rows: Sequence[int]) -> None:
        """Lets the carrier count the run if these rows are the last to be marked."""
        if rows[-1] == self._last_row:
            self.before_last_mark()

    # Environments that are batches themselves.

    def _run_batch(
        self, seat: _Seat, rows: Sequence[int], number: int | None = None
    ) -> None:
        """Runs rows of a batch; `number` is what all of them answer if all step."""
        try:
            if number is not None:
                self._step_together(seat, slot_of(number))
            else:
                self._move_batch(seat, rows)
        except BaseException as error:
            self._let_through(seat, error)
            self._fail(seat, rows, error)
        else:
            self._count_before(rows)
            self._slab.commit(seat.block if number is not None else rows)

    def _step_together(self, seat: _Seat, slot: int) -> None:
        """Steps all rows of a batch into one slot."""
        # Hot: called once per step of a batch.
        time_step = self._steps[seat.place](self._batch_of_actions(seat))
        end_fork(self._host.forked)
        self._writer.write_batch(seat.block, time_step, slot)
        everyone = np.ones(len(seat.rows), bool)
        self._note_batch(seat, everyone, time_step)
        self._turn_batch(seat, time_step, everyone, ~everyone)

    def _move_batch(self, seat: _Seat, rows: Sequence[int]) -> None:
        """Steps some rows of a batch and begins others anew, each into its slot."""
        mask = np.zeros(len(seat.rows), bool)
        mask[np.asarray(rows) - seat.rows.start] = True
        slots = self._slab.slots(seat.block)
        stepping = mask & (self._slab.command[seat.block] == STEP)
        beginning = mask & ~stepping
        if stepping.any():
            time_step, has_begun = self._step_batch(seat, stepping, beginning)
            end_fork(self._host.forked)
            moved = stepping | has_begun
            self._writer.write_batch(seat.block, time_step, slots, moved)
            self._note_batch(seat, moved, time_step)
            beginning &= ~has_begun
            self._turn_batch(seat, time_step, stepping, has_begun)
        if beginning.any():
            time_step = self._reset_batch(seat, beginning)
            end_fork(self._host.forked)
            self._check_begun(seat, time_step, beginning)
            self._ended_of(seat)[beginning] = False
            self._writer.write_batch(seat.block, time_step, slots, beginning)
            self._note_batch(seat, beginning, time_step)

    def _ended_of(self, seat: _Seat) -> Array:
        return self._ended[seat.place : seat.place + len(seat.rows)]

    def _batch_of_actions(self, seat: _Seat) -> NestedArray:
        return self._structure.unflatten(self._slab.read_actions(seat.block))

    def _step_batch(
        self, seat: _Seat, stepping: Array, beginning: Array
    ) -> tuple[TimeStep, Array]:
        """Steps some rows; returns in which others an episode has begun meanwhile."""
        action, env, block = self._batch_of_actions(seat), seat.env, seat.block
        is_rebuilt = (self._slab.command[block][beginning] == REBUILD).any()
        # What else may stand in place of its own step raises an error.
        is_sound = self._steps[seat.place] is seat.own_step
        if not stepping.all() and env.holds_rows and is_sound and not is_rebuilt:
            time_step = env.step_rows(action, stepping, beginning)
            if self._validate == "always":
                self._check(seat, time_step, "step")
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

    def _turn_batch(
        self, seat: _Seat, time_step: TimeStep, stepping: Array, has_begun: Array
    ) -> None:
        """Handles the begins and ends of episodes in rows that have moved.

        Under NEXT_STEP a batch begins the next episodes without being asked.
        """
        # Hot: called once per step of a batch.
        ended = self._ended_of(seat)
        types = np.asarray(time_step.step_type)
        begun: Array = types == _FIRST
        last: Array = types == _LAST
        moved = stepping | has_begun
        due = has_begun | (ended & stepping)
        wrong = moved & ((begun != due) | (types < 0) | (types > 2))
        if wrong.any():
            if seat.repeats_last:
                wrong &= ~(due & last)
            doubted = self._doubted[seat.place : seat.place + len(wrong)]
            wrong &= ~(begun & doubted)
            doubted[:] = False
            for row in np.flatnonzero(wrong).tolist():
                must_be = "0 (FIRST)" if due[row] else "1 (MID) or 2 (LAST)"
                call = "reset" if has_begun[row] else "step"
                self._refuse_type(seat.rows[row], types[row], call, must_be)
        self._meters[RESETS] += int(np.count_nonzero(begun & stepping))
        last &= stepping
        ended[moved] = False
        ended |= last
        if self._slab.autoreset == SAME_STEP_ORDER and last.any():
            self._begin_batch_at_once(seat, last, time_step)

    def _reset_batch(self, seat: _Seat, mask: Array) -> TimeStep:
        self._meters[RESETS] += int(mask.sum())
        self._infos.forget(seat.index)
        is_rebuilt = (self._slab.command[seat.block][mask] == REBUILD).any()
        if is_rebuilt:
            self._rebuild(seat)
        self._steps[seat.place] = seat.own_step
        env = seat.env
        # One that has not begun yet begins as a whole; only some rows of it are used.
        if mask.all() or is_rebuilt or getattr(env, "_current_time_step", None) is None:
            return self._reset(seat)
        return self._with_options(seat, lambda: env.reset(mask))

    def _begin_batch_at_once(self, seat: _Seat, ended: Array, last: TimeStep) -> None:
        self._infos.keep_final(seat.index, seat.rows.start)
        self._meters[RESETS] += int(ended.sum())
        try:
            time_step = self._reset(seat) if ended.all() else seat.env.reset(ended)
            if self._validate == "always":
                self._check(seat, time_step, "reset")
            self._check_begun(seat, time_step, ended)
            self._ended_of(seat)[ended] = False
        except BaseException as error:
            self._host.let_through(error)
            # As with a single environment: the next step raises it.
            self._is_in_reset = False
            time_step = last
            self._steps[seat.place] = _raising(error)
        self._writer.write_batch(seat.block, time_step, SAME_STEP_SLOT, ended)
        if self._notes_infos[0]:
            rows = seat.rows.start + np.flatnonzero(ended)
            self._infos.note_begun(seat.index, rows, time_step)

    def _note_batch(self, seat: _Seat, moved: Array, time_step: TimeStep) -> None:
        if self._notes_infos[0]:
            self._infos.note_batch(seat.index, seat.block, moved, time_step)

    # Requests, which are everything but rows.

    def handle(self, request: Request) -> Reply:
        """Answers a request for each of its environments."""
        results = tuple(
            self._handle_one(request.method, env - self._first_env, argument)
            for env, argument in zip(request.envs, request.arguments, strict=True)
        )
        return Reply(request.number, results)

    def _handle_one(self, method: str, index: int, argument: Any) -> Any:
        try:
            result = self._answer(method, self._seats[index], argument)
            end_fork(self._host.forked)
        except BaseException as error:
            self._host.let_through(error)
            name = question_text(method, [argument])
            return RemoteFailure.of(
                error, env=self._first_env + index, command=name, pid=os.getpid()
            )
        return result

    def _answer(self, method: str, seat: _Seat, argument: Any) -> Any:
        env, index = seat.env, seat.index
        if method != "get_info":
            self._infos.note_question(index, seat.block)
            if not seat.is_batch:
                self._direct.doubt(seat.place)
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
                return self._take_options(seat, *argument)
            case "get_info":
                return self._infos.answer(index, seat.rows.start)
            case "get_state":
                # Bytes, so that nothing that happens later changes it, and that only
                # an environment has to know what is in it.
                return self.dump_state(env.get_state())
            case "set_state":
                return self._set_state(seat, *argument)
        raise ValueError(f"The request {method!r} does not exist.")

    def _take_options(self, seat: _Seat, options: Any, mask: Array | None) -> None:
        """Hands over options for the reset that is asked for next, and for no other."""
        seat.options = None
        hand_options(seat.env, options, mask)
        if options is None:
            return
        row = seat.rows[0 if mask is None else int(np.argmax(mask))]
        number = (self._sequence[row] + 2) & _LARGEST
        seat.options = _Options(seat.env, row, number, options, mask)

    def _with_options(self, seat: _Seat, reset: Callable[[], TimeStep]) -> TimeStep:
        """Resets an environment with the options that were sent ahead, if any were."""
        sent, seat.options = seat.options, None
        if sent is None:
            return reset()
        is_meant = self._sequence[sent.row] == sent.number
        if self._command[sent.row] == STEP or not is_meant:
            hand_options(seat.env, None)  # The reset that they were for never came.
        elif seat.env is not sent.env:  # It has been rebuilt since.
            hand_options(seat.env, sent.options, sent.mask)
        try:
            return reset()
        finally:
            hand_options(seat.env, None)

    def _set_state(self, seat: _Seat, state: bytes, ended: Sequence[bool]) -> None:
        try:
            token = self.load_state(state)
        except Exception as error:  # Broken bytes may raise anything.
            raise ValueError(
                f"The state cannot be read: {type(error).__name__}: {error}"
            ) from error
        seat.env.set_state(token)
        self._ended_of(seat)[:] = ended
        self._infos.forget(seat.index)
        self._steps[seat.place] = seat.own_step
        if any(ended) and not seat.is_batch:
            self._let_begin_after_last(seat)

    def close(self) -> list[BaseException]:
        """Closes the environments; returns what their `close` raised."""
        return self._host.close()


def _pickled(state: Any) -> bytes:
    from envkit.parallel import serialize  # here and below: not every carrier pickles

    return serialize.dump_value(state, "The state")


def _unpickled(state: bytes) -> Any:
    from envkit.parallel import serialize

    return serialize.load_value(state)


def _0d_arrays(column: Array) -> Array:
    """Returns the elements of a column, each as an array."""
    elements = np.empty(len(column), object)
    for row in range(len(column)):
        elements[row] = column[row, ...]
    return elements


def _repeated(number: int, times: int) -> bytes:
    return number.to_bytes(4, sys.byteorder) * times


def _raising(error: BaseException) -> Step:
    def step(action: Any) -> TimeStep:
        raise error

    return step


def _missing(action: Any) -> TimeStep:
    raise AssertionError("only the first row of a batch has a step")


def _uncounted() -> None:
    """Counts no run."""


def _untold(rows: Sequence[int], failure: RemoteFailure) -> None:
    """Drops a failure: the rows are marked all the same."""
