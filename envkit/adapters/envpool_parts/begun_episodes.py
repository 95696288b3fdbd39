"""`BegunEpisodes`: the rows whose next episode has begun before anybody was told.

Under `AutoReset.SAME_STEP` a step returns a `LAST`, and the row stands at the `FIRST`
of the next episode already.
"""

from __future__ import annotations

import numpy as np

from envkit import nest
from envkit.adapters.envpool_parts.pool_rows import Answer, has_true
from envkit.time_step import StepType, TimeStep
from envkit.types import Array

__all__ = ["BegunEpisodes"]

_FIRST = int(StepType.FIRST)
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


class BegunEpisodes:
    """Keeps what is seen at the beginning of episodes that nobody was told of.

    Attributes:
        mask: Which rows have begun one.
        exist: Whether there are any.
    """

    def __init__(self, structure: nest.Structure, rows: int) -> None:
        """Knows of none.

        Args:
            structure: That of an observation.
            rows: How many rows there are.
        """
        self._structure = structure
        self._rows = rows
        self._leaves: list[Array] = []
        self.mask: Array = np.zeros(rows, bool)
        self.exist = False

    def forget(self, mask: Array | None = None) -> None:
        """Forgets what has begun, in the masked rows or in all."""
        self.mask = np.zeros(self._rows, bool) if mask is None else self.mask & ~mask
        self.exist = mask is not None and has_true(self.mask)

    def note(self, answer: Answer) -> None:
        """Keeps what rows have answered that have begun."""
        if not self._leaves:
            self._leaves = [
                np.zeros((self._rows, *spec.shape), spec.dtype)
                for spec in self._structure.leaves
            ]
        given = self._structure.flatten(answer.time_step.observation)
        for ours, leaf in zip(self._leaves, given, strict=True):
            ours[answer.rows] = leaf
        self.mask = self.mask.copy()
        self.mask[answer.rows] = True
        self.exist = True

    def tell(self, mask: Array, whole: TimeStep) -> None:
        """Makes a `FIRST` of what the masked rows have begun, and forgets it."""
        whole.step_type[mask] = _FIRST
        whole.reward[mask] = 0.0
        whole.discount[mask] = 1.0
        theirs = self._structure.flatten(whole.observation)
        for ours, leaf in zip(theirs, self._leaves, strict=True):
            ours[mask] = leaf[mask]
        self.forget(mask)

    def instead_of(self, current: TimeStep) -> TimeStep:
        """Returns a time step with the beginnings where an episode has begun."""
        begun = self.mask
        pairs = zip(
            self._leaves, self._structure.flatten(current.observation), strict=True
        )
        leaves = [
            np.where(begun.reshape(-1, *[1] * (new.ndim - 1)), new, old)
            for new, old in pairs
        ]
        return TimeStep(
            np.where(begun, np.int32(_FIRST), current.step_type),
            np.where(begun, _ZERO, current.reward),
            np.where(begun, _ONE, current.discount),
            self._structure.unflatten(leaves),
        )
