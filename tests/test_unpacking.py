"""Time steps that a caller unpacks, rightly or like the tuples of Gymnasium."""

# ruff: noqa: B007, F841, RUF059  # mistakes of callers are the subject

from __future__ import annotations

import sys
import types

import gymnasium
import numpy as np
import pytest

import envkit
from envkit import (
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    ParallelPyEnvironment,
)
from envkit.testing import CountingEnv
from envkit.wrappers import TimeLimit
from tests.comparing import told

# Each function is one mistake, or one right line.


def four(env, action):
    obs, reward, done, info = env.step(action)


def four_short(env, action):
    obs, r, d, i = env.step(action)


def four_end_only(env, action):
    _, reward, done, _ = env.step(action)


def four_info_only(env, action):
    _, reward, _, info = env.step(action)


def four_attributes(env, action):
    own = types.SimpleNamespace()
    own.state, own.reward, own.over, own.info = env.step(action)


def five(env, action):
    obs, reward, terminated, truncated, info = env.step(action)


def three(env, action):
    obs, reward, done = env.step(action)


def after_a_right_reset(env, action):
    env.reset()
    next_state, reward, done, _ = env.step(action)


def in_a_loop(env, action):
    time_step = env.reset()
    while not np.all(time_step.is_last()):
        next_obs, reward, terminated, truncated, info = env.step(action)


def reset_two(env, action):
    obs, info = env.reset()


def reset_two_seeded(env, action):
    obs, _ = env.reset(options=None)


def reset_first(env, action):
    obs = env.reset()[0]


def reset_rest(env, action):
    obs, *_ = env.reset()


WRONG = [
    four,
    four_short,
    four_end_only,
    four_info_only,
    four_attributes,
    five,
    three,
    after_a_right_reset,
    in_a_loop,
    reset_two,
    reset_two_seeded,
    reset_first,
    reset_rest,
]


def right_four(env, action):
    env.reset()
    step_type, reward, discount, observation = env.step(action)


def right_four_short(env, action):
    s, r, d, o = env.reset()
    _, reward, discount, obs = env.step(action)
    _, _, _, next_obs = env.step(action)


def right_loop(env, action):
    for step_type, reward, discount, obs in [env.reset(), env.step(action)]:
        assert obs is not None


def right_rest(env, action):
    *_, obs = env.reset()


def right_indices(env, action):
    step_type, obs = env.reset()[0], env.step(action)[3]


def right_name(env, action):
    obs = env.reset()
    obs = env.step(action)


RIGHT = [
    right_four,
    right_four_short,
    right_loop,
    right_rest,
    right_indices,
    right_name,
]


def counting():
    return CountingEnv()


def wrapped():
    return TimeLimit(CountingEnv(), 5)


def batched():
    return BatchedPyEnvironment([CountingEnv(), CountingEnv()])


def pool():
    return ParallelPyEnvironment([CountingEnv] * 2, backend="inline")


KINDS = [counting, wrapped, batched, pool, lambda: TimeLimit(pool(), 5)]


def first_action(env):
    return [0, 0] if env.batched else 0


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("line", WRONG)
def test_unpacking_a_tuple_of_gymnasiums_is_refused(line, make):
    with make() as env:
        kind, message = told(line, env, first_action(env))
    assert ValueError is kind
    call = "env.reset()" if "reset_" in line.__name__[:6] else "env.step(action)"
    assert f"Write\n\n    time_step = {call}\n\n" in message


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("line", RIGHT)
def test_unpacking_the_parts_of_a_time_step_is_legal(line, make):
    with make() as env:
        line(env, first_action(env))


def test_the_refusal_shows_the_line_to_write():
    assert (
        "CountingEnv.step() returns a TimeStep, not (obs, reward, done, info). Write"
        "\n\n"
        "    time_step = env.step(action)\n\n"
        "and use time_step.observation, time_step.reward, and time_step.is_last(), "
        "which says whether the episode has ended; env.get_info() returns the info. "
        "As a tuple, a time step is (step_type, reward, discount, observation)."
    ) == told(four, counting(), 0)[1]


def recv_right(env):
    env_ids, time_step = env.recv()


def recv_first(env):
    ids = env.recv()[0]


def recv_two(env):
    obs, info = env.recv()


def recv_four(env):
    obs, reward, done, info = env.recv()


@pytest.mark.parametrize("line", [recv_two, recv_four])
def test_the_rows_of_recv_are_no_tuple_of_envpools(line):
    with AsyncParallelPyEnvironment([CountingEnv] * 2, backend="inline") as env:
        env.reset_async()
        kind, message = told(line, env)
    assert ValueError is kind
    assert "    env_ids, time_step = env.recv()\n" in message


@pytest.mark.parametrize("line", [recv_right, recv_first])
def test_the_parts_of_recv_may_be_taken_apart(line):
    with AsyncParallelPyEnvironment([CountingEnv] * 2, backend="inline") as env:
        env.reset_async()
        line(env)


def test_an_adapter_for_gymnasium_may_be_unpacked():
    env = gymnasium.wrappers.TimeLimit(envkit.adapters.PyToGymnasium(counting()), 5)
    _, info = env.reset()
    _, _, terminated, truncated, info = env.step(0)
    assert (False, False, {}) == (terminated, truncated, info)


def test_code_whose_bytecode_is_unreadable_is_left_alone(monkeypatch):
    monkeypatch.setattr("dis.get_instructions", lambda code: iter(()))
    kind, message = told(reset_two, counting(), 0)
    assert ValueError is kind
    assert "TimeStep" not in message


def test_only_the_first_calls_look_at_the_caller(monkeypatch):
    env = counting()
    env.reset()
    env.step(0)
    monkeypatch.setattr(sys, "_getframe", None)
    env.reset()
    env.step(0)
