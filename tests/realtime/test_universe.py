"""Environments as OpenAI Universe's clients know them."""

from __future__ import annotations

import functools
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
from envkit.errors import ClosedError
from envkit.realtime import (
    BlockingReset,
    PeekReward,
    RealTimeEnvironment,
    universe_view,
)
from envkit.testing import CountingEnv, ManualClock, NestedCountingEnv
from tests.waiting import PATIENCE

EPISODE = 10  # By so much the observations of an episode of CountingEnv are higher.


def counters(*lengths):
    return BatchedPyEnvironment([CountingEnv(length) for length in lengths], False)


def moved(view, action_n):
    """Steps until some row shows something new, which a busy machine may delay."""
    while True:
        step = view.step(action_n)
        if any(one["stats.reward.count"] for one in step[3]["n"]):
            return step


@pytest.fixture
def views():
    """Makes views, and closes them."""
    made = []

    def make(env, **options):
        made.append(universe_view(env, **options))
        return made[-1]

    yield make
    for view in made:
        view.close()


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


def test_a_reset_returns_none_for_every_row(pools, views):
    for env in (pools(CountingEnv, CountingEnv), counters(3, 3)):
        view = views(env)
        assert [None, None] == view.reset()
        assert 2 == view.n


def test_a_step_returns_lists_with_an_entry_for_each_row(pools, views):
    for env in (pools(CountingEnv, CountingEnv), counters(9, 9)):
        view = views(env)
        view.reset()
        moved(view, [0, 0])
        observations, rewards, dones, info = moved(view, [0, 0])

        assert ([1, 1], [0.0, 0.0], [False, False]) == (observations, rewards, dones)
        assert ["running", "running"] == [
            one["env_status.env_state"] for one in info["n"]
        ]


def test_an_ended_episode_is_done_with_its_observation_in_the_info(pools, views):
    def short():
        return CountingEnv(1)

    for env in (pools(short, CountingEnv), counters(1, 9)):
        view = views(env)
        view.reset()
        moved(view, [0, 0])
        observations, _, dones, info = moved(view, [0, 0])

        assert [None, 1] == observations
        assert [True, False] == dones
        assert 1 == info["n"][0]["env_status.complete.observation"]
        assert 0.0 == info["n"][0]["env_status.complete.discount"]
        assert "1" == info["n"][0]["env_status.complete.episode_id"]
        assert info["n"][0]["mask.masked.observation"]
        assert "mask.masked.observation" not in info["n"][1]


def test_a_done_row_resets_itself(pools, views):
    def short():
        return CountingEnv(1)

    for env in (pools(short), counters(1)):
        view = views(env)
        view.reset()
        steps = [moved(view, [0]) for _ in range(4)]

        assert [False, True, False, True] == [dones[0] for _, _, dones, _ in steps]
        assert ["1", "1", "2", "2"] == [
            info["n"][0]["env_status.episode_id"] for *_, info in steps
        ]
        assert steps[2][3]["n"][0]["mask.masked.action"]


def test_a_slow_reset_returns_none_while_others_continue(pools, views):
    gate = threading.Event()

    class Slow(CountingEnv):
        def _reset(self):
            gate.wait()
            return super()._reset()

    view = views(pools(Slow, CountingEnv, backend="thread", num_workers=2))
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


class Gated(CountingEnv):
    """Begins an episode when it may: the first, or the second if `late`."""

    def __init__(self, gate, length=9, late=False):
        super().__init__(length)
        self._gate, self._may_begin = gate, late

    def _reset(self):
        if not self._may_begin:
            assert self._gate.wait(PATIENCE)
        self._may_begin = False
        return super()._reset()


class LockstepEnv(PyEnvironment):
    """A batch that can neither begin nor hold single rows."""

    def __init__(self, envs):
        super().__init__()
        self._rows = BatchedPyEnvironment(envs, False)

    batched, batch_size = True, 2

    def observation_spec(self):
        return self._rows.observation_spec()

    def action_spec(self):
        return self._rows.action_spec()

    def _reset(self):
        return self._rows.reset()

    def _step(self, action):
        return self._rows.step(action)


ALL_RESET = {
    "one row of a pool": lambda pools, gate: pools(
        functools.partial(Gated, gate), backend="thread"
    ),
    "a pool": lambda pools, gate: pools(
        *[functools.partial(Gated, gate)] * 3, backend="thread", num_workers=3
    ),
    "a batch": lambda pools, gate: BatchedPyEnvironment([Gated(gate), Gated(gate)]),
    "a pool in lockstep": lambda pools, gate: ParallelPyEnvironment(
        [functools.partial(Gated, gate)] * 2, backend="thread"
    ),
    "a single environment": lambda pools, gate: Gated(gate),
}


