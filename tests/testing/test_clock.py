"""`ManualClock` stands still until it is moved."""

from __future__ import annotations

import pytest

from envkit.testing import ManualClock


def told(call, *args):
    """Returns the kind and the whole message of what a call raises."""
    with pytest.raises(Exception) as raised:  # noqa: PT011  # the caller compares it
        call(*args)
    return type(raised.value), str(raised.value)


def test_a_clock_stands_still():
    clock = ManualClock()

    assert [0.0, 0.0, 0.0] == [clock.now(), clock(), clock.now()]


@pytest.mark.parametrize("start", [5, 5.0, -2.5])
def test_a_clock_starts_where_it_is_set(start):
    clock = ManualClock(start)

    assert float(start) == clock.now()
    assert isinstance(clock(), float)


def test_advancing_moves_a_clock():
    clock = ManualClock(1.0)
    clock.advance(0.5)
    clock.advance(0.0)

    assert 1.5 == clock()


def test_sleeping_moves_a_clock():
    clock = ManualClock()
    clock.sleep(1.5)

    assert 1.5 == clock.now()


def test_sleeping_for_less_than_nothing_takes_no_time():
    clock = ManualClock()
    clock.sleep(-1.0)

    assert 0.0 == clock.now()


@pytest.mark.parametrize("seconds", [-0.1, float("-inf"), float("nan")])
def test_a_clock_does_not_go_back(seconds):
    clock = ManualClock(3.0)
    expected = f"A clock does not go back, and {seconds} s would."

    assert (ValueError, expected) == told(clock.advance, seconds)
    assert 3.0 == clock.now()
