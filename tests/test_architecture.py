"""The floors of the house: who may import whom, read off the source."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from packaging.requirements import Requirement

import envkit

ROOT = Path(envkit.__file__).parent

# A module may import from its own floor and from lower ones.
FLOORS: dict[int, set[str]] = {
    0: {
        "arrays",
        "autoreset",
        "ending_flags",
        "error_texts",
        "errors",
        "exception_copies",
        "interruptible",
        "lazy_names",
        "types",
        "nest",
        "nest_walk",
        "plain_data",
        "seeding",
        "stacked_infos",
        "wording",
        "_tensor_bridge",
    },
    1: {"specs"},
    2: {"time_step"},
    3: {
        "async_environment",
        "blocking",
        "masked_rows",
        "provenance",
        "py_environment",
        "specified",
    },
    4: {
        "action_rows",
        "constructors",
        "env_ids",
        "batched_py_environment",
        "padded_rows",
        "random_policy",
        "random_py_environment",
        "row_calls",
        "targets",
        "wrappers",
        "envs",
        "utils",
        "window",
    },
    5: {"parallel"},
    6: {"adapters", "tf", "realtime", "recording", "remote", "distributed"},
    7: {"testing"},
    8: {"cli", "__main__"},
}
# The packages of floor 6 do not know one another, and these do not know the engine.
NO_ENGINE = {"adapters", "tf", "realtime", "recording"}

# Beside NumPy and the standard library: which package a part of envkit may import when
# it is imported itself, and which only inside a function.
AT_MODULE_LEVEL: dict[str, set[str]] = {
    "envkit.cli": {"rich"},
    "envkit.tf": {"tensorflow"},
}
INSIDE_FUNCTIONS: dict[str, set[str]] = {
    "envkit.cli.play_parts": {"pygame"},
    "envkit.cli.bench_parts": {
        "envpool",
        "gymnasium",
        "matplotlib",
        "pufferlib",
        "stable_baselines3",
        "torch",
        "torchrl",
    },
    "envkit.nest": {"tree"},
    "envkit.parallel": {"cloudpickle"},
    "envkit.window": {"pygame"},
    "envkit.wrappers": {"imageio", "imageio_ffmpeg"},
    "envkit.adapters": {
        "absl",
        "ale_py",
        "bsuite",
        "dm_control",
        "dm_env",
        "envpool",
        "gin",
        "google",
        "gym",
        "gymnasium",
        "gymnax",
        "jax",
        "minigrid",
        "mujoco",
        "pettingzoo",
        "ple",
        "pygame",
        "pysc2",
        "stable_baselines3",
        "tf_agents",
        "vizdoom",
    },
}


class Import(NamedTuple):
    """One import statement."""

    importer: str
    imported: str
    in_function: bool


def module_name(path: Path) -> str:
    parts = ("envkit", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports_of(module: str) -> Iterator[Import]:
    """Yields a module's imports; those for type checkers alone do not count."""

    def visit(node: ast.AST, in_function: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                for other in child.orelse:
                    yield from visit(ast.Module([other], []), in_function)
                continue
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(module, alias.name, in_function)
            elif isinstance(child, ast.ImportFrom):
                for alias in child.names:
                    full = f"{child.module}.{alias.name}"
                    name = full if full in SOURCES else str(child.module)
                    yield Import(module, name, in_function)
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from visit(child, in_function or inside)

    yield from visit(ast.parse(SOURCES[module].read_text("utf-8")), False)


ALL_IMPORTS = [found for module in SOURCES for found in imports_of(module)]


def member(module: str) -> str:
    """Names the member of a floor that a module belongs to; "" is the front door."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def floor(module: str) -> int:
    name = member(module)
    return next(number for number, members in FLOORS.items() if name in members)


def within(module: str, table: dict[str, set[str]]) -> set[str]:
    return set().union(
        *(
            packages
            for part, packages in table.items()
            if module == part or module.startswith(f"{part}.")
        )
    )


def test_every_module_stands_on_a_floor():
    homeless = [module for module in SOURCES if member(module) and not _placed(module)]

    assert [] == homeless


def _placed(module: str) -> bool:
    return any(member(module) in members for members in FLOORS.values())


def test_imports_never_point_up():
    upward = [
        found
        for found in ALL_IMPORTS
        if found.imported.startswith("envkit.")
        and member(found.importer)
        and floor(found.imported) > floor(found.importer)
    ]

    assert [] == upward


def test_the_front_door_imports_nothing_of_envkit():
    eager = [
        found
        for found in ALL_IMPORTS
        if found.importer == "envkit" and found.imported.startswith("envkit")
    ]

    assert [] == eager


def test_nothing_inside_goes_through_the_front_door():
    """It leads to every floor, so nobody could see which one was meant."""
    inside = [found for found in ALL_IMPORTS if found.imported == "envkit"]

    assert [] == inside


def test_packages_of_the_sixth_floor_do_not_import_each_other():
    sideways = [
        found
        for found in ALL_IMPORTS
        if member(found.importer) in FLOORS[6]
        and member(found.imported) in FLOORS[6]
        and member(found.importer) != member(found.imported)
    ]

    assert [] == sideways


def test_adapters_tf_and_realtime_do_not_know_the_engine():
    knowing = [
        found
        for found in ALL_IMPORTS
        if member(found.importer) in NO_ENGINE and member(found.imported) == "parallel"
    ]

    assert [] == knowing


def test_other_packages_are_imported_only_behind_their_doors():
    strangers = []
    for found in ALL_IMPORTS:
        package = found.imported.split(".")[0]
        if package in {"envkit", "numpy"} or package in sys.stdlib_module_names:
            continue
        allowed = within(found.importer, AT_MODULE_LEVEL)
        if found.in_function:
            allowed |= within(found.importer, INSIDE_FUNCTIONS)
        if package not in allowed:
            strangers.append(found)

    assert [] == strangers


# It hands on the environment variables of this process to those it starts.
HANDS_ON_VARIABLES = {"envkit.parallel.launch"}
# It marks what a worker starts by the one thing that every program inherits.
HANDS_ON_VARIABLES |= {"envkit.parallel.guardian"}
# It tells SDL what SDL can be told in no other way, and looks for a display.
HANDS_ON_VARIABLES |= {"envkit.window"}
# It tells pygame in the only way that there is not to greet.
HANDS_ON_VARIABLES |= {"envkit.adapters.pysc2_parts.old_imports"}


def test_no_behaviour_is_chosen_by_an_environment_variable():
    readers = [
        module
        for module, path in SOURCES.items()
        if module not in HANDS_ON_VARIABLES
        and any(
            (isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"})
            or (isinstance(node, ast.alias) and node.name in {"environ", "getenv"})
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
        )
    ]

    assert [] == readers


@pytest.mark.parametrize("extra", ["test", "test-all"])
def test_what_tests_install_contains_one_pygame(extra):
    """Two of them are in one folder, and which files are there is the installer's."""
    tomllib = pytest.importorskip("tomllib", reason="tomllib is there since 3.11")
    file = ROOT.parent / "pyproject.toml"
    wanted = tomllib.loads(file.read_text("utf-8"))["project"]["optional-dependencies"]
    names, waiting = set(), [Requirement(text) for text in wanted[extra]]
    while waiting:
        requirement = waiting.pop()
        extras = [{"extra": extra} for extra in requirement.extras] or [{"extra": ""}]
        names.add(requirement.name.lower())
        try:
            asked = metadata.requires(requirement.name) or ()
        except metadata.PackageNotFoundError:
            continue
        for other in map(Requirement, asked):
            marker = other.marker
            is_wanted = marker is None or any(map(marker.evaluate, extras))
            if is_wanted and other.name.lower() not in names:
                waiting.append(other)

    assert {"pygame-ce"} >= names & {"pygame", "pygame-ce"}


def importable_modules() -> list[str]:
    return [
        found.name
        for found in pkgutil.walk_packages([str(ROOT)], "envkit.")
        if not found.name.endswith("__main__")
    ]


@pytest.mark.parametrize("name", importable_modules())
def test_no_module_constant_is_a_writeable_array(name):
    module = importlib.import_module(name)
    holders = {"": vars(module)} | {
        key: vars(value)
        for key, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == name
    }
    writeable = [
        f"{holder}.{key}"
        for holder, scope in holders.items()
        for key, value in scope.items()
        if isinstance(value, np.ndarray) and value.flags.writeable
    ]

    assert [] == writeable
