"""`PoolActions`: batches of actions as EnvPool takes them.

EnvPool does not look at bounds, and ends the process when a length is wrong, so
everything is looked at before.
"""

from __future__ import annotations

import numpy as np

from envkit.action_rows import ActionRows
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.types import Array, NestedArray

__all__ = ["PoolActions"]


class PoolActions:
    """Checks actions, and returns one array with those of all players.

    Example:
        >>> actions = PoolActions(BoundedArraySpec((), np.int64, 0, 2), 2, "step()")
        >>> actions.members([0, 2])
        array([0, 2])
    """

    def __init__(self, spec: ArraySpec, rows: int, call: str, players: int = 0) -> None:
        """Prepares for the actions of `rows` environments, which `call` was given.

        Args:
            spec: The spec of one row's action.
            rows: How many rows there are.
            call: Who was given the actions.
            players: How many players act in each row: the first dimension of `spec`. 0
                if there is no such dimension.
        """
        self._columns = ActionRows(spec, rows, call)
        self._choices = _choices(spec)
        self._rows = rows
        self._has_players = players > 0

    def members(
        self, action: NestedArray, *, count: int = -1, ignored: Array | None = None
    ) -> Array:
        """Returns the actions in an array, maybe the caller's own, or raises.

        Args:
            action: A batch of actions.
            count: How many there are to be, if not one for each row.
            ignored: A mask of rows whose action is not used.
        """
        # Hot: called once per batch step.
        plain = self.plain(action, self._rows if count < 0 else count)
        if plain is not None:
            return plain
        rows = None if count < 0 else range(count)
        (column,) = self._columns.columns(action, rows=rows, ignored=ignored)
        return column.reshape(-1, *column.shape[2:]) if self._has_players else column

    def plain(self, action: NestedArray, count: int) -> Array | None:
        """Returns the actions if they are what nearly all are; `None` if they are not.

        That is choices in an array of integers, all of which are there to choose.
        """
        # Hot: called once per batch step. As numbers without a sign those below 0 are
        # too large as well.
        if (
            self._choices
            and type(action) is np.ndarray
            and action.dtype == np.int64
            and action.shape == (count,)
            and count
            and np.maximum.reduce(action.view(np.uint64)) < self._choices
        ):
            return action
        return None


def _choices(spec: ArraySpec) -> int:
    """Returns how many choices an action is one of, 0 if it is something else."""
    if not isinstance(spec, BoundedArraySpec) or spec.shape or spec.minimum != 0:
        return 0
    return int(spec.maximum) + 1 if spec.dtype == np.int64 else 0
