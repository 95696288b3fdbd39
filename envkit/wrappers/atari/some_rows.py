"""Moving some rows of a game, and changing the time steps of some.

Masks of a single game are arrays without dimensions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import nest
from envkit.time_step import StepType, TimeStep
from envkit.types import Array, NestedArray
from envkit.wrappers.rows import where_rows

__all__ = ["as_first", "as_termination", "move"]


def move(env: Any, action: NestedArray, stepping: Array, beginning: Array) -> TimeStep:
    """Steps an environment, or begins an episode, in some rows; the others stay.

    Example:
        >>> from envkit.envs import Catch
        >>> env, yes, no = Catch(), np.array(True), np.array(False)
        >>> [int(move(env, 0, *masks).step_type) for masks in [(no, yes), (yes, no)]]
        [0, 1]
    """
    time_step: TimeStep
    if stepping.all():
        time_step = env.step(action)
    elif stepping.any():
        time_step = env.step_rows(action, stepping, beginning)
    elif beginning.all():
        time_step = env.reset()
    elif beginning.any():
        time_step = env.reset(beginning)
    else:
        time_step = env.current_time_step()
    return time_step


def as_first(rows: Array, time_step: TimeStep) -> TimeStep:
    """Makes a `FIRST` of the time step, with nothing earned, in some rows.

    Example:
        >>> from envkit import transition
        >>> time_step = transition(np.zeros(2), np.array([3.0, 4.0]), 0.5, (2,))
        >>> time_step = as_first(np.array([True, False]), time_step)
        >>> time_step.step_type, time_step.reward.tolist(), time_step.discount.tolist()
        (array([0, 1], dtype=int32), [0.0, 4.0], [1.0, 0.5])
    """
    reward = nest.map_structure(lambda old: _put(rows, 0, old), time_step.reward)
    return _at(rows, time_step, StepType.FIRST, 1)._replace(reward=reward)


def as_termination(rows: Array, time_step: TimeStep) -> TimeStep:
    """Makes a `LAST` of the time step, after which nothing counts, in some rows."""
    return _at(rows, time_step, StepType.LAST, 0)


def _at(rows: Array, time_step: TimeStep, step_type: Array, discount: int) -> TimeStep:
    return time_step._replace(
        step_type=_put(rows, step_type, time_step.step_type),
        discount=nest.map_structure(
            lambda old: _put(rows, discount, old), time_step.discount
        ),
    )


def _put(rows: Array, value: Any, leaf: Any) -> Array:
    """Puts a value in some rows; the dtype stays."""
    return where_rows(rows, value, leaf).astype(np.asarray(leaf).dtype)
