"""Environments of the old Gym by their ids."""

from __future__ import annotations

import importlib.machinery
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from envkit import PyEnvironment
from envkit.adapters import suite_gym
from envkit.adapters.gym_wrapper import GymWrapper
from envkit.testing import check_environment
from envkit.wrappers import RunStats, TimeLimit
from tests.adapters.old_gyms import AGES, Box, Gym17, Gym26, Wrapper, gym17

ROOT = Path(__file__).parents[2]
EVERY_AGE = pytest.mark.parametrize("make", AGES.values(), ids=AGES.keys())


class OldSpec:
    """What an id stood for until 0.23: its `make` adds nothing."""

    def __init__(self, entry_point, max_episode_steps):
        self.id = "Walk-v0"
        self.entry_point, self.max_episode_steps = entry_point, max_episode_steps

    def make(self, **kwargs):
        return self.entry_point(**kwargs)


class LateSpec(OldSpec):
    """What it stands for since: a limit and a checker go around the environment."""

    disable_env_checker = False

    def make(self, **kwargs):
        env = super().make(**kwargs)
        if not self.disable_env_checker:
            raise AttributeError("module 'numpy' has no attribute 'bool8'")
        if self.max_episode_steps is not None:
            raise AssertionError("Gym's own limit hides why an episode ends.")
        return Wrapper(env)


def install(monkeypatch, kind=OldSpec, entry_point=Gym17, max_episode_steps=None):
    """Puts a module in the place of Gym that knows one id, and returns what it is."""
    spec = kind(entry_point, max_episode_steps)
    gym = types.ModuleType("gym")
    gym.__spec__ = importlib.machinery.ModuleSpec("gym", None, origin="here")
    gym.spec = {"Walk-v0": spec}.__getitem__
    monkeypatch.setitem(sys.modules, "gym", gym)
    return spec


def length_of_an_episode(env, most=20):
    """Counts the steps of an episode in which the piece stays away from the edges."""
    time_step = env.reset()
    steps = 0
    while not time_step.is_last() and steps < most:
        time_step = env.step(int(time_step.observation[0] < 0))
        steps += 1
    return steps


@pytest.mark.parametrize(
    ("kind", "entry_point"), [(OldSpec, Gym17), (LateSpec, Gym17), (LateSpec, Gym26)]
)
def test_an_environment_has_the_limit_of_its_id_and_no_other(
    monkeypatch, kind, entry_point
):
    spec = install(monkeypatch, kind, entry_point, 5)

    env = suite_gym.load("Walk-v0")

    assert isinstance(env, TimeLimit)
    assert (5, 5) == (env.duration, length_of_an_episode(env))
    assert 1.0 == env.current_time_step().discount
    assert 5 == spec.max_episode_steps


@pytest.mark.parametrize("max_episode_steps", [0, -1])
@pytest.mark.parametrize("kind", [OldSpec, LateSpec])
def test_a_limit_of_none_at_all_is_zero(monkeypatch, kind, max_episode_steps):
    install(monkeypatch, kind, max_episode_steps=5)

    env = suite_gym.load("Walk-v0", max_episode_steps=max_episode_steps)

    assert GymWrapper is type(env)
    assert 20 == length_of_an_episode(env)


def test_an_id_without_a_limit_has_none(monkeypatch):
    install(monkeypatch)

    assert GymWrapper is type(suite_gym.load("Walk-v0"))


def test_another_limit_can_be_set(monkeypatch):
    install(monkeypatch, max_episode_steps=5)

    assert 3 == length_of_an_episode(suite_gym.load("Walk-v0", max_episode_steps=3))


def test_arguments_come_in_the_order_of_tf_agents(monkeypatch):
    class Sized(Gym17):
        def __init__(self, size, colour=None):
            super().__init__()
            self.size, self.colour = size, colour

        def render(self, mode="human", **kwargs):
            return kwargs

    install(monkeypatch, entry_point=Sized)

    env = suite_gym.load(
        "Walk-v0",
        0.5,
        4,
        (Wrapper, Wrapper),
        (RunStats,),
        {Box: np.float64},
        {"size": 7},
        {"width": 96},
        colour="red",
    )
    env.reset()

    assert isinstance(env, RunStats)
    assert (7, "red", 4) == (env.size, env.colour, env.duration)
    assert Wrapper is type(env.gym.env)
    assert np.float64 == env.observation_spec().dtype
    assert 0.5 == env.step(0).discount
    assert {"width": 96} == env.render()


