"""`WorkerPool`: who is busy, who is gone, and what the caller gets to see.

The state of one row:

```
           submit                  row answered              take
 READY ───────────────▶ BUSY ───────────────────▶ FINISHED ─────────▶ READY
   ▲                      │ raised, died, late
   │ repaired (FINISHED)  ▼
   └──────────────────  lost  ──(no restart allowed)──▶ BROKEN ──(reset)──▶ BUSY
```

What a lost row returns keeps its stream grammatical. In the middle of an episode it is
a `LAST` with the last whole observation, and the next step returns the `FIRST` of the
new environment; where a `FIRST` was due, it is the new environment's.

Ctrl-C may come anywhere. Requests are numbered and the numbers lie in the slab, so
whatever was interrupted is found there by the next call.
"""

from __future__ import annotations

import functools
import itertools
import logging
import operator
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envkit.errors import WorkerError
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
from envkit.parallel.hosting import derived_seed
from envkit.parallel.messages import (
    ExitReport,
    Hello,
    RemoteFailure,
    Request,
    WorkerJob,
)
from envkit.parallel.slab import (
    REBUILD,
    RESET,
    SAME_STEP_SLOT,
    STEP,
    STEPS,
    Slab,
    SlabLayout,
    slot_of,
)
from envkit.parallel.supervision import Replace, RestartPolicy, Supervisor
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.time_step import StepType
from envkit.types import Array, EnvConstructor
from envkit.wording import listed

__all__ = ["PoolOptions", "WorkerPool"]

_LOGGER = logging.getLogger(__name__)

READY, BUSY, FINISHED, BROKEN = range(4)

# Without a timeout a call may wait, but not silently.
_FIRST_NOTICE = 10.0
_NEXT_NOTICE = 60.0

_SAME_STEP = 1
_COMMANDS = {STEP: "step", RESET: "reset", REBUILD: "rebuild"}


@dataclass(frozen=True)
class PoolOptions:
    """What may be chosen about a pool."""

    num_workers: int
    start_serially: bool = True
    policy: RestartPolicy | None = None
    start_timeout: float | None = None
    reset_timeout: float | None = None
    step_timeout: float | None = None
    worker_setup: str | Callable[[], Any] | None = None
    validate: str = "first"
    rings_each_row: bool = False


class _Worker:
    """What the pool knows about one worker."""

    __slots__ = (
        "constructors",
        "crash",
        "doing",
        "first_env",
        "is_ready",
        "is_starting",
        "kill_reason",
        "pid",
        "restart_at",
        "start_by",
    )

    def __init__(self, first_env: int, constructors: tuple[EnvConstructor, ...]):
        self.first_env = first_env
        self.constructors = constructors
        self.pid = 0
        self.is_ready = False
        self.is_starting = False
        self.start_by: float | None = None
        # When to start it again, if it is gone and that was decided.
        self.restart_at: float | None = None
        # The error that says how it ended, if it stays gone.
        self.crash: WorkerError | None = None
        # What was wrong when the pool itself ended it: the timeout that had passed.
        self.kill_reason: float | None = None
        # The request it is answering, as a text.
        self.doing: str | None = None


