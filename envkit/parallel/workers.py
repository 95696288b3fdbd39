"""`Workers`: the workers of a pool, their jobs and their states."""

from __future__ import annotations

import enum
import functools
import itertools
import logging
import math
import operator
import os
import socket
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from envkit._internal.text import listed
from envkit.errors import WorkerError
from envkit.parallel import failures
from envkit.parallel.backends.base import (
    Backend,
    Event,
    Exited,
    Raised,
    Replied,
    Started,
)
from envkit.parallel.constructor_texts import describe_constructor
from envkit.parallel.endings import Ending
from envkit.parallel.env_seeds import EnvSeed, EnvSeeds
from envkit.parallel.messages import (
    ExitReport,
    Hello,
    RemoteFailure,
    Reply,
    WorkerJob,
)
from envkit.parallel.options import PoolOptions
from envkit.parallel.pool_clock import PoolClock, Waiting
from envkit.parallel.row_states import Rows
from envkit.parallel.serialize import learn_programs
from envkit.parallel.slab_layout import ELSEWHERE
from envkit.specs.batching import common_spec
from envkit.specs.environment_spec import EnvironmentSpec
from envkit.types import EnvConstructor

__all__ = [
    "Question",
    "Worker",
    "WorkerState",
    "Workers",
]

_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Question:
    """A question to one worker about some of its environments, and its answer.

    Attributes:
        number: The number of the request.
        text: Its name in messages about the wait.
        positions: The places of the worker's environments among those that the caller
            asks.
        answer: The answer, or how the worker ended instead; `None` before that.
        seeds_before: The previous seeds of the environments that it seeds.
    """

    number: int
    text: str
    positions: Sequence[int]
    answer: Reply | WorkerError | None = None
    seeds_before: dict[int, EnvSeed] = field(default_factory=dict)


class WorkerState(enum.Enum):
    """The state of a worker; `_TRANSITIONS` lists the possible next states of each.

    ```
    NEW ──▶ STARTING ──▶ READY ◀──▶ RESTORING
               ▲           │
               │           ▼             when the process of a worker has ended:
            WAITING ◀── LEAVING          WAITING or LOST
    ```
    """

    NEW = "new"  # Not started yet.
    STARTING = "starting"  # The process starts, or builds its environments.
    READY = "ready"  # Running, with its environments.
    RESTORING = (
        "restoring"  # Running, but bringing its environments to where they were.
    )
    LEAVING = "leaving"  # Being stopped on purpose, which is no failure.
    WAITING = "waiting"  # Ended; starts again when its pause is over.
    LOST = "lost"  # Ended for good; `crash` says how.


_AFTER_AN_END = frozenset({WorkerState.WAITING, WorkerState.LOST})
_TRANSITIONS: dict[WorkerState, frozenset[WorkerState]] = {
    WorkerState.NEW: frozenset({WorkerState.STARTING}),
    WorkerState.STARTING: _AFTER_AN_END | {WorkerState.READY},
    WorkerState.READY: _AFTER_AN_END | {WorkerState.RESTORING, WorkerState.LEAVING},
    WorkerState.RESTORING: _AFTER_AN_END | {WorkerState.READY},
    WorkerState.LEAVING: frozenset({WorkerState.WAITING}),
    WorkerState.WAITING: frozenset({WorkerState.STARTING}),
    WorkerState.LOST: frozenset(),
}
# States with a process, now or soon; and states of a worker that is not starting.
_PRESENT = frozenset(WorkerState) - _AFTER_AN_END - {WorkerState.NEW}
_SETTLED = frozenset({WorkerState.READY, WorkerState.LOST})


