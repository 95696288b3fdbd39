"""States of Gymnasium environments: complete, independent, or refused."""

from __future__ import annotations

import collections
import functools
import json
import math
import os
import pickle
import subprocess
import sys
import threading
import types
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils import EzPickle

from envkit.adapters import GymnasiumWrapper
from envkit.adapters.state import (
    bring_back,
    held_by,
    layers_of,
    local_functions,
    reduced_drawing,
    restore_snapshot,
    take_snapshot,
)
from envkit.specs import sample_spec_nest


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


def test_what_does_not_pickle_makes_a_state_impossible(message_of):
    env = Keeper(Walk(), threading.Lock())
    assert (
        "Walk-v0 cannot save its state. A state is all that the environment and its "
        "wrappers hold, and one of these things does not pickle: "
        "cannot pickle '_thread.lock' object"
    ) == message_of(NotImplementedError, lambda: take_snapshot(env, "Walk-v0"))


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


def test_a_state_with_a_function_needs_one_in_the_same_place(message_of):
    env, other = Keeper(Walk(), count_to(1)), Keeper(walked(Walk()), None)
    before = other.env.place

    assert (
        "Walk-v0 was given the state of another environment: it holds "
        "count_to.<locals>.limited, a function that there is none of in the same place "
        "here. A state fits the same environment in the same wrappers."
    ) == message_of(
        ValueError,
        lambda: restore_snapshot(other, "Walk-v0", take_snapshot(env, "Walk-v0")),
    )
    assert (before, None) == (other.env.place, other.thing)


def test_the_state_of_another_environment_is_refused_and_changes_nothing(message_of):
    env = walked(Walk())
    before = env.place

    assert (
        "Walk-v0 was given the state of another environment.\n\n"
        "  expected   Walk\n"
        "  got        Walk in Keeper\n\n"
        "A state fits the same environment in the same wrappers."
    ) == message_of(
        ValueError,
        lambda: restore_snapshot(
            env, "Walk-v0", take_snapshot(Keeper(Walk(), 1), "Walk")
        ),
    )
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


def named():
    """Has a name that everybody finds."""


class Tool:
    """Holds something."""

    def __init__(self, part):
        self.part = part

    def use(self):
        """Is found by the name of its class."""


def layer(**attributes):
    return types.SimpleNamespace(**attributes)


def paths(*layers, kept=()):
    return set(local_functions(layers, kept))


def adder(by):
    def add(number):
        return number + by

    return add


def counter():
    count = 0

    def up():
        nonlocal count
        count += 1
        return count

    return up


def test_what_has_a_name_is_not_among_them():
    assert set() == paths(
        layer(own=named, python=len, kind=Tool, method=Tool(1).use, module=math)
    )


def test_a_lambda_and_a_function_within_a_function_are():
    assert {(0, ".double"), (0, ".add")} == paths(
        layer(double=lambda number: 2 * number, add=adder(1))
    )


def test_they_are_found_in_every_layer():
    assert {(0, ".add"), (1, ".add")} == paths(
        layer(add=adder(1), number=1), layer(add=adder(2))
    )


def test_they_are_found_in_what_containers_and_objects_hold():
    add = adder(1)

    for held, path in (
        ([0, add], (1,)),
        ((add,), (0,)),
        ({"key": {("a", 1): add}}, ("key", ("a", 1))),
        (Tool(Tool(add)), (".part", ".part")),
        (functools.partial(add, 1), ("func",)),
        (functools.partial(named, add), ("args", 0)),
        (functools.partial(named, key=add), ("keywords", "key")),
        (Tool(add).use, ("self", ".part")),
        (collections.Counter, None),
    ):
        expected = set() if path is None else {(0, ".held", *path)}
        assert expected == paths(layer(held=held)), held


def test_they_are_found_in_what_other_functions_hold():
    add = adder(1)

    def outer(number, way=lambda number: number, *, last=lambda: 0):
        return last(way(add(number)))

    outer.note = lambda: 1

    assert {
        (0, ".outer"),
        (0, ".outer", "variable 0"),
        (0, ".outer", "defaults", 0),
        (0, ".outer", "keyword defaults", "last"),
        (0, ".outer", ".note"),
    } == paths(layer(outer=outer))


def test_what_knows_itself_is_looked_at_once():
    one = layer(add=adder(1))
    one.itself, one.all = one, [one]
    assert {(0, ".add")} == paths(one)


def test_what_is_kept_is_not_looked_into():
    tool = Tool(adder(1))
    assert set() == paths(layer(tool=tool), kept=[tool])


def test_keys_that_are_objects_lead_nowhere():
    assert set() == paths(layer(held={Tool(1): adder(1)}))


def test_a_function_counts_on_from_where_it_was():
    up = counter()
    up()
    held = held_by(up)
    assert [2, 3] == [up(), up()]
    bring_back(up, held)
    assert [2, 3] == [up(), up()]


