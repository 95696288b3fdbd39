"""`FakeBackend`: a backend that lives nowhere, where the test decides what happens.

Its schedule is a sequence of actions, and each wait plays them until one has made an
event or the time of the wait has passed. Rows and workers are chosen by a number that
wraps around, so that any schedule fits any pool: `Finish(7)` with three rows unanswered
lets the second of them finish. An action for which there is nothing is passed over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from envkit.parallel.backends.base import (
    Event,
    Exited,
    Raised,
    Replied,
    drop_events_of,
)
from envkit.parallel.backends.base import Started as _Started
from envkit.parallel.messages import (
    ExitReport,
    Hello,
    RemoteFailure,
    Request,
    WorkerJob,
)
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import SlabLayout
from envkit.parallel.system.cpus import available_cpus
from envkit.parallel.worker.runner import EnvRunner
from envkit.testing.clock import ManualClock

__all__ = [
    "Action",
    "Answer",
    "Commit",
    "Die",
    "FailStart",
    "FakeBackend",
    "Finish",
    "Hang",
    "Interrupt",
    "Pass",
    "Raise",
    "Ring",
    "Start",
    "WouldHangError",
]

# How many waits in vain may follow one another.
_MOST_IDLE_WAITS = 2000
_FIRST_PID = 70_000
_COMMANDS = ("", "step", "reset", "rebuild")


class WouldHangError(AssertionError):
    """A call waits for something that will never happen."""


@dataclass(frozen=True, slots=True)
class Start:
    """A worker that was asked to start builds its environments."""

    pick: int = 0


@dataclass(frozen=True, slots=True)
class FailStart:
    """A worker that was asked to start does not: it raises, or it exits."""

    pick: int = 0
    exits: bool = False


@dataclass(frozen=True, slots=True)
class Finish:
    """Rows answer, in this order; without picks, all of them."""

    picks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """Rows answer, and the wait goes on as if their ring had not come yet."""

    picks: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class Raise:
    """The environment of a row raises instead of doing what it was asked for."""

    pick: int = 0


@dataclass(frozen=True, slots=True)
class Die:
    """A worker dies after it has answered some of the rows that it owes."""

    pick: int = 0
    answers: int = 0


@dataclass(frozen=True, slots=True)
class Hang:
    """A worker that owes something answers nothing any more until it is killed."""

    pick: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """A worker answers a request."""

    pick: int = 0


@dataclass(frozen=True, slots=True)
class Pass:
    """Time passes in which nothing happens."""

    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Ring:
    """The wait is over although nothing has happened."""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Ctrl-C comes: `KeyboardInterrupt` is raised.

    Attributes:
        where: "wait", when nothing has happened yet; "return", when something has;
            "dispatch" or "request", before the call has done anything; "dispatched" or
            "requested", after it has.
    """

    where: str = "wait"


Action: TypeAlias = (
    Start
    | FailStart
    | Finish
    | Commit
    | Raise
    | Die
    | Hang
    | Answer
    | Pass
    | Ring
    | Interrupt
)


