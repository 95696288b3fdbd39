"""An agent that acts so many times a second, and not more often."""

from __future__ import annotations

import pytest

from envkit.envs import CartPole
from envkit.realtime import Throttle
from envkit.testing import CountingEnv, ManualClock, check_environment


def throttled(hz=10, env=None):
    clock = ManualClock()
    env = Throttle(env or CountingEnv(100), hz, now=clock, sleep=clock.sleep)
    env.reset()
    return env, clock


def test_a_step_that_comes_too_early_waits():
    env, clock = throttled()
    moments = []
    for thought in (0.0, 0.03, 0.1):
        clock.advance(thought)
        env.step(0)
        moments.append(clock.now())

    assert [0.1, 0.2, 0.3] == pytest.approx(moments)
    assert 0 == env.late_steps


def test_a_late_step_is_not_made_up_for():
    env, clock = throttled()
    clock.advance(0.55)
    moments = []
    for _ in range(3):
        env.step(0)
        moments.append(clock.now())

    assert [0.55, 0.65, 0.75] == pytest.approx(moments)
    assert 1 == env.late_steps


def test_a_little_lateness_does_not_change_the_rhythm():
    env, clock = throttled()
    clock.advance(0.13)
    env.step(0)
    env.step(0)

    assert 0.2 == pytest.approx(clock.now())


def test_the_rhythm_begins_with_an_episode():
    env, clock = throttled()
    clock.advance(7.0)
    env.reset()
    env.step(0)

    assert 7.1 == pytest.approx(clock.now())


def test_a_frequency_is_a_positive_number():
    with pytest.raises(ValueError, match="hz is 0"):
        Throttle(CountingEnv(), 0)


def test_it_keeps_the_contract():
    check_environment(lambda: Throttle(CartPole(batch_size=2), 1e6), steps=50)
