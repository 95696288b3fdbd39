"""Steps an environment by a clock, and merges its ticks for the agent: `TickLoop`.

The loop decides but never waits: its caller, a host, tells it the time. For each tick
the host calls `decide`, `move` and `note`. Only `move` takes long, so a host with
threads lets the agent act meanwhile: `publish` hands in an action, and `take` returns
everything since the last call. Likewise, `reset` takes long and `begin` does not.
"""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit._shared.infos import InfoReader
from envkit.errors import EnvkitError, SpecError
from envkit.extend import describe
from envkit.realtime.actions import LateActions
from envkit.realtime.merging import EpisodeMerger, Merged
from envkit.realtime.report import NOTHING_KNOWN, Lag, ScreenLag, lag_of
from envkit.specs.arrays import ArraySpec
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray
from envkit.wrappers.rows import where_rows

# The other names are for this package's modules.
__all__ = [
    "EngineSchedule",
    "Move",
    "OverrunError",
    "Schedule",
    "TickLoop",
    "nothing_earned",
    "with_row",
]

_FIRST, _MID, _LAST = int(StepType.FIRST), int(StepType.MID), int(StepType.LAST)
_STEP_TYPES = {int(one): one for one in (StepType.FIRST, StepType.MID, StepType.LAST)}


class OverrunError(EnvkitError):
    """A step of the environment took longer than a tick, with `overrun="raise"`."""


class Schedule:
    """Schedules a number of ticks per second.

    A tick is due every `1 / hz` seconds after `begin`, however long earlier ticks took.
    A tick that is less than one tick late starts at once. If it is later, `overrun`
    decides:

    | "skip"    | missed ticks are left out, and the rhythm is kept        |
    | "stretch" | the rhythm restarts, so time slows down                  |
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
            overrun: "skip", "stretch" or "raise", for ticks that are late by one tick
                or more.
        """
        if (
            not isinstance(hz, numbers.Real)
            or isinstance(hz, bool)
            or not (0 < hz < math.inf)
        ):
            raise ValueError(
                f"hz must be a number of ticks per second, such as 60, got "
                f"{describe(hz)}."
            )
        self._hz: float = float(hz)
        self._overrun: str = overrun
        self._origin: float = 0.0
        self._count: int = 1

    @property
    def due(self) -> float:
        """The time at which the next tick is due."""
        # Counted from the beginning, because rounding errors would add up.
        return self._origin + self._count / self._hz

    def begin(self, now: float) -> None:
        """Starts the rhythm: the first tick is due one tick from now."""
        self._origin, self._count = now, 1

    def start(self, now: float) -> tuple[float, int]:
        """Starts a tick; returns how late it is, and how many ticks were skipped.

        Raises:
            OverrunError: The tick is late by one tick or more, with `overrun="raise"`.
        """
        late = max(now - self.due, 0.0)
        # A time that is off by rounding belongs to the tick due then.
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
    """Leaves the rhythm to an engine whose step takes as long as a tick.

    Example:
        >>> schedule = EngineSchedule()
        >>> schedule.due, schedule.start(3.0)
        (-inf, (0.0, 0))
    """

    @property
    def due(self) -> float:
        """A time in the past, because the engine itself waits."""
        return -math.inf

    def begin(self, now: float) -> None:
        """Does nothing."""

    def start(self, now: float) -> tuple[float, int]:
        """Returns zeros: no tick is late or skipped."""
        return 0.0, 0


class Move(NamedTuple):
    """Holds the decision about a tick.

    Attributes:
        action: The action of every row.
        stepping: For a batch, the mask of the rows that step; `None` for all.
        resets: Whether a single environment begins an episode instead.
    """

    action: NestedArray
    stepping: Array | None
    resets: bool


class _Tick(NamedTuple):
    """Records a finished tick.

    Attributes:
        number: Its number, counted from the start.
        time_step: The time step of all rows.
        info: The environment's info at that tick.
        done: When the environment finished it.
    """

    number: int
    time_step: TimeStep
    info: Any
    done: float


