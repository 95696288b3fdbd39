"""One line every few seconds about how a loop is going."""

from __future__ import annotations

import pytest

from envkit.envs import CartPole
from envkit.realtime import Logger, RealTimeEnvironment
from envkit.testing import CountingEnv, ManualClock, check_environment
from envkit.wrappers import FixedLength


def logged(env, every=2.0):
    clock, lines = ManualClock(), []
    return Logger(env, every, log=lines.append, now=clock), clock, lines


def play(env, clock, steps, seconds, action=0):
    env.reset()
    for _ in range(steps):
        clock.advance(seconds)
        env.step(action)


def test_a_line_comes_every_so_many_seconds():
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


def test_an_end_that_is_shown_again_is_counted_once():
    env, clock, lines = logged(FixedLength(CountingEnv(1), 4), every=5.0)
    play(env, clock, 5, 1.0)

    assert ["1 steps/s, reward 0.2/s, 1 episodes"] == lines


def test_what_is_lost_in_real_time_is_told():
    inner = RealTimeEnvironment(CartPole, 10, host="virtual", think_time=0.25)
    env, clock, lines = logged(inner)
    play(env, clock, 2, 1.0)

    assert [
        "1 steps/s, 3 ticks/s (2 missed), reaction 300 ms (think 250, action 50, "
        "observation 0), reward 3/s, 0 episodes"
    ] == lines


@pytest.mark.parametrize("every", [0, -1.0])
def test_there_is_time_between_lines(every):
    with pytest.raises(ValueError, match="it is a number of seconds"):
        Logger(CountingEnv(), every)


def test_lines_go_to_something_that_can_be_called():
    with pytest.raises(TypeError, match="it is called with each line"):
        Logger(CountingEnv(), log="stdout")


def test_it_keeps_the_contract():
    check_environment(lambda: Logger(CartPole(batch_size=2)), steps=50)
