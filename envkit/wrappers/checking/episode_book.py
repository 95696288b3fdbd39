"""`EpisodeBook`: where in which of its episodes each row stands."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.time_step import StepType
from envkit.types import Array

__all__ = ["EpisodeBook"]

_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)


class EpisodeBook:
    """Counts the steps of each row, for messages that say when something happened.

    Attributes:
        step_types: The last step type of each row; `LAST` before the first.

    Example:
        >>> book = EpisodeBook((2,))
        >>> both = np.array([True, True])
        >>> for step_types in ([0, 0], [1, 2], [1, 0]):
        ...     book.advance(np.array(step_types), both)
        >>> book.place(0), book.place(1)
        ('row 0, step 2 of its episode 1', 'row 1, step 0 of its episode 2')
    """

    def __init__(self, dims: tuple[int, ...]) -> None:
        """Begins before the first episode of every row, or of no batch."""
        self.step_types: Array = np.full(dims, _LAST, np.int32)
        self._episodes: Array = np.zeros(dims, np.int64)
        self._steps: Array = np.zeros(dims, np.int64)
        self._calls = 0

    def advance(self, step_types: Array, moved: Array) -> None:
        """Takes down that some rows have moved."""
        first = moved & (step_types == _FIRST)
        self._episodes = self._episodes + first
        self._steps = np.where(first, 0, self._steps + moved)
        self.step_types = np.where(moved, step_types, self.step_types)
        self._calls += 1

    def place(self, row: Any = None) -> str:
        """Says where a row stands, a `FIRST` being step 0; or a batch as a whole."""
        if self._steps.ndim == 0:
            return f"step {self._steps} of episode {self._episodes}"
        if row is None:
            return f"call {self._calls}"
        return (
            f"row {row}, step {self._steps[row]} of its episode {self._episodes[row]}"
        )

    def since(self) -> str:
        """Says, in a sentence, after what the present call came."""
        if not self._calls:
            return "This was the first reset()."
        return f"This came after {self.place()}."

    def save(self) -> tuple[Any, ...]:
        """Returns everything, for `restore`."""
        return self.step_types, self._episodes, self._steps, self._calls

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Takes over what `save` returned."""
        self.step_types, self._episodes, self._steps, self._calls = saved