class Worker:
    """The pool's facts about one worker.

    Attributes:
        first_env: The index of its first environment.
        constructors: The constructors of its environments.
        pid: Its process.
        host: Its machine, if that may not be the pool's.
        state: Its state; only `Workers.become` changes it.
        due: If it is WAITING, when it starts again; if it is starting, the deadline for
            being ready, if any.
        allowed: How many seconds it has to become ready.
        away: The value of `PoolClock.away` when its deadline was set; `math.inf` once
            the deadline has been extended.
        crash: The error about its end, if it is LOST.
        overdue_after: The timeout for which the pool killed it.
        question: The question it is answering.
        restarts: How many times it, or an environment in it, was replaced after a
            failure.
        replaced: How many times it was replaced because it held too much memory.
    """

    __slots__ = (
        "allowed",
        "away",
        "constructors",
        "crash",
        "due",
        "first_env",
        "host",
        "overdue_after",
        "pid",
        "question",
        "replaced",
        "restarts",
        "state",
    )

    def __init__(self, first_env: int, constructors: tuple[EnvConstructor, ...]):
        """Describes a worker that has not been started."""
        self.first_env = first_env
        self.constructors = constructors
        self.pid = 0
        self.host = ""
        self.state = WorkerState.NEW
        self.due: float | None = None
        self.allowed: float | None = None
        self.away = 0.0
        self.crash: WorkerError | None = None
        self.overdue_after: float | None = None
        self.question: Question | None = None
        self.restarts = 0
        self.replaced = 0

    @property
    def is_ready(self) -> bool:
        """True if it is running, and its environments are up to date."""
        return self.state is WorkerState.READY

    @property
    def is_present(self) -> bool:
        """True if it has a process, or soon will."""
        return self.state in _PRESENT

    @property
    def is_settled(self) -> bool:
        """True if it is ready, or lost for good."""
        return self.state in _SETTLED

    @property
    def process(self) -> int:
        """Its process, as other programs on the pool's machine see it."""
        return self.pid if self.host in ("", socket.gethostname()) else ELSEWHERE

    def meet(self, hello: Hello) -> None:
        """Records the worker's process."""
        self.pid, self.host = hello.pid, hello.host


