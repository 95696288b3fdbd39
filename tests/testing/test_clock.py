"""`ManualClock` stands still until it is moved."""

from __future__ import annotations

import pytest

from envkit.testing import ManualClock


@pytest.mark.parametrize("start", [5, 5.0, -2.5])
def test_a_clock_starts_at_its_time_and_stands_still(start):
    clock = ManualClock(start)
    assert [float(start)] * 3 == [clock.now(), clock(), clock.now()]
    assert isinstance(clock(), float)


def test_advance_and_sleep_move_a_clock():
    clock = ManualClock()
    times = [clock.now()]
    for move in (clock.advance, clock.sleep):
        for seconds in (0.5, 0.0):
            move(seconds)
            times.append(clock())
    clock.sleep(-1.0)

    assert [0.0, 0.5, 0.5, 1.0, 1.0] == times
    assert 1.0 == clock()


@pytest.mark.parametrize("seconds", [-0.1, float("-inf"), float("nan")])
def test_a_clock_cannot_go_back(seconds, message_of):
    clock = ManualClock(3.0)
    assert (
        f"seconds must be at least 0, got {seconds}: a clock does not go back."
        == message_of(ValueError, lambda: clock.advance(seconds))
    )
    assert 3.0 == clock.now()