class WorkerPool:
    """Runs rows on workers and keeps every row's stream grammatical.

    Attributes:
        spec: The specs of one environment.
        rows: How many rows there are.
        slab: Where the rows are.
        state: For each row, READY, BUSY, FINISHED or BROKEN.
        repaired: Which rows' last time step was made up for an environment that is
            gone.
        errors: For each BROKEN row, why.
        env_of_row: For each row, the index of its environment.
        rows_of_env: For each environment, its rows.
    """

    def __init__(
        self,
        constructors: Sequence[EnvConstructor],
        backend: Backend,
        options: PoolOptions,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts workers and waits until all environments are built."""
        self._backend = backend
        self._options = options
        self._now = now
        self._supervisor = Supervisor(options.policy)
        self._workers = _dealt(constructors, options.num_workers)
        self._seeds: list[Any] | None = None
        self._replies: dict[int, Any] = {}
        # For each question: the worker, and which of the caller's environments.
        self._asked: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._numbers = itertools.count(1)
        self._closed = False
        self.restarts = [0] * len(self._workers)
        try:
            hellos = self._start()
            self._lay_out(hellos)
        except BaseException:
            backend.close(1.0)
            raise

    # Starting.

    def _start(self) -> list[Hello]:
        deadline = self._deadline(self._options.start_timeout)
        hellos: dict[int, Hello] = {}
        self._hellos = hellos
        waves = [[index] for index in range(len(self._workers))]
        if not self._options.start_serially:
            waves = [functools.reduce(operator.iadd, waves, [])]
        for wave in waves:
            self._backend.start([self._job(worker) for worker in wave])
            for worker in wave:
                self._workers[worker].is_starting = True
            problems = self._await_hellos(wave, deadline)
            if problems:
                raise failures.joined(problems)
        return [hellos[worker] for worker in range(len(self._workers))]

    def _await_hellos(
        self, wave: Sequence[int], deadline: float | None
    ) -> list[WorkerError]:
        problems: list[WorkerError] = []
        waiting = _Waiting(self._now())
        while any(self._workers[worker].is_starting for worker in wave):
            timeout = waiting.timeout(self._now(), deadline)
            queue = self._backend.wait_events(timeout)
            while queue:
                problem = self._note_start(queue[0])
                queue.popleft()
                if problem is not None:
                    problems.append(problem)
            now = self._now()
            late = [worker for worker in wave if self._workers[worker].is_starting]
            if late and deadline is not None and now >= deadline:
                for worker in late:
                    self._workers[worker].is_starting = False
                    self._backend.kill(worker)
                    problems.append(self._late_start(worker))
            elif late and waiting.is_due(now):
                _LOGGER.warning(
                    "still waiting for %s to build %s environments, for %d s now",
                    listed([f"worker {worker}" for worker in late]),
                    "its" if len(late) == 1 else "their",
                    now - waiting.since,
                )
        return sorted(problems, key=lambda problem: problem.worker or 0)

    def _note_start(self, event: Event) -> WorkerError | None:
        """Takes in an event of a worker that starts for the first time."""
        worker = self._workers[event.worker]  # type: ignore[union-attr]  # no rows yet
        if isinstance(event, Started) and isinstance(event.hello, Hello):
            self._hellos[event.worker] = event.hello
            worker.pid = event.hello.pid
            worker.is_starting = False
            worker.is_ready = True
            return None
        if not worker.is_starting:
            return None
        worker.is_starting = False
        if isinstance(event, Started):
            assert isinstance(event.hello, RemoteFailure)  # Hello went out above
            return failures.construction(event.worker, event.hello, self._maker)
        assert isinstance(event, Exited)  # nothing else is going on yet
        return failures.crash(
            event.report,
            command="construct",
            env=None,
            envs=self._envs_of(event.worker),
            makers=self._makers(event.worker),
            reason="",
        )

    def _late_start(self, worker: int) -> WorkerError:
        return failures.timeout(
            worker=worker,
            pid=self._workers[worker].pid,
            env=None,
            envs=self._envs_of(worker),
            command="construct",
            timeout=self._options.start_timeout or 0.0,
            makers=self._makers(worker),
            reason="",
            killed=self._backend.can_kill,
        )

    def _lay_out(self, hellos: list[Hello]) -> None:
        specs = [spec for hello in hellos for spec in hello.specs]
        sizes = [size or 1 for hello in hellos for size in hello.batch_sizes]
        makers = [self._maker(env) for env in range(len(specs))]
        EnvironmentSpec.check_all_equal(specs, makers)
        _tell_heavy_modules(hellos, makers)
        self.spec = specs[0]
        self.is_batch = [
            size is not None for hello in hellos for size in hello.batch_sizes
        ]
        stops = np.cumsum(sizes).tolist()
        self.rows_of_env = [
            range(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)
        ]
        self.rows: int = stops[-1]
        self.env_of_row = np.repeat(np.arange(len(sizes)), sizes)
        blocks = []
        for worker in self._workers:
            envs = range(worker.first_env, worker.first_env + len(worker.constructors))
            blocks.append(
                (self.rows_of_env[envs[0]].start, self.rows_of_env[envs[-1]].stop)
            )
        self.layout = SlabLayout(self.spec, tuple(blocks))
        self.worker_of_row = np.repeat(
            np.arange(len(blocks)), [stop - first for first, stop in blocks]
        )
        rows = self.rows
        self.slab: Slab = self._backend.bind(self.layout)
        self.state = np.full(rows, READY, np.uint8)
        self.repaired = np.zeros(rows, bool)
        self.errors: dict[int, WorkerError] = {}
        self._all_rows = np.arange(rows)
        # Whether all rows are READY and nothing is to be remembered about any.
        self._regular = True
        self._order = np.zeros(rows, np.int64)
        self._next_order = 0
        self._due = np.full(rows, np.inf)
        self._wanted = np.zeros(rows, np.uint8)
        # The command with which a new environment begins, where there is one.
        self._begin = np.zeros(rows, np.uint8)
        # Rows whose episode was cut while nobody was asking: they owe a LAST.
        self._cut = np.zeros(rows, bool)
        # Rows that return a LAST together with the FIRST of the new environment.
        self._cut_at_once = np.zeros(rows, bool)
        # Rows whose command waits for a worker, or for a pause to pass.
        self._held: dict[int, float] = {}
        # Rows that have been asked to begin an episode.
        self.begun = np.zeros(rows, bool)
        # When a new environment may begin, after a pause.
        self._begin_at = np.zeros(rows)

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
        self._regular = False
        began = self._now()
        self.slab.request_all(command)
        self._backend.dispatch(None)
        queue = self._backend.wait_events(self._patience(command), self.rows)
        if command != STEP:
            self.begun[:] = True
        if len(queue) == 1:
            event = queue[0]
            if type(event) is Finished and len(event.rows) == self.rows:
                queue.popleft()
                self._regular = True
                return
        self.state[:] = BUSY
        self._wanted[:] = command
        self._due[:] = began + (self._timeout(command) or np.inf)
        self._finish_run(self._all_rows, began)

    def _patience(self, command: int) -> float:
        timeout = self._timeout(command)
        return _FIRST_NOTICE if timeout is None else min(timeout, _FIRST_NOTICE)

    def run(self, rows: Array, command: int) -> None:
        """Asks the given rows and waits until they have answered or failed."""
        self.settle()
        self._regular = False
        began = self._now()
        self.submit(rows, command)
        self._finish_run(rows, began)

    def _finish_run(self, rows: Array, began: float) -> None:
        self._wait(lambda: not (self.state[rows] == BUSY).any(), None, len(rows), began)
        finished = rows[self.state[rows] == FINISHED]
        self.state[finished] = READY
        self.slab.align(finished)
        self._become_regular()

    def settle(self) -> None:
        """Waits for what an interrupted call left; its answers are nobody's."""
        if self._regular:
            return
        self._find_lost_requests()
        if (self.state == BUSY).any():
            self._dispatch(np.flatnonzero(self.state == BUSY))
            self._wait(lambda: not (self.state == BUSY).any(), None, self.rows)
        self.state[self.state == FINISHED] = READY
        self.slab.align(self._all_rows[self.state == READY])
        self._become_regular()

    def _find_lost_requests(self) -> None:
        """Finds rows that were asked by a call that did not live to note it."""
        lost = ~self.slab.answered_rows() & (self.state != BUSY)
        if lost.any():
            self._wanted[lost] = self.slab.command[lost]
            self.state[lost] = BUSY

    def _become_regular(self) -> None:
        self._regular = (
            not self.state.any()
            and not self._begin.any()
            and not self._held
            and all(worker.is_ready for worker in self._workers)
        )

    # Rows, some of them.

    def submit(self, rows: Array, command: int) -> None:
        """Asks the given READY or BROKEN rows; their actions have been written.

        None of their workers is gone for good.
        """
        self._regular = False
        self.begun[rows] = True
        self.repaired[rows] = False
        self._wanted[rows] = command
        due = self._now() + (self._timeout(command) or np.inf)
        self._due[rows] = due
        plain = rows
        if self._begin[rows].any() or not all(w.is_ready for w in self._workers):
            ready = np.array([w.is_ready for w in self._workers])
            special = (self._begin[rows] != 0) | ~ready[self.worker_of_row[rows]]
            plain = rows[~special]
            for row in rows[special].tolist():
                self._submit_special(row, command)
        if plain.size:
            for row in plain.tolist() if self.errors else ():
                self.errors.pop(row, None)
            self.slab.request(plain, command)
            self.state[plain] = BUSY
            self._dispatch(plain)

    def _submit_special(self, row: int, command: int) -> None:
        """Asks a row whose environment is new, or not there at the moment."""
        self.errors.pop(row, None)
        if command == STEP and self._cut[row]:
            self._cut[row] = False
            self._finish_cut(row)
            return
        self._cut[row] = False
        self.state[row] = BUSY
        self._held[row] = float(self._begin_at[row])
        self._send_held()

    def _dispatch(self, rows: Array) -> None:
        self._backend.dispatch(None if rows.size == self.rows else rows)

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
            self._wait(enough, self._deadline(timeout), count)

    def finished(self, rows: Array, count: int | None = None) -> Array:
        """Returns rows that have finished, first those that did so first."""
        done: Array = rows[self.state[rows] == FINISHED]
        done = done[np.argsort(self._order[done], kind="stable")]
        return done if count is None else done[:count]

    def wait_for(self, rows: Array) -> None:
        """Waits until these rows have answered or failed."""
        self._wait(lambda: not (self.state[rows] == BUSY).any(), None, len(rows))

    def take(self, rows: Array) -> None:
        """Notes that the caller has got the answers of these rows."""
        self.state[rows] = READY

    # Waiting.

    def _wait(
        self,
        is_over: Callable[[], bool],
        deadline: float | None,
        count: int = 1,
        since: float | None = None,
    ) -> None:
        """Handles what happens until something is true or a deadline has passed."""
        waiting = _Waiting(self._now() if since is None else since)
        self._find_lost_requests()
        while not is_over():
            now = self._now()
            self._start_again(now)
            self._send_held()
            if is_over():
                return
            timeout = waiting.timeout(now, self._next_deadline(deadline))
            busy = int(np.count_nonzero(self.state == BUSY)) - len(self._held)
            wanted = min(count, busy) if busy > 0 else 1
            queue = self._backend.wait_events(timeout, max(wanted, 1))
            while queue:
                self._handle(queue[0])
                queue.popleft()
            now = self._now()
            self._end_late(now)
            if deadline is not None and now >= deadline:
                return
            if waiting.is_due(now) and not is_over():
                self._tell_waiting(now - waiting.since)

    def _next_deadline(self, deadline: float | None) -> float | None:
        """Returns the earliest moment at which there is something to do."""
        times = [] if deadline is None else [deadline]
        busy = self.state == BUSY
        if busy.any():
            times.append(float(self._due[busy].min()))
        times += [at for at in self._held.values() if at > 0.0]
        for worker in self._workers:
            times += [at for at in (worker.restart_at, worker.start_by) if at]
        earliest = min(times, default=np.inf)
        return None if earliest == np.inf else earliest

    def _tell_waiting(self, seconds: float) -> None:
        for worker, rows in self._busy_by_worker().items():
            _LOGGER.warning(
                "waiting for worker %d, env %s, in %s() for %d s",
                worker,
                listed(self.env_of_row[rows[:1]].tolist()),
                _COMMANDS.get(int(self._wanted[rows[0]]), "step"),
                seconds,
            )
        for index, entry in enumerate(self._workers):
            if entry.doing:
                _LOGGER.warning(
                    "waiting for worker %d to answer %s for %d s",
                    index,
                    entry.doing,
                    seconds,
                )

    def _busy_by_worker(self) -> dict[int, Array]:
        owing = np.flatnonzero((self.state == BUSY) & ~self.slab.answered_rows())
        return {
            worker: owing[self.worker_of_row[owing] == worker]
            for worker in np.unique(self.worker_of_row[owing]).tolist()
        }

    def _end_late(self, now: float) -> None:
        """Ends workers that did not answer in time."""
        busy = np.flatnonzero((self.state == BUSY) & (self._due <= now))
        # Rows that wait for a new worker are its restart's business.
        late = [row for row in busy.tolist() if row not in self._held]
        for worker in {int(self.worker_of_row[row]) for row in late}:
            entry = self._workers[worker]
            if entry.is_ready and entry.kill_reason is None:
                first = min(row for row in late if self.worker_of_row[row] == worker)
                entry.kill_reason = self._timeout(int(self._wanted[first])) or 0.0
                self._backend.kill(worker)
        for worker, entry in enumerate(self._workers):
            if entry.start_by is not None and now >= entry.start_by:
                entry.start_by = None
                entry.kill_reason = self._options.start_timeout or 0.0
                self._backend.kill(worker)

    # What happens.

    def _handle(self, event: Event) -> None:
        match event:
            case Finished(rows):
                self._note_finished(rows)
            case Failed(failed):
                self._note_failed(failed)
            case Replied(worker, reply):
                self._workers[worker].doing = None
                self._replies[reply.number] = reply
            case Started(worker, hello):
                self._note_restart(worker, hello)
            case Exited(worker, report):
                self._note_exit(worker, report)

    def _note_finished(self, rows: Array) -> None:
        rows = rows[self.state[rows] == BUSY]
        if not rows.size:
            return
        begun = self._begin[rows] != 0
        if begun.any():
            for row in rows[begun].tolist():
                self._note_begun(row)
        self._order[rows] = self._next_order + np.arange(rows.size)
        self._next_order += rows.size
        self.state[rows] = FINISHED

    def _note_begun(self, row: int) -> None:
        """Notes that a new environment has begun its first episode."""
        if self.slab.command[row] == REBUILD:
            # The whole environment was rebuilt: its other rows need only a reset.
            siblings = self.rows_of_env[self.env_of_row[row]]
            block = slice(siblings.start, siblings.stop)
            begins = self._begin[block]
            begins[begins == REBUILD] = RESET
        self._begin[row] = 0
        if self._cut_at_once[row]:
            self._cut_at_once[row] = False
            self.slab.cut_before_first(row)
            self.repaired[row] = True

    def _note_failed(self, failed: dict[int, RemoteFailure]) -> None:
        rows = [row for row in failed if self.state[row] == BUSY]
        decided: dict[int, Any] = {}
        now = self._now()
        for row in rows:
            env = int(self.env_of_row[row])
            failure = failed[row]
            if env not in decided:
                decided[env] = self._supervisor.decide(("env", env), now)
                if isinstance(decided[env], Replace):
                    self.restarts[int(self.worker_of_row[row])] += 1
                    _LOGGER.warning(
                        "env %d raised %s in %s(); it is built anew in its worker",
                        env,
                        failure.type_name,
                        failure.command,
                    )
            decision = decided[env]
            self.slab.take_back(np.array([row]))
            if isinstance(decision, Replace):
                self._lose(row, REBUILD, now + decision.after)
            else:
                self._begin[row] = 0
                self._break(row, self._raised(row, failure, decision.reason))

    def _raised(self, row: int, failure: RemoteFailure, reason: str) -> WorkerError:
        worker = int(self.worker_of_row[row])
        return failures.raised(
            worker, failure, self._maker(failure.env), reason, envs=(failure.env,)
        )

    def _break(self, row: int, error: WorkerError) -> None:
        self.errors[row] = error
        self._held.pop(row, None)
        self._cut[row] = self._cut_at_once[row] = False
        self.state[row] = BROKEN

    def _lose(self, row: int, begin: int, at: float) -> None:
        """Repairs a BUSY row that its environment will not answer any more."""
        self._begin[row] = begin
        self._begin_at[row] = at
        if self._wanted[row] == STEP and self._is_in_episode(row):
            if self.slab.autoreset == _SAME_STEP:
                # Where the episode stood goes where the new FIRST will not be.
                source = self._standing(row)
                for array in self.slab.steps:
                    array[SAME_STEP_SLOT, row] = array[source, row]
                self._cut_at_once[row] = True
                self._held[row] = at
            else:
                self._finish_cut(row)
        else:
            self._held[row] = at

    def _finish_cut(self, row: int) -> None:
        """Ends a row's episode where it stood."""
        self.slab.write_cut(row, self._standing(row))
        self.repaired[row] = True
        self._order[row] = self._next_order
        self._next_order += 1
        self.state[row] = FINISHED

    def _standing(self, row: int) -> int:
        """Returns the slot of the time step at which a row stands."""
        slot = slot_of(int(self.slab.sequence[row]))
        has_ended = self.slab.steps[0][slot, row] == StepType.LAST
        at_once = self.slab.autoreset == _SAME_STEP
        return SAME_STEP_SLOT if at_once and has_ended else slot

    def _is_in_episode(self, row: int) -> bool:
        """Says whether a row's episode has begun and not ended."""
        if not self.begun[row] or self.slab.sequence[row] == 0:
            return False
        standing = self.slab.steps[0][self._standing(row), row]
        return bool(standing != StepType.LAST)

    def has_ended(self, row: int) -> bool:
        """Says whether a row stands at the end of an episode."""
        return bool(self.begun[row]) and not self._is_in_episode(row)

    def stand(self, shown: Sequence[Array], standing: Sequence[Array]) -> None:
        """Lets every row stand at a time step that comes from elsewhere."""
        slab = self.slab
        slab.sequence += np.uint32(2)
        slab.align(self._all_rows[:1])
        slot = slot_of(int(slab.sequence[0]))
        for array, leaf, other in zip(slab.steps, shown, standing, strict=True):
            array[slot] = leaf
            array[SAME_STEP_SLOT] = other
        slab.answered[:] = slab.sequence

    def note_restored(self, has_begun: bool) -> None:
        """Notes that every environment has been given another state."""
        self.begun[:] = has_begun
        for row in list(self.errors):
            if self._begin[row] == 0 and self.state[row] == BROKEN:
                del self.errors[row]
                self.state[row] = READY
        self.repaired[:] = False
        self._become_regular()

    # Workers that come and go.

    def _note_exit(self, worker: int, report: ExitReport) -> None:
        entry = self._workers[worker]
        was_starting, entry.is_starting = entry.is_starting, False
        was_ready, entry.is_ready = entry.is_ready, False
        entry.start_by = None
        if not was_ready and not was_starting:
            return  # It failed to start, which has been seen to.
        doing, entry.doing = entry.doing, None
        first, stop = self.layout.blocks[worker]
        rows = np.arange(first, stop)
        unanswered = rows[~self.slab.answered_rows()[rows]]
        lost = [row for row in unanswered.tolist() if self.state[row] == BUSY]
        error = self._ending(worker, report, lost, doing, was_starting)
        decision = self._supervisor.decide(("worker", worker), self._now())
        if unanswered.size:
            self.slab.take_back(unanswered)
        for number in [n for n, (w, _) in self._asked.items() if w == worker]:
            self._replies[number] = error
        if not isinstance(decision, Replace):
            entry.crash = error = self._ending(
                worker, report, lost, doing, was_starting, decision.reason
            )
            entry.kill_reason = None
            for row in rows.tolist():
                if self.state[row] != FINISHED:
                    self._break(row, error)
            return
        entry.kill_reason = None
        _LOGGER.warning("%s It is replaced.", str(error).partition("\n")[0])
        self.restarts[worker] += 1
        entry.restart_at = self._now() + decision.after
        for row in rows.tolist():
            if row in self._held:  # It waits for a new environment as it is.
                self._begin[row] = RESET
                continue
            if row in lost:
                self._lose(row, RESET, 0.0)
            elif self.state[row] != BROKEN:
                self._cut[row] = self._begin[row] == 0 and self._is_in_episode(row)
            self._begin[row] = RESET
            self._begin_at[row] = 0.0

    def _ending(
        self,
        worker: int,
        report: ExitReport,
        lost: Sequence[int],
        doing: str | None,
        was_starting: bool,
        reason: str = "",
    ) -> WorkerError:
        """Says how a worker ended."""
        entry = self._workers[worker]
        row = lost[0] if lost else None
        if was_starting:
            command: str | None = "construct"
        elif row is not None:
            command = _COMMANDS.get(int(self.slab.command[row]), "step")
        else:
            command = doing
        env = None if row is None else int(self.env_of_row[row])
        if entry.kill_reason is not None:
            return failures.timeout(
                worker=worker,
                pid=report.pid,
                env=env,
                envs=self._envs_of(worker),
                command=command,
                timeout=entry.kill_reason,
                makers=self._makers(worker),
                reason=reason,
                killed=self._backend.can_kill,
            )
        return failures.crash(
            report,
            command=command,
            env=env,
            envs=self._envs_of(worker),
            makers=self._makers(worker),
            reason=reason,
            steps=int(self.slab.meters[worker][STEPS]),
            others=sum(other.is_ready for other in self._workers),
        )

    def _start_again(self, now: float) -> None:
        """Starts workers whose pause has passed."""
        for index, worker in enumerate(self._workers):
            if worker.restart_at is not None and now >= worker.restart_at:
                worker.restart_at = None
                worker.is_starting = True
                timeout = self._options.start_timeout
                worker.start_by = None if timeout is None else now + timeout
                self._backend.replace(index, self._job(index))

    def _note_restart(self, worker: int, hello: Hello | RemoteFailure) -> None:
        entry = self._workers[worker]
        if not entry.is_starting:
            return
        entry.is_starting = False
        entry.start_by = None
        error: WorkerError | None = None
        if isinstance(hello, RemoteFailure):
            error = failures.construction(worker, hello, self._maker)
        else:
            error = self._difference(worker, hello)
        if error is None and isinstance(hello, Hello):
            entry.pid = hello.pid
            entry.is_ready = True
            return
        assert error is not None  # one of the two
        decision = self._supervisor.decide(("worker", worker), self._now())
        if isinstance(decision, Replace):
            self.restarts[worker] += 1
            entry.restart_at = self._now() + decision.after
            _LOGGER.warning("%s It is tried again.", str(error).partition("\n")[0])
            return
        entry.crash = error
        first, stop = self.layout.blocks[worker]
        for row in range(first, stop):
            if self.state[row] != FINISHED:
                self._break(row, error)

    def _difference(self, worker: int, hello: Hello) -> WorkerError | None:
        """Says how a new worker's environments differ from those before, if they do."""
        envs = self._envs_of(worker)
        sizes = [len(self.rows_of_env[env]) for env in envs]
        for env, size, spec, now in zip(
            envs, sizes, hello.specs, hello.batch_sizes, strict=True
        ):
            difference = self.spec.difference(spec)
            text = f"Its {difference[0]} spec: {difference[1]}" if difference else ""
            if (now or 1) != size:
                text = f"Its batch size is {now or 1} instead of {size}."
            if text:
                return failures.differs(worker, env, self._maker(env), text)
        return None

    def _send_held(self) -> None:
        """Sends the commands whose worker is there and whose pause has passed."""
        if not self._held:
            return
        now = self._now()
        rows = [
            row
            for row, at in self._held.items()
            if at <= now and self._workers[self.worker_of_row[row]].is_ready
        ]
        if not rows:
            return
        for row in rows:
            del self._held[row]
            if not self._begin[row]:
                self._begin[row] = RESET
        array = np.array(rows)
        timeout = self._options.reset_timeout
        self._due[array] = now + (np.inf if timeout is None else timeout)
        self.slab.request(array, self._begin[array])
        self._backend.dispatch(array)

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
        by_worker: dict[int, list[int]] = {}
        for position, env in enumerate(envs):
            row = self.rows_of_env[env].start
            by_worker.setdefault(int(self.worker_of_row[row]), []).append(position)
        starts = np.array([self.rows_of_env[env].start for env in envs], np.intp)
        question = _question(method, arguments)
        self.check_alive(starts, question.partition("(")[0])
        rows = np.flatnonzero(np.isin(self.worker_of_row, list(by_worker)))
        self._regular = False
        self._wait(lambda: self._are_idle(rows, by_worker), None, len(rows))
        self.check_alive(rows, question.partition("(")[0])
        numbers = []
        for worker, positions in by_worker.items():
            number = next(self._numbers)
            request = Request(
                number,
                method,
                tuple(envs[position] for position in positions),
                tuple(arguments[position] for position in positions),
            )
            self._asked[number] = (worker, tuple(positions))
            self._workers[worker].doing = question
            self._backend.request(worker, request)
            numbers.append(number)
        return numbers

    def _are_idle(self, rows: Array, workers: Any) -> bool:
        return not (self.state[rows] == BUSY).any() and all(
            self._workers[worker].crash is not None
            or (self._workers[worker].is_ready and self._workers[worker].doing is None)
            for worker in workers
        )

    def answers(self, numbers: Sequence[int], envs: Sequence[int]) -> list[Any]:
        """Waits for the answers to questions."""
        self._wait(lambda: all(number in self._replies for number in numbers), None)
        results: list[Any] = [None] * len(envs)
        for number in numbers:
            reply = self._replies.pop(number)
            _, positions = self._asked.pop(number)
            if isinstance(reply, WorkerError):
                self._become_regular()
                raise reply
            for position, result in zip(positions, reply.results, strict=True):
                results[position] = result
        self._become_regular()
        return results

    def raise_failures(self, envs: Sequence[int], results: Sequence[Any]) -> None:
        """Raises what environments raised when they were asked something."""
        problems = [
            failures.raised(
                int(self.worker_of_row[self.rows_of_env[env].start]),
                result,
                self._maker(env),
                "",
                envs=(env,),
            )
            for env, result in zip(envs, results, strict=True)
            if isinstance(result, RemoteFailure)
        ]
        if problems:
            raise failures.joined(problems)

    def note_seeds(self, seeds: Sequence[Any]) -> None:
        """Remembers what environments were seeded with, for those that replace them."""
        self._seeds = list(seeds)

    # Facts.

    def _job(self, index: int) -> WorkerJob:
        worker = self._workers[index]
        seeds: tuple[Any, ...] = ()
        if self._seeds is not None:
            envs = self._envs_of(index)
            seeds = tuple(
                derived_seed(self._seeds[env], self.restarts[index]) for env in envs
            )
        return WorkerJob(
            worker=index,
            first_env=worker.first_env,
            constructors=worker.constructors,
            seeds=seeds,
            setup=self._options.worker_setup,
            validate=self._options.validate,
            rings_each_row=self._options.rings_each_row,
        )

    def _timeout(self, command: int) -> float | None:
        if command == STEP:
            return self._options.step_timeout
        return self._options.reset_timeout

    def _deadline(self, timeout: float | None) -> float | None:
        return None if timeout is None else self._now() + timeout

    def _envs_of(self, worker: int) -> range:
        entry = self._workers[worker]
        return range(entry.first_env, entry.first_env + len(entry.constructors))

    def _maker(self, env: int) -> str:
        for worker in self._workers:
            index = env - worker.first_env
            if 0 <= index < len(worker.constructors):
                return failures.name_of(worker.constructors[index])
        return ""

    def _makers(self, worker: int) -> list[str]:
        return [self._maker(env) for env in self._envs_of(worker)]

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

    def close(self, grace: float) -> None:
        """Ends the workers."""
        if not self._closed:
            self._closed = True
            try:
                self._backend.close(grace)
            finally:
                # Somebody may hold the pool for long; its memory is of no use to them.
                del self.slab


class _Waiting:
    """How long something has been waited for, and when to say so next."""

    def __init__(self, since: float) -> None:
        self.since = since
        self._next = since + _FIRST_NOTICE

    def timeout(self, now: float, deadline: float | None) -> float:
        """Returns how long to wait now."""
        until = self._next if deadline is None else min(self._next, deadline)
        return max(until - now, 0.0)

    def is_due(self, now: float) -> bool:
        """Says whether it is time to say something, once each time."""
        if now < self._next:
            return False
        self._next = now + _NEXT_NOTICE
        return True


def _dealt(constructors: Sequence[EnvConstructor], workers: int) -> list[_Worker]:
    """Deals environments to workers: consecutive ones, as evenly as can be."""
    share, more = divmod(len(constructors), workers)
    dealt, first = [], 0
    for index in range(workers):
        count = share + (index < more)
        dealt.append(_Worker(first, tuple(constructors[first : first + count])))
        first += count
    return dealt


def _question(method: str, arguments: Sequence[Any]) -> str:
    if method in {"call", "access"}:
        return f"{method}({arguments[0][0]!r})"
    return f"{method}()"


def _tell_heavy_modules(hellos: Sequence[Hello], makers: Sequence[str]) -> None:
    """Says once which large packages the workers have loaded, and why."""
    for name in sorted({name for hello in hellos for name in hello.heavy_modules}):
        heavy = [hello for hello in hellos if name in hello.heavy_modules]
        if any(hello.pid == os.getpid() for hello in heavy):
            return  # They are the caller's own.
        _LOGGER.warning(
            "%d of %d workers loaded %s (%.1f GB in total) for %s; a constructor in a "
            "module that does not import it keeps them small",
            len(heavy),
            len(hellos),
            name,
            sum(hello.resident for hello in heavy) / 1e9,
            makers[0],
        )
