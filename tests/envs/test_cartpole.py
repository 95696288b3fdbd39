"""CartPole: the dynamics of Gymnasium's, and how episodes end."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from envkit import StepType
from envkit.envs import CartPole


def upright(observation):
    """Says where to push so that the pole stays up and the cart near the middle."""
    position, velocity, angle, spin = np.moveaxis(np.asarray(observation), -1, 0)
    leaning = angle + 0.3 * spin + 0.05 * position + 0.05 * velocity
    return (leaning > 0).astype(np.int64)


def state_of(env):
    return env.get_info()["state"]


def start_like(theirs, ours):
    """Puts Gymnasium's environment where ours begins an episode."""
    time_step = ours.reset()
    theirs.reset()
    theirs.unwrapped.state = state_of(ours)
    return time_step


def test_the_spaces_match_gymnasium():
    env, theirs = CartPole(), gymnasium.make("CartPole-v1")
    spec, space = env.observation_spec(), theirs.observation_space
    largest = np.finfo(np.float32).max
    assert (space.shape, space.dtype) == (spec.shape, spec.dtype)
    assert np.array_equal(np.clip(space.low, -largest, largest), spec.minimum)
    assert np.array_equal(np.clip(space.high, -largest, largest), spec.maximum)
    assert theirs.action_space.n == env.action_spec().num_values


def test_states_match_gymnasium_exactly():
    """Through whole episodes, to the truncation, without a bit of difference."""
    ours, theirs = CartPole(seed=4), gymnasium.make("CartPole-v1")
    for _ in range(3):
        time_step = start_like(theirs, ours)
        truncated = False
        while not truncated:
            action = int(upright(time_step.observation))
            time_step = ours.step(action)
            observation, reward, terminated, truncated, _ = theirs.step(action)

            assert np.array_equal(theirs.unwrapped.state, state_of(ours))
            assert np.array_equal(observation, time_step.observation)
            assert (reward, terminated) == (time_step.reward, not time_step.discount)
            assert truncated == bool(time_step.is_last())


def test_long_episodes_of_a_batch_match_gymnasium():
    ours, theirs = CartPole(1, seed=4), gymnasium.make("CartPole-v1")
    for _ in range(3):
        time_step = ours.reset()
        theirs.reset()
        truncated = False
        while not truncated:
            action = upright(time_step.observation)
            # A pole magnifies what differs in the last bit, by 8 % in each step. So
            # that every step is compared, each begins at the same state.
            theirs.unwrapped.state = state_of(ours)[0]
            time_step = ours.step(action)
            observation, _, _, truncated, _ = theirs.step(int(action[0]))

            assert np.array_equal(observation, time_step.observation[0])
            assert np.allclose(
                theirs.unwrapped.state, state_of(ours)[0], rtol=0.0, atol=1e-15
            )
            assert truncated == bool(time_step.is_last()[0])


def test_episodes_of_random_actions_match_gymnasium():
    ours, theirs = CartPole(seed=5), gymnasium.make("CartPole-v1")
    rng = np.random.default_rng(6)
    for _ in range(40):
        time_step = start_like(theirs, ours)
        while not time_step.is_last():
            action = int(rng.integers(2))
            time_step = ours.step(action)
            observation, reward, terminated, _, _ = theirs.step(action)

            assert np.array_equal(observation, time_step.observation)
            assert reward == time_step.reward
            assert terminated == bool(time_step.is_last())


def test_a_batch_matches_gymnasiums_own_batch():
    rows, rng = 50, np.random.default_rng(7)
    ours = CartPole(rows, max_episode_steps=30, seed=8)
    theirs = gymnasium.make_vec(
        "CartPole-v1",
        num_envs=rows,
        vectorization_mode="vector_entry_point",
        max_episode_steps=30,
    )
    ours.reset()
    theirs.reset()
    theirs.state = state_of(ours).T.copy()
    for _ in range(100):
        action = rng.integers(0, 2, rows)
        time_step = ours.step(action)
        observation, reward, terminated, truncated, _ = theirs.step(action)
        live = time_step.step_type != StepType.FIRST
        # Both draw first states of their own.
        theirs.state[:, ~live] = state_of(ours)[~live].T

        assert np.array_equal(observation[live], time_step.observation[live])
        assert np.array_equal(reward, time_step.reward)
        assert np.array_equal(terminated, time_step.discount == 0.0)
        assert np.array_equal(terminated | truncated, time_step.is_last())


