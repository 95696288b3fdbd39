"""`EagerResets`: what is known of resets made while nothing was asked of a worker.

An environment whose episode has ended is *due* if resets are eager. `EnvRows` resets it
as soon as the worker is idle, and the `FIRST` is kept until the row is asked to begin.
What the row shows is a `LAST` until then.

```
 LAST is written ─▶ due ─▶ reset ─▶ begun ─▶ the row is asked ─▶ FIRST is written
                     │                          ▲
                     └── asked before ──▶ reset ┘
```

Everything else that happens to the environment happens after the reset, whether that
was already made or is made then, so nothing depends on how fast the learner is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.time_step import TimeStep

__all__ = ["BegunState", "EagerResets"]


class BegunState(NamedTuple):
    """The state of an environment whose episode its row does not show yet.

    Attributes:
        environment: Its own state, after the reset.
        first: The time step that the row is going to show; `None` if it is to be reset
            again.
        info: The info of the `LAST` that the row shows, as bytes or as plain data in
            text; `None` if it cannot be saved.
    """

    environment: Any
    first: TimeStep | None
    info: bytes | str | None


@dataclass(slots=True)
class _Known:
    """The facts that are known of one environment.

    Attributes:
        begun: The `FIRST` that its row is going to show, or what the reset has raised;
            `None` if it was not reset early.
        info: The info of the `LAST` that the row shows, in a tuple; `None` if the
            environment has it still.
        is_seeded: Whether it has been seeded since it was reset.
        is_vain: Whether the last early reset was thrown away, because a seed or options
            came with the next one; until an episode begins without.
    """

    begun: TimeStep | BaseException | None = None
    info: tuple[Any] | None = None
    is_seeded: bool = False
    is_vain: bool = False


class EagerResets:
    """Remembers which of a worker's environments are to be reset early, or have been.

    Environments are known by their place in the worker's block of rows.

    Attributes:
        is_eager: Whether environments become due.
        is_used: False if nothing has ever been reset early here, or will be.
        due: The places of the environments that are to be reset when the worker is
            idle, those first that have ended first.
    """

    def __init__(self, places: int, *, is_eager: bool) -> None:
        """Prepares for environments; nothing is due."""
        self.is_eager = self.is_used = is_eager
        self.due: dict[int, None] = {}
        self._known = [_Known() for _ in range(places)]

    def schedule(self, place: int) -> None:
        """Makes an environment due, unless its last early reset was in vain."""
        if not self._known[place].is_vain:
            self.due[place] = None

    def finish(self, place: int) -> None:
        """Says that the reset of an environment has been made."""
        del self.due[place]

    def keep_info(self, place: int, ask: Callable[[], Any]) -> None:
        """Keeps the info of a `LAST`, unless Ctrl-C has ended a reset after that."""
        known = self._known[place]
        if known.info is None:
            known.info = (ask(),)

    def keep_first(self, place: int, begun: TimeStep | BaseException) -> None:
        """Keeps what an early reset has returned or raised."""
        if not isinstance(begun, BaseException):
            begun = _copied(begun)
        known = self._known[place]
        known.begun, known.is_seeded = begun, False

    def claim(
        self, place: int, *, has_options: bool
    ) -> TimeStep | BaseException | None:
        """Returns what an early reset has returned or raised, for a row that begins.

        Args:
            place: The place.
            has_options: Whether options came for this reset.

        Returns:
            `None` if there was no early reset, or a seed or options came after it.
        """
        known = self._known[place]
        begun, is_stale = known.begun, known.is_seeded or has_options
        self.drop(place)
        if not is_stale:
            known.is_vain = False
        elif begun is not None:
            known.is_vain, begun = True, None
        return begun

    def mark_seeded(self, place: int) -> None:
        """Has an environment reset again, because it is seeded."""
        self._known[place].is_seeded = True

    def drop(self, place: int) -> None:
        """Forgets what has become of an environment, which begins or is another one."""
        self.due.pop(place, None)
        known = self._known[place]
        known.begun, known.info, known.is_seeded = None, None, False

    def adopt(self, place: int, other: EagerResets, other_place: int) -> None:
        """Continues with what is known of an environment on other rows."""
        self.due.pop(place, None)
        if other_place in other.due:
            self.due[place] = None
        self._known[place] = other._known[other_place]
        self.is_used |= other.is_used

    def info(self, place: int) -> tuple[Any] | None:
        """Returns the kept info of the `LAST` that a row shows, in a tuple."""
        return self._known[place].info

    def state_of(
        self, place: int, state: Any, save: Callable[[Any], bytes | str]
    ) -> Any:
        """Returns an environment's state with what is known of it here.

        Args:
            place: The environment.
            state: Its own state.
            save: Turns an info into bytes or text.
        """
        known = self._known[place]
        if known.info is None:
            return state
        begun = known.begun
        if isinstance(begun, BaseException) or known.is_seeded:
            begun = None
        info = None
        # Whatever is in it, a state can be saved without it.
        with contextlib.suppress(Exception):
            info = save(*known.info)
        return BegunState(state, begun, info)

    def restore(
        self, place: int, first: TimeStep | None, info: tuple[Any] | None
    ) -> None:
        """Continues where a `BegunState` was taken."""
        self.drop(place)
        self.is_used, known = True, self._known[place]
        known.begun, known.info = first, info


def _copied(time_step: TimeStep) -> TimeStep:
    """Copies arrays that the environment may write to until the row is asked."""
    reward, discount, observation = nest.map_structure(_own, tuple(time_step[1:]))
    return TimeStep(time_step.step_type, reward, discount, observation)


def _own(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
