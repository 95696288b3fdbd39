"""`statistics()`: what the workers have done so far, in numbers that are right."""

from __future__ import annotations

import dataclasses
import functools
import os
import pickle

import numpy as np
import pytest

from envkit.errors import EnvironmentRaised
from envkit.parallel import (
    AsyncParallelPyEnvironment,
    AutoReset,
    PoolStatistics,
    RestartPolicy,
    WorkerStatistics,
)
from envkit.testing.envs import CountingEnv, CrashingEnv
from tests.parallel import environments, streams
from tests.parallel.streams import pool_of
from tests.waiting import until


def test_steps_and_resets_are_counted_for_each_worker(backend):
    with pool_of([CountingEnv] * 3, backend, num_workers=2) as env:
        env.reset()
        for _ in range(4):
            env.step([0, 0, 0])
        env.step([0, 0, 0], [True, False, False])
        env.reset([False, False, True])
        numbers = env.statistics()

    assert [(0, (0, 1), 11, 2), (1, (2,), 6, 2)] == [
        (worker.worker, worker.envs, worker.steps, worker.resets)
        for worker in numbers.workers
    ]
    assert (17, 4, 0) == (numbers.steps, numbers.resets, numbers.restarts)
    assert 7 == numbers.calls


@pytest.mark.parametrize(
    ("order", "resets"),
    [(AutoReset.NEXT_STEP, 5), (AutoReset.SAME_STEP, 9)],
    ids=["next step", "same step"],
)
def test_automatic_resets_are_counted(backend, order, resets):
    """Episodes of one step: half of the steps under NEXT_STEP begin one, else all."""
    with pool_of([functools.partial(CountingEnv, 1)], backend, autoreset=order) as env:
        env.reset()
        for _ in range(8):
            env.step([0])
        numbers = env.statistics()
    assert (9, resets) == (numbers.steps, numbers.resets)


@pytest.mark.parametrize(
    ("order", "resets"),
    [(AutoReset.NEXT_STEP, 5 + 3), (AutoReset.SAME_STEP, 9 + 5)],
    ids=["next step", "same step"],
)
def test_the_rows_of_a_batch_are_counted_one_by_one(order, resets):
    """Episodes of one step and of two."""
    with pool_of(
        [functools.partial(environments.pair_of, 1, 2)], autoreset=order
    ) as env:
        env.reset()
        for _ in range(8):
            env.step([0, 0])
        numbers = env.statistics()

    assert (18, resets) == (numbers.steps, numbers.resets)


def test_a_new_pool_has_zero_counts():
    with pool_of([CountingEnv] * 2, num_workers=2) as env:
        numbers = env.statistics()

    assert (0, 0, 0, 0, 0.0) == (
        numbers.steps,
        numbers.resets,
        numbers.restarts,
        numbers.calls,
        numbers.elapsed,
    )
    assert [0.0, 0.0] == [worker.seconds_per_step for worker in numbers.workers]


def test_statistics_name_each_process_and_its_memory():
    with pool_of([environments.Talkative] * 2, "process", num_workers=2) as env:
        env.reset()
        numbers = env.statistics()
        pids = env.access("pid")

    assert pids == [worker.pid for worker in numbers.workers]
    assert len({os.getpid(), *pids}) == 3
    assert all(worker.is_alive for worker in numbers.workers)
    assert all(worker.resident_bytes > 2**20 for worker in numbers.workers)
    assert numbers.resident_bytes == sum(
        worker.resident_bytes for worker in numbers.workers
    )


@pytest.mark.parametrize("backend", ["inline", "thread"])
def test_without_processes_no_memory_is_reported(backend):
    with pool_of([CountingEnv] * 2, backend, num_workers=2) as env:
        numbers = env.statistics()
    assert [os.getpid()] * 2 == [worker.pid for worker in numbers.workers]
    assert 0 == numbers.resident_bytes


