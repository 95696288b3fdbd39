"""What has to do with TensorFlow is loaded where agents learn, and not in workers."""

from __future__ import annotations

import sys

import pytest

from envkit import ParallelPyEnvironment, TFPyEnvironment
from envkit.distributed.links import linked
from envkit.testing import CountingEnv


@pytest.mark.parametrize("kind", ["process", "linked"])
def test_the_workers_of_a_tensorflow_environment_do_not_import_tensorflow(kind):
    class Telling(CountingEnv):
        def modules(self):
            return list(sys.modules)

    backend = linked(["envkit worker {address}"]) if kind == "linked" else kind
    pool = ParallelPyEnvironment([Telling] * 2, num_workers=1, backend=backend)
    with TFPyEnvironment(pool) as env:
        assert [0, 0] == env.step([0, 0]).step_type.numpy().tolist()
        loaded = set(env.call("modules")[0])
    assert "tensorflow" in sys.modules
    assert "numpy" in loaded
    assert not {"tensorflow", "gymnasium", "tree"} & loaded
