"""`Throttle`, `Timer` and `Logger`: wrappers that pace and measure a loop."""

from __future__ import annotations

import pytest

from envkit.envs import CartPole
from envkit.realtime import Logger, RealTimeEnvironment, Throttle, Timer, Timing
from envkit.testing import CountingEnv, ManualClock, check_environment
from envkit.wrappers import FixedLength


def throttled(hz=10, env=None):
    clock = ManualClock()
    env = Throttle(env or CountingEnv(100), hz, now=clock, sleep=clock.sleep)
    env.reset()
    return env, clock


@pytest.mark.parametrize(
    ("thoughts", "moments", "late_steps"),
    [
        ((0.0, 0.03, 0.1), [0.1, 0.2, 0.3], 0),
        # A late step is not made up for, and a little lateness changes no rhythm.
        ((0.55, 0.0, 0.0), [0.55, 0.65, 0.75], 1),
        ((0.13, 0.0), [0.13, 0.2], 0),
    ],
)
def test_an_early_step_waits(thoughts, moments, late_steps):
    env, clock = throttled()
    stepped = []
    for thought in thoughts:
        clock.advance(thought)
        env.step(0)
        stepped.append(clock.now())

    assert moments == pytest.approx(stepped)
    assert late_steps == env.late_steps


def test_the_pace_restarts_with_an_episode():
    env, clock = throttled()
    clock.advance(7.0)
    env.reset()
    env.step(0)
    assert 7.1 == pytest.approx(clock.now())


def test_throttle_keeps_the_contract():
    check_environment(lambda: Throttle(CartPole(batch_size=2), 1e6), steps=50)


# Timer.


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


def test_times_of_environment_and_agent_are_separate():
    env, clock = timed()
    env.reset()
    for _ in range(2):
        clock.advance(0.5)
        env.step(0)
    assert Timing(2, 2.0, 2.0, 1.0) == env.timing()
    assert 2 / 5 == env.timing().rate


def test_the_timer_can_be_restarted():
    env, clock = timed()
    env.reset()
    env.start_over()
    clock.advance(9.0)
    env.step(0)
    assert Timing(1, 1.0, 0.0, 0.0) == env.timing()


def test_before_the_first_step_there_is_no_rate():
    assert (0, 0.0) == (timed()[0].timing().steps, timed()[0].timing().rate)


@pytest.mark.parametrize("rows", [None, 2])
def test_timer_keeps_the_contract(rows):
    check_environment(lambda: Timer(CartPole(batch_size=rows)), steps=50)


# Logger.


def logged(env, every=2.0):
    clock, lines = ManualClock(), []
    return Logger(env, every, log=lines.append, now=clock), clock, lines


def play(env, clock, steps, seconds, action=0):
    env.reset()
    for _ in range(steps):
        clock.advance(seconds)
        env.step(action)


def test_a_line_is_logged_at_each_interval():
    env, clock, lines = logged(CountingEnv(100))
    play(env, clock, 9, 0.5)
    assert ["2 steps/s, reward 0/s, 0 episodes"] * 2 == lines


def test_rewards_and_ends_of_episodes_of_all_rows_are_counted():
    env, clock, lines = logged(CartPole(batch_size=4, seed=0), every=20.0)
    play(env, clock, 20, 1.0, action=[0] * 4)
    rates, reward, episodes = lines[0].split(", ")
    assert "1 steps/s" == rates
    assert 3.0 < float(reward.removeprefix("reward ").removesuffix("/s")) <= 4.0
    assert 4 <= int(episodes.removesuffix(" episodes"))


def test_a_repeated_last_is_counted_once():
    env, clock, lines = logged(FixedLength(CountingEnv(1), 4), every=5.0)
    play(env, clock, 5, 1.0)
    assert ["1 steps/s, reward 0.2/s, 1 episodes"] == lines


def test_losses_in_real_time_are_logged():
    inner = RealTimeEnvironment(CartPole, 10, host="virtual", think_time=0.25)
    env, clock, lines = logged(inner)
    play(env, clock, 2, 1.0)
    assert [
        "1 steps/s, 3 ticks/s (2 missed), reaction 300 ms (think 250, action 50, "
        "observation 0), reward 3/s, 0 episodes"
    ] == lines


def test_logger_keeps_the_contract():
    check_environment(lambda: Logger(CartPole(batch_size=2)), steps=50)
