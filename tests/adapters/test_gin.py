"""Files that were written for TF-Agents configure envkit."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import gin
import numpy as np
import pytest

import envkit
import envkit.adapters.gin
from envkit import BatchedPyEnvironment, BoundedArraySpec, ParallelPyEnvironment
from envkit.adapters import gin as gin_names
from envkit.adapters import suite_gym, suite_gymnasium
from envkit.adapters.gin import register, unregister, worker_setup
from envkit.errors import ConstructorError, MissingDependencyError
from envkit.testing import (
    CountingEnv,
    EpisodeCountingEnv,
    NestedCountingEnv,
    check_environment,
)
from envkit.wrappers import (
    ActionRepeat,
    HistoryWrapper,
    PyEnvironmentBaseWrapper,
    RunStats,
    TimeLimit,
)

ROOT = Path(envkit.__file__).parents[1]

# What TF-Agents 0.19 lets files name: its configurables and their parameters.
# suite_gymnasium is of its unreleased source.
ENVIRONMENTS = "tf_agents.environments"
TF_AGENTS = {
    "atari_preprocessing.AtariPreprocessing": (
        "env frame_skip terminal_on_life_loss screen_size"
    ),
    "batched_py_environment.BatchedPyEnvironment": "envs multithreading",
    "parallel_py_environment.ParallelPyEnvironment": (
        "env_constructors start_serially blocking flatten"
    ),
    "suite_bsuite.load": "bsuite_id record save_path logging_mode overwrite",
    "suite_dm_control.load": (
        "domain_name task_name task_kwargs environment_kwargs visualize_reward "
        "render_kwargs env_wrappers"
    ),
    "suite_dm_control.load_pixels": (
        "domain_name task_name observation_key pixels_only task_kwargs "
        "environment_kwargs visualize_reward render_kwargs env_wrappers "
        "env_state_wrappers"
    ),
    "suite_gym.load": (
        "environment_name discount max_episode_steps gym_env_wrappers env_wrappers "
        "spec_dtype_map gym_kwargs render_kwargs"
    ),
    "suite_gym.wrap_env": (
        "gym_env discount max_episode_steps gym_env_wrappers time_limit_wrapper "
        "env_wrappers spec_dtype_map auto_reset render_kwargs"
    ),
    "suite_gymnasium.load": (
        "environment_name discount max_episode_steps gym_env_wrappers env_wrappers "
        "gym_kwargs render_kwargs"
    ),
    "suite_gymnasium.wrap_env": (
        "gym_env discount max_episode_steps gym_env_wrappers time_limit_wrapper "
        "env_wrappers auto_reset"
    ),
    "test_envs.CountingEnv": "steps_per_episode dtype",
    "test_envs.EpisodeCountingEnv": "steps_per_episode",
    "test_envs.NestedCountingEnv": "steps_per_episode nested_action",
    "tf_py_environment.TFPyEnvironment": "environment check_dims isolation",
    "wrappers.ActionClipWrapper": "env handle_auto_reset",
    "wrappers.ActionDiscretizeWrapper": "env num_actions handle_auto_reset",
    "wrappers.ActionRepeat": "env times handle_auto_reset",
    "wrappers.ExtraDisabledActionsWrapper": "env num_extra_actions handle_auto_reset",
    "wrappers.FixedLength": "env fix_length handle_auto_reset",
    "wrappers.FlattenActionWrapper": "env flat_dtype handle_auto_reset",
    "wrappers.FlattenObservationsWrapper": (
        "env observations_allowlist handle_auto_reset"
    ),
    "wrappers.HistoryWrapper": (
        "env history_length include_actions tile_first_step_obs handle_auto_reset"
    ),
    "wrappers.ObservationFilterWrapper": "env idx handle_auto_reset",
    "wrappers.OneHotActionWrapper": "env handle_auto_reset",
    "wrappers.PerformanceProfiler": "env process_profile_fn process_steps",
    "wrappers.RunStats": "env",
    "wrappers.TimeLimit": "env duration handle_auto_reset",
}
SPECS = {
    "tf_agents.specs.array_spec.ArraySpec": "shape dtype name",
    "tf_agents.specs.array_spec.BoundedArraySpec": "shape dtype minimum maximum name",
}
NAMES = {f"{ENVIRONMENTS}.{name}": text for name, text in TF_AGENTS.items()} | SPECS


@contextlib.contextmanager
def configured(text=""):
    """Lets gin know a file, until the block ends."""
    gin.clear_config()
    register()
    try:
        gin.parse_config(text)
        yield
    finally:
        unregister()
        gin.clear_config()


def told(error, call, *args, **kwargs):
    """Returns the whole message of what a call raises, and the error."""
    with pytest.raises(error) as raised:
        call(*args, **kwargs)
    return str(raised.value), raised.value


def targets():
    """Returns what a name stands for, by that name, but for what is left for later."""
    return {
        f"{module}.{name}": getattr(importlib.import_module(home), name)
        for module, homes in gin_names.HOMES.items()
        for name, home in homes.items()
        if home != gin_names.NEEDS_TENSORFLOW
    }


def spellings(name):
    """Returns the whole name and every shorter one that stands for nothing else."""
    parts = name.split(".")
    # Each suite has its load.
    least = 1 if parts[-1][0].isupper() else 2
    return [".".join(parts[-size:]) for size in range(least, len(parts) + 1)]


class OldGym:
    """An environment of the old Gym: four values, and nothing else."""

    def __init__(self, space):
        self.observation_space = self.action_space = space

    def reset(self):
        return np.int64(0)

    def step(self, action):
        return np.int64(action), 1.0, False, {}


def old_gym():
    import gymnasium

    return OldGym(gymnasium.spaces.Discrete(3))


SERVE = """
import json, os, sys
import gin
import envkit.adapters.gin as ours
from envkit.testing import CountingEnv
from envkit.wrappers import TimeLimit
for line in sys.stdin:
    reading, writing = os.pipe()
    if not os.fork():
        os.dup2(writing, 1)
        exec(json.loads(line))
        sys.stdout.flush()
        os._exit(0)
    os.close(writing)
    with open(reading) as told:
        print(json.dumps(told.read()), flush=True)
    os.wait()
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs a program in a process that has imported gin and envkit, and no more.

    It finds a package with the names of TF-Agents; the lines that it prints come back.
    """
    folder = packaged(tmp_path_factory.mktemp("packages"))
    with subprocess.Popen(
        [sys.executable, "-c", SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])},
    ) as server:

        def ask(program):
            print(json.dumps(program), file=server.stdin, flush=True)
            return json.loads(server.stdout.readline()).splitlines()

        yield ask
        server.stdin.close()


# Names.


def test_every_gin_name_of_tf_agents_is_registered():
    ours = {
        f"{module}.{name}"
        for module, homes in gin_names.HOMES.items()
        for name in homes
    }
    assert set(NAMES) == ours


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_of_tf_agents_can_be_bound_under_every_name(name):
    bindings = [
        f"{spelling}.{parameter} = {number}"
        for number, spelling in enumerate(spellings(name))
        for parameter in NAMES[name].split()
    ]
    last = len(spellings(name)) - 1

    with configured("\n".join(bindings)):
        assert dict.fromkeys(NAMES[name].split(), last) == gin.get_bindings(name)


@pytest.mark.parametrize(
    "name", ["wrappers.TimeLimit", "tf_py_environment.TFPyEnvironment"]
)
def test_an_unknown_parameter_is_refused(name):
    with configured():
        message, _ = told(ValueError, gin.parse_config, f"{name}.colour = 'red'")
    assert message.startswith(
        f"Configurable '{name}' doesn't have a parameter named 'colour'."
    )


# Files, written as people write them for TF-Agents.


def test_a_file_with_macros_makes_its_environment():
    with configured(
        """
        import tf_agents.environments.suite_gymnasium

        ## Configure Environment
        ENVIRONMENT = @suite_gymnasium.load()
        suite_gymnasium.load.environment_name = %ENVIRONMENT_NAME
        # Note: it can be overridden on the command line.
        ENVIRONMENT_NAME = 'CartPole-v1'
        """
    ):
        gin.parse_config("ENVIRONMENT_NAME = 'Acrobot-v1'")
        env = gin.query_parameter("%ENVIRONMENT").scoped_configurable_fn()

    assert "Acrobot-v1" == env.spec.id


def test_a_file_with_wrappers_wraps_its_environment():
    with configured(
        """
        suite_gymnasium.load.environment_name = 'CartPole-v1'
        suite_gymnasium.load.max_episode_steps = 0
        suite_gymnasium.load.env_wrappers = (
            @wrappers.ActionRepeat, @TimeLimit, @stacked/HistoryWrapper)
        ActionRepeat.times = 4
        tf_agents.environments.wrappers.TimeLimit.duration = 100
        HistoryWrapper.include_actions = False
        stacked/HistoryWrapper.history_length = 2
        """
    ):
        env = suite_gymnasium.load()

    assert (
        "HistoryWrapper(TimeLimit(ActionRepeat(GymnasiumWrapper(CartPole-v1), "
        "times=4), duration=100), history_length=2, include_actions=False, "
        "tile_first_step_obs=False)"
    ) == repr(env)
    assert (2, 4) == env.reset().observation.shape


def test_a_file_chooses_the_environment_for_a_users_function():
    def train_eval(env_load_fn=None, env_name=None, parallel=None):
        return env_load_fn(env_name), parallel

    with configured(), users_own(train_eval) as train:
        gin.parse_config(
            """
            train_eval.env_load_fn = @suite_gymnasium.load
            train_eval.env_name = 'CartPole-v1'
            train_eval.parallel = @ParallelPyEnvironment
            suite_gymnasium.load.max_episode_steps = 3
            """
        )
        env, parallel = train()
        kinds = [int(env.step(0).step_type) for _ in range(4)]

    assert [0, 1, 1, 2] == kinds
    assert parallel is ParallelPyEnvironment


@contextlib.contextmanager
def users_own(function):
    """Makes something of a user's configurable."""
    gin.enter_interactive_mode()
    try:
        yield gin.configurable(function, module="users")
    finally:
        gin.exit_interactive_mode()


