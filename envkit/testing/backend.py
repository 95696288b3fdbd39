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

import numpy as np

from envkit.parallel.backends.base import Event, Exited, Failed, Finished, Replied
from envkit.parallel.backends.base import Started as _Started
from envkit.parallel.messages import (
    ExitReport,
    Hello,
    RemoteFailure,
    Request,
    WorkerJob,
)
from envkit.parallel.runner import EnvRunner
from envkit.parallel.slab import Slab, SlabLayout
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
    "Repeat",
    "Start",
    "WouldHangError",
]

# So often somebody may wait, one time after the other, for what nobody will do.
_MOST_IDLE_WAITS = 2000
_FIRST_PID = 70_000
_COMMANDS = ("", "step", "reset", "rebuild")


class WouldHangError(AssertionError):
    """Somebody waits for something that will never happen."""


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
    """Rows answer, but nobody is told until something else happens to their worker."""

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
class Repeat:
    """The rows that have finished last are announced once more."""


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
    | Repeat
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

    def __init__(
        self,
        schedule: Iterable[Action] = (),
        *,
        clock: ManualClock | None = None,
        by_hand: bool = False,
    ) -> None:
        """Prepares; nothing is built yet.

        Args:
            schedule: What happens while somebody waits.
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
        # Rows that were asked, in that order; of those, some have answered in silence.
        self._owed: dict[int, None] = {}
        self._committed: dict[int, None] = {}
        self._failures: dict[int, RemoteFailure] = {}
        self._requests: deque[tuple[int, Request]] = deque()
        self._last_finished: Finished | None = None
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

    def let_go_on(self) -> None:
        """Forgets the rest of the schedule: everything happens, in order."""
        self.schedule.clear()
        self._by_hand = False

    def finish(self, *rows: int) -> None:
        """Lets the given rows answer, in this order."""
        self._finish([row for row in rows if row in self._answerable()])

    def fail(self, row: int) -> None:
        """Lets the environment of a row raise."""
        if row in self._answerable():
            self._raise(row)

    def die(self, worker: int, answers: int = 0) -> None:
        """Lets a worker die, after it has answered some of its rows."""
        if worker in self._workers:
            self._die(worker, answers)

    @property
    def unanswered(self) -> list[int]:
        """The rows that were asked and have not answered, in the order of asking."""
        return [row for row in self._owed if row not in self._committed]

    @property
    def alive(self) -> list[int]:
        """The workers that live."""
        return sorted(self._workers)

    # What a pool says.

    def start(self, jobs: Sequence[WorkerJob]) -> None:
        """Remembers which workers are to start."""
        for job in jobs:
            self._starting[job.worker] = job

    def replace(self, worker: int, job: WorkerJob) -> None:
        """Remembers that a worker is to start again."""
        self.start([job])

    def bind(self, layout: SlabLayout) -> Slab:
        """Makes the slab in ordinary memory."""
        self._slab = Slab(layout)
        for worker in self._workers.values():
            worker.bind(self._slab, self._failures)
        return self._slab

    def dispatch(self, rows: Sequence[int] | None) -> None:
        """Remembers which rows were asked."""
        self._maybe_interrupt("dispatch")
        slab = self._bound()
        asked = range(slab.layout.rows) if rows is None else [int(row) for row in rows]
        told = slab.answered_rows()
        again = []
        for row in asked:
            if self._worker_of(row) in self._workers:
                self._owed[row] = None
            if told[row] and row in self._owed:
                again.append(row)
            elif row in self._committed:
                # Nobody waited for the answer before.
                del self._committed[row]
        self._tell(again)
        self._maybe_interrupt("dispatched")

    def wait_events(self, timeout: float | None, count: int = 1) -> deque[Event]:
        """Plays the schedule until there is an event; it never blocks."""
        if self._queue:
            return self._queue
        until = None if timeout is None else self.clock.now() + timeout
        while self.schedule and not self._queue:
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
        if not self._queue and not self._by_hand:
            self._go_on()
        if self._queue:
            self._idle_waits = 0
            self._maybe_interrupt("return")
            return self._queue
        self._idle(until)
        return self._queue

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
            case Repeat():
                self._repeat()
            case Interrupt("wait"):
                raise KeyboardInterrupt

    def _repeat(self) -> None:
        if self._last_finished is None:
            return
        # Saying so of rows that have been asked since would not be true.
        told = self._bound().answered_rows()
        rows = [row for row in self._last_finished.rows.tolist() if told[row]]
        rows = [row for row in rows if row not in self._owed]
        if rows:
            self._queue.append(Finished(np.array(rows)))

    def _go_on(self) -> None:
        """Lets everything happen that can."""
        while self._starting:
            self._start(next(iter(self._starting)), None)
        for question in self._questions():
            self._answer(question)
        self._finish(self._answerable())
        self._tell(list(self._committed))

    def _idle(self, until: float | None) -> None:
        """Lets the time of a wait pass in which nothing happens."""
        self._idle_waits += 1
        if until is None or self._idle_waits > _MOST_IDLE_WAITS:
            hung = [i for i, worker in self._workers.items() if worker.hangs]
            raise WouldHangError(
                "Somebody waits for something that will never happen.\n\n"
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
            if self._slab is not None:
                built.bind(self._slab, self._failures)
        self._queue.append(_Started(worker, hello))

    def _finish(self, rows: Iterable[int | None]) -> None:
        """Lets rows answer and says so, in this order."""
        done: dict[int, None] = {}
        for row in rows:
            if row is not None:
                done |= dict.fromkeys(self._run(row))
        workers = {self._worker_of(row) for row in done}
        silent = [row for row in self._committed if self._worker_of(row) in workers]
        self._tell(dict.fromkeys([*silent, *done]))

    def _run(self, row: int | None) -> list[int]:
        """Runs a row, with the others of its batch; nobody is told yet."""
        if row is None or row in self._committed or row not in self._owed:
            return []
        worker = self._workers[self._worker_of(row)]
        rows = [other for other in worker.rows_with(row) if other in self.unanswered]
        pending = set(worker.runner.pending())
        worker.runner.run([other for other in rows if other in pending])
        self._committed |= dict.fromkeys(rows)
        return rows

    def _raise(self, row: int | None) -> None:
        if row is None:
            return
        worker = self._workers[self._worker_of(row)]
        rows = [other for other in worker.rows_with(row) if other in self.unanswered]
        slab = self._bound()
        failure = RemoteFailure.of(
            RuntimeError("FakeBackend was told that this environment raises."),
            env=worker.env_of(row),
            command=_COMMANDS[int(slab.command[row])],
            pid=worker.pid,
        )
        for each in rows:
            self._failures[each] = failure
            slab.fail(each)
        self._tell(rows)

    def _tell(self, rows: Iterable[int]) -> None:
        """Queues what has become of rows that have answered."""
        rows = list(rows)
        if not rows:
            return
        slab = self._bound()
        raised = set(slab.raised_rows(np.array(rows, np.intp)).tolist())
        whole = [row for row in rows if row not in raised]
        if whole:
            self._last_finished = Finished(np.array(whole))
            self._queue.append(self._last_finished)
        if raised:
            failed = {row: self._failures[row] for row in rows if row in raised}
            self._queue.append(Failed(failed))
        for row in rows:
            self._owed.pop(row, None)
            self._committed.pop(row, None)

    def _die(self, worker: int | None, answers: int, by: str = "SIGSEGV") -> None:
        if worker is None:
            return
        mine = [row for row in self.unanswered if self._worker_of(row) == worker]
        for row in mine[:answers]:
            self._run(row)
        self._tell([row for row in self._committed if self._worker_of(row) == worker])
        for row in [row for row in self._owed if self._worker_of(row) == worker]:
            del self._owed[row]
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

    def bind(self, slab: Slab, failures: dict[int, RemoteFailure]) -> None:
        def note(rows: Sequence[int], failure: RemoteFailure) -> None:
            for row in rows:
                failures[row] = failure._replace(pid=self.pid)

        self.runner.bind(slab, self.index)
        self.runner.tell_failure = note
        first = slab.layout.blocks[self.index][0]
        self._envs: list[range] = []
        for size in self._hello.batch_sizes:
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
