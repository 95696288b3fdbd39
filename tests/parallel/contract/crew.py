"""`Crew`: the workers of one backend, driven as a pool would, and what has come.

A crew judges as little as it can. It takes in every event, keeps what the slab shows of
rows that have answered, and leaves it to the checks to say what is wrong with it. Only
what does not come at all is an error here, after a patience that is long.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envkit import nest
from envkit.parallel.backends.base import (
    Backend,
    Event,
    Exited,
    Raised,
    Replied,
    Started,
)
from envkit.parallel.messages import (
    ExitReport,
    Hello,
    RemoteFailure,
    Reply,
    Request,
    WorkerJob,
)
from envkit.parallel.options import PoolOptions
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import REBUILD, RESET, STEP, SlabLayout, slot_of
from envkit.testing.contract.findings import Broken, broken
from envkit.testing.envs import check_trace
from envkit.time_step import TimeStep
from envkit.types import EnvConstructor
from tests.parallel.contract.environments import (
    GO,
    ObedientEnv,
    action_for,
    wait_for_file,
)
from tests.waiting import PATIENCE

__all__ = ["LEAST_LOOKS", "Crew", "drained", "time_step_of"]

# How long one wait is while something is due, and how often it is looked once more
# whether anything comes that is not.
_POLL_INTERVAL = 0.1
_LAST_LOOKS = (0.0, 0.02, 0.0)
# How often it is looked at least: a process may stand still for all of its patience.
LEAST_LOOKS = 3


class Crew:
    """Some workers with their slab, and all that they have told.

    Attributes:
        backend: What carries them.
        folder: Where their environments leave files and wait for files.
        patience: After how many seconds something will not come any more.
        too_long: After how many seconds a call did not return at once, on a machine
            that is busy with other things.
        started: For each worker, the latest event of its start.
        exits: For each worker that is gone, how it ended.
        events: All that has happened, in order.
        has_come: For each row, whether it has answered what it was asked, or raised.
        answers: For each row, the time step that it showed when its answer was found.
        failures: For each row that raised, what was told of it.
        replies: All answers to requests, by their number.
    """

    def __init__(self, backend: Backend, patience: float) -> None:
        """Takes a backend on which nothing was called yet."""
        self.backend = backend
        self.patience = patience
        self.too_long = max(patience, PATIENCE) / 2
        self.folder = Path(tempfile.mkdtemp(prefix="envkit-check-"))
        self.started: dict[int, Started] = {}
        self.exits: dict[int, ExitReport] = {}
        self.events: list[Event] = []
        self.has_come: dict[int, bool] = {}
        self.answers: dict[int, TimeStep] = {}
        self.failures: dict[int, RemoteFailure] = {}
        self.replies: dict[int, list[Reply]] = {}
        self.before: dict[int, TimeStep | None] = {}
        self.asked_for: dict[int, Any] = {}
        self.slab: Slab
        # What `has_come` was when the latest worker was told to be gone.
        self.before_exit: dict[int, bool] = {}
        self.jobs: list[WorkerJob] = []
        self._numbers = itertools.count(1)
        self._is_closed = False

    # Starting.

    def start(
        self,
        sizes: Sequence[int],
        make: Callable[[int], EnvConstructor] | None = None,
        **options: Any,
    ) -> list[Hello]:
        """Starts workers with so many environments each, and lays out their slab."""
        self.begin_start(sizes, make, **options)
        self.await_starts(range(len(sizes)))
        return self.lay_out()

    def begin_start(
        self,
        sizes: Sequence[int],
        make: Callable[[int], EnvConstructor] | None = None,
        setup: Callable[[], Any] | None = None,
        **options: Any,
    ) -> None:
        """Begins to start workers."""
        make = self.obedient if make is None else make
        firsts = [0, *itertools.accumulate(sizes)]
        self.jobs = [
            WorkerJob(
                worker,
                first,
                tuple(map(make, range(first, first + size))),
                options=PoolOptions(**options),
                setup=setup,
            )
            for worker, (first, size) in enumerate(zip(firsts, sizes, strict=False))
        ]
        self.backend.start(self.jobs)

    def obedient(self, env: int) -> EnvConstructor:
        """Returns what makes an environment that obeys."""
        return functools.partial(ObedientEnv, str(self.folder), env)

    def await_starts(self, workers: Iterable[int]) -> None:
        """Waits until these workers have started, failed or ended."""
        missing = [*workers]
        self.wait(
            lambda: all(w in self.started or w in self.exits for w in missing),
            f"Workers {missing} were asked to start.",
        )

    def hello(self, worker: int) -> Hello:
        """Returns what a worker said when it had started."""
        event = self.started.get(worker)
        if event is not None and isinstance(event.hello, Hello):
            return event.hello
        raise broken(
            f"Worker {worker} was asked to start, and its constructors are right.",
            "A worker that has built its environments says so, with their specs.",
            expected=f"Started({worker}, Hello(...))",
            got=str(self.exits.get(worker, event)),
        )

    def lay_out(self) -> list[Hello]:
        """Gives the workers a slab."""
        hellos = [self.hello(job.worker) for job in self.jobs]
        sizes = [sum(size or 1 for size in hello.batch_sizes) for hello in hellos]
        ends = list(itertools.accumulate(sizes))
        blocks = tuple(zip([0, *ends], ends, strict=False))
        self.slab = self.backend.bind(SlabLayout(hellos[0].specs[0], blocks))
        self.has_come = dict.fromkeys(range(self.rows), True)
        self.before = dict.fromkeys(range(self.rows))
        return hellos

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.slab.layout.rows

    # Rows.

    def action(self, order: int = GO) -> int:
        """Returns an action that was not used before."""
        return action_for(order, next(self._numbers))

    def ask(
        self,
        rows: Sequence[int],
        command: int = STEP,
        actions: Mapping[int, Any] | None = None,
    ) -> None:
        """Writes what is asked of rows into the slab; `dispatch` is what sends it."""
        for row in rows:
            action = None
            if command == STEP:
                action = (actions or {}).get(row)
                action = self.action() if action is None else action
                for array, leaf in zip(
                    self.slab.action_columns(), nest.flatten(action), strict=True
                ):
                    array[row] = leaf
            self.asked_for[row] = action
            self.before[row] = self.answers.pop(row, self.before[row])
            if command == REBUILD:
                self.before[row] = None
            self.failures.pop(row, None)
            self.has_come[row] = False
        self.slab.request(np.array(rows, np.intp), command)

    def dispatch(self, rows: Sequence[int] | None) -> None:
        """Sends rows on their way; `None` is all."""
        self.backend.dispatch(None if rows is None else np.array(rows, np.intp))

    def send(
        self,
        rows: Sequence[int],
        command: int = STEP,
        actions: Mapping[int, Any] | None = None,
    ) -> None:
        """Asks and dispatches rows."""
        self.ask(rows, command, actions)
        self.dispatch(rows)

    def run(
        self,
        rows: Sequence[int],
        command: int = STEP,
        actions: Mapping[int, Any] | None = None,
    ) -> None:
        """Asks rows, waits until they are announced, and looks at the answers."""
        self.send(rows, command, actions)
        self.await_rows(rows)
        self.check_answers(rows)

    def await_rows(self, rows: Iterable[int]) -> None:
        """Waits until rows have answered or raised."""
        rows = list(rows)
        self.look()
        self.wait(
            lambda: all(self.has_come[row] for row in rows), f"Rows {rows} were asked."
        )

    def check_answers(self, rows: Iterable[int], *, new: bool = False) -> None:
        """Looks whether the answers of `ObedientEnv` are those that were due.

        `new` says that their environments are new since the answer before.
        """
        for row in rows:
            if row in self.failures:
                raise broken(
                    f"Row {row} was told to have failed, and nothing was wrong.",
                    "Only the environment that raised fails.",
                    got=self.failures[row].traceback.strip().splitlines()[-1],
                )
            trace = check_trace(
                None if new else self.before[row],
                self.asked_for[row],
                self.answers[row],
                env_id=row,
            )
            if trace:
                raise Broken(
                    f"The answer of row {row} is not the one that was due: {trace}"
                )

    def forget_failures(self) -> None:
        """Takes back the requests of rows that raised, as a pool does."""
        for row in self.failures:
            self.slab.withdraw(np.array([row]))

    def slot(self, row: int) -> int:
        """Returns the slot of a row's latest request."""
        return slot_of(int(self.slab.numbers[row]))

    # Gates.

    def let_go(self, row: int) -> None:
        """Opens the gate at which the environment of a row waits."""
        (self.folder / f"go-{row}-{self.asked_for[row]}").touch()

    def await_entered(self, row: int) -> None:
        """Waits until the environment of a row has begun to do what it was told."""
        self.await_file(f"in-{row}-{self.asked_for[row]}", f"Row {row} was asked.")

    def await_file(self, name: str, occasion: str) -> None:
        """Waits until an environment has made a file."""
        if not wait_for_file(self.folder / name, self.patience):
            raise broken(
                f"{occasion} Its environment was told nothing of it.",
                "What is dispatched runs, also if no call waits for it.",
                waited=f"{self.patience:g} s",
            )

    # Questions.

    def post(
        self, worker: int, method: str, envs: Sequence[int], arguments: Any
    ) -> int:
        """Asks a worker something; returns the number of the request."""
        number = 1000 + next(self._numbers)
        self.backend.request(
            worker, Request(number, method, tuple(envs), tuple(arguments))
        )
        return number

    def await_reply(self, number: int) -> tuple[Any, ...]:
        """Waits for the answer to a request."""
        self.wait(
            lambda: number in self.replies, f"Request {number} was sent to a worker."
        )
        (reply,) = self.replies[number]
        return reply.results

    def answer(
        self, worker: int, method: str, envs: Sequence[int], arguments: Any
    ) -> tuple[Any, ...]:
        """Asks a worker something, and waits for the answer."""
        return self.await_reply(self.post(worker, method, envs, arguments))

    def where(self, env: int) -> tuple[int, int, str]:
        """Returns process, thread and name of an environment."""
        (found,) = self.answer(self.worker_of(env), "call", [env], [("where", (), {})])
        if isinstance(found, RemoteFailure):
            raise Broken(f"A question to env {env} failed:\n\n{found.traceback}")
        return found  # type: ignore[no-any-return]  # what ObedientEnv returns

    def worker_of(self, env: int) -> int:
        """Returns the worker of an environment."""
        return max(job.worker for job in self.jobs if job.first_env <= env)

    # Waiting.

    def wait(self, is_over: Callable[[], bool], occasion: str) -> None:
        """Takes in what happens until something is true."""
        deadline, looks = time.monotonic() + self.patience, 0
        while not is_over():
            if time.monotonic() >= deadline and looks >= LEAST_LOOKS:
                raise self._nothing_came(occasion)
            looks += 1
            owing = sum(not come for come in self.has_come.values()) - 1
            self.take(self.backend.wait_events(_POLL_INTERVAL, max(owing, -1)))

    def settle(self) -> None:
        """Takes in what comes without being waited for."""
        for timeout in _LAST_LOOKS:
            self.take(self.backend.wait_events(timeout))

    def take(self, queue: deque[Event]) -> None:
        """Takes in what has happened."""
        while queue:
            self._note(queue.popleft())
        self.look()

    def look(self) -> None:
        """Looks for rows that have answered, or that are marked as raised."""
        if not self.has_come:
            return
        slab = self.slab
        new = [
            row
            for row in np.flatnonzero(~slab.owing_rows()).tolist()
            if not self.has_come[row]
        ]
        if new and slab.layout.private_steps:
            # What memory cannot hold may come later than the numbers.
            for event in drained(self.backend.wait_events(0.0)):
                self._note(event)
        for row in new:
            self.answers[row] = time_step_of(slab, row, self.slot(row))
            self.has_come[row] = True
        told = np.array([*self.failures], np.intp)
        for row in slab.raised_rows(told).tolist():
            self.has_come[row] = True

    def _note(self, event: Event) -> None:
        self.events.append(event)
        match event:
            case Started(worker):
                self.started[worker] = event
            case Exited(worker, report):
                self.look()
                self.exits[worker] = report
                self.before_exit = dict(self.has_come)
            case Replied(_, reply):
                self.replies.setdefault(reply.number, []).append(reply)
            case Raised(rows, failure):
                self.failures.update(dict.fromkeys(rows, failure))
            case _:
                raise Broken(
                    f"wait_events() returned {event!r:.80}, which is none of the "
                    "events of envkit.parallel.backends.base."
                )

    def _nothing_came(self, occasion: str) -> Broken:
        latest = [_shown(event) for event in self.events[-3:]]
        return broken(
            f"{occasion} Nothing came of it within {self.patience:g} s.",
            "Answers come into the slab; all else that happens comes out of "
            "wait_events(), however often it is called.",
            **{"latest events": ", ".join(latest) or "none"},
        )

    # The end.

    def replace(self, worker: int, make: Callable[[int], EnvConstructor]) -> None:
        """Begins to start a worker in the place of one that is gone."""
        first, stop = self.slab.layout.blocks[worker]
        rows = np.arange(first, stop)
        unanswered = rows[self.slab.owing_rows()[rows]]
        if unanswered.size:
            self.slab.withdraw(unanswered)
        job = self.jobs[worker]
        constructors = tuple(
            map(make, range(job.first_env, job.first_env + len(job.constructors)))
        )
        self.started.pop(worker, None)
        self.exits.pop(worker, None)
        self.backend.replace(worker, WorkerJob(worker, job.first_env, constructors))

    def restore(self, worker: int) -> None:
        """Replaces a worker that is gone, and begins an episode in each of its rows."""
        self.replace(worker, self.obedient)
        self.await_starts([worker])
        self.hello(worker)
        rows = range(*self.slab.layout.blocks[worker])
        self.send(rows, RESET)
        self.await_rows(rows)
        self.check_answers(rows, new=True)

    def close(self, grace: float = 5.0) -> Sequence[ExitReport]:
        """Closes the backend."""
        self._is_closed = True
        return self.backend.close(grace)

    def clean_up(self) -> None:
        """Ends everything, and lets go who still waits."""
        # Whoever finds its folder gone waits no more.
        shutil.rmtree(self.folder, ignore_errors=True)
        if not self._is_closed:
            # What close() does wrong is the business of other checks.
            with contextlib.suppress(Exception):
                self.close()


def drained(queue: deque[Event]) -> Iterator[Event]:
    """Returns the events of a queue, each of which it takes out."""
    while queue:
        yield queue.popleft()


def _shown(event: Event) -> str:
    match event:
        case Raised(rows):
            return f"Raised({rows})"
        case Replied(worker, reply):
            return f"Replied({worker}, number {reply.number})"
        case Started(worker, hello):
            return f"Started({worker}, {type(hello).__name__})"
        case Exited(worker):
            return f"Exited({worker})"


def time_step_of(slab: Slab, row: int, slot: int) -> TimeStep:
    """Returns what one slot of a row holds."""
    leaves = [leaf[0, ...] for leaf in slab.read(np.array([row]), np.array([slot]))]
    return slab.layout.time_step.unflatten(leaves)  # type: ignore[no-any-return]
