"""The contract between a pool and what carries its rows, and what can happen."""

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
    """A worker has built its environments, or could not."""

    worker: int
    hello: Hello | RemoteFailure


class Raised(NamedTuple):
    """The environment of rows has raised; the slab marks these rows, or will at once.

    It comes before the first `wait_events` that returns because of the mark.
    """

    rows: tuple[int, ...]
    failure: RemoteFailure


class Replied(NamedTuple):
    """A worker has answered a request."""

    worker: int
    reply: Reply


class Exited(NamedTuple):
    """A worker is gone, and with it all that it had not answered.

    What it had answered is in the slab, and what its environments had raised came
    before this event.
    """

    worker: int
    report: ExitReport


Event: TypeAlias = Started | Raised | Replied | Exited


def drop_events_of(workers: Sequence[int], queue: deque[Event]) -> None:
    """Drops the events of workers that are gone, but what rows have raised."""
    others = [
        event
        for event in queue
        if isinstance(event, Raised) or event.worker not in workers
    ]
    queue.clear()
    queue.extend(others)


def refuse_calls(backend: Backend) -> None:
    """Makes the calls of a pool raise, in a fork of its process or once it is closed.

    It is the last that `Backend.forget` does; otherwise a pool that is used in a fork
    would wait for workers that answer its parent.

    Args:
        backend: The backend, whose `dispatch`, `request` and `wait_events` raise a
            `ClosedError` from now on.
    """
    # Not above: a backend of servers, which never unpickles, keeps this contract, too.
    from envkit.parallel.failures import refuse_elsewhere

    for name in ("dispatch", "request", "wait_events"):
        setattr(backend, name, refuse_elsewhere)


class Backend(Protocol):
    """Carries rows between a pool and its runners, wherever they live.

    Before `dispatch` the pool has written actions, commands and numbers into the slab;
    before a number stands in `Slab.answered` the row's time step is whole there. That
    is the heart of it: which rows have answered no event tells, the pool reads it in
    the slab. A backend decides nothing: neither who is busy nor who is started again.

    A time step's leaves that memory cannot hold (`SlabLayout.private_steps`) may come
    later than the number, but not later than the return of the `wait_events(0.0)` that
    follows.

    Ctrl-C may interrupt `wait_events` while it waits, and is held back otherwise by
    `uninterrupted`: what has happened is in the queue, or is still to be found.

    Attributes:
        name: What people call it.
        can_kill: Whether `kill` ends a worker that hangs.
        keeps_answers: Whether what a worker had answered survives its death.
        keeps_states: Whether a worker can read the states that another has saved.
        cuts_workers: Whether a worker can go on with the first of its environments.
    """

    name: ClassVar[str]
    can_kill: ClassVar[bool]
    keeps_answers: ClassVar[bool]
    keeps_states: ClassVar[bool]
    cuts_workers: ClassVar[bool]

    def now(self) -> float:
        """Returns the time in seconds, of a clock that never goes back."""

    def places(self) -> int | None:
        """Returns how many workers there can be; `None` for any number."""

    def usual_workers(self) -> int:
        """Returns how many workers there are unless a pool asks for another number."""

    def start(self, jobs: Sequence[WorkerJob]) -> None:
        """Begins to start workers; each will be an event `Started` or `Exited`."""

    def bind(self, layout: SlabLayout) -> Slab:
        """Makes the slab and lets every worker have it.

        It is called again, while no row owes an answer, when the number of rows
        changes: new workers have been started behind the others, or the last rows go.
        Rows that stay are as they were in the slab before, and their environments go
        on; those of a worker that have no rows any more are closed. Workers beyond the
        layout are told nothing, because `retire` is going to end them.
        """

    def publish(self, plate: bytes) -> None:
        """Shows other processes whose the rows are, if these can read the rows."""

    def dispatch(self, rows: Array | None) -> None:
        """Lets rows run that were asked; `None` means all. Harmless when repeated."""

    def wait_events(self, timeout: float | None, owing: int = -1) -> deque[Event]:
        """Waits until something has happened, and returns the events.

        It returns when there is an event; when a row is marked as raised; and when at
        most `owing` rows owe an answer. The queue is the backend's own, which the
        caller empties: what it leaves there is returned again.

        Args:
            timeout: Seconds after which to return in any case; `None` for as long as it
                takes. With 0, all that has come is taken in.
            owing: How many rows may still owe an answer; -1 if answers alone are no
                reason to return.
        """

    def request(self, worker: int, request: Request) -> None:
        """Asks an idle worker something; the answer will be an event `Replied`."""

    def replace(self, worker: int, job: WorkerJob) -> None:
        """Begins to start a worker in the place of one that is gone."""

    def kill(self, worker: int) -> None:
        """Ends a worker at once, if that can be done; it will be an event `Exited`."""

    def retire(self, workers: Sequence[int], grace: float) -> None:
        """Ends workers that are not needed any more, within about `grace` seconds.

        They close their environments. No event tells of their end, and none of them
        is there afterwards, whatever is raised here.
        """

    def pid(self, worker: int) -> int:
        """Returns the process of a worker, 0 if it has none now."""

    def resident(self, worker: int) -> int:
        """Returns the memory of a worker in bytes, 0 where it has none of its own."""

    def is_worker(self) -> bool:
        """True if the calling thread is a worker, which must not wait for the pool."""

    def wake(self) -> None:
        """Ends the wait of another thread: from now on `wait_events` does not wait."""

    def close(self, grace: float) -> Sequence[ExitReport]:
        """Ends everything within about `grace` seconds; harmless when repeated."""

    def forget(self) -> None:
        """Closes what a fork of this process has inherited, and disturbs nothing."""
