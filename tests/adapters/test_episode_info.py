"""What episodes came to has the names of Gymnasium where an info leaves envkit."""

from __future__ import annotations

import functools
from contextlib import closing

import numpy as np
import pytest

from envkit import BatchedPyEnvironment, ParallelPyEnvironment
from envkit.adapters import PyToGymnasium, PyToGymnasiumVector, vectorize
from envkit.adapters.rllib import to_rllib
from envkit.envs import Catch
from envkit.testing import CountingEnv
from envkit.wrappers import RecordEpisodeStatistics

# An episode of Catch with three rows has two steps.
ROWS = 3


def counted(rows=ROWS):
    return RecordEpisodeStatistics(Catch(rows=rows))


def of_ends(seen):
    return [None if one is None else (one["l"], sorted(one)) for one in seen]


def test_a_single_environment_reports_an_episode_at_its_end():
    env = PyToGymnasium(counted())
    _, began = env.reset(seed=7)
    infos = [began, env.step(1)[-1], env.step(1)[-1]]
    env.reset()
    infos.append(env.step(1)[-1])

    assert [None, None, (2, ["l", "r", "t"]), None] == of_ends(
        info.get("episode") for info in infos
    )
    episode = infos[2]["episode"]
    assert [float, int, float] == [type(episode[name]) for name in "rlt"]


def test_entries_under_another_key_are_renamed():
    env = PyToGymnasium(RecordEpisodeStatistics(Catch(rows=ROWS), stats_key="mine"))
    env.reset()
    env.step(1)
    assert ["l", "r", "t"] == sorted(env.step(1)[-1]["mine"])


def in_one_batch():
    return RecordEpisodeStatistics(Catch(rows=ROWS, batch_size=2))


def around_environments():
    return RecordEpisodeStatistics(
        BatchedPyEnvironment([Catch(rows=ROWS), Catch(rows=ROWS)])
    )


def in_a_batch():
    return BatchedPyEnvironment([counted(), counted()])


def around_a_pool():
    pool = ParallelPyEnvironment([lambda: Catch(rows=ROWS)] * 2, num_workers=1)
    return RecordEpisodeStatistics(pool)


def in_workers():
    return ParallelPyEnvironment([counted] * 2, num_workers=1)


BATCHES = [in_one_batch, around_environments, in_a_batch, around_a_pool, in_workers]


def make_rllib():
    return to_rllib(counted, backend="inline")({"num_envs": 2})


def make_vectorized(**more):
    return vectorize([lambda: PyToGymnasium(counted())] * 2, num_workers=1, **more)


VECTORS = [
    *[lambda kind=kind: PyToGymnasiumVector(kind()) for kind in BATCHES],
    make_vectorized,
    make_rllib,
]
NAMES = [*[kind.__name__ for kind in BATCHES], "vectorize", "to_rllib"]


@pytest.mark.parametrize("make", VECTORS, ids=NAMES)
def test_a_vector_reports_episodes_of_ended_rows(make):
    with closing(make()) as envs:
        _, began = envs.reset(seed=7)
        infos = [began, *(envs.step(np.ones(2, int))[-1] for _ in range(4))]

    assert [False, False, True, False, False] == ["episode" in one for one in infos]
    episode = infos[2]["episode"]
    assert [2, 2] == episode["l"].tolist()
    assert [True, True] == infos[2]["_episode"].tolist()
    assert {"r", "l", "t"} <= episode.keys() <= {"r", "l", "t", "_r", "_l", "_t"}


@pytest.mark.parametrize(
    "make",
    [
        *[
            lambda kind=kind: PyToGymnasiumVector(kind(), "SameStep")
            for kind in BATCHES
        ],
        functools.partial(make_vectorized, autoreset_mode="SameStep"),
    ],
    ids=NAMES[:-1],
)
def test_same_step_puts_the_episode_into_final_info(make):
    with closing(make()) as envs:
        envs.reset(seed=7)
        envs.step(np.ones(2, int))
        infos = envs.step(np.ones(2, int))[-1]

    assert [2, 2] == infos["final_info"]["episode"]["l"].tolist()
    assert "episode" not in infos


def test_running_rows_are_masked_out():
    batch = BatchedPyEnvironment([CountingEnv(2), CountingEnv(3)])
    envs = PyToGymnasiumVector(RecordEpisodeStatistics(batch))
    envs.reset()
    envs.step(np.zeros(2, int))
    infos = envs.step(np.zeros(2, int))[-1]

    assert ([2, 0], [True, False]) == (
        infos["episode"]["l"].tolist(),
        infos["_episode"].tolist(),
    )
