"""Environments of dm_control: by their paths, and as they are in TF-Agents."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import dm_env
import numpy as np
import pytest
from dm_env import specs

import envkit
from envkit import ArraySpec, BatchedPyEnvironment, BoundedArraySpec, wrappers
from envkit.adapters import DmControlWrapper, suite_dm_control
from envkit.adapters.dm_env import DmEnvWrapper
from envkit.errors import SpecError
from envkit.parallel import ParallelPyEnvironment
from envkit.testing import check_environment
from envkit.utils import validate_py_environment
from tests.adapters.dm_control_games import bead_on_a_wire
from tests.adapters.dm_env_examples import RIGHT, Told, Walk

needs_dm_control = pytest.mark.skipif(
    importlib.util.find_spec("dm_control") is None,
    reason=(
        "dm_control is not installed"
        if sys.version_info < (3, 13)
        else "dm_control needs a library that has no wheels for this Python"
    ),
)
ROOT = Path(__file__).parents[2]
# Whether MuJoCo can draw is a matter of the machine, and of how it was imported.
DRAWING = ["render", "render_kept", "render_mode", "render_stream"]
pytestmark = [
    # It does what NumPy 2.5 has deprecated.
    pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """MuJoCo writes its warnings into a file, in the folder that it finds itself in."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("path", ["", "cartpole", "cartpole/", "/swingup", "a/b/c"])
def test_a_malformed_path_is_refused(path, message_of):
    assert (
        f"{path!r} is not a task of dm_control: write 'domain/task', such as "
        "'cartpole/swingup'."
    ) == message_of(ValueError, lambda: suite_dm_control.load_by_path(path))


@needs_dm_control
def test_make_knows_the_scheme():
    env = envkit.make("dm_control:cartpole/swingup")
    assert isinstance(env, DmControlWrapper)
    assert {
        "position": ArraySpec((3,), np.float32),
        "velocity": ArraySpec((2,), np.float32),
    } == env.observation_spec()
    assert BoundedArraySpec((1,), np.float32, -1, 1) == env.action_spec()


@needs_dm_control
def test_float64_can_be_kept():
    env = envkit.make("dm_control:cartpole/swingup", as_float32=())
    assert np.float64 == env.reset().observation["position"].dtype
    assert np.float64 == env.step(env.action_spec().minimum * np.ones(1)).reward.dtype


@needs_dm_control
def test_a_constructor_pickles():
    recipe = envkit.constructor("dm_control:point_mass/easy", task_kwargs={"random": 3})
    first, second = recipe(), pickle.loads(pickle.dumps(recipe))()
    assert repr(first.reset()) == repr(second.reset())


@needs_dm_control
@pytest.mark.parametrize(
    "path", ["acrobot/swingup", "cheetah/run", "manipulator/bring_ball"]
)
def test_episodes_fit_their_specs(path):
    env = envkit.make(f"dm_control:{path}", task_kwargs={"time_limit": 0.5})
    env.seed(3)
    validate_py_environment(env, episodes=2)
    env.close()


@pytest.mark.slow
@needs_dm_control
def test_an_environment_from_make_passes_check_environment():
    recipe = envkit.constructor(
        "dm_control:cartpole/swingup", task_kwargs={"time_limit": 0.2}
    )
    report = check_environment(
        recipe, steps=60, require=["episodes", "seed", "state"], skip=DRAWING
    )
    assert () == report.failed


@needs_dm_control
def test_a_batch_passes_check_environment():
    def make():
        envs = [bead_on_a_wire(), bead_on_a_wire()]
        return BatchedPyEnvironment(envs, multithreading=False)

    check_environment(
        make,
        steps=15,
        require=["episodes", "seed", "state", "masked_reset", "held_rows"],
        skip=DRAWING,
    )


@pytest.mark.slow
@needs_dm_control
def test_worker_processes_return_the_same_stream():
    recipe = envkit.constructor("dm_control:reacher/easy")

    def play(env):
        env.seed(3)
        actions = np.full((2, 2), 0.3, np.float32)
        return [repr(env.step(actions)) for _ in range(4)]

    here = BatchedPyEnvironment([recipe(), recipe()], multithreading=False)
    with ParallelPyEnvironment([recipe] * 2, num_workers=2) as there:
        assert play(here) == play(there)


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
def test_arguments_are_passed_to_dm_control():
    env = suite_dm_control.load(
        "cartpole", "swingup", environment_kwargs={"flat_observation": True}
    )
    assert {"observations": ArraySpec((5,), np.float32)} == env.observation_spec()


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
def test_an_unknown_task_raises_dm_controls_error(path):
    with pytest.raises(ValueError, match=r"does not exist"):
        envkit.make(f"dm_control:{path}")