def test_a_module_that_registers_the_id_is_imported_first(monkeypatch, tmp_path):
    gym_spec = install(monkeypatch)
    (tmp_path / "old_walks.py").write_text("imported = True\n")
    monkeypatch.syspath_prepend(tmp_path)

    env = suite_gym.load("old_walks:Walk-v0")

    assert sys.modules.pop("old_walks").imported
    assert isinstance(env.gym, gym_spec.entry_point)


def test_a_missing_gym_is_named_with_the_command_that_installs_it():
    program = """
import sys
sys.modules["gym"] = None
from envkit.adapters import suite_gym
from envkit.errors import MissingDependencyError
try:
    suite_gym.load("CartPole-v1")
except MissingDependencyError as error:
    print(error)
"""
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout

    assert (
        "The environment 'CartPole-v1' needs the package gym, which is not installed. "
        'pip install "envkit[gym]"'
    ) == printed.strip()


def test_an_environment_that_is_there_already_needs_no_gym():
    program = """
import sys
sys.modules["gym"] = None
from envkit.adapters import suite_gym
from tests.adapters.old_gyms import gym17, gym23, gym26
for make in (gym17, gym23, gym26):
    print(int(suite_gym.wrap_env(make()).reset().step_type))
"""
    printed = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ).stdout

    assert ["0", "0", "0"] == printed.split()


@EVERY_AGE
def test_wrap_env_limits_nothing_by_itself(make):
    assert GymWrapper is type(suite_gym.wrap_env(make()))


def test_arguments_of_wrap_env_come_in_the_order_of_tf_agents():
    class Limit(TimeLimit):
        pass

    env = suite_gym.wrap_env(
        gym17(),
        0.5,
        2,
        (Wrapper,),
        Limit,
        (RunStats,),
        {Box: np.float64},
        False,
        {"width": 96},
    )

    assert isinstance(env, RunStats)
    assert Limit is type(env.wrapped_env())
    assert Wrapper is type(env.gym)
    assert np.float64 == env.observation_spec().dtype
    assert 2 == length_of_an_episode(env)
    assert 0.5 == env.current_time_step().discount


@EVERY_AGE
def test_an_environment_with_a_limit_keeps_the_contract_of_environments(make):
    def limited() -> PyEnvironment:
        return suite_gym.wrap_env(make(), max_episode_steps=5)

    features = ["episodes", "info", "render", "seed", "state"]

    assert () == check_environment(limited, require=features, steps=200).failed


# By version, what it needs beside NumPy. The youngest of all, whose checker fails with
# NumPy 2; one in which reset() has seeds, and step() still four values; and the
# youngest of those with a seed() that installs with any Python. That one looks for
# distutils, which only setuptools has since Python 3.12, and draws on displays only.
PACKAGES = {
    "0.26.2": ["gym_notices", "pygame-ce"],
    "0.23.1": ["gym_notices", "pygame-ce"],
    "0.17.3": ["scipy", "setuptools"],
}


def python_with_gym(version: str, folder: Path) -> Path:
    """Returns an interpreter that has a version of Gym and this version of NumPy."""
    packages = [f"gym=={version}", f"numpy=={np.__version__}", "cloudpickle", "dm-tree"]
    # What they are said to need besides is for other environments.
    options = ["--no-deps", "--retries=1", *packages, *PACKAGES[version]]
    python = folder / "bin" / "python"
    for command in (
        [sys.executable, ROOT / "tools" / "make_venv.py", folder],
        [python, "-m", "pip", "install", *options],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode:
            pytest.fail(
                f"This test makes a virtual environment with gym {version} from a "
                "package index, and that failed:\n\n"
                f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
            )
    return python


@pytest.mark.slow
@pytest.mark.watchdog(480)
@pytest.mark.parametrize("version", PACKAGES)
def test_real_environments_play_through_the_wrapper_what_they_play_without(
    version, tmp_path
):
    finished = subprocess.run(
        [
            python_with_gym(version, tmp_path / "venv"),
            "-W",
            "ignore",
            "tests/adapters/gym_games.py",
            version,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert 0 == finished.returncode, finished.stderr
    assert (
        "played: CartPole-v1 FrozenLake Blackjack" == finished.stdout.splitlines()[-1]
    )