def test_files_include_others(tmp_path):
    (tmp_path / "base.gin").write_text(
        "import tf_agents.environments.wrappers\n"
        "TimeLimit.duration = 5\n"
        "ActionRepeat.times = 2\n"
    )
    (tmp_path / "long.gin").write_text(
        f"include {str(tmp_path / 'base.gin')!r}\nTimeLimit.duration = 50\n"
    )
    with configured():
        gin.parse_config_file(str(tmp_path / "long.gin"))
        env = TimeLimit(ActionRepeat(CountingEnv()))

    assert "TimeLimit(ActionRepeat(CountingEnv(), times=2), duration=50)" == repr(env)


def test_load_wraps_a_bound_gym_environment():
    with configured(
        """
        suite_gym.wrap_env.max_episode_steps = 2
        suite_gym.wrap_env.discount = 0.5
        suite_gym.wrap_env.env_wrappers = [@ActionRepeat]
        ActionRepeat.times = 3
        """
    ):
        env = suite_gym.wrap_env(old_gym())

    inside = "PrivateRandomness(GymWrapper(OldGym), generators=('random', 'numpy'))"
    assert f"ActionRepeat(TimeLimit({inside}, duration=2), times=3)" == repr(env)
    assert [1.0, 0.5] == [float(env.step(0).discount) for _ in range(2)]


