"""What an environment declares about its `LAST` comes over the wire."""

from __future__ import annotations

import pytest

import envkit
from tests.remote.serving import served


@pytest.mark.parametrize("order", ["next_step", "disabled"])
def test_served_environments_can_continue_after_their_last(order):
    with (
        served("tests.bandits:Bandit") as server,
        envkit.connect(server.address, num_envs=2, autoreset=order) as env,
    ):
        assert env.continues_after_last
        time_step = env.reset()
        for _ in range(3):
            time_step = env.step(time_step.observation)
            assert [1.0, 1.0] == time_step.reward.tolist()
            assert [2, 2] == time_step.step_type.tolist()