class FakeBackend:
    """Runs environments in the caller's thread, whenever a schedule says so.

    When the schedule is used up, everything that can happen does, in order: workers
    start, requests and rows are answered. No time passes but that of `clock`.

    Example:
        >>> from envkit.parallel import ParallelPyEnvironment, RestartPolicy
        >>> from envkit.testing import CountingEnv
        >>> backend = FakeBackend()
        >>> env = ParallelPyEnvironment(
        ...     [CountingEnv] * 3,
        ...     num_workers=3,
        ...     backend=backend,
        ...     on_worker_failure=RestartPolicy(),
        ... )
        >>> first = env.reset()
        >>> backend.plan(Finish((2,)), Die(pick=0))
        >>> env.step([0, 0, 0]).is_last().tolist(), env.repaired.tolist()
        ([True, False, False], [True, False, False])
        >>> env.close()

    Attributes:
        clock: The clock that waits move.
        schedule: What has not happened yet.
        played: What has happened, in order: with it, what went wrong can be repeated.
    """

    name: ClassVar[str] = "fake"
    can_kill: ClassVar[bool] = True
    keeps_answers: ClassVar[bool] = True
    keeps_states: ClassVar[bool] = True
    cuts_workers: ClassVar[bool] = True

    def __init__(
        self,
        schedule: Iterable[Action] = (),
        *,
        clock: ManualClock | None = None,
        by_hand: bool = False,
    ) -> None:
        """Prepares; nothing is built yet.

        Args:
            schedule: What happens during waits.
            clock: What time it is; a pool that is to share it takes `now=backend.now`.
            by_hand: Whether nothing more happens when the schedule is used up.
        """
        self.clock = ManualClock() if clock is None else clock
        self.schedule: deque[Action] = deque(schedule)
        self.played: list[Action] = []
        self._by_hand = by_hand
        self._queue: deque[Event] = deque()
        self._slab: Slab | None = None
        self._workers: dict[int, _FakeWorker] = {}
        self._starting: dict[int, WorkerJob] = {}
        # Rows that were dispatched, in that order.
        self._asked: dict[int, None] = {}
        self._requests: deque[tuple[int, Request]] = deque()
        self._rang = False
        self._next_pid = _FIRST_PID
        self._idle_waits = 0
        self._closed = False

    # What a test says.

    def plan(self, *actions: Action) -> None:
        """Adds to the schedule."""
        self.schedule.extend(actions)

    def do(self, *actions: Action) -> None:
        """Lets something happen now; the next wait will see it."""
        for action in actions:
            self._play(action)

    def die(self, worker: int, answers: int = 0) -> None:
        """Lets a worker die, after it has answered some of its rows."""
        if worker in self._workers:
            self._die(worker, answers)

    def reset_ahead(self, most: int = 2**31) -> int:
        """Lets idle workers reset environments ahead, this many; returns how many."""
        count = 0
        for worker in self._workers.values():
            while worker.runner.due and count < most:
                worker.runner.reset_next()
                count += 1
        return count

    @property
    def unanswered(self) -> list[int]:
        """The rows that were asked and have not answered, in the order of asking."""
        if self._slab is None:
            return []
        owing = self._slab.owing_rows()
        return [row for row in self._asked if owing[row]]

    @property
    def alive(self) -> list[int]:
        """The workers that live."""
        return sorted(self._workers)

    # What a pool says.

    def places(self) -> int | None:
        """Returns `None`: any number of workers can be started."""
        return None

    def usual_workers(self) -> int:
        """Returns how many workers there are unless told: one for each CPU."""
        return available_cpus()

    def start(self, jobs: Sequence[WorkerJob]) -> None:
        """Remembers which workers are to start."""
        for job in jobs:
            self._starting[job.worker] = job

    def replace(self, worker: int, job: WorkerJob) -> None:
        """Remembers that a worker is to start again."""
        self.start([job])

    def bind(self, layout: SlabLayout) -> Slab:
        """Makes the slab in ordinary memory."""
        before, self._slab = self._slab, Slab(layout)
        if before is not None:
            self._slab.adopt(before)
        for index, worker in self._workers.items():
            if index in layout.workers:
                worker.bind(self._slab, self._queue)
        return self._slab

    def publish(self, plate: bytes) -> None:
        """Does nothing: other processes cannot see the rows."""

    def dispatch(self, rows: Sequence[int] | None) -> None:
        """Remembers which rows were asked."""
        self._maybe_interrupt("dispatch")
        everyone = range(self._bound().layout.rows)
        for row in everyone if rows is None else [int(row) for row in rows]:
            if self._worker_of(row) in self._workers:
                self._asked.setdefault(row)
        self._maybe_interrupt("dispatched")

    def wait_events(self, timeout: float | None, owing: int = -1) -> deque[Event]:
        """Plays the schedule until something has happened; it never blocks."""
        self._rang = False
        if self._has_come(owing):
            # A pool that waits for something else would ask for ever.
            self._idle_waits = 0 if self._queue else self._idle_waits + 1
            assert self._idle_waits <= _MOST_IDLE_WAITS, "It spins."
            return self._queue
        until = None if timeout is None else self.clock.now() + timeout
        while self.schedule and not (self._queue or self._rang):
            action = self.schedule[0]
            if isinstance(action, Pass) and until is not None:
                left = until - self.clock.now()
                if action.seconds > left:
                    # The rest of it passes in the waits that follow.
                    self.schedule[0] = Pass(action.seconds - max(left, 0.0))
                    self._idle(until)
                    return self._queue
            self.schedule.popleft()
            self._play(action)
        if not (self._queue or self._rang) and not self._by_hand:
            self._go_on()
        if self._rang or self._has_come(owing):
            self._idle_waits = 0
            self._maybe_interrupt("return")
            return self._queue
        self._idle(until)
        return self._queue

    def _has_come(self, owing: int) -> bool:
        slab = self._slab
        return bool(self._queue) or (slab is not None and slab.has_come(owing))

    def request(self, worker: int, request: Request) -> None:
        """Remembers a question."""
        self._maybe_interrupt("request")
        if worker in self._workers:
            self._requests.append((worker, request))
        self._maybe_interrupt("requested")

    def kill(self, worker: int) -> None:
        """Ends a worker at once."""
        if self._starting.pop(worker, None) is not None:
            self._exit(worker, "SIGKILL")
        elif worker in self._workers:
            self._die(worker, 0, "SIGKILL")

    def is_worker(self) -> bool:
        """False: everything happens in the caller's thread."""
        return False

    def wake(self) -> None:
        """Does nothing: `wait_events` never waits."""

    def resident(self, worker: int) -> int:
        """Returns 0: the memory is the caller's own."""
        return 0

    def pid(self, worker: int) -> int:
        """Returns the number of a process that does not exist, 0 if it has none now."""
        return self._workers[worker].pid if worker in self._workers else 0

    def now(self) -> float:
        """Returns the time."""
        return self.clock.now()

    def close(self, grace: float) -> list[ExitReport]:
        """Closes the environments."""
        if self._closed:
            return []
        self._closed = True
        reports = [
            ExitReport(index, worker.pid, exitcode=0)
            for index, worker in self._workers.items()
        ]
        for worker in self._workers.values():
            worker.runner.close()
        self._workers.clear()
        self._starting.clear()
        return reports

    def retire(self, workers: Sequence[int], grace: float) -> None:
        """Closes the environments of workers that are not needed any more."""
        for index in workers:
            self._starting.pop(index, None)
            worker = self._workers.pop(index, None)
            if worker is not None:
                worker.runner.close()
        drop_events_of(workers, self._queue)

    def forget(self) -> None:
        """Holds nothing that a fork of the parent would have to close."""

    # What happens.

    def _play(self, action: Action) -> None:
        self.played.append(action)
        match action:
            case Start(pick):
                self._start(_picked(list(self._starting), pick), None)
            case FailStart(pick, exits):
                self._start(_picked(list(self._starting), pick), exits)
            case Finish(picks):
                rows = self._answerable()
                self._finish([_picked(rows, pick) for pick in picks] or rows)
            case Commit(picks):
                rows = self._answerable()
                for row in dict.fromkeys(_picked(rows, pick) for pick in picks):
                    self._run(row)
            case Raise(pick):
                self._raise(_picked(self._answerable(), pick))
            case Die(pick, answers):
                self._die(_picked(self.alive, pick), answers)
            case Hang(pick):
                worker = _picked(self._in_debt(), pick)
                if worker is not None:
                    self._workers[worker].hangs = True
            case Answer(pick):
                self._answer(_picked(self._questions(), pick))
            case Pass(seconds):
                self.clock.advance(seconds)
            case Ring():
                self._rang = True
            case Interrupt("wait"):
                raise KeyboardInterrupt

    def _go_on(self) -> None:
        """Lets everything happen that can."""
        while self._starting:
            self._start(next(iter(self._starting)), None)
        for question in self._questions():
            self._answer(question)
        self._finish(self._answerable())

    def _idle(self, until: float | None) -> None:
        """Lets the time of a wait pass in which nothing happens."""
        self._idle_waits += 1
        if until is None or self._idle_waits > _MOST_IDLE_WAITS:
            hung = [i for i, worker in self._workers.items() if worker.hangs]
            raise WouldHangError(
                "A call waits for something that will never happen.\n\n"
                f"  waits            {self._idle_waits} in vain, one after the other\n"
                f"  rows unanswered  {self.unanswered}\n"
                f"  workers alive    {self.alive}\n"
                f"  workers hung     {hung}\n"
                f"  the time         {self.clock.now():g} s\n\n"
                "If it waits for time to pass, it has to share the clock of this "
                "backend."
            )
        self.clock.advance(max(until - self.clock.now(), 0.0))

    def _start(self, worker: int | None, exits: bool | None) -> None:
        if worker is None:
            return
        job = self._starting.pop(worker)
        if exits:
            self._exit(worker, None)
            return
        pid = self._new_pid()
        if exits is False:
            failure = RemoteFailure.of(
                RuntimeError("FakeBackend was told that this constructor raises."),
                kind="constructor",
                env=job.first_env,
                command="construct",
                pid=pid,
            )
            self._queue.append(_Started(worker, failure))
            return
        runner = EnvRunner(job)
        hello = runner.build()
        if isinstance(hello, Hello):
            hello = hello._replace(pid=pid, resident=0, heavy_modules=())
            self._workers[worker] = built = _FakeWorker(job, pid, runner, hello)
            if self._slab is not None and worker in self._slab.layout.workers:
                built.bind(self._slab, self._queue)
        self._queue.append(_Started(worker, hello))

    def _finish(self, rows: Iterable[int | None]) -> None:
        """Lets rows answer, in this order, and rings."""
        for row in rows:
            if self._run(row):
                self._rang = True

    def _run(self, row: int | None) -> bool:
        """Runs a row, with the others of its batch; returns whether it was to run."""
        if row is None or row not in self.unanswered:
            return False
        worker = self._workers[self._worker_of(row)]
        rows = [other for other in worker.rows_with(row) if other in self.unanswered]
        pending = set(worker.runner.pending())
        worker.runner.run([other for other in rows if other in pending])
        for other in rows:
            del self._asked[other]
        return True

    def _raise(self, row: int | None) -> None:
        if row is None:
            return
        worker = self._workers[self._worker_of(row)]
        rows = [other for other in worker.rows_with(row) if other in self.unanswered]
        slab = self._bound()
        failure = RemoteFailure.of(
            RuntimeError("FakeBackend was told that this environment raises."),
            env=worker.env_of(row),
            command=_COMMANDS[int(slab.requested[row])],
            pid=worker.pid,
        )
        self._queue.append(Raised(tuple(rows), failure))
        for each in rows:
            slab.fail(each)
            del self._asked[each]

    def _die(self, worker: int | None, answers: int, by: str = "SIGSEGV") -> None:
        if worker is None:
            return
        mine = [row for row in self.unanswered if self._worker_of(row) == worker]
        for row in mine[:answers]:
            self._run(row)
        for row in [row for row in self._asked if self._worker_of(row) == worker]:
            del self._asked[row]
        self._requests = deque(each for each in self._requests if each[0] != worker)
        self._exit(worker, by)

    def _exit(self, worker: int, signal: str | None) -> None:
        gone = self._workers.pop(worker, None)
        pid = gone.pid if gone is not None else self._new_pid()
        exitcode = 1 if signal is None else None
        report = ExitReport(worker, pid, exitcode=exitcode, signal=signal)
        self._queue.append(Exited(worker, report))

    def _answer(self, question: tuple[int, Request] | None) -> None:
        if question is None:
            return
        self._requests.remove(question)
        worker, request = question
        reply = self._workers[worker].runner.handle(request)
        self._queue.append(Replied(worker, reply))

    def _maybe_interrupt(self, where: str) -> None:
        if self.schedule and self.schedule[0] == Interrupt(where):
            self.played.append(self.schedule.popleft())
            raise KeyboardInterrupt

    # Facts.

    def _bound(self) -> Slab:
        assert self._slab is not None  # since bind()
        return self._slab

    def _worker_of(self, row: int) -> int:
        blocks = self._bound().layout.blocks
        return next(i for i, (_, stop) in enumerate(blocks) if row < stop)

    def _answerable(self) -> list[int]:
        """Returns the rows that can answer now."""
        return [
            row
            for row in self.unanswered
            if not self._workers[self._worker_of(row)].hangs
        ]

    def _in_debt(self) -> list[int]:
        """Returns the workers that owe something."""
        workers = {self._worker_of(row) for row in self.unanswered}
        return sorted(workers | {worker for worker, _ in self._requests})

    def _questions(self) -> list[tuple[int, Request]]:
        return [each for each in self._requests if not self._workers[each[0]].hangs]

    def _new_pid(self) -> int:
        self._next_pid += 1
        return self._next_pid