@pytest.mark.parametrize("case", ALL_RESET)
def test_a_step_returns_at_once_while_all_rows_are_resetting(case, pools, views):
    gate = threading.Event()
    view = views(ALL_RESET[case](pools, gate))
    nothing = [None] * view.n
    seen = [view.reset(), *(view.step(nothing)[0] for _ in range(3)), view.reset()]
    picture = view.render()
    *_, rewards, dones, info = view.step(nothing)
    gate.set()
    observations = moved(view, nothing)[0]
    while None in observations:
        observations = view.step([0] * view.n)[0]

    assert [nothing] * 5 == seen
    assert picture is None
    assert ([0.0] * view.n, [False] * view.n) == (rewards, dones)
    assert [("resetting", True, True)] * view.n == [
        (
            one["env_status.env_state"],
            one["mask.masked.action"],
            one["mask.masked.observation"],
        )
        for one in info["n"]
    ]
    assert view.n == len(observations)


@pytest.mark.parametrize("make_batch", [BatchedPyEnvironment, LockstepEnv])
def test_a_lockstep_batch_does_not_wait_for_single_resets(make_batch, views):
    gate = threading.Event()
    view = views(make_batch([Gated(gate, length=1, late=True), CountingEnv()]))
    view.reset()
    moved(view, [0, 0])
    done = moved(view, [0, 0])
    waiting = [view.step([None, 0]) for _ in range(3)]
    gate.set()
    begun = moved(view, [None, 0])

    assert ([True, False], [None, 1]) == (done[2], done[0])
    assert [[None, 1]] * 3 == [observations for observations, *_ in waiting]
    assert [[0.0, 0.0]] * 3 == [rewards for _, rewards, *_ in waiting]
    assert waiting[-1][3]["n"][1]["mask.masked.action"]
    assert "running" == waiting[-1][3]["n"][1]["env_status.env_state"]
    assert [EPISODE, 2] == begun[0]
    assert "2" == begun[3]["n"][0]["env_status.episode_id"]


def test_an_error_of_a_background_reset_is_raised_by_a_step(views):
    class Broken(CountingEnv):
        fails = 1

        def _reset(self):
            if self.fails:
                self.fails -= 1
                raise RuntimeError("the cable is out")
            return super()._reset()

    view = views(Broken())
    view.reset()
    with pytest.raises(RuntimeError, match="the cable is out"):
        moved(view, [0])

    assert [0] == moved(view, [0])[0]


def test_a_view_can_be_closed_while_it_resets():
    gate = threading.Event()
    view = universe_view(
        ParallelPyEnvironment([functools.partial(Gated, gate)], backend="thread")
    )
    view.reset()
    opener = threading.Timer(0.0, gate.set)
    opener.start()
    view.close()
    opener.join()

    with pytest.raises(ClosedError):
        view.seed(1)
    view.close()


def test_the_action_of_a_resetting_row_may_be_anything(pools, views):
    def short():
        return NestedCountingEnv(1, nested_action=True)

    def longer():
        return NestedCountingEnv(9, nested_action=True)

    for env in (
        pools(short, longer),
        BatchedPyEnvironment([short(), longer()], False),
    ):
        view = views(env)
        action = nest.map_structure(lambda spec: spec.minimum, env.action_spec())
        view.reset()
        moved(view, [None, []])
        dones = moved(view, [action, action])[2]
        observations, *_, info = moved(view, [None, action])

        assert [True, False] == dones
        assert None not in observations
        assert info["n"][0]["mask.masked.action"]


def test_with_wait_no_observation_is_none(pools, views):
    def short():
        return CountingEnv(1)

    for env in (pools(short, CountingEnv), counters(1, 9)):
        view = views(env, wait=True)
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


def test_blocking_reset_returns_plain_observations(pools, views):
    def short():
        return CountingEnv(1)

    for env in (pools(short, CountingEnv), counters(1, 9), CountingEnv(1)):
        view = BlockingReset(views(env))
        actions = [0] * view.n
        first = view.reset()
        observations, _, dones, info = view.step(actions)

        assert [0, 0][: view.n] == first
        assert ([EPISODE, 1][: view.n], [True, False][: view.n]) == (
            observations,
            dones,
        )
        assert "2" == info["n"][0]["env_status.episode_id"]
        assert 1 == info["n"][0]["env_status.complete.observation"]
        assert [2 * EPISODE, 2][: view.n] == view.step(actions)[0]


