"""Chooses the actions of ticks: the agent's, or a substitute if it is late."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit import nest
from envkit._shared.actions_and_rewards import nearest_to_zero
from envkit.errors import SpecError
from envkit.extend import ActionRows
from envkit.specs.arrays import ArraySpec
from envkit.specs.validation import check_fits
from envkit.types import Array, NestedArray, NestedSpec

__all__ = ["GivenActions", "LateActions", "no_op_of"]


class GivenActions:
    """Checks the agent's actions, and copies them so that no caller can change them.

    Example:
        >>> from envkit import BoundedArraySpec
        >>> actions = GivenActions(BoundedArraySpec((), np.int32, 0, 4), None)
        >>> actions.take(3, "step()")
        array(3, dtype=int32)
    """

    def __init__(self, spec: NestedSpec, rows: int | None) -> None:
        """Takes the specs.

        Args:
            spec: The specs of an action.
            rows: The number of rows of a batch; `None` for a single environment.
        """
        self._spec = spec
        self._structure = nest.Structure(spec)
        self._rows = rows

    def take(self, action: Any, call: str) -> NestedArray:
        """Returns an action in arrays of the spec's dtypes; raises if it does not fit.

        Args:
            action: An action of arrays, lists or numbers.
            call: The name of the call, for the message.
        """
        is_single = self._rows is None
        rows = ActionRows(self._spec, self._rows or 1, call)
        try:
            given = self._structure.map(_alone, action) if is_single else action
            columns = rows.columns(given)
        except (SpecError, TypeError, ValueError):
            # For a message without rows, if there is only one action.
            check_fits(
                action,
                self._spec,
                subject=f"{call} was given an action that",
                root="action",
                outer_dims=() if self._rows is None else (self._rows,),
            )
            raise
        leaves = [
            np.array(column, spec.dtype)[0 if is_single else slice(None), ...]
            for column, spec in zip(columns, self._structure.leaves, strict=True)
        ]
        return self._structure.unflatten(leaves)


def _alone(leaf: Any) -> Any:
    """Returns a single action's leaf as a batch of one."""
    return leaf[np.newaxis] if isinstance(leaf, np.ndarray) else [leaf]


class LateActions:
    """Chooses the actions of ticks for which the agent's action is late.

    Before the agent's first action in an episode, it is the no-op. After that, it is
    the last action again, the no-op, or the result of a function.
    """

    def __init__(
        self,
        way: str | Callable[[int, NestedArray], NestedArray],
        spec: NestedSpec,
        no_op: NestedArray = None,
        rows: int | None = None,
    ) -> None:
        """Chooses what to do.

        Args:
            way: "repeat", "no_op", or a function of the tick's number and the last
                action.
            spec: The specs of an action.
            no_op: The action that does nothing; `None` for `no_op_of(spec)`.
            rows: The number of rows of a batch; `None` for a single environment.
        """
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

    def copy(self, action: NestedArray) -> NestedArray:
        """Returns a copy of an action, which the environment may change."""
        return self._structure.map(copy.copy, action)

    def first(self) -> NestedArray:
        """Returns the action for ticks before the agent first acts."""
        return self.copy(self._no_op)

    def choose(self, tick: int, last: NestedArray) -> NestedArray:
        """Returns the action of a tick after the agent's last action has expired."""
        if self._way == "repeat":
            return self.copy(last)
        if callable(self._way):
            chosen = self._way(tick, self.copy(last))
            return self._given.take(chosen, "RealTimeEnvironment, by late_action,")
        return self.first()

    def mixed(self, mask: Array, chosen: NestedArray, other: NestedArray) -> Any:
        """Returns a batch with one action in masked rows, and another in the rest."""
        if mask.all():
            return chosen
        return self._structure.map(
            lambda one, two: np.where(
                mask.reshape(-1, *[1] * (np.ndim(one) - 1)), one, two
            ),
            chosen,
            other,
        )


def no_op_of(spec: NestedSpec) -> NestedArray:
    """Returns the action closest to 0 in every element, which usually does nothing.

    Example:
        >>> from envkit import BoundedArraySpec
        >>> no_op_of(BoundedArraySpec((2,), np.float32, [-1.0, 0.5], 2.0))
        array([0. , 0.5], dtype=float32)
    """
    for leaf in nest.flatten(spec):
        if leaf.dtype == object:
            raise ValueError(
                f"There is no action that does nothing for the spec {leaf!r}. Pass "
                "no_op=..., which acts until the agent does."
            )
    return nearest_to_zero(spec)
