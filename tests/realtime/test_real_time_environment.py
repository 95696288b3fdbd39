"""An environment that goes on while the agent thinks, seen by the agent."""

from __future__ import annotations

import functools
import re
import threading

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
from envkit.errors import ClosedError, SpecError, WorkerTimeout
from envkit.realtime import LAG_SPEC, RealTimeEnvironment
from envkit.testing import check_environment
from envkit.wrappers import TimeLimit
from tests.adapters.ple_games import PLE, QuietCatcher
from tests.realtime.games import Diary, OwnTime

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


def test_a_quick_agent_acts_in_every_tick():
    env = virtual()
    env.reset()

    assert [(MID, 1.0, [1, 1, 5]), (MID, 1.0, [1, 2, 6])] == [
        facts(env.step(5)),
        facts(env.step(6)),
    ]
    assert (1, 0) == lag_facts(env, "ticks_merged", "missed_ticks")


def test_an_action_acts_from_the_tick_after_it_on_and_is_repeated_meanwhile():
    env = virtual(think_time=0.25)
    env.reset()
    seen = [facts(env.step(5)), facts(env.step(6))]

    assert [(MID, 3.0, [1, 3, 5]), (MID, 3.0, [1, 6, 6])] == seen
    # Until the first action, the no-op.
    assert [0, 0, 5, 5, 5, 6] == env._host.env.acted
    assert (2,) == lag_facts(env, "missed_ticks")


def test_late_ticks_may_get_the_no_op():
    env = virtual(think_time=0.25, late_action="no_op", no_op=9)
    env.reset()
    env.step(5)
    env.step(6)

    assert [9, 9, 5, 9, 9, 6] == env._host.env.acted


def test_late_ticks_may_get_what_a_function_says():
    env = virtual(think_time=0.25, late_action=lambda tick, last: last + tick)
    env.reset()
    env.step(5)
    env.step(6)

    assert [0, 0, 5, 9, 10, 6] == env._host.env.acted


def test_an_action_may_be_meant_for_several_ticks():
    env = virtual(act_every=3, late_action="no_op")
    env.reset()
    seen = [facts(env.step(5)), facts(env.step(6))]

    assert [(MID, 3.0, [1, 3, 5]), (MID, 3.0, [1, 6, 6])] == seen
    assert [5, 5, 5, 6, 6, 6] == env._host.env.acted
    assert (0,) == lag_facts(env, "missed_ticks")


def test_an_agent_that_looks_at_the_newest_does_not_wait():
    env = virtual(think_time=0.25, wait="newest")
    env.reset()

    assert (MID, 2.0, [1, 2, 0]) == facts(env.step(5))
    assert (0.05,) == pytest.approx(lag_facts(env, "observation_age"))


def test_where_nothing_is_new_the_newest_is_the_same_again_with_reward_0():
    env = virtual(wait="newest")
    env.reset()
    env.step(5)

    assert (MID, 0.0, [1, 0, 0]) == facts(env.step(5))
    assert (0,) == lag_facts(env, "ticks_merged")


def test_an_agent_may_wait_for_some_time_at_most():
    env = virtual(think_time=0.02, wait=0.05)
    env.reset()
    seen = [facts(env.step(action)) for action in (5, 6)]

    assert [(MID, 0.0, [1, 0, 0]), (MID, 1.0, [1, 1, 6])] == seen


@pytest.mark.parametrize("think_time", [0.3, lambda: 0.3])
def test_how_long_the_agent_thinks_may_be_a_number_or_a_function(think_time):
    env = virtual(think_time=think_time)
    env.reset()
    env.step(5)

    assert (0.3, 4) == lag_facts(env, "think_time", "ticks_merged")


# Episodes.


def test_the_end_of_an_episode_is_seen_with_its_own_observation_and_reward():
    env = virtual(functools.partial(Diary, 3), think_time=0.25)
    env.reset()
    seen = [facts(env.step(5)) for _ in range(2)]

    assert [(LAST, 3.0, [1, 3, 5]), (FIRST, 0.0, [2, 0, 0])] == seen


