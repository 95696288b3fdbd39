"""`Lag`: the timing of the time steps that an agent sees."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from envkit.specs.arrays import ArraySpec
from envkit.types import Array

__all__ = ["LAG_SPEC", "NOTHING_KNOWN", "Lag", "lag_of"]


class Lag(NamedTuple):
    """The timing of one time step: arrays, in a batch with one element for each row.

    Times are in seconds, and ticks are counted since the time step before.

    Attributes:
        observation_tick: The tick that the observation is of, counted from the start.
        observation_age: How old the observation was when it was handed out.
        action_tick: The tick in which the last action first acted; -1 if none has.
        action_latency: How long that was after `step` was called.
        ticks_merged: How many ticks the reward and the discount are of.
        missed_ticks: In how many the agent's action was late, so that another acted.
        overrun_ticks: How many were left out because the environment was too slow.
        clock_lateness: How late the latest tick was.
        think_time: How long the agent took, from getting a time step to `step`.
        episode_id: The number of the episode, counted from 0.
        episodes_skipped: With a FIRST, how many episodes passed unseen before it.
        steps_skipped: How many steps these had.
        reward_skipped: The sum of their rewards, of all elements where it has several.
        interrupted: Whether the episode was left in its middle, so that its LAST is
            made up.
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
)


# The timing of a row that shows nothing new.
NOTHING_KNOWN: dict[str, Any] = {
    **dict.fromkeys(LAG_SPEC._fields, 0),
    **dict.fromkeys(("observation_tick", "action_tick", "episode_id"), -1),
}


def lag_of(by_row: list[dict[str, Any]], batched: bool) -> Lag:
    """Returns the timing of a batch, or of one row, from that of each row."""
    columns: dict[str, Array] = {}
    for name, spec in LAG_SPEC._asdict().items():
        values = np.array([row[name] for row in by_row], spec.dtype)
        columns[name] = values if batched else values.reshape(())
    return Lag(**columns)
