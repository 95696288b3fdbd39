"""`Watch`: waits until something is true, and sees to what happens meanwhile."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import numpy as np

from envkit.errors import ClosedError
from envkit.parallel.backends.base import (
    Backend,
    Event,
    Exited,
    Failed,
    Finished,
    Replied,
    Started,
)
from envkit.parallel.interrupts import uninterrupted
from envkit.parallel.questions import Questions
from envkit.parallel.recovery import COMMANDS, Recovery
from envkit.parallel.row_book import BUSY, FINISHED, RowBook
from envkit.parallel.row_map import RowMap
from envkit.parallel.waiting import Waiting
from envkit.parallel.workforce import PoolOptions, Workforce
from envkit.types import Array

__all__ = ["Watch"]

_LOGGER = logging.getLogger(__name__)


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
            moment = now()
            self._workforce.start_again(moment)
            self.send_held(now)
            if is_over():
                return
            timeout = waiting.timeout(moment, self._next_deadline(deadline))
            busy = int(np.count_nonzero(book.state == BUSY)) - len(book.held)
            # Those that have finished count already.
            missing = count - int(np.count_nonzero(book.state == FINISHED))
            wanted = min(missing, busy)
            try:
                queue = self._backend.wait_events(timeout, max(wanted, 1))
            except Exception:
                self.check_open()
                raise
            self._handle_all(queue, now)
            self.check_open()
            moment = now()
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
            raise ClosedError(
                "The pool was closed by another thread while this one was waiting for "
                "its environments."
            )

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
