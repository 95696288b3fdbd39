"""The order of episodes that TF-Agents knows: the step after a `LAST` begins the next.

In a batch that holds row by row, and nobody but the batch can begin one in some rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.autoreset import AutoReset
from envkit.time_step import StepType
from envkit.wording import a_or_an, listed

__all__ = ["check_autoreset", "check_rows_begin"]

_FIRST, _LAST = StepType.FIRST, StepType.LAST


def check_autoreset(env: Any) -> None:
    """Refuses a pool that `to_tf_agents` was given, if its order is another one."""
    order = AutoReset.kept_by(env)
    if order is not AutoReset.NEXT_STEP:
        raise ValueError(
            f"to_tf_agents() was given {a_or_an(type(env).__name__)} whose autoreset "
            f"is {order.name}; in TF-Agents the step after a LAST returns the FIRST "
            "of the next episode. Set its autoreset to NEXT_STEP."
        )


def check_rows_begin(name: str, before: Any, after: Any) -> None:
    """Refuses a batch in which a row that ended has not begun the next episode."""
    ended = np.asarray(before.step_type) == _LAST
    if not ended.any():
        return
    stuck = np.flatnonzero(ended & (np.asarray(after.step_type) != _FIRST))
    if stuck.size:
        rows = f"{'row' if stuck.size == 1 else 'rows'} {listed(stuck)}"
        raise NotImplementedError(
            f"{rows} of {name} ended with the last step, and this step did not begin a "
            "new episode there. A batch must do that row by row, in the step after a "
            "LAST."
        )
