"""States of Gymnasium environments: complete, independent, or refused."""

from __future__ import annotations

import pickle
import threading

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils import EzPickle

from envkit.adapters.snapshot import restore_snapshot, take_snapshot


class Walk(gymnasium.Env):
    """Adds up random numbers."""

    observation_space = spaces.Box(-100.0, 100.0, (), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.place = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0.0
        return np.array(self.place), {}

    def step(self, action):
        self.place += self.np_random.normal()
        return np.array(self.place), 0.0, False, False, {}


class RebuiltWalk(Walk, EzPickle):
    """Is rebuilt from its arguments when it is copied or pickled."""

    def __init__(self, start=0.0):
        EzPickle.__init__(self, start)
        super().__init__()


class Keeper(gymnasium.Wrapper):
    """Keeps a thing."""

    def __init__(self, env, thing):
        super().__init__(env)
        self.thing = thing


def walked(env, steps=3):
    env.reset(seed=5)
    for _ in range(steps):
        env.step(0)
    return env


def path(env, steps=5):
    return [float(env.step(0)[0]) for _ in range(steps)]


def copied(snapshot):
    return pickle.loads(pickle.dumps(snapshot))


@pytest.mark.parametrize("make_env", [Walk, RebuiltWalk])
def test_a_state_brings_back_the_environment_and_its_generator(make_env):
    env = walked(make_env())
    snapshot = copied(take_snapshot(env, "Walk"))
    ahead = path(env)

    restore_snapshot(env, "Walk", snapshot)

    assert ahead == path(env)


def test_a_state_can_be_brought_back_more_than_once():
    env = walked(Walk())
    snapshot = take_snapshot(env, "Walk")
    ahead = path(env)

    for _ in range(2):
        restore_snapshot(env, "Walk", snapshot)

        assert ahead == path(env)


def test_a_state_brings_back_what_wrappers_count():
    env = walked(gymnasium.wrappers.TimeLimit(Walk(), 5))
    snapshot = take_snapshot(env, "Walk")
    env.step(0)
    env.step(0)

    restore_snapshot(env, "Walk", snapshot)

    assert [False, True] == [env.step(0)[3] for _ in range(2)]


def test_a_state_fits_another_environment_of_the_same_make():
    env = walked(gymnasium.wrappers.TimeLimit(Walk(), 50))
    snapshot = copied(take_snapshot(env, "Walk"))
    other = gymnasium.wrappers.TimeLimit(Walk(), 50)

    restore_snapshot(other, "Walk", snapshot)

    assert path(env) == path(other)


def test_layers_stay_the_objects_they_were():
    walk = Walk()
    env = Keeper(walk, None)
    env.thing = walk.step
    restore_snapshot(env, "Walk", take_snapshot(env, "Walk"))

    assert walk is env.env
    assert walk is env.thing.__self__


def test_what_is_kept_in_two_layers_stays_one():
    env = Keeper(Walk(), [])
    env.env.place = env.thing

    restore_snapshot(env, "Walk", take_snapshot(env, "Walk"))

    assert env.thing is env.env.place


def test_an_environment_within_an_attribute_is_saved_by_what_it_holds():
    env = Keeper(Walk(), walked(RebuiltWalk()))
    snapshot = take_snapshot(env, "Walk")
    ahead = path(env.thing)

    restore_snapshot(env, "Walk", snapshot)

    assert ahead == path(env.thing)


def test_what_was_saved_beside_comes_back():
    env = Walk()

    assert {"info": 3} == restore_snapshot(
        env, "Walk", take_snapshot(env, "Walk", {"info": 3})
    )


def test_what_does_not_pickle_makes_a_state_impossible():
    env = Keeper(Walk(), threading.Lock())

    with pytest.raises(NotImplementedError) as caught:
        take_snapshot(env, "Walk-v0")

    assert (
        "Walk-v0 cannot save its state. A state is all that the environment and its "
        "wrappers hold, and one of these things does not pickle: "
        "cannot pickle '_thread.lock' object"
    ) == str(caught.value)


def test_the_state_of_another_environment_is_refused_and_changes_nothing():
    env = walked(Walk())
    before = env.place

    with pytest.raises(ValueError, match=r"^Walk-v0 was given") as caught:
        restore_snapshot(env, "Walk-v0", take_snapshot(Keeper(Walk(), 1), "Walk"))

    assert (
        "Walk-v0 was given the state of another environment.\n\n"
        "  expected   Walk\n"
        "  got        Walk in Keeper\n\n"
        "A state fits the same environment in the same wrappers."
    ) == str(caught.value)
    assert before == env.place
