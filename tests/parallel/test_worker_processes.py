"""`workers`: where a pool's workers run."""

from __future__ import annotations

import os
import signal
import socket
import threading

import pytest

from envkit import (
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    Blocking,
    ParallelPyEnvironment,
    ProcessPyEnvironment,
    RestartPolicy,
)
from envkit.errors import WorkerCrashed
from envkit.testing import CountingEnv
from envkit.wrappers import TimeLimit
from tests.parallel.environments import Gated, Talkative, open_gate
from tests.parallel.streams import pool_of
from tests.waiting import is_running, until


@pytest.mark.parametrize("kind", [ParallelPyEnvironment, AsyncParallelPyEnvironment])
def test_workers_have_their_rows_and_processes(any_backend, kind):
    with pool_of([Talkative] * 3, any_backend, kind=kind, num_workers=2) as env:
        workers = env.workers
        pids = env.access("pid")
    host = socket.gethostname() if any_backend == "linked" else ""

    assert [(0, (0, 1), host, 0, "ready"), (1, (2,), host, 0, "ready")] == [
        (worker.index, worker.rows, worker.host, worker.restarts, worker.state)
        for worker in workers
    ]
    if any_backend in ("inline", "thread"):
        assert [None, None] == [worker.pid for worker in workers]
    else:
        assert pids == [workers[0].pid, workers[0].pid, workers[1].pid]
    assert [] == env.workers


def test_a_replaced_worker_has_another_process():
    policy = RestartPolicy()
    with pool_of([CountingEnv] * 2, "process", on_worker_failure=policy) as env:
        env.reset()
        lost, other = env.workers
        os.kill(lost.pid, signal.SIGKILL)
        until(lambda: env.step([0, 0]) and env.workers[0].restarts)
        until(lambda: env.step([0, 0]) and env.workers[0].state == "ready")
        new, same = env.workers

        assert (other, 1) == (same, new.restarts)
        assert new.pid != lost.pid
        assert is_running(new.pid)


def test_a_worker_that_is_not_replaced_is_lost():
    with pool_of([CountingEnv] * 2, "process") as env:
        env.reset()
        os.kill(env.workers[0].pid, signal.SIGKILL)
        with pytest.raises(WorkerCrashed):
            env.step([0, 0])
        assert [(None, "lost"), (env.workers[1].pid, "ready")] == [
            (worker.pid, worker.state) for worker in env.workers
        ]


def test_workers_come_and_go_with_rows(backend):
    with pool_of([CountingEnv] * 2, backend) as env:
        before = env.workers
        env.resize(3)
        grown = env.workers
        env.resize(1)
        assert before == grown[:2]
        assert [(0,), (1,), (2,)] == [worker.rows for worker in grown]
        assert before[:1] == env.workers


def test_another_thread_finds_the_process_of_a_step_that_hangs(tmp_path):
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)
    with pool_of([lambda: Gated(gate)], "process") as env:
        env.reset()
        expected = env.workers
        thread = threading.Thread(target=env.step, args=([1],))
        thread.start()
        found = env.workers
        open_gate(gate)
        thread.join()
    assert expected == found


def test_wrappers_batches_and_blocking_have_the_workers_inside():
    with pool_of([CountingEnv], "process") as env:
        assert env.workers == TimeLimit(env, 5).workers
    with Blocking(
        pool_of([CountingEnv], "thread", kind=AsyncParallelPyEnvironment)
    ) as env:
        assert [(0,)] == [worker.rows for worker in env.workers]
    one = ProcessPyEnvironment(CountingEnv, start_method="fork")
    assert [] == one.workers
    one.start()
    with BatchedPyEnvironment([CountingEnv(), one]) as batch:
        (worker,) = one.workers
        assert [(0, worker.pid, (1,))] == [
            (each.index, each.pid, each.rows) for each in batch.workers
        ]
    assert [] == batch.workers == one.workers
