"""`AsyncEnvironment`: environments that are not in lockstep.

`send` hands actions to some rows and returns at once; `recv` returns whichever rows are
ready. A row that is busy, or resetting, is simply not among the ids, so each row's own
stream stays `FIRST (MID)* LAST`.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from envkit.specified import Specified
from envkit.time_step import TimeStep
from envkit.types import Array, NestedArray, Seed

__all__ = ["AsyncBatch", "AsyncEnvironment"]

Self = TypeVar("Self", bound="AsyncEnvironment")


class AsyncBatch(NamedTuple):
    """What `recv` returns: the rows that are ready and their time steps.

    Attributes:
        env_ids: Which rows these are, in the order in which they finished.
        time_step: Their time steps; row `i` of every array belongs to `env_ids[i]`.
    """

    env_ids: Array
    time_step: TimeStep


class AsyncEnvironment(Specified):
    """A batch of environments, each of which takes its own time.

    The contract, for each row: `reset_async` or `send` makes it owe one answer, and
    exactly one `recv` returns that answer. A row that owes an answer takes no action.
    """

    @property
    @abc.abstractmethod
    def num_envs(self) -> int:
        """How many rows there are."""

    @abc.abstractmethod
    def reset_async(self, env_ids: Sequence[int] | Array | None = None) -> None:
        """Lets the given rows, or all, start an episode; returns at once."""

    @abc.abstractmethod
    def send(
        self, actions: NestedArray, env_ids: Sequence[int] | Array | None = None
    ) -> None:
        """Hands row `i` of the actions to `env_ids[i]`, or to all; returns at once.

        Actions that do not fit are refused before any row has got one.
        """

    @abc.abstractmethod
    def recv(
        self, count: int | None = None, timeout: float | None = None
    ) -> AsyncBatch:
        """Returns rows that have finished, in the order in which they did.

        Args:
            count: How many to wait for; `None` waits for all that owe an answer.
            timeout: Seconds after which to return what is ready, possibly nothing.

        Raises:
            CallOrderError: No row owes an answer, or fewer than `count` do.
        """

    def seed(self, seed: Seed) -> Any:
        """Makes what is random from the next reset on depend on `seed` alone."""
        raise NotImplementedError(f"{type(self).__name__} cannot be seeded.")

    def close(self) -> None:  # nothing to free unless a subclass says so
        """Frees what the environment holds; calling it again does nothing."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
