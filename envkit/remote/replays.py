"""Plans of replays as plain data: from the pool's side, and checked on a server's.

A server is as careful with the moves of a plan as with those of any request: they are
of the session's own rows, in its own layout, and within the bounds of its specs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.parallel.messages import ReplayPlan
from envkit.parallel.slab_layout import SlabLayout
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.types import Array

__all__ = ["plan_from_plain", "plan_to_plain"]

# What a client may ask of environments between two moves.
_NOTES = frozenset(["reset", "seed", "seed_rows"])
_MOST_MOVES = 1 << 20


def plan_to_plain(plan: ReplayPlan) -> list[Any]:
    """Returns a plan without a class of ours."""
    return [*plan]


def plan_from_plain(data: Any, layout: SlabLayout, rows: int) -> ReplayPlan:
    """Returns a plan that a client has sent.

    Args:
        data: What it has sent.
        layout: Where the rows of the session are.
        rows: How many rows the environment has.

    Raises:
        ValueError: The plan is not one for such rows.
    """
    if not isinstance(data, list) or len(data) != len(ReplayPlan._fields):
        raise ValueError("A plan must be a list of all that plans have.")
    plan = ReplayPlan(*data)
    count = len(plan.times) if isinstance(plan.times, np.ndarray) else -1
    if not 0 <= count <= _MOST_MOVES or not all(
        _is_column(column, dtype, (count,))
        and (not count or (column.min() >= low and column.max() <= high))
        for column, dtype, low, high in plan.columns(rows)
    ):
        raise ValueError("The moves of a plan must be of the session's own rows.")
    if (np.diff(plan.times) < 0).any():
        raise ValueError("The moves of a plan must be in order.")
    if not (
        type(plan.resets) is int
        and 0 <= plan.resets <= _MOST_MOVES
        and type(plan.number) is int
        and 0 <= plan.number < 2**32
        and isinstance(plan.known_seed, tuple)
        and len(plan.known_seed) == 2
        and type(plan.known_seed[1]) is int
    ):
        raise ValueError("The numbers of a plan must be integers.")
    if plan.attributes or plan.state is not None:
        raise ValueError("A plan for a server has neither attributes nor states.")
    if not isinstance(plan.notes, tuple) or not all(
        isinstance(note, tuple)
        and len(note) == 3
        and type(note[0]) is int
        and note[1] in _NOTES
        for note in plan.notes
    ):
        raise ValueError("A plan for a server has resets and seeds alone.")
    return plan._replace(actions=_within(plan.actions, layout, count))


def _is_column(column: Any, dtype: Any, shape: tuple[int, ...]) -> bool:
    return (
        isinstance(column, np.ndarray)
        and column.dtype == dtype
        and column.shape == shape
    )


def _within(actions: Any, layout: SlabLayout, count: int) -> tuple[Array, ...]:
    """Returns the actions of moves, none of which is out of its bounds.

    Where a step begins an episode, its action is ignored and may have been anything.
    """
    specs: Sequence[ArraySpec] = layout.action.leaves
    if not isinstance(actions, tuple) or len(actions) != len(specs):
        raise ValueError("A plan must have all leaves of the actions.")
    checked = []
    for spec, column in zip(specs, actions, strict=True):
        if not _is_column(column, spec.dtype, (count, *spec.shape)):
            raise ValueError("The actions of a plan must fit their specs.")
        if isinstance(spec, BoundedArraySpec) and spec.dtype.kind in "iufb":
            column = np.clip(column, spec.minimum, spec.maximum).astype(spec.dtype)
        checked.append(column)
    return tuple(checked)
