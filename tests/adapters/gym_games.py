"""Plays environments of an installed Gym bare and through envkit, and compares.

`test_gym.py` runs this with interpreters that have an old Gym. Nothing here needs
pytest, which they have not.
"""

from __future__ import annotations

import sys

import gym
import numpy as np

from envkit import BatchedPyEnvironment
from envkit.adapters.gym import suite as suite_gym
from envkit.adapters.gym.suite import GymWrapper
from envkit.specs.arrays import BoundedArraySpec
from envkit.testing import check_environment
from envkit.wrappers import TimeLimit

VERSION = sys.argv[1]
OLD = VERSION < "0.26"
LAKE, BLACKJACK = (
    ("FrozenLake-v0", "Blackjack-v0")
    if VERSION < "0.20"
    else ("FrozenLake-v1", "Blackjack-v1")
)
CHECKED = ["episodes", "info", "seed", "state"]


def bare(name):
    """Makes an environment as people did, without what fails with NumPy 2."""
    has_checker = VERSION >= "0.24"
    return gym.make(name, disable_env_checker=True) if has_checker else gym.make(name)


def seeded(env, seed):
    """Begins an episode of a bare environment."""
    if OLD:
        env.seed(seed)
        return env.reset()
    return env.reset(seed=seed)[0]


def moved(env, action):
    """Steps a bare environment; returns what came, and whether there was a limit."""
    result = env.step(action)
    if len(result) == 5:
        observation, reward, terminated, truncated, _ = result
        return observation, reward, terminated, truncated and not terminated
    observation, reward, done, info = result
    cut = info.get("TimeLimit.truncated", False)
    return observation, reward, done and not cut, cut


def compare(name, seed, choose, steps):
    """Plays the same game both ways; returns how episodes ended."""
    theirs, ours = bare(name), suite_gym.load(name, discount=0.9)
    wrapped = GymWrapper(bare(name), discount=0.9)
    ends = set()
    observation = seeded(theirs, seed)
    both = (ours, wrapped)
    for env in both:
        env.seed(seed)
        same(observation, env.reset().observation)
    for number in range(steps):
        action = choose(observation, number)
        observation, reward, terminated, cut = moved(theirs, action)
        discount = np.float32(0.0 if terminated else 0.9)
        for env in both:
            time_step = env.step(np.array(action))
            same(observation, time_step.observation)
            same(np.float32(reward), time_step.reward)
            same(discount, time_step.discount)
            same(terminated or cut, time_step.is_last())
        if terminated or cut:
            ends.add("limit" if cut else "end")
            observation = theirs.reset() if OLD else theirs.reset()[0]
            for env in both:
                same(observation, env.step(np.array(action)).observation)
    for env in (theirs, *both):
        env.close()
    return ends


def same(theirs, ours):
    """Fails unless two values, or nests of them, are equal."""
    if isinstance(ours, tuple):
        for parts in zip(theirs, ours, strict=True):
            same(*parts)
    else:
        # Gym did not keep to the dtypes of its spaces.
        ours = np.asarray(ours)
        np.testing.assert_array_equal(np.asarray(theirs).astype(ours.dtype), ours)


def balance(observation, number):
    """Holds a pole upright for some hundred steps."""
    return int(observation[2] + 0.3 * observation[3] + 0.05 * observation[1] > 0)


def play_cart_pole():
    """Looks at specs, limits, seeds and states, single and batched."""
    env = suite_gym.load("CartPole-v1")
    assert isinstance(env, TimeLimit)
    assert env.duration == 500
    assert env.action_spec() == BoundedArraySpec((), np.int64, 0, 1)
    assert (env.observation_spec().shape, env.observation_spec().dtype) == ((4,), "f4")
    assert env.gym.unwrapped is env.unwrapped
    assert compare("CartPole-v1", 3, lambda _, number: number % 3 > 0, 60) == {"end"}
    assert compare("CartPole-v1", 3, balance, 520) >= {"limit"}
    assert not isinstance(suite_gym.load("CartPole-v1", max_episode_steps=0), TimeLimit)

    def make():
        return suite_gym.load("CartPole-v1", max_episode_steps=30)

    # There are no displays where tests run.
    views = ["render", "render_mode", "render_kept", "render_stream"]
    for form in (make, lambda: BatchedPyEnvironment([make(), make()])):
        report = check_environment(form, require=CHECKED, skip=views, steps=100)
        assert report.failed == ()


def play_toys():
    """Looks at observations that are no arrays, and actions that are looked up."""
    assert compare(LAKE, 5, lambda _, number: number % 4, 60) == {"end"}
    assert compare(BLACKJACK, 5, lambda _, number: number % 2, 40) == {"end"}
    hand = suite_gym.load(BLACKJACK).observation_spec()
    assert [spec.dtype for spec in hand] == [np.int64] * 3


def draw():
    """Looks at pictures, which need a display before Gym drew with pygame."""
    mode = {} if OLD else {"render_mode": "rgb_array"}
    env = suite_gym.load("CartPole-v1", gym_kwargs=mode)
    env.seed(3)
    env.reset()
    before = env.render()
    assert (before.shape, before.dtype) == ((400, 600, 3), np.uint8)
    state = env.get_state()
    for _ in range(5):
        env.step(1)
    assert (env.render() != before).any()
    env.set_state(state)
    same(before, env.render())
    env.close()


if __name__ == "__main__":
    assert gym.__version__ == VERSION
    play_cart_pole()
    play_toys()
    if VERSION >= "0.22":
        draw()
    print("played: CartPole-v1 FrozenLake Blackjack")
