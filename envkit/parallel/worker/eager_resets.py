"""`Ahead`: resets environments while nothing is asked of their worker.

An environment whose episode has ended is *due* if resets are eager. It is reset as soon
as its worker is idle, and the `FIRST` is kept until the row is asked to begin. What the
row shows is a `LAST` until then.

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
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from envkit import nest
from envkit.parallel.slab import (
    AWAITED_NS,
    HIDDEN_NS,
    HIDDEN_RESETS,
    NEXT_STEP_ORDER,
)
from envkit.time_step import TimeStep

__all__ = ["Ahead", "BegunState"]


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


class _Seat(Protocol):
    """An environment and its rows, as `Seat` is."""

    index: int
    place: int
    rows: range
    is_batch: bool

    @property
    def env(self) -> Any: ...

    @property
    def repeats_last(self) -> bool: ...


@dataclass(slots=True)
class _Known:
    """The facts that are known of one environment.

    Attributes:
        begun: The `FIRST` that its row is going to show, or what the reset has raised;
            `None` if it was not reset ahead.
        info: The info of the `LAST` that the row shows, in a tuple; `None` if the
            environment has it still.
        is_seeded: Whether it has been seeded since it was reset.
        is_vain: Whether the last reset ahead was thrown away, because a seed or options
            came with the next one; until an episode begins without.
    """

    begun: TimeStep | BaseException | None = None
    info: tuple[Any] | None = None
    is_seeded: bool = False
    is_vain: bool = False


class Ahead:
    """Knows which of a worker's environments are to be reset, or have been, ahead.

    Attributes:
        is_used: False if nothing has ever been reset ahead here, or will be.
        due: The environments that are to be reset when the worker is idle, by place,
            those first that have ended first.
    """

    def __init__(self, seats: Any, is_eager: bool) -> None:
        """Prepares for environments; nothing is due.

        Args:
            seats: The `Seats` that it is a part of.
            is_eager: Whether environments become due.
        """
        self._seats, self._is_eager = seats, is_eager
        self.is_used = is_eager
        self.due: dict[int, _Seat] = {}
        self._known = [_Known() for _ in seats.of_row]

    def note_end(self, seat: _Seat) -> None:
        """Notes that the episode of a single environment has ended."""
        if (
            self._is_eager
            and self._seats.slab.autoreset == NEXT_STEP_ORDER
            and not self._known[seat.place].is_vain
            and not seat.repeats_last
        ):
            self.due[seat.place] = seat

    def note_ends(self, seat: _Seat) -> None:
        """Notes that rows of a batch have ended, if it can reset them ahead."""
        if (
            self._is_eager
            and self._seats.slab.autoreset == NEXT_STEP_ORDER
            and hasattr(seat.env, "_reset_ahead")
        ):
            self.due[seat.place] = seat

    # Resets.

    def reset_next(self, is_hidden: bool) -> None:
        """Resets the environment that has been due for the longest time.

        Args:
            is_hidden: Whether the caller does something else meanwhile.
        """
        self._reset(next(iter(self.due.values())), is_hidden)

    def settle(self, seat: _Seat) -> None:
        """Resets an environment that is due, before anything else happens to it."""
        if seat.place in self.due:
            self._reset(seat, is_hidden=False)

    def _reset(self, seat: _Seat, is_hidden: bool) -> None:
        began = time.perf_counter_ns()
        seats, row = self._seats, seat.rows[0]
        number = seats.answered[row]
        if seat.is_batch:
            count = self._reset_batch(seat)
        else:
            known = self._known[seat.place]
            if known.info is None:  # Unless Ctrl-C has ended this before.
                known.info = (seats.infos.final(seat.index, number),)
            known.begun, known.is_seeded = self._begun(seat), False
            count = 1
        del self.due[seat.place]
        taken = time.perf_counter_ns() - began
        if is_hidden and seats.sequence[row] == number:
            seats.meters[HIDDEN_RESETS] += count
            seats.meters[HIDDEN_NS] += taken
        else:  # The caller waits, or the row has been asked meanwhile.
            seats.meters[AWAITED_NS] += taken

    def _begun(self, seat: _Seat) -> TimeStep | BaseException:
        """Resets a single environment; returns what that returns, or raises."""
        seats = self._seats
        try:
            return _copied(seats.reset(seat))
        except BaseException as error:
            # If it is the carrier's own, the reset is still due.
            seats.let_through(seat, error)
            return error
        finally:
            seats.is_in_reset = False

    def _reset_batch(self, seat: _Seat) -> int:
        """Lets a batch reset its ended rows; returns how many these were."""
        seats = self._seats
        try:
            return int(seat.env._reset_ahead())
        except BaseException as error:
            seats.let_through(seat, error)
            # Not the fault of one row, which the batch would have kept for that.
            seats.fail_next(seat, error)
            return 0

    # What becomes of them.

    def begin(self, seat: _Seat) -> TimeStep:
        """Returns the `FIRST` of a row that is asked to begin.

        Raises what the reset has raised, if that was made ahead.
        """
        begun = self._take(seat)
        if begun is not None:
            return begun
        began = time.perf_counter_ns()
        time_step: TimeStep = self._seats.reset(seat)
        self._seats.meters[AWAITED_NS] += time.perf_counter_ns() - began
        return time_step

    def _take(self, seat: _Seat) -> TimeStep | None:
        """Returns what has begun ahead, unless it was reset in vain."""
        known = self._known[seat.place]
        begun = known.begun
        is_told = known.is_seeded or self._seats.has_options(seat)
        self.drop(seat)
        if not is_told:
            known.is_vain = False
        elif begun is not None:
            known.is_vain, begun = True, None
        if isinstance(begun, BaseException):
            self._seats.is_in_reset = True
            raise begun
        return begun

    def note_seed(self, seat: _Seat) -> None:
        """Notes that an environment is seeded, so that it has to be reset again."""
        self._known[seat.place].is_seeded = True

    def drop(self, seat: _Seat) -> None:
        """Forgets what has become of an environment, which begins or is another one."""
        self.due.pop(seat.place, None)
        known = self._known[seat.place]
        known.begun, known.info, known.is_seeded = None, None, False

    def adopt(self, seat: _Seat, other: Ahead, place: int) -> None:
        """Takes over what is known of an environment on other rows.

        Args:
            seat: The environment.
            other: Where it was.
            place: Its place there.
        """
        self.due.pop(seat.place, None)
        if place in other.due:
            self.due[seat.place] = seat
        self._known[seat.place] = other._known[place]
        self.is_used |= other.is_used

    # What it is asked meanwhile.

    def answer_info(self, seat: _Seat) -> Any:
        """Returns the info of the time step that was returned last."""
        infos, known = self._seats.infos, self._known[seat.place]
        if known.info is None:
            return infos.answer(seat.index, seat.rows.start)
        return infos.told(seat.index, *known.info)

    def state_of(
        self, seat: _Seat, state: Any, save: Callable[[Any], bytes | str]
    ) -> Any:
        """Returns an environment's state with what is known of it here.

        Args:
            seat: The environment.
            state: Its own state.
            save: Turns an info into bytes or text.
        """
        known = self._known[seat.place]
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
        self, seat: _Seat, token: Any, load: Callable[[bytes | str], Any]
    ) -> None:
        """Sets an environment to what `state_of` returned.

        Args:
            seat: The environment.
            token: The state.
            load: Turns what was made of an info into it.
        """
        if not isinstance(token, BegunState):
            seat.env.set_state(token)
            self.drop(seat)
            return
        info = None if token.info is None else (load(token.info),)
        seat.env.set_state(token.environment)
        self.drop(seat)
        self.is_used, known = True, self._known[seat.place]
        known.begun, known.info = token.first, info


def _copied(time_step: TimeStep) -> TimeStep:
    """Copies arrays that the environment may write to until the row is asked."""
    reward, discount, observation = nest.map_structure(_own, tuple(time_step[1:]))
    return TimeStep(time_step.step_type, reward, discount, observation)


def _own(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
