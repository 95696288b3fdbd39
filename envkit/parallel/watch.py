"""`Watch`: waits until something is true, and handles what happens meanwhile.

`Recovery` is its part for workers and environments that are lost.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit.errors import ClosedError, WorkerError
from envkit.parallel import failures
from envkit.parallel.backends.base import (
    Backend,
    Event,
    Exited,
    Failed,
    Finished,
    Replied,
    Started,
)
from envkit.parallel.failures import CLOSED_MEANWHILE
from envkit.parallel.interrupts import uninterrupted
from envkit.parallel.messages import ExitReport, Hello, RemoteFailure
from envkit.parallel.questions import Questions
from envkit.parallel.row_book import BUSY, FINISHED, RowBook, RowMap
from envkit.parallel.slab import (
    NO_PROCESS,
    PROCESS,
    REBUILD,
    RESET,
    RESTARTS,
    STEP,
    STEPS,
)
from envkit.parallel.supervision import Replace, Supervisor
from envkit.parallel.workforce import MOMENT, PoolOptions, Waiting, Workforce
from envkit.types import Array

__all__ = ["Recovery", "Watch"]

_LOGGER = logging.getLogger(__name__)

# What people call them.
COMMANDS = {STEP: "step", RESET: "reset", REBUILD: "rebuild"}


class Watch:
    """Hands events to those whom they concern, and does what has become due.

    Everything that happens to a pool happens while somebody waits here.
    """

    def __init__(
        self,
        backend: Backend,
        workforce: Workforce,
        book: RowBook,
        questions: Questions,
        row_map: RowMap,
        options: PoolOptions,
        clock: Callable[[], float],
    ) -> None:
        """Begins to watch over workers that are there."""
        self._clock = clock
        self._backend = backend
        self._workforce = workforce
        self._book = book
        self._questions = questions
        self._map = row_map
        self._options = options
        # True while rows are asked: whoever is interrupted then may have asked rows
        # without noting it.
        self.is_asking = False
        self._is_dispatching = False
        self._is_waiting = False
        self._is_closed = False
        self._has_timeouts = not (
            options.step_timeout is None and options.reset_timeout is None
        )
        self._has_limits = self._has_timeouts or options.start_timeout is not None
        self._recovery = Recovery(workforce, book, questions, row_map, options)

    def wait(
        self,
        is_over: Callable[[], bool],
        now: Callable[[], float],
        *,
        deadline: float | None = None,
        count: int = 1,
        since: float | None = None,
    ) -> None:
        """Handles what happens until something is true or a deadline has passed.

        Args:
            is_over: Says whether it is true.
            now: The clock.
            deadline: When to give up, if ever.
            count: How many rows to wait for together.
            since: When the caller began to wait, if before this.
        """
        waiting = Waiting(now() if since is None else since)
        self.check_open()
        if self.is_asking:
            self.find_lost_requests(now())
        if self._has_limits:
            # Between calls everything may have stood still.
            moment = now()
            self._book.spare(moment, moment + MOMENT)
            self._workforce.spare(moment, moment + MOMENT)
        self._dispatch_again()
        # Still true for the next call if this one is interrupted.
        self._is_waiting = True
        try:
            self._wait(is_over, now, deadline, count, waiting)
        except Exception:
            self.check_open()
            raise
        self._is_waiting = False

    def _wait(
        self,
        is_over: Callable[[], bool],
        now: Callable[[], float],
        deadline: float | None,
        count: int,
        waiting: Waiting,
    ) -> None:
        book = self._book
        while not is_over():
            self.check_open()
            self._workforce.start_again(now())
            self.send_held(now)
            if is_over():
                return
            until = self._next_deadline(deadline)
            busy = int(np.count_nonzero(book.state == BUSY)) - len(book.held)
            # Those that have finished count already.
            missing = count - int(np.count_nonzero(book.state == FINISHED))
            wanted = min(missing, busy)
            timeout = waiting.timeout(now(), until)
            try:
                queue = self._backend.wait_events(timeout, max(wanted, 1))
                lost = waiting.standstill(now())
                self._handle_all(queue, now)
                if self._has_timeouts and book.late_rows(now()):
                    # What has come is in time, however long nobody looked.
                    self._handle_all(self._backend.wait_events(0.0), now)
            except Exception:
                self.check_open()
                raise
            self.check_open()
            moment = now()
            if lost:
                book.postpone(lost, moment + MOMENT)
                self._workforce.postpone(lost)
                deadline = None if deadline is None else deadline + lost
            if self._has_timeouts or self._is_mending():
                self._recovery.kill_late(moment)
            if deadline is not None and moment >= deadline:
                return
            if waiting.is_due(moment) and not is_over():
                self._tell_waiting(moment - waiting.since)

    def close(self) -> None:
        """Lets whoever waits know that there is nothing to wait for any more."""
        self._is_closed = True

    def check_open(self) -> None:
        """Raises if another thread has closed the pool."""
        if self._is_closed:
            raise ClosedError(CLOSED_MEANWHILE)

    def dispatch(self, rows: Array) -> None:
        """Lets rows run that were asked."""
        if self._is_dispatching:
            # An earlier call was interrupted here: its rows still have to go out.
            rows = self._book.asked()
        # Whoever is interrupted here leaves rows asked of which no worker knows.
        self._is_dispatching = True
        self._backend.dispatch(None if rows.size == self._map.rows else rows)
        self._is_dispatching = False

    def note_interrupted(self) -> None:
        """Sees to what the backend had to tell to a call that was interrupted."""
        self._handle_all(self._backend.wait_events(0.0), self._clock)

    def _dispatch_again(self) -> None:
        """Repeats what an interrupted call may not have brought to an end."""
        if self._is_dispatching or self._is_waiting:
            self.dispatch(self._book.asked())

    def find_lost_requests(self, moment: float) -> None:
        """Finds rows that were asked by a call that did not live to note it."""
        book = self._book
        lost = book.find_lost_requests()
        self.is_asking = False
        for row in lost:
            timeout = self._options.timeout_of(int(book.wanted[row]))
            book.due[row] = np.inf if timeout is None else moment + timeout
            self._is_dispatching = True

    def _handle_all(self, queue: deque[Event], now: Callable[[], float]) -> None:
        # Hot in asynchronous use: called for every few rows.
        while queue:
            event = queue[0]
            if type(event) is Finished and not self._book.begin.any():
                # It may be noted twice, so Ctrl-C does no harm; and that is most of
                # what happens.
                self._book.note_finished(event.rows)
                queue.popleft()
                continue
            # Seen to and gone from the queue, or neither.
            with uninterrupted():
                self._handle(event, now)
                queue.popleft()

    def _handle(self, event: Event, now: Callable[[], float]) -> None:
        match event:
            case Finished(rows):
                self._book.note_finished(rows)
            case Failed(failed):
                self._recovery.note_failed(failed, now())
            case Replied(worker, reply):
                self._questions.note_reply(worker, reply)
            case Started(worker, hello):
                self._recovery.note_restart(worker, hello, now())
            case Exited(worker, report):
                self._recovery.note_exit(worker, report, now())

    def send_held(self, now: Callable[[], float]) -> None:
        """Sends the commands whose worker is there and whose pause has passed."""
        book = self._book
        if not book.held:
            return
        moment = now()
        workers, owners = self._workforce.workers, self._map.worker_of_row
        rows = [
            row
            for row, at in book.held.items()
            if at <= moment and workers[owners[row]].is_ready
        ]
        if not rows:
            return
        book.release(rows)
        array = np.array(rows)
        timeout = self._options.reset_timeout
        book.due[array] = moment + (np.inf if timeout is None else timeout)
        book.slab.request(array, book.begin[array])
        self.dispatch(array)

    def _next_deadline(self, deadline: float | None) -> float | None:
        """Returns the earliest moment at which there is something to do."""
        if not self._has_timeouts and not self._is_mending():
            return deadline
        times = [] if deadline is None else [deadline]
        watched = np.array(self._workforce.watched())[self._map.worker_of_row]
        times += self._book.deadlines(watched) + self._workforce.deadlines()
        earliest = min(times, default=np.inf)
        return None if earliest == np.inf else earliest

    def _is_mending(self) -> bool:
        """Says whether a worker, or a row's new environment, is on its way."""
        return bool(self._book.held) or not self._workforce.all_ready()

    def _tell_waiting(self, seconds: float) -> None:
        owing = self._book.owing()
        owners = self._map.worker_of_row[owing]
        for worker in np.unique(owners).tolist():
            row = int(owing[owners == worker][0])
            _LOGGER.warning(
                "waiting for worker %d, env %s, in %s() for %d s",
                worker,
                int(self._map.env_of_row[row]),
                COMMANDS.get(int(self._book.wanted[row]), "step"),
                seconds,
            )
        for index, entry in enumerate(self._workforce.workers):
            if entry.doing:
                _LOGGER.warning(
                    "waiting for worker %d to answer %s for %d s",
                    index,
                    entry.doing,
                    seconds,
                )