class TickLoop:
    """Steps an environment tick by tick.

    Attributes:
        rows: The number of rows.
        batched: Whether the environment is a batch.
    """

    def __init__(
        self,
        env: Any,
        schedule: Schedule | EngineSchedule,
        late: LateActions,
        *,
        act_every: int = 1,
        pauses: bool = False,
        discounted: bool = True,
    ) -> None:
        """Takes an environment, which only the loop steps from now on.

        Args:
            env: The environment.
            schedule: The times of ticks.
            late: The actions of ticks for which the agent's action is late.
            act_every: How many ticks an action is meant for.
            pauses: Whether rows wait at the end of an episode until it has been seen.
            discounted: Whether rewards are merged with discounts.
        """
        self.batched: bool = bool(env.batched)
        self.rows: int = int(env.batch_size) if self.batched else 1
        self._dims = (self.rows,) if self.batched else ()
        self._env = env
        self._late = late
        self._every = act_every
        self._pauses = pauses
        self._discounted = discounted
        self._reward = nest.Structure(env.reward_spec())
        self._discount = nest.Structure(env.discount_spec())
        self._observation = nest.Structure(env.observation_spec())
        self._infos = InfoReader(env)
        # All attributes below are the loop's state.
        self._fixed = {*vars(self), "_fixed"}
        self._schedule = schedule
        self.tick = -1
        self._action: NestedArray = None
        self._start_over()

    def _start_over(self) -> None:
        rows = self.rows
        self._mergers = [EpisodeMerger(self._discounted) for _ in range(rows)]
        # Rows in which the agent's last action has not acted yet.
        self._is_new = np.zeros(rows, bool)
        # Rows in which the agent has acted in this episode, and for how many ticks.
        self._has_acted = np.zeros(rows, bool)
        self._used = np.zeros(rows, np.int64)
        self._published = 0.0
        # Fields of `Lag` that accumulate until a time step is returned.
        self._action_tick = np.full(rows, -1, np.int64)
        self._latency = np.zeros(rows)
        self._missed = np.zeros(rows, np.int64)
        self._overrun = np.zeros(rows, np.int64)
        self._lateness = np.zeros(rows)
        self._thought = 0.0
        self._screens = ScreenLag(rows)
        self._handed_out = -np.inf
        # The tick that was running when the agent acted, and the last of each row.
        self._acted_in = -1
        self._moved_in = np.full(rows, -1, np.int64)

    # For the clock.

    @property
    def due(self) -> float:
        """The time at which the next tick is due."""
        return self._schedule.due

    @property
    def is_paused(self) -> bool:
        """True if every row waits until someone has seen the end of its episode."""
        return self._pauses and all(merger.waits_to_be_seen for merger in self._mergers)

    @property
    def has_begun(self) -> bool:
        """True if any episode has begun."""
        return self.tick >= 0

    def reset(self, mask: Array | None, options: Any = None) -> TimeStep:
        """Resets the environment, and returns a time step for `begin`."""
        arguments = () if mask is None else (mask,)
        time_step: TimeStep
        if options is None:
            time_step = self._env.reset(*arguments)
        else:
            time_step = self._env.reset(*arguments, options=options)
        return time_step

    def begin(self, mask: Array | None, time_step: TimeStep, now: float) -> None:
        """Records the beginning of an episode in all rows or in some."""
        if mask is None:
            self._start_over()
            self.tick += 1
            # An episode's time begins here, however long the reset took.
            self._schedule.begin(now)
        else:
            for row in np.flatnonzero(mask).tolist():
                self._mergers[row] = EpisodeMerger(self._discounted)
            self._forget_actions(mask)
        self._add(time_step, mask, now)

    def decide(self, now: float) -> Move:
        """Decides about the tick that begins now."""
        lateness, left_out = self._schedule.start(now)
        self._lateness = np.maximum(self._lateness, lateness)
        self._overrun += left_out
        self.tick += 1
        ended = np.array([merger.has_ended for merger in self._mergers])
        stepping = None
        if self._pauses:
            held = np.array([merger.waits_to_be_seen for merger in self._mergers])
            stepping = ~held if held.any() else None
        if not self.batched and ended[0]:
            return Move(None, None, resets=True)
        return Move(self._chosen(now, ended), stepping, resets=False)

    def _chosen(self, now: float, ended: Array) -> NestedArray:
        """Returns the action of every row, and counts rows whose action was late."""
        new = self._is_new & ~ended
        self._action_tick[new] = self.tick
        self._latency[new] = now - self._published
        self._has_acted |= new
        self._used[new] = 0
        self._is_new[:] = False
        in_time = self._has_acted & (self._used < self._every)
        late = self._has_acted & ~in_time
        self._used += 1
        self._missed[(late | (~in_time & self._takes_actions())) & ~ended] += 1
        if in_time.all():
            return self._late.copy(self._action)
        action = self._late.first()
        if late.any():
            chosen = self._late.choose(self.tick, self._action)
            action = self._late.mixed(late, chosen, action)
        if in_time.any():
            action = self._late.mixed(in_time, self._action, action)
        return action

    def _takes_actions(self) -> Array:
        return np.array([merger.takes_actions for merger in self._mergers])

    def move(self, move: Move) -> TimeStep:
        """Steps the environment, and returns a time step for `note`."""
        if move.resets:
            time_step: TimeStep = self._env.reset()
        elif move.stepping is None:
            time_step = self._env.step(move.action)
        else:
            time_step = self._env.step(move.action, move.stepping)
        return time_step

    def note(self, move: Move, time_step: TimeStep, now: float) -> None:
        """Records the time step of a tick."""
        if move.resets:
            self._schedule.begin(now)
        self._add(time_step, move.stepping, now)

    def _add(self, time_step: TimeStep, mask: Array | None, now: float) -> None:
        """Passes the rows that have moved to their mergers."""
        observation = self._lasting(time_step.observation)
        time_step = time_step._replace(observation=observation)
        tick = _Tick(self.tick, time_step, self._infos.read(), now)
        step_types = np.asarray(time_step.step_type).reshape(self.rows)
        rewards = self._columns(self._reward, time_step.reward, "reward")
        discounts = self._columns(self._discount, time_step.discount, "discount")
        for row in self._rows_in(mask):
            self._mergers[row].add(
                int(step_types[row]),
                [column[row] for column in rewards],
                [column[row] for column in discounts],
                tick,
            )
            self._moved_in[row] = self.tick
        self._screens.add(tick.info, self._rows_in(mask))
        begun = step_types == _FIRST
        self._forget_actions(begun if mask is None else begun & mask)

    def _forget_actions(self, rows: Array) -> None:
        """Discards the actions of an episode, because the next has no use for them."""
        self._is_new[rows] = False
        self._has_acted[rows] = False
        self._used[rows] = 0

    def _lasting(self, observation: NestedArray) -> NestedArray:
        """Returns an observation that later ticks will not change."""
        leaves = self._observation.flatten(observation)
        if all(np.asarray(leaf).flags.writeable for leaf in leaves):
            return observation
        # A pool with zero_copy=True returns its own memory, and overwrites it later.
        return self._observation.unflatten([np.copy(leaf) for leaf in leaves])

    def _columns(self, structure: nest.Structure, value: Any, name: str) -> list[Array]:
        """Returns arrays with one element per row."""
        columns = [np.asarray(leaf) for leaf in structure.flatten(value)]
        if not self.batched:
            columns = [column[np.newaxis] for column in columns]
        if any(column.shape[:1] != (self.rows,) for column in columns):
            raise SpecError(f"The environment returned a {name} without its rows.")
        return columns

    # For the agent.

    def publish(self, action: NestedArray, now: float) -> None:
        """Passes in an action, in arrays that no caller changes.

        Rows whose next episode has not been seen ignore it.
        """
        self._action = action
        self._is_new = self._takes_actions()
        self._acted_in = self.tick
        self._published = now
        self._thought = max(now - self._handed_out, 0.0)

    def is_ready(self, mask: Array | None, *, at_once: bool) -> bool:
        """True if these rows have something to show.

        Args:
            mask: The rows; `None` for all.
            at_once: Whether anything new is enough. Otherwise the agent's action must
                have acted for its number of ticks, or an episode must have ended.
        """
        rows = self._rows_in(mask)
        if not all(self._mergers[row].has_any for row in rows):
            return False
        enough = self._moved_in - self._acted_in >= self._every
        return at_once or all(
            enough[row] or self._mergers[row].is_at_edge for row in rows
        )

    def take(self, mask: Array | None, now: float) -> tuple[TimeStep, Lag, Any]:
        """Returns the time step, timing and info of these rows, and consumes them."""
        rows = self._rows_in(mask)
        merged = {row: self._mergers[row].take() for row in rows}
        by_row = [self._report(row, merged.get(row), now) for row in range(self.rows)]
        self._handed_out = now
        for counters in (self._missed, self._overrun, self._lateness):
            counters[rows] = 0
        self._screens.forget(rows)
        lag = lag_of(by_row, self.batched)
        return self._shown(merged), lag, self._info_of(merged)

    def peek(self, current: TimeStep) -> TimeStep:
        """Returns the time step that `take` would return, without consuming it.

        Args:
            current: The time step of rows whose next episode has yet to begin. They
                show it again, with reward and discount 0.
        """
        shown = np.array([merger.has_any for merger in self._mergers])
        looks = {
            row: self._mergers[row].look() for row in np.flatnonzero(shown).tolist()
        }
        if shown.all():
            return self._shown(looks)
        filler = nothing_earned(current)
        if not looks:
            return filler
        time_step: TimeStep = nest.map_structure(
            lambda new, old: where_rows(shown, new, old), self._shown(looks), filler
        )
        return time_step

    def _rows_in(self, mask: Array | None) -> list[int]:
        return list(range(self.rows)) if mask is None else np.flatnonzero(mask).tolist()

    def _report(self, row: int, merged: Merged | None, now: float) -> dict[str, Any]:
        if merged is None:
            return NOTHING_KNOWN
        skipped, age = merged.skipped, max(now - merged.tick.done, 0.0)
        return {
            "observation_tick": merged.tick.number,
            "observation_age": age,
            "action_tick": self._action_tick[row],
            "action_latency": self._latency[row],
            "ticks_merged": merged.ticks,
            "missed_ticks": self._missed[row],
            "overrun_ticks": self._overrun[row],
            "clock_lateness": self._lateness[row],
            "think_time": self._thought,
            "episode_id": merged.episode,
            "episodes_skipped": skipped.episodes,
            "steps_skipped": skipped.steps,
            "reward_skipped": sum(float(np.sum(part)) for part in skipped.reward or ()),
            "interrupted": merged.interrupted,
            **self._screens.report(row, merged.tick.info, age),
        }

    def _shown(self, merged: dict[int, Merged]) -> TimeStep:
        """Returns a time step with these rows; a batch's other rows have no meaning."""
        if self.batched:
            step_type: Any = np.full(self.rows, _MID, np.int32)
            for row, one in merged.items():
                step_type[row] = one.step_type
        else:
            step_type = _STEP_TYPES[merged[0].step_type]
        rewards = {row: one.reward for row, one in merged.items()}
        discounts = {row: one.discount for row, one in merged.items()}
        return TimeStep(
            step_type,
            self._numbers(self._reward, rewards),
            self._numbers(self._discount, discounts),
            self._observation_of(merged),
        )

    def _numbers(
        self, structure: nest.Structure, merged: dict[int, list[Array]]
    ) -> NestedArray:
        """Returns rewards or discounts in the dtypes of their spec."""
        leaves = []
        for index, spec in enumerate(structure.leaves):
            leaf = np.zeros((*self._dims, *spec.shape), spec.dtype)
            for row, parts in merged.items():
                leaf[row if self.batched else ()] = _within(parts[index], spec)
            leaves.append(leaf)
        return structure.unflatten(leaves)

    def _observation_of(self, merged: dict[int, Merged]) -> NestedArray:
        """Returns the observations, each from the tick that its row shows."""
        ticks = {row: one.tick for row, one in merged.items()}
        *_, last = ticks.values()
        # Copies, because an observation may be shown again.
        leaves = [
            np.copy(leaf)
            for leaf in self._observation.flatten(last.time_step.observation)
        ]
        for row, tick in ticks.items():
            if tick is not last:
                given = self._observation.flatten(tick.time_step.observation)
                for leaf, one in zip(leaves, given, strict=True):
                    leaf[row] = one[row]
        return self._observation.unflatten(leaves)

    def _info_of(self, merged: dict[int, Merged]) -> Any:
        """Returns the infos, each from the tick that its row shows."""
        ticks = {row: one.tick for row, one in merged.items()}
        newest = max(ticks.values(), key=lambda tick: tick.number)
        info = newest.info
        for row, tick in ticks.items():
            if tick is not newest:
                info = with_row(info, tick.info, row, self.rows)
        return info

    # States.

    def get_state(self) -> dict[str, Any]:
        """Returns everything later ticks depend on, except the environment's state."""
        state = {
            name: value for name, value in vars(self).items() if name not in self._fixed
        }
        return copy.deepcopy(state)

    def set_state(self, state: dict[str, Any], now: float | None) -> None:
        """Restores a state returned by `get_state`.

        Args:
            state: The state.
            now: When time continues; `None` if the schedule is part of the state.
        """
        vars(self).update(copy.deepcopy(state))
        if now is not None:
            self._schedule.begin(now)
            self._handed_out = now


