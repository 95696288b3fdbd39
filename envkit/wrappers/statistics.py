"""Wrappers that count steps and episodes: `RunStats`, `RecordEpisodeStatistics`."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from envkit import nest
from envkit._shared.arguments import limited_size
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.extend import WrapperInternals, describe, may_lose
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray
from envkit.wrappers.limits import stands_at_last
from envkit.wrappers.rows import beside, complete

__all__ = ["RecordEpisodeStatistics", "RunStats"]


_FIRST, _LAST = StepType.FIRST, StepType.LAST


class RunStats(PyEnvironmentBaseWrapper):
    """Counts steps, resets and episodes.

    `episodes` counts each `LAST`, except those made up for a lost environment, `resets`
    counts each `FIRST`, and `total_steps` all time steps except a `FIRST`. For a batch,
    these are sums over its rows; `episodes_per_row`, `resets_per_row` and
    `total_steps_per_row` have one element per row. `episode_steps` counts the steps of
    the current episode: a number, or for a batch an array with one element per row. If
    an episode begins in the step that ended the previous one, it counts the new one's
    steps.

    The counts are part of the environment's state.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = RunStats(CountingEnv(steps_per_episode=2))
        >>> for _ in range(5):
        ...     _ = env.step(0)
        >>> env.episodes, env.resets, env.episode_steps, env.total_steps
        (1, 2, 1, 3)
    """

    _kept = ("_episodes", "_resets", "_episode_steps", "_total_steps")

    def __init__(self, env: Any, handle_auto_reset: bool = False) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
        """
        super().__init__(env, handle_auto_reset)
        self._may_lose = may_lose(self._env)
        self._has_fillers = hasattr(self._env, "valid")
        self._continues = self.continues_after_last
        self._episodes = np.zeros(self._dims, np.int64)
        self._resets = np.zeros(self._dims, np.int64)
        self._episode_steps = np.zeros(self._dims, np.int64)
        self._total_steps = np.zeros(self._dims, np.int64)

    @property
    def episodes(self) -> int:
        """How many episodes have ended, across all rows."""
        return int(self._episodes.sum())

    @property
    def resets(self) -> int:
        """How many episodes have begun, across all rows."""
        return int(self._resets.sum())

    @property
    def total_steps(self) -> int:
        """How many time steps other than `FIRST` there were, across all rows."""
        return int(self._total_steps.sum())

    @property
    def episode_steps(self) -> int | Array:
        """How many steps the current episode has had; in a batch, one per row."""
        return self._episode_steps.copy() if self._dims else int(self._episode_steps)

    @property
    def episodes_per_row(self) -> Array:
        """How many episodes have ended in each row."""
        return self._episodes.copy()

    @property
    def resets_per_row(self) -> Array:
        """How many episodes have begun in each row."""
        return self._resets.copy()

    @property
    def total_steps_per_row(self) -> Array:
        """How many time steps other than `FIRST` each row has had."""
        return self._total_steps.copy()

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        step_type = np.asarray(time_step.step_type)
        first, last = step_type == _FIRST, step_type == _LAST
        stepped = ~first
        if self._has_fillers:
            rows = _new_rows(self._env, rows)
        if rows is not None:
            first, last, stepped = first & rows, last & rows, stepped & rows
        if self._continues:
            # No FIRST follows a LAST here, so this is the first step of another
            # episode.
            over = stands_at_last(self)
            self._episode_steps[over if rows is None else over & rows] = 0
        self._resets += first
        self._episodes += complete(self._env, last) if self._may_lose else last
        self._total_steps += stepped
        self._episode_steps += stepped
        self._episode_steps[first] = 0
        return time_step


class _StatisticsInternals(WrapperInternals):
    """Saves the queues of the latest episodes."""

    def save(self, env: Any) -> Any:
        return {**super().save(env), "queues": env._queues()}

    def fits(self, env: Any, saved: Any) -> bool:
        return super().fits(env, saved) and len(saved["queues"]) == len(env._queues())

    def restore(self, env: Any, saved: Any) -> None:
        super().restore(env, saved)
        # The time since `get_state` does not count.
        env._began[...] = env._clock() - env._times
        # The same deque objects, because users may hold them.
        for queue, entries in zip(env._queues(), saved["queues"], strict=True):
            queue.clear()
            queue.extend(entries)


