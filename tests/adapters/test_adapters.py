"""The package's names, and that asking for nothing imports nothing."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from envkit import adapters

LIBRARIES = ("bsuite", "dm_control", "dm_env", "gin", "gym", "gymnasium", "mujoco")


def run(program: str) -> str:
    """Runs a program in a fresh interpreter and returns what it prints."""
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout


def test_importing_the_package_loads_no_adapter_and_no_library():
    program = """
import json, sys
import envkit.adapters
print(json.dumps([name for name in sys.modules if name.startswith("envkit.adapters.")]))
"""
    assert [] == json.loads(run(program))


def test_importing_every_adapter_loads_no_library():
    program = f"""
import json, sys
from envkit.adapters import *
print(json.dumps([name for name in {LIBRARIES} if name in sys.modules]))
"""
    assert [] == json.loads(run(program))


def test_every_public_name_is_the_object_of_its_module():
    for name, home in adapters._HOMES.items():
        assert getattr(importlib.import_module(home), name) is getattr(adapters, name)


def test_every_suite_is_the_module_of_its_name():
    for name in adapters._MODULES:
        module = importlib.import_module(f"envkit.adapters.{name}")
        assert module is getattr(adapters, name)


@pytest.mark.parametrize(("alias", "home"), adapters._ALIASES.items())
def test_a_moved_module_is_importable_under_its_old_name(alias, home):
    module = importlib.import_module(f"envkit.adapters.{alias}")
    spec = module.__spec__
    assert module is importlib.import_module(home) is getattr(adapters, alias)
    assert (home, home) == (module.__name__, spec and spec.name)
    assert alias in dir(adapters)


def test_type_checkers_see_the_same_modules_as_the_interpreter():
    tree = ast.parse(Path(adapters.__file__).read_text("utf-8"))
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    )
    told = {
        alias.asname or alias.name: str(statement.module)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    modules = dict.fromkeys(adapters._MODULES, "envkit.adapters")
    aliases = {
        name: home.rpartition(".")[0]
        for name, home in adapters._ALIASES.items()
        if name in adapters.__all__
    }

    assert adapters._HOMES | modules | aliases == told
    # The first is removed, and says so when it is called.
    hidden = {"AsyncEnvPool", "gin", "pysc2", "urnai"}
    assert sorted(set(told) - hidden) == adapters.__all__


def test_dir_lists_the_public_names():
    assert set(adapters.__all__) <= set(dir(adapters))


def test_an_unknown_name_raises_attribute_error():
    with pytest.raises(AttributeError) as caught:
        _ = adapters.GymWrappper
    assert "module 'envkit.adapters' has no attribute 'GymWrappper'" == str(
        caught.value
    )


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "envkit.make('gymnasium:CartPole-v1')",
            "The environment 'gymnasium:CartPole-v1' needs the package gymnasium, "
            'which is not installed. pip install "gymnasium>=1.0"',
        ),
        (
            "envkit.adapters.suite_gymnasium.load('CartPole-v1')",
            "The environment 'CartPole-v1' needs the package gymnasium, which is not "
            'installed. pip install "gymnasium>=1.0"',
        ),
        (
            "envkit.adapters.GymnasiumWrapper(None)",
            "GymnasiumWrapper needs the package gymnasium, which is not installed. "
            'pip install "gymnasium>=1.0"',
        ),
        (
            "envkit.make('dm_control:cartpole/swingup')",
            "The environment 'dm_control:cartpole/swingup' needs the package "
            "dm_control, which is not installed. "
            'pip install "dm-control>=1.0.16" "mujoco<4"',
        ),
        (
            "envkit.adapters.suite_dm_control.load('cartpole', 'swingup')",
            "The environment 'cartpole/swingup' needs the package dm_control, which "
            'is not installed. pip install "dm-control>=1.0.16" "mujoco<4"',
        ),
    ],
)
def test_a_missing_package_is_named_with_its_pip_command(statement, message):
    # None in sys.modules is how Python itself marks a module that cannot be imported.
    program = f"""
import sys
sys.modules.update(gymnasium=None, dm_control=None)
import envkit, envkit.adapters
try:
    {statement}
except envkit.errors.MissingDependencyError as error:
    print(error)
"""

    assert message == run(program).strip()
