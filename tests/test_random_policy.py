"""`RandomPolicy`: each action depends on its row's seed and its step alone."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from envkit import (
    AsyncParallelPyEnvironment,
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
    RandomPolicy,
)
from envkit.seeding import seed_per_row
from envkit.testing import CountingEnv

SPEC = {"move": BoundedArraySpec((), np.int64, 0, 9999)}
MOVE = BoundedArraySpec((), np.int32, 0, 1)


def moves(policy, steps, row=0):
    return [int(policy.action(step, row)["move"]) for step in steps]


def test_an_action_is_the_same_whenever_it_is_asked_for():
    forward, backward = RandomPolicy(SPEC, 7), RandomPolicy(SPEC, 7)

    assert moves(forward, range(9)) == moves(backward, reversed(range(9)))[::-1]
    assert len(set(moves(forward, range(9)))) > 7


def test_a_row_is_like_a_single_environment_with_its_seed_in_a_batch_of_any_size():
    three, five = RandomPolicy(SPEC, 7, 3), RandomPolicy(SPEC, 7, 5)
    alone = RandomPolicy(SPEC, seed_per_row(7, 3)[2])

    assert moves(three, range(5), 2) == moves(five, range(5), 2)
    assert moves(alone, range(5)) == moves(five, range(5), 2)
    assert moves(three, range(5), 1) != moves(five, range(5), 2)
    listed = RandomPolicy(SPEC, [4, 5], 2)
    assert moves(RandomPolicy(SPEC, 5), range(5)) == moves(listed, range(5), 1)


def test_it_draws_other_numbers_than_a_generator_with_its_seed():
    spec = BoundedArraySpec((8,), np.float64, 0.0, 1.0)

    drawn = RandomPolicy(spec, 7).action(0)

    assert drawn.tolist() != np.random.default_rng(7).random(8).tolist()


def test_without_a_seed_it_differs_each_time():
    assert moves(RandomPolicy(SPEC), range(5)) != moves(RandomPolicy(SPEC), range(5))


@pytest.mark.parametrize("order", ["next_step", "same_step", "disabled"])
def test_rows_take_the_same_actions_in_every_order_of_resets(order):
    lengths = [2, 3]
    policy = RandomPolicy(MOVE, 3, 2)
    taken = [[], []]
    makers = [lambda own=own: CountingEnv(own) for own in lengths]
    with ParallelPyEnvironment(makers, backend="inline", autoreset=order) as env:
        env.reset()
        for _ in range(9):
            now = env.current_time_step()
            if order == "disabled" and now.is_last().any():
                now = env.reset(now.is_last())
            action = policy(now)
            for row in np.flatnonzero(~now.is_last()).tolist():
                taken[row].append(int(action[row]))
            env.step(action)

    for row in (0, 1):
        steps = range(len(taken[row]))
        assert taken[row] == [int(policy.action(step, row)) for step in steps]
        assert len(taken[row]) == policy.steps[row]


def test_rows_that_answer_in_any_order_take_their_own_actions():
    policy = RandomPolicy(MOVE, 3, 4)
    with AsyncParallelPyEnvironment([CountingEnv] * 4, backend="thread") as env:
        env.reset_async()
        for _ in range(20):
            batch = env.recv(count=2)
            steps = policy.steps[batch.env_ids]
            actions = policy(batch.time_step, batch.env_ids)
            expected = [
                policy.action(int(step), row)
                for step, row in zip(steps, batch.env_ids.tolist(), strict=True)
            ]
            assert np.stack(expected).tolist() == actions.tolist()
            env.send(actions, batch.env_ids)
        env.recv()


def test_it_acts_in_a_single_environment_and_goes_on_after_pickling():
    env = CountingEnv(2)
    policy = RandomPolicy(SPEC, 7)
    first = policy(env.reset())
    again = pickle.loads(pickle.dumps(policy))

    second = policy(env.step(0))

    assert moves(policy, [0, 1]) == [int(first["move"]), int(second["move"])]
    assert second == again(env.current_time_step())
    assert [2] == policy.steps.tolist()


def test_masks_leave_out_actions_row_by_row():
    policy = RandomPolicy(SPEC | {"gear": MOVE}, 7, 3)
    batch = BatchedPyEnvironment([CountingEnv() for _ in range(3)])
    mask = {"move": None, "gear": np.array([[1, 0], [0, 1], [1, 0]], bool)}
    time_step = batch.reset()

    for _ in range(5):
        assert [0, 1, 0] == policy(time_step, mask=mask)["gear"].tolist()


def test_a_time_step_of_another_batch_is_refused(message_of):
    policy = RandomPolicy(SPEC, 7, 3)
    time_step = BatchedPyEnvironment([CountingEnv(), CountingEnv()]).reset()

    assert (
        "RandomPolicy was given a time step of shape (2,), and there are 3 rows: give "
        "it batch_size, or env_ids for some."
    ) == message_of(ValueError, lambda: policy(time_step))