class Recovery:
    """Decides who is replaced, and has rows repaired or broken accordingly."""

    def __init__(
        self,
        workforce: Workforce,
        book: RowBook,
        questions: Questions,
        row_map: RowMap,
        options: PoolOptions,
    ) -> None:
        """Begins with nobody lost."""
        self._workforce = workforce
        self._book = book
        self._questions = questions
        self._map = row_map
        self._options = options
        self._supervisor = Supervisor(options.policy)

    def note_failed(self, failed: dict[int, RemoteFailure], now: float) -> None:
        """Sees to rows whose environment has raised."""
        book = self._book
        marked = book.slab.raised_rows(np.array(list(failed), np.intp)).tolist()
        rows = [
            row for row in marked if book.state[row] == BUSY and row not in book.held
        ]
        decided: dict[int, Any] = {}
        errors: dict[int, WorkerError] = {}
        for row in rows:
            env = int(self._map.env_of_row[row])
            failure = failed[row]
            if env not in decided:
                decided[env] = self._supervisor.decide(("env", env), now)
                if isinstance(decided[env], Replace):
                    self._count_restart(int(self._map.worker_of_row[row]))
                    _LOGGER.warning(
                        "env %d raised %s in %s(); it is built anew in its worker",
                        env,
                        failure.type_name,
                        failure.command,
                    )
            decision = decided[env]
            self._book.slab.take_back(np.array([row]))
            if isinstance(decision, Replace):
                self._book.lose(row, REBUILD, now + decision.after)
            else:
                self._book.begin[row] = 0
                # One error for all rows of an environment that is a batch.
                if env not in errors:
                    errors[env] = self._raised(row, failure, decision.reason)
                self._book.break_row(row, errors[env])

    def _raised(self, row: int, failure: RemoteFailure, reason: str) -> WorkerError:
        worker = int(self._map.worker_of_row[row])
        maker = self._workforce.maker(failure.env)
        return failures.raised(worker, failure, maker, reason, envs=(failure.env,))

    def note_exit(self, worker: int, report: ExitReport, now: float) -> None:
        """Sees to a worker that is gone, and to all that it owed."""
        entry = self._workforce.workers[worker]
        was_starting, entry.is_starting = entry.is_starting, False
        was_ready, entry.is_ready = entry.is_ready, False
        entry.start_by = None
        self._book.slab.staff[worker, PROCESS] = NO_PROCESS
        if not was_ready and not was_starting:
            return  # It failed to start, which has been seen to.
        doing, entry.doing = entry.doing, None
        book = self._book
        first, stop = self._map.layout.blocks[worker]
        rows = np.arange(first, stop)
        unanswered = rows[~book.slab.answered_rows()[rows]]
        lost = [row for row in unanswered.tolist() if book.state[row] == BUSY]
        if was_starting:
            doing = "construct"
        elif lost:
            doing = COMMANDS.get(int(book.slab.command[lost[0]]), "step")
        env = int(self._map.env_of_row[lost[0]]) if lost else None
        steps = int(book.slab.meters[worker][STEPS])
        error = self._workforce.ending(
            worker, report, command=doing, env=env, steps=steps
        )
        decision = self._supervisor.decide(("worker", worker), now)
        if unanswered.size:
            book.slab.take_back(unanswered)
        if not isinstance(decision, Replace):
            entry.crash = error = self._workforce.ending(
                worker,
                report,
                command=doing,
                env=env,
                steps=steps,
                reason=decision.reason,
            )
            entry.kill_reason = None
            self._questions.note_exit(worker, error)
            book.break_rows(range(first, stop), error)
            return
        self._questions.note_exit(worker, error)
        entry.kill_reason = None
        _LOGGER.warning("%s It is replaced.", str(error).partition("\n")[0])
        self._count_restart(worker)
        entry.restart_at = now + decision.after
        book.note_replaced(range(first, stop), lost)

    def note_restart(
        self, worker: int, hello: Hello | RemoteFailure, now: float
    ) -> None:
        """Sees to a worker that was started again, or could not be."""
        error = self._workforce.welcome(worker, hello, self._map)
        entry = self._workforce.workers[worker]
        if error is None:
            self._book.slab.staff[worker, PROCESS] = entry.pid
            return
        decision = self._supervisor.decide(("worker", worker), now)
        if isinstance(decision, Replace):
            self._count_restart(worker)
            entry.restart_at = now + decision.after
            _LOGGER.warning("%s It is tried again.", str(error).partition("\n")[0])
            return
        entry.crash = error
        # One that is there all the same, but is unlike the one before.
        self._workforce.dismiss(worker)
        self._book.break_rows(range(*self._map.layout.blocks[worker]), error)

    def _count_restart(self, worker: int) -> None:
        count = self._workforce.restarts[worker] + 1
        self._workforce.restarts[worker] = count
        self._book.slab.staff[worker, RESTARTS] = count

    def kill_late(self, now: float) -> None:
        """Ends workers that did not answer in time."""
        owners = self._map.worker_of_row
        late = self._book.late_rows(now)
        for worker in {int(owners[row]) for row in late}:
            entry = self._workforce.workers[worker]
            if entry.is_ready and entry.kill_reason is None:
                first = min(row for row in late if owners[row] == worker)
                wanted = int(self._book.wanted[first])
                self._workforce.kill(worker, self._options.timeout_of(wanted))
        self._workforce.kill_late_starts(now)
