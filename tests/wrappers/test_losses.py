"""What wrappers do when an environment inside them is lost."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from envkit import (
    AutoReset,
    ParallelPyEnvironment,
    ProcessPyEnvironment,
    RestartPolicy,
    nest,
)
from envkit.base_wrapper import PyEnvironmentBaseWrapper
from envkit.specs.sampling import sample_spec_nest
from envkit.testing import CountingEnv, CrashingEnv
from envkit.wrappers import (
    EpisodeLimit,
    NormalizeObservation,
    NormalizeReward,
    RebuildAfter,
    RecordEpisodeStatistics,
    RecordVideo,
    RunStats,
    StandbyEnvironment,
)
from tests.wrappers.all_cases import CASES
from tests.wrappers.environments import ENVIRONMENTS

ROWS = 2
POLICY = RestartPolicy(max_restarts=100, backoff=0)


class Fuse:
    """Makes the environment of row 0 fail in its next step."""

    is_lit = has_blown = False


class Failing(PyEnvironmentBaseWrapper):
    def __init__(self, name):
        super().__init__(ENVIRONMENTS[name](None))

    def _step(self, action):
        if Fuse.is_lit:
            Fuse.is_lit, Fuse.has_blown = False, True
            raise RuntimeError("this environment is lost")
        return super()._step(action)


def pool_of(name):
    makers = [functools.partial(Failing, name)]
    makers += [functools.partial(ENVIRONMENTS[name], None)] * (ROWS - 1)
    return ParallelPyEnvironment(makers, backend="inline", on_worker_failure=POLICY)


def batched_actions(env):
    spec, rng = env.action_spec(), np.random.default_rng(3)
    while True:
        rows = [sample_spec_nest(spec, rng) for _ in range(ROWS)]
        yield nest.map_structure(lambda *leaves: np.stack(leaves), *rows)


CASES_OF_BATCHES = [
    pytest.param(case, name, id=f"{case.name}-{name}")
    for case in CASES
    if case.batched
    for name in case.environments[:1]
]


@pytest.mark.parametrize("order", ["next_step", "same_step"])
@pytest.mark.parametrize(("case", "name"), CASES_OF_BATCHES)
def test_a_wrapper_marks_a_made_up_last_and_nothing_else(case, name, order):
    marked = tries = 0
    with case.wrap(pool_of(name)) as env:
        if order == "same_step":
            env.autoreset = AutoReset.SAME_STEP
        env.seed([1, 2])
        env.reset()
        for _, action in zip(range(30), batched_actions(env), strict=False):
            before = env.current_time_step()
            Fuse.has_blown = False
            # Not where an episode is to begin, with steps of the wrapper's own.
            is_amid = before.step_type[0] != 2
            tries += is_amid
            Fuse.is_lit = bool(is_amid and tries % 2 == 0)
            time_step = env.step(action)
            lost = env.repaired
            if Fuse.has_blown:
                marked += 1
                assert time_step.step_type[0] == 2
                assert lost.tolist() == [True, False]
                assert env.current_losses()[0].kind == "raised"
            elif lost.any():
                # Only padding repeats it.
                assert env.repeats_last
                assert before.step_type[0] == 2 == time_step.step_type[0]
            else:
                assert env.current_losses() == {}
        assert marked
        assert len(env.losses()) == marked


def pool_that_loses(at=2, steps_per_episode=4, autoreset="next_step"):
    """Makes a pool whose row 0 is lost in every second step."""
    make = functools.partial(CrashingEnv, at, steps_per_episode=steps_per_episode)
    short = functools.partial(CountingEnv, steps_per_episode)
    return ParallelPyEnvironment(
        [make, short],
        backend="inline",
        on_worker_failure=POLICY,
        autoreset=autoreset,
    )


ORDERS = pytest.mark.parametrize("order", ["next_step", "same_step"])


@ORDERS
def test_statistics_count_complete_episodes_only(order):
    with RecordEpisodeStatistics(RunStats(pool_that_loses(autoreset=order))) as env:
        env.reset()
        ended = []
        for _ in range(9):
            env.step([0, 0])
            ended.append(env.episode_ended.tolist())
        assert not any(first for first, _ in ended)
        assert ended[3] == [False, True]
        assert list(env.length_queue) == [4, 4]
        assert env.episodes_per_row.tolist() == [0, 2]
        assert env.resets_per_row[0] >= 3


@pytest.mark.parametrize(
    ("order", "observations", "rewards"),
    [
        ("next_step", [0, 1, 0, 0, 1, 2, 3], 4),
        ("same_step", [0, 1, 0, 1, 0, 1, 2, 3], 5),
    ],
)
def test_normalization_does_not_learn_from_a_made_up_last(order, observations, rewards):
    with NormalizeReward(
        NormalizeObservation(pool_that_loses(autoreset=order), integers=True)
    ) as env:
        env.reset()
        for _ in range(3):
            env.step([0, 0])
        seen = env.wrapped_env().statistics
        assert seen.count == len(observations)
        assert seen.mean == pytest.approx(np.mean(observations))
        assert env.statistics.count == rewards


def test_a_lost_episode_is_played_again_within_an_episode_limit():
    with EpisodeLimit(pool_that_loses(at=3, steps_per_episode=2), episodes=2) as env:
        env.reset()
        complete = np.zeros(2, int)
        while not env.is_over:
            time_step = env.step([0, 0])
            complete += time_step.is_last() & env.valid & ~env.repaired
        assert complete.tolist() == [2, 2]
        assert env.losses()


def started(make):
    env = ProcessPyEnvironment(make, backend="inline", on_worker_failure=POLICY)
    env.start()
    return env


def lost_in_its_second_step():
    return started(functools.partial(CrashingEnv, 2))


@pytest.mark.parametrize(
    "wrapper", [functools.partial(RebuildAfter, episodes=1), StandbyEnvironment]
)
def test_losses_of_environments_that_play_no_longer_are_still_listed(wrapper):
    with wrapper(lost_in_its_second_step) as env:
        env.reset()
        env.step(0)
        assert not env.repaired
        assert env.step(0).is_last()
        assert env.repaired
        assert env.step(0).is_first()
        assert not env.repaired
        assert [loss.kind for loss in env.losses()] == ["raised"]
        assert env.losses() == []


class Unready(CrashingEnv):
    """Cannot be rendered before its first reset."""

    _has_begun = False

    def _reset(self):
        self._has_begun = True
        return super()._reset()

    def render(self, mode="rgb_array"):
        if not self._has_begun:
            raise RuntimeError("there is nothing to render yet")
        return np.zeros((16, 16, 3), np.uint8)


def test_a_step_in_which_an_environment_is_lost_is_not_filmed(tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    makers = [functools.partial(Unready, 3), functools.partial(Unready, 99)]
    pool = ParallelPyEnvironment(makers, backend="inline", on_worker_failure=POLICY)
    with RecordVideo(pool, tmp_path, every=1, format="gif", rows=[0, 1]) as env:
        env.reset()
        for _ in range(3):
            time_step = env.step([0, 0])
        assert time_step.is_last()[0]
        assert len(list(tmp_path.glob("rl-video-episode-0-row-0*"))) == 1
        assert env.recording
