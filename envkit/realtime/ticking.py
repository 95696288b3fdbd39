"""`TickLoop`: an environment that is stepped by a clock, and what is seen of it.

The loop decides; it does not wait, and it knows the time only from its caller. Whoever
carries it calls `decide`, `move` and `note` for each tick. Only `move` takes long, so a
carrier with threads lets others in meanwhile: `publish` hands in an action, and `take`
hands out what has happened. Likewise `reset` takes long, and `begin` does not.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np

from envkit import nest
from envkit.errors import SpecError
from envkit.realtime.late_actions import LateActions
from envkit.realtime.merging import EpisodeMerger, Merged
from envkit.realtime.report import NOTHING_KNOWN, Lag, lag_of
from envkit.realtime.schedule import TickSchedule
from envkit.realtime.shown_rows import ShownRows, nothing_earned
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray
from envkit.wrappers.rows import where_rows

__all__ = ["Move", "TickLoop"]

_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)
_KEPT = (
    "tick",
    "_schedule",
    "_mergers",
    "_action",
    "_is_new",
    "_has_acted",
    "_used",
    "_published",
    "_action_tick",
    "_latency",
    "_missed",
    "_overrun",
    "_lateness",
    "_thought",
    "_handed_out",
    "_step_types",
    "_acted_in",
    "_moved_in",
)


class Move(NamedTuple):
    """What a tick is to do.

    Attributes:
        action: The action of every row.
        stepping: In a batch, which rows move; `None` for all.
        resets: Whether a single environment begins an episode instead.
    """

    action: NestedArray
    stepping: Array | None
    resets: bool


class _Tick(NamedTuple):
    """What a tick has shown.

    Attributes:
        number: Counted from the start.
        time_step: Of all rows.
        info: The environment's info then.
        done: When the environment had made it.
    """

    number: int
    time_step: TimeStep
    info: Any
    done: float


class TickLoop:
    """Steps an environment tick by tick.

    Attributes:
        rows: How many rows the environment has.
        batched: Whether it is a batch.
    """

    def __init__(
        self,
        env: Any,
        schedule: TickSchedule,
        late: LateActions,
        *,
        act_every: int = 1,
        pauses: bool = False,
        discounted: bool = True,
    ) -> None:
        """Takes an environment, which nobody else steps from now on.

        Args:
            env: The environment.
            schedule: When ticks are due.
            late: What acts when the agent does not.
            act_every: How many ticks an action is meant for.
            pauses: Whether rows wait at the end of an episode until it has been seen.
            discounted: Whether rewards are merged with discounts.
        """
        self.batched: bool = bool(env.batched)
        self.rows: int = int(env.batch_size) if self.batched else 1
        self._env = env
        self._schedule = schedule
        self._late = late
        self._every = act_every
        self._pauses = pauses
        self._discounted = discounted
        self._reward = nest.Structure(env.reward_spec())
        self._discount = nest.Structure(env.discount_spec())
        self._observation = nest.Structure(env.observation_spec())
        self._shown = ShownRows(env)
        self._has_info = True
        self._start_over()
        self.tick = -1
        self._action: NestedArray = None

    def _start_over(self) -> None:
        rows = self.rows
        self._mergers = [EpisodeMerger(self._discounted) for _ in range(rows)]
        # The rows in which the agent's last action has yet to act for the first time.
        self._is_new = np.zeros(rows, bool)
        # Rows in which the agent has acted in this episode, and for how many ticks.
        self._has_acted = np.zeros(rows, bool)
        self._used = np.zeros(rows, np.int64)
        self._published = 0.0
        self._action_tick = np.full(rows, -1, np.int64)
        self._latency = np.zeros(rows)
        self._missed = np.zeros(rows, np.int64)
        self._overrun = np.zeros(rows, np.int64)
        self._lateness = np.zeros(rows)
        self._thought = 0.0
        self._handed_out = -np.inf
        self._step_types = np.full(rows, _LAST)
        # The tick that was under way when the agent acted, and the last one seen.
        self._acted_in = np.full(rows, -1, np.int64)
        self._moved_in = np.full(rows, -1, np.int64)

    # What the clock does.

    @property
    def due(self) -> float:
        """When the next tick is due."""
        return self._schedule.due

    @property
    def is_paused(self) -> bool:
        """Whether no row is to move before somebody looks."""
        return self._pauses and all(merger.waits_to_be_seen for merger in self._mergers)

    @property
    def has_begun(self) -> bool:
        """Whether there has been an episode."""
        return self.tick >= 0

    def reset(self, mask: Array | None, options: Any = None) -> TimeStep:
        """Resets the environment; what comes of it is for `begin`."""
        arguments = () if mask is None else (mask,)
        time_step: TimeStep
        if options is None:
            time_step = self._env.reset(*arguments)
        else:
            time_step = self._env.reset(*arguments, options=options)
        return time_step

    def begin(self, mask: Array | None, time_step: TimeStep, now: float) -> None:
        """Takes in the beginning of an episode, in all rows or in some."""
        if mask is None:
            self._start_over()
            self.tick += 1
            # However long it took: the time of an episode begins with it.
            self._schedule.begin(now)
        else:
            for row in np.flatnonzero(mask).tolist():
                self._mergers[row] = EpisodeMerger(self._discounted)
            self._forget(mask)
        self._add(time_step, mask, now)

    def decide(self, now: float) -> Move:
        """Says what the tick that begins now is to do."""
        lateness, left_out = self._schedule.start(now)
        self._lateness = np.maximum(self._lateness, lateness)
        self._overrun += left_out
        self.tick += 1
        ended = self._step_types == _LAST
        stepping = None
        if self._pauses:
            held = np.array([merger.waits_to_be_seen for merger in self._mergers])
            stepping = ~held if held.any() else None
        if not self.batched and ended[0]:
            return Move(None, None, resets=True)
        return Move(self._chosen(now, ended), stepping, resets=False)

    def _chosen(self, now: float, ended: Array) -> NestedArray:
        """Returns the action of every row, and notes where the agent's was late."""
        new = self._is_new & ~ended
        self._action_tick[new] = self.tick
        self._latency[new] = now - self._published
        self._has_acted |= new
        self._used[new] = 0
        self._is_new[:] = False
        in_time = self._has_acted & (self._used < self._every)
        late = self._has_acted & ~in_time
        self._used += 1
        self._missed[(late | (~in_time & self._seen())) & ~ended] += 1
        if in_time.all():
            return self._late.own(self._action)
        if not self.batched:
            if late[0]:
                return self._late.choose(self.tick, self._action)
            return self._late.first()
        action = self._late.first()
        if late.any():
            chosen = self._late.choose(self.tick, self._action)
            action = self._late.mixed(late, chosen, action)
        if in_time.any():
            action = self._late.mixed(in_time, self._action, action)
        return action

    def _seen(self) -> Array:
        return np.array([merger.takes_actions for merger in self._mergers])

    def move(self, move: Move) -> TimeStep:
        """Steps the environment; what comes of it is for `note`."""
        if move.resets:
            time_step: TimeStep = self._env.reset()
        elif move.stepping is None:
            time_step = self._env.step(move.action)
        else:
            time_step = self._env.step(move.action, move.stepping)
        return time_step

    def note(self, move: Move, time_step: TimeStep, now: float) -> None:
        """Takes in what a tick has shown."""
        if move.resets:
            self._schedule.begin(now)
        self._add(time_step, move.stepping, now)

    def _add(self, time_step: TimeStep, mask: Array | None, now: float) -> None:
        """Gives the rows that have moved to their mergers."""
        time_step = time_step._replace(observation=self._kept(time_step.observation))
        tick = _Tick(self.tick, time_step, self._info(), now)
        step_types = np.asarray(time_step.step_type).reshape(self.rows)
        rewards = self._columns(self._reward, time_step.reward, "reward")
        discounts = self._columns(self._discount, time_step.discount, "discount")
        for row in range(self.rows) if mask is None else np.flatnonzero(mask).tolist():
            step_type = int(step_types[row])
            self._mergers[row].add(
                step_type,
                [column[row] for column in rewards],
                [column[row] for column in discounts],
                tick,
            )
            self._step_types[row] = step_type
            self._moved_in[row] = self.tick
        begun = step_types == _FIRST
        if mask is not None:
            begun &= mask
        if begun.any():
            self._forget(begun)

    def _forget(self, rows: Array) -> None:
        """Lets the actions of an episode end with it."""
        self._is_new[rows] = False
        self._has_acted[rows] = False
        self._used[rows] = 0

    def _kept(self, observation: NestedArray) -> NestedArray:
        """Returns an observation that stays as it is."""
        leaves = self._observation.flatten(observation)
        if all(np.asarray(leaf).flags.writeable for leaf in leaves):
            return observation
        # With zero_copy=True a pool shows its memory, and writes there again.
        return self._observation.unflatten([np.copy(leaf) for leaf in leaves])

    def _columns(self, structure: nest.Structure, value: Any, name: str) -> list[Array]:
        """Returns arrays with one element for each row."""
        columns = [np.asarray(leaf) for leaf in structure.flatten(value)]
        if not self.batched:
            columns = [column[np.newaxis] for column in columns]
        if any(column.shape[:1] != (self.rows,) for column in columns):
            raise SpecError(f"The environment returned a {name} without its rows.")
        return columns

    def _info(self) -> Any:
        if self._has_info:
            try:
                return self._env.get_info()
            except NotImplementedError:
                self._has_info = False
        return None

    # What the agent does.

    def publish(self, action: NestedArray, now: float) -> None:
        """Hands in an action, in arrays that nobody changes.

        Rows whose next episode has not been seen ignore it.
        """
        self._action = action
        self._is_new = self._seen()
        self._acted_in[:] = self.tick
        self._published = now
        self._thought = max(now - self._handed_out, 0.0)

    def is_ready(self, mask: Array | None, *, at_once: bool) -> bool:
        """Says whether these rows have something to show.

        Args:
            mask: Which; `None` for all.
            at_once: Whether anything at all will do. If not, the agent's action has to
                have acted for the ticks that it is meant for, or an episode to end.
        """
        rows = self._rows_in(mask)
        if not all(self._mergers[row].has_any for row in rows):
            return False
        enough = self._moved_in - self._acted_in >= self._every
        return at_once or all(
            enough[row] or self._mergers[row].is_at_edge for row in rows
        )

    def take(self, mask: Array | None, now: float) -> tuple[TimeStep, Lag, Any]:
        """Hands out what these rows have to show: time step, timing, and info."""
        rows = self._rows_in(mask)
        merged = {row: self._mergers[row].take() for row in rows}
        by_row = [self._report(row, merged.get(row), now) for row in range(self.rows)]
        self._handed_out = now
        for counters in (self._missed, self._overrun, self._lateness):
            counters[rows] = 0
        lag = lag_of(by_row, self.batched)
        return self._shown.time_step(merged), lag, self._shown.info(merged)

    def peek(self, current: TimeStep) -> TimeStep:
        """Returns what `take` would, and leaves it there.

        Args:
            current: What rows stand at whose next episode has yet to begin. They show
                it again, with nothing earned.
        """
        shown = np.array([merger.has_any for merger in self._mergers])
        looks = {
            row: self._mergers[row].look() for row in np.flatnonzero(shown).tolist()
        }
        if shown.all():
            return self._shown.time_step(looks)
        filler = nothing_earned(current)
        if not looks:
            return filler
        time_step: TimeStep = nest.map_structure(
            lambda new, old: where_rows(shown, new, old),
            self._shown.time_step(looks),
            filler,
        )
        return time_step

    def _rows_in(self, mask: Array | None) -> list[int]:
        return list(range(self.rows)) if mask is None else np.flatnonzero(mask).tolist()

    def _report(self, row: int, merged: Merged | None, now: float) -> dict[str, Any]:
        if merged is None:
            return NOTHING_KNOWN
        skipped = merged.skipped
        return {
            "observation_tick": merged.tick.number,
            "observation_age": max(now - merged.tick.done, 0.0),
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
        }

    # Everything, to be kept.

    def get_state(self) -> dict[str, Any]:
        """Returns all that later ticks depend on, but for the environment's own."""
        kept = {name: vars(self)[name] for name in _KEPT}
        return copy.deepcopy(kept)

    def set_state(self, state: dict[str, Any], now: float | None) -> None:
        """Brings back what `get_state` returned.

        Args:
            state: The state.
            now: When time goes on; `None` if the schedule is a part of the state.
        """
        vars(self).update(copy.deepcopy(state))
        if now is not None:
            self._schedule.begin(now)
            self._handed_out = now
