"""`Player`: episodes of a data set's rows, for trainers that block."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from envkit.errors import SpecError
from envkit.extend import describe
from envkit.sessions.blocking import BlockingSessions
from envkit.sessions.session import Session, Turn, unless_lost
from envkit.sessions.sessions import Sessions
from envkit.types import NestedArray

__all__ = ["Player", "seed_of"]


class Player:
    """Plays one episode after another, each in an environment that it leases.

    It gives the environment back when the episode has ended or failed.
    """

    def __init__(
        self,
        shared: BlockingSessions,
        lease: Callable[[Sessions, int], Awaitable[Session]],
    ) -> None:
        """Takes the sessions, and how to lease one of a seed."""
        self._shared = shared
        self._lease = lease
        self._session: Session | None = None
        self.turn: Turn | None = None
        # What has cut the episode short, so that it is no sample.
        self.error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to play."""
        return self.turn is None or self.turn.end is not None

    def begin(self, row: Mapping[str, Any]) -> Turn:
        """Begins the episode of a row's seed, with the row's options.

        Raises:
            SessionLost: The environment was lost.
        """
        self.leave()
        self.turn = self.error = None
        seed, options = seed_of(row), row.get("options")
        self._session = self._shared.call(self._lease, self._shared.sessions, seed)
        return self._follow(self._session.reset, options=options)

    def play(self, action: NestedArray) -> Turn:
        """Makes a step.

        Raises:
            ValueError: No episode goes on, or the action does not fit its spec.
            SessionLost: The environment was lost.
        """
        if self.error is not None:
            raise self.error
        if self.turn is None:
            raise ValueError("No episode has begun: a reset comes first.")
        if self._session is None or self.is_over:
            raise ValueError("The episode is over.")
        return self._follow(self._session.step, action)

    def leave(self) -> None:
        """Gives the environment back."""
        if self._session is not None:
            self._shared.release(self._session)
            self._session = None

    def _follow(
        self, call: Callable[..., Awaitable[Turn]], *args: Any, **kw: Any
    ) -> Turn:
        try:
            self.turn = unless_lost(self._shared.call(call, *args, **kw))
        except SpecError:  # the model's mistake
            raise
        except BaseException as error:
            self.error = error
            self.leave()
            raise
        if self.is_over:
            self.leave()
        return self.turn


def seed_of(row: Mapping[str, Any]) -> int:
    """Returns the seed in a row of a data set.

    Example:
        >>> seed_of({"prompt": "Open the safe.", "seed": 7})
        7

    Raises:
        ValueError: There is none, so equal rows would have different episodes.
    """
    seed = row.get("seed")
    try:
        return operator.index(seed)  # type: ignore[arg-type]  # it may be anything
    except TypeError:
        raise ValueError(
            'Each row of the data set must have an integer "seed", so that equal rows '
            f"play the same episode; got {describe(seed)}."
        ) from None