def test_with_wait_all_rows_wait_for_a_slow_reset(pools, views):
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
    view = views(pool, wait=True)
    view.reset()
    opener = threading.Thread(target=gate.set)
    opener.start()
    observations, *_ = view.step([0, 0])
    opener.join()

    assert [EPISODE, 1] == observations


def test_with_wait_a_single_environment_plays_episode_after_episode(views):
    view = views(CountingEnv(2), wait=True)
    seen = [view.reset(), *(view.step([0])[0] for _ in range(4))]
    assert [[0], [1], [EPISODE], [EPISODE + 1], [2 * EPISODE]] == seen


def test_spaces_match_a_single_row(views):
    view = views(CartPole(batch_size=3))
    action, observation = view.action_space, view.observation_space
    view.reset()
    observations, *_ = moved(view, [action.sample() for _ in range(3)])

    assert (2, 0, (), np.int64) == (action.n, action.start, action.shape, action.dtype)
    assert [True, True, False, False] == [
        action.contains(x) for x in (0, np.int32(1), 2, None)
    ]
    assert ((4,), (4,)) == (observation.shape, observation.low.shape)
    assert (observation.low == -observation.high).all()
    assert all(one in observation for one in observations)
    assert not hasattr(observation, "n")
    assert not hasattr(action, "spaces")


def test_samples_of_a_space_depend_on_its_seed(views):
    space = views(CartPole()).action_space
    draws = []
    for seed in (5, 5, 6):
        space.seed(seed)
        draws.append([int(space.sample()) for _ in range(40)])
    assert (True, False) == (draws[0] == draws[1], draws[0] == draws[2])


def test_a_space_of_several_arrays_has_a_space_for_each(views):
    space = views(NestedCountingEnv()).observation_space
    sample = space.sample()
    key = next(iter(space.spaces))

    assert (None, None) == (space.shape, space.dtype)
    assert space.contains(sample)
    assert not space.contains({})
    assert space[key].contains(sample[key])
    assert not hasattr(space, "low")
    assert repr(space).startswith("RowSpace({")


def test_a_picture_of_the_first_row_is_rendered_and_kept_while_it_resets(pools, views):
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
    view = views(pool)
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


def test_lockstep_batches_and_single_environments_are_rendered(pools, views):
    for env in (CartPole(batch_size=2), CartPole(), pools(CartPole, CartPole)):
        view = views(env)
        view.reset()
        moved(view, [0] * view.n)
        assert (3, np.uint8) == (view.render().ndim, view.render().dtype)


def test_environments_that_cannot_be_rendered_say_so(pools, views):
    class Blind(CountingEnv):
        render = PyEnvironment.render

    for env in (Blind(), pools(Blind)):
        view = views(env)
        view.reset()
        moved(view, [0])
        with pytest.raises(NotImplementedError):
            view.render()


def test_a_single_environment_is_a_view_of_one_row(views):
    view = views(CartPole(seed=1))
    view.reset()
    moved(view, [0])
    observations, rewards, *_ = moved(view, [1])
    assert (4,) == observations[0].shape
    assert [1.0] == rewards


def test_lags_have_their_universe_names(pools, views):
    def make():
        return RealTimeEnvironment(CartPole, 10, host="virtual", think_time=0.25)

    rows = ParallelPyEnvironment([make, make], backend="inline")
    for env in (pools(make, make), rows):
        view = views(env)
        view.reset()
        moved(view, [0, 0])
        *_, info = moved(view, [0, 0])

        for one in info["n"]:
            assert 3 == one["stats.reward.count"]
            low, high = one["stats.gauges.diagnostics.lag.action"]
            assert 0.05 == pytest.approx(low) == pytest.approx(high)
            assert 2 == one["stats.ticks.missed"]


def test_observations_belong_to_the_caller(views):
    view = views(CartPole(batch_size=2))
    view.reset()
    first, *_ = moved(view, [0, 0])
    kept = first[0].copy()
    moved(view, [0, 0])

    np.testing.assert_array_equal(kept, first[0])


@pytest.mark.parametrize("wait", [False, True])
def test_throttled_steps_keep_the_rate_and_report_times(wait, views):
    clock = ManualClock(1_000.0)
    view = views(CountingEnv(3), wait=wait, fps=10, now=clock.now, sleep=clock.sleep)
    view.reset()
    infos = [moved(view, [0])[3] for _ in range(2)]
    info = infos[-1]

    assert 0.1 == pytest.approx(
        info["throttle.observation.available_at"]
        - infos[0]["throttle.observation.available_at"]
    )
    assert 0.1 == pytest.approx(info["stats.throttle.sleep"])
    assert 0.1 == pytest.approx(info["stats.timers.vnc_env.Timer.step"])
    assert 0.0 == pytest.approx(info["stats.timers.vnc_env.Timer.step.excluding_sleep"])
    assert 0.1 == pytest.approx(
        info["throttle.observation.available_at"] - info["throttle.action.available_at"]
    )


