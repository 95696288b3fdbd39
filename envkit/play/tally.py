"""Counts steps, episodes and returns of a person or a policy: `Tally`."""

from __future__ import annotations

import numpy as np

from envkit import nest
from envkit.extend import counted
from envkit.time_step import StepType, TimeStep
from envkit.types import Array

__all__ = ["Tally"]

_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)


class Tally:
    """Counts steps, episodes and returns, for each row of a batch.

    Attributes:
        returns: The returns of each row's counted episodes.
        time_steps: How many time steps of the batch were seen.

    Example:
        >>> from envkit import make
        >>> env, tally = make("Catch", rows=3, seed=1), Tally(1, episodes=2)
        >>> while not tally.complete:
        ...     tally.see(env.step(1))
        >>> tally.steps, tally.returns
        (4, [[-1.0, 1.0]])
    """

    def __init__(
        self, rows: int, *, episodes: int | None = None, steps: int | None = None
    ) -> None:
        """Takes the limits.

        Args:
            rows: The number of rows; 1 without a batch.
            episodes: How many episodes to count in each row; further ones are ignored.
            steps: The maximum number of steps of a row.
        """
        self.returns: list[list[float]] = [[] for _ in range(rows)]
        self._episodes, self._most = episodes, steps
        self.time_steps = 0
        self._so_far = np.zeros(rows)
        self._steps = np.zeros(rows, np.int64)

    def see(self, time_step: TimeStep) -> None:
        """Counts a time step."""
        self.time_steps += 1
        step_types = np.reshape(np.asarray(time_step.step_type), -1)
        first = step_types == _FIRST
        self._so_far = np.where(first, 0.0, self._so_far + self._rewards(time_step))
        self._steps += ~first
        for row in (step_types == _LAST).nonzero()[0].tolist():
            if self._episodes is None or len(self.returns[row]) < self._episodes:
                self.returns[row].append(float(self._so_far[row]))

    @property
    def steps(self) -> int:
        """The number of steps of all rows together."""
        return int(self._steps.sum())

    @property
    def episodes(self) -> int:
        """The number of counted episodes that have ended."""
        return sum(map(len, self.returns))

    @property
    def mean_return(self) -> float | None:
        """The mean return of the episodes; `None` if none has ended."""
        earned = [value for row in self.returns for value in row]
        return float(np.mean(earned)) if earned else None

    def summary(self) -> str:
        """Returns the number of episodes and steps, and the mean return, as text."""
        mean = self.mean_return
        earned = "" if mean is None else f", mean return {mean:g}"
        episodes = counted(self.episodes, "whole episode")
        return f"{episodes}, {counted(self.steps, 'step')}{earned}"

    @property
    def complete(self) -> bool:
        """Whether the limits are reached."""
        if self._most is not None and self._steps.max() >= self._most:
            return True
        wanted = self._episodes
        return wanted is not None and min(map(len, self.returns)) >= wanted

    def _rewards(self, time_step: TimeStep) -> Array:
        rows = len(self._so_far)
        # The sum over several agents.
        leaves = [
            np.asarray(leaf, np.float64).reshape(rows, -1).sum(axis=1)
            for leaf in nest.flatten(time_step.reward)
        ]
        return np.asarray(np.sum(leaves, axis=0))
