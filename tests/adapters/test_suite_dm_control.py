"""Environments of the dm_control suite by their paths."""

from __future__ import annotations

import importlib.util
import pickle

import numpy as np
import pytest

import envkit
from envkit import ArraySpec, BoundedArraySpec
from envkit.adapters import DmControlWrapper, suite_dm_control
from envkit.testing import check_environment
from envkit.utils import validate_py_environment

needs_dm_control = pytest.mark.skipif(
    importlib.util.find_spec("dm_control") is None,
    reason="dm_control is not installed: it is large, and not there for every Python",
)
# dm_control looks for a display when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:.*DISPLAY environment variable")


@pytest.mark.parametrize("path", ["", "cartpole", "cartpole/", "/swingup", "a/b/c"])
def test_a_path_of_another_form_is_refused(path):
    with pytest.raises(ValueError, match=r" is not a task of dm_control") as caught:
        suite_dm_control.load_by_path(path)

    assert (
        f"{path!r} is not a task of dm_control: write 'domain/task', such as "
        "'cartpole/swingup'."
    ) == str(caught.value)


@needs_dm_control
def test_make_knows_the_scheme():
    env = envkit.make("dm_control:cartpole/swingup")

    assert isinstance(env, DmControlWrapper)
    assert {
        "position": ArraySpec((3,), np.float64),
        "velocity": ArraySpec((2,), np.float64),
    } == env.observation_spec()
    assert BoundedArraySpec((1,), np.float64, -1, 1) == env.action_spec()


@needs_dm_control
def test_a_constructor_travels_as_its_string():
    recipe = envkit.constructor("dm_control:point_mass/easy", task_kwargs={"random": 3})

    first, second = recipe(), pickle.loads(pickle.dumps(recipe))()

    assert repr(first.reset()) == repr(second.reset())


@needs_dm_control
@pytest.mark.parametrize(
    "path", ["acrobot/swingup", "cheetah/run", "manipulator/bring_ball"]
)
def test_an_episode_keeps_to_its_specs(path):
    env = envkit.make(f"dm_control:{path}", task_kwargs={"time_limit": 0.5})
    env.seed(3)

    validate_py_environment(env, episodes=2)
    env.close()


@needs_dm_control
def test_what_make_makes_keeps_the_contract_of_environments():
    recipe = envkit.constructor(
        "dm_control:cartpole/swingup", task_kwargs={"time_limit": 0.2}
    )
    # Whether MuJoCo can draw is a matter of the machine.
    drawing = ["render", "render_kept", "render_mode", "render_stream"]

    report = check_environment(recipe, require=["episodes", "seed"], skip=drawing)

    assert () == report.failed


@needs_dm_control
def test_a_time_limit_truncates():
    env = envkit.make("dm_control:cartpole/balance", task_kwargs={"time_limit": 0.1})
    env.reset()
    time_steps = [env.step(np.zeros(1)) for _ in range(10)]

    assert time_steps[-1].is_last()
    assert 1.0 == time_steps[-1].discount


@needs_dm_control
def test_equal_seeds_give_equal_episodes():
    env = envkit.make("dm_control:reacher/easy")

    def begin(seed):
        env.seed(seed)
        return repr(env.reset())

    assert begin(7) == begin(7)
    assert begin(7) != begin(8)


@needs_dm_control
def test_arguments_are_passed_on():
    env = suite_dm_control.load(
        "cartpole", "swingup", environment_kwargs={"flat_observation": True}
    )

    assert {"observations": ArraySpec((5,), np.float64)} == env.observation_spec()


@needs_dm_control
def test_wrappers_are_applied_from_the_inside():
    order = []

    def note(name):
        return lambda env: (order.append((name, type(env).__name__)), env)[1]

    suite_dm_control.load(
        "cartpole", "swingup", env_wrappers=[note("first"), note("second")]
    )

    assert [("first", "DmControlWrapper"), ("second", "DmControlWrapper")] == order


@needs_dm_control
@pytest.mark.parametrize("path", ["cartpol/swingup", "cartpole/swing"])
def test_an_unknown_task_is_explained_by_dm_control(path):
    with pytest.raises(ValueError, match=r"does not exist"):
        envkit.make(f"dm_control:{path}")