def test_a_bound_environment_name_reaches_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "gym", None)
    with configured("suite_gym.load.environment_name = 'Maze-v3'"):
        message, _ = told(MissingDependencyError, suite_gym.load)

    assert message.startswith(
        "The environment 'Maze-v3' needs the package gym, which is not installed. "
        "pip install \"gym>=0.22\"\n  In call to configurable 'load'"
    )


@pytest.mark.parametrize(
    "statement",
    [
        *(f"import {module}" for module in sorted(gin_names.MODULES)),
        "from tf_agents.environments import wrappers",
        "from tf_agents.environments import suite_gym as gym_suite",
        "import tf_agents.environments.wrappers as w",
    ],
)
def test_imports_of_tf_agents_in_files_are_skipped(statement):
    with configured(f"{statement}\nTimeLimit.duration = 5"):
        assert 5 == TimeLimit(CountingEnv()).duration
        assert statement.partition(" as ")[0] in gin.config_str()
    assert not any(name.startswith("tf_agents") for name in sys.modules)


def test_other_imports_in_files_are_executed(tmp_path, monkeypatch):
    (tmp_path / "gin_test_games.py").write_text("import gin\nplayed = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    with configured("import gin_test_games"):
        assert sys.modules.pop("gin_test_games").played
        with pytest.raises(ImportError, match="No module named 'no_such_games'"):
            gin.parse_config("import no_such_games")


def test_files_with_dynamic_registration_import_envkit():
    with configured(
        """
        from __gin__ import dynamic_registration
        from envkit import wrappers
        from envkit.adapters.gymnasium import suite as suite_gymnasium
        import envkit.testing

        wrappers.TimeLimit.duration = 6
        suite_gymnasium.load.environment_name = 'Acrobot-v1'
        envkit.testing.CountingEnv.steps_per_episode = 3
        """
    ):
        env = TimeLimit(CountingEnv())
        values = [gin.query_parameter("TimeLimit.duration"), env.duration]
        kinds = [int(env.step(0).step_type) for _ in range(4)]
        name = suite_gymnasium.load().spec.id

    assert ([6, 6], "Acrobot-v1") == (values, name)
    assert [0, 1, 1, 2] == kinds


# Calls.


@pytest.mark.parametrize("passed", [{}, {"history_length": 4}])
@pytest.mark.parametrize(
    "bound",
    [
        {},
        {"history_length": 2},
        {"history_length": 5, "include_actions": True, "tile_first_step_obs": True},
    ],
)
def test_the_callers_arguments_override_bound_values(bound, passed):
    lines = [f"HistoryWrapper.{name} = {value}" for name, value in bound.items()]
    with configured("\n".join(lines)):
        env = HistoryWrapper(CountingEnv(), **passed)
    assert repr(HistoryWrapper(CountingEnv(), **{**bound, **passed})) == repr(env)


def test_required_parameters_must_be_bound():
    with configured():
        message, _ = told(RuntimeError, TimeLimit, CountingEnv(), gin.REQUIRED)
        gin.bind_parameter("TimeLimit.duration", 4)
        env = TimeLimit(CountingEnv(), gin.REQUIRED)

    assert message.startswith(
        "Required bindings for `TimeLimit` not provided in config: ['duration']"
    )
    assert 4 == env.duration


def test_scopes_have_their_own_values():
    with configured("TimeLimit.duration = 5\neval/TimeLimit.duration = 500"):
        with gin.config_scope("eval"):
            longer = TimeLimit(CountingEnv())
        durations = [TimeLimit(CountingEnv(), *more).duration for more in ((), (3,))]
    assert ([5, 3], 500) == (durations, longer.duration)


def test_a_subclass_passes_values_to_its_base():
    class Nap(TimeLimit):
        def __init__(self, env):
            super().__init__(env)

    with configured("TimeLimit.duration = 5"):
        assert 5 == Nap(CountingEnv()).duration


def test_values_of_a_class_without_a_constructor_do_not_reach_its_siblings():
    """Its base has the constructor, and is the base of others."""
    with configured("EpisodeCountingEnv.steps_per_episode = 1"):
        env, other = EpisodeCountingEnv(), NestedCountingEnv()
        kinds = [
            [int(each.step(0).step_type) for _ in range(2)] for each in (env, other)
        ]
    assert [[0, 2], [0, 1]] == kinds


def test_gin_finds_configured_classes_and_bindings():
    with configured("suite_gym.load.discount = 0.5\nTimeLimit.duration = 4"):
        assert {"discount": 0.5} == gin.get_bindings("suite_gym.load")
        assert {"duration": 4} == gin.get_bindings(TimeLimit)
        assert gin.get_configurable("TimeLimit") is TimeLimit


def test_specs_are_made_by_reference():
    with configured(
        """
        BoundedArraySpec.shape = (3,)
        BoundedArraySpec.dtype = 'float32'
        BoundedArraySpec.minimum = -1
        BoundedArraySpec.maximum = 1
        LIMITS = @BoundedArraySpec()
        """
    ):
        spec = gin.query_parameter("%LIMITS").scoped_configurable_fn()

    assert BoundedArraySpec((3,), np.float32, -1, 1) == spec


def test_scoped_instances_have_the_original_class_and_pickle():
    with configured("train/TimeLimit.duration = 5\nLIMIT = @train/TimeLimit"):
        make = gin.query_parameter("%LIMIT").scoped_configurable_fn
        env = pickle.loads(pickle.dumps(make(CountingEnv())))
    assert TimeLimit is type(env)
    assert 5 == env.duration


def test_configured_classes_and_functions_pickle_by_name():
    with configured():
        for thing in targets().values():
            assert pickle.loads(pickle.dumps(thing)) is thing


def test_signatures_stay_as_they_are():
    before = {name: inspect.signature(thing) for name, thing in targets().items()}
    with configured():
        after = {name: inspect.signature(thing) for name, thing in targets().items()}
    assert before == after


def test_configured_environments_pass_check_environment():
    def make_env():
        return HistoryWrapper(TimeLimit(CountingEnv()))

    def make_batch():
        return BatchedPyEnvironment([make_env(), make_env()], multithreading=False)

    with configured("TimeLimit.duration = 4\nHistoryWrapper.history_length = 2"):
        check_environment(make_batch, steps=40)


def test_operative_config_str_lists_the_used_values():
    with configured("TimeLimit.duration = 4"):
        TimeLimit(CountingEnv(), handle_auto_reset=False)
        written = gin.operative_config_str()
    assert "TimeLimit.duration = 4" in written.splitlines()
    assert "CountingEnv.steps_per_episode = 10" in written.splitlines()


# Errors.


def test_errors_of_envkit_keep_their_attributes():
    makers = ["envkit.testing:CountingEnv", "envkit.testing:CountingEnvs"]
    pool = functools.partial(
        ParallelPyEnvironment, makers, num_workers=2, backend="inline"
    )
    without, _ = told(ConstructorError, pool)
    with configured():
        message, error = told(ConstructorError, pool)

    assert without == message
    assert (ConstructorError, (1,)) == (type(error), error.envs)
    assert message == str(pickle.loads(pickle.dumps(error)))


def test_errors_of_referenced_configurables_keep_their_attributes(monkeypatch):
    monkeypatch.setitem(sys.modules, "gym", None)
    with configured(
        "RunStats.env = @suite_gym.load()\nsuite_gym.load.environment_name = 'Maze'"
    ):
        message, error = told(MissingDependencyError, RunStats)
    assert message.startswith("The environment 'Maze' needs the package gym")
    assert (MissingDependencyError, "gym") == (type(error), error.package)


def test_other_errors_get_gins_remark():
    with configured("TimeLimit.duration = 0"):
        message, _ = told(ValueError, TimeLimit, CountingEnv())
    assert (
        "duration must be an integer of at least 1, got 0.\n  In call to configurable "
        "'TimeLimit' (<class 'envkit.wrappers.limits.TimeLimit'>)"
    ) == message


def test_gin_names_a_missing_argument():
    with configured():
        message, _ = told(TypeError, ActionRepeat, CountingEnv())
    assert "No values supplied by Gin or caller for arguments: ['times']" in message


# Pools.


def test_pools_use_bound_values():
    with (
        configured(
            """
            ParallelPyEnvironment.start_serially = False
            ParallelPyEnvironment.backend = 'inline'
            ParallelPyEnvironment.autoreset = 'same_step'
            CountingEnv.steps_per_episode = 1
            """
        ),
        envkit.make("envkit.testing:CountingEnv", num_envs=3) as env,
    ):
        env.reset()

        assert [2, 2, 2] == env.step([0, 0, 0]).step_type.tolist()
        assert [2, 2, 2] == env.step([0, 0, 0]).step_type.tolist()


def test_workers_receive_the_values():
    with (
        configured(
            """
            import tf_agents.environments.wrappers
            TimeLimit.duration = 2
            unknown/TimeLimit.duration = 3
            CountingEnv.steps_per_episode = %STEPS
            STEPS = 5
            """
        ),
        ParallelPyEnvironment(
            [functools.partial(TimeLimit, CountingEnv())],
            num_workers=1,
            worker_setup=worker_setup(),
        ) as env,
    ):
        kinds = [env.step([0]).step_type.tolist() for _ in range(4)]

    assert [[0], [1], [2], [0]] == kinds


def test_workers_import_the_users_configurables(tmp_path, monkeypatch):
    (tmp_path / "gin_test_maze.py").write_text(
        "import gin\n"
        "from envkit.testing import CountingEnv\n"
        "@gin.configurable\n"
        "def make_maze(size=9):\n"
        "    return CountingEnv(size)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with configured(), users_module("gin_test_maze"):
        gin.parse_config("make_maze.size = 1")
        gin.finalize()
        with ParallelPyEnvironment(
            ["gin_test_maze:make_maze"],
            num_workers=1,
            worker_setup=worker_setup("gin_test_maze"),
        ) as env:
            kinds = [env.step([0]).step_type.tolist() for _ in range(2)]

    assert [[0], [2]] == kinds


@contextlib.contextmanager
def users_module(name):
    """Imports a module with configurables, which a test before may have done."""
    gin.enter_interactive_mode()
    try:
        importlib.import_module(name)
    finally:
        gin.exit_interactive_mode()
    try:
        yield
    finally:
        del sys.modules[name]


@pytest.mark.parametrize("backend", ["inline", "thread"])
def test_workers_without_a_process_share_the_values(backend):
    """They may be newer than those that were carried."""
    with configured("TimeLimit.duration = 2"):
        setup = worker_setup()
        gin.parse_config("TimeLimit.duration = 9")
        with ParallelPyEnvironment(
            [lambda: TimeLimit(CountingEnv())], backend=backend, worker_setup=setup
        ) as env:
            assert 9 == env._envs[0].duration


def test_worker_setup_pickles():
    with configured("import tf_agents.environments.wrappers\nTimeLimit.duration = 2"):
        data = pickle.dumps(worker_setup())
    assert b"TimeLimit.duration = 2" in data
    assert b"tf_agents" not in data


# There and back.


def constructors():
    return {name: vars(thing).get("__init__") for name, thing in targets().items()}


def test_unregister_restores_everything():
    before = targets(), constructors(), gin.config.ParseContext.process_import
    register()
    assert before[:2] != (targets(), constructors())
    unregister()

    assert before == (
        targets(),
        constructors(),
        gin.config.ParseContext.process_import,
    )


def test_after_unregister_classes_use_no_values():
    with configured("HistoryWrapper.history_length = 2"):
        unregister()
        assert 3 == HistoryWrapper(CountingEnv()).history_length


def test_registering_twice_changes_nothing():
    before = constructors()
    register()
    once = constructors()
    register()
    twice = constructors()
    unregister()
    after = constructors()
    unregister()

    assert once == twice
    assert before == after == constructors()


def test_names_can_be_registered_again():
    for duration in (3, 4):
        with configured(f"TimeLimit.duration = {duration}"):
            assert duration == TimeLimit(CountingEnv()).duration


def test_a_locked_configuration_changes_nothing(run):
    program = """
gin.finalize()
before = TimeLimit.__init__
try:
    ours.register()
except RuntimeError as error:
    print(error)
print(TimeLimit.__init__ is before)
"""
    assert [
        "Attempted to add a new configurable after the config was locked.",
        "True",
    ] == run(program)


def test_users_own_configurables_work():
    class Patient(PyEnvironmentBaseWrapper):
        def __init__(self, env, patience=1):
            super().__init__(env)
            self.patience = patience

    with configured(), users_own(Patient):
        gin.parse_config("Patient.patience = 7")

        assert 7 == Patient(CountingEnv()).patience


def test_unregister_keeps_the_users_registrations():
    gin.external_configurable(TimeLimit, "Nap", module="users")
    before = gin.get_configurable("users.Nap")
    with configured("users.Nap.duration = 3\nTimeLimit.duration = 4"):
        durations = [make(CountingEnv()).duration for make in (before, TimeLimit)]

    assert [3, 4] == durations


def test_base_classes_are_not_configurable():
    """What they are given would reach every wrapper."""
    with configured():
        message, _ = told(
            ValueError, gin.parse_config, "PyEnvironmentBaseWrapper.env = 1"
        )
    assert message.startswith("No configurable matching 'PyEnvironmentBaseWrapper'.")


@pytest.mark.parametrize(
    ("call", "name"), [(register, "register"), (worker_setup, "worker_setup")]
)
def test_a_missing_gin_is_named_with_the_command_that_installs_it(
    call, name, monkeypatch
):
    monkeypatch.setitem(sys.modules, "gin", None)
    message, _ = told(MissingDependencyError, call)
    assert (
        f"envkit.adapters.gin.{name}() needs the package gin, which is not installed. "
        'pip install "gin-config>=0.5,<0.6"'
    ) == message


# Beside TF-Agents, of which this package has a module.

PACKAGE = {
    "tf_agents/__init__.py": "",
    "tf_agents/environments/__init__.py": "",
    "tf_agents/environments/wrappers.py": (
        "import gin\n"
        "@gin.configurable\n"
        "class TimeLimit:\n"
        "    def __init__(self, env, duration):\n"
        "        self.duration = duration\n"
    ),
}


def packaged(folder):
    """Writes a package with the names of TF-Agents."""
    for name, source in PACKAGE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return folder


def test_tf_agents_in_the_same_process_is_refused(run):
    program = """
import tf_agents.environments.wrappers
before = TimeLimit.__init__
try:
    ours.register()
except RuntimeError as error:
    print(error)
print(TimeLimit.__init__ is before)
"""
    assert [
        "TF-Agents' tf_agents.environments.wrappers has been imported, and registers "
        "its configurables in gin under the same names as envkit's. Use only one of "
        "the two in a process that parses gin files: leave out "
        "envkit.adapters.gin.register(), or the import.",
        "True",
    ] == run(program)


# TensorFlow.


def test_registering_does_not_import_tensorflow(run):
    program = """
ours.register()
gin.parse_config("TFPyEnvironment.check_dims = True")
print([name for name in sys.modules if name.startswith(("tensorflow", "envkit.tf"))])
"""
    assert ["[]"] == run(program)


@pytest.mark.slow
def test_tensorflow_may_be_imported_later(run):
    program = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
ours.register()
gin.parse_config('''
ENVIRONMENT = @TFPyEnvironment()
tf_py_environment.TFPyEnvironment.environment = @CountingEnv()
TFPyEnvironment.check_dims = True
''')
gin.finalize()
reference = gin.query_parameter("%ENVIRONMENT")

def look(make):
    env = make()
    try:
        env.step([0, 0])
    except ValueError:
        print("checked")
    return env

look(reference.scoped_configurable_fn).close()
from envkit.tf import TFPyEnvironment
print(hasattr(TFPyEnvironment.__init__, "__wrapped__"))
"""
    assert ["checked", "False"] == run(program)


@pytest.mark.slow
def test_with_tensorflow_loaded_tf_py_environment_is_configured(run):
    program = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
from envkit.tf import TFPyEnvironment
ours.register()
gin.parse_config('TFPyEnvironment.check_dims = True')
env = TFPyEnvironment(CountingEnv())
try:
    env.step([0, 0])
except ValueError:
    print("checked")
env.close()
"""
    assert ["checked"] == run(program)
