"""`EagerResets`: keeps track of resets made while a worker is idle.

If resets are eager, an environment whose episode has ended is *due*. `EnvRows` resets
it as soon as the worker is idle, and keeps the `FIRST` until the row is asked to begin.
Until then the row shows its `LAST`.

```
 LAST is written ─▶ due ─▶ reset ─▶ begun ─▶ the row is asked ─▶ FIRST is written
                     │                          ▲
                     └── asked before ──▶ reset ┘
```

Anything else that happens to the environment comes after the reset, which is made at
that moment at the latest. So nothing depends on the speed of the learner.
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
    """The state of an environment that was reset early.

    Attributes:
        environment: Its own state, after the reset.
        first: The `FIRST` that the row will show; `None` if it must be reset again.
        info: The info of the `LAST` that the row shows, as bytes or as plain data in
            text; `None` if it cannot be saved.
    """

    environment: Any
    first: TimeStep | None
    info: bytes | str | None


@dataclass(slots=True)
class _Known:
    """The facts about one environment.

    Attributes:
        begun: The `FIRST` that its row will show, or the exception of the reset; `None`
            if it was not reset early.
        info: The info of the `LAST` that the row shows, in a tuple; `None` if the
            environment still has it.
        is_seeded: Whether it has been seeded since it was reset.
        is_vain: Whether the last early reset was thrown away, because the next reset
            had a seed or options. It is cleared when an episode begins without these.
    """

    begun: TimeStep | BaseException | None = None
    info: tuple[Any] | None = None
    is_seeded: bool = False
    is_vain: bool = False


class EagerResets:
    """Tracks which of a worker's environments are due for a reset or were reset early.

    Environments are known by their place in the worker's block of rows.

    Attributes:
        is_eager: Whether environments become due.
        is_used: False if nothing was or ever will be reset early here.
        due: The places of the environments to reset when the worker is idle, in the
            order in which they ended.
    """

    def __init__(self, places: int, *, is_eager: bool) -> None:
        """Starts with nothing due."""
        self.is_eager = self.is_used = is_eager
        self.due: dict[int, None] = {}
        self._known = [_Known() for _ in range(places)]

    def schedule(self, place: int) -> None:
        """Makes an environment due, unless its last early reset was wasted."""
        if not self._known[place].is_vain:
            self.due[place] = None

    def finish(self, place: int) -> None:
        """Marks the reset of an environment as done."""
        del self.due[place]

    def keep_info(self, place: int, ask: Callable[[], Any]) -> None:
        """Keeps the info of a `LAST`, unless Ctrl-C has interrupted a reset since."""
        known = self._known[place]
        if known.info is None:
            known.info = (ask(),)

    def keep_first(self, place: int, begun: TimeStep | BaseException) -> None:
        """Keeps the result or the exception of an early reset."""
        if not isinstance(begun, BaseException):
            begun = _copied(begun)
        known = self._known[place]
        known.begun, known.is_seeded = begun, False

    def claim(
        self, place: int, *, has_options: bool
    ) -> TimeStep | BaseException | None:
        """Returns the result or the exception of an early reset to the row that begins.

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
        """Makes an environment reset again, because it was seeded."""
        self._known[place].is_seeded = True

    def drop(self, place: int) -> None:
        """Forgets the facts about an environment that begins, or was replaced."""
        self.due.pop(place, None)
        known = self._known[place]
        known.begun, known.info, known.is_seeded = None, None, False

    def adopt(self, place: int, other: EagerResets, other_place: int) -> None:
        """Takes over the facts about an environment from other rows."""
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
        """Returns an environment's state, with the facts about it kept here.

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
        # If the info cannot be saved, the state is saved without it.
        with contextlib.suppress(Exception):
            info = save(*known.info)
        return BegunState(state, begun, info)

    def restore(
        self, place: int, first: TimeStep | None, info: tuple[Any] | None
    ) -> None:
        """Restores a `BegunState`."""
        self.drop(place)
        self.is_used, known = True, self._known[place]
        known.begun, known.info = first, info


def _copied(time_step: TimeStep) -> TimeStep:
    """Copies arrays that the environment may overwrite before the row is asked."""
    reward, discount, observation = nest.map_structure(_own, tuple(time_step[1:]))
    return TimeStep(time_step.step_type, reward, discount, observation)


def _own(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
