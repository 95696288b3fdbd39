"""When ticks are due, and what becomes of those that are late."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.realtime.schedule import (
    EngineSchedule,
    OverrunError,
    Schedule,
    as_schedule,
)


def begun(hz=10, now=0.0, **options):
    schedule = Schedule(hz, **options)
    schedule.begin(now)
    return schedule


def test_the_first_tick_is_due_one_tick_after_the_beginning():
    assert 5.1 == pytest.approx(begun(now=5.0).due)


def test_a_tick_that_is_a_little_late_does_not_delay_the_next():
    schedule = begun()
    lateness, left_out = schedule.start(0.14)

    assert 0.04 == pytest.approx(lateness)
    assert (0, 0.2) == (left_out, pytest.approx(schedule.due))


def test_ticks_that_are_late_by_a_whole_one_are_left_out():
    schedule = begun()
    lateness, left_out = schedule.start(0.37)

    assert (0.07, 2) == (pytest.approx(lateness), left_out)
    assert 0.4 == pytest.approx(schedule.due)


def test_time_may_be_stretched_instead():
    schedule = begun(overrun="stretch")
    lateness, left_out = schedule.start(0.37)

    assert (0.27, 0) == (pytest.approx(lateness), left_out)
    assert 0.47 == pytest.approx(schedule.due)


def test_to_be_late_may_be_an_error():
    schedule = begun(overrun="raise")

    with pytest.raises(OverrunError) as caught:
        schedule.start(0.37)
    assert (
        "A tick came 0.27 s late, and at 10 Hz one takes 0.1 s: the environment is too "
        "slow for its clock. Choose fewer ticks per second, or overrun='skip' or "
        "'stretch'."
    ) == str(caught.value)


@given(st.floats(1, 1000), st.lists(st.floats(0, 0.5), max_size=50))
def test_every_tick_is_run_or_left_out_and_the_rhythm_is_kept(hz, delays):
    schedule = begun(hz)
    ticks = 0
    for delay in delays:
        now = schedule.due + delay
        lateness, left_out = schedule.start(now)
        ticks += 1 + left_out

        assert 0 <= lateness <= (1 + 1e-3) / hz
        assert (ticks + 1) / hz == pytest.approx(schedule.due)


def test_nothing_adds_up_over_many_ticks():
    schedule = begun(hz=3)
    for _ in range(30_000):
        schedule.start(schedule.due)

    assert 30_001 / 3 == schedule.due


def test_an_engine_that_keeps_its_own_time_is_always_due():
    schedule = EngineSchedule()
    schedule.begin(7.0)

    assert (-math.inf, (0.0, 0)) == (schedule.due, schedule.start(9.0))


@pytest.mark.parametrize("hz", [0, -1, math.inf, math.nan, True, "60"])
def test_what_is_no_frequency_is_refused(hz):
    with pytest.raises(ValueError, match="it is how many ticks a second has"):
        Schedule(hz)


def test_an_unknown_way_with_late_ticks_is_refused():
    message = "overrun is 'ignore'; it is one of 'skip', 'stretch', 'raise'."
    with pytest.raises(ValueError, match=re.escape(message)):
        Schedule(60, overrun="ignore")


def test_an_environment_needs_a_frequency_unless_it_runs_by_itself():
    message = (
        "Catch does not run by itself, so RealTimeEnvironment needs hz: how many ticks "
        "a second has."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        as_schedule(None, "skip", False, "Catch")


def test_an_engine_gets_no_second_clock():
    message = (
        "Doom runs on a clock of its own (realtime = True), and hz=60 would be a "
        "second one. Leave hz out; the engine sets the pace."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        as_schedule(60, "skip", True, "Doom")
