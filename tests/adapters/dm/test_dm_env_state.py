"""States of dm_env's environments: complete, independent, or refused."""

from __future__ import annotations

import pickle
import threading
import types

import numpy as np
import pytest

from envkit.adapters.dm.dm_env_state import restore_state, save_state
from tests.adapters.dm_env_examples import Dice, Noise, Walk


class Task:
    """Has what tasks of dm_control have."""

    def __init__(self):
        self.random = np.random.RandomState(0)

    def initialize_episode(self, physics):
        pass

    def get_reward(self, physics):
        return 0.0


class Held(Dice):
    """Holds a thing."""

    def __init__(self, thing=None):
        super().__init__()
        self.thing = thing


def rolls(env, steps=5):
    return [float(env.step(0).observation) for _ in range(steps)]


def test_a_state_brings_everything_back():
    env = Noise(Noise(Dice()))
    env.reset()
    state = save_state(env, "Noise")
    before = [(time_step.reward) for time_step in map(env.step, [0, 0])]

    restore_state(env, "Noise", state)

    assert before == [time_step.reward for time_step in map(env.step, [0, 0])]


def test_a_state_goes_on_in_another_environment_of_the_same_kind():
    env, twin = Dice(), Dice(np.random.RandomState(8))
    rolls(env)
    state = pickle.loads(pickle.dumps(save_state(env, "Dice")))

    restore_state(twin, "Dice", state)

    assert rolls(env) == rolls(twin)


def test_later_steps_do_not_change_a_state():
    env = Dice()
    state = save_state(env, "Dice")
    first, _ = rolls(env), restore_state(env, "Dice", state)
    second, _ = rolls(env), restore_state(env, "Dice", state)

    assert first == second == rolls(env)


def test_the_parts_of_an_environment_stay_the_objects_they_are():
    dice = Dice()
    dice.task = Task()
    dice.here = dice
    env = Noise(dice)
    task = dice.task
    state = save_state(env, "Noise")

    restore_state(env, "Noise", state)

    assert (dice, task, dice) == (env._env, dice.task, dice.here)


def test_a_task_is_a_part_whatever_it_is_called():
    env, task = Held(Task()), Task()
    env.task = task
    state = save_state(env, "Held")
    expected = env.thing.random.random(), task.random.random()

    restore_state(env, "Held", state)

    assert expected == (env.thing.random.random(), task.random.random())


def test_what_is_beside_comes_back_with_it():
    env = Dice()

    assert {"next": 7} == restore_state(env, "Dice", save_state(env, "", {"next": 7}))


def test_attributes_that_came_later_go_again():
    env = Dice()
    state = save_state(env, "Dice")
    env.later = 1

    restore_state(env, "Dice", state)

    assert not hasattr(env, "later")


def test_functions_that_know_only_the_environment_and_constants_stay():
    env = Held()
    scale = 2.0
    env.thing = lambda: env._generator.random() * scale
    function, state = env.thing, save_state(env, "Held")
    before = env.thing()

    restore_state(env, "Held", state)

    assert before == env.thing()
    assert function is env.thing


def remembering():
    heap = []
    return lambda: heap.append(1)


def with_memory():
    def function(seen=[]):  # noqa: B006  # that is what is tested
        return seen

    return function


@pytest.mark.parametrize(
    ("make_thing", "reason"),
    [
        (threading.Lock, "cannot pickle '_thread.lock' object"),
        (remembering, "remembering.<locals>.<lambda>"),
        (with_memory, "with_memory.<locals>.function"),
        (lambda: [lambda: 0], "<lambda>.<locals>.<lambda>"),
    ],
    ids=["lock", "closure", "default", "nested"],
)
def test_what_does_not_pickle_makes_a_state_impossible(make_thing, reason):
    with pytest.raises(NotImplementedError) as caught:
        save_state(Held(make_thing()), "Held")

    message, _, why = str(caught.value).partition("pickle: ")
    assert (
        "Held cannot save its state. A state is all that the environment and its task "
        "hold, and one of these things does not "
    ) == message
    assert reason in why


def test_an_environment_without_attributes_has_no_state_to_take():
    class Closed:
        __slots__ = ("left",)

    with pytest.raises(NotImplementedError, match=r"__dict__"):
        save_state(Closed(), "Closed")


@pytest.mark.parametrize(
    ("make_state", "got"),
    [
        (lambda: save_state(Dice(), "Dice"), "Dice"),
        (lambda: save_state(Noise(Walk()), "Noise"), "Noise around Walk"),
        (lambda: types.SimpleNamespace(), "SimpleNamespace"),
    ],
    ids=["wrappers", "environment", "anything"],
)
def test_a_state_of_another_environment_is_refused(make_state, got):
    env = Noise(Dice())
    before = pickle.dumps(env._env)

    with pytest.raises(ValueError, match=r"another environment") as caught:
        restore_state(env, "Noise", make_state())

    assert (
        "Noise was given the state of another environment.\n\n"
        "  expected   Noise around Dice\n"
        f"  got        {got}\n\n"
        "A state fits the same environment in the same wrappers."
    ) == str(caught.value)
    assert before == pickle.dumps(env._env)
