"""`BatchOfOne`: a single environment as a batch, with a shorter way for TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from envkit.batched_py_environment import BatchedPyEnvironment
from envkit.errors import SpecError
from envkit.py_environment import PyEnvironment
from envkit.row_calls import with_rows
from envkit.time_step import StepType, TimeStep
from envkit.types import Array

__all__ = ["BatchOfOne"]

_MID, _LAST = StepType.MID, StepType.LAST
_ENDED = np.ones(1, bool)
_ENDED.setflags(write=False)


class BatchOfOne(BatchedPyEnvironment):
    """A batch that stands where its only environment stands.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> env = BatchOfOne(CountingEnv())
        >>> [column.tolist() for column in env.step_columns([np.zeros(1, np.int32)])]
        [[0], [0.0], [1.0], [0]]
    """

    _kept: TimeStep | None = None

    def __init__(self, env: PyEnvironment) -> None:
        """Takes the environment; closing the batch closes it."""
        super().__init__([env], multithreading=False)

    @property
    def _current_time_step(self) -> TimeStep | None:
        # Not every environment keeps its time step where others look for it.
        return self._stacked_current() or self._kept

    @_current_time_step.setter
    def _current_time_step(self, time_step: TimeStep | None) -> None:
        self._kept = time_step

    def step_columns(self, columns: Sequence[Array]) -> list[Array]:
        """Does what `step` does, from leaf to leaf.

        Args:
            columns: The leaves of an action, which the environment may keep.

        Returns:
            The leaves of the time step, which nobody else has.
        """
        # Hot: called once per step. What `step` does on top is for several rows.
        (env,) = self._envs
        current = getattr(env, "_current_time_step", None)
        structure = self._actions.structure
        if current is None or self._closed or self._has_order:
            return self._time_step.flatten(self.step(structure.unflatten(columns)))
        ended = current.step_type is not _MID and bool(current.step_type == _LAST)
        columns = self._actions.columns(
            structure.unflatten(columns), ignored=_ENDED if ended else None
        )
        try:
            if ended:
                time_step = env.reset()
            else:
                action = structure.unflatten([column[0] for column in columns])
                time_step = env.step(action)
        except Exception as error:
            raise with_rows("step", [(0, error)])  # noqa: B904  # it is the same
        return self._columns([time_step])

    def _columns(self, time_steps: list[TimeStep]) -> list[Array]:
        # Hot: called once per step.
        places = self._places
        try:
            leaves = self._time_step.flatten(time_steps[0])
            for leaf, (dtype, shape, _, _) in zip(leaves, places, strict=True):
                if leaf.dtype is not dtype or leaf.shape != shape:
                    raise SpecError
        except (AttributeError, SpecError):
            # Not necessarily wrong: this looks closely.
            return super()._columns(time_steps)
        return [
            np.array(leaf, ndmin=place.rank)
            for leaf, place in zip(leaves, places, strict=True)
        ]