class Workers:
    """Distributes environments over workers, starts them, and tracks their states.

    Attributes:
        workers: The workers.
        unready: The indices of workers that are not READY.
        seeds: The seeds of the environments.
        numbers: Counts questions.
        continuing: The environments that continue where lost ones stood.
        specs: The specs of each environment, once known.
        spec: The specs of the batch.
    """

    spec: EnvironmentSpec

    def __init__(
        self,
        constructors: Sequence[EnvConstructor],
        backend: Backend,
        options: PoolOptions,
        clock: PoolClock,
    ) -> None:
        """Distributes the environments; starts nothing yet."""
        self._backend = backend
        self._clock = clock
        self._options = options
        self._options_of_jobs = options.without_setup()
        self.seeds = EnvSeeds(len(constructors))
        # How many times each environment's worker was restarted before the checkpoint
        # that this run continues; later seeds count on from there.
        self.earlier_restarts = [0] * len(constructors)
        self.workers = _dealt(constructors, options.num_workers or 1)
        self.unready = set(range(len(self.workers)))
        self.numbers = itertools.count(1)
        self.continuing: frozenset[int] = frozenset()
        self.specs: list[EnvironmentSpec] = []

    def become(
        self,
        index: int,
        state: WorkerState,
        *,
        due: float | None = None,
        allowed: float | None = None,
    ) -> None:
        """Changes the state of a worker.

        Args:
            index: The worker.
            state: Its new state, which must be a possible next one.
            due: When to act, if it stays in this state.
            allowed: How many seconds that gives it.
        """
        worker = self.workers[index]
        if state not in _TRANSITIONS[worker.state]:
            raise RuntimeError(
                f"Worker {index} is {worker.state.value} and cannot become "
                f"{state.value}."
            )
        worker.state, worker.due, worker.allowed = state, due, allowed
        worker.away = self._clock.away
        if state is WorkerState.READY:
            self.unready.discard(index)
        else:
            self.unready.add(index)

    # The first start.

    def start(self) -> list[Hello]:
        """Starts all workers, waits for them, and checks that their specs agree."""
        in_order = self._start(range(len(self.workers)), deque())
        self._compare(in_order)
        return in_order

    def start_more(
        self,
        constructors: Sequence[EnvConstructor],
        count: int,
        others: deque[Event],
    ) -> list[Hello]:
        """Starts additional workers, and waits for them.

        Args:
            constructors: The constructors of their environments.
            count: How many to start.
            others: The queue for events of other workers.

        Raises:
            WorkerError: They cannot be started; `cut` forgets them.
            SpecMismatchError: Their environments do not fit into the batch.
        """
        first = len(self.workers)
        self.workers += _dealt(constructors, count, len(self.earlier_restarts))
        self.unready.update(range(first, first + count))
        self.earlier_restarts += [0] * len(constructors)
        self.seeds.resize(self._envs)
        hellos = self._start(range(first, first + count), others)
        specs = [spec for hello in hellos for spec in hello.specs]
        makers = [self.maker(env) for env in range(self._envs)]
        found = common_spec([*self.specs, *specs], makers, self._options.specs)
        unlike = self.spec.difference(found)
        if unlike is not None:
            raise failures.too_wide(self._options.specs, *unlike)
        self.specs += specs
        return hellos

    def cut(self, envs: int) -> None:
        """Keeps only the first environments, and the workers that have some of them."""
        self.workers[:] = [each for each in self.workers if each.first_env < envs]
        last = self.workers[-1]
        last.constructors = last.constructors[: envs - last.first_env]
        self.unready.intersection_update(range(len(self.workers)))
        self.seeds.resize(envs)
        del self.earlier_restarts[envs:], self.specs[envs:]

    @property
    def _envs(self) -> int:
        """The number of environments."""
        return len(self.earlier_restarts)

    def _start(self, workers: range, others: deque[Event]) -> list[Hello]:
        """Starts workers; appends the events of other workers to `others`."""
        timeout, clock = self._options.start_timeout, self._clock
        due = None if timeout is None else clock.now() + timeout
        hellos: dict[int, Hello] = {}
        learn_programs()
        waves = [[index] for index in workers]
        if not self._options.start_serially:
            waves = [functools.reduce(operator.iadd, waves, [])]
        for wave in waves:
            began = clock.now()
            following = len(self.workers) - wave[-1] - 1
            jobs = [self._job(worker) for worker in wave]
            self._backend.start([job._replace(following=following) for job in jobs])
            # Starting interpreters does not build environments yet, and this process
            # may have been paused.
            if due is not None:
                due += clock.now() - began
            for worker in wave:
                self.become(worker, WorkerState.STARTING, due=due, allowed=timeout)
            if problems := self._await_hellos(wave, hellos, workers.start, others):
                raise failures.joined(problems)
        return [hellos[worker] for worker in workers]

    def _await_hellos(
        self,
        wave: Sequence[int],
        hellos: dict[int, Hello],
        first: int,
        others: deque[Event],
    ) -> list[WorkerError]:
        """Waits for starting workers, and returns their failures.

        Events of earlier workers are put aside.
        """
        problems: list[WorkerError] = []
        waiting = Waiting(self._clock.now())
        while any(self._is_starting(worker) for worker in wave):
            deadline = min(self.deadlines(), default=None)
            timeout = waiting.timeout(self._clock.now(), deadline)
            queue = self._backend.wait_events(timeout)
            self._clock.end_wait(timeout)
            while queue:
                event = queue[0]
                problem = None
                if isinstance(event, Raised) or event.worker < first:
                    others.append(event)
                else:
                    problem = self._handle_start(event, hellos)
                queue.popleft()
                if problem is not None:
                    problems.append(problem)
            for worker in self._late():
                self.become(worker, WorkerState.LOST)
                self._backend.kill(worker)
                problems.append(self._late_start(worker))
            missing = [worker for worker in wave if self._is_starting(worker)]
            moment = self._clock.now()
            if missing and waiting.is_due(moment):
                _LOGGER.warning(
                    "still waiting for %s to build %s environments, for %d s now",
                    listed([f"worker {worker}" for worker in missing]),
                    "its" if len(missing) == 1 else "their",
                    moment - waiting.since,
                )
        problems.sort(key=lambda problem: problem.worker or 0)
        return problems

    def _handle_start(
        self, event: Started | Replied | Exited, hellos: dict[int, Hello]
    ) -> WorkerError | None:
        """Handles an event of a worker that starts for the first time."""
        worker = self.workers[event.worker]
        if isinstance(event, Started) and isinstance(event.hello, Hello):
            hellos[event.worker] = event.hello
            worker.meet(event.hello)
            self.become(event.worker, WorkerState.READY)
            return None
        if worker.state is not WorkerState.STARTING:
            return None
        self.become(event.worker, WorkerState.LOST)
        if isinstance(event, Started):
            assert isinstance(event.hello, RemoteFailure)  # Hello was handled above
            return failures.construction(event.worker, event.hello, self.maker)
        assert isinstance(event, Exited)  # nothing else can happen yet
        return self._ending(event.report, command="construct").error()

    def _is_starting(self, worker: int) -> bool:
        return self.workers[worker].state is WorkerState.STARTING

    def _late_start(self, worker: int) -> WorkerError:
        report = ExitReport(worker, self.workers[worker].pid)
        timeout = self._options.start_timeout
        return self._ending(report, command="construct", timeout=timeout).error()

    def _compare(self, hellos: Sequence[Hello]) -> None:
        """Computes the specs of the batch, or raises if environments differ."""
        self.specs = [spec for hello in hellos for spec in hello.specs]
        makers = [self.maker(env) for env in range(len(self.specs))]
        self.spec = common_spec(self.specs, makers, self._options.specs)
        _log_heavy_modules(hellos, makers)

    # Ends and restarts.

    def kill(self, worker: int, timeout: float | None) -> None:
        """Kills a worker that did not answer within `timeout` seconds."""
        self.workers[worker].overdue_after = timeout or 0.0
        self._backend.kill(worker)

    def dismiss(self, worker: int) -> None:
        """Kills a worker that is no longer needed."""
        self._backend.kill(worker)

    def kill_late_starts(self) -> None:
        """Kills restarted workers that are not ready in time."""
        for index in self._late():
            self.workers[index].due = None
            self.kill(index, self.workers[index].allowed)

    def _late(self) -> list[int]:
        """Returns the workers that should have been ready by now."""
        late, now = [], self._clock.now()
        for index, worker in enumerate(self.workers):
            if worker.is_present and worker.due is not None and now >= worker.due:
                worker.due += max(self._clock.away - worker.away, 0.0)
                worker.away = math.inf
                if now >= worker.due:
                    late.append(index)
        return late

    def ending(
        self,
        report: ExitReport,
        *,
        command: str | None,
        env: int | None,
        steps: int,
        reason: str = "",
    ) -> Ending:
        """Returns how a worker ended, adding the pool's facts to its report.

        Args:
            report: The report about its process.
            command: What it was doing.
            env: The environment that was doing it.
            steps: How many steps it had done.
            reason: Why it is not replaced.
        """
        entry = self.workers[report.worker]
        return self._ending(
            report,
            command=command,
            env=env,
            steps=steps,
            reason=reason,
            others=sum(other.is_ready for other in self.workers if other is not entry),
            timeout=entry.overdue_after,
        )

    def _ending(
        self, report: ExitReport, *, env: int | None = None, **facts: Any
    ) -> Ending:
        return Ending(
            report=report,
            env=env,
            envs=self.envs_of(report.worker),
            makers=self._makers(report.worker),
            killed=self._backend.can_kill,
            **facts,
        )

    def start_again(self) -> None:
        """Starts workers whose pause has passed."""
        moment = self._clock.now()
        for index, worker in enumerate(self.workers):
            if worker.state is WorkerState.WAITING and moment >= (worker.due or 0.0):
                timeout = self._options.start_timeout
                self._backend.replace(index, self._job(index))
                due = None if timeout is None else self._clock.now() + timeout
                self.become(index, WorkerState.STARTING, due=due, allowed=timeout)

    def welcome(
        self, worker: int, hello: Hello | RemoteFailure, rows: Rows
    ) -> WorkerError | None:
        """Accepts a restarted worker, or returns the error that prevents it."""
        if isinstance(hello, RemoteFailure):
            return failures.construction(worker, hello, self.maker)
        error = self._difference(worker, hello, rows)
        if error is None:
            self.workers[worker].meet(hello)
            for env in self.envs_of(worker):
                if env not in self.continuing:
                    self.seeds.set_derived(env, self.restarts_of(env, worker))
            self.become(worker, WorkerState.READY)
        return error

    def _difference(self, worker: int, hello: Hello, rows: Rows) -> WorkerError | None:
        """Returns the error for new environments that differ from the previous ones."""
        envs = self.envs_of(worker)
        sizes = [len(rows.rows_of_env[env]) for env in envs]
        for env, size, spec, now in zip(
            envs, sizes, hello.specs, hello.batch_sizes, strict=True
        ):
            known = self.specs[env]
            difference = None if spec == known else known.difference(spec)
            text = f"Its {difference[0]} spec: {difference[1]}" if difference else ""
            if (now or 1) != size:
                text = f"Its batch size is {now or 1} instead of {size}."
            if text:
                return failures.differs(worker, env, self.maker(env), text)
        return None

    # Facts.

    def are_idle(self, workers: Iterable[int]) -> bool:
        """Returns True if none of these workers, except lost ones, has a question."""
        entries = [self.workers[worker] for worker in workers]
        return all(
            entry.state is WorkerState.LOST
            or (entry.is_ready and entry.question is None)
            for entry in entries
        )

    def are_settled(self) -> bool:
        """Returns True if no worker is being replaced."""
        return all(self.workers[index].is_settled for index in self.unready)

    def watched(self) -> list[bool]:
        """Returns, for each worker, whether its rows have deadlines."""
        return [
            worker.is_ready and worker.overdue_after is None for worker in self.workers
        ]

    def deadlines(self) -> list[float]:
        """Returns the times at which workers need attention."""
        return [worker.due for worker in self.workers if worker.due is not None]

    # Seeds, and counts of restarts.

    def continue_run(self, seeds: list[Any] | None, restarts: list[int]) -> None:
        """Continues the seeds of another run, and its counts of restarts."""
        self.seeds.given = seeds
        self.earlier_restarts = list(restarts)

    def restarts_of(self, env: int, worker: int) -> int:
        """Returns how many times the worker of an environment was restarted."""
        entry = self.workers[worker]
        return entry.restarts + entry.replaced + self.earlier_restarts[env]

    def restarts_by_env(self) -> list[int]:
        """Returns, for each environment, how many times its worker was restarted."""
        return [
            self.restarts_of(env, index)
            for index in range(len(self.workers))
            for env in self.envs_of(index)
        ]

    def _job(self, index: int) -> WorkerJob:
        worker = self.workers[index]
        # Continuing environments get their predecessors' seeds later.
        seeds = tuple(
            None
            if env in self.continuing
            else self.seeds.derived(env, self.restarts_of(env, index))
            for env in self.envs_of(index)
        )
        if all(seed is None for seed in seeds):
            seeds = ()
        return WorkerJob(
            worker=index,
            first_env=worker.first_env,
            constructors=worker.constructors,
            seeds=seeds,
            options=self._options_of_jobs,
            setup=self._options.worker_setup,
        )

    def envs_of(self, worker: int) -> range:
        """Returns the environments of a worker."""
        entry = self.workers[worker]
        return range(entry.first_env, entry.first_env + len(entry.constructors))

    def constructors(self) -> list[EnvConstructor]:
        """Returns the constructor of each environment."""
        return [each for worker in self.workers for each in worker.constructors]

    def maker(self, env: int) -> str:
        """Returns the name of an environment's constructor, for messages."""
        for worker in self.workers:
            index = env - worker.first_env
            if 0 <= index < len(worker.constructors):
                return describe_constructor(worker.constructors[index])
        return ""

    def _makers(self, worker: int) -> list[str]:
        return [self.maker(env) for env in self.envs_of(worker)]


def _dealt(
    constructors: Sequence[EnvConstructor], workers: int, first_env: int = 0
) -> list[Worker]:
    """Distributes consecutive environments over workers, as evenly as possible."""
    share, more = divmod(len(constructors), workers)
    dealt, first = [], 0
    for index in range(workers):
        count = share + (index < more)
        own = tuple(constructors[first : first + count])
        dealt.append(Worker(first_env + first, own))
        first += count
    return dealt


def _log_heavy_modules(hellos: Sequence[Hello], makers: Sequence[str]) -> None:
    """Logs once which large packages the workers have loaded, and why."""
    for name in sorted({name for hello in hellos for name in hello.heavy_modules}):
        heavy = [hello for hello in hellos if name in hello.heavy_modules]
        if any(hello.pid == os.getpid() for hello in heavy):
            return  # The caller's process has loaded them.
        _LOGGER.warning(
            "%d of %d workers loaded %s (%.1f GB in total) for %s; a constructor in a "
            "module that does not import it keeps them small",
            len(heavy),
            len(hellos),
            name,
            sum(hello.resident for hello in heavy) / 1e9,
            makers[0],
        )
