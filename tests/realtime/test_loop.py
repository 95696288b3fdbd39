"""The loop that a clock drives, driven by hand."""

from __future__ import annotations

import functools
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import BatchedPyEnvironment, StepType, TimeStep, restart, transition
from envkit.errors import SpecError
from envkit.realtime.actions import LateActions
from envkit.realtime.loop import (
    EngineSchedule,
    OverrunError,
    Schedule,
    TickLoop,
)
from envkit.testing import ManualClock
from tests.realtime.games import Diary

FIRST, MID, LAST = int(StepType.FIRST), int(StepType.MID), int(StepType.LAST)


class Hand:
    """Drives a loop at 10 Hz, on a clock that it moves itself."""

    def __init__(self, env, way="repeat", **options):
        self.clock = ManualClock()
        rows = env.batch_size if env.batched else None
        late = LateActions(way, env.action_spec(), rows=rows)
        self.env, self.loop = env, TickLoop(env, Schedule(10), late, **options)
        self.loop.begin(None, self.loop.reset(None), self.clock())

    def tick(self, late_by=0.0, lasting=0.0):
        """Waits until a tick is due, and lets it happen."""
        self.clock.advance(max(self.loop.due - self.clock(), 0.0) + late_by)
        move = self.loop.decide(self.clock())
        time_step = self.loop.move(move)
        self.clock.advance(lasting)
        self.loop.note(move, time_step, self.clock())
        return move

    def publish(self, action, think=0.0):
        self.clock.advance(think)
        self.loop.publish(np.asarray(action), self.clock())

    def take(self, mask=None):
        return self.loop.take(mask, self.clock())


@pytest.fixture
def hand():
    """A loop over a single environment, whose first time step has been seen."""
    hand = Hand(Diary())
    hand.take()
    return hand


def batch(*lengths):
    return BatchedPyEnvironment([Diary(length) for length in lengths])


def test_an_action_does_not_affect_the_running_tick(hand):
    hand.clock.advance(0.1)
    move = hand.loop.decide(hand.clock())
    hand.publish(7)
    hand.loop.note(move, hand.loop.move(move), hand.clock())

    assert not hand.loop.is_ready(None, at_once=False)
    assert hand.loop.is_ready(None, at_once=True)
    assert 7 == hand.tick().action
    assert hand.loop.is_ready(None, at_once=False)


def test_the_running_tick_is_not_counted_as_missed(hand):
    """Nobody can act in the tick in which the first observation is made."""
    hand.publish(7)
    hand.tick()
    _, lag, _ = hand.take()
    assert (0, 1) == (lag.missed_ticks, lag.ticks_merged)


@pytest.mark.parametrize("act_every", [1, 3])
def test_the_next_observation_is_ready_after_act_every_ticks(act_every):
    hand = Hand(Diary(), act_every=act_every)
    hand.take()
    hand.publish(7)
    for _ in range(act_every):
        assert not hand.loop.is_ready(None, at_once=False)
        assert hand.loop.is_ready(None, at_once=True)
        hand.tick()

    assert hand.loop.is_ready(None, at_once=False)


def test_lateness_belongs_to_the_latest_tick_and_age_to_the_observation(hand):
    hand.publish(7, think=0.03)
    hand.tick(late_by=0.02, lasting=0.01)
    hand.tick()
    hand.clock.advance(0.05)
    _, lag, _ = hand.take()

    assert 0.02 == pytest.approx(float(lag.clock_lateness))
    assert 0.05 == pytest.approx(float(lag.observation_age))
    assert 0.03 == pytest.approx(float(lag.think_time))
    assert 0.09 == pytest.approx(float(lag.action_latency))
    assert (1, 2) == (lag.action_tick, lag.observation_tick)


def test_skipped_ticks_are_counted_once(hand):
    hand.publish(7)
    hand.tick(late_by=0.25)
    _, first, _ = hand.take()
    hand.tick()
    _, second, _ = hand.take()
    assert (2, 0) == (first.overrun_ticks, second.overrun_ticks)


def test_a_single_environment_begins_its_next_episode_with_a_tick_of_its_own():
    hand = Hand(Diary(1))
    hand.take()
    hand.tick()
    move = hand.tick()
    assert move.resets
    assert [LAST, FIRST] == [int(hand.take()[0].step_type) for _ in range(2)]


