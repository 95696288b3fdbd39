"""The timing of the time steps that an agent sees: `Lag`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from envkit.specs.arrays import ArraySpec
from envkit.types import Array

__all__ = ["LAG_SPEC", "NOTHING_KNOWN", "Lag", "ScreenLag", "lag_of"]


class Lag(NamedTuple):
    """Holds the timing of one time step; for a batch, arrays with one element per row.

    Times are in seconds, and ticks are counted since the previous time step.

    Attributes:
        observation_tick: The tick of the observation, counted from the start.
        observation_age: How old the observation was when it was returned.
        action_tick: The tick in which the last action first acted; -1 if none has.
        action_latency: How long after the call of `step` that was.
        ticks_merged: How many ticks are merged in the reward and the discount.
        missed_ticks: Ticks in which the agent's action was late, so another one acted.
        overrun_ticks: Ticks left out because the environment was too slow.
        clock_lateness: How late the latest tick was.
        think_time: How long the agent took from receiving a time step to calling
            `step`.
        episode_id: The number of the episode, counted from 0.
        episodes_skipped: With a FIRST, how many episodes passed unseen before it.
        steps_skipped: How many steps those had.
        reward_skipped: The sum of their rewards, over all elements of a vector.
        interrupted: Whether the episode was broken off, so its LAST is made up.
        frame_age: For a screen: how long ago its picture had changed when the time step
            was returned. This and the next two are 0 for other environments.
        key_to_pixel: The latest measured time from an event to its picture; 0 before
            the first measurement.
        missed_frames: How many pictures the agent has missed because newer ones
            replaced them.
    """

    observation_tick: Any
    observation_age: Any
    action_tick: Any
    action_latency: Any
    ticks_merged: Any
    missed_ticks: Any
    overrun_ticks: Any
    clock_lateness: Any
    think_time: Any
    episode_id: Any
    episodes_skipped: Any
    steps_skipped: Any
    reward_skipped: Any
    interrupted: Any
    frame_age: Any
    key_to_pixel: Any
    missed_frames: Any


def _spec(name: str, dtype: type) -> ArraySpec:
    return ArraySpec((), dtype, name)


LAG_SPEC = Lag(
    observation_tick=_spec("observation_tick", np.int64),
    observation_age=_spec("observation_age", np.float64),
    action_tick=_spec("action_tick", np.int64),
    action_latency=_spec("action_latency", np.float64),
    ticks_merged=_spec("ticks_merged", np.int64),
    missed_ticks=_spec("missed_ticks", np.int64),
    overrun_ticks=_spec("overrun_ticks", np.int64),
    clock_lateness=_spec("clock_lateness", np.float64),
    think_time=_spec("think_time", np.float64),
    episode_id=_spec("episode_id", np.int64),
    episodes_skipped=_spec("episodes_skipped", np.int64),
    steps_skipped=_spec("steps_skipped", np.int64),
    reward_skipped=_spec("reward_skipped", np.float64),
    interrupted=_spec("interrupted", np.bool_),
    frame_age=_spec("frame_age", np.float64),
    key_to_pixel=_spec("key_to_pixel", np.float64),
    missed_frames=_spec("missed_frames", np.int64),
)


# The timing of a row that shows nothing new.
NOTHING_KNOWN: dict[str, Any] = {
    **dict.fromkeys(LAG_SPEC._fields, 0),
    **dict.fromkeys(("observation_tick", "action_tick", "episode_id"), -1),
}


class ScreenLag:
    """Extracts the timing of pictures from infos as a `Desktop` returns them.

    Example:
        >>> lag = ScreenLag(rows=1)
        >>> info = {"desktop": {"frame_age": 0.25}, "vnc": {"updates.n": 2}}
        >>> lag.add(info, [0])
        >>> lag.add(info, [0])
        >>> lag.report(0, info, age=0.5)
        {'frame_age': 0.75, 'key_to_pixel': 0.0, 'missed_frames': 3}
    """

    def __init__(self, rows: int) -> None:
        """Takes the number of rows."""
        # How many pictures have come since the last time step.
        self._pictures = [0] * rows

    def add(self, info: Any, rows: Iterable[int]) -> None:
        """Records the pictures of a tick in some rows."""
        if info is None:
            return
        for row in rows:
            told = _part(info, "vnc", row).get("updates.n")
            if told is not None:
                self._pictures[row] += int(_element(told, row))

    def report(self, row: int, info: Any, age: float) -> dict[str, Any]:
        """Returns the columns of one row.

        Args:
            row: The row.
            info: The info of the tick that the row shows.
            age: The age of that tick.
        """
        told = _part(info, "desktop", row)
        changed = told.get("frame_age")
        return {
            "frame_age": 0.0
            if changed is None
            else float(_element(changed, row)) + age,
            "key_to_pixel": float(_element(told.get("key_to_pixel", 0.0), row)),
            "missed_frames": max(self._pictures[row] - 1, 0),
        }

    def forget(self, rows: Iterable[int]) -> None:
        """Restarts the counts of rows that have shown a time step."""
        for row in rows:
            self._pictures[row] = 0


def _part(info: Any, name: str, row: int) -> Mapping[str, Any]:
    """Returns one row's part of an info, which is a list of rows or has columns."""
    if isinstance(info, list) and row < len(info):
        info = info[row]
    part = info.get(name) if isinstance(info, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def _element(value: Any, row: int) -> Any:
    return value[row] if np.ndim(value) else value


def lag_of(by_row: list[dict[str, Any]], batched: bool) -> Lag:
    """Combines the timing of rows into that of a batch, or of one row."""
    columns: dict[str, Array] = {}
    for name, spec in LAG_SPEC._asdict().items():
        values = np.array([row[name] for row in by_row], spec.dtype)
        columns[name] = values if batched else values.reshape(())
    return Lag(**columns)
