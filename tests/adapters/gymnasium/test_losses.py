"""Lost episodes are told apart on the way to Gymnasium, and on the way back."""

from __future__ import annotations

import functools
import os
import signal

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers import Autoreset, RecordEpisodeStatistics, TimeLimit
from gymnasium.wrappers.vector import NormalizeReward
from gymnasium.wrappers.vector import (
    RecordEpisodeStatistics as RecordVectorStatistics,
)

from envkit import (
    BatchedPyEnvironment,
    Loss,
    ParallelPyEnvironment,
    ProcessPyEnvironment,
    RestartPolicy,
)
from envkit import wrappers as our
from envkit.adapters import (
    GymnasiumVectorWrapper,
    GymnasiumWrapper,
    PyToGymnasium,
    PyToGymnasiumVector,
    vectorize,
)
from envkit.errors import EnvironmentRaised, WorkerCrashed
from envkit.testing import CountingEnv, CrashingEnv

POLICY = RestartPolicy(max_restarts=50, backoff=0)
MODES = ["NextStep", "SameStep", "Disabled"]
INFOS = ["all", "final", "none"]


def crashing(at=2, how="raise"):
    return functools.partial(CrashingEnv, crash_at=at, how=how)


def pool_that_loses(how="raise", backend="inline"):
    return ParallelPyEnvironment(
        [crashing(how=how), CountingEnv],
        num_workers=2,
        backend=backend,
        on_worker_failure=POLICY,
    )


def started(make, backend="inline"):
    env = ProcessPyEnvironment(make, backend=backend, on_worker_failure=POLICY)
    env.start()
    return env


def single(at=2):
    """Makes an environment for Gymnasium that loses its own in the second step."""
    return PyToGymnasium(started(crashing(at)))


def short():
    return PyToGymnasium(CountingEnv(steps_per_episode=2))


def until_its_end(env, limit=9):
    env.reset(seed=1)
    for _ in range(limit):
        result = env.step(0)
        if result[2] or result[3]:
            return result
    raise AssertionError("the episode has no end")


def ends(envs, steps=6):
    """Steps two rows, and returns each lost row's infos, and how its episode ended."""
    envs.reset(seed=[1, 2])
    found = []
    for _ in range(steps):
        _, rewards, terminated, truncated, infos = envs.step(np.zeros(2, np.int64))
        over = terminated | truncated
        lost = infos.get("final_info", infos)
        if "loss" in lost:
            assert lost["repaired"].tolist() == lost["_repaired"].tolist()
            assert lost["_loss"].tolist() == lost["_repaired"].tolist()
            for row in lost["_loss"].nonzero()[0].tolist():
                flags = bool(terminated[row]), bool(truncated[row])
                found.append((row, lost["loss"][row], flags, float(rewards[row])))
        if envs.metadata["autoreset_mode"].value == "Disabled" and over.any():
            envs.reset(options={"reset_mask": over})
    envs.close()
    return found


def expect_losses(found, kind="raised"):
    assert found
    for row, loss, flags, reward in found:
        assert (row, flags, reward) == (0, (False, True), 0.0)
        assert isinstance(loss, Loss)
        assert (loss.row, loss.kind) == (0, kind)
        assert isinstance(
            loss.error, {"raised": EnvironmentRaised}.get(kind, WorkerCrashed)
        )


def test_a_single_environment_truncates_a_lost_episode_and_says_so():
    env = PyToGymnasium(started(crashing(how="exit"), "process"))
    observation, reward, terminated, truncated, info = until_its_end(env)
    assert (int(observation), reward, terminated, truncated) == (1, 0.0, False, True)
    assert info.keys() == {"repaired", "loss"}
    assert info["repaired"] is True
    assert (info["loss"].row, info["loss"].kind) == (0, "crashed")
    _, info = env.reset()
    assert info == {}
    env.close()


def test_the_end_of_a_complete_episode_has_no_mark():
    assert until_its_end(short())[4] == {}


def test_gymnasiums_wrappers_pass_the_mark_of_a_single_environment_on():
    env = RecordEpisodeStatistics(TimeLimit(single(), 5))
    *_, terminated, truncated, info = until_its_end(env)
    assert (terminated, truncated) == (False, True)
    assert info["repaired"] is True
    assert info["loss"].kind == "raised"
    # Gymnasium counts the episode, and the mark beside it says to leave it out.
    assert info["episode"]["l"] == 2
    env.close()


