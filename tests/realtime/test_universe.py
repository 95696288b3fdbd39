"""Environments as OpenAI Universe's clients know them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from envkit import (
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    ParallelPyEnvironment,
    PyEnvironment,
    nest,
)
from envkit.envs import CartPole
from envkit.realtime import RealTimeEnvironment, universe_view
from envkit.testing import CountingEnv, NestedCountingEnv

EPISODE = 10  # By so much the observations of an episode of CountingEnv are higher.


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
    seen = []
    while len(seen) < 3:
        step = view.step([0, 0])
        seen += [step] if step[0][1] is not None else []
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


@pytest.mark.parametrize("rows", [1, 3])
def test_a_step_returns_at_once_while_all_rows_are_resetting(rows, pools):
    gate = threading.Event()

    class Slow(CountingEnv):
        def _reset(self):
            gate.wait()
            return super()._reset()

    pool = pools(*[Slow] * rows, backend="thread", num_workers=rows)
    view = universe_view(pool)
    nothing = [None] * rows
    seen = [view.reset(), *(view.step(nothing)[0] for _ in range(3))]
    *_, rewards, dones, info = view.step(nothing)
    gate.set()
    observations = view.step(nothing)[0]
    while None in observations:
        observations = view.step([0] * rows)[0]

    assert [nothing] * 4 == seen
    assert ([0.0] * rows, [False] * rows) == (rewards, dones)
    assert [("resetting", True, True)] * rows == [
        (
            one["env_status.env_state"],
            one["mask.masked.action"],
            one["mask.masked.observation"],
        )
        for one in info["n"]
    ]
    assert rows == len(observations)


def test_the_action_of_a_resetting_row_may_be_anything(pools):
    def short():
        return NestedCountingEnv(1, nested_action=True)

    def longer():
        return NestedCountingEnv(9, nested_action=True)

    for env in (
        pools(short, longer),
        BatchedPyEnvironment([short(), longer()], False),
    ):
        view = universe_view(env)
        action = nest.map_structure(lambda spec: spec.minimum, env.action_spec())
        view.reset()
        view.step([None, []])
        dones = view.step([action, action])[2]
        observations, *_, info = view.step([None, action])

        assert [True, False] == dones
        assert None not in observations
        assert info["n"][0]["mask.masked.action"]


def test_with_wait_no_observation_is_none(pools):
    def short():
        return CountingEnv(1)

    for env in (pools(short, CountingEnv), counters(1, 9)):
        view = universe_view(env, wait=True)
        first = view.reset()
        observations, rewards, dones, info = view.step([0, 0])

        assert [0, 0] == first
        assert ([EPISODE, 1], [True, False]) == (observations, dones)
        assert [1.0, 0.0] == rewards
        assert ["2", "1"] == [one["env_status.episode_id"] for one in info["n"]]
        assert ["running"] * 2 == [one["env_status.env_state"] for one in info["n"]]
        assert "1" == info["n"][0]["env_status.complete.episode_id"]
        assert not any("mask.masked.observation" in one for one in info["n"])
        assert [2 * EPISODE, 2] == view.step([0, 0])[0]


def test_with_wait_a_slow_reset_is_waited_for_and_the_others_stand_still(pools):
    gate = threading.Event()

    class Slow(CountingEnv):
        begun = False

        def _reset(self):
            if self.begun:
                gate.wait()
            self.begun = True
            return super()._reset()

    def slow():
        return Slow(1)

    pool = pools(slow, CountingEnv, backend="thread", num_workers=2)
    view = universe_view(pool, wait=True)
    view.reset()
    opener = threading.Thread(target=gate.set)
    opener.start()
    observations, *_ = view.step([0, 0])
    opener.join()

    assert [EPISODE, 1] == observations


def test_with_wait_a_single_environment_goes_from_episode_to_episode():
    view = universe_view(CountingEnv(2), wait=True)
    seen = [view.reset(), *(view.step([0])[0] for _ in range(4))]
    assert [[0], [1], [EPISODE], [EPISODE + 1], [2 * EPISODE]] == seen


def test_spaces_are_those_of_a_row():
    view = universe_view(CartPole(batch_size=3))
    action, observation = view.action_space, view.observation_space
    view.reset()
    observations, *_ = view.step([action.sample() for _ in range(3)])

    assert (2, 0, (), np.int64) == (action.n, action.start, action.shape, action.dtype)
    assert [True, True, False, False] == [
        action.contains(x) for x in (0, np.int32(1), 2, None)
    ]
    assert ((4,), (4,)) == (observation.shape, observation.low.shape)
    assert (observation.low == -observation.high).all()
    assert all(one in observation for one in observations)
    assert not hasattr(observation, "n")
    assert not hasattr(action, "spaces")


def test_samples_of_a_space_depend_on_its_seed():
    space = universe_view(CartPole()).action_space
    draws = []
    for seed in (5, 5, 6):
        space.seed(seed)
        draws.append([int(space.sample()) for _ in range(40)])
    assert (True, False) == (draws[0] == draws[1], draws[0] == draws[2])


def test_a_space_of_several_arrays_has_a_space_for_each():
    space = universe_view(NestedCountingEnv()).observation_space
    sample = space.sample()
    key = next(iter(space.spaces))

    assert (None, None) == (space.shape, space.dtype)
    assert space.contains(sample)
    assert not space.contains({})
    assert space[key].contains(sample[key])
    assert not hasattr(space, "low")
    assert repr(space).startswith("RowSpace({")


def test_a_picture_of_the_first_row_is_rendered_and_kept_while_it_resets(pools):
    gate = threading.Event()

    class Drawn(CountingEnv):
        begun = False

        def _reset(self):
            if self.begun:
                gate.wait()
            self.begun = True
            return super()._reset()

        def render(self, mode="rgb_array"):
            return np.full((2, 3, 3), int(self._observe()), np.uint8)

    def short():
        return Drawn(1)

    pool = pools(short, Drawn, backend="thread", num_workers=2)
    view = universe_view(pool)
    view.reset()
    nothing = view.render()
    while view.step([0, 0])[0][0] is None:
        pass
    pictures = [view.render()]
    view.step([0, 0])
    pictures.append(view.render())
    gate.set()

    assert nothing is None
    assert [0, 0] == [int(picture.max()) for picture in pictures]
    assert (2, 3, 3) == pictures[1].shape


def test_rows_that_move_together_and_single_ones_are_rendered_too(pools):
    for env in (CartPole(batch_size=2), CartPole(), pools(CartPole, CartPole)):
        view = universe_view(env)
        view.reset()
        view.step([0] * view.n)
        assert (3, np.uint8) == (view.render().ndim, view.render().dtype)


def test_what_cannot_be_rendered_says_so(pools):
    class Blind(CountingEnv):
        render = PyEnvironment.render

    for env in (Blind(), pools(Blind)):
        view = universe_view(env)
        view.reset()
        view.step([0])
        with pytest.raises(NotImplementedError):
            view.render()


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


def test_observations_belong_to_the_caller():
    view = universe_view(CartPole(batch_size=2))
    view.reset()
    first, *_ = view.step([0, 0])
    kept = first[0].copy()
    view.step([0, 0])

    np.testing.assert_array_equal(kept, first[0])
