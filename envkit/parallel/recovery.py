"""`Recovery`: what is done about a worker or an environment that is lost."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from envkit.errors import WorkerError
from envkit.parallel import failures
from envkit.parallel.messages import ExitReport, Hello, RemoteFailure
from envkit.parallel.questions import Questions
from envkit.parallel.row_book import BUSY, RowBook
from envkit.parallel.row_map import RowMap
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
from envkit.parallel.workforce import PoolOptions, Workforce

__all__ = ["COMMANDS", "Recovery"]

_LOGGER = logging.getLogger(__name__)

# What people call them.
COMMANDS = {STEP: "step", RESET: "reset", REBUILD: "rebuild"}


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
