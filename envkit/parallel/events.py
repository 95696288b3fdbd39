"""`Events`: waits for events, and handles them.

All events of a pool are handled while a call waits here: rows answer, environments
raise, workers reply, end and are replaced.

Ctrl-C ends a call only where it waits, in `Backend.wait_events`, or while an
environment runs in the caller's thread. Events are handled under `uninterrupted`,
wholly or not at all. The rest depends only on the numbers of the rows (see
`row_states`), and may be interrupted anywhere.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envkit.errors import ClosedError, WorkerError
from envkit.parallel import failures
from envkit.parallel.backends.base import (
    Backend,
    Event,
    Exited,
    Raised,
    Replied,
    Started,
)
from envkit.parallel.endings import Ending
from envkit.parallel.failures import CLOSED_MEANWHILE
from envkit.parallel.messages import (
    ExitReport,
    Hello,
    RemoteFailure,
    Reply,
    Request,
)
from envkit.parallel.observers import PoolObserver
from envkit.parallel.options import PoolOptions
from envkit.parallel.pool_clock import PoolClock, Waiting
from envkit.parallel.restarts import Decision, Replace, Restarts, reason_of
from envkit.parallel.row_sets import are_among, distinct
from envkit.parallel.row_states import Rows
from envkit.parallel.slab_layout import REBUILD, RESET, STEP, STEPS
from envkit.parallel.system.ctrl_c import uninterrupted
from envkit.parallel.workers import (
    Question,
    Workers,
    WorkerState,
)
from envkit.types import Array

__all__ = ["Events"]

_LOGGER = logging.getLogger(__name__)

# Their names in messages.
_COMMANDS = {STEP: "step", RESET: "reset", REBUILD: "rebuild"}


@dataclass(slots=True)
class _Failure:
    """An environment's exception, and the decision about it for all of its rows."""

    failure: RemoteFailure
    decision: Decision | None = None
    error: WorkerError | None = None


