"""What environments draw with is no obstacle to a state, and pictures stay the same."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from envkit.adapters import GymnasiumWrapper
from envkit.adapters.states.drawing import reduced_drawing
from envkit.specs import sample_spec_nest

ROOT = Path(__file__).parents[3]


class ByItsParts(pickle.Pickler):
    """Pickles what draws as states do."""

    def reducer_override(self, obj):
        return reduced_drawing(obj)


def copied(value, tmp_path):
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

    copy = copied(picture, tmp_path)
    before = colours(picture)
    picture.fill((0, 0, 0))

    assert before == colours(copy)
    assert (picture.get_colorkey(), 120) == (copy.get_colorkey(), copy.get_alpha())
    assert picture.get_flags() == copy.get_flags()
    assert picture.get_masks() == copy.get_masks()


def test_a_part_of_a_picture_is_not_copied(pygame, tmp_path):
    part = pygame.Surface((5, 3)).subsurface((0, 0, 2, 2))

    with pytest.raises(TypeError, match="cannot pickle"):
        copied(part, tmp_path)


def test_a_clock_is_another_one(pygame, tmp_path):
    clock = pygame.time.Clock()

    assert type(clock) is type(copied(clock, tmp_path))


def test_the_window_stays_the_one_that_there_is(pygame, tmp_path, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    window = pygame.display.set_mode((5, 3))

    assert window is copied(window, tmp_path)
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
