"""`chaos`: workers of a pool are killed and stopped while it is used."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from envkit import (
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    Blocking,
    ParallelPyEnvironment,
    ProcessPyEnvironment,
    RestartPolicy,
)
from envkit.adapters import vectorize
from envkit.distributed.links import linked
from envkit.errors import ClosedError, WorkerCrashed
from envkit.testing import CountingEnv, chaos, faults
from envkit.wrappers import TimeLimit
from tests.remote.serving import served
from tests.waiting import PATIENCE, is_running, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="as worker processes")

ENDLESS = RestartPolicy(max_restarts=10**6, within=None, backoff=0.0)
REPLAY = RestartPolicy(max_restarts=10**6, within=None, backoff=0.0, recover="replay")


def pool_of(kind=ParallelPyEnvironment, **options):
    how = {"on_worker_failure": ENDLESS, **options}
    if "backend" not in options:
        how = {"num_workers": 2, "start_method": "fork", **how}
    return kind([CountingEnv] * 2, **how)


def stepped(steps, **options):
    """Returns what a run of so many steps shows, and which faults came."""
    with pool_of() as pool, chaos(pool, **options) as trouble:
        shown = [pool.reset()]
        marks = []
        for _ in range(steps):
            shown.append(pool.step([0, 0]))
            marks.append(pool.repaired.tolist())
        faults = [(fault.what, fault.worker, fault.rows) for fault in trouble.log]
        restarts = pool.statistics().restarts
    stream = [(each.step_type.tolist(), each.observation.tolist()) for each in shown]
    return stream, marks, faults, restarts


# By steps.


def test_the_same_seed_kills_the_same_workers_before_the_same_steps():
    first = stepped(9, seed=3, every_steps=3)
    stream, marks, faults, restarts = first
    assert first == stepped(9, seed=3, every_steps=3)
    assert [("kill", row, (row,)) for _, row, _ in faults] == faults
    assert 3 == len(faults) == restarts
    killed = [worker for _, worker, _ in faults]
    expected = [[False, False] for _ in range(9)]
    for step, row in zip((2, 5, 8), killed, strict=True):
        expected[step][row] = True
        assert 2 == stream[step + 1][0][row]  # a LAST
    assert expected == marks


@pytest.mark.parametrize("links", [False, True])
def test_recovered_environments_return_the_same_stream(links):
    where = {"backend": linked(["envkit worker {address}"] * 2)} if links else {}
    with pool_of(on_worker_failure=REPLAY, **where) as pool:
        pool.reset()
        with chaos(pool, every_steps=2) as trouble:
            shown = [pool.step([0, 0]).observation.tolist() for _ in range(6)]
        assert {"kill": 3, "hang": 0, "slow": 0} == trouble.counts
        assert [[step, step] for step in range(1, 7)] == shown
        assert (3, 3) == (pool.statistics().restarts, pool.statistics().recovered)


def test_a_slow_worker_is_awaited_without_a_policy():
    with pool_of(on_worker_failure="raise") as pool:
        pool.reset()
        with chaos(pool, kills_per_minute=0, slow=1, every_steps=2) as trouble:
            shown = [pool.step([0, 0]).observation.tolist() for _ in range(4)]
        assert ["slow"] * 2 == [fault.what for fault in trouble.log]
        assert [4, 4] == shown[-1]


def test_a_hanging_worker_is_replaced_after_the_timeout():
    with pool_of(step_timeout=0.5) as pool:
        pool.reset()
        with chaos(pool, kills_per_minute=0, hangs=1, every_steps=2) as trouble:
            assert until(
                lambda: (
                    pool.step([0, 0])
                    and any(not is_running(fault.pid) for fault in trouble.log)
                )
            )
        assert {"hang"} == {fault.what for fault in trouble.log}
        assert pool.statistics().restarts


@pytest.mark.own_process
@pytest.mark.usefixtures("interruptible")
def test_hanging_workers_resume_when_ctrl_c_ends_the_block():
    def use(pool):
        with chaos(pool, kills_per_minute=0, hangs=10_000) as trouble:
            assert until(lambda: trouble.counts["hang"] == 2)
            signal.raise_signal(signal.SIGINT)

    with pool_of(step_timeout=100.0) as pool:
        pool.reset()
        with pytest.raises(KeyboardInterrupt):
            use(pool)
        assert [1, 1] == pool.step([0, 0]).observation.tolist()
        assert 0 == pool.statistics().restarts


def test_asynchronous_and_wrapped_pools_count_steps():
    with pool_of(AsyncParallelPyEnvironment) as pool:
        pool.reset_async()
        pool.recv()
        with chaos(pool, every_steps=2) as trouble:
            for _ in range(2):
                pool.send([0, 0])
                batch = pool.recv()
        assert 1 == len(trouble.log) == int(batch.time_step.is_last().sum())
    with TimeLimit(pool_of(), 5) as env, chaos(env, every_steps=2) as trouble:
        env.reset()
        env.step([0, 0])
        assert not trouble.log
        env.step([0, 0])
        assert 1 == len(trouble.log)


def test_two_faults_around_one_pool_are_both_removed():
    with pool_of() as pool:
        first = chaos(pool, every_steps=2)
        second = chaos(pool, kills_per_minute=0, slow=1, every_steps=2)
        pool.reset()
        for _ in range(2):
            pool.step([0, 0])
        assert (1, 1) == (len(first.log), len(second.log))
        for _ in range(2):
            second.close()
            first.close()
        for _ in range(4):
            pool.step([0, 0])
        assert (1, 1) == (len(first.log), len(second.log))


# By time.


def test_workers_are_killed_and_replaced_until_the_block_ends():
    with pool_of() as pool:
        pool.reset()
        with chaos(pool, seed=2, kills_per_minute=600) as trouble:
            assert until(lambda: pool.step([0, 0]) and trouble.counts["kill"] > 2)
        kills = trouble.counts["kill"]
        assert until(lambda: pool.step([0, 0]) and pool.statistics().restarts >= kills)
        assert f"Chaos(kills={kills}, hangs=0, slow=0)" == repr(trouble)
        seconds = [fault.seconds for fault in trouble.log]
        assert sorted(seconds) == seconds


def test_closing_the_pool_first_removes_the_faults():
    pool = pool_of(step_timeout=100.0)
    trouble = chaos(pool, kills_per_minute=0, hangs=10_000)
    assert until(lambda: trouble.log)
    pool.close(0.0)
    trouble.close()
    trouble.close()
    assert until(lambda: not any(is_running(fault.pid) for fault in trouble.log))
    with pytest.raises(ClosedError):
        chaos(pool)


# The worker has ended, and its pool has not dealt with that: it has no process now.
BETWEEN = """
import os, signal, sys
from envkit import ParallelPyEnvironment, RestartPolicy
from envkit.testing import CountingEnv, chaos

