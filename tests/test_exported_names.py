"""What is listed is what can be imported."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import envkit

ROOT = Path(envkit.__file__).parent
MODULES = [
    "envkit",
    *(
        found.name
        for found in pkgutil.walk_packages([str(ROOT)], "envkit.")
        if not found.name.endswith("__main__")
    ),
]


@pytest.mark.parametrize("name", MODULES)
def test_every_listed_name_exists(name):
    module = importlib.import_module(name)
    listed = getattr(module, "__all__", [])

    assert [] == [item for item in listed if not hasattr(module, item)]


@pytest.mark.parametrize("name", MODULES)
def test_names_are_listed_once_and_in_order(name):
    listed = list(getattr(importlib.import_module(name), "__all__", []))

    # Constants, then classes, then functions, as ruff wants it.
    def place(name):
        return not name.isupper(), not name[:1].isupper(), name

    assert sorted(set(listed), key=place) == listed


@pytest.mark.parametrize("name", MODULES)
def test_every_public_class_and_function_is_listed(name):
    module = importlib.import_module(name)
    defined = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_")
        and callable(value)
        and getattr(value, "__module__", None) == name
    }

    assert set() == defined - set(getattr(module, "__all__", []))


def test_type_checkers_are_told_the_same_homes_as_the_interpreter():
    tree = ast.parse((ROOT / "__init__.py").read_text("utf-8"))
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
    modules = dict.fromkeys(envkit._MODULES, "envkit")

    assert envkit._HOMES | modules == told
    # A star import is to stay light.
    light = [name for name, home in told.items() if home != "envkit.tf"]
    assert sorted(light) == envkit.__all__


@pytest.mark.parametrize(("name", "home"), envkit._HOMES.items())
def test_a_name_is_the_object_of_its_home(name, home):
    assert getattr(importlib.import_module(home), name) is getattr(envkit, name)


def test_dir_lists_the_public_names():
    assert {*envkit.__all__, "TFPyEnvironment"} <= set(dir(envkit))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(
        AttributeError, match=r"^module 'envkit' has no attribute 'Env'$"
    ):
        _ = envkit.Env


@pytest.mark.parametrize(
    "statement",
    [
        "from envkit import specs",
        "from envkit.specs import array_spec",
        "from envkit import time_step as ts",
        "from envkit.specs.array_spec import sample_spec_nest",
        "from envkit import py_environment, batched_py_environment, utils",
        "from envkit import random_py_environment",
        "from envkit.testing.envs import CountingEnv",
    ],
)
def test_modules_are_where_tf_agents_users_look(statement):
    exec(statement, {})
