"""Environments that go on while the agent thinks, on a server."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from envkit import AsyncParallelPyEnvironment, connect
from tests.remote.serving import served

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as worker processes")


TARGET = "counting=tests.remote.games:in_virtual_time"


def test_a_served_real_time_environment_reports_its_lag():
    with served(TARGET) as server, connect(server.address, num_envs=3) as env:
        assert "realtime" in env.servers()[0].facts["capabilities"]
        env.reset(), env.step([0, 0, 0])
        lag = env.get_info()["realtime"]
        assert [1, 1, 1] == lag["observation_tick"].tolist()
        assert [1, 1, 1] == env.declared_info()["realtime"]["observation_tick"].tolist()
        again = env.reset(np.array([False, True, False]))
        assert [1, 0, 1] == again.step_type.tolist()


def test_a_resetting_row_is_absent_while_the_others_step():
    with (
        served(TARGET) as server,
        AsyncParallelPyEnvironment(
            ["counting"] * 2, backend=server.address, num_workers=2
        ) as env,
    ):
        env.reset_async()
        env.recv(count=2)
        env.reset_async([0])
        env.send(np.array([0]), [1])
        found = {}
        while len(found) < 2:
            batch = env.recv(count=1)
            types = batch.time_step.step_type.tolist()
            found |= dict(zip(batch.env_ids.tolist(), types, strict=True))
        assert {0: 0, 1: 1} == found
