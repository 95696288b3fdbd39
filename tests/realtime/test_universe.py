"""Environments as OpenAI Universe's clients know them."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest

from envkit import (
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    ParallelPyEnvironment,
)
from envkit.envs import CartPole
from envkit.errors import CallOrderError, SpecError
from envkit.realtime import RealTimeEnvironment, universe_view
from envkit.testing import CountingEnv


def counters(*lengths):
    return BatchedPyEnvironment([CountingEnv(length) for length in lengths], False)


@pytest.fixture
def pools():
    """Makes asynchronous pools, and closes them."""
    made = []

    def make(*constructors, **options):
        options = {"backend": "inline", **options}
        made.append(AsyncParallelPyEnvironment(list(constructors), **options))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def test_a_reset_returns_none_for_every_row(pools):
    for env in (pools(CountingEnv, CountingEnv), counters(3, 3)):
        view = universe_view(env)

        assert [None, None] == view.reset()
        assert 2 == view.n


def test_a_step_returns_lists_with_an_entry_for_each_row(pools):
    for env in (pools(CountingEnv, CountingEnv), counters(9, 9)):
        view = universe_view(env)
        view.reset()
        view.step([0, 0])
        observations, rewards, dones, info = view.step([0, 0])

        assert ([1, 1], [0.0, 0.0], [False, False]) == (observations, rewards, dones)
        assert ["running", "running"] == [
            one["env_status.env_state"] for one in info["n"]
        ]


def test_the_end_of_an_episode_is_done_and_its_observation_is_in_the_info(pools):
    def short():
        return CountingEnv(1)

    for env in (pools(short, CountingEnv), counters(1, 9)):
        view = universe_view(env)
        view.reset()
        view.step([0, 0])
        observations, _, dones, info = view.step([0, 0])

        assert [None, 1] == observations
        assert [True, False] == dones
        assert 1 == info["n"][0]["env_status.complete.observation"]
        assert 0.0 == info["n"][0]["env_status.complete.discount"]
        assert "1" == info["n"][0]["env_status.complete.episode_id"]
        assert info["n"][0]["mask.masked.observation"]
        assert "mask.masked.observation" not in info["n"][1]


def test_a_row_that_is_done_begins_by_itself(pools):
    def short():
        return CountingEnv(1)

    for env in (pools(short), counters(1)):
        view = universe_view(env)
        view.reset()
        steps = [view.step([0]) for _ in range(4)]

        assert [False, True, False, True] == [dones[0] for _, _, dones, _ in steps]
        assert ["1", "1", "2", "2"] == [
            info["n"][0]["env_status.episode_id"] for *_, info in steps
        ]
        assert steps[2][3]["n"][0]["mask.masked.action"]


def test_a_slow_reset_shows_none_while_others_go_on(pools):
    gate = threading.Event()

    class Slow(CountingEnv):
        def _reset(self):
            gate.wait()
            return super()._reset()

    view = universe_view(pools(Slow, CountingEnv, backend="thread", num_workers=2))
    view.reset()
    seen = [view.step([0, 0]) for _ in range(3)]
    gate.set()
    while (last := view.step([0, 0]))[0][0] is None:
        pass

    assert [None] * 3 == [observations[0] for observations, *_ in seen]
    assert [0, 1, 2] == [int(observations[1]) for observations, *_ in seen]
    info = seen[1][3]["n"][0]
    assert ("resetting", "0") == (
        info["env_status.env_state"],
        info["env_status.episode_id"],
    )
    assert info["mask.masked.action"]
    assert "1" == last[3]["n"][0]["env_status.episode_id"]


def test_a_single_environment_is_a_view_of_one_row():
    view = universe_view(CartPole(seed=1))
    view.reset()
    view.step([0])
    observations, rewards, *_ = view.step([1])

    assert (4,) == observations[0].shape
    assert [1.0] == rewards


def test_lags_are_told_under_their_names_in_universe(pools):
    def make():
        return RealTimeEnvironment(CartPole, 10, host="virtual", think_time=0.25)

    rows = ParallelPyEnvironment([make, make], backend="inline")
    for env in (pools(make, make), rows):
        view = universe_view(env)
        view.reset()
        view.step([0, 0])
        *_, info = view.step([0, 0])
        view.close()

        for one in info["n"]:
            assert 3 == one["stats.reward.count"]
            low, high = one["stats.gauges.diagnostics.lag.action"]
            assert 0.05 == pytest.approx(low) == pytest.approx(high)
            assert 2 == one["stats.ticks.missed"]


def test_a_step_before_a_reset_is_an_error():
    with pytest.raises(CallOrderError, match=re.escape("step() was called before")):
        universe_view(counters(3)).step([0])


def test_there_is_an_action_for_every_row():
    view = universe_view(counters(3, 3))
    view.reset()
    with pytest.raises(SpecError, match="1 actions for 2 rows"):
        view.step([0])


def test_what_is_no_environment_is_refused():
    with pytest.raises(TypeError, match="universe_view takes an environment, not"):
        universe_view(CountingEnv)


def test_observations_belong_to_the_caller():
    view = universe_view(CartPole(batch_size=2))
    view.reset()
    first, *_ = view.step([0, 0])
    kept = first[0].copy()
    view.step([0, 0])

    np.testing.assert_array_equal(kept, first[0])
