"""What a pool says it has lost: which row, how, and that resets keep their promise."""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    Blocking,
    BoundedArraySpec,
    Loss,
    ProcessPyEnvironment,
    PyEnvironment,
    RestartPolicy,
    restart,
    transition,
    truncation,
)
from envkit.errors import EnvironmentRaised, WorkerCrashed
from envkit.realtime import RealTimeEnvironment
from envkit.testing import CountingEnv, CrashingEnv, SlowEnv
from envkit.wrappers import FrameStack, TimeLimit
from tests.parallel.streams import async_pool_of, pool_of
from tests.waiting import is_running, until

POLICY = RestartPolicy(max_restarts=50, backoff=0)

forked = functools.partial(pool_of, backend="process")
forked_async = functools.partial(async_pool_of, backend="process")


def kinds(losses: list[Loss]) -> list[tuple[int, str]]:
    return [(loss.row, loss.kind) for loss in losses]


def kill_worker(pool, worker=0):
    pid = pool.workers[worker].pid
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: not is_running(pid))


class DrawingEnv(PyEnvironment):
    """Draws its observations, and fails in as many resets as a folder has files."""

    def __init__(self, folder: Path, how: str) -> None:
        super().__init__(handle_auto_reset=True)
        self._folder, self._how = folder, how
        self._numbers = np.random.default_rng()

    def observation_spec(self):
        return ArraySpec((), np.int64)

    def action_spec(self):
        return BoundedArraySpec((), np.int32, 0, 1)

    def _drawn(self):
        return np.int64(self._numbers.integers(1_000_000))

    def _reset(self, seed=None, options=None):
        for trouble in self._folder.glob("*"):
            try:
                trouble.unlink()
            except FileNotFoundError:  # The other row took it.
                continue
            if self._how == "exit":
                os._exit(1)
            raise RuntimeError("there is no episode today")
        if seed is not None:
            self._numbers = np.random.default_rng(seed)
        self._left = 3
        return restart(self._drawn() + (options or {}).get("add", 0))

    def _step(self, action):
        self._left -= 1
        return (transition if self._left else truncation)(self._drawn(), 1.0)


class SecondStepEnv(DrawingEnv):
    """Fails in the second step of each episode."""

    def _step(self, action):
        if self._left == 2 and self._how == "exit":
            os._exit(1)
        if self._left == 2:
            raise RuntimeError("there is no second step")
        return super()._step(action)


def first_of(seed, add=0):
    return int(np.random.default_rng(seed).integers(1_000_000)) + add


@pytest.fixture
def troubled(tmp_path):
    """Makes pools whose environments fail in their next resets, this many times."""

    def make(open_pool, how, times):
        maker = functools.partial(DrawingEnv, tmp_path, how)
        pool = open_pool([maker] * 2, num_workers=2, on_worker_failure=POLICY)
        for number in range(times):
            (tmp_path / str(number)).touch()
        return pool

    return make


@pytest.mark.parametrize("order", ["next_step", "same_step"])
def test_a_loss_says_its_row_and_kind_with_the_end_that_it_made(order):
    makers = [functools.partial(CrashingEnv, crash_at=2, how="exit"), CountingEnv]
    with forked(
        makers, num_workers=2, on_worker_failure=POLICY, autoreset=order
    ) as env:
        env.reset()
        env.step([0, 0])
        assert env.losses() == []
        time_step = env.step([0, 0])
        assert time_step.step_type.tolist() == [2, 1]
        assert env.repaired.tolist() == [True, False]
        assert list(env.current_losses()) == [0]
        (loss,) = env.losses()
        assert loss == env.current_losses()[0]
        assert (loss.row, loss.kind) == (0, "crashed")
        assert isinstance(loss.error, WorkerCrashed)
        assert loss.error.exitcode == 3
        env.step([0, 0])
        assert env.losses() == []
        assert env.current_losses() == {}


