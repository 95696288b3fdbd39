"""The contract between a pool and whatever carries its rows, and what can happen."""

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
from envkit.parallel.slab import Slab, SlabLayout
from envkit.types import Array

__all__ = [
    "Backend",
    "Event",
    "Exited",
    "Failed",
    "Finished",
    "Replied",
    "Started",
]


class Started(NamedTuple):
    """A worker has built its environments, or could not."""

    worker: int
    hello: Hello | RemoteFailure


class Finished(NamedTuple):
    """Rows have answered, in this order; their time steps are in the slab."""

    rows: Array


class Failed(NamedTuple):
    """The environments of rows have raised; the rows are marked in the slab."""

    failures: dict[int, RemoteFailure]


class Replied(NamedTuple):
    """A worker has answered a request."""

    worker: int
    reply: Reply


class Exited(NamedTuple):
    """A worker is gone, and so is what it had not answered."""

    worker: int
    report: ExitReport


Event: TypeAlias = Started | Finished | Failed | Replied | Exited


class Backend(Protocol):
    """Carries rows between a pool and its runners, wherever they live.

    Before `dispatch` the pool has written actions, commands and numbers into the slab;
    before a backend returns `Finished` it has made the rows' time steps visible there.
    That is the whole contract. A backend decides nothing: not who is busy, not who is
    started again.

    One that has a method `wake()` is told by another thread that the pool is about to
    close: `wait_events` returns at once from then on. One that has `is_worker()` says
    whether the calling thread is a worker, which must not wait for the pool.

    Attributes:
        name: What people call it.
        can_kill: Whether `kill` ends a worker that hangs.
    """

    name: ClassVar[str]
    can_kill: ClassVar[bool]

    def start(self, jobs: Sequence[WorkerJob]) -> None:
        """Begins to start workers; each will be an event `Started` or `Exited`."""

    def bind(self, layout: SlabLayout) -> Slab:
        """Makes the slab and lets every worker have it."""

    def dispatch(self, rows: Array | None) -> None:
        """Lets rows run that were asked; `None` means all."""

    def wait_events(self, timeout: float | None, count: int = 1) -> deque[Event]:
        """Returns what has happened: the backend's own queue, which the caller empties.

        What an interrupted caller leaves there is returned again.

        Args:
            timeout: Seconds after which to return, possibly with nothing; `None` for
                as long as it takes.
            count: How many rows to wait for together, as long as nothing else happens;
                fewer may be returned.
        """

    def request(self, worker: int, request: Request) -> None:
        """Asks an idle worker something; the answer will be an event `Replied`."""

    def replace(self, worker: int, job: WorkerJob) -> None:
        """Begins to start a worker in the place of one that is gone."""

    def kill(self, worker: int) -> None:
        """Ends a worker at once, if that can be done; it will be an event `Exited`."""

    def pid(self, worker: int) -> int:
        """Returns the process of a worker, 0 if it has none now."""

    def resident(self, worker: int) -> int:
        """Returns the memory of a worker in bytes, 0 where it has none of its own."""

    def close(self, grace: float) -> Sequence[ExitReport]:
        """Ends everything within about `grace` seconds; harmless when repeated."""
