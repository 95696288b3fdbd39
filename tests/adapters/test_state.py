"""States of Gymnasium environments: complete, independent, or refused."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils import EzPickle

from envkit.adapters import GymnasiumWrapper
from envkit.adapters.state import (
    layers_of,
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
def test_a_state_restores_the_environment_and_its_generator(make_env):
    env = walked(make_env())
    snapshot = copied(take_snapshot(env, "Walk"))
    ahead = path(env)
    restore_snapshot(env, "Walk", snapshot)
    assert ahead == path(env)


def test_a_state_can_be_restored_more_than_once():
    env = walked(Walk())
    snapshot = take_snapshot(env, "Walk")
    ahead = path(env)
    for _ in range(2):
        restore_snapshot(env, "Walk", snapshot)
        assert ahead == path(env)


def test_a_state_restores_the_counters_of_wrappers():
    env = walked(gymnasium.wrappers.TimeLimit(Walk(), 5))
    snapshot = take_snapshot(env, "Walk")
    env.step(0)
    env.step(0)
    restore_snapshot(env, "Walk", snapshot)
    assert [False, True] == [env.step(0)[3] for _ in range(2)]


def test_a_state_fits_another_environment_of_the_same_kind():
    env = walked(gymnasium.wrappers.TimeLimit(Walk(), 50))
    snapshot = copied(take_snapshot(env, "Walk"))
    other = gymnasium.wrappers.TimeLimit(Walk(), 50)
    restore_snapshot(other, "Walk", snapshot)
    assert path(env) == path(other)


def test_restoring_keeps_the_identity_of_layers():
    walk = Walk()
    env = Keeper(walk, None)
    env.thing = walk.step
    restore_snapshot(env, "Walk", take_snapshot(env, "Walk"))
    assert walk is env.env
    assert walk is env.thing.__self__


def test_an_object_shared_by_two_layers_stays_shared():
    env = Keeper(Walk(), [])
    env.env.place = env.thing
    restore_snapshot(env, "Walk", take_snapshot(env, "Walk"))
    assert env.thing is env.env.place


def test_an_environment_in_an_attribute_is_saved_by_its_contents():
    env = Keeper(Walk(), walked(RebuiltWalk()))
    snapshot = take_snapshot(env, "Walk")
    ahead = path(env.thing)
    restore_snapshot(env, "Walk", snapshot)
    assert ahead == path(env.thing)


def test_extra_values_are_saved_and_returned():
    env = Walk()
    assert {"info": 3} == restore_snapshot(
        env, "Walk", take_snapshot(env, "Walk", {"info": 3})
    )


def test_an_unpicklable_attribute_prevents_saving_the_state(message_of):
    env = Keeper(Walk(), threading.Lock())
    assert (
        "Walk-v0 cannot save its state. A state has everything in the environment and "
        "its wrappers, and something there does not pickle: cannot pickle "
        "'_thread.lock' object"
    ) == message_of(NotImplementedError, lambda: take_snapshot(env, "Walk-v0"))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: gymnasium.wrappers.TransformReward(env, lambda reward: reward / 2),
        gymnasium.wrappers.FlattenObservation,
    ],
    ids=["a lambda of a user", "a lambda of Gymnasium"],
)
def test_a_wrapper_with_a_lambda_has_no_state(wrap):
    env = wrap(walked(Walk()))
    with pytest.raises(NotImplementedError, match=r"does not pickle: .*<lambda>"):
        take_snapshot(env, "Walk")


def halved(reward):
    return reward / 2


@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: gymnasium.wrappers.TransformReward(env, halved),
        lambda env: gymnasium.wrappers.RecordEpisodeStatistics(env),
    ],
    ids=["a function of a module", "RecordEpisodeStatistics"],
)
def test_wrappers_with_named_functions_have_states(wrap):
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
def test_an_environments_own_state_methods_cover_unpicklable_attributes(kind):
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


def test_a_wrapper_may_refer_to_what_the_environment_saves():
    env = Keeper(Arcade(), None)
    env.thing = env.unwrapped.machine
    restore_snapshot(env, "Arcade", take_snapshot(env, "Arcade"))
    assert env.thing is env.unwrapped.machine


def test_an_environments_state_methods_do_not_cover_its_wrappers():
    env = Keeper(Arcade(), threading.Lock())
    with pytest.raises(NotImplementedError, match="cannot save its state"):
        take_snapshot(env, "Arcade")


@pytest.mark.parametrize(
    "names",
    [{"set_state": lambda self, qpos, qvel: None}, {"get_state": lambda self, full: 0}],
    ids=["other arguments", "an argument"],
)
def test_state_methods_with_other_arguments_are_ignored(names):
    env = type("Mechanism", (Arcade,), names)()
    with pytest.raises(NotImplementedError, match=r"cannot pickle '_thread\.lock'"):
        take_snapshot(env, "Mechanism")


def test_state_methods_that_raise_not_implemented_are_ignored():
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


def test_callers_may_name_the_layers():
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


def test_kept_objects_are_neither_saved_nor_restored():
    machine = Machine()
    env = walked(Walk())
    env.machines = {"first": machine}
    snapshot = copied(take_snapshot(env, "Walk", kept=[machine]))
    machine.count = 7
    env.machines = {}

    restore_snapshot(env, "Walk", snapshot, kept=[machine])

    assert machine is env.machines["first"]
    assert 7 == machine.count


def test_an_environment_need_not_inherit_from_gym():
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


def test_a_generator_of_old_gym_is_restored():
    env = walked(Walk())
    env._np_random = OldGenerator(np.random.PCG64(3))
    snapshot = take_snapshot(env, "Walk")
    ahead = path(env)
    restore_snapshot(env, "Walk", snapshot)
    assert ahead == path(env)
    assert OldGenerator is type(env._np_random)


ROOT = Path(__file__).parents[2]
ROBOT = """
import sys
import gymnasium
import numpy as np
from envkit.adapters import GymnasiumWrapper
env = GymnasiumWrapper(gymnasium.make("Ant-v5", render_mode="rgb_array"))
def seen():
    return repr([env.step(np.full(8, part, np.float32)) for part in (0.1, -0.3, 0.5)])
