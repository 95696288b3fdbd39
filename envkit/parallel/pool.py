"""`Pool`: sends requests to rows and environments, and returns their answers.

Its parts are

- `Workers`: the workers and their states;
- `Rows`: the environment and the progress of each row;
- `Events`: waits, and handles events meanwhile;
- `Restarts`: decides whether a lost worker or environment is replaced;
- observers: the chosen extras, which receive the pool's events.

A request to a row is a number in the slab, and so is its answer. Nothing else records
which rows owe an answer. So Ctrl-C may come anywhere: the next call finds the
interrupted call's requests in the slab, and first waits for their answers.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from envkit._internal.text import listed
from envkit.errors import ConstructorError, SpecMismatchError, WorkerError
from envkit.parallel import failures
from envkit.parallel.backends.base import Backend, Event
from envkit.parallel.endings import gone
from envkit.parallel.events import Events
from envkit.parallel.messages import (
    Hello,
    RemoteFailure,
    Request,
    may_change,
    question_text,
)
from envkit.parallel.observers import PoolObserver, RowObserver
from envkit.parallel.options import PoolOptions
from envkit.parallel.pool_clock import FIRST_NOTICE, POLL_INTERVAL, PoolClock
from envkit.parallel.row_sets import are_among
from envkit.parallel.row_states import Rows
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import STEP, shareable
from envkit.parallel.system.ctrl_c import uninterrupted
from envkit.parallel.workers import Question, Workers
from envkit.specs.batching import mixed_continues
from envkit.specs.environment_spec import common_info_spec
from envkit.types import Array, EnvConstructor

__all__ = ["Pool"]

# Seconds for workers to end if the pool failed to start, or its start was interrupted.
_START_GRACE, _HASTY_GRACE = 1.0, 0.1
# Seconds for the environments of removed rows to close.
_SHRINK_GRACE = 5.0


class Pool:
    """Runs rows on workers and keeps every row's stream grammatical.

    Attributes:
        spec: The specs of one environment.
        own_specs: The specs of each environment.
        layout: Where the rows are.
        rows: The progress of each row, until `close`.
        num_rows: The number of rows.
        slab: The rows' memory, until `close`.
        workers: The workers.
        observers: The extras that receive events.
        repaired: Mask of rows whose last time step was made up for a lost environment.
        errors: The error of each BROKEN row.
        begun: Mask of rows that have ever begun an episode.
        is_batch: For each environment, whether it is a batch itself.
        env_of_row: The index of each row's environment.
        rows_of_env: The rows of each environment.
        worker_of_row: The index of each row's worker.
        continues: Whether no `FIRST` follows a `LAST`.
    """

    def __init__(
        self,
        constructors: Sequence[EnvConstructor],
        backend: Backend,
        options: PoolOptions,
        attach: Callable[[Pool], Sequence[PoolObserver]] | None = None,
    ) -> None:
        """Starts workers and waits until all environments are built.

        Args:
            constructors: A constructor for each environment.
            backend: The backend that runs them; `close` closes it.
            options: The options of the pool's constructor.
            attach: Returns the observers; it is called when all workers are ready.
        """
        self._backend = backend
        self._options = options
        self._now = backend.now
        self._clock = PoolClock(backend.now)
        self._closed = False
        self.workers = Workers(constructors, backend, options, self._clock)
        self.observers: list[PoolObserver] = []
        self._row_observers: list[RowObserver] = []
        try:
            hellos = self.workers.start()
            sizes = [hello.batch_sizes for hello in hellos]
            info_spec = common_info_spec(
                [spec for hello in hellos for spec in hello.info_specs or [{}]]
            )
            rows = Rows(self.workers.spec, sizes, shareable(info_spec))
            self.continues = self._continue_after_last(hellos)
            self._adopt(rows, backend.bind(rows.layout))
            self._events = Events(
                backend, self.workers, rows, options, self._clock, self.observers
            )
            timeout = options.step_timeout
            self._patience = (
                FIRST_NOTICE if timeout is None else min(timeout, POLL_INTERVAL)
            )
            if attach is not None:
                self.observers += attach(self)
            self._row_observers += [
                each for each in self.observers if isinstance(each, RowObserver)
            ]
        except BaseException as error:
            # Someone is waiting, and half-built environments don't need the time.
            in_haste = isinstance(error, KeyboardInterrupt | SystemExit)
            backend.close(_HASTY_GRACE if in_haste else _START_GRACE)
            raise

    def _continue_after_last(self, hellos: Sequence[Hello]) -> bool:
        """Returns whether environments continue after a `LAST`; all must or none."""
        said = [one for hello in hellos for one in hello.continues]
        if any(said) and not all(said):
            makers = [self.workers.maker(env) for env in range(len(said))]
            raise ConstructorError(mixed_continues(said, makers))
        return any(said)

    def _adopt(self, rows: Rows, slab: Slab) -> None:
        """Takes over rows and their slab, and caches whatever every step reads."""
        self.layout = rows.layout
        self.spec = rows.layout.spec
        self.own_specs = self.workers.specs
        self.num_rows = rows.layout.rows
        self.is_batch = rows.is_batch
        self.rows_of_env = rows.rows_of_env
        self.env_of_row = rows.env_of_row
        self.worker_of_row = rows.worker_of_row
        self.slab = slab
        rows.bind(slab)
        rows.observers = self._row_observers
        self.repaired = rows.repaired
        self.errors = rows.errors
        self.begun = rows.begun
        self.rows = rows
        self._all_rows = np.arange(self.num_rows)
        self._has_objects = bool(self.layout.private_steps)

    @property
    def is_regular(self) -> bool:
        """True if all rows use the same slot and none is in a special state."""
        # Hot: called once per batch step.
        return (
            not self.workers.unready
            and self.rows.are_plain()
            and self.slab.are_aligned()
        )

    def counts(self, worker: int) -> dict[str, int]:
        """Returns the observers' counts for a worker."""
        return {
            name: count
            for observer in self.observers
            for name, count in observer.counts(worker).items()
        }

    # All rows together.

    def step_all(self) -> bool:
        """Steps every row of a regular pool, and waits until all have answered.

        The actions must have been written. `errors` then has the rows that failed.

        Returns:
            True if nothing special happened meanwhile.
        """
        # Hot: called once per batch step.
        for observer in self._row_observers:
            if observer.is_due():
                self.run(self._all_rows, STEP)
                return False
        try:
            began, is_regular = self._now(), True
            for observer in self._row_observers:
                observer.asked_all()
            self.slab.request_all(STEP)
            self._backend.dispatch(None)
            queue = self._backend.wait_events(self._patience, 0)
            if queue or self._has_objects or not self.slab.all_answered():
                is_regular = False
                self._finish_step(began)
            self.rows.set_all_returned()
            for observer in self._row_observers:
                observer.answered()
        except Exception:
            # Another thread that closes the pool removes everything.
            self._events.check_open()
            raise
        return is_regular

    def _finish_step(self, began: float) -> None:
        """Waits for the rows that `step_all` asked, and handles their failures."""
        clock = self._clock
        since = clock.now(began)
        due = since + (self._options.step_timeout or np.inf)
        self.rows.set_sent(self._all_rows, due, clock.away)
        clock.end_wait(self._patience)
        self._finish(self._all_rows, since)

    def run(self, rows: Array, command: int | Array) -> None:
        """Asks the given rows and waits until they have answered or failed.

        Args:
            rows: The rows.
            command: One command for all, or one for each.
        """
        try:
            self.settle()
            since = self._clock.now()
            self.submit(rows, command)
            self._finish(rows, since)
            self._report_answered()
        except Exception:
            self._events.check_open()
            raise

    def _finish(self, rows: Array, since: float) -> None:
        self.wait_for(rows, since=since)
        self._align(rows)

    def finish(self, rows: Array) -> None:
        """Waits until all these rows have answered or failed."""
        try:
            self.wait_for(rows)
            self._align(rows)
            self._report_answered()
        except Exception:
            self._events.check_open()
            raise

    def _align(self, moved: Array) -> None:
        """Moves all rows to one slot: that of the rows that have just moved."""
        whole = moved
        if self.errors:
            whole = moved[~are_among(moved, self.errors)]
        self.rows.align(whole)

    def _report_answered(self) -> None:
        for observer in self._row_observers:
            observer.answered()

    def settle(self) -> None:
        """Waits for the requests of an interrupted call, and drops their answers."""
        if not self.is_regular:
            self.wait_for(self._all_rows)
            self._align(self._all_rows)

    # Some of the rows.

    def submit(self, rows: Array, command: int | Array) -> None:
        """Asks rows that owe nothing, with their actions already written.

        Rows whose worker is lost for good are BROKEN afterwards.
        """
        # Hot in asynchronous use: called once per batch of any size.
        for observer in self._row_observers:
            observer.prepare()
        if self._events.is_plain:
            self.rows.request(rows, command)
        else:
            with uninterrupted():
                self._submit_special(rows, np.broadcast_to(command, rows.shape))
        self._events.send()

    def _submit_special(self, rows: Array, commands: Array) -> None:
        """Asks rows of which some have a new environment, or currently none."""
        self.repaired[rows] = False
        for row in rows.tolist() if self.errors else ():
            self.errors.pop(row, None)
        ready = np.array([worker.is_ready for worker in self.workers.workers])
        special = (self.rows.begin[rows] != 0) | ~ready[self.worker_of_row[rows]]
        for row, command in zip(
            rows[special].tolist(), commands[special].tolist(), strict=True
        ):
            crash = self.workers.workers[self.worker_of_row[row]].crash
            if crash is not None:
                self.rows.break_row(row, crash)
            else:
                self.rows.resume(row, command)
        if not special.all():
            self.rows.request(rows[~special], commands[~special])
        self._events.release()

    def check_alive(self, rows: Array, call: str) -> None:
        """Raises if the worker of one of these rows is lost for good."""
        # Hot in asynchronous use: called once per send.
        for worker in sorted(self.workers.unready):
            crash = self.workers.workers[worker].crash
            if crash is not None and (self.worker_of_row[rows] == worker).any():
                raise gone(crash, call)

    def wait_for(self, rows: Array, *, since: float | None = None) -> None:
        """Waits until these rows have answered or failed.

        Args:
            rows: The rows.
            since: When the caller began to wait, if earlier.
        """
        self._events.wait(lambda: not self.rows.busy(rows), rows, since=since)

    def wait(self, count: int, rows: Array, timeout: float | None) -> None:
        """Waits until `count` of the rows have finished, or one of them is BROKEN.

        `rows` must be all rows that owe an answer.
        """
        known, began = self.rows, self._now()
        may_owe = rows.size - count
        if timeout is None and self._events.wait_plainly(may_owe, self._patience):
            return

        def is_over() -> bool:
            return known.busy(rows) <= may_owe or bool(
                self.errors and known.broken(rows).size
            )

        since = self._clock.now(began)
        deadline = None if timeout is None else since + timeout
        self._events.wait(
            is_over, rows, may_owe=may_owe, deadline=deadline, since=since
        )

    def wait_until(self, is_over: Callable[[], bool]) -> None:
        """Waits for a condition that does not involve rows' answers."""
        self._events.wait(is_over)

    def set_restored(self, begun: Sequence[bool], new_rows: Sequence[int]) -> None:
        """Brings rows to where their restored environments are."""
        with uninterrupted():
            self.rows.set_restored(begun, new_rows)
            for observer in self.observers:
                observer.restored()

    def restore(
        self, worker: int, method: str, plans: Mapping[int, Any], steps: int
    ) -> None:
        """Makes a new worker restore its environments before it counts as ready.

        Observers call it from `started`, and get the results by `replied`.

        Args:
            worker: The worker.
            method: The request's method.
            plans: The request's argument for each environment.
            steps: The timeout, in steps: it may take as long as this many.
        """
        self._events.restore(worker, method, plans, steps)

    # Changing the number of rows.

    def grow(
        self, constructors: Sequence[EnvConstructor], workers: int, rows: int, lag: int
    ) -> None:
        """Appends environments in new workers, or changes nothing.

        Args:
            constructors: Their constructors.
            workers: The number of new workers.
            rows: How many rows the pool must have then.
            lag: How many requests the new rows are behind row 0.

        Raises:
            WorkerError: They cannot be built.
            ValueError: They have a different number of rows.
        """
        self._await_workers()
        envs, first = len(self.rows_of_env), len(self.workers.workers)
        others: deque[Event] = deque()
        has_moved = False
        try:
            hellos = self.workers.start_more(constructors, workers, others)
            grown = self._grown(hellos, rows)
            with uninterrupted():
                self._move(grown, lag)
                has_moved = True
        except BaseException:
            if has_moved:
                self.shrink(envs)
            else:
                gone = range(first, len(self.workers.workers))
                self.workers.cut(envs)
                self._backend.retire(gone, _HASTY_GRACE)
            raise
        finally:
            self._events.handle(others)

    def _grown(self, hellos: Sequence[Hello], count: int) -> Rows:
        """Returns the rows, with those of the new workers appended."""
        sizes = [hello.batch_sizes for hello in hellos]
        rows = Rows(
            self.spec, [*self.rows.batch_sizes, *sizes], dict(self.layout.info_spec)
        )
        if rows.layout.rows != count:
            raise ValueError(
                f"num_envs must be {rows.layout.rows}, as many rows as there are with "
                f"the {rows.layout.rows - self.num_rows} of the new environments, got "
                f"{count}."
            )
        if any(
            hello.continues != (self.continues,) * len(hello.specs) for hello in hellos
        ):
            raise SpecMismatchError(
                "The new environments must have the same continues_after_last as those "
                f"that the pool has, which is {self.continues}."
            )
        known = self.layout.info_spec
        declared = [spec for hello in hellos for spec in hello.info_specs or [{}]]
        if shareable(common_info_spec([known, *declared])) != known:
            raise SpecMismatchError(
                "The new environments declare less of their infos than those that the "
                f"pool has: info_spec() must have {listed(known)}, in the same specs. "
                "Make a pool with all of them."
            )
        return rows

    def shrink(self, envs: int) -> None:
        """Keeps the first environments, and ends the others and their workers."""
        self._await_workers()
        sizes, left = [], envs
        for worker in self.rows.batch_sizes:
            if left > 0:
                sizes.append(worker[:left])
            left -= len(worker)
        rows = Rows(self.spec, sizes, dict(self.layout.info_spec))
        count = len(self.workers.workers)
        last = len(sizes) - 1
        is_cut = sizes[last] != self.rows.batch_sizes[last]
        has_moved = False
        try:
            with uninterrupted():
                self._move(rows)
                has_moved = True
        finally:
            if has_moved:
                self._backend.retire(range(len(sizes), count), _SHRINK_GRACE)
        if is_cut:
            self._await_close(last)

    def _await_workers(self) -> None:
        """Waits until no worker is being replaced."""
        self._events.wait(self.workers.are_settled)

    def _move(self, rows: Rows, lag: int = 0) -> None:
        """Switches to a different number of rows, none of which owes an answer."""
        before, old = self.rows, self.slab
        slab = self._backend.bind(rows.layout)
        # Nothing after this can fail.
        self.workers.cut(len(rows.rows_of_env))
        count = before.layout.rows
        if rows.layout.rows > count:
            number = slab.numbers[0] - np.uint32(2 * lag)
            slab.stand_at(slice(count, None), number)
        self._adopt(rows, slab)
        rows.adopt(before)
        self._events.move(rows)
        for observer in self.observers:
            observer.resized(old)
        before.close()

    def _await_close(self, worker: int) -> None:
        """Waits until a worker has closed the environments that lost their rows."""
        number = next(self.workers.numbers)
        question = Question(number, "resize()", ())
        self.workers.workers[worker].question = question
        self._backend.request(worker, Request(number, "access", (), ()))
        # If this kills the worker, the next call handles that.
        with contextlib.suppress(WorkerError):
            self.answers([question], [])

    # Questions to environments.

    def ask(
        self, method: str, envs: Sequence[int], arguments: Sequence[Any]
    ) -> list[Any]:
        """Asks environments a question; returns a value or a failure for each.

        It first waits for busy rows. The workers answer in parallel.
        """
        try:
            results = self.ask_once(method, envs, arguments)
        except WorkerError:
            # Environments that continue after recovery have not been asked; ask once
            # more.
            if not self.workers.continuing or may_change(method, arguments[0]):
                raise
            results = self.ask_once(method, envs, arguments)
        self._report_answered()
        return results

    def ask_once(
        self, method: str, envs: Sequence[int], arguments: Sequence[Any]
    ) -> list[Any]:
        """Does the same as `ask`, but does not repeat the question after a recovery."""
        return self.answers(self.post(method, envs, arguments), envs)

    def post(
        self, method: str, envs: Sequence[int], arguments: Sequence[Any]
    ) -> list[Question]:
        """Sends one question to each worker of these environments."""
        by_worker: dict[int, list[int]] = {}
        for position, env in enumerate(envs):
            by_worker.setdefault(self.worker_of(env), []).append(position)
        self.check_alive(
            np.array([self.rows_of_env[env].start for env in envs], np.intp), method
        )
        rows = np.flatnonzero(are_among(self.worker_of_row, by_worker))
        self._events.wait(
            lambda: self.workers.are_idle(by_worker) and not self.rows.busy(rows),
            rows,
        )
        self.check_alive(rows, method)
        text = question_text(method, arguments)
        questions = []
        for worker, positions in by_worker.items():
            question = Question(next(self.workers.numbers), text, positions)
            request = Request(
                question.number,
                method,
                tuple(envs[position] for position in positions),
                tuple(arguments[position] for position in positions),
            )
            questions.append(question)
            question.seeds_before = self.workers.seeds.change(request, self.is_batch)
            for observer in self.observers:
                observer.questioned(worker, request)
            self.workers.workers[worker].question = question
            try:
                self._backend.request(worker, request)
            except BaseException:
                # It may or may not have gone out; nobody waits for its answer.
                self._forget(questions)
                raise
        return questions

    def answers(self, questions: Sequence[Question], envs: Sequence[int]) -> list[Any]:
        """Waits for the answers to questions about these environments."""
        try:
            self._events.wait(
                lambda: all(question.answer is not None for question in questions)
            )
        finally:
            self._forget(questions)
        results: list[Any] = [None] * len(envs)
        for question in questions:
            if isinstance(question.answer, WorkerError):
                raise question.answer
            assert question.answer is not None  # the wait is over
            for position, result in zip(
                question.positions, question.answer.results, strict=True
            ):
                results[position] = result
        return results

    def _forget(self, questions: Sequence[Question]) -> None:
        """Stops waiting for the answers to these questions.

        Their workers count as idle: a pending question is answered before any later
        one, because both take the same channel.
        """
        for index, worker in enumerate(self.workers.workers):
            if worker.question is not None and worker.question in questions:
                worker.question = None
                for observer in self.observers:
                    observer.abandoned(index)

    def raise_failures(self, envs: Sequence[int], results: Sequence[Any]) -> None:
        """Raises the exceptions among the answers of environments."""
        problems = [
            failures.raised(
                self.worker_of(env),
                result,
                self.workers.maker(env),
                "",
                envs=(env,),
            )
            for env, result in zip(envs, results, strict=True)
            if isinstance(result, RemoteFailure)
        ]
        if problems:
            raise failures.joined(problems)

    def worker_of(self, env: int) -> int:
        """Returns the worker of an environment."""
        return int(self.worker_of_row[self.rows_of_env[env].start])

    def present_envs(self) -> list[int]:
        """Returns the environments whose worker is ready or being replaced."""
        workers = self.workers.workers
        return [
            env
            for env in range(len(self.rows_of_env))
            if workers[self.worker_of(env)].crash is None
        ]

    # The end.

    def wake(self) -> None:
        """Ends the waits of other threads, because the pool is about to close."""
        self._events.close()
        self._backend.wake()

    def close(self, grace: float) -> None:
        """Ends the workers."""
        if not self._closed:
            self._closed = True
            self.wake()
            try:
                self._backend.close(grace)
            finally:
                for observer in self.observers:
                    observer.closed()
                # The pool object may live on; its memory must not.
                self.rows.close()
                del self.slab
