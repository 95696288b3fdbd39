"""Checks the actions of the built-in batches, all rows at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.errors import SpecError
from envkit.extend import as_array, describe
from envkit.specs.arrays import BoundedArraySpec
from envkit.specs.validation import check_fits
from envkit.types import Array

__all__ = ["DiscreteActions"]


class DiscreteActions:
    """Checks actions that count from 0: a single one, or one per row.

    Integers of every dtype pass, in anything that `numpy.asarray` accepts: arrays,
    lists, numbers, tensors.

    Attributes:
        spec: The spec of one action.
        described: The number of actions, in words.

    Example:
        >>> DiscreteActions("Game", 3).one(2)
        2
        >>> DiscreteActions("Game", 3, 2).for_rows([2, 0], ended=np.zeros(2, bool))
        array([2, 0])
    """

    def __init__(
        self, environment: str, count: int, batch_size: int | None = None
    ) -> None:
        """Describes the actions.

        Args:
            environment: The environment's name in errors.
            count: The number of actions.
            batch_size: The number of rows; `None` for a single environment.
        """
        self.spec = BoundedArraySpec((), np.int64, 0, count - 1)
        self.described = f"{count} actions"
        self._environment = environment
        self._count = count
        self._batch_size = batch_size
        self._dims = () if batch_size is None else (batch_size,)

    def one(self, action: Any) -> int:
        """Returns the action of a single environment; raises if it does not fit."""
        given = self._integers(action)
        number = int(given)
        if not 0 <= number < self._count:
            self._refuse_out_of_range(given, np.zeros(1, np.int64))
        return number

    def for_rows(self, action: Any, ended: Array) -> Array:
        """Returns the actions of all rows in int64; raises if any does not fit.

        Where `ended` is true, the action is ignored and may be out of range.
        """
        # Hot: called once per batch step, with one pass over the actions.
        given = self._integers(action)
        actions = given if given.dtype == np.int64 else given.astype(np.int64)
        # As unsigned numbers, negative ones are above the maximum too.
        if np.maximum.reduce(actions.view(np.uint64)) < self._count:
            return actions
        outside = (actions < 0) | (actions >= self._count)
        wrong = np.flatnonzero(outside & ~ended)
        if wrong.size:
            self._refuse_out_of_range(given, wrong)
        return np.where(outside, 0, actions)

    def _integers(self, action: Any) -> Array:
        """Returns an action as an array of integers of the right shape."""
        given = as_array(action)
        if given.dtype.kind not in "iu" or given.shape != self._dims:
            # If it is no array of numbers, a message about the original is clearer.
            is_array = given.dtype.kind in "biuf" and not np.isscalar(action)
            self._refuse(given if is_array else action)
        return given

    def _refuse(self, action: Any) -> None:
        """Raises the error for an action of the wrong shape or dtype."""
        if isinstance(action, np.ndarray | np.generic) and action.dtype.kind in "iu":
            action = action.astype(np.int64)  # any integers fit
        check_fits(
            action,
            self.spec,
            subject=self._subject(),
            root="action",
            outer_dims=self._dims,
            context=self._unmoved(),
        )

    def _refuse_out_of_range(self, given: Array, wrong: Array) -> None:
        """Raises the error for actions out of range, in one row or several."""
        value = given.reshape(-1)[wrong[0]]
        row = "" if self._batch_size is None else f" of row {wrong[0]}"
        bound = "below the minimum 0"
        if value > 0:
            bound = f"above the maximum {self._count - 1}"
        others = ""
        if wrong.size > 1:
            others = f", and {wrong.size - 1} more of {given.size} are out of range"
        raise SpecError.does_not_fit(
            self._subject(),
            path="action",
            root="action",
            expected=repr(self.spec.replace(shape=self._dims)),
            got=describe(given),
            reason=f"The action{row} is {value}, {bound}{others}.",
            note=self._unmoved(),
        )

    def _subject(self) -> str:
        return f"{self._environment}.step() was given an action that"

    def _unmoved(self) -> str:
        if self._batch_size is None:
            return "The environment has not moved."
        return "None of the rows has moved."
