"""`PoolObserver` and `RowObserver`: what extras of a pool are told, and may do.

Recovery by replay, the memory limit and the published pool are observers. The pool
calls them and knows none of them; a step calls only those that observe rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from envkit.types import Array

if TYPE_CHECKING:
    from envkit.parallel.messages import Request
    from envkit.parallel.slab import Slab

__all__ = ["PoolObserver", "RowObserver"]


class PoolObserver:
    """Is called when something happens to a pool; every method here does nothing.

    Most methods are called where Ctrl-C is held back, and none may ask environments.
    """

    # Environments.

    def questioned(self, worker: int, request: Request) -> None:
        """Is called before the environments of a worker are asked a question."""

    def replied(self, worker: int, results: Sequence[Any]) -> None:
        """Is called when a worker has answered the question it was asked last."""

    def abandoned(self, worker: int) -> None:
        """Is called when no call waits for the answer to that question any more.

        After Ctrl-C the worker may have been asked or not; it answers later.
        """

    def raised(self, env: int) -> None:
        """Is called when an environment has raised in a row, once for each row."""

    def restored(self) -> None:
        """Is called when all environments that were set to a state stand there."""

    # Workers.

    def ended(self, worker: int) -> None:
        """Is called when the process of a worker has ended, whatever the reason."""

    def lost(self, worker: int, requests: dict[int, int]) -> Iterable[int]:
        """Is called when a worker has failed and is going to be replaced.

        Args:
            worker: The worker.
            requests: For each of its rows that owed an answer the command. An observer
                that makes a request again removes it here.

        Returns:
            The rows whose environments continue in the new worker; the episodes of the
            others end.
        """
        return ()

    def given_up(self, worker: int) -> None:
        """Is called when a worker has failed and is not replaced."""

    def started(self, worker: int) -> None:
        """Is called when the replacement of a worker is ready.

        `Pool.restore` lets it bring its environments to where others stood.
        """

    # The pool.

    def resized(self, before: Slab) -> None:
        """Is called when the pool has another number of rows, in another slab."""

    def closed(self) -> None:
        """Is called when the workers have ended; the slab is there until then."""

    def counts(self, worker: int) -> Mapping[str, int]:
        """Returns what it has counted of a worker, by field of `WorkerStatistics`."""
        return {}


class RowObserver(PoolObserver):
    """Is called at every step, too.

    `prepare` and `answered` may ask environments, and `prepare` may replace workers.
    """

    def is_due(self) -> bool:
        """Returns True if `prepare` has something to do before all rows step."""
        # Hot: called once per batch step, as `asked_all` and `answered` are.
        return False

    def prepare(self) -> None:
        """Is called before rows are asked, while their last answers can be read."""

    def asked_all(self) -> None:
        """Is called before all rows step; their actions have been written."""

    def asked(self, rows: Array, commands: int | Array) -> None:
        """Is called before some rows are asked; their actions have been written."""

    def answered(self) -> None:
        """Is called when a call has its answers."""
