"""`EnvRunner`: runs environments on rows of a slab, without any I/O or waiting.

Rows run in one of three ways: all rows of single environments in lockstep, some rows of
single environments, or the rows of one batched environment.
"""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envkit._internal.direct_row import EpisodeEdge
from envkit.parallel.messages import (
    Hello,
    RemoteFailure,
    Reply,
    Request,
    WorkerJob,
)
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import STEP, STEPS, slot_of
from envkit.parallel.system.shared_memory import KEEPS_ORDER, fence
from envkit.parallel.worker.env_batches import EnvBatches
from envkit.parallel.worker.env_row import EnvRow
from envkit.parallel.worker.env_rows import EnvRows
from envkit.parallel.worker.environments import EnvironmentHost, end_fork
from envkit.parallel.worker.extensions import extension
from envkit.parallel.worker.requests import RequestHandler
from envkit.parallel.worker.run_clock import RunClock
from envkit.parallel.worker.write_rows import RowWriter
from envkit.time_step import StepType, TimeStep

__all__ = ["EnvRunner"]

_MID = StepType.MID
# Seconds that writing a request may take, and seconds between checks for its end.
_WRITE_TIMEOUT, _POLL_INTERVAL = 10.0, 1e-5
_LARGEST = 2**32 - 1


class EnvRunner:
    """Runs environments on rows of a slab.

    A runner does no I/O and waits for nothing. Its carrier decides when rows are ready,
    and gets reports: `tell_failure` is called before a row that raised is marked,
    `before_last_mark` before the last row of a run is marked, and `after_row`, if
    given, after every row.

    Attributes:
        is_single: For each environment, whether it is one row and not a batch.
        messages_seen: The value of `Slab.messages` when the carrier last looked for
            messages.
        writer: Writes time steps into rows, once it is bound.
        clock: The result of `start_clock`.
        due: The environments that an idle carrier should reset, by `reset_next`.
        dump_state: Converts the state of an environment into bytes.
        load_state: Converts these bytes back.
    """

    def __init__(
        self,
        job: WorkerJob,
        passes: tuple[type[BaseException], ...] = (),
        made: dict[int, Any] | None = None,
        forked: Sequence[int] = (),
    ) -> None:
        """Takes a job; `build` makes its environments.

        Exceptions of environments, including SystemExit and KeyboardInterrupt, become
        failures of their rows, because an environment must not end its neighbours.
        Those in `passes` belong to the carrier and are raised. `made` collects what
        constructors in this process return. `forked` is not empty in a process that an
        environment has forked; such a process ends when it returns here.
        """
        self._host = EnvironmentHost(job, passes, made, forked)
        self._first_env = job.first_env
        self.tell_failure: Callable[[Sequence[int], RemoteFailure], None] = _untold
        self.before_last_mark: Callable[[], None] = _uncounted
        self.after_row: Callable[[], None] | None = None
        # The row that the current run marks last.
        self._last_row = -1
        self.writer: RowWriter
        self.clock: RunClock
        self.messages_seen = 0
        self.due: Mapping[int, Any] = {}
        self.dump_state: Callable[[Any], bytes] = _pickled
        self.load_state: Callable[[bytes], Any] = _unpickled

    @property
    def env_rows(self) -> EnvRows:
        """The environments with their rows, once bound."""
        return self._env_rows

    @property
    def is_bound(self) -> bool:
        """Whether it has rows."""
        return hasattr(self, "_slab")

    def build(self) -> Hello | RemoteFailure:
        """Builds the environments; returns their specs, or the failure."""
        return self._host.build()

    def environments(self) -> list[Any]:
        """Returns the environments as their constructors made them."""
        return self._host.built()

    def has_ended(self, row: int) -> bool:
        """Returns True if a row's next step begins an episode, whatever the action."""
        return self._env_rows.has_ended(row)

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
            slab: The slab.
            worker: The index of the worker in the slab.
            send_objects: Sends the leaves that the slab cannot hold.
            may_write: Called before each write; raises if writing is forbidden.
            first_row: The pool's row that is the first of the slab.
        """
        self._slab, self._worker = slab, worker
        self._first_row = first_row
        self._host.pad(slab.layout.spec)
        self._first, self._stop = first, stop = slab.layout.blocks[worker]
        self._rows = range(first, stop)
        self._env_rows = env_rows = EnvRows(
            self._host, slab, worker, send_objects, may_write, first_row
        )
        self._steps, self._direct = env_rows.steps, env_rows.direct
        self._meters, self.due = env_rows.meters, env_rows.eager.due
        self._batches = EnvBatches(env_rows, first_row)
        self._requests = RequestHandler(env_rows, self.dump_state, self.load_state)
        self.is_single = not any(env_row.is_batch for env_row in env_rows.all)
        self._moves_together = self.is_single or len(env_rows.all) == 1
        self.writer = env_rows.writer
        self._plain_views = [
            self.writer.plain_views(slot, self._rows) for slot in (0, 1)
        ]
        self._no_places = [None] * len(self._rows)
        self._infos = env_rows.infos
        # Whether to record infos; the other side may change it.
        self._records_infos = self._infos.wanted
        self._sequence, self._command, self._answered, self._has_info = slab.words
        self._messages = slab.messages
        self._all_step_to = slab.lockstep(worker)

    def move(
        self,
        slab: Slab,
        worker: int,
        send_objects: Callable[[int, int, dict[int, Any]], None] | None = None,
        may_write: Callable[[], None] | None = None,
        first_row: int = 0,
    ) -> list[BaseException]:
        """Continues on the rows of another slab, which has a copy of the rows.

        Takes the same arguments as `bind`. Environments without rows there are closed.

        Returns:
            The exceptions of their `close`.
        """
        before, (first, stop) = self._env_rows, slab.layout.blocks[worker]
        # Only this worker writes them, and it may have done so since the rows were
        # copied.
        slab.counters(worker)[:] = self._meters
        before.make_plain()
        left = [env_row for env_row in before.all if env_row.place < stop - first]
        errors = self._host.keep(len(left))
        self.bind(slab, worker, send_objects, may_write, first_row)
        self._env_rows.adopt_all(before)
        return errors

    def start_clock(self, *, counts_memory: bool = False) -> RunClock:
        """Starts measuring how long it runs rows, and how long its owner waits.

        Args:
            counts_memory: Whether to record the memory of this process too. A pool on
                this machine measures it itself.

        Returns:
            The clock. The carrier sets `clock.woken` when rows were asked.
        """
        clock = RunClock(self._meters)
        count = clock.count_with_memory if counts_memory else clock.count
        self.clock, self.before_last_mark = clock, count
        return clock

    # Choosing rows to run.

    def pending(self) -> list[int]:
        """Returns the rows that were asked and have not answered."""
        if self.is_single:
            return self._slab.pending(self._first, self._stop)
        # A ring may be read late, while the next request is being written, but the rows
        # of a batch must be seen together.
        give_up = time.monotonic() + _WRITE_TIMEOUT
        while time.monotonic() < give_up:
            rows = self._slab.pending_as_asked(self._first, self._stop)
            if rows is not None:
                return rows
            time.sleep(_POLL_INTERVAL)
        return self._slab.pending(self._first, self._stop)

    def run_pending(self) -> int:
        """Runs the rows that were asked and have not answered; returns how many.

        It runs none and returns -1 if messages were announced that may have been sent
        before these rows were asked: they must be handled first.
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
                self._run_batch(self._env_rows.all[0], self._rows, number)
            return len(self._rows)
        rows = self.pending()
        if rows:
            if self._messages[0] != self.messages_seen:
                return -1
            self.run(rows)
        return len(rows)

    def run(self, rows: Sequence[int]) -> None:
        """Executes the command in each row and writes the answer beside it."""
        self._meters[STEPS] += len(rows)
        self._last_row = rows[-1]
        if self.is_single:
            self._run_some(rows)
            return
        for env_row in dict.fromkeys(
            self._env_rows.of_row[row - self._first] for row in rows
        ):
            own = [row for row in rows if row in env_row.rows]
            if not env_row.is_batch:
                self._run_some(own)
                continue
            self._run_batch(env_row, own)
            if self.after_row is not None:
                self.after_row()

    def reset_next(self, *, is_hidden: bool = True) -> None:
        """Resets the environment that has been due for longest.

        Args:
            is_hidden: Whether the caller of the pool does something else meanwhile.
        """
        self._env_rows.reset_next(is_hidden=is_hidden)

    # Rows of single environments.

    def _run_lockstep(self, number: int) -> None:
        """Steps all environments, all of which have answered the previous request."""
        # Hot: each line in the loop runs once per environment and step.
        slot = slot_of(number)
        plain = self._plain_views[slot]
        # If time steps are three numbers and an array, the code of `write` is repeated
        # here, because the call costs as much as the writing.
        write = self.writer.writer_for(slot)
        if plain is not None:
            types, rewards, discounts, places, shape, dtypes = plain
        else:
            places = self._no_places
        record = self._infos.record if self._records_infos[0] else None
        env_rows, answered = self._env_rows, self._answered
        first, last = self._first, self._last_row
        forked = self._host.forked
        for row, step, action, place in zip(
            self._rows, self._steps, env_rows.actions(self._rows), places, strict=True
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
                        # `write` converts other kinds of values, or raises the right
                        # error.
                        write(row, time_step)
                        step_type = time_step.step_type
                if record is not None:
                    record(row - first, row, time_step)
                if step_type is not _MID:
                    env_rows.handle_edge(row, time_step)
            except BaseException as error:
                self._fail(env_rows.of_row[row - first], [row], error)
                continue
            if row == last:
                self.before_last_mark()
            if not KEEPS_ORDER:
                fence()
            answered[row] = number

    def _run_directly(self, number: int) -> None:
        """Does the same as `_run_lockstep`, without time steps where rows allow it."""
        # Hot: each line in the loop runs once per environment and step.
        direct, first, slot = self._direct, self._first, slot_of(number)
        env_rows, actions = self._env_rows, direct.actions()
        if actions is None:
            env_rows.make_plain()
            self._run_lockstep(number)
            return
        places, rewards = direct.fill_with_mid(slot)
        answered, last = self._answered, self._last_row
        has_info, wants_info = self._has_info, bool(self._records_infos[0])
        for row, step, action, place in zip(
            self._rows, direct.steps, actions, places, strict=True
        ):
            try:
                if step is None:
                    env_rows.show(row, slot, env_rows.step(row))
                else:
                    outcome = step(action, place, rewards, wants_info)
                    if outcome is not None:
                        env_rows.show(row, slot, outcome)
                    # Write only if needed: workers share a cache line there.
                    elif wants_info and has_info[row]:
                        has_info[row] = 0
            except BaseException as error:
                self._fail(env_rows.of_row[row - first], [row], error)
                continue
            if row == last:
                self.before_last_mark()
            if not KEEPS_ORDER:
                fence()
            answered[row] = number

    def _run_some(self, rows: Sequence[int]) -> None:
        """Runs some single environments, each with its own command."""
        # Hot in asynchronous use: called for every few rows.
        first, last = self._first, self._last_row
        sequence, command, answered = self._sequence, self._command, self._answered
        env_rows, steps, after_row = self._env_rows, self._steps, self.after_row
        direct, inside, of_row = self._direct, self._direct.steps, env_rows.of_row
        wants_info = bool(self._records_infos[0])
        for row, action in zip(rows, env_rows.actions(rows), strict=True):
            place = row - first
            number = sequence[row]
            time_step: TimeStep | EpisodeEdge | None
            try:
                if command[row] != STEP:
                    time_step = env_rows.begin(of_row[place], command[row])
                elif inside[place] is None:
                    time_step = steps[place](action)
                else:
                    slot = (number >> 1) & 1
                    time_step = direct.step(
                        place, slot, action, wants_info, steps[place]
                    )
                if time_step is not None:
                    env_rows.show(row, (number >> 1) & 1, time_step)
                elif wants_info and self._has_info[row]:
                    self._has_info[row] = 0
            except BaseException as error:
                self._fail(of_row[place], [row], error)
            else:
                if row == last:
                    self.before_last_mark()
                if not KEEPS_ORDER:
                    fence()
                answered[row] = number
            if after_row is not None:
                after_row()

    def _fail(self, env_row: EnvRow, rows: Sequence[int], error: BaseException) -> None:
        self.tell_failure(rows, self._env_rows.failure(env_row, rows[0], error))
        self._count_before(rows)
        self._slab.fail(rows)

    def _count_before(self, rows: Sequence[int]) -> None:
        """Calls `before_last_mark` if these rows are the last to be marked."""
        if rows[-1] == self._last_row:
            self.before_last_mark()

    # Batched environments.

    def _run_batch(
        self, env_row: EnvRow, rows: Sequence[int], number: int | None = None
    ) -> None:
        """Runs rows of a batch; if all of them step, all answer with `number`."""
        try:
            if number is not None:
                self._batches.step_together(env_row, slot_of(number))
            else:
                self._batches.move(env_row, rows)
        except BaseException as error:
            self._fail(env_row, rows, error)
        else:
            self._count_before(rows)
            self._slab.commit(env_row.block if number is not None else rows)

    # Requests: everything except rows.

    def handle(self, request: Request) -> Reply:
        """Answers a request for each of its environments."""
        answer = extension(request.method)
        return (
            self._requests.handle(request) if answer is None else answer(self, request)
        )

    def beside(self, failures: deque[RemoteFailure]) -> tuple[EnvRunner, Slab]:
        """Returns a runner for the new environments on rows that nobody else reads.

        Args:
            failures: Receives the exceptions of its environments.
        """
        rows = Slab(self._slab.layout.of_worker(self._worker))
        rows.wants_infos[0] = self._slab.wants_infos[0]
        twin = copy.copy(self)
        twin.tell_failure = lambda _, failure: failures.append(failure)
        twin.before_last_mark, twin.after_row = _uncounted, None
        # A check before each write keeps all rows ordinary, with time steps.
        first_row = self._first_row + self._first
        twin.bind(rows, 0, may_write=_uncounted, first_row=first_row)
        return twin, rows

    def close(self) -> list[BaseException]:
        """Closes the environments; returns the exceptions of `close`."""
        return self._host.close()


def _pickled(state: Any) -> bytes:
    from envkit.parallel import serialize  # here and below: not every carrier pickles

    return serialize.dump_value(state, "The state")


def _unpickled(state: bytes) -> Any:
    from envkit.parallel import serialize

    return serialize.load_value(state)


def _uncounted() -> None:
    """Counts no run."""


def _untold(rows: Sequence[int], failure: RemoteFailure) -> None:
    """Drops a failure; its rows are still marked."""
