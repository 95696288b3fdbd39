"""`Pool`: asks rows and environments, and hands out what they answer.

Beside it there are

- `Workers`: which workers there are, and how they are;
- `Rows`: whose every row is, and how far it has come;
- `Events`: waits, and carries out what happens meanwhile;
- `Restarts`: decides whether a worker or an environment that is lost is replaced;
- `Recovery`, if it was chosen: lets the environments of a lost worker continue.

A request to a row is a number in the slab, and so is its answer: which rows owe one
stands nowhere else. Ctrl-C may come anywhere, because the next call finds there what
the interrupted one has asked, and waits for it before it goes on.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit._internal.text import listed
from envkit.errors import ConstructorError, SpecMismatchError, WorkerError
from envkit.parallel import failures
from envkit.parallel.backends.base import Backend, Event
from envkit.parallel.durability.memory_limit import Turnover
from envkit.parallel.durability.recovery import Recovery, may_change
from envkit.parallel.events import Events
from envkit.parallel.messages import Hello, RemoteFailure, Request, question_text
from envkit.parallel.options import PoolOptions
from envkit.parallel.row_sets import are_among
from envkit.parallel.row_states import Rows
from envkit.parallel.slab import (
    CLOSED,
    MOVED,
    PROCESS,
    STEP,
    Slab,
    shareable,
)
from envkit.parallel.system.ctrl_c import uninterrupted
from envkit.parallel.worker.environments import with_seeds
from envkit.parallel.workers import (
    FIRST_NOTICE,
    POLL_INTERVAL,
    Question,
    Workers,
    standstill,
)
from envkit.specs.batching import mixed_continues
from envkit.specs.environment_spec import common_info_spec
from envkit.types import Array, EnvConstructor

__all__ = ["Pool"]

# How long workers have to end if the pool could not be started, or was not to be.
_START_GRACE, _HASTY_GRACE = 1.0, 0.1
# How long the environments of rows that go have to close.
_SHRINK_GRACE = 5.0


class Pool:
    """Runs rows on workers and keeps every row's stream grammatical.

    Attributes:
        spec: The specs of one environment.
        own_specs: The specs of each environment.
        layout: Where the rows are.
        rows: How far each row has come, until `close`.
        num_rows: How many rows there are.
        slab: The rows, until `close`.
        is_regular: True if all rows stand in one slot and nothing is special about any
            of them or of the workers. A call that is interrupted by Ctrl-C while it
            steps all rows leaves it true; that rows owe answers the slab tells.
        repaired: Which rows' last time step was made up for an environment that is
            gone.
        errors: For each BROKEN row, why.
        begun: Which rows have ever begun an episode.
        is_batch: For each environment, whether it is a batch itself.
        env_of_row: For each row, the index of its environment.
        rows_of_env: For each environment, its rows.
        worker_of_row: For each row, the index of its worker.
        continues: Whether no `FIRST` follows a `LAST`.
    """

    def __init__(
        self,
        constructors: Sequence[EnvConstructor],
        backend: Backend,
        options: PoolOptions,
    ) -> None:
        """Starts workers and waits until all environments are built.

        Args:
            constructors: What to call for each environment.
            backend: Where they run; `close` closes it.
            options: What may be chosen.
        """
        self._backend = backend
        self._options = options
        self._now = backend.now
        self._closed = False
        self._workers = Workers(constructors, backend, options)
        try:
            hellos = self._workers.start(self._now)
            sizes = [hello.batch_sizes for hello in hellos]
            info_spec = common_info_spec(
                [spec for hello in hellos for spec in hello.info_specs or [{}]]
            )
            rows = Rows(self._workers.spec, sizes, shareable(info_spec))
            self.continues = self._continue_after_last(hellos)
            self._take(rows, backend.bind(rows.layout))
            self._recovery = self._recovery_of(rows)
            self._events = Events(
                backend, self._workers, rows, options, self._now, self._recovery
            )
            self._turnover = self._turnover_of(rows)
            self._has_sent_ahead = False
            timeout = options.step_timeout
            self._patience = (
                FIRST_NOTICE if timeout is None else min(timeout, POLL_INTERVAL)
            )
        except BaseException as error:
            # A person waits, and what is being built could not use the time.
            in_haste = isinstance(error, KeyboardInterrupt | SystemExit)
            backend.close(_HASTY_GRACE if in_haste else _START_GRACE)
            raise

    def _continue_after_last(self, hellos: Sequence[Hello]) -> bool:
        """Returns whether environments continue after a `LAST`, as all or none do."""
        said = [one for hello in hellos for one in hello.continues]
        if any(said) and not all(said):
            makers = [self._workers.maker(env) for env in range(len(said))]
            raise ConstructorError(mixed_continues(said, makers))
        return any(said)

    def _take(self, rows: Rows, slab: Slab) -> None:
        """Takes rows and their slab, and what of these is read at every step."""
        self.layout = rows.layout
        self.spec = rows.layout.spec
        self.own_specs = self._workers.specs
        self.num_rows = rows.layout.rows
        self.is_batch = rows.is_batch
        self.rows_of_env = rows.rows_of_env
        self.env_of_row = rows.env_of_row
        self.worker_of_row = rows.worker_of_row
        self.slab = slab
        processes = [worker.process for worker in self._workers.workers]
        self.slab.write_fact(PROCESS, processes)
        rows.bind(slab)
        self.repaired = rows.repaired
        self.errors = rows.errors
        self.begun = rows.begun
        self.rows = rows
        self._all_rows = np.arange(self.num_rows)
        self.is_regular = True
        self._has_objects = bool(self.layout.private_steps)

    def _recovery_of(self, rows: Rows) -> Recovery | None:
        """Returns what lets environments continue, if that was chosen."""
        policy, backend = self._options.policy, self._backend
        # In the caller's own thread no worker ends.
        if policy is None or policy.recover is None or backend.name == "inline":
            return None
        recovery = Recovery(
            rows, policy, backend.keeps_answers, keeps_states=backend.keeps_states
        )
        rows.note = recovery.note
        return recovery

    def _turnover_of(self, rows: Rows) -> Turnover | None:
        """Returns what replaces workers that hold too much memory, if that is asked."""
        limit, backend = self._options.max_worker_memory, self._backend
        if limit is None:
            return None
        if not backend.can_kill or not backend.keeps_states:
            raise ValueError(
                "max_worker_memory must be None here: the workers of "
                f"backend={backend.name!r} are no processes of this pool that it could "
                "replace."
            )
        return Turnover(rows, self._workers, backend, limit, self._now)

    @property
    def restarts(self) -> list[int]:
        """How often each worker, or an environment in it, was replaced."""
        return [worker.restarts for worker in self._workers.workers]

    @property
    def replaced(self) -> list[int]:
        """How often each worker was replaced because it held too much memory."""
        return [worker.replaced for worker in self._workers.workers]

    def _turn_over(self, turnover: Turnover) -> None:
        """Replaces workers that hold too much memory, where episodes have ended."""
        # Unless seeds or options were sent ahead, which the new ones would not have.
        if self._has_sent_ahead or not (workers := turnover.due()):
            return
        try:
            for worker in workers:
                turnover.replace(worker, self._ask_once, self._events.wait)
        finally:
            if self._recovery is not None:
                self._recovery.note_states()
            self._events.note_plain()

    @property
    def recovered(self) -> Sequence[int]:
        """For each worker, how many environments have continued after a crash."""
        if self._recovery is None:
            return [0] * len(self._workers.workers)
        return self._recovery.recovered

    def _renew_anchors(self) -> None:
        """Asks environments for their states, from which others can continue."""
        if self._recovery is not None and self._recovery.is_due:
            is_ready = [worker.is_ready for worker in self._workers.workers]
            self._recovery.renew(self.ask, is_ready)

    # Rows, all together.

    def step_all(self) -> None:
        """Steps every row of a regular pool, and waits until all have answered.

        Actions have been written before. Which rows failed, `errors` says.
        """
        # Hot: called once per batch step.
        if self._turnover is not None and self._turnover.due():
            self.run(self._all_rows, STEP)
            return
        try:
            began = self._now()
            if self._has_objects:
                self.is_regular = False
            if self._recovery is not None:
                self._recovery.note_all()
            self.slab.request_all(STEP)
            self._backend.dispatch(None)
            queue = self._backend.wait_events(self._patience, 0)
            if queue or self._has_objects or not self.slab.all_answered():
                self._finish_step(began)
            self.rows.take_all()
            if self._recovery is not None:
                self._renew_anchors()
        except Exception:
            # Another thread that closes the pool takes everything away.
            self._events.check_open()
            raise

    def _finish_step(self, began: float) -> None:
        """Waits for the rows that `step_all` has asked, whatever happens to them."""
        self.is_regular = False
        due = began + standstill(began + self._patience, self._now())
        due += self._options.step_timeout or np.inf
        self.rows.note_sent(self._all_rows, due)
        self._finish(self._all_rows, began)

    def run(self, rows: Array, command: int | Array) -> None:
        """Asks the given rows and waits until they have answered or failed.

        Args:
            rows: The rows.
            command: What is asked of all, or of each of them.
        """
        try:
            self.settle()
            began = self._now()
            self.submit(rows, command)
            self._finish(rows, began)
            self._renew_anchors()
        except Exception:
            self._events.check_open()
            raise

    def _finish(self, rows: Array, began: float) -> None:
        self.wait_for(rows, since=began)
        self._align(rows)

    def finish(self, rows: Array) -> None:
        """Waits until rows that were asked have answered or failed, all together."""
        try:
            self.wait_for(rows)
            self._align(rows)
            self._renew_anchors()
        except Exception:
            self._events.check_open()
            raise

    def _align(self, moved: Array) -> None:
        """Lets all rows stand in one slot, that of those that have moved."""
        whole = moved
        if self.errors:
            whole = moved[~are_among(moved, self.errors)]
        self.rows.align(whole)
        self.is_regular = self._events.is_plain

    def settle(self) -> None:
        """Waits for what an interrupted call has left, and drops its answers."""
        if not self.is_regular or not self.slab.all_answered():
            self.wait_for(self._all_rows)
            self._align(self._all_rows)

    # Rows, some of them.

    def submit(self, rows: Array, command: int | Array) -> None:
        """Asks rows that owe nothing; their actions have been written.

        Those whose worker stays gone are BROKEN afterwards.
        """
        # Hot in asynchronous use: called once per batch of any size.
        self.is_regular = False
        self._renew_anchors()
        if self._turnover is not None:
            self._turn_over(self._turnover)
        self.is_regular = self._has_sent_ahead = False
        if self._events.is_plain:
            self.rows.request(rows, command)
        else:
            with uninterrupted():
                self._submit_special(rows, np.broadcast_to(command, rows.shape))
        self._events.send()

    def _submit_special(self, rows: Array, commands: Array) -> None:
        """Asks rows some of which have a new environment, or none at the moment."""
        self.repaired[rows] = False
        for row in rows.tolist() if self.errors else ():
            self.errors.pop(row, None)
        ready = np.array([worker.is_ready for worker in self._workers.workers])
        special = (self.rows.begin[rows] != 0) | ~ready[self.worker_of_row[rows]]
        for row, command in zip(
            rows[special].tolist(), commands[special].tolist(), strict=True
        ):
            crash = self._workers.workers[self.worker_of_row[row]].crash
            if crash is not None:
                self.rows.break_row(row, crash)
            else:
                self.rows.take_up(row, command)
        if not special.all():
            self.rows.request(rows[~special], commands[~special])
        self._events.release()
        self._events.note_plain()

    def check_alive(self, rows: Array, call: str) -> None:
        """Raises if the worker of one of these rows stays gone."""
        # Hot in asynchronous use: called once per send.
        if self._events.is_plain:
            return
        for worker, entry in enumerate(self._workers.workers):
            if entry.crash is not None and (self.worker_of_row[rows] == worker).any():
                raise failures.gone(entry.crash, call)

    def wait_for(self, rows: Array, *, since: float | None = None) -> None:
        """Waits until these rows have answered or failed.

        Args:
            rows: The rows.
            since: When the caller began to wait, if before this.
        """
        self._events.wait(lambda: not self.rows.busy(rows), rows, since=since)

    def wait(self, count: int, rows: Array, timeout: float | None) -> None:
        """Waits until `count` of the rows have finished, or one of them is BROKEN.

        The rows are all that owe an answer.
        """
        known, began = self.rows, self._now()
        spare = rows.size - count
        if timeout is None and self._events.wait_plainly(spare, self._patience):
            return

        def is_over() -> bool:
            return known.busy(rows) <= spare or bool(
                self.errors and known.broken(rows).size
            )

        deadline = None if timeout is None else began + timeout
        self._events.wait(is_over, rows, spare=spare, deadline=deadline, since=began)

    def note_restored(self, begun: Sequence[bool], new_rows: Sequence[int]) -> None:
        """Notes that every environment has been given another state."""
        with uninterrupted():
            self.rows.note_restored(begun, new_rows)
            if self._recovery is not None:
                self._recovery.note_states()
            self._events.note_plain()
            self.is_regular = self._events.is_plain and self.rows.are_aligned()

    # Another number of rows.

    def grow(
        self, constructors: Sequence[EnvConstructor], workers: int, rows: int, lag: int
    ) -> None:
        """Adds environments behind the others, in new workers, or changes nothing.

        Args:
            constructors: What builds them.
            workers: How many new workers there are to be.
            rows: How many rows the pool is to have then.
            lag: By how many requests the new rows are behind the first.

        Raises:
            WorkerError: They cannot be built.
            ValueError: They have another number of rows.
        """
        self._await_workers()
        envs, first = len(self.rows_of_env), len(self._workers.workers)
        others: deque[Event] = deque()
        has_moved = False
        try:
            hellos = self._workers.start_more(constructors, workers, self._now, others)
            grown = self._grown(hellos, rows)
            with uninterrupted():
                self._move(grown, lag)
                has_moved = True
        except BaseException:
            if has_moved:
                self.shrink(envs)
            else:
                gone = range(first, len(self._workers.workers))
                self._workers.cut(envs)
                self._backend.retire(gone, _HASTY_GRACE)
            raise
        finally:
            self._events.take_in(others)

    def _grown(self, hellos: Sequence[Hello], count: int) -> Rows:
        """Returns the rows with those of new workers behind the others."""
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
        count = len(self._workers.workers)
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
        """Waits until no worker is on its way in the place of another."""
        self._events.wait(self._workers.are_settled)

    def _move(self, rows: Rows, lag: int = 0) -> None:
        """Goes on with another number of rows, of which none owes an answer."""
        before, old = self.rows, self.slab
        slab = self._backend.bind(rows.layout)
        # Nothing that can fail comes after this.
        self._workers.cut(len(rows.rows_of_env))
        count = before.layout.rows
        if rows.layout.rows > count:
            number = slab.numbers[0] - np.uint32(2 * lag)
            slab.stand_at(slice(count, None), number)
        self._take(rows, slab)
        rows.take_over(before)
        recovery = self._recovery_of(rows)
        if recovery is not None and self._recovery is not None:
            recovery.take_over(self._recovery)
        self._recovery = recovery
        self._events.move(rows, recovery)
        if self._turnover is not None:
            self._turnover.move(rows)
        self.is_regular = self._events.is_plain and rows.are_aligned()
        old.write_fact(PROCESS, MOVED)
        before.close()

    def _await_close(self, worker: int) -> None:
        """Waits until a worker has closed the environments without rows."""
        number = next(self._workers.numbers)
        question = Question(number, "resize()", ())
        self._workers.workers[worker].question = question
        self._backend.request(worker, Request(number, "access", (), ()))
        # One that ends over it is a matter of the call that comes next.
        with contextlib.suppress(WorkerError):
            self.answers([question], [])

    # Questions to environments.

    def ask(
        self, method: str, envs: Sequence[int], arguments: Sequence[Any]
    ) -> list[Any]:
        """Asks environments something; returns a value or a failure for each.

        Rows that are busy are waited for first. All workers answer at the same time.
        """
        if self._recovery is None:
            return self._ask_once(method, envs, arguments)
        try:
            results = self._ask_once(method, envs, arguments)
        except WorkerError:
            # Environments that continue have not been asked, and may be once more.
            if not self.is_replacing() or may_change(method, arguments[0]):
                raise
            results = self.answers(self.post(method, envs, arguments), envs)
        # The question may have left some of them without an anchor.
        self._renew_anchors()
        return results

    def _ask_once(
        self, method: str, envs: Sequence[int], arguments: Sequence[Any]
    ) -> list[Any]:
        return self.answers(self.post(method, envs, arguments), envs)

    def post(
        self, method: str, envs: Sequence[int], arguments: Sequence[Any]
    ) -> list[Question]:
        """Sends questions, one for each worker that has such environments."""
        by_worker: dict[int, list[int]] = {}
        for position, env in enumerate(envs):
            by_worker.setdefault(self._worker_of(env), []).append(position)
        self.check_alive(
            np.array([self.rows_of_env[env].start for env in envs], np.intp), method
        )
        rows = np.flatnonzero(are_among(self.worker_of_row, by_worker))
        self.is_regular = False
        self._events.wait(
            lambda: self._workers.are_idle(by_worker) and not self.rows.busy(rows),
            rows,
        )
        self.check_alive(rows, method)
        self._has_sent_ahead |= method in ("reset", "seed", "seed_rows")
        text = question_text(method, arguments)
        questions = []
        for worker, positions in by_worker.items():
            question = Question(next(self._workers.numbers), text, positions)
            request = Request(
                question.number,
                method,
                tuple(envs[position] for position in positions),
                tuple(arguments[position] for position in positions),
            )
            questions.append(question)
            if self._recovery is not None:
                self._recovery.note_question(question, worker, request)
            self._workers.workers[worker].question = question
            try:
                self._backend.request(worker, request)
            except BaseException:
                # It may have gone out or not, and its answer is not waited for.
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
        # Not after Ctrl-C, which leaves events that nothing has been made of.
        self.is_regular = self._events.is_plain and self.rows.are_aligned()
        results: list[Any] = [None] * len(envs)
        for question in questions:
            if isinstance(question.answer, WorkerError):
                raise question.answer
            assert question.answer is not None  # since it was waited for
            for position, result in zip(
                question.positions, question.answer.results, strict=True
            ):
                results[position] = result
        return results

    def _forget(self, questions: Sequence[Question]) -> None:
        """Notes that the answers to these questions are not waited for any more.

        One that is still out there is answered before what is asked later, since both
        take the same way, so its worker counts as idle.
        """
        for worker in self._workers.workers:
            question = worker.question
            if question is not None and question in questions:
                question.is_awaited = False
                worker.question = None

    def raise_failures(self, envs: Sequence[int], results: Sequence[Any]) -> None:
        """Raises what environments raised when they were asked something."""
        problems = [
            failures.raised(
                self._worker_of(env),
                result,
                self._workers.maker(env),
                "",
                envs=(env,),
            )
            for env, result in zip(envs, results, strict=True)
            if isinstance(result, RemoteFailure)
        ]
        if problems:
            raise failures.joined(problems)

    def _worker_of(self, env: int) -> int:
        return int(self.worker_of_row[self.rows_of_env[env].start])

    def is_replacing(self) -> bool:
        """True if a new worker is on its way in the place of one that is gone."""
        return not self._workers.are_settled()

    def present_envs(self) -> list[int]:
        """Returns the environments whose worker is there, or is being replaced."""
        workers = self._workers.workers
        return [
            env
            for env in range(len(self.rows_of_env))
            if workers[self._worker_of(env)].crash is None
        ]

    def note_seeds(self, seeds: Sequence[Any]) -> None:
        """Remembers what environments were seeded with, for those that replace them."""
        self._workers.note_seeds(seeds)

    def note_new_seeds(self, first: int, seeds: Sequence[Any]) -> None:
        """Remembers the same of the environments from some on."""
        known = self._workers.seeds or [None] * len(self.rows_of_env)
        self.note_seeds([*known[:first], *seeds])

    def note_seeds_of_rows(self, seeds: Sequence[int | None]) -> None:
        """Remembers the same of some rows; the seed of the others is `None`."""
        known = self._workers.seeds or [None] * len(self.rows_of_env)
        self.note_seeds(
            [
                with_seeds(before, [seeds[row] for row in rows], self.is_batch[env])
                for env, (before, rows) in enumerate(
                    zip(known, self.rows_of_env, strict=True)
                )
            ]
        )

    def known_seeds(self) -> tuple[list[Any] | None, list[int]]:
        """Returns what those that replace environments are seeded with.

        Returns:
            The seeds, if there are any, and for each environment how often its worker
            was restarted.
        """
        restarts = [
            self._workers.restarts_of(env, self._worker_of(env))
            for env in range(len(self.rows_of_env))
        ]
        return self._workers.seeds, restarts

    def continue_seeds(self, seeds: list[Any] | None, restarts: list[int]) -> None:
        """Continues with what `known_seeds` of another pool returned."""
        self._workers.seeds = seeds
        self._workers.earlier_restarts = list(restarts)

    # Facts, and the end.

    def worker_facts(self) -> list[tuple[int, str, bool, int, tuple[int, int]]]:
        """Returns each worker's process, machine, whether it is there, its memory."""
        facts = []
        for index, worker in enumerate(self._workers.workers):
            pid = self._backend.pid(index)
            # Another thread may replace it meanwhile: the worker that is there must be
            # this process, and have one.
            is_there = worker.is_ready and worker.pid == pid > 0
            resident = self._backend.resident(index)
            block = self.layout.blocks[index]
            facts.append((pid, worker.host, is_there, resident, block))
        return facts

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
                # To other processes it would look like a pool that rests.
                self.slab.write_fact(PROCESS, CLOSED)
                # Even if the pool itself is kept for long, its memory is not.
                self.rows.close()
                del self.slab
