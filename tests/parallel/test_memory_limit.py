"""Workers that hold too much memory are replaced where episodes end."""

from __future__ import annotations

import functools
import os
import signal
from typing import Any

import numpy as np
import pytest

from envkit import ParallelPyEnvironment, RestartPolicy
from envkit.distributed.command_launcher import CommandLauncher
from envkit.distributed.links import LinkedBackend
from envkit.parallel import AsyncParallelPyEnvironment
from envkit.testing.envs import CountingEnv
from tests.parallel.environments import MEGABYTE, Hoarding, Speechless
from tests.parallel.streams import is_grammatical

SHORT = functools.partial(CountingEnv, steps_per_episode=1)


def hoarding(kind: type, *lengths: int, **how: Any) -> ParallelPyEnvironment:
    """Makes a pool whose workers are above the limit after some episodes."""
    how = {"start_method": "forkserver", **how}
    return ParallelPyEnvironment(
        [functools.partial(kind, length) for length in lengths],
        max_worker_memory=200 * MEGABYTE,
        **how,
    )


def until_replaced(env: Any, times: int) -> list[Any]:
    """Steps until workers have been replaced so often; returns all time steps."""
    action = [0] * env.batch_size
    shown = [env.reset()]
    while env.statistics().replaced < times:
        assert len(shown) < 1_000_000
        assert env.statistics().resident_bytes < 4000 * MEGABYTE
        shown.append(env.step(action))
        assert not env.repaired.any()
    shown += [env.step(action) for _ in range(30)]
    assert not env.repaired.any()
    assert env.statistics().restarts == 0
    return shown


def check_streams(shown: list[Any]) -> None:
    """Checks that every episode of every row is whole."""
    for row in range(len(shown[0].step_type)):
        types = [int(one.step_type[row]) for one in shown]
        assert is_grammatical(types)
        steps = [int(one.observation[row]) for one in shown]
        for before, after, kind in zip(steps, steps[1:], types[1:], strict=False):
            assert kind == 0 or after == before + 1


def test_a_worker_over_its_memory_limit_is_replaced_at_an_episode_end():
    with hoarding(Speechless, 9, 11, num_workers=2) as env:
        check_streams(until_replaced(env, 2))


def test_rows_in_mid_episode_keep_their_state():
    with hoarding(Hoarding, 4, 7, num_workers=1) as env:
        check_streams(until_replaced(env, 2))


def test_without_states_a_worker_waits_until_all_of_its_episodes_have_ended(caplog):
    told = "its environments cannot save their states"
    with hoarding(Speechless, 2, 3, num_workers=1) as env:
        shown = until_replaced(env, 1)
        check_streams(shown)
        # Nothing is said of a worker whose episodes happen to end together.
        while told not in caplog.text.lower():
            until_replaced(env, env.statistics().replaced + 1)


@pytest.mark.parametrize("order", ["same_step", "disabled"])
def test_the_memory_limit_works_in_every_order(order):
    with hoarding(Hoarding, 3, 5, num_workers=1, autoreset=order) as env:
        env.reset()
        while not env.statistics().replaced:
            assert env.statistics().resident_bytes < 4000 * MEGABYTE
            ended = env.step([0, 0], None).is_last() if order == "same_step" else None
            if ended is None:
                mask = ~env.current_time_step().is_last()
                ended = env.step([0, 0], mask).is_last()
                env.reset(ended)
        assert not env.repaired.any()


def test_the_new_environments_can_be_lost_and_recovered():
    policy = RestartPolicy(recover="replay", anchor_every=5)
    with hoarding(Hoarding, 4, 7, num_workers=1, on_worker_failure=policy) as env:
        shown = [*until_replaced(env, 1)]
        os.kill(env.workers[0].pid, signal.SIGKILL)
        shown += [env.step([0, 0]) for _ in range(20)]

        assert env.statistics().recovered == 2
    check_streams(shown)


def test_linked_workers_are_replaced():
    launcher = CommandLauncher(["envkit worker {address}"])
    with hoarding(
        Hoarding, 4, 7, backend=LinkedBackend(launcher), start_method="spawn"
    ) as env:
        check_streams(until_replaced(env, 1))


def test_an_asynchronous_pool_replaces_workers_over_their_limit():
    with AsyncParallelPyEnvironment(
        [functools.partial(Hoarding, 4)] * 2,
        num_workers=1,
        start_method="forkserver",
        max_worker_memory=200 * MEGABYTE,
    ) as env:
        env.reset_async()
        types: list[list[int]] = [[], []]
        while not env.statistics().replaced:
            batch = env.recv(count=1)
            for row, kind in zip(
                batch.env_ids.tolist(), batch.time_step.step_type, strict=True
            ):
                types[row].append(int(kind))
            env.send(np.zeros(len(batch.env_ids), np.int64), batch.env_ids)

        assert not env.repaired.any()
    assert all(map(is_grammatical, types))


@pytest.mark.parametrize("backend", ["inline", "thread"])
def test_a_memory_limit_needs_worker_processes(backend):
    with pytest.raises(ValueError, match="max_worker_memory must be None here"):
        ParallelPyEnvironment([SHORT], backend=backend, max_worker_memory=2**30)


def test_a_limit_below_the_initial_memory_is_refused():
    with pytest.raises(ValueError, match="more than a worker holds whose environments"):
        ParallelPyEnvironment([SHORT], max_worker_memory=MEGABYTE)
