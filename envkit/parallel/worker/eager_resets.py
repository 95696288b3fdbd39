"""`EagerResets`: resets environments while nothing is asked of their worker.

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


class _EnvRow(Protocol):
    """An environment and its rows, as `EnvRow` is."""

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


class EagerResets:
    """Knows which of a worker's environments are to be reset, or have been, ahead.

    Attributes:
        is_used: False if nothing has ever been reset ahead here, or will be.
        due: The environments that are to be reset when the worker is idle, by place,
            those first that have ended first.
    """

    def __init__(self, env_rows: Any, is_eager: bool) -> None:
        """Prepares for environments; nothing is due.

        Args:
            env_rows: The `EnvRows` that it is a part of.
            is_eager: Whether environments become due.
        """
        self._env_rows, self._is_eager = env_rows, is_eager
        self.is_used = is_eager
        self.due: dict[int, _EnvRow] = {}
        self._known = [_Known() for _ in env_rows.of_row]

    def schedule(self, env_row: _EnvRow) -> None:
        """Notes that the episode of a single environment has ended."""
        if (
            self._is_eager
            and self._env_rows.slab.autoreset == NEXT_STEP_ORDER
            and not self._known[env_row.place].is_vain
            and not env_row.repeats_last
        ):
            self.due[env_row.place] = env_row

    def schedule_batch(self, env_row: _EnvRow) -> None:
        """Notes that rows of a batch have ended, if it can reset them ahead."""
        if (
            self._is_eager
            and self._env_rows.slab.autoreset == NEXT_STEP_ORDER
            and hasattr(env_row.env, "_reset_ahead")
        ):
            self.due[env_row.place] = env_row

    # Resets.

    def reset_next(self, is_hidden: bool) -> None:
        """Resets the environment that has been due for the longest time.

        Args:
            is_hidden: Whether the caller does something else meanwhile.
        """
        self._reset(next(iter(self.due.values())), is_hidden)

    def settle(self, env_row: _EnvRow) -> None:
        """Resets an environment that is due, before anything else happens to it."""
        if env_row.place in self.due:
            self._reset(env_row, is_hidden=False)

    def _reset(self, env_row: _EnvRow, is_hidden: bool) -> None:
        began = time.perf_counter_ns()
        env_rows, row = self._env_rows, env_row.rows[0]
        number = env_rows.answered[row]
        if env_row.is_batch:
            count = self._reset_batch(env_row)
        else:
            known = self._known[env_row.place]
            if known.info is None:  # Unless Ctrl-C has ended this before.
                known.info = (env_rows.infos.final(env_row.index, number),)
            known.begun, known.is_seeded = self._begun(env_row), False
            count = 1
        del self.due[env_row.place]
        taken = time.perf_counter_ns() - began
        if is_hidden and env_rows.sequence[row] == number:
            env_rows.meters[HIDDEN_RESETS] += count
            env_rows.meters[HIDDEN_NS] += taken
        else:  # The caller waits, or the row has been asked meanwhile.
            env_rows.meters[AWAITED_NS] += taken

    def _begun(self, env_row: _EnvRow) -> TimeStep | BaseException:
        """Resets a single environment; returns what that returns, or raises."""
        env_rows = self._env_rows
        try:
            return _copied(env_rows.reset(env_row))
        except BaseException as error:
            # If it is the carrier's own, the reset is still due.
            env_rows.let_through(env_row, error)
            return error
        finally:
            env_rows.is_in_reset = False

    def _reset_batch(self, env_row: _EnvRow) -> int:
        """Lets a batch reset its ended rows; returns how many these were."""
        env_rows = self._env_rows
        try:
            return int(env_row.env._reset_ahead())
        except BaseException as error:
            env_rows.let_through(env_row, error)
            # Not the fault of one row, which the batch would have kept for that.
            env_rows.fail_next(env_row, error)
            return 0

    # What becomes of them.

    def begin(self, env_row: _EnvRow) -> TimeStep:
        """Returns the `FIRST` of a row that is asked to begin.

        Raises what the reset has raised, if that was made ahead.
        """
        begun = self._take(env_row)
        if begun is not None:
            return begun
        began = time.perf_counter_ns()
        time_step: TimeStep = self._env_rows.reset(env_row)
        self._env_rows.meters[AWAITED_NS] += time.perf_counter_ns() - began
        return time_step

    def _take(self, env_row: _EnvRow) -> TimeStep | None:
        """Returns what has begun ahead, unless it was reset in vain."""
        known = self._known[env_row.place]
        begun = known.begun
        is_told = known.is_seeded or self._env_rows.has_options(env_row)
        self.drop(env_row)
        if not is_told:
            known.is_vain = False
        elif begun is not None:
            known.is_vain, begun = True, None
        if isinstance(begun, BaseException):
            self._env_rows.is_in_reset = True
            raise begun
        return begun

    def note_seed(self, env_row: _EnvRow) -> None:
        """Notes that an environment is seeded, so that it has to be reset again."""
        self._known[env_row.place].is_seeded = True

    def drop(self, env_row: _EnvRow) -> None:
        """Forgets what has become of an environment, which begins or is another one."""
        self.due.pop(env_row.place, None)
        known = self._known[env_row.place]
        known.begun, known.info, known.is_seeded = None, None, False

    def adopt(self, env_row: _EnvRow, other: EagerResets, place: int) -> None:
        """Takes over what is known of an environment on other rows.

        Args:
            env_row: The environment.
            other: Where it was.
            place: Its place there.
        """
        self.due.pop(env_row.place, None)
        if place in other.due:
            self.due[env_row.place] = env_row
        self._known[env_row.place] = other._known[place]
        self.is_used |= other.is_used

    # What it is asked meanwhile.

    def answer_info(self, env_row: _EnvRow) -> Any:
        """Returns the info of the time step that was returned last."""
        infos, known = self._env_rows.infos, self._known[env_row.place]
        if known.info is None:
            return infos.answer(env_row.index, env_row.rows.start)
        return infos.told(env_row.index, *known.info)

    def state_of(
        self, env_row: _EnvRow, state: Any, save: Callable[[Any], bytes | str]
    ) -> Any:
        """Returns an environment's state with what is known of it here.

        Args:
            env_row: The environment.
            state: Its own state.
            save: Turns an info into bytes or text.
        """
        known = self._known[env_row.place]
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
        self, env_row: _EnvRow, token: Any, load: Callable[[bytes | str], Any]
    ) -> None:
        """Sets an environment to what `state_of` returned.

        Args:
            env_row: The environment.
            token: The state.
            load: Turns what was made of an info into it.
        """
        if not isinstance(token, BegunState):
            env_row.env.set_state(token)
            self.drop(env_row)
            return
        info = None if token.info is None else (load(token.info),)
        env_row.env.set_state(token.environment)
        self.drop(env_row)
        self.is_used, known = True, self._known[env_row.place]
        known.begun, known.info = token.first, info


def _copied(time_step: TimeStep) -> TimeStep:
    """Copies arrays that the environment may write to until the row is asked."""
    reward, discount, observation = nest.map_structure(_own, tuple(time_step[1:]))
    return TimeStep(time_step.step_type, reward, discount, observation)


def _own(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