def test_gymnasiums_autoreset_continues_after_a_lost_episode():
    env = Autoreset(single())
    assert until_its_end(env)[4]["repaired"] is True
    observation, _, terminated, truncated, info = env.step(0)
    assert (int(observation), terminated, truncated) == (0, False, False)
    assert "repaired" not in info
    assert not env.step(0)[3]
    assert env.step(0)[4]["repaired"] is True
    env.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("infos", INFOS)
def test_a_vector_environment_truncates_a_lost_episode_and_says_so(mode, infos):
    envs = PyToGymnasiumVector(pool_that_loses(), mode, infos=infos)
    expect_losses(ends(envs))


@pytest.mark.parametrize("mode", MODES)
def test_a_wrapped_pool_tells_gymnasium_what_it_has_lost(mode):
    envs = PyToGymnasiumVector(our.TimeLimit(pool_that_loses(), 20), mode)
    expect_losses(ends(envs))


def test_a_dead_worker_is_told_to_gymnasium():
    envs = PyToGymnasiumVector(pool_that_loses("exit", "process"))
    expect_losses(ends(envs), "crashed")


@pytest.mark.parametrize("mode", MODES)
def test_vectorize_tells_gymnasium_what_it_has_lost(mode):
    envs = vectorize(
        [crashing(), CountingEnv],
        backend="inline",
        num_workers=2,
        on_worker_failure=POLICY,
        autoreset_mode=mode,
    )
    expect_losses(ends(envs))


@pytest.mark.parametrize("mode", MODES)
def test_vectorize_passes_on_what_its_environments_have_lost(mode):
    envs = vectorize(
        [single, short], backend="inline", num_workers=1, autoreset_mode=mode
    )
    expect_losses(ends(envs))


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_gymnasiums_own_workers_pass_the_mark_on(mode):
    envs = AsyncVectorEnv([single, short], autoreset_mode=mode)
    expect_losses(ends(envs))


def test_vector_statistics_of_a_lost_episode_have_the_mark_beside_them():
    envs = RecordVectorStatistics(PyToGymnasiumVector(pool_that_loses()))
    envs.reset(seed=[1, 2])
    envs.step(np.zeros(2, np.int64))
    *_, infos = envs.step(np.zeros(2, np.int64))
    assert infos["_episode"].tolist() == [True, False]
    assert (infos["_episode"] & infos["_repaired"]).tolist() == [True, False]
    envs.close()


def test_our_statistics_do_not_count_a_lost_episode_for_gymnasium():
    envs = PyToGymnasiumVector(our.RecordEpisodeStatistics(pool_that_loses()))
    envs.reset(seed=[1, 2])
    counted = []
    for _ in range(12):
        *_, infos = envs.step(np.zeros(2, np.int64))
        if "episode" in infos:
            counted.append((infos["_episode"].tolist(), infos["episode"]["l"].tolist()))
    assert counted == [([False, True], [0, 10])]
    envs.close()


def test_gymnasiums_normalized_reward_leaves_the_mark_in_place():
    envs = NormalizeReward(PyToGymnasiumVector(pool_that_loses()))
    expect_losses(ends(envs))


@pytest.mark.parametrize("make", [single, lambda: RecordEpisodeStatistics(single())])
def test_a_mark_survives_the_way_through_gymnasium_and_back(make):
    with GymnasiumWrapper(make()) as env:
        env.reset()
        assert not env.step(0).is_last()
        assert not env.repaired
        time_step = env.step(0)
        assert time_step.is_last()
        assert time_step.discount == 1
        assert env.repaired
        assert env.repaired.shape == ()
        assert env.current_losses()[0].kind == "raised"
        assert env.get_info().keys().isdisjoint(["repaired", "loss"])
        assert [loss.kind for loss in env.losses()] == ["raised"]
        env.step(0)
        assert not env.repaired
        assert env.losses() == []


def wrapped_single():
    return GymnasiumWrapper(single(3))


def wrapped_short():
    return GymnasiumWrapper(short())


