"""`wrap`: several wrappers in one call."""

from __future__ import annotations

import functools

import pytest

from envkit.base_wrapper import wrap
from envkit.envs import CartPole
from envkit.testing import CountingEnv
from envkit.wrappers.limits import FixedLength, TimeLimit
from envkit.wrappers.repeats import ActionRepeat


def test_wrappers_are_applied_from_the_inside_out():
    env = wrap(CountingEnv(), [TimeLimit, 5], (ActionRepeat, 2))
    assert "ActionRepeat(TimeLimit(CountingEnv(), duration=5), times=2)" == repr(env)


def test_without_wrappers_the_environment_is_returned():
    env = CountingEnv()
    assert env is wrap(env)


def test_a_single_wrapper_needs_no_list():
    env = wrap(CountingEnv(), functools.partial(FixedLength, fix_length=5))
    assert 5 == env.fix_length


def test_the_state_of_a_long_chain_is_restored():
    env = wrap(CartPole(batch_size=3, seed=1), [TimeLimit, 9], [ActionRepeat, 2])
    env.reset()
    env.step([0, 1, 0])
    token = env.get_state()
    expected = [env.step([1, 1, 0]).observation.tolist() for _ in range(8)]
    env.set_state(token)
    assert expected == [env.step([1, 1, 0]).observation.tolist() for _ in range(8)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (CountingEnv, [TimeLimit, 5]),
            "wrap() wraps an environment, not the class CountingEnv. Did you mean "
            "CountingEnv()? The environment comes first: wrap(env, [TimeLimit, 500]).",
        ),
        (
            ([TimeLimit, 5],),
            "wrap() wraps an environment, not a list of 2 elements. The environment "
            "comes first: wrap(env, [TimeLimit, 500]).",
        ),
        (
            (CountingEnv(), TimeLimit, 500),
            "Wrapper 2 of wrap() is 500. Each is a wrapper, or a list of a wrapper and "
            "its arguments, such as [TimeLimit, 500].",
        ),
        (
            (CountingEnv(), []),
            "Wrapper 1 of wrap() is []. Each is a wrapper, or a list of a wrapper and "
            "its arguments, such as [TimeLimit, 500].",
        ),
        (
            (CountingEnv(), lambda env: None),
            "Wrapper 1 of wrap() returned None, which is not an environment.",
        ),
    ],
)
def test_arguments_that_cannot_be_composed_are_named(arguments, message, message_of):
    assert (message) == message_of(TypeError, lambda: wrap(*arguments))
