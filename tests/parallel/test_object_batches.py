"""Objects in the observations of batches that live in worker processes."""

from __future__ import annotations

import numpy as np

from envkit import BoundedArraySpec, ParallelPyEnvironment, PyEnvironment, TimeStep
from envkit.specs import ArraySpec


class Texts(PyEnvironment):
    """A batch of two rows that observes texts of any length."""

    @property
    def batched(self):
        return True

    @property
    def batch_size(self):
        return 2

    def observation_spec(self):
        return ArraySpec((), object)

    def action_spec(self):
        return BoundedArraySpec((), np.int32, 0, 1)

    def _time_step(self, step_type, texts):
        observation = np.empty(2, object)
        observation[:] = texts
        ones = np.ones(2, np.float32)
        return TimeStep(np.full(2, step_type, np.int32), 0 * ones, ones, observation)

    def _reset(self):
        return self._time_step(0, ["once", "upon"])

    def _step(self, action):
        return self._time_step(1, ["a", "time"])


def test_objects_of_a_batch_come_out_of_its_worker():
    with ParallelPyEnvironment([Texts, Texts], start_method="fork") as pool:
        assert ["once", "upon"] * 2 == pool.reset().observation.tolist()
        assert ["a", "time"] * 2 == pool.step([0] * 4).observation.tolist()