def test_defaults_and_attributes_come_back():
    def seen(one=1, *, other=2):
        return one, other

    seen.note = "before"
    held = held_by(seen)
    seen.__defaults__, seen.__kwdefaults__ = (3,), {"other": 4}
    seen.note, seen.more = "after", True

    bring_back(seen, held)

    assert (1, 2) == seen()
    assert {"note": "before"} == vars(seen)


def test_a_variable_without_a_value_is_without_one_again():
    def read():
        return later

    held = held_by(read)
    bring_back(read, held)
    later = 1
    assert 1 == read()

    bring_back(read, held)

    with pytest.raises(NameError):
        read()


ROOT = Path(__file__).parents[3]


class ByItsParts(pickle.Pickler):
    """Pickles what draws as states do."""

    def reducer_override(self, obj):
        return reduced_drawing(obj)


def pickled_by_parts(value, tmp_path):
    with (tmp_path / "state").open("wb") as file:
        ByItsParts(file).dump(value)
    return pickle.loads((tmp_path / "state").read_bytes())


def colours(surface):
    """Returns the colour of each point."""
    width, height = surface.get_size()
    return [tuple(surface.get_at((x, y))) for y in range(height) for x in range(width)]


@pytest.mark.parametrize(
    ("flags", "depth"), [("", 32), ("", 24), ("", 8), ("SRCALPHA", 32)]
)
def test_a_picture_is_copied_with_all_that_it_is(pygame, tmp_path, flags, depth):
    picture = pygame.Surface((5, 3), getattr(pygame, flags, 0), depth)
    picture.fill((200, 100, 50, 25))
    picture.set_at((1, 2), (0, 0, 255, 255))
    picture.set_colorkey((0, 0, 255))
    picture.set_alpha(120)

    copy = pickled_by_parts(picture, tmp_path)
    before = colours(picture)
    picture.fill((0, 0, 0))

    assert before == colours(copy)
    assert (picture.get_colorkey(), 120) == (copy.get_colorkey(), copy.get_alpha())
    assert picture.get_flags() == copy.get_flags()
    assert picture.get_masks() == copy.get_masks()


def test_a_part_of_a_picture_is_not_copied(pygame, tmp_path):
    part = pygame.Surface((5, 3)).subsurface((0, 0, 2, 2))
    with pytest.raises(TypeError, match="cannot pickle"):
        pickled_by_parts(part, tmp_path)


def test_a_clock_is_another_one(pygame, tmp_path):
    clock = pygame.time.Clock()
    assert type(clock) is type(pickled_by_parts(clock, tmp_path))


def test_the_window_stays_the_one_that_there_is(pygame, tmp_path, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    window = pygame.display.set_mode((5, 3))
    assert window is pickled_by_parts(window, tmp_path)
    pygame.display.quit()


def test_what_does_not_draw_is_pickled_as_ever():
    assert NotImplemented is reduced_drawing(np.zeros(3))


@pytest.mark.usefixtures("pygame")
@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1", "Pendulum-v1"])
def test_an_environment_that_has_been_drawn_has_a_state(name):
    def make():
        return GymnasiumWrapper(gymnasium.make(name, render_mode="rgb_array"))

    env, other = make(), make()
    action = sample_spec_nest(env.action_spec(), np.random.default_rng(0))

    def seen(env):
        return [(repr(env.step(action)), env.render().tobytes()) for _ in range(3)]

    env.seed(3)
    env.reset()
    seen(env)
    state = env.get_state()
    ahead = seen(env)

    for restored in (env, other):
        restored.set_state(state)
        assert ahead == seen(restored)
        restored.close()


ROBOT = """
import json, sys
import gymnasium
import numpy as np
from envkit.adapters import GymnasiumWrapper
def make():
    size = {"width": 32, "height": 24}
    return GymnasiumWrapper(gymnasium.make("Ant-v5", render_mode="rgb_array", **size))
def seen(env):
    steps = [env.step(np.full(8, part, np.float32)) for part in (0.1, -0.3, 0.5)]
    return repr(steps), env.render().tobytes()
env, other = make(), make()
env.seed(3)
env.reset()
try:
    env.render()
except Exception as error:
    print(error)
    sys.exit(77)
seen(env)
state, ahead = env.get_state(), seen(env)
same = []
for restored in (env, other):
    restored.set_state(state)
    same.append(ahead == seen(restored))
    restored.close()
print(json.dumps(same))
"""


@pytest.mark.slow
def test_a_robot_that_has_been_drawn_has_a_state():
    pytest.importorskip("mujoco", reason="mujoco is not installed")
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ROBOT],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"MUJOCO_GL": "egl", **os.environ},
    )
    if told.returncode == 77:
        pytest.skip(f"MuJoCo cannot draw here: {told.stdout}")

    assert [True, True] == json.loads(told.stdout), told.stderr