def test_an_episodes_clock_starts_after_its_reset():
    hand = Hand(Diary(1))
    hand.tick()
    hand.tick(lasting=5.0)
    assert hand.clock() + 0.1 == pytest.approx(hand.loop.due)


def test_rows_that_wait_for_the_agent_are_held():
    hand = Hand(batch(2, 4), pauses=True)
    hand.take()
    hand.tick()
    hand.tick()
    moves = [hand.tick() for _ in range(2)]

    assert [[False, True]] * 2 == [move.stepping.tolist() for move in moves]
    assert hand.loop.is_paused
    assert [LAST, LAST] == hand.take()[0].step_type.tolist()
    assert not hand.loop.is_paused
    assert hand.tick().stepping is None
    assert [FIRST, FIRST] == hand.take()[0].step_type.tolist()


def test_each_row_of_a_batch_has_its_own_lateness():
    hand = Hand(batch(2, 9), way="no_op")
    hand.take()
    hand.publish([5, 6])
    actions = [hand.tick().action.tolist()]
    hand.tick()
    hand.tick()
    _, lag, _ = hand.take()
    # The first row shows its end, and has been in its next episode for a tick.
    hand.publish([7, 8])
    actions.append(hand.tick().action.tolist())

    assert [1, 2] == lag.missed_ticks.tolist()
    assert [[5, 6], [0, 8]] == actions


def test_single_rows_can_be_reset_while_others_continue():
    hand = Hand(batch(9, 9))
    hand.take()
    hand.publish([5, 6])
    hand.tick()
    mask = np.array([True, False])
    hand.loop.begin(mask, hand.loop.reset(mask), hand.clock())
    time_step, lag, _ = hand.take()

    assert [FIRST, MID] == time_step.step_type.tolist()
    assert [0, 1] == lag.ticks_merged.tolist()
    # The action was one of the episode before.
    assert [0, 6] == hand.tick().action.tolist()


def test_only_received_rows_count_as_seen():
    hand = Hand(batch(9, 9))
    hand.take()
    hand.tick()
    hand.take(np.array([True, False]))
    _, lag, _ = hand.take()
    assert [0, 1] == lag.ticks_merged.tolist()


def test_peeking_changes_nothing(hand):
    hand.publish(7)
    hand.tick()
    peeked = [hand.loop.peek(restart(np.zeros(3))) for _ in range(2)]
    taken, lag, _ = hand.take()

    for time_step in peeked:
        assert (MID, 1.0) == (int(time_step.step_type), float(time_step.reward))
        np.testing.assert_array_equal(taken.observation, time_step.observation)
    assert (1, 1.0) == (lag.ticks_merged, float(taken.reward))


def test_peeking_between_episodes_shows_the_end_without_reward():
    hand = Hand(batch(1, 3))
    hand.take()
    hand.tick()
    end, _, _ = hand.take()
    peeked = hand.loop.peek(end)

    assert [LAST, MID] == peeked.step_type.tolist()
    assert [0.0, 0.0] == peeked.reward.tolist()
    assert [0.0, 1.0] == peeked.discount.tolist()
    np.testing.assert_array_equal(end.observation, peeked.observation)


def test_peeking_without_news_returns_a_copy():
    hand = Hand(Diary(1))
    hand.take()
    hand.tick()
    end, _, _ = hand.take()
    peeked = hand.loop.peek(end)

    assert (LAST, 0.0, 0.0) == (
        int(peeked.step_type),
        float(peeked.reward),
        float(peeked.discount),
    )
    assert peeked.observation is not end.observation


@pytest.mark.parametrize("way", ["repeat", lambda tick, last: last])
def test_an_environment_may_change_its_action_without_changing_the_next(way):
    hand = Hand(Diary(), way)
    hand.take()
    hand.publish(7)
    actions = [hand.tick().action for _ in range(3)]
    actions[0][...] = actions[1][...] = 3
    assert 7 == hand.tick().action == actions[2]


def test_reused_observations_are_copied():
    class Window(Diary):
        """Shows its memory, read-only, as a pool with zero_copy=True does."""

        def _observe(self, action=0):
            self.memory = getattr(self, "memory", np.zeros(3, np.int64))
            self.memory[:] = super()._observe(action)
            view = self.memory.view()
            view.flags.writeable = False
            return view

    hand = Hand(Window(2))
    hand.take()
    hand.publish(7)
    for _ in range(3):
        hand.tick()
    end, _, _ = hand.take()

    assert [1, 2, 7] == end.observation.tolist()


