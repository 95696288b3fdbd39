"""States of Gymnasium environments: complete, independent, or refused."""

from __future__ import annotations

import math
import pickle
import threading

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils import EzPickle

from envkit.adapters.snapshot import layers_of, restore_snapshot, take_snapshot


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


def count_to(limit):
    count = 0

    def limited(reward):
        nonlocal count
        count += 1
        return reward if count < limit else math.inf

    return limited


def rewards(env, steps=4):
    return [float(env.step(0)[1]) for _ in range(steps)]


def test_functions_without_a_name_stay_and_go_on_from_where_they_were():
    def make():
        return gymnasium.wrappers.TransformReward(Walk(), count_to(6))

    env, other = walked(make()), make()
    function = env.func
    snapshot = copied(take_snapshot(env, "Walk"))
    ahead = path(env), rewards(env)

    for restored in (env, other):
        restore_snapshot(restored, "Walk", snapshot)

        assert ahead == (path(restored), rewards(restored))
    assert function is env.func
    assert function is not other.func


@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: gymnasium.wrappers.TransformObservation(
            env, lambda place: 2 * place, env.observation_space
        ),
        lambda env: gymnasium.wrappers.RescaleObservation(
            env, np.float64(-1), np.float64(1)
        ),
        lambda env: gymnasium.wrappers.ReshapeObservation(env, (1,)),
        lambda env: gymnasium.wrappers.FlattenObservation(env),
        lambda env: gymnasium.wrappers.DtypeObservation(env, np.longdouble),
        lambda env: gymnasium.wrappers.TimeAwareObservation(env),
        lambda env: gymnasium.wrappers.ClipReward(env, 0, 1),
    ],
)
def test_gymnasiums_wrappers_have_states(wrap):
    def seen(env):
        return [repr(env.step(0)) for _ in range(5)]

    env, other = walked(wrap(limited())), wrap(limited())
    snapshot = copied(take_snapshot(env, "Walk"))
    ahead = seen(env)

    for restored in (env, other):
        restore_snapshot(restored, "Walk", snapshot)

        assert ahead == seen(restored)


def limited():
    return gymnasium.wrappers.TimeLimit(Walk(), 50)


def test_a_function_may_know_modules_and_layers():
    env = Keeper(walked(Walk()), None)
    library = math

    env.thing = lambda: (library.pi, env.env)
    restore_snapshot(env, "Walk", take_snapshot(env, "Walk"))

    assert (math.pi, env.env) == env.thing()


def test_a_state_with_a_function_needs_one_in_the_same_place():
    env, other = Keeper(Walk(), count_to(1)), Keeper(walked(Walk()), None)
    before = other.env.place

    with pytest.raises(ValueError, match=r"^Walk-v0 was given") as caught:
        restore_snapshot(other, "Walk-v0", take_snapshot(env, "Walk-v0"))

    assert (
        "Walk-v0 was given the state of another environment: it holds "
        "count_to.<locals>.limited, a function that there is none of in the same place "
        "here. A state fits the same environment in the same wrappers."
    ) == str(caught.value)
    assert (before, None) == (other.env.place, other.thing)


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


class Machine:
    """Counts where nobody can see it, as a library in C does."""

    def __init__(self):
        self.lock = threading.Lock()
        self.count = 0


class Arcade(gymnasium.Env):
    """Keeps its state in a machine, which does not pickle, and offers to save it."""

    def __init__(self):
        self.machine = Machine()
        self.lives = 3

    def step(self, action):
        self.machine.count += 1
        return self.machine.count + self.np_random.normal(), 0.0, False, False, {}

    def get_state(self):
        return self.machine.count

    def set_state(self, state):
        self.machine.count = state


class CloningArcade(Arcade):
    """Offers it under the names that the arcade learning environment has."""

    get_state = set_state = None

    def clone_state(self, include_rng=False):
        return self.machine.count, include_rng

    def restore_state(self, state):
        self.machine.count, whole = state
        assert whole


class OldArcade(Arcade):
    """Offers it under the names of the old one, and in part under newer ones."""

    get_state = set_state = None

    def clone_full_state(self):
        return self.machine.count

    def restore_full_state(self, state):
        self.machine.count = state

    def clone_state(self):
        return None

    def restore_state(self, state):
        raise AssertionError("Only a part of the state is in there.")