def test_episodes_start_within_0_05_of_zero():
    starts = CartPole(2000, seed=1).reset().observation
    assert np.allclose(-0.05, starts.min(axis=0), atol=1e-3)
    assert np.allclose(0.05, starts.max(axis=0), atol=1e-3)
    assert np.allclose(0.0, starts.mean(axis=0), atol=3e-3)
    assert (np.abs(starts) <= 0.05).all()


def fall(env):
    """Pushes to the right until the episode ends; returns its time steps."""
    time_steps = [env.reset()]
    while not time_steps[-1].is_last():
        time_steps.append(env.step(1))
    return time_steps


def test_a_fallen_pole_terminates():
    env = CartPole(seed=3)
    *_, before, last = fall(env)
    assert (0.0, 1.0) == (last.discount, last.reward)
    assert abs(before.observation[2]) <= np.radians(12) < abs(last.observation[2])
    flags = {name: bool(env.get_info()[name]) for name in ("terminated", "truncated")}
    assert {"terminated": True, "truncated": False} == flags


@pytest.mark.parametrize("batch_size", [None, 1])
def test_leaving_the_track_terminates(batch_size):
    env = CartPole(batch_size, seed=3)
    time_step = env.reset()

    while not time_step.is_last().all():
        before = time_step
        # Upright for a pole that leans, so that the cart speeds up.
        tilted = time_step.observation - np.array([0, 0, 0.04, 0], np.float32)
        time_step = env.step(upright(tilted * [0, 0, 1, 1]))
    assert 0.0 == time_step.discount
    position, _, angle, _ = time_step.observation.reshape(4)
    assert abs(before.observation.reshape(4)[0]) <= 2.4 < abs(position)
    assert abs(angle) < np.radians(12)


def test_an_upright_pole_is_truncated_after_500_steps():
    env = CartPole(3, seed=3)
    time_step = env.reset()
    for _ in range(499):
        time_step = env.step(upright(time_step.observation))
        assert time_step.is_mid().all()
    time_step = env.step(upright(time_step.observation))
    assert time_step.is_last().all()
    assert [1.0] * 3 == time_step.discount.tolist()
    assert [500] * 3 == env.get_info()["episode_steps"].tolist()


@pytest.mark.parametrize("batch_size", [None, 2])
def test_without_a_limit_nothing_is_truncated(batch_size):
    env = CartPole(batch_size, max_episode_steps=None, seed=3)
    time_step = env.reset()
    for _ in range(600):
        time_step = env.step(upright(time_step.observation))
    assert time_step.is_mid().all()


@pytest.mark.parametrize("batch_size", [None, 1])
def test_a_fall_at_the_limit_keeps_both_flags(batch_size):
    def seeded(limit):
        env = CartPole(batch_size, max_episode_steps=limit)
        env.seed([3])
        return env

    def push(env):
        time_steps = [env.reset()]
        while not time_steps[-1].is_last().all():
            time_steps.append(env.step(1 if batch_size is None else [1]))
        return time_steps

    steps = len(push(seeded(None))) - 1
    env = seeded(steps)

    last = push(env)[-1]

    assert (0.0, 1.0) == (last.discount, last.reward)
    info = env.get_info()
    assert (True, True) == (info["terminated"], info["truncated"])


@pytest.mark.parametrize("batch_size", [None, 1])
def test_one_step_before_the_fall_is_a_truncation(batch_size):
    env = CartPole(batch_size, max_episode_steps=5, seed=3)
    time_step = env.reset()
    for _ in range(5):
        time_step = env.step(1 if batch_size is None else [1])
    assert (1.0, 1.0) == (time_step.discount, time_step.reward)
    assert time_step.is_last().all()
    info = env.get_info()
    assert (False, True) == (info["terminated"], info["truncated"])


def test_the_picture_shows_which_way_the_pole_leans():
    right, left = CartPole(seed=3), CartPole(seed=3)
    for env, action in ((right, 0), (left, 1)):
        time_step = env.reset()
        while not time_step.is_last():
            time_step = env.step(action)

    def wood(env):
        """Returns the mean column of the pole against that of the cart."""
        picture = env.render().astype(int)
        pole = (picture == (200, 150, 100)).all(axis=-1).nonzero()[1].mean()
        cart = (picture == (40, 40, 40)).all(axis=-1).nonzero()[1].mean()
        return pole - cart

    assert wood(left) < 0 < wood(right)
