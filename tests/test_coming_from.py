"""The pages for users of other libraries name things that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.importable import lacks_library

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {
    name: DOCS / f"coming_from_{name}.md"
    for name in ("gymnasium", "stable_baselines3", "cleanrl", "universe")
} | {"urnai": DOCS / "adapters/urnai.md"}
HOMES = [
    "envkit",
    "envkit.adapters",
    "envkit.adapters.urnai",
    "envkit.realtime",
    "envkit.recording",
    "envkit.testing",
    "envkit.wrappers",
    *(["envkit.torch"] * (not lacks_library("envkit.torch"))),
]


def names(page):
    """Lists the classes and functions that the right columns of tables call."""
    text = PAGES[page].read_text("utf-8")
    right = re.findall(r"^\| .*\| ([^|]+) \|$", text, re.M)
    code = " ".join(re.findall(r"`([^`]+)`", " ".join(right)))
    return sorted(set(re.findall(r"(?<![\w.])([A-Z]\w+|to_sb3|from_urnai)\(", code)))


@pytest.mark.parametrize(
    ("page", "name"), [(page, name) for page in PAGES for name in names(page)]
)
def test_every_call_in_the_tables_exists(page, name):
    if page == "cleanrl" and lacks_library("envkit.torch"):
        pytest.skip("torch is not installed")
    assert any(name in dir(importlib.import_module(home)) for home in HOMES)


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_contain_calls(page):
    assert names(page)


def test_every_import_in_the_urnai_table_exists():
    text = (DOCS / "adapters/urnai.md").read_text("utf-8")
    statements = re.findall(r"^\| `from urnai\S* .*` \| `(from .+)` \|$", text, re.M)
    assert 5 == len(statements)
    for statement in statements:
        exec(statement, {})


TF_AGENTS = (DOCS / "reference" / "tf_agents_names.md").read_text("utf-8")
ROW = re.compile(r"^\| `(from tf_agents\S* .+?)` \| `(from .+?)`", re.M)
IMPORTS = ROW.findall(TF_AGENTS)


def test_the_guide_for_tf_agents_has_rows_of_the_whole_table():
    rows = ROW.findall((DOCS / "coming_from_tf_agents.md").read_text("utf-8"))
    assert rows
    assert {*rows} <= {*IMPORTS}


@pytest.mark.parametrize("statement", [right for _, right in IMPORTS])
def test_every_import_in_the_tf_agents_table_exists(statement):
    if statement.startswith("from envkit.tf") or "TFPyEnvironment" in statement:
        pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    exec(statement, {})


def test_the_tf_agents_table_gives_each_name_one_row():
    """What a script calls a module afterwards is what it called it before."""

    def bound(statement):
        names = statement.partition(" import ")[2].split(", ")
        return [name.split(" as ")[-1] for name in names]

    assert len(IMPORTS) > 30
    for left, right in IMPORTS:
        assert bound(left) == bound(right)


# What the modules of TF-Agents 0.19 have, by the lines of the table that name them.
# Left out is what the page says has no counterpart.
NAMES = {
    "envkit.specs.array_spec": "ArraySpec BoundedArraySpec sample_bounded_spec "
    "sample_spec_nest check_arrays_nest assert_arrays_spec_nest add_outer_dims_nest "
    "is_bounded is_discrete is_continuous",
    "envkit.time_step": "TimeStep StepType restart transition termination truncation "
    "time_step_spec",
    "envkit.py_environment": "PyEnvironment",
    "envkit.batched_py_environment": "BatchedPyEnvironment unstack_actions",
    "envkit.parallel": "ParallelPyEnvironment ProcessPyEnvironment",
    "envkit.tf.tf_py_environment": "TFPyEnvironment",
    "envkit.tf.tf_environment": "TFEnvironment",
    "envkit.tf.tf_wrappers": "TFEnvironmentBaseWrapper OneHotActionWrapper",
    "envkit.tf.random_tf_environment": "RandomTFEnvironment",
    "envkit.tf.tensor_spec": "TensorSpec BoundedTensorSpec is_bounded is_discrete "
    "is_continuous from_spec to_array_spec to_nest_array_spec sample_bounded_spec "
    "sample_spec_nest zero_spec_nest add_outer_dims_nest add_outer_dim with_dtype "
    "remove_outer_dims_nest",
    "envkit.tf.specs": "ArraySpec BoundedArraySpec BoundedTensorSpec TensorSpec "
    "array_spec from_spec is_bounded is_continuous is_discrete sample_spec_nest "
    "tensor_spec zero_spec_nest",
    "envkit.random_py_environment": "RandomPyEnvironment",
    "envkit.wrappers": "PyEnvironmentBaseWrapper TimeLimit FixedLength ActionRepeat "
    "PerformanceProfiler FlattenActionWrapper ObservationFilterWrapper RunStats "
    "ActionDiscretizeWrapper ActionClipWrapper ActionOffsetWrapper HistoryWrapper "
    "FlattenObservationsWrapper GoalReplayEnvWrapper OneHotActionWrapper "
    "ExtraDisabledActionsWrapper AtariPreprocessing FrameStack4 AtariTimeLimit "
    "FireOnReset",
    "envkit.utils": "get_tf_env validate_py_environment",
    "envkit.testing.envs": "CountingEnv EpisodeCountingEnv NestedCountingEnv",
    "envkit.adapters.gymnasium_wrapper": "spec_from_gym_space GymnasiumWrapper",
    "envkit.adapters.suite_gymnasium": "load wrap_env",
    "envkit.adapters.gym_wrapper": "spec_from_gym_space GymWrapper",
    "envkit.adapters.suite_gym": "load wrap_env",
    "envkit.adapters.suite_bsuite": "is_available load",
    "envkit.adapters.py_to_dm_wrapper": "PyToDMWrapper",
    "envkit.adapters.dm_control_wrapper": "DmControlWrapper",
    "envkit.adapters.suite_dm_control": "is_available load load_pixels",
}


# What `tf_agents.environments` and `tf_agents.specs` of 0.19 export.
EXPORTS = {
    "tf_agents.environments": "ActionClipWrapper ActionDiscretizeWrapper "
    "ActionOffsetWrapper ActionRepeat BatchedPyEnvironment FlattenObservationsWrapper "
    "GoalReplayEnvWrapper GymWrapper HistoryWrapper ObservationFilterWrapper "
    "OneHotActionWrapper ParallelPyEnvironment PerformanceProfiler PyEnvironment "
    "PyEnvironmentBaseWrapper RandomPyEnvironment RandomTFEnvironment RunStats "
    "TFEnvironment TFPyEnvironment TimeLimit TrajectoryReplay batched_py_environment "
    "gym_wrapper parallel_py_environment py_environment random_py_environment "
    "random_tf_environment suite_atari suite_dm_control suite_gym suite_mujoco "
    "suite_pybullet tf_environment tf_py_environment trajectory_replay utils "
    "validate_py_environment wrappers",
    "tf_agents.specs": "ArraySpec BoundedArraySpec BoundedTensorSpec TensorSpec "
    "array_spec bandit_spec_utils distribution_spec tensor_spec",
}


@pytest.mark.parametrize("module", EXPORTS)
def test_every_name_that_a_package_of_tf_agents_exports_has_a_row(module):
    begin = f"from {module} import "
    rows = [left.removeprefix(begin) for left, _ in IMPORTS if left.startswith(begin)]
    named = {name for row in rows for name in row.split(", ")}
    elsewhere = TF_AGENTS.partition("## What is not there")[2]
    named |= set(re.findall(r"`(?:specs\.)?(\w+)`", elsewhere))
    assert set() == {*EXPORTS[module].split()} - named


def test_the_names_of_every_module_in_the_table_for_tf_agents_are_listed():
    named = set()
    for _, right in IMPORTS:
        home, _, module = right.removeprefix("from ").partition(" import ")
        is_function = module in NAMES.get(home, "").split()
        if module[:1].islower() and not is_function:
            named.add(f"{home}.{module.partition(' as ')[0]}")
    assert named == set(NAMES)


@pytest.mark.parametrize("module", NAMES)
def test_modules_in_the_table_list_the_names_of_tf_agents(module):
    if module.startswith("envkit.tf."):
        pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    # As the table writes it: the path may be an attribute of its package alone.
    home, _, name = module.rpartition(".")
    exec(f"from {home} import {name} as module", namespace := {})
    assert [] == [
        name for name in NAMES[module].split() if not hasattr(namespace["module"], name)
    ]