def test_is_available_tells_whether_dm_control_is_installed(monkeypatch):
    installed = importlib.util.find_spec("dm_control") is not None
    assert installed == suite_dm_control.is_available()
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "dm_control", raising=False)
    importlib.invalidate_caches()
    assert not suite_dm_control.is_available()


@needs_dm_control
def test_wrap_env_wraps_an_existing_environment():
    from dm_control import suite

    dm_env = suite.load("cartpole", "swingup")
    env = suite_dm_control.wrap_env(
        dm_env, env_wrappers=[lambda env: wrappers.TimeLimit(env, 3)]
    )
    assert dm_env is env.wrapped_env().dm_env
    assert [0, 1, 1, 2] == [int(env.step(np.zeros(1)).step_type) for _ in range(4)]


# These change their models, remember forces, or hold objects.
@needs_dm_control
@pytest.mark.parametrize(
    "path",
    [
        "finger/turn_hard",
        "manipulator/bring_peg",
        "quadruped/fetch",
        *(
            pytest.param(path, marks=pytest.mark.slow)
            for path in (
                *("ball_in_cup/catch", "lqr/lqr_2_1"),
                *("reacher/hard", "swimmer/swimmer6"),
            )
        ),
    ],
)
def test_a_state_continues_exactly_in_another_environment(path):
    env, twin = (envkit.make(f"dm_control:{path}", as_float32=()) for _ in range(2))
    physics, task = twin.physics, twin.task
    spec = env.action_spec()
    rng = np.random.RandomState(0)
    low, high = np.maximum(spec.minimum, -1), np.minimum(spec.maximum, 1)
    actions = rng.uniform(low, high, (12, *spec.shape))
    for action in actions[:3]:
        env.step(action)
        twin.step(action / 2)
    state = pickle.loads(pickle.dumps(env.get_state()))

    def play(env):
        path = [repr(env.step(action)) for action in actions]
        return [*path, repr(env.reset()), repr(env.step(actions[0]))]

    first = play(env)
    env.set_state(state)
    twin.set_state(state)

    assert first == play(env) == play(twin)
    assert physics is twin.physics
    assert task is twin.task


@needs_dm_control
def test_a_state_restores_the_last_measurements_of_the_physics():
    env = envkit.make("dm_control:walker/walk", as_float32=())
    for _ in range(20):
        env.step(np.full(6, 0.5))
    state, before = env.get_state(), env.physics.data.qacc.copy()
    before_options = env.physics.model.opt.timestep
    env.physics.model.opt.timestep *= 2
    env.physics.model.opt.gravity[:] = 0
    env.reset()

    env.set_state(state)

    np.testing.assert_array_equal(before, env.physics.data.qacc)
    assert before_options == env.physics.model.opt.timestep
    assert -9.81 == env.physics.model.opt.gravity[2]


@needs_dm_control
def test_the_state_of_another_model_is_refused(message_of):
    one = envkit.make("dm_control:cartpole/two_poles")
    other = envkit.make("dm_control:cartpole/three_poles")
    one.reset()
    other.reset()
    before = one.physics.data.qpos.copy()

    assert message_of(ValueError, lambda: one.set_state(other.get_state())).startswith(
        "Environment was given the state of another environment.\n\n"
        "  expected   a MuJoCo model with nq=3, nv=3, nu=1, nbody="
    )
    np.testing.assert_array_equal(before, one.physics.data.qpos)


@needs_dm_control
def test_a_view_of_mujocos_memory_prevents_saving_the_state(message_of):
    env = envkit.make("dm_control:cartpole/swingup")
    env.task.angles = env.physics.data.qpos[1:]
    assert (
        "Environment cannot save its state. A state has everything in the environment "
        "and its wrappers, and something there does not pickle: an array that shares "
        "MuJoCo's memory, which a copy would not."
    ) == message_of(NotImplementedError, env.get_state)


