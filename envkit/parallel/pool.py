"""`WorkerPool`: runs rows on workers, and what the caller gets to see of that.

The pool itself asks rows and hands out what they answered. Beside it there are

- `Workforce`: which workers there are, and how they fare;
- `RowBook`: the state of every row, and what becomes of one that was lost;
- `Questions`: what environments are asked besides rows;
- `Watch`: waits, and sees to what happens meanwhile;
- `Recovery`: decides what is done about a worker or an environment that is lost.

Ctrl-C may come anywhere. Requests are numbered and the numbers lie in the slab, so
whatever was interrupted is found there by the next call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from envkit.parallel import failures
from envkit.parallel.backends.base import Backend, Finished
from envkit.parallel.hosting import with_seeds
from envkit.parallel.messages import question_text
from envkit.parallel.questions import Questions
from envkit.parallel.row_book import BROKEN, BUSY, FINISHED, READY, RowBook, RowMap
from envkit.parallel.slab import CLOSED, PROCESS, RESET, STEP, Slab, shareable
from envkit.parallel.watch import Watch
from envkit.parallel.workforce import (
    FIRST_NOTICE,
    LOOK,
    PoolOptions,
    Workforce,
    standstill,
)
from envkit.specs.info_spec import common_info_spec
from envkit.types import Array, EnvConstructor

__all__ = ["WorkerPool"]

# How long workers have to end if the pool could not be started, or was not to be.
_START_GRACE, _HASTY_GRACE = 1.0, 0.1


class WorkerPool:
    """Runs rows on workers and keeps every row's stream grammatical.

    Attributes:
        spec: The specs of one environment.
        layout: Where the rows are.
        rows: How many rows there are.
        slab: The rows, until `close`.
        state: For each row, READY, BUSY, FINISHED or BROKEN.
        repaired: Which rows' last time step was made up for an environment that is
            gone.
        errors: For each BROKEN row, why.
        begun: Which rows have ever begun an episode.
        is_batch: For each environment, whether it is a batch itself.
        env_of_row: For each row, the index of its environment.
        rows_of_env: For each environment, its rows.
        worker_of_row: For each row, the index of its worker.
        restarts: How often each worker, or an environment in it, was replaced.
    """

    def __init__(
        self,
        constructors: Sequence[EnvConstructor],
        backend: Backend,
        options: PoolOptions,
        *,
        now: Callable[[], float] | None = None,
    ) -> None:
        """Starts workers and waits until all environments are built.

        Args:
            constructors: What to call for each environment.
            backend: Where they run; `close` closes it.
            options: What may be chosen.
            now: The clock; `None` for the backend's own, if it has one, or the
                system's.
        """
        self._backend = backend
        self._options = options
        self._now: Callable[[], float]
        self._now = getattr(backend, "now", time.monotonic) if now is None else now
        self._closed = False
        self._workforce = Workforce(constructors, backend, options)
        self._workers = self._workforce.workers
        self.restarts = self._workforce.restarts
        try:
            hellos = self._workforce.start(self._now)
            sizes = [hello.batch_sizes for hello in hellos]
            info_spec = common_info_spec(
                [spec for hello in hellos for spec in hello.info_specs or [{}]]
            )
            self._lay_out(RowMap.of(self._workforce.spec, sizes, shareable(info_spec)))
        except BaseException as error:
            # A person waits, and what is being built could not use the time.
            in_haste = isinstance(error, KeyboardInterrupt | SystemExit)
            backend.close(_HASTY_GRACE if in_haste else _START_GRACE)
            raise

    def _lay_out(self, row_map: RowMap) -> None:
        self.layout = row_map.layout
        self.spec = row_map.layout.spec
        self.rows = row_map.rows
        self.is_batch = row_map.is_batch
        self.rows_of_env = row_map.rows_of_env
        self.env_of_row = row_map.env_of_row
        self.own_specs = self._workforce.specs
        self.worker_of_row = row_map.worker_of_row
        self._all_rows = np.arange(row_map.rows)
        self.slab: Slab = self._backend.bind(row_map.layout)
        self.slab.staff[:, PROCESS] = [worker.pid for worker in self._workers]
        self._book = book = RowBook(self.slab, row_map)
        # Bound once: a step reads them without a detour.
        self.state = book.state
        self.repaired = book.repaired
        self.errors = book.errors
        self.begun = book.begun
        self._begin = book.begin
        self._wanted = book.wanted
        self._questions = Questions(self._backend, self._workforce, row_map)
        self._watch = Watch(
            self._backend,
            self._workforce,
            book,
            self._questions,
            row_map,
            self._options,
            self._now,
        )
        # Whether all rows are READY and nothing is to be remembered about any.
        self._regular = True

    # Rows, all together.

    @property
    def is_regular(self) -> bool:
        """Whether all rows are ready and there is nothing special about any."""
        return self._regular

    def run_all(self, command: int) -> None:
        """Asks every row and waits until all have answered or failed.

        Actions have been written before. Which rows failed, `state` says.
        """
        # Hot: called once per batch step.
        if not self._regular:
            self.run(self._all_rows, command)
            return
        try:
            self._regular = False
            self._watch.is_asking = True
            began = self._now()
            self.slab.request_all(command)
            self._backend.dispatch(None)
            patience = self._patience(command)
            queue = self._backend.wait_events(patience, self.rows)
            if len(queue) == 1:
                event = queue[0]
                if type(event) is Finished and len(event.rows) == self.rows:
                    queue.popleft()
                    if command != STEP:
                        self.begun[:] = True
                    self._watch.is_asking = False
                    self._regular = True
                    return
            self.state[:] = BUSY
            due = began + standstill(began + patience, self._now())
            due += self._options.timeout_of(command) or np.inf
            self._book.note_asked(self._all_rows, command, due)
            self._finish_run(self._all_rows, began)
        except Exception:
            self._watch.check_open()
            raise

    def _patience(self, command: int) -> float:
        timeout = self._options.timeout_of(command)
        return FIRST_NOTICE if timeout is None else min(timeout, LOOK)

    def run(self, rows: Array, command: int | Array) -> None:
        """Asks the given rows and waits until they have answered or failed.

        Args:
            rows: The rows.
            command: What is asked of all, or of each of them.
        """
        try:
            self.settle()
            self._regular = False
            began = self._now()
            self.submit(rows, command)
            self._finish_run(rows, began)
        except Exception:
            # Another thread that closes the pool takes everything away.
            self._watch.check_open()
            raise

    def _finish_run(self, rows: Array, began: float) -> None:
        self.wait_for(rows, since=began)
        finished = rows[self.state[rows] == FINISHED]
        self.state[finished] = READY
        self.slab.align(finished)
        self._become_regular()

    def settle(self) -> None:
        """Waits for what an interrupted call left; its answers are nobody's."""
        if self._regular:
            return
        self._watch.find_lost_requests(self._now())
        self._watch.note_interrupted()
        if (self.state == BUSY).any():
            self._watch.dispatch(self._book.asked())
            self.wait_for(self._all_rows)
        self.state[self.state == FINISHED] = READY
        self.slab.align(self._all_rows[self.state == READY])
        self._become_regular()

    def _become_regular(self) -> None:
        self._regular = self._book.is_plain() and self._workforce.all_ready()

    # Rows, some of them.

    def find_lost_requests(self) -> None:
        """Finds what a call had asked that was interrupted before it noted so."""
        if self._watch.is_asking:
            self._watch.find_lost_requests(self._now())

    def submit(self, rows: Array, command: int | Array) -> None:
        """Asks the given READY or BROKEN rows; their actions have been written.

        Those whose worker is gone for good are BROKEN afterwards.
        """
        self._regular = False
        self._watch.is_asking = True
        self._book.note_asked(rows, command, self._now() + self._allowed(command))
        plain = rows
        if self._begin[rows].any() or not self._workforce.all_ready():
            ready = np.array([w.is_ready for w in self._workers])
            special = (self._begin[rows] != 0) | ~ready[self.worker_of_row[rows]]
            plain = rows[~special]
            for row in rows[special].tolist():
                crash = self._workers[self.worker_of_row[row]].crash
                if crash is not None:
                    self._book.break_row(row, crash)
                # Its environment is new, or not there at the moment.
                elif self._book.take_up(row, int(self._wanted[row])):
                    self._watch.send_held(self._now)
            if np.ndim(command):
                command = self._wanted[plain]
        if plain.size:
            for row in plain.tolist() if self.errors else ():
                self.errors.pop(row, None)
            self.slab.request(plain, command)
            self.state[plain] = BUSY
            self._watch.dispatch(plain)
        self._watch.is_asking = False

    def _allowed(self, command: int | Array) -> Any:
        """Returns how many seconds rows may take to answer a command."""
        step, reset = (self._options.timeout_of(one) or np.inf for one in (STEP, RESET))
        return np.where(np.equal(command, STEP), step, reset)

    def check_alive(self, rows: Array, call: str) -> None:
        """Raises if the worker of one of these rows is gone for good."""
        for worker, entry in enumerate(self._workers):
            if entry.crash is not None and (self.worker_of_row[rows] == worker).any():
                raise failures.gone(entry.crash, call)

    def wait(
        self, count: int, rows: Array, timeout: float | None, *, fail: bool = True
    ) -> None:
        """Waits until `count` of the given rows have finished, or one has failed."""

        def enough() -> bool:
            states = self.state[rows]
            return bool(
                np.count_nonzero(states == FINISHED) >= count
                or not (states == BUSY).any()
                or (fail and (states == BROKEN).any())
            )

        if not enough():
            deadline = None if timeout is None else self._now() + timeout
            self._watch.wait(enough, self._now, deadline=deadline, count=count)

    def wait_for(self, rows: Array, *, since: float | None = None) -> None:
        """Waits until these rows have answered or failed.

        Args:
            rows: The rows.
            since: When the caller began to wait, if before this.
        """
        self._watch.wait(
            lambda: not (self.state[rows] == BUSY).any(),
            self._now,
            count=len(rows),
            since=since,
        )

    def finished(self, rows: Array, count: int | None = None) -> Array:
        """Returns rows that have finished, first those that did so first."""
        return self._book.finished(rows, count)

    def take(self, rows: Array) -> None:
        """Notes that the caller has got the answers of these rows."""
        self.state[rows] = READY

    # Where rows stand.

    def has_ended(self, row: int) -> bool:
        """Says whether a row stands at the end of an episode."""
        return self._book.has_ended(row)

    def stand(self, shown: Sequence[Array], standing: Sequence[Array]) -> None:
        """Lets every row stand at a time step that comes from elsewhere."""
        self._book.stand(shown, standing)

    def new_rows(self) -> tuple[int, ...]:
        """Returns the rows whose environment is new and has not begun."""
        return self._book.new_rows()

    def note_restored(self, begun: Sequence[bool], new_rows: Sequence[int]) -> None:
        """Notes that every environment has been given another state."""
        self._book.note_restored(begun, new_rows)
        self._become_regular()

    # Questions.

    def ask(
        self, method: str, envs: Sequence[int], arguments: Sequence[Any]
    ) -> list[Any]:
        """Asks environments something; returns a value or a failure for each.

        Rows that are busy are waited for first. All workers answer at the same time.
        """
        return self.answers(self.post(method, envs, arguments), envs)

    def post(
        self, method: str, envs: Sequence[int], arguments: Sequence[Any]
    ) -> list[int]:
        """Sends questions and returns their numbers, for `answers`."""
        by_worker = self._questions.by_worker(envs)
        starts = np.array([self.rows_of_env[env].start for env in envs], np.intp)
        text = question_text(method, arguments)
        self.check_alive(starts, method)
        rows = np.flatnonzero(np.isin(self.worker_of_row, list(by_worker)))
        self._regular = False

        def can_be_asked() -> bool:
            idle = not (self.state[rows] == BUSY).any()
            return idle and self._workforce.are_idle(by_worker)

        self._watch.wait(can_be_asked, self._now, count=len(rows))
        self.check_alive(rows, method)
        return self._questions.send(method, envs, arguments, by_worker, text)

    def answers(self, numbers: Sequence[int], envs: Sequence[int]) -> list[Any]:
        """Waits for the answers to questions."""
        questions = self._questions
        try:
            self._watch.wait(lambda: questions.are_answered(numbers), self._now)
            results = questions.take(numbers, len(envs))
        finally:
            questions.forget(numbers)
        # Not after Ctrl-C: then there may be events that nobody has seen.
        self._become_regular()
        return results

    def raise_failures(self, envs: Sequence[int], results: Sequence[Any]) -> None:
        """Raises what environments raised when they were asked something."""
        self._questions.raise_failures(envs, results)

    def is_replacing(self) -> bool:
        """Says whether a new worker is on its way in the place of one that is gone."""
        return any(w.restart_at is not None or w.is_starting for w in self._workers)

    def present_envs(self) -> list[int]:
        """Returns the environments whose worker is there, or is being replaced."""
        owners = [self.worker_of_row[rows.start] for rows in self.rows_of_env]
        workers = enumerate(owners)
        return [env for env, worker in workers if self._workers[worker].crash is None]

    def note_seeds(self, seeds: Sequence[Any]) -> None:
        """Remembers what environments were seeded with, for those that replace them."""
        self._workforce.note_seeds(seeds)

    def note_seeds_of_rows(self, seeds: Sequence[int | None]) -> None:
        """Remembers the same of some rows; the seed of the others is `None`."""
        known = self._workforce.seeds or [None] * len(self.rows_of_env)
        self.note_seeds(
            [
                with_seeds(before, [seeds[row] for row in rows], self.is_batch[env])
                for env, (before, rows) in enumerate(
                    zip(known, self.rows_of_env, strict=True)
                )
            ]
        )

    # Facts, and the end.

    def worker_facts(self) -> list[tuple[int, bool, int, tuple[int, int]]]:
        """Returns, for each worker, its process, whether it is there, its memory."""
        return [
            (
                self._backend.pid(index),
                worker.is_ready,
                self._backend.resident(index),
                self.layout.blocks[index],
            )
            for index, worker in enumerate(self._workers)
        ]

    def wake(self) -> None:
        """Lets another thread that waits here know that the pool is about to close."""
        self._watch.close()
        wake = getattr(self._backend, "wake", None)
        if wake is not None:
            wake()

    def close(self, grace: float) -> None:
        """Ends the workers."""
        if not self._closed:
            self._closed = True
            self.wake()
            try:
                self._backend.close(grace)
            finally:
                # Those who look on from elsewhere would take it for one that rests.
                self.slab.staff[:, PROCESS] = CLOSED
                # Somebody may hold the pool for long; its memory is of no use to them.
                self._book.close()
                del self.slab