if sys.argv[1] == "without":
    del os.pidfd_open
policy = RestartPolicy(max_restarts=10, backoff=0.0)
with ParallelPyEnvironment(
    [CountingEnv], num_workers=1, start_method="fork", on_worker_failure=policy
) as pool:
    pool.reset()
    os.kill(pool.workers[0].pid, signal.SIGKILL)
    while pool.workers[0].pid:
        pool._backend.wait_events(0.01)
    print(pool.statistics().workers[0].is_alive)
    with chaos(pool, every_steps=1) as trouble:
        pool.step([0])
        print(pool.repaired.tolist(), len(trouble.log))
        while not trouble.log:
            pool.step([0])
        print(trouble.log[0].pid > 0)
"""


@pytest.mark.parametrize("pidfd", ["with", "without"])
def test_a_worker_that_is_being_replaced_is_left_alone(pidfd):
    """In a group of its own, which a signal to process 0 would end."""
    script = [sys.executable, "-c", BETWEEN, pidfd]
    ended = subprocess.run(
        script, capture_output=True, text=True, start_new_session=True, timeout=PATIENCE
    )
    assert 0 == ended.returncode, ended.stderr
    assert "False\n[True] 0\nTrue\n" == ended.stdout


# What a pool must have.


def test_without_a_restart_policy_kills_warn_and_raise():
    with pool_of(on_worker_failure="raise") as pool:
        pool.reset()
        with pytest.warns(UserWarning, match="has no RestartPolicy, so the first"):
            trouble = chaos(pool, every_steps=1)
        with trouble, pytest.raises(WorkerCrashed):
            pool.step([0, 0])


def test_without_a_timeout_hangs_warn_and_end(monkeypatch):
    monkeypatch.setattr(faults, "_HANG_SECONDS", 0.2)
    with pool_of(on_worker_failure="raise") as pool:
        pool.reset()
        with pytest.warns(UserWarning, match="has no step_timeout, so a worker that"):
            trouble = chaos(pool, kills_per_minute=0, hangs=1, every_steps=1)
        with trouble:
            assert [1, 1] == pool.step([0, 0]).observation.tolist()
        assert 1 == trouble.counts["hang"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"kills_per_minute": -1},
            "kills_per_minute must be a number of at least 0, got -1 of type int.",
        ),
        (
            {"slow": "often"},
            "slow must be a number of at least 0, got the string 'often'.",
        ),
        (
            {"hangs": np.inf},
            "hangs must be a number of at least 0, got inf of type float.",
        ),
        (
            {"kills_per_minute": 0},
            "One of kills_per_minute, hangs and slow must be larger than 0: otherwise "
            "nothing happens to any worker.",
        ),
        (
            {"every_steps": 0},
            "every_steps must be an integer of at least 1 or None, got 0.",
        ),
    ],
)
def test_invalid_arguments_are_refused(arguments, message, message_of):
    with ParallelPyEnvironment([CountingEnv], backend="inline") as pool:
        assert message == message_of(ValueError, lambda: chaos(pool, **arguments))


@pytest.mark.parametrize("backend", ["inline", "thread"])
def test_faults_need_worker_processes(backend, message_of):
    with ParallelPyEnvironment([CountingEnv], backend=backend) as pool:
        assert (
            "env must have workers that are processes, but this ParallelPyEnvironment "
            f'has backend="{backend}". Pass backend="process".'
        ) == message_of(ValueError, lambda: chaos(pool))


def test_faults_need_a_pool(message_of):
    assert (
        "env must have a pool of worker processes inside, or be a process that runs "
        "such pools, got a CountingEnv."
    ) == message_of(TypeError, lambda: chaos(CountingEnv()))


def test_faults_need_a_running_process(message_of):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(PATIENCE)
    assert (
        f"env must be a running process; there is no process {process.pid}."
    ) == message_of(ValueError, lambda: chaos(process))


# Where pools are.


def hit_rows(env, pool, **options):
    """Returns the rows of two faults before steps of a pool."""
    with chaos(env, every_steps=2, **options) as trouble:
        pool.reset()
        for _ in range(5):
            pool.step([0, 0])
    return [fault.rows for fault in trouble.log]


def test_pools_are_found_behind_adapters_and_their_wrappers():
    gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    envs = vectorize(
        [CountingEnv] * 2, context="fork", num_workers=2, on_worker_failure=ENDLESS
    )
    outer = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
    with contextlib.closing(outer), chaos(outer, every_steps=2) as trouble:
        outer.reset(seed=1)
        for _ in range(4):
            outer.step(np.zeros(2, np.int32))
    assert 2 == len(trouble.log)


def test_pools_are_found_behind_asynchronous_batches():
    with Blocking(pool_of(AsyncParallelPyEnvironment)) as env:
        assert 2 == len(hit_rows(env, env))


def test_pools_of_a_batch_take_turns():
    members = [
        ProcessPyEnvironment(
            CountingEnv, start_method="fork", on_worker_failure=ENDLESS
        )
        for _ in range(2)
    ]
    for member in members:
        member.start()
    with BatchedPyEnvironment(members) as env:
        assert {(0,), (1,)} == set(hit_rows(env, env))


def test_steps_stay_on_the_fast_path():
    with pool_of() as pool:
        pool.reset()
        with chaos(pool, kills_per_minute=0, slow=1, every_steps=100):
            assert pool._pool.step_all()


def test_the_workers_of_a_process_are_hit_when_steps_are_counted():
    with pool_of() as pool, chaos(os.getpid(), every_steps=2) as trouble:
        pool.reset()
        for _ in range(4):
            trouble.count_step()
            pool.step([0, 0])
        assert 2 == len(trouble.log) == pool.statistics().restarts
        assert {fault.rows for fault in trouble.log} <= {(0,), (1,)}


def test_the_sessions_of_a_server_are_hit():
    with (
        served("tests.lost.numbered:NumberedEnv") as server,
        ParallelPyEnvironment(
            ["tests.lost.numbered:NumberedEnv"] * 2,
            backend=server.address,
            num_workers=2,
            on_worker_failure=ENDLESS,
        ) as pool,
    ):
        assert 2 == len(hit_rows(pool, pool))