def test_an_exception_in_a_step_is_a_loss_of_its_kind(backend):
    make = functools.partial(CrashingEnv, crash_at=2)
    with forked([make] * 2, backend=backend, on_worker_failure=POLICY) as env:
        env.reset()
        env.step([0, 0])
        env.step([0, 0])
        losses = env.losses()
    assert sorted(kinds(losses)) == [(0, "raised"), (1, "raised")]
    assert all(isinstance(loss.error, EnvironmentRaised) for loss in losses)


def test_an_environment_that_does_not_answer_has_timed_out():
    makers = [CountingEnv, functools.partial(SlowEnv, 60.0)]
    with forked(
        makers, num_workers=2, step_timeout=2.0, on_worker_failure=POLICY
    ) as env:
        env.reset()
        # The others have no deadline, as the machine may be slow.
        while not env.repaired.any():
            env.step([0, 0], mask=[False, True])
        assert kinds(env.losses()) == [(1, "timed_out")]


def test_a_closed_pool_still_tells_its_losses():
    makers = [functools.partial(CrashingEnv, crash_at=1, how="exit"), CountingEnv]
    with forked(makers, num_workers=2, on_worker_failure=POLICY) as env:
        env.reset()
        env.step([0, 0])
    assert env.repaired.tolist() == [True, False]
    assert list(env.current_losses()) == [0]
    assert kinds(env.losses()) == [(0, "crashed")]


def test_a_state_saved_while_an_environment_was_lost_tells_it_when_it_goes_on():
    with forked([CountingEnv] * 2, num_workers=2, on_worker_failure=POLICY) as env:
        env.reset()
        kill_worker(env)
        while not env.statistics().restarts:
            env.step([0, 0], mask=[False, True])
        state = env.get_state()
    with forked([CountingEnv] * 2, num_workers=2) as env:
        env.set_state(state)
        assert env.step([0, 0]).is_last()[0]
        assert env.repaired.tolist() == [True, False]
        assert kinds(list(env.current_losses().values())) == [(0, "crashed")]


def test_a_failure_that_is_raised_is_a_loss():
    makers = [CountingEnv] * 2
    with forked(makers, num_workers=2) as env:
        env.reset()
        kill_worker(env)
        with pytest.raises(WorkerCrashed):
            env.step([0, 0])
        assert kinds(env.losses()) == [(0, "crashed")]


def test_an_environment_lost_between_episodes_is_no_loss():
    short = functools.partial(CountingEnv, steps_per_episode=1)
    with forked([short, CountingEnv], num_workers=2, on_worker_failure=POLICY) as env:
        env.reset()
        assert env.step([0, 0]).is_last().tolist() == [True, False]
        kill_worker(env)
        while not env.statistics().restarts:
            env.step([0, 0], mask=[False, True])
        assert env.step([0, 0]).is_first()[0]
        assert env.losses() == []


def test_an_environment_that_recovers_is_no_loss():
    policy = RestartPolicy(recover="replay", backoff=0)
    with forked([CountingEnv] * 2, num_workers=2, on_worker_failure=policy) as env:
        env.reset()
        kill_worker(env)
        assert env.step([0, 0]).observation.tolist() == [1, 1]
        assert env.losses() == []


def test_a_loss_is_listed_even_if_its_row_is_reset_before_it_is_stepped():
    with forked([CountingEnv] * 2, num_workers=2, on_worker_failure=POLICY) as env:
        env.reset()
        kill_worker(env)
        env.step([0, 0], mask=[False, True])
        while not env.statistics().restarts:
            env.step([0, 0], mask=[False, True])
        env.reset([True, False])
        assert kinds(env.losses()) == [(0, "crashed")]
        assert not env.repaired.any()


def test_wrappers_and_blocking_pass_losses_on():
    makers = [functools.partial(CrashingEnv, crash_at=1, how="exit"), CountingEnv]
    pool = forked_async(makers, num_workers=2, on_worker_failure=POLICY)
    with TimeLimit(FrameStack(Blocking(pool), 2), 20) as env:
        env.reset()
        env.step([0, 0])
        assert env.repaired.tolist() == [True, False]
        assert kinds(list(env.current_losses().values())) == [(0, "crashed")]
        assert kinds(env.losses()) == [(0, "crashed")]