CAN_DRAW = """
import sys
from envkit.adapters import suite_dm_control
try:
    suite_dm_control.load("cartpole", "swingup", render_kwargs={"height": 8}).render()
except Exception as error:
    print(error)
    sys.exit(77)
"""
PICTURES = """
import json
import numpy as np
import envkit
from envkit.adapters import suite_dm_control
size = {"height": 24, "width": 32}
state = envkit.make(
    "dm_control:cartpole/swingup", task_kwargs={"random": 3}, render_kwargs=size
)
state.reset()
picture = state.render()
seen = []
pixels, both = (
    suite_dm_control.load_pixels(
        "cartpole", "swingup", "view", alone, task_kwargs={"random": 3},
        render_kwargs=size, env_wrappers=[lambda env: seen.append(1) or env],
        env_state_wrappers=[lambda env: seen.append(env.task is not None) or env],
    )
    for alone in (True, False)
)
first = pixels.reset().observation["view"]
token = pixels.get_state()
later = [pixels.step(np.ones(1, np.float32)).observation["view"] for _ in range(20)]
pixels.set_state(token)
again = [pixels.step(np.ones(1, np.float32)).observation["view"] for _ in range(20)]
print(json.dumps({
    "picture": [picture.shape, str(picture.dtype), bool(picture.std() > 0)],
    "spec": repr(pixels.observation_spec()),
    "both": sorted(both.observation_spec()),
    "same": bool((first == picture).all() and (pixels.render() == again[-1]).all()),
    "moves": bool((later[0] != later[-1]).any()),
    "kept": all((a == b).all() for a, b in zip(later, again)),
    "seen": seen,
}))
"""
TERRAIN = """
import json
import envkit
env = envkit.make("dm_control:quadruped/escape", render_kwargs={"camera_id": 0})
env.reset()
token, hills = env.get_state(), env.render()
env.reset()
others = env.render()
env.set_state(token)
now = env.render()
print(json.dumps([bool((now == hills).all()), bool((now == others).all())]))
"""


def told_by(program, **variables):
    """Runs a program without a display, in a process of its own; returns its end."""
    # MuJoCo decides how it draws when it is imported.
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "PYOPENGL_PLATFORM")
    }
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**kept, "PYTHONPATH": str(ROOT), **variables},
    )


def drawn(program):
    """Runs a program that draws, and returns what it prints as JSON."""
    told = told_by(CAN_DRAW + program)
    if told.returncode == 77:
        pytest.skip(f"MuJoCo cannot draw here: {told.stdout}")
    assert "" == told.stderr
    return json.loads(told.stdout)


@pytest.mark.slow
@needs_dm_control
def test_pictures_are_observed_and_rendered():
    assert {
        "picture": [[24, 32, 3], "uint8", True],
        "spec": "{'view': ArraySpec(shape=(24, 32, 3), dtype=uint8, name='view')}",
        "both": ["position", "velocity", "view"],
        "same": True,
        "moves": True,
        "kept": True,
        "seen": [True, 1, True, 1],
    } == drawn(PICTURES)


@pytest.mark.slow
@needs_dm_control
def test_pictures_show_the_terrain_of_the_state():
    assert [True, False] == drawn(TERRAIN)


PLAYED = """
import json, os
import numpy as np
import tensorflow
from envkit.adapters import suite_dm_control
variables = dict(os.environ)
env = suite_dm_control.load("cartpole", "swingup")
env.reset()
env.step(np.ones(1, np.float32))
env.close()
maps = open("/proc/self/maps").read()
loaded = [name for name in ("libEGL", "libLLVM", "libOSMesa") if name in maps]
print(json.dumps([loaded, dict(os.environ) == variables]))
"""
CHOSEN_LATE = """
import json
from envkit.adapters import suite_dm_control
env = suite_dm_control.load("cartpole", "swingup")
from dm_control import _render
print(json.dumps([hasattr(_render, "NOTHING"), _render.BACKEND]))
"""


@pytest.mark.slow
@needs_dm_control
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_without_rendering_no_renderer_is_loaded():
    """Mesa's compiler and TensorFlow's do not live in one process: it crashes."""
    pytest.importorskip("tensorflow", reason="tensorflow is not installed")
    told = told_by(PLAYED)
    assert (0, [[], True]) == (told.returncode, json.loads(told.stdout))
    assert "free()" not in told.stderr


@pytest.mark.slow
@needs_dm_control
def test_dm_control_reports_its_renderer():
    """Its viewer does so."""
    unknown, backend = json.loads(told_by(CHOSEN_LATE).stdout)
    assert not unknown
    assert backend in ("egl", "glfw", "osmesa")