def test_the_next_episode_goes_on_while_the_agent_looks_at_the_end_of_the_last():
    env = virtual(functools.partial(Diary, 3), think_time=0.25)
    env.reset()
    env.step(5)
    env.step(5)
    third = env.step(7)

    # It began 0.1 s after the end; 0.4 s later the third action acts.
    assert (LAST, 3.0, [2, 3, 0]) == facts(third)
    assert [5, 0, 0, 0] == env._host.env.acted[2:]


def test_an_environment_may_wait_until_the_end_of_its_episode_was_seen():
    env = virtual(functools.partial(Diary, 3), think_time=0.75, at_end="pause")
    env.reset()
    seen = [facts(env.step(5)) for _ in range(2)]

    assert [(LAST, 3.0, [1, 3, 0]), (FIRST, 0.0, [2, 0, 0])] == seen


def test_episodes_that_pass_unseen_are_counted():
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


def test_a_reset_at_the_end_of_an_episode_shows_the_one_that_has_begun():
    env = virtual(functools.partial(Diary, 3), think_time=0.15)
    env.reset()
    while env.step(5).step_type != LAST:
        pass

    assert (FIRST, 0.0, [2, 0, 0]) == facts(env.reset())


def test_a_reset_in_the_middle_begins_an_episode():
    env = virtual()
    env.reset()
    env.step(5)

    assert (FIRST, 0.0, [2, 0, 0]) == facts(env.reset())


def test_a_reset_after_a_seed_begins_an_episode():
    env = virtual(functools.partial(Diary, 1))
    env.reset()
    env.step(5)
    env.seed(3)

    assert (FIRST, 0.0, [2, 0, 0]) == facts(env.reset())
    assert 3 == env._host.env.seeded


