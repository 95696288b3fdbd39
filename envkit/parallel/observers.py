"""`PoolObserver` and `RowObserver`: the events that a pool's extras receive.

Recovery by replay, the memory limit and the published pool are observers. The pool
calls them without knowing which they are; a step calls only `RowObserver`s.
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
    """Receives a pool's events; every method here does nothing.

    Most methods run while Ctrl-C is held back, and none may ask environments.
    """

    # Environments.

    def questioned(self, worker: int, request: Request) -> None:
        """Runs before a worker's environments are asked a question."""

    def replied(self, worker: int, results: Sequence[Any]) -> None:
        """Runs when a worker has answered its last question."""

    def abandoned(self, worker: int) -> None:
        """Runs when no call waits for the answer to the last question any longer.

        After Ctrl-C the question may or may not have been sent; if it was, the answer
        comes later.
        """

    def raised(self, env: int) -> None:
        """Runs when an environment has raised, once for each affected row."""

    def restored(self) -> None:
        """Runs when all environments of a restored state have been restored."""

    # Workers.

    def ended(self, worker: int) -> None:
        """Runs when a worker's process has ended, whatever the reason."""

    def lost(self, worker: int, requests: dict[int, int]) -> Iterable[int]:
        """Runs when a worker has failed and will be replaced.

        Args:
            worker: The worker.
            requests: The command of each of its rows that owed an answer. An observer
                that repeats a request removes it here.

        Returns:
            The rows whose environments continue in the new worker; the episodes of the
            others end.
        """
        return ()

    def given_up(self, worker: int) -> None:
        """Runs when a worker has failed and will not be replaced."""

    def started(self, worker: int) -> None:
        """Runs when a worker's replacement is ready.

        Here `Pool.restore` can bring the new environments to where the old ones stood.
        """

    # The pool.

    def resized(self, before: Slab) -> None:
        """Runs when the pool's number of rows has changed, and with it the slab."""

    def closed(self) -> None:
        """Runs when the workers have ended and the slab still exists."""

    def counts(self, worker: int) -> Mapping[str, int]:
        """Returns its counts for a worker, by field of `WorkerStatistics`."""
        return {}


class RowObserver(PoolObserver):
    """Also receives every step.

    `prepare` and `answered` may ask environments, and `prepare` may replace workers.
    """

    def is_due(self) -> bool:
        """Returns True if `prepare` has work to do before all rows step."""
        # Hot: called once per batch step, as `asked_all` and `answered` are.
        return False

    def prepare(self) -> None:
        """Runs before rows are asked, while their last answers can still be read."""

    def asked_all(self) -> None:
        """Runs before all rows step, after their actions are written."""

    def asked(self, rows: Array, commands: int | Array) -> None:
        """Runs before some rows are asked, after their actions are written."""

    def answered(self) -> None:
        """Runs when a call has received all its answers."""
