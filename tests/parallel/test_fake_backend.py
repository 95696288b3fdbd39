from __future__ import annotations

import numpy as np
import pytest

from envkit.errors import WorkerCrashed
from envkit.parallel import ParallelPyEnvironment, RestartPolicy
from envkit.testing import CountingEnv
from tests.parallel.fake_backend import (
    Die,
    FailStart,
    FakeBackend,
    Finish,
    Hang,
    Interrupt,
    Raise,
    WouldHangError,
)

POLICY = RestartPolicy(max_restarts=9, within=None, backoff=0)


def pool(backend, **options):
    return ParallelPyEnvironment(
        [CountingEnv] * 3, num_workers=3, backend=backend, **options
    )


@pytest.mark.parametrize("answers", [0, 1])
def test_a_worker_that_dies_keeps_its_earlier_answers(answers):
    backend = FakeBackend()
    with pool(backend, on_worker_failure=POLICY) as env:
        env.reset()
        backend.plan(Die(1, answers))
        assert [False, not answers, False] == env.step([0, 0, 0]).is_last().tolist()


def test_a_start_that_fails_by_exiting_is_a_crash():
    with pytest.raises(WorkerCrashed):
        pool(FakeBackend([FailStart(exits=True)]))


def test_ctrl_c_interrupts_a_wait():
    backend = FakeBackend()
    with pool(backend) as env:
        env.reset()
        backend.plan(Finish((0,)), Interrupt("return"))
        with pytest.raises(KeyboardInterrupt):
            env.step([0, 0, 0])


def test_waiting_for_an_impossible_event_is_an_error():
    backend = FakeBackend()
    with pool(backend) as env:
        env.reset()
        backend.plan(Hang(0))
        with pytest.raises(WouldHangError, match=r"rows unanswered  \[0\]"):
            env.step([0, 0, 0])


def test_a_played_scenario_can_be_repeated():
    streams = []
    schedule = [Finish((2,)), Die(0), Raise(1)]
    for _ in range(2):
        backend = FakeBackend()
        with pool(backend, on_worker_failure=POLICY) as env:
            env.reset()
            backend.plan(*schedule)
            streams.append([env.step([0, 0, 0]).observation for _ in range(3)])
        schedule = backend.played

    assert np.array_equal(*streams)