@settings(max_examples=25)
@given(
    think=st.lists(st.floats(0, 0.7), min_size=1, max_size=10),
    length=st.integers(1, 6),
    act_every=st.integers(1, 3),
    wait=st.sampled_from(["next", "newest", 0.05]),
    at_end=st.sampled_from(["run", "pause"]),
)
def test_the_stream_keeps_the_grammar_and_every_reward_of_episodes_seen(
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


def test_the_timing_is_typed_and_is_a_part_of_the_info():
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


def test_the_latency_of_an_action_counts_to_the_tick_in_which_it_acts():
    env = virtual(think_time=0.25)
    env.reset()
    env.step(5)

    assert (3, pytest.approx(0.05), 0.25) == lag_facts(
        env, "action_tick", "action_latency", "think_time"
    )


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


def test_infos_of_rows_that_differ_have_their_timing_each():
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
def test_it_keeps_the_contract_of_environments(options, rows):
    make_env = functools.partial(CartPole, batch_size=rows)
    make = functools.partial(
        virtual, make_env, think_time=functools.partial(float, 0.07), **options
    )

    required = ("seed", "state", "render", "info", "info_spec")
    check_environment(make, steps=40, require=required)


@pytest.mark.slow
def test_it_keeps_the_contract_in_a_batch_and_in_a_pool():
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
def test_the_timing_comes_from_the_process_of_the_clock_with_the_time_step(rows):
    make_env = functools.partial(Fueled, batch_size=rows)
    with RealTimeEnvironment(make_env, hz=200) as env:
        env.reset()
        env.step(0 if rows is None else [0, 0])
        pool = env._host._pool
        questions = pool._pool._questions
        questions.send = None  # Nothing can be asked any more.
        lag, info = env.lag(), env.get_info()

    assert lag.observation_tick.shape == (() if rows is None else (rows,))
    assert np.all(lag.observation_tick >= 1)
    assert lag._asdict().keys() == info["realtime"].keys()
    assert {"asked", "realtime"} == info.keys() == env.info_spec().keys()


def test_a_pool_has_the_timing_of_its_rows_without_asking_them():
    make = functools.partial(virtual, Fueled, think_time=0.25)
    with ParallelPyEnvironment([make] * 2, num_workers=2) as env:
        env.reset()
        env.step([1, 1])
        declared, whole = env.declared_info(), env.get_info()
        (alone, _) = env.get_infos()

    assert [0.25, 0.25] == declared["realtime"]["think_time"].tolist()
    assert {"asked", "realtime"} == whole.keys() == alone.keys()
    assert LAG_SPEC._asdict().keys() == declared["realtime"].keys()


@pytest.mark.slow
def test_it_is_a_row_of_worker_processes_and_can_be_wrapped():
    make = functools.partial(virtual, CartPole, think_time=0.15)
    with ParallelPyEnvironment(
        [lambda: TimeLimit(make(), 5)] * 2, num_workers=2
    ) as env:
        env.seed(1)
        env.reset()
        time_steps = [env.step(np.array([0, 1])) for _ in range(8)]

    assert any((time_step.step_type == LAST).any() for time_step in time_steps)


def test_it_is_an_environment_of_gymnasium():
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
def test_time_passes_by_itself(running, host):
    env = running(Diary, host=host)
    env.reset()
    seen = [env.step(action) for action in (5, 6, 7)]
    moments = [time_step.observation[1] for time_step in seen]

    assert sorted(set(moments)) == moments
    assert [5, 6, 7] == [time_step.observation[2] for time_step in seen]
    assert sum(time_step.reward for time_step in seen) == moments[-1]


@pytest.mark.parametrize("host", ["thread", "process"])
def test_every_episode_is_seen_whole(running, host):
    env = running(functools.partial(Diary, 4), host=host)
    before, returns = env.reset(), 0.0
    for _ in range(30):
        after = env.step(5)
        assert (after.step_type == FIRST) == (before.step_type == LAST)
        returns = 0.0 if after.step_type == FIRST else returns + float(after.reward)
        assert after.observation[1] == returns
        before = after


@pytest.mark.parametrize("host", ["thread", "process"])
def test_a_batch_runs_in_real_time(running, host):
    env = running(functools.partial(CartPole, batch_size=3), host=host)
    env.reset()
    time_steps = [env.step(np.array([0, 1, 0])) for _ in range(10)]

    assert (3,) == time_steps[-1].reward.shape
    assert (3,) == env.lag().ticks_merged.shape


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


def test_the_environment_lives_in_its_thread(running):
    env = running(Diary, host="thread")
    inner = env._host.env
    env.close()

    assert "envkit-clock" == inner.made_in
    assert inner.is_closed
    with pytest.raises(ClosedError):
        env.step(0)


def test_what_the_environment_raises_is_raised_by_the_next_step(running):
    env = running(functools.partial(Diary, raises_in=(3,)), host="thread")
    env.reset()
    # Whether the agent acts or not, the third tick comes.
    with env._host._changed:
        env._host._changed.wait_for(lambda: env._host._error is not None, timeout=30)
    for _ in range(2):
        with pytest.raises(ValueError, match="step 3"):
            env.step(0)

    assert FIRST == env.reset().step_type


def test_what_the_constructor_raises_is_raised():
    def fail():
        raise OSError("no such robot")

    with pytest.raises(OSError, match="no such robot"):
        RealTimeEnvironment(fail, 10, host="thread")


def test_an_engine_with_a_clock_of_its_own_is_not_clocked_twice(running):
    env = running(OwnTime, hz=None, host="thread", wait="newest")
    engine = env._host.env
    env.reset()
    idle = env.step(5)
    engine.tick.release()
    with env._host._changed:
        env._host._changed.wait_for(lambda: env._host.loop.tick >= 2, timeout=30)
    after = env.step(6)
    engine.tick.release()

    # The engine had begun its first tick before anybody acted.
    assert [(MID, 0.0, [1, 0, 0]), (MID, 1.0, [1, 1, 0])] == [facts(idle), facts(after)]


class Running(QuietCatcher):
    """Keeps its own time, which is as fast as can be."""

    def tick(self, fps):
        return 1000.0 / fps


@pytest.mark.parametrize("host", ["thread", "process"])
def test_an_adapter_says_whether_its_engine_keeps_its_own_time(running, host):
    def make():
        return PLEWrapper(PLE(Running(), force_fps=False))

    env = running(make, None, host=host)
    env.reset()
    time_step, lag = env.step(1), env.lag()

    assert 1 <= lag.ticks_merged <= lag.observation_tick
    assert (0, 0.0) == (lag.overrun_ticks, lag.clock_lateness)
    assert not time_step.is_first()


def test_an_adapter_whose_engine_keeps_its_own_time_gets_no_second_clock():
    message = (
        "PLEWrapper runs on a clock of its own (realtime = True), and hz=30 would be a "
        "second one. Leave hz out; the engine sets the pace."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        RealTimeEnvironment(
            lambda: PLEWrapper(PLE(Running(), force_fps=False)), 30, host="thread"
        )


def test_an_episode_that_takes_too_long_to_begin_is_told_and_waited_for(running):
    gate = threading.Event()

    class Slow(Diary):
        def _reset(self):
            gate.wait()
            return super()._reset()

    env = running(Slow, host="thread", reset_timeout=0.01)
    with pytest.raises(WorkerTimeout, match="It goes on beginning") as caught:
        env.reset()
    gate.set()
    while True:
        try:
            time_step = env.reset()
        except WorkerTimeout:
            continue
        break

    assert "reset() waited 0.01 s for" in str(caught.value)
    assert (FIRST, 0.0, [1, 0, 0]) == facts(time_step)


# Choices that make no sense.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"host": "cloud"},
            "host is the string 'cloud'; it is one of 'process', 'thread',",
        ),
        (
            {"at_end": "stop"},
            "at_end is the string 'stop'; it is one of 'run', 'pause'.",
        ),
        (
            {"merge": "mean"},
            "merge is the string 'mean'; it is one of 'discounted', 'sum'.",
        ),
        (
            {"wait": -1},
            "wait is -1 of type int; it is 'next', 'newest', or a number of seconds.",
        ),
        ({"act_every": 0}, "act_every is 0; it is at least one tick."),
        (
            {"reset_timeout": 1.0},
            "reset_timeout is for clocks that run by themselves; with host='virtual' "
            "everything waits for the environment.",
        ),
        (
            {"host": "thread", "reset_timeout": -1},
            "reset_timeout is -1 of type int; it is a number of seconds.",
        ),
        (
            {"worker_options": {"start_method": "fork"}},
            "worker_options are for host='process'; with host='virtual' there is no "
            "worker.",
        ),
        (
            {"think_time": "long"},
            "think_time is the string 'long'; it is a number of seconds.",
        ),
        (
            {"host": "process", "hz": -5},
            "hz is -5 of type int; it is how many ticks a second has, such as 60.",
        ),
        (
            {"host": "process", "overrun": "hurry"},
            "overrun is the string 'hurry'; it is one of 'skip', 'stretch', 'raise'.",
        ),
        (
            {"late_action": "panic"},
            "late_action is the string 'panic'; it is 'repeat',",
        ),
        ({"hz": None}, "Diary does not run by itself, so RealTimeEnvironment needs hz"),
    ],
)
def test_choices_are_looked_at(options, message):
    options = {"host": "virtual", "hz": 10, **options}
    with pytest.raises(ValueError, match=re.escape(message)):
        RealTimeEnvironment(Diary, **options)


def test_a_number_of_ticks_is_a_whole_one():
    message = "act_every is 1.5 of type float; it is a number of ticks."
    with pytest.raises(TypeError, match=re.escape(message)):
        virtual(act_every=1.5)


def test_only_a_virtual_agent_has_a_think_time_to_declare():
    with pytest.raises(ValueError, match="think_time is for host='virtual'"):
        RealTimeEnvironment(Diary, 10, host="thread", think_time=1.0)


def test_an_environment_that_exists_cannot_go_to_another_process():
    with pytest.raises(TypeError, match="Pass what makes it"):
        RealTimeEnvironment(Diary(), 10)


def test_an_environment_that_exists_may_be_run_here():
    assert FIRST == virtual(Diary()).reset().step_type


def test_rows_that_cannot_wait_for_each_other_cannot_pause():
    class Together(CartPole):
        holds_rows = False

    with pytest.raises(ValueError, match="cannot pause single rows of Together"):
        virtual(functools.partial(Together, batch_size=2), at_end="pause")
