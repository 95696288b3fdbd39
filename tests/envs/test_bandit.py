"""Bandit: the distributions of Sutton and Barto's testbed."""

from __future__ import annotations

import numpy as np

from envkit import StepType
from envkit.envs import Bandit


def test_values_are_drawn_from_a_standard_normal_distribution():
    env = Bandit(4000, seed=1)
    env.reset()
    values = env.get_info()["values"]
    assert (4000, 10) == values.shape
    assert np.allclose(0.0, values.mean(axis=0), atol=0.07)
    assert np.allclose(1.0, values.std(axis=0), atol=0.05)


def test_rewards_vary_by_one_around_the_value_of_the_arm():
    env = Bandit(3, num_arms=4, episode_length=5000, seed=1)
    env.reset()
    arms = [0, 3, 1]
    rewards = np.array([env.step(arms).reward for _ in range(4000)])
    values = env.get_info()["values"][np.arange(3), arms]
    assert np.float32 == rewards.dtype
    assert np.allclose(values, rewards.mean(axis=0), atol=0.07)
    assert np.allclose(1.0, rewards.std(axis=0), atol=0.05)


def test_values_stay_for_an_episode_and_are_drawn_again_for_the_next():
    env = Bandit(num_arms=2, episode_length=3, seed=1)
    env.reset()
    first = env.get_info()["values"]
    for _ in range(3):
        env.step(0)
        assert np.array_equal(first, env.get_info()["values"])
    env.step(0)
    assert (first != env.get_info()["values"]).all()


def test_an_episode_is_truncated_at_its_length():
    env = Bandit(episode_length=3, seed=1)
    env.reset()
    time_steps = [env.step(0) for _ in range(4)]
    types = [time_step.step_type for time_step in time_steps]
    assert [StepType.MID, StepType.MID, StepType.LAST, StepType.FIRST] == types
    assert [1.0] * 4 == [time_step.discount for time_step in time_steps]


def test_an_episode_has_1000_steps_by_default():
    env = Bandit(2, seed=1)
    env.reset()
    for _ in range(999):
        assert env.step([0, 1]).is_mid().all()
    assert env.step([0, 1]).is_last().all()


def test_observations_are_always_one():
    env = Bandit(2, seed=1)
    assert [[1.0], [1.0]] == env.reset().observation.tolist()
    assert [[1.0], [1.0]] == env.step([0, 1]).observation.tolist()


def test_the_picture_has_a_bar_for_each_arm():
    env = Bandit(num_arms=5, seed=1)
    env.reset()

    picture = env.render()
    assert (120, 60, 3) == picture.shape
    up = (picture == (90, 190, 120)).all(axis=-1).any(axis=0)[6::12]
    down = (picture == (210, 90, 80)).all(axis=-1).any(axis=0)[6::12]
    values = env.get_info()["values"]
    assert (values > 0.1).tolist() == (up & (values > 0.1)).tolist()
    assert (values < -0.1).tolist() == (down & (values < -0.1)).tolist()
    assert not (up & down).any()
