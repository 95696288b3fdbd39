"""`Recorder`: an environment that remembers what actions it was given."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from envkit import BoundedArraySpec
from envkit.py_environment import PyEnvironment
from envkit.time_step import StepType, TimeStep


class Recorder(PyEnvironment):
    """Takes any action; row `i` has episodes of `lengths[i]` steps.

    Attributes:
        given: The actions of all steps.
    """

    def __init__(self, action_spec: Any, *lengths: int) -> None:
        super().__init__(handle_auto_reset=True)
        self._action_spec = action_spec
        self._lengths = np.array(lengths) if lengths else np.array(5)
        self._steps = np.zeros_like(self._lengths)
        self.given: list[Any] = []

    @property
    def batched(self) -> bool:
        return self._lengths.ndim > 0

    @property
    def batch_size(self) -> int | None:
        return self._lengths.size if self.batched else None

    def action_spec(self) -> Any:
        return self._action_spec

    def observation_spec(self) -> Any:
        return BoundedArraySpec((), np.int64, 0, 99)

    def _reset(self) -> TimeStep:
        return self._reset_rows(np.ones(self._lengths.shape, bool))

    def _reset_rows(self, mask: Any) -> TimeStep:
        self._steps = np.where(mask, 0, self._steps)
        return self._time_step()

    def _step(self, action: Any) -> TimeStep:
        self.given.append(copy.deepcopy(action))
        self._steps = self._steps + 1
        return self._time_step()

    def _step_rows(self, action: Any, stepping: Any, beginning: Any) -> TimeStep:
        self.given.append(copy.deepcopy(action))
        self._steps = np.where(beginning, 0, self._steps + stepping)
        return self._time_step()

    def _time_step(self) -> TimeStep:
        last = self._steps >= self._lengths
        step_type = np.where(last, StepType.LAST, StepType.MID)
        step_type = np.where(self._steps == 0, StepType.FIRST, step_type)
        zeros = np.zeros(self._lengths.shape, np.float32)
        return TimeStep(
            step_type.astype(np.int32),
            zeros,
            np.ones_like(zeros),
            np.array(self._steps),
        )