def test_infos_belong_to_the_ticks_that_rows_show():
    hand = Hand(batch(2, 5))
    hand.take()
    for _ in range(4):
        hand.tick()
    _, _, info = hand.take()
    assert [2, 4] == info["step"].tolist()


def test_an_environment_without_info_is_asked_once():
    class Silent(Diary):
        asked = 0

        def get_info(self):
            self.asked += 1
            raise NotImplementedError("nothing to say")

    hand = Hand(Silent())
    hand.tick()

    assert (1, None) == (hand.env.asked, hand.take()[2])


def test_the_state_holds_all_that_later_ticks_depend_on(hand):
    hand.publish(7)
    hand.tick()
    state = hand.loop.get_state()
    now = hand.clock()
    before = [hand.tick().action.tolist() for _ in range(3)]
    merged = hand.take()[1].ticks_merged
    hand.loop.set_state(state, None)
    hand.clock = ManualClock(now)

    assert before == [hand.tick().action.tolist() for _ in range(3)]
    assert 4 == merged == hand.take()[1].ticks_merged


def test_a_state_can_be_continued_at_another_time(hand):
    state = hand.loop.get_state()
    hand.clock.advance(100.0)
    hand.loop.set_state(state, hand.clock())
    assert 100.1 == pytest.approx(hand.loop.due)


def test_a_reward_without_its_rows_is_refused():
    class Flat(BatchedPyEnvironment):
        def _step(self, action):
            one = transition(np.zeros(3, np.int64), 1.0)
            return TimeStep(
                np.array([MID, MID], np.int32),
                one.reward,
                np.ones(2, np.float32),
                np.zeros((2, 3), np.int64),
            )

    hand = Hand(Flat([Diary(), Diary()]))

    message = "The environment returned a reward without its rows."
    with pytest.raises(SpecError, match=re.escape(message)):
        hand.tick()


def test_a_loop_knows_whether_there_has_been_an_episode():
    env = Diary()
    make = functools.partial(TickLoop, env, Schedule(10))
    loop = make(LateActions("repeat", env.action_spec()))
    before = loop.has_begun
    loop.begin(None, loop.reset(None), 0.0)
    assert (False, True) == (before, loop.has_begun)


# Schedules.


def begun(hz=10, now=0.0, **options):
    schedule = Schedule(hz, **options)
    schedule.begin(now)
    return schedule


@pytest.mark.parametrize(
    ("overrun", "now", "lateness", "left_out", "due"),
    [
        *((overrun, 5.14, 0.04, 0, 5.2) for overrun in ("skip", "stretch", "raise")),
        ("skip", 5.37, 0.07, 2, 5.4),
        ("stretch", 5.37, 0.27, 0, 5.47),
    ],
)
def test_late_ticks_are_skipped_or_stretch_time(overrun, now, lateness, left_out, due):
    schedule = begun(now=5.0, overrun=overrun)
    assert 5.1 == pytest.approx(schedule.due)
    assert (pytest.approx(lateness), left_out) == schedule.start(now)
    assert due == pytest.approx(schedule.due)


def test_lateness_can_be_an_error():
    schedule = begun(overrun="raise")

    with pytest.raises(OverrunError) as caught:
        schedule.start(0.37)
    assert (
        "A tick came 0.27 s late, and at 10 Hz one takes 0.1 s: the environment is too "
        "slow for its clock. Choose fewer ticks per second, or overrun='skip' or "
        "'stretch'."
    ) == str(caught.value)


@given(st.floats(1, 1000), st.lists(st.floats(0, 0.5), max_size=50))
def test_every_tick_is_run_or_skipped_on_schedule(hz, delays):
    schedule = begun(hz)
    ticks = 0
    for delay in delays:
        now = schedule.due + delay
        lateness, left_out = schedule.start(now)
        ticks += 1 + left_out

        assert 0 <= lateness <= (1 + 1e-3) / hz
        assert (ticks + 1) / hz == pytest.approx(schedule.due)


def test_timing_errors_do_not_accumulate():
    schedule = begun(hz=3)
    for _ in range(30_000):
        schedule.start(schedule.due)
    assert 30_001 / 3 == schedule.due


def test_an_engine_with_its_own_clock_is_always_due():
    schedule = EngineSchedule()
    schedule.begin(7.0)
    assert (-math.inf, (0.0, 0)) == (schedule.due, schedule.start(9.0))