def test_times_grow_on_the_side_that_spends_them(backend):
    with pool_of([environments.Walk] * 4, backend, num_workers=2) as env:
        env.reset()
        before = env.statistics()
        for _ in range(50):
            env.step(np.zeros((4, 2), np.float32))
        after = env.statistics()

    for earlier, later in zip(before.workers, after.workers, strict=True):
        assert 0.0 < earlier.stepping < later.stepping
        assert earlier.waiting <= later.waiting
        assert later.seconds_per_step == later.stepping / later.steps
    assert 0.0 < before.elapsed < after.elapsed
    # No worker steps between two calls.
    assert max(worker.stepping for worker in after.workers) <= after.elapsed


def test_a_slow_worker_stands_out(tmp_path):
    """The clock is the machine's, so only the order of the two is looked at."""
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)
    makers = [functools.partial(environments.Gated, gate, row) for row in range(2)]
    with AsyncParallelPyEnvironment(makers, num_workers=2, start_method="fork") as env:
        env.reset_async()
        env.recv()
        before = [worker.stepping for worker in env.statistics().workers]
        env.send([1], [0])
        assert until(lambda: env.statistics().workers[0].steps == 2)
        # The quick one makes a hundred steps while the other waits at the gate.
        for _ in range(100):
            env.send([2], [1])
            env.recv(1)
        environments.open_gate(gate)
        env.recv()
        slow, quick = env.statistics().workers

    assert slow.stepping - before[0] > quick.stepping - before[1]
    assert (2, 101) == (slow.steps, quick.steps)


def test_an_asynchronous_pool_counts_too(backend):
    with streams.async_pool_of([CountingEnv] * 3, backend, num_workers=2) as env:
        env.reset_async()
        env.recv(2)
        env.recv(1)
        env.send([0, 0], [0, 2])
        env.recv()
        numbers = env.statistics()

    assert [4 - 1, 2] == [worker.steps for worker in numbers.workers]
    assert (5, 3) == (numbers.steps, numbers.resets)
    assert numbers.elapsed > 0.0


def test_rebuilt_environments_are_counted(backend):
    makers = [CountingEnv, functools.partial(CrashingEnv, crash_at=1)]
    with pool_of(
        makers, backend, num_workers=2, on_worker_failure=RestartPolicy(5, backoff=0.0)
    ) as env:
        env.reset()
        env.step([0, 0])
        env.step([0, 0])
        numbers = env.statistics()

    assert [0, 1] == [worker.restarts for worker in numbers.workers]
    assert 1 == numbers.restarts


def test_steps_that_raised_are_counted():
    with pool_of([CrashingEnv, CountingEnv]) as env:
        env.reset()
        with pytest.raises(EnvironmentRaised):
            env.step([0, 0])
        numbers = env.statistics()
    assert 4 == numbers.steps


def test_the_statistics_are_a_frozen_snapshot():
    with pool_of([CountingEnv]) as env:
        numbers = env.statistics()
        env.reset()
        copied = pickle.loads(pickle.dumps(numbers))

        assert 0 == numbers.steps
        assert numbers == copied
        assert isinstance(numbers, PoolStatistics)
        assert isinstance(numbers.workers, tuple)
        with pytest.raises(dataclasses.FrozenInstanceError):
            numbers.calls = 3
        with pytest.raises(dataclasses.FrozenInstanceError):
            numbers.workers[0].steps = 3


@pytest.mark.parametrize("host", ["", "node-7"])
def test_the_numbers_print_as_a_table(host):
    numbers = PoolStatistics(
        (
            WorkerStatistics(
                0, 4711, (0, 1, 2), 300, 30, 0, 0.003, 0.001, 2**25, True, host
            ),
            WorkerStatistics(1, 0, (3,), 0, 0, 2, 0.0, 0.0, 0, False, host),
        ),
        calls=100,
        elapsed=0.5,
    )

    assert (
        "worker     pid   envs       steps  resets  restarts  us/step  busy  memory"
        f"{host and '  host'}\n"
        "     0    4711    0-2         300      30         0     10.0   75%    32 MB"
        f"{host and f'  {host}'}\n"
        "     1       0    3-3           0       0         2      0.0    0%     0 MB"
        f"{host and f'  {host}'}"
    ) == str(numbers)
