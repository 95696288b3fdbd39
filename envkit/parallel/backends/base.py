"""`Backend`: the contract between a pool and its backend, and the events."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

from envkit.parallel.messages import (
    ExitReport,
    Hello,
    RemoteFailure,
    Reply,
    Request,
    WorkerJob,
)
from envkit.parallel.slab import Slab
from envkit.parallel.slab_layout import SlabLayout
from envkit.types import Array

__all__ = [
    "Backend",
    "Event",
    "Exited",
    "Raised",
    "Replied",
    "Started",
    "drop_events_of",
    "refuse_calls",
]


class Started(NamedTuple):
    """A worker has built its environments, or has failed to."""

    worker: int
    hello: Hello | RemoteFailure


class Raised(NamedTuple):
    """The environment of some rows has raised; the slab marks these rows, or soon will.

    It comes before the first `wait_events` that returns because of the mark.
    """

    rows: tuple[int, ...]
    failure: RemoteFailure


class Replied(NamedTuple):
    """A worker has answered a request."""

    worker: int
    reply: Reply


class Exited(NamedTuple):
    """A worker has ended; its open requests will not be answered.

    Its answers are in the slab, and its environments' exceptions came before this
    event.
    """

    worker: int
    report: ExitReport


Event: TypeAlias = Started | Raised | Replied | Exited


def drop_events_of(workers: Sequence[int], queue: deque[Event]) -> None:
    """Drops the events of ended workers, except `Raised`."""
    others = [
        event
        for event in queue
        if isinstance(event, Raised) or event.worker not in workers
    ]
    queue.clear()
    queue.extend(others)


def refuse_calls(backend: Backend) -> None:
    """Makes a pool's calls raise, after it is closed or in a fork of its process.

    `Backend.forget` calls it last. Otherwise a pool that is used in a fork would wait
    for workers that answer its parent.

    Args:
        backend: The backend, whose `dispatch`, `request` and `wait_events` raise a
            `ClosedError` from now on.
    """
    # Imported here, because a backend of servers, which never unpickles, uses this
    # module too.
    from envkit.parallel.failures import refuse_elsewhere

    for name in ("dispatch", "request", "wait_events"):
        setattr(backend, name, refuse_elsewhere)


class Backend(Protocol):
    """Moves rows between a pool and its workers, wherever they run.

    Before it calls `dispatch`, the pool writes actions, commands and numbers into the
    slab. Before a number appears in `Slab.answers`, the row's time step must be
    complete there. So there is no event for an answer: the pool reads it in the slab. A
    backend decides nothing, neither which worker is busy nor which one restarts.

    Leaves that shared memory cannot hold (`SlabLayout.private_steps`) may arrive after
    the number, but must be there when the next `wait_events(0.0)` returns.

    Ctrl-C may interrupt `wait_events` while it waits, and is otherwise held back by
    `uninterrupted`: no event is lost, each is in the queue or still to be found.

    Attributes:
        name: Its name, such as "process".
        can_kill: Whether `kill` ends a hanging worker.
        keeps_answers: Whether a worker's answers survive its death.
        keeps_states: Whether a worker can read the states that another worker saved.
        cuts_workers: Whether a worker can continue with only the first of its
            environments.
    """

    name: ClassVar[str]
    can_kill: ClassVar[bool]
    keeps_answers: ClassVar[bool]
    keeps_states: ClassVar[bool]
    cuts_workers: ClassVar[bool]

    def now(self) -> float:
        """Returns the time in seconds, from a monotonic clock."""

    def places(self) -> int | None:
        """Returns the largest number of workers; `None` for any number."""

    def usual_workers(self) -> int:
        """Returns the default number of workers."""

    def start(self, jobs: Sequence[WorkerJob]) -> None:
        """Begins to start workers; each will cause an event, `Started` or `Exited`."""

    def bind(self, layout: SlabLayout) -> Slab:
        """Makes the slab and gives it to every worker.

        It is called again, while no row owes an answer, when the number of rows
        changes: new workers have been appended, or the last rows are removed. Remaining
        rows keep their contents from the old slab, and their environments continue. A
        worker closes its environments that have lost their rows. Workers beyond the
        layout get no message, because `retire` will end them.
        """

    def publish(self, plate: bytes) -> None:
        """Publishes facts about the pool to other processes that can read the rows."""

    def dispatch(self, rows: Array | None) -> None:
        """Runs rows that were asked; `None` means all. Repeating it is harmless."""

    def wait_events(self, timeout: float | None, owing: int = -1) -> deque[Event]:
        """Waits for events, and returns them.

        It returns when there is an event, when a row is marked as raised, or when at
        most `owing` rows owe an answer. The queue belongs to the backend. The caller
        empties it; events left there are returned again.

        Args:
            timeout: Seconds after which to return in any case; `None` for no limit.
                With 0, it takes in everything that has arrived.
            owing: How many rows may still owe an answer; -1 to ignore answers.
        """

    def request(self, worker: int, request: Request) -> None:
        """Asks an idle worker a question; the answer arrives as an event `Replied`."""

    def replace(self, worker: int, job: WorkerJob) -> None:
        """Starts another worker in place of a lost one; does not wait for it."""

    def kill(self, worker: int) -> None:
        """Kills a worker at once, if possible; its end arrives as an event `Exited`."""

    def retire(self, workers: Sequence[int], grace: float) -> None:
        """Ends workers that are no longer needed, within about `grace` seconds.

        They close their environments. Their ends are not reported as events. All of
        them have ended afterwards, even if this raises.
        """

    def pid(self, worker: int) -> int:
        """Returns the process of a worker; 0 if it currently has none."""

    def resident(self, worker: int) -> int:
        """Returns the memory of a worker in bytes; 0 if it has none of its own."""

    def is_worker(self) -> bool:
        """Returns True in a worker's thread, which must not wait for the pool."""

    def wake(self) -> None:
        """Ends another thread's wait; from now on `wait_events` does not wait."""

    def close(self, grace: float) -> Sequence[ExitReport]:
        """Ends everything within about `grace` seconds; may be called again."""

    def forget(self) -> None:
        """Closes only the descriptors that a fork of this process inherited."""
