"""envkit's own protocol when an environment, its session or its link is lost."""

from __future__ import annotations

import functools
import os
import signal

import numpy as np
import pytest

from envkit import ParallelPyEnvironment, RestartPolicy, connect
from envkit.errors import EnvironmentRaised, WorkerCrashed
from envkit.remote import server
from envkit.remote.plain_values import ProtocolError, losses_from_plain
from envkit.testing import CountingEnv, CrashingEnv
from tests.remote.serving import served
from tests.waiting import until

DRAWING = "tests.remote.games:Drawing"


def first_of(seed):
    return int(np.random.default_rng(seed).integers(1_000_000))


def kinds(losses):
    return [(loss.row, loss.kind) for loss in losses]


def expect_marked(env, step, kind):
    """Checks that all rows show a made-up `LAST` of this kind."""
    rows = range(env.batch_size)
    assert step.is_last().all()
    assert step.reward.tolist() == [0 for _ in rows]
    assert step.discount.tolist() == [1 for _ in rows]
    assert env.repaired.all()
    losses = env.current_losses()
    assert kinds(losses.values()) == [(row, kind) for row in rows]
    assert sorted(kinds(env.losses())) == [(row, kind) for row in rows]
    assert env.losses() == []
    return losses[0].error


def test_a_killed_session_has_crashed(drawing_served):
    with connect(drawing_served(server).address, num_envs=2) as env:
        env.reset()
        env.step([0, 0])
        os.kill(env.servers()[0].facts["pid"], signal.SIGKILL)
        error = expect_marked(env, env.step([0, 0]), "crashed")
        assert isinstance(error, WorkerCrashed)
        assert "The session's process was killed by SIGKILL" in str(error)
        assert env.step([0, 0]).is_first().all()
        assert not env.repaired.any()


def test_an_environment_that_ends_its_process_has_crashed(drawing_served, trouble):
    with connect(drawing_served(server).address) as env:
        env.reset()
        env.step([0])
        trouble("step")
        expect_marked(env, env.step([0]), "crashed")


def test_an_environment_that_raises_is_told_so(drawing_served, trouble):
    with connect(drawing_served(server).address) as env:
        env.reset()
        trouble("step", "raise")
        error = expect_marked(env, env.step([0]), "raised")
        assert isinstance(error, EnvironmentRaised)
        assert "there is no step today" in str(error)


@pytest.mark.parametrize(
    ("how", "kind"), [("SIGKILL", "crashed"), ("raise", "reset_failed")]
)
def test_a_lost_reset_begins_the_episode_of_its_seed(
    drawing_served, trouble, how, kind
):
    with connect(drawing_served(server).address) as env:
        trouble("reset", how, times=2)
        assert env.reset(seed=[5]).observation == first_of(5)
        assert not env.repaired
        assert kinds(env.losses()) == [(0, kind)] * 2
        trouble("step", how)
        assert env.step([0]).is_last()
        assert env.reset(seed=[6]).observation == first_of(6)


def test_a_cut_link_that_cannot_be_resumed_is_lost(drawing_served, between, actions):
    link = between(drawing_served(server).address)
    with connect(link.address, resume=0.0) as env:
        env.reset()
        with link.cutting_after(lambda: actions() == "1"):
            last = env.step([1])
        expect_marked(env, last, "link_lost")
        assert env.step([1]).is_first()
        assert env.step([0]).is_mid()
    assert actions() == "10"


def test_a_resumed_session_gets_each_action_once(drawing_served, between, actions):
    link = between(drawing_served(server).address)
    with connect(link.address, num_envs=2, resume=600.0) as env:
        env.seed([3, 4])
        env.reset()
        own = [np.random.default_rng(seed) for seed in (3, 4)]
        expected = [[int(one.integers(1_000_000)) for one in own] for _ in range(4)]
        for step in (1, 2, 3):
            with link.cutting_after(functools.partial(has, actions, 2 * step)):
                time_step = env.step([1, 0])
            assert time_step.observation.tolist() == expected[step]
            assert not env.repaired.any()
        assert env.losses() == []
    assert sorted(actions()) == [*"000111"]


def has(actions, count):
    return len(actions()) == count


def test_a_pool_over_servers_gets_each_action_once(drawing_served, between, actions):
    link = between(drawing_served(server).address)
    with ParallelPyEnvironment(
        [DRAWING], backend=link.address, on_worker_failure=RestartPolicy(backoff=0)
    ) as env:
        env.reset()
        with link.cutting_after(lambda: actions() == "1"):
            assert env.step([1]).is_mid()
        assert not env.repaired
    assert actions() == "1"


def pool_that_loses():
    return ParallelPyEnvironment(
        [functools.partial(CrashingEnv, crash_at=2, how="exit"), CountingEnv],
        num_workers=2,
        on_worker_failure=RestartPolicy(backoff=0),
    )


def test_losses_inside_a_served_environment_are_marked():
    with (
        served("tests.remote.test_lost_sessions:pool_that_loses") as serving,
        connect(serving.address, num_envs=2) as env,
    ):
        env.reset()
        env.step([0] * 4)
        assert not env.repaired.any()
        assert env.step([0] * 4).is_last().tolist() == [True, False] * 2
        assert env.repaired.tolist() == [True, False] * 2
        losses = env.current_losses()
        assert kinds(losses.values()) == [(0, "crashed"), (2, "crashed")]
        assert "exited with code 3" in str(losses[2].error)
        assert sorted(kinds(env.losses())) == [(0, "crashed"), (2, "crashed")]
        env.step([0] * 4)
        assert not env.repaired.any()
        assert env.losses() == []


def real_time_that_loses():
    from envkit.realtime import RealTimeEnvironment

    return RealTimeEnvironment(
        functools.partial(CrashingEnv, crash_at=3, how="exit"),
        hz=500,
        host="process",
        worker_options={"on_worker_failure": RestartPolicy(backoff=0)},
    )


def test_losses_of_a_served_real_time_process_are_marked():
    with (
        served("tests.remote.test_lost_sessions:real_time_that_loses") as serving,
        connect(serving.address) as env,
    ):
        env.reset()
        assert until(lambda: env.step([0]) and env.repaired.all())
        assert kinds(env.current_losses().values()) == [(0, "crashed")]


@pytest.mark.parametrize("data", [3, [3], [[0, "gone", ""]], [["x", "crashed", ""]]])
def test_losses_that_no_server_may_send_break_the_protocol(data):
    with pytest.raises(ProtocolError):
        losses_from_plain(data)