def _within(value: Array, spec: ArraySpec) -> Array:
    """Returns a sum in its spec's dtype, clipped to the dtype's limits."""
    if spec.dtype.kind not in "iu":
        return value
    info = np.iinfo(spec.dtype)
    # In the dtype's own numbers: the largest are not exact as floats.
    if info.min < value.min() and value.max() < info.max:
        return value.astype(spec.dtype)
    return np.array(
        [min(max(int(one), info.min), info.max) for one in value.ravel()], spec.dtype
    ).reshape(value.shape)


def nothing_earned(time_step: TimeStep) -> TimeStep:
    """Returns a copy of a time step with reward and discount 0."""
    copied: TimeStep = copy.deepcopy(time_step)
    return copied._replace(
        reward=nest.map_structure(np.zeros_like, time_step.reward),
        discount=nest.map_structure(np.zeros_like, time_step.discount),
    )


def with_row(info: Any, other: Any, row: int, rows: int) -> Any:
    """Returns a batch's info with one row from another info.

    A batch's info is a list or an array with one element per row, or a mapping of
    these. Any other value applies to all rows, and the newer one is kept.

    Example:
        >>> with_row({"score": [1, 2], "level": 3}, {"score": [8, 9]}, 1, 2)
        {'score': [1, 9], 'level': 3}
    """
    if isinstance(info, Mapping):
        before = other if isinstance(other, Mapping) else {}
        return {
            key: with_row(part, before[key], row, rows) if key in before else part
            for key, part in info.items()
        }
    of_rows = isinstance(info, list | np.ndarray) and len(info) == rows
    if not of_rows or type(other) is not type(info) or len(other) != rows:
        return info
    info = info.copy()
    info[row] = other[row]
    return info
