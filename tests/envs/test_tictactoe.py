"""TicTacToe: every step against the rules, written down a second time."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit.envs import TicTacToe

WINS = ["012", "345", "678", "036", "147", "258", "048", "246"]


def has_won(board, side):
    return any(all(board[int(square)] == side for square in line) for line in WINS)


def check_step(before, action, time_step):
    """Holds a step against the rules; returns how it ended, or "goes on"."""
    after = time_step.observation["board"].reshape(9)
    moved = before.copy()
    moved[action] = 1
    changed = {int(square) for square in np.flatnonzero(after != moved)}
    if before[action] != 0:
        assert np.array_equal(before, after)
        return "illegal"
    if has_won(moved, 1) or (moved != 0).all():
        assert not changed
        return "won" if has_won(moved, 1) else "drawn"
    (answer,) = changed
    assert (0, 2) == (moved[answer], after[answer])
    return "lost" if has_won(after, 2) else "goes on"


REWARDS = {"won": 1.0, "lost": -1.0, "drawn": 0.0, "illegal": -0.001, "goes on": 0.0}
WINNERS = {"won": 1, "lost": 2}


@given(
    seed=st.integers(0, 2**32 - 1),
    actions=st.permutations(range(9)) | st.lists(st.integers(0, 8), min_size=9),
)
def test_every_step_keeps_the_rules(seed, actions):
    env = TicTacToe(seed=seed)
    observation = env.reset().observation
    for action in actions:
        time_step = env.step(action)
        outcome = check_step(observation["board"].reshape(9), action, time_step)
        observation = time_step.observation
        assert np.float32(REWARDS[outcome]) == time_step.reward
        assert (outcome != "goes on") == bool(time_step.is_last())
        assert float(outcome == "goes on") == time_step.discount
        assert WINNERS.get(outcome, 0) == env.get_info()["winner"]
        empty = observation["board"].reshape(9) == 0
        assert np.array_equal(empty | (outcome != "goes on"), observation["mask"])
        if time_step.is_last():
            break


def test_every_ending_occurs():
    rng, rows = np.random.default_rng(1), 300
    env = TicTacToe(rows, seed=2)
    env.reset()
    rewards = collections.Counter()
    for _ in range(12):
        time_step = env.step(rng.integers(0, 9, rows))
        rewards.update(time_step.reward[time_step.is_last()].tolist())
    endings = {float(np.float32(reward)) for reward in REWARDS.values()}
    assert endings == set(rewards)


def test_the_player_begins_on_an_empty_board():
    observation = TicTacToe(seed=1).reset().observation
    assert np.int32 == observation["board"].dtype
    assert not observation["board"].any()
    assert observation["mask"].all()


def test_the_opponent_plays_every_empty_square_evenly():
    env = TicTacToe(8000, seed=1)
    env.reset()
    boards = env.step(np.full(8000, 4)).observation["board"].reshape(-1, 9)
    shares = (boards == 2).mean(axis=0)
    assert 0.0 == shares[4]
    assert np.allclose(1 / 8, np.delete(shares, 4), atol=0.015)


def test_the_rewards_are_class_attributes():
    assert (1.0, -1.0, -0.001) == (
        TicTacToe.REWARD_WIN,
        TicTacToe.REWARD_LOSS,
        TicTacToe.REWARD_ILLEGAL_MOVE,
    )


@pytest.mark.parametrize(("side", "color"), [(1, (50, 90, 190)), (2, (200, 70, 60))])
def test_the_picture_shows_both_players(side, color):
    env = TicTacToe(seed=1)
    env.reset()
    board = env.step(4).observation["board"]
    drawn = (env.render() == color).all(axis=-1)
    shown = drawn.reshape(3, 40, 3, 40).any(axis=(1, 3))
    assert np.array_equal(board == side, shown)