class _FakeWorker:
    """One worker: its runner, and which rows belong to which environment."""

    def __init__(
        self, job: WorkerJob, pid: int, runner: EnvRunner, hello: Hello
    ) -> None:
        self.index = job.worker
        self._first_env = job.first_env
        self.pid = pid
        self.runner = runner
        self.hangs = False
        self._hello = hello

    def bind(self, slab: Slab, queue: deque[Event]) -> None:
        def note(rows: Sequence[int], failure: RemoteFailure) -> None:
            queue.append(Raised(tuple(rows), failure._replace(pid=self.pid)))

        if self.runner.is_bound:
            self.runner.move(slab, self.index)
        else:
            self.runner.bind(slab, self.index)
        self.runner.tell_failure = note
        first, stop = slab.layout.blocks[self.index]
        self._envs: list[range] = []
        for size in self._hello.batch_sizes:
            if first < stop:
                self._envs.append(range(first, first + (size or 1)))
            first += size or 1

    def rows_with(self, row: int) -> range:
        """Returns the rows of the environment that a row belongs to."""
        return next(rows for rows in self._envs if row in rows)

    def env_of(self, row: int) -> int:
        """Returns the index of a row's environment among all of the pool's."""
        return self._first_env + self._envs.index(self.rows_with(row))


def _picked(candidates: Sequence[Any], pick: int) -> Any:
    """Chooses one of several by a number that wraps around; `None` if there is none."""
    return candidates[pick % len(candidates)] if candidates else None
