"""Workers of a client, each of which has a session, a process of the server."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
import pytest

from envkit import ParallelPyEnvironment, connect, constructor, make
from envkit.remote import observe
from tests.remote.serving import served
from tests.waiting import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as worker processes")

MASK = np.array([True, False, False, True])


def same(first, second):
    return all(np.array_equal(x, y) for x, y in zip(first, second, strict=True))


@pytest.fixture(scope="module")
def server():
    targets = ["CartPole", "tests.remote.games:Told", "tests.remote.games:Texts"]
    allowed = {"allow_call": ("add",), "allow_arg": ("max_episode_steps",)}
    with served(*targets, observers=1, **allowed) as server:
        yield server


@pytest.fixture(scope="module", params=[1, 2])
def poles(request, server):
    """Connects with four rows of CartPole, and makes the same here."""
    how = {"num_envs": 4, "num_workers": request.param}
    with (
        connect(f"{server.address}/CartPole", **how) as env,
        make("CartPole", num_envs=4, backend="inline") as local,
    ):
        yield env, local


@pytest.fixture(scope="module", params=[1, 2])
def told(request, server):
    target = "tests.remote.games:Told"
    how = {"num_envs": 4, "num_workers": request.param}
    with connect(f"{server.address}/{target}", **how) as env:
        yield env


def test_a_crash_ends_only_the_episodes_of_its_worker(server):
    address = f"{server.address}/CartPole"
    with connect(address, num_envs=4, num_workers=2) as env:
        env.reset()
        pids = [worker.facts["pid"] for worker in env.servers()]
        assert 2 == len({*pids})
        os.kill(pids[0], signal.SIGSEGV)
        lost = env.step([0, 1, 0, 1])
        assert [True, True, False, False] == lost.is_last().tolist()
        assert [True, True, False, False] == env.repaired.tolist()
        assert 1 == lost.discount[0]
        following = env.step([0, 1, 0, 1])
        assert [True, True, False, False] == following.is_first().tolist()
        assert pids[1] == env.servers()[1].facts["pid"]


def test_single_rows_can_be_seeded_stepped_and_reset(poles):
    env, local = poles
    assert same(env.reset(seed=[5, 6, 7, 8]), local.reset(seed=[5, 6, 7, 8]))
    random = np.random.default_rng(0)
    for step in range(60):
        mask, actions = random.random(4) < 0.6, random.integers(0, 2, 4)
        if step % 7 == 6:
            seeds = [step if is_reset else None for is_reset in mask]
            assert same(env.reset(mask, seed=seeds), local.reset(mask, seed=seeds))
        else:
            assert same(env.step(actions, mask), local.step(actions, mask))
    assert same(env.reset(MASK, seed=3), local.reset(MASK, seed=3))


def test_set_state_restores_all_rows(poles):
    env, _ = poles
    env.reset(seed=2)
    states = [env.get_state() for _ in range(3)]
    streams = []
    for state in states[:2]:
        env.set_state(state)
        streams.append([env.step(np.full(4, step % 2)) for step in range(9)])
    assert all(map(same, *streams))


def test_observers_see_all_rows_after_some_have_stepped(server):
    with (
        connect(f"{server.address}/CartPole", num_envs=4) as env,
        observe(server.address, env.session) as observed,
    ):
        for shown in (
            env.reset(),
            env.step(np.ones(4, int), MASK),
            env.reset(MASK),
            env.step(np.zeros(4, int), ~MASK),
        ):
            assert same(shown, observed.recv(timeout=PATIENCE))


def test_each_row_gets_its_own_options(told):
    assert [3, 3, 3, 3] == told.reset(options={"start": 3}).observation.tolist()
    options = [{"start": 1}, None, {"start": 2}, None]
    assert [1, 0, 2, 0] == told.reset(options=options).observation.tolist()
    reset = told.reset(MASK, options={"start": 9})
    assert [9, 0, 2, 9] == reset.observation.tolist()


def test_call_reaches_the_right_row(told):
    told.reset(options=[{"start": row} for row in range(4)])
    assert [5, 6, 7, 8] == told.call("add", 5)
    assert [7, 5] == told.call("add", by=4, env_ids=[3, 1])
    with pytest.raises(PermissionError, match="does not let clients call 'close'"):
        told.call("close")


def test_an_environments_exception_keeps_its_type(told):
    with pytest.raises(TypeError, match="unsupported operand"):
        told.call("add", "five")
    with pytest.raises(LookupError, match="env 2 raised LookupError: no seed 13"):
        told.seed([1, 2, 13, 4])
    with pytest.raises(TypeError, match="env 3 raised"):
        told.call("add", "five", env_ids=[3])
    told.reset()
    lost = told.step([0, 0, -1, 0])
    assert [False, False, True, False] == lost.is_last().tolist()
    assert 1 == lost.discount[2]
    assert told.step([0, 0, 0, 0]).is_first()[2]


def test_text_observations_reach_the_client(server):
    with connect(f"{server.address}/tests.remote.games:Texts", num_envs=2) as env:
        env.reset()
        assert ["ab", "é"] == env.step(np.array(["ab", "é"])).observation.tolist()


def test_a_session_may_have_environments_with_different_arguments(server):
    makers = [constructor("CartPole", max_episode_steps=most) for most in (3, 6, 3)]
    with ParallelPyEnvironment(makers, backend=server.address, num_workers=1) as env:
        env.reset()
        ends = [env.step(np.array([0, 1, 0])).is_last() for _ in range(3)]
        assert [True, False, True] == ends[-1].tolist()
