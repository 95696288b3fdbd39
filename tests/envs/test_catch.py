"""Catch: the rules of bsuite's game."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import StepType
from envkit.envs import Catch


def places(board):
    """Returns the cells with a one."""
    return [tuple(int(index) for index in cell) for cell in np.argwhere(board)]


def ball_column(time_step):
    return places(time_step.observation)[0][1]


def test_an_episode_begins_with_a_ball_at_the_top_and_the_paddle_in_the_middle():
    env = Catch(200, seed=1)
    boards = env.reset().observation
    assert np.float32 == boards.dtype
    assert (200, 10, 5) == boards.shape
    assert {((0, column), (9, 2)) for column in range(5)} == {
        tuple(places(board)) for board in boards
    }


@pytest.mark.parametrize(("action", "column"), [(0, 1), (1, 2), (2, 3)])
def test_the_paddle_moves_and_the_ball_falls(action, column):
    env = Catch(seed=1)
    before = env.reset()
    time_step = env.step(action)
    assert [(1, ball_column(before)), (9, column)] == places(time_step.observation)
    assert time_step.step_type is StepType.MID
    assert 0.0 == time_step.reward


@pytest.mark.parametrize(("action", "column"), [(0, 0), (2, 4)])
def test_the_paddle_stops_at_the_wall(action, column):
    env = Catch(seed=1)
    env.reset()
    for _ in range(4):
        time_step = env.step(action)
    assert column == places(time_step.observation)[1][1]


@given(
    rows=st.integers(2, 6),
    columns=st.integers(1, 5),
    seed=st.integers(0, 99),
    actions=st.lists(st.integers(0, 2), min_size=5, max_size=5),
)
@settings(max_examples=30)
def test_the_ball_is_caught_where_the_paddle_is(rows, columns, seed, actions):
    env = Catch(rows=rows, columns=columns, seed=seed)
    ball = ball_column(env.reset())
    paddle = columns // 2
    for action in actions[: rows - 1]:
        time_step = env.step(action)
        paddle = min(max(paddle + action - 1, 0), columns - 1)
    assert time_step.step_type is StepType.LAST
    assert 0.0 == time_step.discount
    assert (1.0 if paddle == ball else -1.0) == time_step.reward
    assert sorted({(rows - 1, ball), (rows - 1, paddle)}) == places(
        time_step.observation
    )


def test_the_picture_shows_the_ball_and_the_paddle():
    env = Catch(rows=3, columns=3, seed=1)
    board = env.reset().observation
    picture = env.render()
    assert (48, 48, 3) == picture.shape
    assert np.array_equal(board > 0, picture[::16, ::16].any(axis=-1))
