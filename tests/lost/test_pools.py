"""Lost episodes of pools, and of what wraps them."""

from __future__ import annotations

import pytest

from envkit import (
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    Blocking,
    ParallelPyEnvironment,
    ProcessPyEnvironment,
)
from envkit.distributed.links import linked
from envkit.testing import chaos
from envkit.wrappers import TimeLimit
from tests.lost.ledger import Ledger, episodes_to_play
from tests.lost.numbered import RAISING, NumberedEnv
from tests.lost.players import ENDLESS, FAULTS, OPTIONS, play
from tests.remote.serving import served


def pool_of(kind=ParallelPyEnvironment, **options):
    return kind([NumberedEnv] * 4, **{**OPTIONS, **options})


@pytest.mark.parametrize("order", ["next_step", "same_step", "disabled"])
def test_a_pool_marks_every_lost_episode(order):
    with pool_of(autoreset=order) as env, chaos(env, **FAULTS):
        ledger = play(env, episodes_to_play(100))
    ledger.close("crashed", "timed_out", "raised")


def test_wrappers_mark_every_lost_episode():
    with TimeLimit(TimeLimit(pool_of(), 100), 200) as env, chaos(env, **FAULTS):
        ledger = play(env, episodes_to_play(100))
    ledger.close("crashed", "timed_out", "raised")


def test_a_blocking_batch_marks_every_lost_episode():
    pool = pool_of(AsyncParallelPyEnvironment)
    with Blocking(pool, wait=False) as env, chaos(env, **FAULTS):
        ledger = play(env, episodes_to_play(100))
    ledger.close("crashed", "raised")


def test_an_asynchronous_pool_marks_every_lost_episode():
    ledger = Ledger(4)
    with pool_of(AsyncParallelPyEnvironment) as env, chaos(env, **FAULTS):
        env.reset_async(seed=[RAISING, 1, 2, 3])
        while ledger.resolved < episodes_to_play(100):
            batch = env.recv(2)
            repaired, losses = env.repaired, env.current_losses()
            for place, row in enumerate(batch.env_ids.tolist()):
                shown = [leaf[place] for leaf in batch.time_step]
                step_type, reward, discount, observation = shown
                if step_type == 0:
                    ledger.begin(observation, row)
                elif repaired[row]:
                    ledger.lose(losses[row].kind, row)
                else:
                    ledger.step(observation, reward, row)
                    if step_type == 2:
                        ledger.end(row, is_terminated=discount == 0)
            env.send(ledger.actions[batch.env_ids], batch.env_ids)
    ledger.close("crashed", "raised")


def test_a_batch_of_processes_marks_every_lost_episode():
    options = {name: OPTIONS[name] for name in OPTIONS if name != "num_workers"}
    members = [ProcessPyEnvironment(NumberedEnv, **options) for _ in range(2)]
    for member in members:
        member.start()
    faults = {**FAULTS, "every_steps": 40}
    with BatchedPyEnvironment(members) as env, chaos(env, **faults):
        ledger = play(env, episodes_to_play(60))
    ledger.close("crashed", "raised")


def test_linked_workers_mark_every_lost_episode():
    backend = linked(["envkit worker {address}"] * 2)
    faults = {**FAULTS, "every_steps": 40}
    with (
        ParallelPyEnvironment(
            [NumberedEnv] * 4,
            backend=backend,
            step_timeout=1.0,
            on_worker_failure=ENDLESS,
        ) as env,
        chaos(env, **faults),
    ):
        ledger = play(env, episodes_to_play(100))
    ledger.close("crashed", "raised")


def test_the_sessions_of_a_server_mark_every_lost_episode():
    name = "tests.lost.numbered:NumberedEnv"
    with (
        served(name) as server,
        ParallelPyEnvironment(
            [name] * 4,
            backend=server.address,
            num_workers=2,
            step_timeout=1.0,
            on_worker_failure=ENDLESS,
        ) as env,
        chaos(env, **FAULTS),
    ):
        ledger = play(env, episodes_to_play(100))
    ledger.close("crashed", "raised")
