"""Plays the time steps of batches, and what all doors' tests share."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import AutoReset, RestartPolicy, StepType
from tests.lost.ledger import Ledger
from tests.lost.numbered import RAISING

__all__ = ["ENDLESS", "FAULTS", "OPTIONS", "play"]

ENDLESS = RestartPolicy(max_restarts=10**6, within=None, backoff=0.0)
# Of pools.
OPTIONS: dict[str, Any] = {
    "num_workers": 2,
    "start_method": "forkserver",
    "step_timeout": 1.0,
    "on_worker_failure": ENDLESS,
}
# Kills, and now and then a worker that hangs until it is given up.
FAULTS: dict[str, Any] = {
    "seed": 1,
    "kills_per_minute": 8.0,
    "hangs": 1.0,
    "every_steps": 12,
}


def play(env: Any, episodes: int) -> Ledger:
    """Plays at least so many episodes of a batch, as a learner of time steps does."""
    ledger = Ledger(env.batch_size)
    order = AutoReset.kept_by(env)
    shown = env.reset(seed=[RAISING + row for row in range(env.batch_size)])
    _begin(ledger, shown, _valid(env))
    while ledger.resolved < episodes:
        shown = env.step(ledger.actions)
        _take(ledger, env, shown)
        ended = shown.step_type == StepType.LAST
        if order is AutoReset.SAME_STEP:
            _begin(ledger, env.current_time_step(), ended)
        elif order is AutoReset.DISABLED and ended.any():
            _begin(ledger, env.reset(ended), ended)
    return ledger


def _valid(env: Any) -> np.ndarray:
    """Returns the rows that show something new.

    Rows of `Blocking(wait=False)` repeat their last step while they are reset.
    """
    valid: np.ndarray = getattr(env, "valid", np.ones(env.batch_size, bool))
    return valid


def _begin(ledger: Ledger, shown: Any, rows: np.ndarray) -> None:
    for row in np.flatnonzero(rows).tolist():
        assert shown.step_type[row] == StepType.FIRST
        ledger.begin(shown.observation[row], row)


def _take(ledger: Ledger, env: Any, shown: Any) -> None:
    """Takes a step of the whole batch."""
    repaired, losses = env.repaired, env.current_losses()
    assert set(losses) == set(np.flatnonzero(repaired))
    for row in np.flatnonzero(_valid(env)).tolist():
        observation = shown.observation[row]
        if shown.step_type[row] == StepType.FIRST:
            ledger.begin(observation, row)
        elif repaired[row]:
            ledger.lose(losses[row].kind, row)
        else:
            ledger.step(observation, shown.reward[row], row)
            if shown.step_type[row] == StepType.LAST:
                ledger.end(row, is_terminated=shown.discount[row] == 0)