@pytest.mark.parametrize("order", ["next_step", "same_step"])
def test_a_wrapper_with_an_order_of_its_own_passes_losses_on(order):
    makers = [functools.partial(CrashingEnv, crash_at=1, how="exit"), CountingEnv]
    pool = forked(makers, num_workers=2, on_worker_failure=POLICY)
    with TimeLimit(pool, 20) as env:
        env.autoreset = order
        env.reset()
        assert env.step([0, 0]).step_type.tolist() == [2, 1]
        assert env.repaired.tolist() == [True, False]
        assert list(env.current_losses()) == [0]


def test_environments_that_lose_nothing_say_so():
    batch = BatchedPyEnvironment([CountingEnv(), CountingEnv()])
    assert batch.repaired.tolist() == [False, False]
    assert batch.losses() == [] == CountingEnv().losses()
    assert CountingEnv().repaired.shape == ()


def test_an_environment_may_have_attributes_of_these_names():
    class Robot(CountingEnv):
        def __init__(self):
            super().__init__()
            self.repaired = "yesterday"

    assert Robot().repaired == "yesterday"


@pytest.mark.parametrize("how", ["exit", "raise"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_reset_that_is_lost_still_begins_the_episode_of_its_seed(
    troubled, how, times
):
    with troubled(forked, how, times) as env:
        time_step = env.reset(seed=[5, 6], options={"add": 10})
        assert time_step.observation.tolist() == [first_of(5, 10), first_of(6, 10)]
        assert {kind for _, kind in kinds(env.losses())} == {
            "crashed" if how == "exit" else "reset_failed"
        }
        assert not env.repaired.any()


@pytest.mark.parametrize("how", ["exit", "raise"])
def test_the_reset_after_a_lost_step_begins_the_episode_of_its_seed(tmp_path, how):
    maker = functools.partial(SecondStepEnv, tmp_path, how)
    with forked([maker] * 2, num_workers=1, on_worker_failure=POLICY) as env:
        env.reset(seed=[3, 4])
        env.step([0, 0])
        env.step([0, 0])
        assert env.repaired.all()
        time_step = env.reset(seed=[5, 6], options={"add": 10})
        assert time_step.observation.tolist() == [first_of(5, 10), first_of(6, 10)]


@pytest.mark.parametrize("how", ["exit", "raise"])
def test_the_asynchronous_reset_after_a_lost_step_begins_the_episode_of_its_seed(
    tmp_path, how
):
    maker = functools.partial(SecondStepEnv, tmp_path, how)
    with forked_async([maker], on_worker_failure=POLICY) as env:
        env.reset_async(seed=[3])
        env.recv()
        for _ in range(2):
            env.send([0], [0])
            env.recv()
        assert env.repaired.all()
        env.reset_async(seed=[5], options={"add": 10})
        assert env.recv().time_step.observation.tolist() == [first_of(5, 10)]


@pytest.mark.parametrize("how", ["exit", "raise"])
def test_a_seed_given_before_the_first_step_survives_the_loss(troubled, how):
    with troubled(forked, how, 2) as env:
        env.seed([5, 6])
        time_step = env.step([0, 0])
        assert time_step.observation.tolist() == [first_of(5), first_of(6)]


@pytest.mark.parametrize("how", ["exit", "raise"])
def test_an_asynchronous_reset_that_is_lost_begins_the_episode_of_its_seed(
    troubled, how
):
    with troubled(forked_async, how, 3) as env:
        env.reset_async(seed=[5, 6], options={"add": 10})
        firsts = {}
        while len(firsts) < 2:
            batch = env.recv(1)
            firsts[int(batch.env_ids[0])] = int(batch.time_step.observation[0])
        assert firsts == {0: first_of(5, 10), 1: first_of(6, 10)}


@pytest.mark.parametrize("how", ["exit", "raise"])
def test_one_environment_that_is_lost_in_a_reset_begins_the_episode_of_its_seed(
    tmp_path, how
):
    maker = functools.partial(DrawingEnv, tmp_path, how)
    with ProcessPyEnvironment(
        maker, start_method="fork", on_worker_failure=POLICY
    ) as env:
        for number in range(2):
            (tmp_path / str(number)).touch()
        first = env.reset(seed=5, options={"add": 10})
        assert first.observation == first_of(5, 10)


@pytest.mark.parametrize("make", [forked, forked_async])
def test_seeds_and_options_wait_for_a_worker_that_is_replaced(make, tmp_path):
    maker = functools.partial(DrawingEnv, tmp_path, "exit")
    with make([maker] * 2, num_workers=2, on_worker_failure=POLICY) as env:

        def begin():
            if make is forked:
                return env.reset(seed=[5, 6], options={"add": 10}).observation.tolist()
            env.reset_async(seed=[5, 6], options={"add": 10})
            batch = env.recv()
            firsts = dict(zip(batch.env_ids, batch.time_step.observation, strict=True))
            return [firsts[0], firsts[1]]

        for _ in range(2):
            assert begin() == [first_of(5, 10), first_of(6, 10)]
            kill_worker(env)


def test_a_reset_that_always_fails_raises_when_the_restarts_are_used_up(tmp_path):
    for number in range(100):
        (tmp_path / str(number)).touch()
    maker = functools.partial(DrawingEnv, tmp_path, "raise")
    policy = RestartPolicy(max_restarts=3, within=None, backoff=0)
    with forked([maker], num_workers=1, on_worker_failure=policy) as env:
        with pytest.raises(EnvironmentRaised):
            env.reset(seed=[5])
        assert len(env.losses()) == 4


def pool_that_loses(count=2):
    makers = [functools.partial(CrashingEnv, crash_at=2, how="exit")]
    return forked(
        makers + [CountingEnv] * (count - 1),
        num_workers=count,
        on_worker_failure=POLICY,
    )


@pytest.mark.parametrize("order", ["next_step", "same_step"])
def test_losses_inside_an_environment_of_a_pool_are_those_of_its_rows(backend, order):
    with forked([pool_that_loses] * 2, backend=backend, autoreset=order) as env:
        env.reset()
        env.step([0] * 4)
        assert not env.repaired.any()
        assert env.step([0] * 4).step_type.tolist() == [2, 1, 2, 1]
        assert env.repaired.tolist() == [True, False, True, False]
        assert {row: loss.kind for row, loss in env.current_losses().items()} == {
            0: "crashed",
            2: "crashed",
        }
        assert sorted(kinds(env.losses())) == [(0, "crashed"), (2, "crashed")]
        env.step([0] * 4)
        assert not env.repaired.any()
        assert env.losses() == []


def test_an_environment_in_a_process_of_its_own_tells_its_losses():
    make = functools.partial(CrashingEnv, crash_at=1, how="exit")
    with ProcessPyEnvironment(
        make, start_method="fork", on_worker_failure=POLICY
    ) as env:
        env.reset()
        assert not env.repaired
        env.step(0)
        assert env.repaired
        assert env.current_losses()[0].kind == "crashed"
        assert kinds(env.losses()) == [(0, "crashed")]


def test_a_real_time_environment_tells_what_its_process_has_lost():
    make = functools.partial(CrashingEnv, crash_at=3, how="exit")
    with RealTimeEnvironment(
        make, hz=500, host="process", worker_options={"on_worker_failure": POLICY}
    ) as env:
        time_step = env.reset()
        while not env.repaired:
            time_step = env.step(0)
        assert time_step.is_last()
        assert time_step.discount == 1
        assert env.current_losses()[0].kind == "crashed"
