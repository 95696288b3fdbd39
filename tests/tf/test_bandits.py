"""Bandits in TensorFlow: rewards and actions of every step arrive."""

from __future__ import annotations

import pytest
import tensorflow as tf

from envkit import BatchedPyEnvironment, ParallelPyEnvironment
from envkit.tf import TFPyEnvironment, dataset
from envkit.tf.tf_wrappers import TFTimeLimit
from envkit.wrappers import TimeLimit
from tests.bandits import Bandit, BanditBatch

KINDS = {
    "single": Bandit,
    "wrapped": lambda: TimeLimit(Bandit(), 3),
    "batch": lambda: BatchedPyEnvironment([Bandit(), Bandit()], False),
    "batched": BanditBatch,
    "pool": lambda: ParallelPyEnvironment([Bandit] * 2, backend="inline"),
}


@pytest.mark.parametrize("through", [lambda function: function, tf.function])
@pytest.mark.parametrize("kind", KINDS)
def test_every_step_takes_its_action(kind, through):
    with TFPyEnvironment(KINDS[kind]()) as env:
        assert env.continues_after_last
        step, time_step = through(env.step), env.reset()
        for asked in (3, 4, 5, 6):
            assert {asked} == set(time_step.observation.numpy().tolist())
            time_step = step(time_step.observation)
            assert {(2, 1.0)} == set(
                zip(
                    time_step.step_type.numpy().tolist(),
                    time_step.reward.numpy().tolist(),
                    strict=True,
                )
            )


def test_a_loop_in_a_graph_earns_every_reward():
    env = TFPyEnvironment(Bandit())

    @tf.function
    def play():
        time_step, earned = env.reset(), tf.zeros([1])
        for _ in tf.range(5):
            time_step = env.step(time_step.observation)
            earned += time_step.reward
        return earned

    assert [5.0] == play().numpy().tolist()


def test_a_tensorflow_time_limit_keeps_every_action():
    env = TFTimeLimit(TFPyEnvironment(Bandit()), 3)
    time_step = env.reset()
    for _ in range(6):
        time_step = env.step(time_step.observation)
        assert (2, 1.0) == (int(time_step.step_type[0]), float(time_step.reward[0]))


@pytest.mark.parametrize("order", ["next_step", "same_step", "disabled"])
def test_every_step_is_a_transition_of_a_dataset(order):
    env = BatchedPyEnvironment([Bandit()], False, autoreset=order)
    steps = dataset(env, lambda time_step: time_step.observation, prefetch=0)
    found = [
        (int(each.action), float(each.next_time_step.reward)) for each in steps.take(4)
    ]
    assert [(3, 1.0), (4, 1.0), (5, 1.0), (6, 1.0)] == found


def test_every_step_is_an_episode_of_a_dataset():
    episodes = dataset(
        Bandit, lambda time_step: time_step.observation, whole_episodes=True
    )
    lengths = [len(each.action) for each in episodes.take(3)]
    assert [1, 1, 1] == lengths