IMPORTED_BEFORE = """
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from dm_control import suite
from envkit.adapters import suite_dm_control
env = suite_dm_control.wrap_env(suite.load("cartpole", "swingup"))
for draw in (env.render, lambda: suite_dm_control.load_pixels("cartpole", "swingup")):
    try:
        draw()
    except NotImplementedError as error:
        print(error)
"""
WITHOUT_EGL = """
from envkit.adapters import suite_dm_control
try:
    env = suite_dm_control.load("cartpole", "swingup")
    print(int(env.reset().step_type))
    env.render()
except (ImportError, NotImplementedError, RuntimeError) as error:
    print(error)
"""
NO_DISPLAY = (
    "cannot render: dm_control draws on a display, and there is none. Set the "
    "environment variable MUJOCO_GL to egl or osmesa before dm_control is imported."
)


@pytest.fixture
def no_egl(tmp_path):
    """Returns the variables with which programs do not find the library."""
    for name in ("libEGL.so", "libEGL.so.1", "libOSMesa.so", "libOSMesa.so.8"):
        (tmp_path / name).write_text("This is no library.")
    return {"LD_LIBRARY_PATH": str(tmp_path)}


@pytest.mark.slow
@needs_dm_control
def test_importing_dm_control_early_without_a_display_is_explained():
    told = told_by(IMPORTED_BEFORE)
    assert [
        f"Environment {NO_DISPLAY}",
        f"The environment 'cartpole/swingup' {NO_DISPLAY}",
    ] == told.stdout.splitlines()


@pytest.mark.slow
@needs_dm_control
def test_without_a_renderer_environments_work_without_pictures(no_egl):
    told = told_by(WITHOUT_EGL, **no_egl)
    assert ["0", f"Environment {NO_DISPLAY}"] == told.stdout.splitlines()
    assert "" == told.stderr


@pytest.mark.slow
@needs_dm_control
def test_a_missing_library_named_in_mujoco_gl_is_explained(no_egl):
    told = told_by(WITHOUT_EGL, MUJOCO_GL="egl", **no_egl)
    assert [
        "dm_control cannot be imported: AttributeError: 'NoneType' object has no "
        "attribute 'eglQueryString'. If the environment variable MUJOCO_GL is set, "
        "the library that it names has to be installed: libEGL for egl, libOSMesa for "
        "osmesa."
    ] == told.stdout.splitlines()


@pytest.mark.slow
@needs_dm_control
def test_the_examples_of_the_guide_run():
    guide = (ROOT / "docs/adapters/dm_control.md").read_text("utf-8")
    blocks = re.findall(r"^```text\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    assert 0 == drawn("\n".join([*blocks, "print(0)"]))


def test_dm_control_wrapper_is_a_dm_env_wrapper():
    assert issubclass(DmControlWrapper, DmEnvWrapper)


def test_float64_becomes_float32():
    env = DmControlWrapper(Walk())
    env.reset()
    time_step = env.step(RIGHT)

    assert {
        "place": BoundedArraySpec((2,), np.float32, -10),
        "left": ArraySpec((), np.int64),
    } == env.observation_spec()
    assert {
        "way": BoundedArraySpec((), np.int32, 0, 1),
        "speed": BoundedArraySpec((1,), np.float32, 0.0, 2.0),
    } == env.action_spec()
    assert [np.float32, np.int64, np.float32, np.float32] == [
        array.dtype
        for array in (
            time_step.observation["place"],
            time_step.observation["left"],
            time_step.reward,
            time_step.discount,
        )
    ]


def test_an_action_reaches_the_environment_in_the_dtype_of_its_spec():
    env = DmControlWrapper(Walk())
    env.reset()
    env.step({"way": np.int64(1), "speed": np.array([0.5], np.float32)})
    for name, spec in Walk().action_spec().items():
        spec.validate(env.actions[0][name])


def test_float64_of_any_environment_can_be_kept():
    step = dm_env.transition(reward=0.1, observation=0.1)
    env = DmControlWrapper(Told(step), as_float32=())
    env.reset()
    time_step = env.step(0)
    assert (0.1, 0.1) == (time_step.reward, time_step.observation)


def test_an_environment_passes_check_environment():
    check_environment(
        lambda: DmControlWrapper(Walk(random=np.random.RandomState(0))),
        steps=60,
        require=["episodes", "seed", "state"],
    )


def test_an_invalid_action_is_refused(message_of):
    env = DmControlWrapper(
        Told(dm_env.restart(0.0), action=specs.DiscreteArray(2, name="way"))
    )
    env.reset()

    assert (
        "DmControlWrapper.step() was given an action that does not fit its spec.\n\n"
        "  expected   BoundedArraySpec(shape=(), dtype=int32, minimum=0, maximum=1, "
        "name='way')\n"
        "  got        array of shape (), dtype int32, values 2 … 2\n\n"
        "The value 2 is above the maximum 1."
    ) == message_of(SpecError, lambda: env.step(2))
