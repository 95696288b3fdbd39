"""An environment that goes on while the agent thinks, seen by the agent."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    ParallelPyEnvironment,
    StepType,
)
from envkit.adapters import PLEWrapper, PyToGymnasium
from envkit.envs import CartPole, Catch
from envkit.errors import ClosedError, SpecError
from envkit.realtime import LAG_SPEC, RealTimeEnvironment
from envkit.testing import check_environment
from envkit.wrappers import TimeLimit
from tests.adapters.ple_games import PLE, QuietCatcher
from tests.realtime.games import Diary, OwnTime
from tests.waiting import PATIENCE, until

FIRST, MID, LAST = int(StepType.FIRST), int(StepType.MID), int(StepType.LAST)


def virtual(make_env=Diary, hz=10, **options):
    """Runs an environment on a clock that is only counted."""
    return RealTimeEnvironment(make_env, hz, host="virtual", **options)


def facts(time_step):
    return (
        int(time_step.step_type),
        float(time_step.reward),
        np.asarray(time_step.observation).tolist(),
    )


def lag_facts(env, *names):
    lag = env.lag()
    return tuple(getattr(lag, name).tolist() for name in names)


# What acts, and when.

SLOW = {"think_time": 0.25}
THREE_TICKS_EACH = [(MID, 3.0, [1, 3, 5]), (MID, 3.0, [1, 6, 6])]

# Options, what two steps with the actions 5 and 6 return, the actions that acted, and
# some of the timing of the second step.
PLAYS = {
    "a quick agent acts in every tick": (
        {}, [(MID, 1.0, [1, 1, 5]), (MID, 1.0, [1, 2, 6])], [5, 6],
        {"ticks_merged": 1, "missed_ticks": 0}),
    "a late action acts from its tick on; until the first the no-op does": (
        SLOW, THREE_TICKS_EACH, [0, 0, 5, 5, 5, 6],
        {"missed_ticks": 2, "action_tick": 6, "action_latency": 0.05,
         "think_time": 0.25}),
    "late ticks may get the no-op": (
        {**SLOW, "late_action": "no_op", "no_op": 9}, THREE_TICKS_EACH,
        [9, 9, 5, 9, 9, 6], {"missed_ticks": 2}),
    "late ticks may get what a function returns": (
        {**SLOW, "late_action": lambda tick, last: last + tick}, THREE_TICKS_EACH,
        [0, 0, 5, 9, 10, 6], {"missed_ticks": 2}),
    "an action may be meant for several ticks": (
        {"act_every": 3, "late_action": "no_op"}, THREE_TICKS_EACH,
        [5, 5, 5, 6, 6, 6], {"missed_ticks": 0}),
    "who looks at the newest does not wait": (
        {"think_time": 0.12, "wait": "newest"},
        [(MID, 1.0, [1, 1, 0]), (MID, 1.0, [1, 2, 5])], [0, 5],
        {"observation_age": 0.04}),
    "where nothing is new the newest comes again with reward 0": (
        {"wait": "newest"}, [(MID, 0.0, [1, 0, 0])] * 2, [], {"ticks_merged": 0}),
    "an agent may wait for some time at most": (
        {"think_time": 0.02, "wait": 0.05},
        [(MID, 0.0, [1, 0, 0]), (MID, 1.0, [1, 1, 6])], [6], {"ticks_merged": 1}),
    "a function may tell how long the agent thinks": (
        {"think_time": lambda: 0.3}, [(MID, 4.0, [1, 4, 5]), (MID, 4.0, [1, 8, 6])],
        [0, 0, 0, 5, 5, 5, 5, 6], {"think_time": 0.3, "ticks_merged": 4}),
}  # fmt: skip


@pytest.mark.parametrize("case", PLAYS)
def test_actions_act_in_their_ticks(case):
    options, seen, acted, timing = PLAYS[case]
    env = virtual(**options)
    env.reset()
    assert seen == [facts(env.step(action)) for action in (5, 6)]
    assert acted == env._host.env.acted
    assert pytest.approx(tuple(timing.values())) == lag_facts(env, *timing)


# Episodes.


def test_the_next_episode_runs_while_the_agent_sees_the_last_end():
    env = virtual(functools.partial(Diary, 3), think_time=0.25)
    env.reset()
    seen = [facts(env.step(action)) for action in (5, 5, 7)]

    # The third action acts 0.4 s after the second episode began: when it is over.
    ends = [(LAST, 3.0, [1, 3, 5]), (FIRST, 0.0, [2, 0, 0]), (LAST, 3.0, [2, 3, 0])]
    assert ends == seen
    assert [0, 0, 5, 0, 0, 0] == env._host.env.acted


def test_an_environment_can_wait_until_its_end_was_seen():
    env = virtual(functools.partial(Diary, 3), think_time=0.75, at_end="pause")
    env.reset()
    seen = [facts(env.step(5)) for _ in range(2)]
    assert [(LAST, 3.0, [1, 3, 0]), (FIRST, 0.0, [2, 0, 0])] == seen


def test_unseen_episodes_are_counted():
    env = virtual(functools.partial(Diary, 3), think_time=2.05)
    env.reset()
    last, first = env.step(5), env.step(5)

    assert LAST == last.step_type
    assert [1, 3, 0] == last.observation.tolist()
    assert FIRST == first.step_type
    skipped, steps, episode = lag_facts(
        env, "episodes_skipped", "steps_skipped", "episode_id"
    )
    assert (skipped, 3 * skipped, skipped + 1) == (9, steps, episode)


def test_no_action_of_one_episode_acts_in_the_next():
    env = virtual(functools.partial(Diary, 2), wait="newest", think_time=0.1)
    env.reset()
    env.step(5)
    while env.current_time_step().step_type != LAST:
        env.step(6)
    acted = len(env._host.env.acted)
    env.step(7)
    env.step(8)

    assert 7 not in env._host.env.acted[acted:]


def test_discounts_are_merged_with_the_rewards():
    env = virtual(functools.partial(Diary, discount=0.5), think_time=0.25)
    env.reset()
    time_step = env.step(5)
    assert (1.75, 0.125) == (time_step.reward, time_step.discount)
    assert np.float32 == time_step.reward.dtype == time_step.discount.dtype


@pytest.mark.parametrize(
    ("length", "seed", "episode_id"), [(1, None, 1), (9, None, 0), (1, 3, 0)]
)
def test_a_reset_begins_an_episode_unless_one_begins_anyway(length, seed, episode_id):
    """At the end of one it waits for the next; after a seed that would not count."""
    env = virtual(functools.partial(Diary, length))
    env.reset()
    env.step(5)
    if seed is not None:
        env.seed(seed)

    assert (FIRST, 0.0, [2, 0, 0]) == facts(env.reset())
    assert (episode_id,) == lag_facts(env, "episode_id")
    assert seed == getattr(env._host.env, "seeded", None)


@settings(max_examples=25)
@given(
    think=st.lists(st.floats(0, 0.7), min_size=1, max_size=10),
    length=st.integers(1, 6),
    act_every=st.integers(1, 3),
    wait=st.sampled_from(["next", "newest", 0.05]),
    at_end=st.sampled_from(["run", "pause"]),
)
def test_the_stream_keeps_the_grammar_and_every_seen_reward(
    think, length, act_every, wait, at_end
):
    times = iter(think * 100)
    env = virtual(
        functools.partial(Diary, length),
        think_time=lambda: next(times),
        act_every=act_every,
        wait=wait,
        at_end=at_end,
    )
    before, returns = env.reset(), 0.0
    for _ in range(40):
        after = env.step(5)
        assert (after.step_type == FIRST) == (before.step_type == LAST)
        returns = 0.0 if after.step_type == FIRST else returns + float(after.reward)
        # All of an episode, and nothing of another.
        assert after.observation[1] == returns
        if after.step_type == LAST:
            assert length == after.observation[1]
            assert after.discount == 0.0
        before = after


# What is told of it.


def test_the_timing_is_a_typed_part_of_the_info():
    env = virtual(think_time=0.25)
    env.reset()
    env.step(5)
    info = env.get_info()

    assert 3 == info["step"]
    specs_of_timing = env.info_spec()["realtime"]
    assert LAG_SPEC._asdict() == specs_of_timing
    for name, spec in specs_of_timing.items():
        value = info["realtime"][name]
        assert (spec.dtype, ()) == (value.dtype, value.shape)


def test_in_a_batch_every_row_has_its_own_timing():
    env = virtual(functools.partial(CartPole, batch_size=3, seed=1), think_time=0.15)
    env.reset()
    for _ in range(30):
        time_step = env.step(np.array([0, 1, 0]))
        merged = env.lag().ticks_merged
        # A pole that stands earns 1 in each tick.
        assert merged.tolist() == time_step.reward.tolist()
    assert (3,) == env.lag().episode_id.shape
    assert merged.tolist() == env.get_info()["realtime"]["ticks_merged"].tolist()


def test_rows_with_different_infos_have_their_own_timing():
    class Odd(Diary):
        def get_info(self):
            return {"odd": self.moment}

    env = virtual(lambda: BatchedPyEnvironment([Diary(), Odd()]), think_time=0.25)
    env.reset()
    env.step([5, 6])
    infos = env.get_info()

    assert [["step", "realtime"], ["odd", "realtime"]] == [list(one) for one in infos]
    assert [3, 3] == [int(one["realtime"]["ticks_merged"]) for one in infos]


# It is an environment like any other.


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"at_end": "pause"},
        {"wait": "newest"},
        {"wait": 0.03},
        {"act_every": 2, "merge": "sum"},
    ],
    ids=str,
)
@pytest.mark.parametrize("rows", [None, 3])
def test_a_real_time_environment_keeps_the_contract(options, rows):
    make_env = functools.partial(CartPole, batch_size=rows)
    make = functools.partial(
        virtual, make_env, think_time=functools.partial(float, 0.07), **options
    )

    required = ("seed", "state", "render", "info", "info_spec")
    check_environment(make, steps=40, require=required)


@pytest.mark.slow
def test_batches_and_pools_in_real_time_keep_the_contract():
    make = functools.partial(virtual, Catch, think_time=0.15)

    check_environment(
        lambda: BatchedPyEnvironment([make(), make()]), steps=40, require=["info_spec"]
    )
    check_environment(
        lambda: ParallelPyEnvironment([make] * 2, backend="inline"),
        steps=40,
        require=["info_spec"],
    )


class Fueled(Catch):
    """Declares what its info has, and counts how often that is asked for."""

    asked = 0

    def info_spec(self):
        return {"asked": ArraySpec((), np.int64)}

    def get_info(self):
        self.asked += 1
        return {"asked": np.full(self.batch_size or (), self.asked)}


@pytest.mark.parametrize("rows", [None, 2])
def test_the_timing_arrives_with_the_time_step(rows):
    make_env = functools.partial(Fueled, batch_size=rows)
    with RealTimeEnvironment(make_env, hz=200) as env:
        env.reset()
        env.step(0 if rows is None else [0, 0])
        pool = env._host._pool
        pool._pool.post = None  # Nothing can be asked any more.
        lag, info = env.lag(), env.get_info()

    assert lag.observation_tick.shape == (() if rows is None else (rows,))
    assert np.all(lag.observation_tick >= 1)
    assert lag._asdict().keys() == info["realtime"].keys()
    assert {"asked", "realtime"} == info.keys() == env.info_spec().keys()


def test_a_pool_has_the_timing_of_its_rows_without_asking_them():
    make = functools.partial(virtual, Fueled, think_time=0.25)
    with ParallelPyEnvironment([make] * 2, backend="inline") as env:
        env.reset()
        env.step([1, 1])
        declared, whole = env.declared_info(), env.get_info()
        (alone, _) = env.get_infos()

    assert [0.25, 0.25] == declared["realtime"]["think_time"].tolist()
    assert {"asked", "realtime"} == whole.keys() == alone.keys()
    assert LAG_SPEC._asdict().keys() == declared["realtime"].keys()


@pytest.mark.slow
def test_a_real_time_environment_can_be_pooled_and_wrapped():
    make = functools.partial(virtual, CartPole, think_time=0.15)
    with ParallelPyEnvironment(
        [lambda: TimeLimit(make(), 5)] * 2, num_workers=2, start_method="fork"
    ) as env:
        env.seed(1)
        env.reset()
        time_steps = [env.step(np.array([0, 1])) for _ in range(8)]

    assert any((time_step.step_type == LAST).any() for time_step in time_steps)


def test_a_real_time_environment_converts_to_gymnasium():
    env = PyToGymnasium(virtual(CartPole, think_time=0.15))
    env.reset(seed=1)
    *_, info = env.step(1)
    assert 2 == info["realtime"]["ticks_merged"]
    env.close()


def test_an_action_that_does_not_fit_is_refused_and_does_not_act():
    env = virtual()
    env.reset()
    with pytest.raises(SpecError, match=re.escape("RealTimeEnvironment.step()")):
        env.step(np.array([1.5]))
    assert (MID, 1.0, [1, 1, 5]) == facts(env.step(5))


# A thread, and a process.


@pytest.mark.parametrize("host", ["thread", "process"])
def test_with_a_fast_agent_every_episode_is_seen_whole(running, host):
    env = running(functools.partial(Diary, 4), host=host)
    before, returns = env.reset(), 0.0
    for _ in range(30):
        after = env.step(5)
        assert (after.step_type == FIRST) == (before.step_type == LAST)
        returns = 0.0 if after.step_type == FIRST else returns + float(after.reward)
        assert after.observation[1] == returns
        before = after


@pytest.mark.parametrize("host", ["thread", "process"])
def test_seed_render_info_and_state_reach_the_environment(running, host):
    env = running(CartPole, hz=50, host=host)
    env.seed(7)
    first = env.reset()
    picture = env.render()
    state = env.get_state()
    env.step(1)
    env.set_state(state)

    np.testing.assert_array_equal(
        first.observation, env.current_time_step().observation
    )
    assert np.uint8 == picture.dtype
    assert "episode_steps" in env.get_info()
    np.testing.assert_array_equal(
        first.observation, CartPole(seed=7).reset().observation
    )


def test_the_environment_is_built_and_used_in_one_thread(running):
    env = running(Diary, host="thread")
    inner = env._host.env
    env.close()
    assert "envkit-clock" == inner.made_in
    assert inner.is_closed
    with pytest.raises(ClosedError):
        env.step(0)


def test_errors_of_the_environment_are_raised_by_the_next_step(running):
    env = running(functools.partial(Diary, raises_in=(3,)), host="thread")
    env.reset()
    # Whether the agent acts or not, the third tick comes.
    with env._host._changed:
        env._host._changed.wait_for(
            lambda: env._host._error is not None, timeout=PATIENCE
        )
    for _ in range(2):
        with pytest.raises(ValueError, match="step 3"):
            env.step(0)

    assert FIRST == env.reset().step_type


def test_errors_of_the_constructor_are_raised():
    def fail():
        raise OSError("no such robot")

    with pytest.raises(OSError, match="no such robot"):
        RealTimeEnvironment(fail, 10, host="thread")


def test_an_engine_with_its_own_clock_gets_no_second_one(running):
    env = running(OwnTime, hz=None, host="thread", wait="newest")
    engine, loop = env._host.env, env._host.loop
    env.reset()
    until(lambda: loop.tick == 1)  # The first tick begins before the agent acts.
    idle = env.step(5)
    engine.tick.release()
    until(lambda: loop.tick == 2)
    after = env.step(6)
    engine.tick.release(10**6)  # It runs freely, so that it can be closed.

    assert [(MID, 0.0, [1, 0, 0]), (MID, 1.0, [1, 1, 0])] == [facts(idle), facts(after)]


class Running(QuietCatcher):
    """Keeps its own time, which is as fast as can be."""

    def tick(self, fps):
        return 1000.0 / fps


@pytest.mark.parametrize("host", ["thread", "process"])
def test_an_adapter_declares_whether_its_engine_has_a_clock(running, host):
    def make():
        return PLEWrapper(PLE(Running(), force_fps=False))

    env = running(make, None, host=host)
    env.reset()
    time_step, lag = env.step(1), env.lag()

    assert 1 <= lag.ticks_merged <= lag.observation_tick
    assert (0, 0.0) == (lag.overrun_ticks, lag.clock_lateness)
    assert not time_step.is_first()


def test_an_adapter_with_its_own_clock_gets_no_second_one():
    message = (
        "PLEWrapper runs on its own clock (realtime = True), and hz=30 would be a "
        "second one. Leave hz out; the engine sets the pace."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        RealTimeEnvironment(
            lambda: PLEWrapper(PLE(Running(), force_fps=False)), 30, host="thread"
        )


def test_an_existing_environment_can_be_run_in_this_thread():
    assert FIRST == virtual(Diary()).reset().step_type
