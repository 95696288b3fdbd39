"""`EpisodeLimit`: so many episodes, and then nothing more."""

from __future__ import annotations

import numpy as np
import pytest

from envkit import BatchedPyEnvironment
from envkit.testing import CountingEnv
from envkit.wrappers import EpisodeLimit, FixedLength
from tests.wrappers.environments import MovesTogether

FIRST, MID, LAST = 0, 1, 2


def counters(*lengths):
    return BatchedPyEnvironment([CountingEnv(length) for length in lengths], False)


def test_a_run_is_over_after_so_many_episodes():
    env = EpisodeLimit(CountingEnv(2), 2)
    stream = [int(env.reset().step_type)]
    while not env.is_over:
        stream.append(int(env.step(0).step_type))

    assert [FIRST, MID, LAST, FIRST, MID, LAST] == stream


def test_after_that_the_end_is_shown_again_and_nothing_is_earned():
    inner = CountingEnv(1)
    env = EpisodeLimit(inner, 1)
    env.reset()
    end = env.step(0)
    again = env.step(0)

    assert (LAST, end.observation) == (again.step_type, again.observation)
    assert (0.0, 0.0) == (again.reward, again.discount)
    assert not env.valid
    assert LAST == inner.current_time_step().step_type


def test_each_row_has_its_own_episodes():
    env = EpisodeLimit(counters(1, 2), 2)
    env.reset()
    stream, valid = [], []
    while not env.is_over:
        stream.append(env.step(np.zeros(2, int)).step_type.tolist())
        valid.append(env.valid.tolist())

    assert [[LAST, MID], [FIRST, LAST], [LAST, FIRST], [LAST, MID], [LAST, LAST]] == (
        stream
    )
    assert [True, True, True, False, False] == [row[0] for row in valid]


@pytest.mark.parametrize("rows", [None, 2])
def test_an_end_that_is_shown_again_is_no_end_of_another_episode(rows):
    inner = CountingEnv(1) if rows is None else counters(*[1] * rows)
    env = EpisodeLimit(FixedLength(inner, 3), 2)
    env.reset()
    stream = []
    while not env.is_over:
        action = 0 if rows is None else np.zeros(rows, int)
        stream.append(int(np.max(env.step(action).step_type)))

    assert [LAST, LAST, LAST, FIRST, LAST] == stream


def test_a_reset_begins_a_new_run():
    env = EpisodeLimit(CountingEnv(1), 1)
    env.reset()
    env.step(0)
    env.reset()

    assert not env.is_over
    assert env.valid


def test_a_reset_of_some_rows_begins_a_new_run_for_them():
    env = EpisodeLimit(counters(1, 1), 1)
    env.reset()
    env.step(np.zeros(2, int))
    env.reset(np.array([True, False]))
    time_step = env.step(np.zeros(2, int))

    assert [True, False] == env.valid.tolist()
    assert [LAST, LAST] == time_step.step_type.tolist()
    assert env.is_over


def test_where_a_run_stands_is_a_part_of_the_state():
    env = EpisodeLimit(counters(1, 3), 1)
    env.reset()
    env.step(np.zeros(2, int))
    state = env.get_state()
    expected = [env.step(np.zeros(2, int)).step_type.tolist() for _ in range(2)]
    env.reset()
    env.set_state(state)

    assert expected == [env.step(np.zeros(2, int)).step_type.tolist() for _ in range(2)]


def test_rows_that_cannot_wait_are_refused():
    with pytest.raises(ValueError, match="cannot leave rows where they are"):
        EpisodeLimit(MovesTogether(batch_size=2), 2)


@pytest.mark.parametrize("episodes", [0, 1.5, True])
def test_a_number_of_episodes_is_a_positive_integer(episodes):
    with pytest.raises(ValueError, match="episodes is "):
        EpisodeLimit(CountingEnv(), episodes)