def counts(env, steps=3):
    return [float(env.step(0)[0]) for _ in range(steps)]


@pytest.mark.parametrize("kind", [Arcade, CloningArcade, OldArcade])
def test_an_environment_may_save_itself_what_does_not_pickle(kind):
    env = gymnasium.wrappers.TimeLimit(kind(), 50)
    env.reset(seed=3)
    counts(env)
    snapshot = copied(take_snapshot(env, "Arcade"))
    ahead = counts(env)
    machine, env.unwrapped.lives = env.unwrapped.machine, 2
    other = gymnasium.wrappers.TimeLimit(kind(), 50)

    for restored in (env, other):
        restore_snapshot(restored, "Arcade", snapshot)

        assert ahead == counts(restored)
        assert 3 == restored.unwrapped.lives
    assert machine is env.unwrapped.machine
    assert machine is not other.unwrapped.machine


def test_a_wrapper_may_refer_to_what_the_environment_saves_itself():
    env = Keeper(Arcade(), None)
    env.thing = env.unwrapped.machine

    restore_snapshot(env, "Arcade", take_snapshot(env, "Arcade"))

    assert env.thing is env.unwrapped.machine


def test_what_a_wrapper_holds_that_does_not_pickle_is_not_saved_by_the_environment():
    env = Keeper(Arcade(), threading.Lock())

    with pytest.raises(NotImplementedError, match="cannot save its state"):
        take_snapshot(env, "Arcade")


@pytest.mark.parametrize(
    "names",
    [{"set_state": lambda self, qpos, qvel: None}, {"get_state": lambda self, full: 0}],
    ids=["other arguments", "an argument"],
)
def test_methods_that_want_other_arguments_offer_nothing(names):
    env = type("Mechanism", (Arcade,), names)()

    with pytest.raises(NotImplementedError, match=r"cannot pickle '_thread\.lock'"):
        take_snapshot(env, "Mechanism")


def test_an_offer_that_is_not_implemented_is_none():
    class Promising(Walk):
        def get_state(self):
            raise NotImplementedError

        def set_state(self, state):
            raise NotImplementedError

    env = walked(Promising())
    snapshot = take_snapshot(env, "Promising")
    ahead = path(env)

    restore_snapshot(env, "Promising", snapshot)

    assert ahead == path(env)


def test_layers_may_be_named_by_whoever_knows_them():
    class Logging:
        def __init__(self, inner):
            self.inner, self.steps = inner, 0

    class Game:
        place = 0

    game = Game()
    env = Logging(game)
    env.steps, game.place = 3, 4
    snapshot = take_snapshot(env, "Game", layers=[env, game])
    env.steps, game.place = 5, 6

    restore_snapshot(env, "Game", snapshot, layers=[env, game])

    assert (3, 4) == (env.steps, game.place)
    assert game is env.inner


def test_what_is_kept_is_neither_saved_nor_restored():
    machine = Machine()
    env = walked(Walk())
    env.machines = {"first": machine}
    snapshot = copied(take_snapshot(env, "Walk", kept=[machine]))
    machine.count = 7
    env.machines = {}

    restore_snapshot(env, "Walk", snapshot, kept=[machine])

    assert machine is env.machines["first"]
    assert 7 == machine.count


def test_an_environment_need_not_be_of_gyms_class():
    class Coin:
        side = 0

    env = Coin()
    env.side = 1
    snapshot = take_snapshot(env, "Coin")
    env.side = 0

    restore_snapshot(env, "Coin", snapshot)

    assert 1 == env.side
    assert [env] == layers_of(env)


class OldGenerator(np.random.Generator):
    """Pickles in a way that fails when it is undone, as that of old Gym does."""

    def __reduce__(self):
        return OldGenerator, (1, 2, 3)


def test_a_generator_of_old_gym_is_brought_back():
    env = walked(Walk())
    env._np_random = OldGenerator(np.random.PCG64(3))
    snapshot = take_snapshot(env, "Walk")
    ahead = path(env)

    restore_snapshot(env, "Walk", snapshot)

    assert ahead == path(env)
    assert OldGenerator is type(env._np_random)
