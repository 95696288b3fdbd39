"""When ticks are due, and what becomes of those that come too late."""

from __future__ import annotations

import math
import numbers
from typing import Any, Protocol

from envkit.errors import EnvkitError
from envkit.specs.validation import describe

__all__ = [
    "EngineSchedule",
    "OverrunError",
    "Schedule",
    "TickSchedule",
    "as_schedule",
]

OVERRUNS = ("skip", "stretch", "raise")


class OverrunError(EnvkitError):
    """A step of the environment took longer than a tick, where that is an error."""


class TickSchedule(Protocol):
    """When the next tick is due."""

    @property
    def due(self) -> float:
        """The moment at which the next tick is due."""

    def begin(self, now: float) -> None:
        """Lets the time of an episode begin."""

    def start(self, now: float) -> tuple[float, int]:
        """Notes that a tick begins; returns how late it is, and how many were left out.

        The next is due after that.
        """


class Schedule:
    """So many ticks a second.

    A tick is due every `1 / hz` seconds after `begin`, however long the ones before it
    took. One that is late by less than a tick comes at once. Of later ones `overrun`
    says what becomes:

    | "skip"    | they are left out, and the rhythm is kept                |
    | "stretch" | the rhythm begins anew, so that time goes slower         |
    | "raise"   | `OverrunError`                                           |

    Example:
        >>> schedule = Schedule(hz=10)
        >>> schedule.begin(now=5.0)
        >>> round(schedule.due, 6), schedule.start(5.1)
        (5.1, (0.0, 0))
        >>> lateness, left_out = schedule.start(5.47)
        >>> round(lateness, 6), left_out, round(schedule.due, 6)
        (0.07, 2, 5.5)
    """

    def __init__(self, hz: float, overrun: str = "skip") -> None:
        """Chooses a rhythm.

        Args:
            hz: Ticks per second.
            overrun: What becomes of ticks that are late by a whole tick or more.
        """
        if (
            not isinstance(hz, numbers.Real)
            or isinstance(hz, bool)
            or not (0 < hz < math.inf)
        ):
            raise ValueError(
                f"hz is {describe(hz)}; it is how many ticks a second has, such as 60."
            )
        if overrun not in OVERRUNS:
            raise ValueError(
                f"overrun is {overrun!r:.80}; it is one of "
                f"{', '.join(map(repr, OVERRUNS))}."
            )
        self._hz: float = float(hz)
        self._overrun: str = overrun
        self._origin: float = 0.0
        self._count: int = 1

    @property
    def due(self) -> float:
        """The moment at which the next tick is due."""
        # Counted from the beginning, so that nothing adds up.
        return self._origin + self._count / self._hz

    def begin(self, now: float) -> None:
        """Lets the first tick be due one tick from now."""
        self._origin, self._count = now, 1

    def start(self, now: float) -> tuple[float, int]:
        """Notes that a tick begins; returns how late it is, and how many were left out.

        Raises:
            OverrunError: It is late by a tick or more, and that is an error.
        """
        late = max(now - self.due, 0.0)
        # A moment that is off by rounding belongs to the tick that is due then.
        left_out = math.floor(late * self._hz + 1e-6)
        if left_out and self._overrun == "raise":
            raise OverrunError(
                f"A tick came {late:.3g} s late, and at {self._hz:g} Hz one takes "
                f"{1 / self._hz:.3g} s: the environment is too slow for its clock. "
                "Choose fewer ticks per second, or overrun='skip' or 'stretch'."
            )
        if left_out and self._overrun == "stretch":
            self.begin(now)
            return late, 0
        self._count += left_out
        late = max(now - self.due, 0.0)
        self._count += 1
        return late, left_out


class EngineSchedule:
    """The rhythm of an engine that keeps its own: its step takes as long as a tick.

    Example:
        >>> schedule = EngineSchedule()
        >>> schedule.due, schedule.start(3.0)
        (-inf, (0.0, 0))
    """

    @property
    def due(self) -> float:
        """Always: the engine waits."""
        return -math.inf

    def begin(self, now: float) -> None:
        """Does nothing."""

    def start(self, now: float) -> tuple[float, int]:
        """Returns that nothing is late."""
        return 0.0, 0


def as_schedule(hz: Any, overrun: str, is_native: bool, name: str) -> TickSchedule:
    """Returns the schedule of an environment.

    Args:
        hz: Ticks per second; `None` for an engine that keeps its own time.
        overrun: What becomes of ticks that are too late.
        is_native: Whether the environment keeps its own time.
        name: What the environment is called.
    """
    if is_native:
        if hz is not None:
            raise ValueError(
                f"{name} runs on a clock of its own (realtime = True), and hz={hz!r} "
                "would be a second one. Leave hz out; the engine sets the pace."
            )
        return EngineSchedule()
    if hz is None:
        raise ValueError(
            f"{name} does not run by itself, so RealTimeEnvironment needs hz: how many "
            "ticks a second has."
        )
    return Schedule(hz, overrun)