def test_a_late_throttled_step_restarts_the_pace(views, caplog):
    caplog.set_level("INFO", "envkit.realtime")
    clock = ManualClock(1_000.0)
    view = views(CountingEnv(), wait=True, fps=10, now=clock.now, sleep=clock.sleep)
    view.reset()
    view.step([0])
    clock.advance(2.1)
    late = view.step([0])[3]["stats.throttle.sleep"]
    on_time = view.step([0])[3]["stats.throttle.sleep"]

    assert (0, 0.1) == (late, pytest.approx(on_time))
    assert ["a step came 2.00 s too late; 20.0 frames at 10 fps are lost"] == [
        record.getMessage() for record in caplog.records
    ]


def test_the_infos_of_a_row_have_the_diagnostics_of_universe(views):
    clock = ManualClock(1_000.0)

    class Slow(CountingEnv):
        def _step(self, action):
            clock.advance(0.25)
            return super()._step(action)

    view = views(Slow(2), wait=True, now=clock.now, sleep=clock.sleep)
    view.reset()
    one = view.step([0])[3]["n"][0]
    last = view.step([0])[3]["n"][0]
    gauges = {
        name.removeprefix("stats.gauges.diagnostics."): value
        for name, value in one.items()
        if name.startswith("stats.gauges")
    }

    assert {
        "lag.observation": (0.0, 0.25),
        "lag.action": (0.0, 0.25),
        "lag.reward": (0.0, 0.25),
        "lag.rewarder_message": (0.0, 0.25),
        "clock_skew": (0.0, 0.0),
    } == gauges
    assert (1, []) == (one["stats.reward.count"], one["env.text"])
    assert (1_000.0, 1_000.25) == (
        one["reward_buffer.remote_time"],
        one["reward_buffer.local_time"],
    )
    assert 1_000.0 == one["diagnostics.image_remote_time"]
    assert 1_000.5 == last["reward_buffer.done_time"]
    assert "reward_buffer.done_time" not in one


def test_the_first_info_after_a_reset_names_its_episode(views):
    view = views(CountingEnv(1))
    view.reset()
    infos = [moved(view, [0])[3]["n"][0] for _ in range(3)]
    view.reset()
    infos.append(moved(view, [0])[3]["n"][0])

    assert ["1", None, None, "3"] == [
        info.get("env_status.reset.episode_id") for info in infos
    ]


def test_the_info_has_the_reports_of_screen_and_remote(views):
    class Screen(CountingEnv):
        def get_info(self):
            return {
                "vnc": {"updates.n": np.int64(3), "bytes": 700, "pixels": 90},
                "universe": {"env.text": ["hello"]},
            }

    view = views(Screen(), wait=True)
    view.reset()
    info = view.step([0])[3]["n"][0]

    assert (3, 700, 90) == tuple(
        info[f"stats.vnc.{name}"] for name in ("updates.n", "bytes", "pixels")
    )
    assert ["hello"] == info["env.text"]


def test_a_step_that_peeks_leaves_rewards_and_ends_for_a_later_one(views):
    view = views(BatchedPyEnvironment([CountingEnv(3), CountingEnv(5)]), wait=True)
    view.reset()
    found = []
    for peeks in (True, True, [PeekReward], True, False, True, False, False, False):
        _, rewards, dones, info = view.step([PeekReward if peeks else 0, 0])
        found.append((rewards[0], dones[0], info["n"][0].get("peek", False)))
        if len(found) == 4:
            told = info["n"][0]
    assert ("1", "2") == tuple(
        told[f"env_status.{which}"] for which in ("episode_id", "peek.episode_id")
    )
    left, ended = (0.0, False, True), (1.0, True, False)
    assert [left] * 4 + [ended, left, ended, (0.0, False, False), ended] == found
    # All of what the row has earned, and no end twice.
    assert 3.0 == sum(reward for reward, _, _ in found)


def test_counts_of_steps_that_peeked_are_added_up(views):
    view = views(BatchedPyEnvironment([CountingEnv(9)]), wait=True)
    view.reset()
    for _ in range(3):
        assert view.step([PeekReward])[3]["n"][0]["peek"]
    info = view.step([0])[3]["n"][0]
    assert (4, "1") == (info["stats.reward.count"], info["env_status.episode_id"])
