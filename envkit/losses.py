"""`Loss`, and each environment's reports of lost rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from envkit.types import Array

if TYPE_CHECKING:
    from envkit._internal.internals import Internals

__all__ = ["Loss", "LossReports", "may_lose"]


class Loss(NamedTuple):
    """A lost environment.

    Attributes:
        row: Its row; 0 for a single environment.
        kind: "crashed" if its process died, "timed_out" if it did not answer in time,
            "raised" if it raised an exception in a step, "reset_failed" if it could not
            begin an episode, "link_lost" if the connection to it ended.
        error: The error, which would have been raised if nothing replaced it.
    """

    row: int
    kind: str
    error: Exception


if TYPE_CHECKING:
    _hideable = property
else:

    class _hideable:  # it is used as `property` is
        """A property that an attribute of the same name replaces."""

        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self._compute, self.__doc__ = compute, compute.__doc__

        def __get__(self, env: Any, owner: Any) -> Any:
            return self if env is None else self._compute(env)


class LossReports:
    """Reports what an environment has lost, as far as the inner environments report it.

    A loss that cuts an episode short shows as a `LAST` with reward 0, discount 1 and
    the observation before it. That `LAST` is made up: no environment has returned it.
    """

    _envkit: Internals

    @_hideable
    def repaired(self) -> Array:
        """A mask of the rows whose last time step is a made-up `LAST`.

        Learners leave these rows out. A single environment has a mask without
        dimensions.
        """
        repaired: Array = np.zeros(_dims(self), bool)
        for place, inner in _inside(self):
            lost = inner.repaired
            repaired[place] |= lost if lost.ndim == repaired[place].ndim else lost.any()
        return repaired

    def current_losses(self) -> dict[int, Loss]:
        """Returns, by row, the loss behind each row of `repaired`."""
        found = (
            _at(place, inner.current_losses().values())
            for place, inner in _inside(self)
        )
        return {loss.row: loss for losses in found for loss in losses}

    def losses(self) -> list[Loss]:
        """Returns the losses since the last call, the oldest first.

        Some cut an episode short; others happen in a reset, and the row then shows the
        `FIRST` of another environment. An environment lost between two episodes costs
        nothing, and is not listed.
        """
        found = (_at(place, inner.losses()) for place, inner in _inside(self))
        return [loss for losses in found for loss in losses]


def may_lose(env: Any) -> bool:
    """Returns True if an environment can have losses to report.

    Example:
        >>> from envkit import ParallelPyEnvironment
        >>> from envkit.testing import CountingEnv
        >>> with ParallelPyEnvironment([CountingEnv], backend="inline") as pool:
        ...     may_lose(pool), may_lose(CountingEnv())
        (True, False)
    """
    if getattr(env, "_loses_nothing", False) is True:
        return False
    report = getattr(type(env), "current_losses", LossReports.current_losses)
    return report is not LossReports.current_losses or any(
        may_lose(inner) for _, inner in _inside(env)
    )


def _dims(env: Any) -> tuple[int, ...]:
    """Returns the dimensions of an environment's masks."""
    if hasattr(env, "num_envs"):
        return (env.num_envs,)
    return (env.batch_size,) if env.batched else ()


def _inside(env: Any) -> list[tuple[Any, Any]]:
    """Returns the environments inside that report losses, each with its rows."""
    internals = getattr(env, "_envkit", None)
    inside = [] if internals is None else internals.inside(env)
    known = [
        (row, inner)
        for row, inner in enumerate(inside)
        if hasattr(type(inner), "current_losses")
    ]
    are_rows = _dims(env) and not any(_dims(inner) for _, inner in known)
    return [(row if are_rows else ..., inner) for row, inner in known]


def _at(place: Any, losses: Iterable[Loss]) -> Iterable[Loss]:
    """Gives losses the row numbers of the whole batch."""
    if place is ...:
        return losses
    return [loss._replace(row=place) for loss in losses]