@pytest.mark.parametrize("order", ["next_step", "same_step"])
@pytest.mark.parametrize("backend", ["inline", "process"])
def test_a_pool_tells_what_an_environment_inside_gymnasium_has_lost(backend, order):
    with ParallelPyEnvironment(
        [wrapped_single, wrapped_short], backend=backend, autoreset=order
    ) as env:
        env.reset()
        lost = []
        for step in range(12):
            time_step = env.step([0, 0])
            if env.repaired.any():
                assert env.repaired.tolist() == [True, False]
                assert time_step.is_last()[0]
                assert env.current_losses()[0].kind == "raised"
                lost.append(step)
        # A FIRST takes a step of its own under NEXT_STEP.
        assert lost == ([2, 6, 10] if order == "next_step" else [2, 5, 8, 11])
        assert len(env.losses()) == len(lost)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_a_vector_environment_of_gymnasium_reports_losses(kind, mode):
    envs = kind([single, short], autoreset_mode=mode)
    with GymnasiumVectorWrapper(envs) as env:
        env.reset()
        env.step([0, 0])
        assert not env.repaired.any()
        time_step = env.step([0, 0])
        assert time_step.is_last().tolist() == [True, True]
        assert time_step.observation.tolist() == [1, 2]
        assert env.repaired.tolist() == [True, False]
        assert [(row, loss.kind) for row, loss in env.current_losses().items()] == [
            (0, "raised")
        ]
        infos = env.get_info()
        for info in [infos] if isinstance(infos, dict) else infos:
            assert info.keys().isdisjoint(["repaired", "loss"])
        env.step([0, 0])
        assert not env.repaired.any()
        assert [(loss.row, loss.kind) for loss in env.losses()] == [(0, "raised")]
        assert env.losses() == []


class Repairs(gymnasium.Env):
    """Has infos of these names that mean something else."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 1, 1.0, True, False, {"repaired": True, "loss": 0.5}


@pytest.mark.parametrize("mode", MODES)
def test_infos_of_the_same_names_are_no_losses(mode):
    with GymnasiumWrapper(Repairs()) as env:
        env.reset()
        env.step(0)
        assert not env.repaired
        assert env.get_info()["loss"] == 0.5
    with GymnasiumVectorWrapper(
        SyncVectorEnv([Repairs] * 2, autoreset_mode=mode)
    ) as env:
        env.reset()
        env.step([0, 0])
        assert not env.repaired.any()
        assert env.get_info()["loss"].tolist() == [0.5, 0.5]


def test_a_dead_worker_of_gymnasium_is_an_error_and_no_end():
    envs = AsyncVectorEnv([short, short])
    env = GymnasiumVectorWrapper(envs)
    env.reset()
    os.kill(envs.processes[0].pid, signal.SIGKILL)
    envs.processes[0].join()
    with pytest.raises((EOFError, OSError)):
        env.step([0, 0])
    envs.close(terminate=True)


class GymnasiumWorkerDies:
    """Makes an `AsyncVectorEnv` of which a worker dies in the third step."""

    def __call__(self):
        envs = AsyncVectorEnv([short_and_deadly, short])
        return GymnasiumVectorWrapper(envs)


class Deadly(CountingEnv):
    def _step(self, action):
        if self._current_time_step.observation == 1:
            os._exit(1)
        return super()._step(action)


def short_and_deadly():
    return PyToGymnasium(Deadly())


def test_a_pool_lists_a_dead_worker_of_gymnasium_as_a_loss():
    with ParallelPyEnvironment(
        [GymnasiumWorkerDies()], num_workers=1, on_worker_failure=POLICY
    ) as env:
        env.reset()
        env.step([0, 0])
        assert not env.repaired.any()
        time_step = env.step([0, 0])
        assert time_step.is_last().all()
        assert env.repaired.all()
        assert {(loss.row, loss.kind) for loss in env.losses()} == {
            (0, "raised"),
            (1, "raised"),
        }


def test_batches_of_environments_that_lose_tell_gymnasium():
    batch = BatchedPyEnvironment([started(crashing()), started(CountingEnv)])
    expect_losses(ends(PyToGymnasiumVector(batch)))