env.seed(3)
env.reset()
state, ahead = env.get_state(), seen()
env.set_state(state)
print(ahead == seen())
try:
    env.render()
except Exception as error:
    print(error)
    sys.exit(77)
try:
    env.get_state()
except NotImplementedError as error:
    print(type(error).__name__)
"""


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
def test_a_copied_surface_keeps_all_its_properties(pygame, tmp_path, flags, depth):
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


def test_a_subsurface_becomes_a_subsurface_of_the_copy(pygame, tmp_path):
    picture = pygame.Surface((5, 3))
    part = picture.subsurface((1, 1, 2, 2))
    part.set_alpha(40)

    copied_picture, copied_part = pickled_by_parts((picture, part), tmp_path)
    copied_picture.fill((1, 2, 3))

    assert {(1, 2, 3, 255)} == set(colours(copied_part))
    assert 40 == copied_part.get_alpha()
    assert (0, 0, 0, 255) == part.get_at((0, 0))


def test_a_clock_is_replaced_by_a_new_one(pygame, tmp_path):
    clock = pygame.time.Clock()
    assert type(clock) is type(pickled_by_parts(clock, tmp_path))


def test_the_window_is_shared_with_the_copy(pygame, tmp_path, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    window = pygame.display.set_mode((5, 3))
    assert window is pickled_by_parts(window, tmp_path)
    pygame.display.quit()


def test_other_objects_are_pickled_as_usual():
    assert NotImplemented is reduced_drawing(np.zeros(3))


@pytest.mark.usefixtures("pygame")
@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1", "Pendulum-v1"])
def test_a_rendered_environment_has_a_state(name):
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


@pytest.mark.slow
def test_a_robot_has_a_state_until_it_is_rendered():
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

    assert "True\nNotImplementedError\n" == told.stdout, told.stderr
