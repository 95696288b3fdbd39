"""Objects in the observations of batches that live in worker processes."""

from __future__ import annotations

import numpy as np

from envkit import BoundedArraySpec, ParallelPyEnvironment, PyEnvironment, TimeStep
from envkit.specs import ArraySpec
from envkit.testing import CountingEnv


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


def test_object_observations_of_a_batch_arrive():
    with ParallelPyEnvironment([Texts, Texts], start_method="fork") as pool:
        assert ["once", "upon"] * 2 == pool.reset().observation.tolist()
        assert ["a", "time"] * 2 == pool.step([0] * 4).observation.tolist()


NOTES = ["text", ["a", "list"], {"a": 1}, None, [[1], [2, 3]], ("one", ["two"])]


class Notes(CountingEnv):
    """Shows a note of any kind beside an array."""

    def observation_spec(self):
        return {"note": ArraySpec((), object), "place": ArraySpec((2,), np.int32)}

    def _shown(self, time_step):
        place = int(time_step.observation)
        note = np.empty((), object)
        note[()] = NOTES[place]
        shown = {"note": note, "place": np.full(2, place, np.int32)}
        return time_step._replace(observation=shown)

    def _reset(self):
        return self._shown(super()._reset())

    def _step(self, action):
        return self._shown(super()._step(action))


def test_objects_arrive_unchanged_beside_arrays():
    with ParallelPyEnvironment([Notes] * 2, start_method="fork") as pool:
        seen = [pool.reset().observation]
        seen += [pool.step([0, 0]).observation for _ in NOTES[1:]]

    for place, (note, shown) in enumerate(zip(NOTES, seen, strict=True)):
        assert [note, note] == shown["note"].tolist()
        assert [[place, place]] * 2 == shown["place"].tolist()