class Events:
    """Waits for events, and handles them."""

    def __init__(
        self,
        backend: Backend,
        workers: Workers,
        rows: Rows,
        options: PoolOptions,
        clock: PoolClock,
        observers: Sequence[PoolObserver] = (),
    ) -> None:
        self._backend = backend
        self._workers = workers
        self._rows = rows
        self._clock = clock
        self._restarts = Restarts(options.policy)
        self._observers = observers
        # How long a row may take to answer each command.
        self._timeouts = {
            STEP: options.step_timeout,
            RESET: options.reset_timeout,
            REBUILD: options.reset_timeout,
        }
        # Exceptions of environments whose rows are not marked yet.
        self._failures: dict[int, _Failure] = {}
        self._has_objects = bool(rows.layout.private_steps)
        self._has_timeouts = not (
            options.step_timeout is None and options.reset_timeout is None
        )
        self._has_limits = self._has_timeouts or options.start_timeout is not None
        self._is_closed = False

    def move(self, rows: Rows) -> None:
        """Switches to another set of rows, which may include the current ones."""
        gone = self._rows.worker_of_row[rows.layout.rows :].tolist()
        for worker in set(gone).difference(rows.layout.workers):
            self._restarts.forget(("worker", worker))
        for env in range(len(rows.rows_of_env), len(self._rows.rows_of_env)):
            self._restarts.forget(("env", env))
        self._rows = rows

    @property
    def is_plain(self) -> bool:
        """True while no worker and no row is in a special state."""
        # Hot in asynchronous use: called for every few rows.
        return not self._workers.unready and self._rows.are_plain()

    # Waiting.

    def wait(
        self,
        is_over: Callable[[], bool],
        rows: Array | None = None,
        *,
        may_owe: int = 0,
        deadline: float | None = None,
        since: float | None = None,
    ) -> None:
        """Handles events until `is_over` returns True or the deadline has passed.

        Args:
            is_over: Returns True when the wait is over.
            rows: The rows whose answers can end the wait; `None` if answers cannot.
            may_owe: How many of these may still owe an answer when it ends.
            deadline: When to give up, if ever.
            since: When the caller began to wait, if earlier.
        """
        waiting = Waiting(self._clock.now() if since is None else since)
        self.check_open()
        try:
            self.send()
            self._wait(is_over, rows, may_owe, deadline, waiting)
        except Exception:
            self.check_open()
            raise

    def wait_plainly(self, may_owe: int, patience: float) -> bool:
        """Waits for answers on the fastest path, as long as nothing else happens.

        Args:
            may_owe: How many rows may still owe an answer at the end.
            patience: How many seconds to wait.

        Returns:
            Whether the answers have come. Everything else is left to `wait`.
        """
        # Hot in asynchronous use: called once per recv.
        rows = self._rows
        if not self.is_plain or self._has_limits or self._has_objects or self._failures:
            return False
        self.check_open()
        try:
            if rows.unsent().size:
                return False
            if rows.slab.count_owing() > may_owe and self._backend.wait_events(
                patience, may_owe
            ):
                return False
            rows.set_answered(rows.answered())
        except Exception:
            self.check_open()
            raise
        self.check_open()
        return rows.all_busy() <= may_owe

    def _wait(
        self,
        is_over: Callable[[], bool],
        rows: Array | None,
        may_owe: int,
        deadline: float | None,
        waiting: Waiting,
    ) -> None:
        while True:
            self._look()
            if is_over():
                return
            self.check_open()
            if not self.is_plain:
                self._go_on()
                if is_over():
                    return
            until = self._next_deadline(deadline)
            timeout = waiting.timeout(self._clock.now(), until)
            queue = self._backend.wait_events(
                timeout, self._owing_at_end(rows, may_owe)
            )
            self._clock.end_wait(timeout)
            self.handle(queue)
            self.check_open()
            if self._has_limits:
                self._end_late()
            moment = self._clock.now()
            if deadline is not None and moment >= deadline:
                self._look()
                return
            if waiting.is_due(moment):
                self._look()
                if not is_over():
                    self._log_waiting(moment - waiting.since)

    def _owing_at_end(self, rows: Array | None, may_owe: int) -> int:
        """Returns how many of all rows may owe an answer when this wait ends."""
        if rows is None:
            return -1
        missing = self._rows.busy(rows) - may_owe
        if missing <= 0:
            return -1  # The wait is for something else, such as a starting worker.
        # Negative while rows are held: the other rows' answers are not enough then.
        return max(self._rows.all_busy() - missing, -1)

    def _next_deadline(self, deadline: float | None) -> float | None:
        """Returns the earliest time at which something has to be done."""
        if not self._has_timeouts and self.is_plain:
            return deadline
        times = [] if deadline is None else [deadline]
        watched = np.array(self._workers.watched())[self._rows.worker_of_row]
        times += self._rows.deadlines(watched) + self._workers.deadlines()
        earliest = min(times, default=np.inf)
        return None if earliest == np.inf else earliest

    def _log_waiting(self, seconds: float) -> None:
        """Logs which workers have not answered for `seconds`."""
        rows, slab = self._rows, self._rows.slab
        owing = np.flatnonzero(slab.owing_rows())
        owners = rows.worker_of_row[owing]
        for worker in distinct(owners):
            row = int(owing[owners == worker][0])
            _LOGGER.warning(
                "waiting for worker %d, env %s, in %s() for %d s",
                worker,
                int(rows.env_of_row[row]),
                _COMMANDS.get(int(slab.requested[row]), "step"),
                seconds,
            )
        for index, entry in enumerate(self._workers.workers):
            if entry.question is not None:
                _LOGGER.warning(
                    "waiting for worker %d to answer %s for %d s",
                    index,
                    entry.question.text,
                    seconds,
                )

    def close(self) -> None:
        """Ends the waits of other threads, because the pool is closed."""
        self._is_closed = True

    def check_open(self) -> None:
        """Raises if another thread has closed the pool."""
        if self._is_closed:
            raise ClosedError(CLOSED_MEANWHILE)

    # Sending requests, and reading answers.

    def send(self) -> None:
        """Sends the pending requests, of this call or of an interrupted one."""
        rows = self._rows.unsent()
        if rows.size:
            due = self._due(rows) if self._has_timeouts else np.inf
            is_all = rows.size == self._rows.layout.rows
            self._rows.slab.announce()
            # Not under `uninterrupted`, because environments may run in this thread.
            self._backend.dispatch(None if is_all else rows)
            self._rows.set_sent(rows, due, self._clock.away)

    def _due(self, rows: Array) -> Array:
        """Returns the deadlines for rows that are asked now."""
        step, reset = (self._timeouts[one] or np.inf for one in (STEP, RESET))
        commands = self._rows.slab.requested[rows]
        due: Array = self._clock.now() + np.where(commands == STEP, step, reset)
        return due

    def _look(self) -> None:
        """Marks rows that have answered, and handles those that raised."""
        # Hot in asynchronous use: called for every few rows.
        new = self._rows.answered()
        if new.size:
            if self._has_objects:
                # Messages may arrive after the row numbers, but after this they are all
                # here.
                while queue := self._backend.wait_events(0.0):
                    self._carry_out(queue)
                still = self._rows.answered()
                new = new[are_among(new, still.tolist())]
            self._rows.set_answered(new)
        if self._failures:
            with uninterrupted():
                self._repair_raised()

    def _go_on(self) -> None:
        """Starts workers whose pause is over, and asks the rows that waited."""
        with uninterrupted():
            self._workers.start_again()
            self.release()
        self.send()

    def release(self) -> None:
        """Asks the held rows whose worker is ready and whose pause has passed."""
        rows = self._rows
        if rows.held:
            moment = self._clock.now()
            ready = [worker.is_ready for worker in self._workers.workers]
            free = [
                row
                for row, at in rows.held.items()
                if at <= moment and ready[rows.worker_of_row[row]]
            ]
            if free:
                for env in rows.envs_to_rebuild(free):
                    self._workers.seeds.count_rebuild(env)
                rows.release(free)

    # Handling events.

    def handle(self, queue: deque[Event]) -> None:
        """Handles events, but first the answers that came before them."""
        if queue:
            self._look()
            self._carry_out(queue)

    def _carry_out(self, queue: deque[Event]) -> None:
        with uninterrupted():
            while queue:
                # An event leaves the queue only when it has been handled. After an
                # exception, the next call handles it.
                match queue[0]:
                    case Replied(worker, reply):
                        self._handle_reply(worker, reply)
                    case Raised(rows, failure):
                        self._failures.update(dict.fromkeys(rows, _Failure(failure)))
                    case Started(worker, hello):
                        self._handle_start(worker, hello)
                    case Exited(worker, report):
                        self._handle_exit(worker, report)
                queue.popleft()

    def _handle_reply(self, worker: int, reply: Reply) -> None:
        entry = self._workers.workers[worker]
        # Other replies answer questions of interrupted calls.
        if entry.question is not None and entry.question.number == reply.number:
            entry.question.answer = reply
            self._workers.seeds.restore(entry.question.seeds_before, reply.results)
            if entry.state is WorkerState.RESTORING:
                self._workers.become(worker, WorkerState.READY)
            for observer in self._observers:
                observer.replied(worker, reply.results)
            entry.question = None

    def _repair_raised(self) -> None:
        """Repairs or breaks the rows of environments that raised."""
        rows, now = self._rows, self._clock.now()
        marked = rows.slab.raised_rows(np.array(list(self._failures), np.intp))
        for row in marked.tolist():
            told = self._failures[row]
            worker, env = int(rows.worker_of_row[row]), int(rows.env_of_row[row])
            if told.decision is None:
                told.decision = self._restarts.decide(("env", env), now)
                if isinstance(told.decision, Replace):
                    self._workers.workers[worker].restarts += 1
                    _LOGGER.warning(
                        "env %d raised %s in %s(); it is built anew in its worker",
                        env,
                        told.failure.type_name,
                        told.failure.command,
                    )
            for observer in self._observers:
                observer.raised(env)
            # All rows of a batched environment share one error.
            if told.error is None:
                told.error = failures.raised(
                    worker,
                    told.failure,
                    self._workers.maker(told.failure.env),
                    reason_of(told.decision),
                    envs=(told.failure.env,),
                )
            rows.losses.blame([row], failures.loss_kind(told.failure), told.error)
            (command,) = rows.withdraw(np.array([row]))
            del self._failures[row]
            if isinstance(told.decision, Replace):
                rows.lose(row, command, REBUILD, now + told.decision.after)
                continue
            rows.begin[row] = 0
            rows.break_row(row, told.error)

    def _handle_exit(self, worker: int, report: ExitReport) -> None:
        """Repairs or breaks the rows of a lost worker, and orders its replacement."""
        rows, now = self._rows, self._clock.now()
        entry = self._workers.workers[worker]
        for observer in self._observers:
            observer.ended(worker)
        if entry.state is WorkerState.LEAVING:  # Its rows were handled before.
            self._workers.become(worker, WorkerState.WAITING, due=now)
            return
        if not entry.is_present:
            return  # It failed to start, which was handled before.
        block = np.arange(*rows.layout.blocks[worker])
        # Its answers are good, and its exceptions are not a crash.
        answered = rows.answered()
        rows.set_answered(answered[are_among(answered, block.tolist())])
        self._repair_raised()
        for row in block.tolist():
            self._failures.pop(row, None)
        lost_rows = block[rows.slab.owing_rows()[block]]
        decision = self._restarts.decide(("worker", worker), now)
        # Anything that may raise comes first, before changes that it would leave half
        # done.
        ending = self._ending(worker, report, lost_rows, decision)
        question = entry.question
        said, error = ending.sentence, ending.error()
        rows.losses.blame(block.tolist(), ending.kind, error)
        lost: dict[int, int] = {}
        if lost_rows.size:
            commands = rows.withdraw(lost_rows)
            lost = dict(zip(lost_rows.tolist(), commands, strict=True))
        entry.overdue_after = entry.question = None
        if question is not None:
            question.answer = error
            self._workers.seeds.restore(question.seeds_before)
        if isinstance(decision, Replace):
            self._replace(worker, now + decision.after)
            kept: set[int] = set()
            for observer in self._observers:
                kept.update(observer.lost(worker, lost))
            rows.set_replaced([row for row in block.tolist() if row not in kept], lost)
            _LOGGER.warning("%s It is replaced.", said)
        else:
            self._lose(worker, error)

    def _replace(self, worker: int, at: float) -> None:
        """Schedules the restart of a worker, after a pause."""
        self._workers.workers[worker].restarts += 1
        self._workers.become(worker, WorkerState.WAITING, due=at)

    def _lose(self, worker: int, error: WorkerError) -> None:
        """Breaks the rows of a worker that will not be replaced."""
        self._workers.workers[worker].crash = error
        self._workers.become(worker, WorkerState.LOST)
        for observer in self._observers:
            observer.given_up(worker)
        self._rows.break_rows(range(*self._rows.layout.blocks[worker]), error)

    def _ending(
        self, worker: int, report: ExitReport, lost_rows: Array, decision: Decision
    ) -> Ending:
        """Returns how a worker ended, and what it was doing."""
        rows, entry = self._rows, self._workers.workers[worker]
        doing = None if entry.question is None else entry.question.text
        env = None
        if entry.state in (WorkerState.STARTING, WorkerState.RESTORING):
            doing = doing or "construct"
        elif lost_rows.size:
            first = int(lost_rows[0])
            command = int(rows.slab.requested[first])
            doing, env = _COMMANDS.get(command, "step"), int(rows.env_of_row[first])
        return self._workers.ending(
            report,
            command=doing,
            env=env,
            steps=int(rows.slab.counter(STEPS)[worker]),
            reason=reason_of(decision),
        )

    def _handle_start(self, worker: int, hello: Hello | RemoteFailure) -> None:
        """Puts a restarted worker to work, or handles its failure to start."""
        rows, now = self._rows, self._clock.now()
        entry = self._workers.workers[worker]
        if entry.state is not WorkerState.STARTING:
            return  # It was late, and is being stopped.
        error = self._workers.welcome(worker, hello, rows)
        if error is None:
            for observer in self._observers:
                observer.started(worker)
            return
        decision = self._restarts.decide(("worker", worker), now)
        if isinstance(decision, Replace):
            self._replace(worker, now + decision.after)
            _LOGGER.warning("%s It is tried again.", str(error).partition("\n")[0])
            return
        # This worker runs, but its environments differ from those before.
        self._workers.dismiss(worker)
        self._lose(worker, error)

    def restore(
        self, worker: int, method: str, plans: Mapping[int, Any], steps: int
    ) -> None:
        """Implements `Pool.restore`."""
        entry = self._workers.workers[worker]
        number = next(self._workers.numbers)
        entry.question = Question(number, f"{method}()", ())
        step, reset = self._timeouts[STEP], self._timeouts[RESET]
        due = allowed = None
        if step is not None:
            allowed = max(step, reset or 0.0) * (steps + 1)
            due = self._clock.now() + allowed
        self._workers.become(worker, WorkerState.RESTORING, due=due, allowed=allowed)
        request = Request(number, method, tuple(plans), tuple(plans.values()))
        self._backend.request(worker, request)

    def _end_late(self) -> None:
        """Stops workers that did not answer, or did not start, in time."""
        rows, clock = self._rows, self._clock
        if self._has_timeouts and rows.late(clock.now()).size:
            # An answer that has arrived is in time, however late we look at it.
            while queue := self._backend.wait_events(0.0):
                self.handle(queue)
            self._look()
            moment = clock.now()
            rows.extend_deadlines(moment, clock.away)
            late = rows.late(moment)
            for worker in distinct(rows.worker_of_row[late]):
                entry = self._workers.workers[worker]
                if entry.is_ready and entry.overdue_after is None:
                    first = late[rows.worker_of_row[late] == worker][0]
                    command = int(rows.slab.requested[first])
                    self._workers.kill(worker, self._timeouts[command])
        self._workers.kill_late_starts()