class RecordEpisodeStatistics(PyEnvironmentBaseWrapper):
    """Adds up each episode's rewards, steps and seconds.

    `get_info` returns the environment's info with an extra key `episode`: a dictionary
    with the `return`, `length` and `time` of the episode so far and, as `ended`,
    whether the last step ended it. It is there after every step, so check `ended`
    first. Programs for Gymnasium and Stable-Baselines3 get `r`, `l` and `t`, only in
    the step that ends the episode, through `PyToGymnasium`, `to_sb3` and similar
    adapters. In a batch, each entry has one element per row. The properties
    `episode_returns`, `episode_lengths`, `episode_times` and `episode_ended` return the
    same without asking the environment. All of them describe the last time step
    returned, even if the next episode has begun in the same step.

    The queues hold the last `buffer_length` episodes of all rows. An episode that was
    broken off by a reset, or lost with its environment, does not count, and `ended`
    stays false. If an episode repeats its `LAST`, as with `FixedLength`, it ends at the
    first one.

    Rewards are added up in float64. Vectors and nests of rewards are added up element
    by element, and their queue holds an array or nest per episode.

    `time` is wall-clock time from the `FIRST` to the last time step. All counts are
    part of the environment's state, including the seconds: after `set_state` they
    continue from the saved value, however much time has passed since `get_state`.

    Attributes:
        buffer_length: How many episodes the queues hold.
        stats_key: The key of the episode's statistics in `get_info`.
        return_queue: The returns of the last episodes, the latest on the right.
        length_queue: Their lengths.
        time_queue: Their durations in seconds.

    Example:
        >>> from envkit.envs import CartPole
        >>> env = RecordEpisodeStatistics(CartPole(seed=1))
        >>> while not env.step(1).is_last():
        ...     pass
        >>> episode = env.get_info()["episode"]
        >>> float(episode["return"]), int(episode["length"]), bool(episode["ended"])
        (9.0, 9, True)
        >>> list(env.return_queue), list(env.length_queue)
        ([9.0], [9])
    """

    _envkit = _StatisticsInternals()

    _kept = (
        "_returns",
        "_lengths",
        "_times",
        "_over",
        "_ended",
        "_begun_at_once",
        "_episode_count",
    )
    _shown = ("buffer_length", "stats_key")

    def __init__(
        self,
        env: Any,
        buffer_length: int = 100,
        stats_key: str = "episode",
        handle_auto_reset: bool = False,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Wraps an environment.

        Args:
            env: The environment to wrap.
            buffer_length: How many episodes the queues hold.
            stats_key: The key of the episode's statistics in `get_info`.
            handle_auto_reset: As in `PyEnvironmentBaseWrapper`.
            clock: Returns the time in seconds.
        """
        super().__init__(env, handle_auto_reset)
        self.buffer_length = limited_size(
            "buffer_length", buffer_length, most=sys.maxsize
        )
        if not isinstance(stats_key, str):
            raise TypeError(
                "stats_key must be a string, the key of the statistics in get_info(), "
                f"got {describe(stats_key)}."
            )
        self.stats_key = stats_key
        self._clock = clock
        self._may_lose = may_lose(self._env)
        self._has_fillers = hasattr(self._env, "valid")
        self._continues = self.continues_after_last
        spec = self._env.reward_spec()
        self._reward = nest.Structure(spec)
        self._is_scalar = not nest.is_nested(spec) and spec.shape == ()
        self._returns = [
            np.zeros((*self._dims, *leaf.shape)) for leaf in self._reward.leaves
        ]
        self._lengths = np.zeros(self._dims, np.int64)
        self._times = np.zeros(self._dims)
        self._began = np.full(self._dims, clock())
        # Rows between a LAST and the next FIRST, and rows in that LAST itself.
        self._over = np.zeros(self._dims, bool)
        self._ended = np.zeros(self._dims, bool)
        # Rows whose next episode has begun, while the last one's end is reported.
        self._begun_at_once = np.zeros(self._dims, bool)
        self._episode_count = 0
        self.return_queue: deque[Any] = deque(maxlen=self.buffer_length)
        self.length_queue: deque[int] = deque(maxlen=self.buffer_length)
        self.time_queue: deque[float] = deque(maxlen=self.buffer_length)

    @property
    def episode_count(self) -> int:
        """How many episodes have ended, across all rows."""
        return self._episode_count

    @property
    def episode_returns(self) -> NestedArray:
        """The sum of the rewards of the episode so far, for each row."""
        return self._reward.unflatten([total.copy() for total in self._returns])

    @property
    def episode_lengths(self) -> Array:
        """How many steps the episode has had so far, for each row."""
        return self._lengths.copy()

    @property
    def episode_times(self) -> Array:
        """How many seconds the episode has taken so far, for each row."""
        return self._times.copy()

    @property
    def episode_ended(self) -> Array:
        """Whether the last step ended an episode, for each row."""
        return self._ended.copy()

    def get_info(self) -> Any:
        """Returns the environment's info, with the statistics of the episode."""
        try:
            info = self._env.get_info()
        except NotImplementedError:
            info = None
        episode = {
            "return": self.episode_returns,
            "length": self.episode_lengths,
            "time": self.episode_times,
            "ended": self.episode_ended,
        }
        if self._dims and isinstance(info, list) and len(info) == self.batch_size:
            # A batch whose infos cannot be stacked returns them one by one.
            keys = nest.Structure(episode)
            episodes = _one_by_one(keys, keys.flatten(episode), len(info))
            return [self._with_key(*pair) for pair in zip(info, episodes, strict=True)]
        return self._with_key(info, episode)

    def _with_key(self, info: Any, episode: dict[str, Any]) -> dict[Any, Any]:
        name, key = type(self).__name__, self.stats_key
        if info is None:
            return {key: episode}
        if not isinstance(info, Mapping):
            raise TypeError(
                f"{name}.get_info() adds the key {key!r} to the info of the "
                f"environment, which is {describe(info)} and has no keys. Use the "
                "properties episode_returns, episode_lengths, episode_times and "
                "episode_ended."
            )
        if key in info:
            raise ValueError(
                f"{name}.get_info() cannot add the key {key!r}: the info of the "
                "environment has it already. Choose another one with stats_key=."
            )
        return {**info, key: episode}

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        # Hot: called once per step.
        now = self._clock()
        if self._has_fillers:
            rows = _new_rows(self._env, rows)
        step_type = np.asarray(time_step.step_type)
        first, last = step_type == _FIRST, step_type == _LAST
        if rows is not None:
            first = first & rows
        if self._envkit.resets_at_once:
            # Until these rows move, report the end of the previous episode.
            self._begun_at_once |= first
            self._began[first] = now
            return time_step
        if self._begun_at_once.any():
            moved = self._begun_at_once if rows is None else self._begun_at_once & rows
            self._clear(moved)
            self._begun_at_once &= ~moved
        if self._continues and self._over.any():
            # No FIRST follows a LAST here, so this is the first step of another
            # episode.
            moved = self._over if rows is None else self._over & rows
            self._clear(moved)
        counts = ~(first | self._over)
        if rows is not None:
            counts &= rows
        ended = last & counts
        self._add(time_step, counts, now)
        self._over |= ended
        self._began[first] = now
        self._clear(first)
        whole = complete(self._env, ended) if self._may_lose else ended
        kept = whole if rows is None else np.where(rows, whole, self._ended)
        self._ended = np.asarray(kept)
        if ended.any():
            self._end_episodes(time_step, ended, whole)
            if self._continues:
                self._began[ended] = now
        return time_step

    def _add(self, time_step: TimeStep, counts: Array, now: float) -> None:
        """Adds a step to the episodes of some rows."""
        rewards = self._reward.flatten(time_step.reward)
        for total, reward in zip(self._returns, rewards, strict=True):
            np.add(total, reward, out=total, where=beside(counts, total))
        self._lengths += counts
        np.subtract(now, self._began, out=self._times, where=counts)

    def _clear(self, rows: Array) -> None:
        """Restarts the counts of some rows."""
        for total in self._returns:
            total[rows] = 0.0
        self._lengths[rows] = 0
        self._times[rows] = 0.0
        self._over[rows] = False

    def _end_episodes(self, time_step: TimeStep, ended: Array, whole: Array) -> None:
        """Counts the episodes that ended in a time step, except the lost ones.

        Args:
            time_step: The time step.
            ended: The rows whose episode has ended.
            whole: Those of them whose environment has ended it.
        """
        rows = np.flatnonzero(whole)
        self._episode_count += rows.size
        rows = rows[-self.buffer_length :]  # earlier ones would be pushed out at once
        self.length_queue.extend(self._lengths.reshape(-1)[rows].tolist())
        self.time_queue.extend(self._times.reshape(-1)[rows].tolist())
        if self._is_scalar:
            self.return_queue.extend(self._returns[0].reshape(-1)[rows].tolist())
            return
        returns = [
            total.reshape(-1, *leaf.shape)[rows]
            for total, leaf in zip(self._returns, self._reward.leaves, strict=True)
        ]
        self.return_queue.extend(_one_by_one(self._reward, returns, rows.size))

    def _queues(self) -> tuple[deque[Any], ...]:
        return self.return_queue, self.length_queue, self.time_queue


def _one_by_one(structure: nest.Structure, columns: list[Array], rows: int) -> Any:
    """Splits arrays with one row per nest into separate nests."""
    return [
        structure.unflatten([column[row, ...] for column in columns])
        for row in range(rows)
    ]


def _new_rows(env: Any, rows: Array | None) -> Array:
    """Returns the rows that have moved and do not show padding."""
    valid: Array = env.valid
    return valid if rows is None else valid & rows
