"""What is listed is what can be imported."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import envkit
from tests.importable import importable_modules

ROOT = Path(envkit.__file__).parent
MODULES = ["envkit", *importable_modules()]


def found_in_modules(look):
    """Returns what a function finds in the modules where it finds something."""
    found = {name: look(name, importlib.import_module(name)) for name in MODULES}
    return {name: items for name, items in found.items() if items}


def test_every_listed_name_exists():
    def missing(_, module):
        listed = getattr(module, "__all__", [])
        return [item for item in listed if not hasattr(module, item)]

    assert {} == found_in_modules(missing)


def test_names_are_listed_once_and_in_order():
    # Constants, then classes, then functions, as ruff wants it.
    def place(name):
        return not name.isupper(), not name[:1].isupper(), name

    def out_of_order(_, module):
        listed = list(getattr(module, "__all__", []))
        return listed if sorted(set(listed), key=place) != listed else []

    assert {} == found_in_modules(out_of_order)


def test_every_public_class_and_function_is_listed():
    def unlisted(name, module):
        defined = {
            key
            for key, value in vars(module).items()
            if not key.startswith("_")
            and callable(value)
            and getattr(value, "__module__", None) == name
        }
        return defined - set(getattr(module, "__all__", []))

    assert {} == found_in_modules(unlisted)


def test_type_checkers_and_the_interpreter_use_the_same_modules():
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
    assert {"TFEnvironment", "TFPyEnvironment"} == set(told) - set(envkit.__all__)


@pytest.mark.parametrize(("name", "home"), envkit._HOMES.items())
def test_exported_names_are_the_objects_of_their_modules(name, home):
    assert getattr(importlib.import_module(home), name) is getattr(envkit, name)


def test_dir_lists_the_public_names():
    assert {*envkit.__all__, "TFPyEnvironment"} <= set(dir(envkit))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(
        AttributeError, match=r"^module 'envkit' has no attribute 'Nothing'$"
    ):
        _ = envkit.Nothing
