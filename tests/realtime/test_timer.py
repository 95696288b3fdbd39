"""Where the time of a loop goes."""

from __future__ import annotations

import pytest

from envkit.envs import CartPole
from envkit.realtime import Timer, Timing
from envkit.testing import CountingEnv, ManualClock, check_environment


class Ageing(CountingEnv):
    """A reset takes 2 seconds of a clock, and a step 1."""

    def __init__(self, clock):
        super().__init__(3)
        self.clock = clock

    def _reset(self):
        self.clock.advance(2.0)
        return super()._reset()

    def _step(self, action):
        self.clock.advance(1.0)
        return super()._step(action)


def timed():
    clock = ManualClock()
    return Timer(Ageing(clock), now=clock), clock


def test_the_time_of_environment_and_agent_is_told_apart():
    env, clock = timed()
    env.reset()
    for _ in range(2):
        clock.advance(0.5)
        env.step(0)

    assert Timing(2, 2.0, 2.0, 1.0) == env.timing()
    assert 2 / 5 == env.timing().rate


def test_it_may_start_over():
    env, clock = timed()
    env.reset()
    env.start_over()
    clock.advance(9.0)
    env.step(0)

    assert Timing(1, 1.0, 0.0, 0.0) == env.timing()


def test_before_anything_has_happened_there_is_no_rate():
    assert (0, 0.0) == (timed()[0].timing().steps, timed()[0].timing().rate)


@pytest.mark.parametrize("rows", [None, 2])
def test_it_keeps_the_contract(rows):
    check_environment(lambda: Timer(CartPole(batch_size=rows)), steps=50)
