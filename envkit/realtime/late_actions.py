"""What acts in a tick for which the agent has sent no action in time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit import nest
from envkit.realtime.given_actions import GivenActions
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.validation import check_fits, describe
from envkit.types import Array, NestedArray, NestedSpec

__all__ = ["LateActions", "check_way", "no_op_of"]

WAYS = ("repeat", "no_op")


class LateActions:
    """Chooses the actions of ticks for which there is no new one.

    Until an agent has acted in an episode, that is the no-op; after that, as chosen:
    its last action again, the no-op, or what a function says.
    """

    def __init__(
        self,
        way: str | Callable[[int, NestedArray], NestedArray],
        spec: NestedSpec,
        no_op: NestedArray = None,
        rows: int | None = None,
    ) -> None:
        """Prepares.

        Args:
            way: "repeat", "no_op", or a function of the number of the tick and of the
                last action.
            spec: The specs of an action.
            no_op: The action that does nothing; `None` for `no_op_of(spec)`.
            rows: How many rows a batch has; `None` for a single environment.
        """
        check_way(way)
        self._way = way
        self._given = GivenActions(spec, rows)
        self._structure = nest.Structure(spec)
        self._dims = () if rows is None else (rows,)
        if no_op is None:
            no_op = no_op_of(spec)
        else:
            check_fits(no_op, spec, subject="The action given as no_op", root="no_op")
        self._no_op: NestedArray = self._structure.map(self._for_all, no_op, spec)

    def _for_all(self, leaf: Any, spec: ArraySpec) -> Array:
        array = np.asarray(leaf, spec.dtype)
        return np.broadcast_to(array, (*self._dims, *array.shape)).copy()

    def own(self, action: NestedArray) -> NestedArray:
        """Returns a copy of an action: an environment may do with it what it likes."""
        return self._structure.map(copy.copy, action)

    def first(self) -> NestedArray:
        """Returns what acts until the agent does."""
        return self.own(self._no_op)

    def choose(self, tick: int, last: NestedArray) -> NestedArray:
        """Returns what acts after the agent's last action has had its time."""
        if self._way == "repeat":
            return self.own(last)
        if callable(self._way):
            chosen = self._way(tick, self.own(last))
            return self._given.take(chosen, "RealTimeEnvironment, by late_action,")
        return self.first()

    def mixed(self, mask: Array, chosen: NestedArray, other: NestedArray) -> Any:
        """Returns a batch with the masked rows of one action, and others of another."""
        if mask.all():
            return chosen
        if not mask.any():
            return other
        return self._structure.map(
            lambda one, two: np.where(
                mask.reshape(-1, *[1] * (np.ndim(one) - 1)), one, two
            ),
            chosen,
            other,
        )


def check_way(way: Any) -> None:
    """Refuses what is no way to choose an action."""
    if not (callable(way) or way in WAYS):
        raise ValueError(
            f"late_action is {describe(way)}; it is 'repeat', 'no_op', or a function "
            "late_action(tick, last_action)."
        )


def no_op_of(spec: NestedSpec) -> NestedArray:
    """Returns the action nearest to 0 in every element: most often it does nothing.

    Example:
        >>> no_op_of(BoundedArraySpec((2,), np.float32, [-1.0, 0.5], 2.0))
        array([0. , 0.5], dtype=float32)
    """
    return nest.map_structure(_nearest_to_zero, spec)


def _nearest_to_zero(spec: ArraySpec) -> Array:
    if spec.dtype == object:
        raise ValueError(
            f"Nobody knows which action does nothing where the spec is {spec!r}. Pass "
            "no_op=..., and it acts until the agent does."
        )
    value = np.zeros(spec.shape, spec.dtype)
    if isinstance(spec, BoundedArraySpec) and spec.dtype.kind in "iuf":
        return np.clip(value, spec.minimum, spec.maximum).astype(spec.dtype)
    return value
