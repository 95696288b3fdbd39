"""The floors of the house: who may import whom, read off the source."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from packaging.requirements import Requirement

import envkit
from envkit import extend
from tests.importable import importable_modules
from tools.figures import Sources
from tools.libraries import schemes

ROOT = Path(envkit.__file__).parent
TESTS = Path(__file__).parent

# A module may import from its own floor and from lower ones. The longest name counts.
FLOORS: dict[int, set[str]] = {
    # The contract.
    0: {"_internal", "errors", "types", "nest", "seeding"},
    1: {"specs"},
    2: {"provenance", "specs.plain", "time_step"},
    3: {
        "_internal.arguments",
        "_internal.direct_row",
        "_internal.first_look",
        "_internal.internals",
        "_internal.making",
        "_internal.masks",
        "_internal.objects",
        "_internal.options",
        "_internal.reset_order",
        "_internal.resets",
        "_internal.schemes",
        "async_environment",
        "base_wrapper",
        "batches",
        "losses",
        "blocking",
        "py_environment",
    },
    4: {
        "actions",
        "batched_py_environment",
        "policies",
        "registry",
        "utils",
    },
    # The engine.
    5: {"extend", "making", "parallel"},
    # Batteries.
    6: {
        "_shared",
        "envs",
        "monitoring",
        "newcomers",
        "play",
        "realtime",
        "recording",
        "sessions",
        "testing",
        "wrappers",
    },
    # Doors, and what is elsewhere.
    7: {"adapters", "desktop", "distributed", "jax", "tf", "torch"},
    8: {"remote"},
    # Commands.
    9: {"cli", "__main__"},
}
# The lowest floor below the wall: no module above it names one of these.
WALL = 6
# These rooms work without the engine.
NO_ENGINE = {"adapters", "jax", "tf", "torch", "realtime", "recording", "desktop"}

# Beside NumPy and the standard library: which package a part of envkit may import when
# it is imported itself, and which only inside a function.
AT_MODULE_LEVEL: dict[str, set[str]] = {
    "envkit.cli": {"rich"},
    "envkit.jax": {"jax"},
    "envkit.monitoring.figures": {"matplotlib"},
    "envkit.monitoring.progress_line": {"rich"},
    "envkit.play": {"rich"},
    "envkit.tf": {"tensorflow"},
    "envkit.torch": {"torch"},
    "envkit.torch.torchrl_environment": {"tensordict", "torchrl"},
}
INSIDE_FUNCTIONS: dict[str, set[str]] = {
    "envkit.monitoring.drawing": {"matplotlib"},
    "envkit.desktop.browser": {"websockets"},
    "envkit.desktop.tight": {"PIL"},
    "envkit.distributed": {"ray"},
    "envkit.envs": {"llvmlite", "numba"},
    "envkit.adapters.minari": {"minari"},
    "envkit.adapters.rllib": {"ray"},
    "envkit.nest": {"tree"},
    "envkit.parallel": {"cloudpickle"},
    "envkit.remote": {"websockets"},
    "envkit.play.window": {"pygame"},
    "envkit.wrappers": {"imageio_ffmpeg"},
    "envkit.wrappers.log_files": {"tensorboard"},
    "envkit.wrappers.private_generators": {"torch"},
    "envkit.adapters": {
        *(scheme.package for scheme in schemes().values()),
        "absl",
        "dm_env",
        "gin",
        "google",
        "grpc",
        "jax",
        "mujoco",
        "playwright",
        "stable_baselines3",
        "tf_agents",
        "ple",
    },
    "envkit.remote.dm_env_rpc": {"grpc"},
    "envkit.remote.dm_env_rpc_client": {"grpc"},
    "envkit.remote.dm_env_rpc_messages": {"dm_env_rpc", "google"},
    "envkit.remote.dm_env_rpc_tensors": {"dm_env_rpc"},
    "envkit.remote.openenv": {"starlette", "uvicorn"},
    "envkit.sessions.nemo": {"starlette"},
    "envkit.sessions.skyrl": {"skyrl_gym"},
    "envkit.sessions.verifiers": {"verifiers"},
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


@functools.cache
def parsed(module: str) -> ast.Module:
    return ast.parse(SOURCES[module].read_text("utf-8"))


def imports_of(module: str, for_types: bool = False) -> Iterator[Import]:
    """Yields a module's imports, with those for type checkers alone if asked for."""

    def visit(node: ast.AST, in_function: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):  # There is no import in it.
                continue
            is_for_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(
                child.test
            )
            if is_for_types and not for_types:
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
                    if name == "envkit.extend":  # It hands on what others have.
                        name = extend._HOMES[alias.name]
                    yield Import(module, name, in_function)
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from visit(child, in_function or inside)

    yield from visit(parsed(module), False)


@functools.cache
def all_imports() -> list[Import]:
    return [found for module in SOURCES for found in imports_of(module)]


def member(module: str) -> str:
    """Names the room or root module that a module belongs to; "" is the front door."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def floor(module: str) -> int | None:
    """Returns the floor of the longest part of a module's name that has one."""
    name = module.removeprefix("envkit.")
    while name:
        for number, members in FLOORS.items():
            if name in members:
                return number
        name = name.rpartition(".")[0]
    return None


def within(module: str, table: dict[str, set[str]]) -> set[str]:
    return set().union(
        *(
            packages
            for part, packages in table.items()
            if module == part or module.startswith(f"{part}.")
        )
    )


def test_every_module_belongs_to_a_layer():
    homeless = [name for name in SOURCES if name != "envkit" and floor(name) is None]
    assert [] == homeless


def test_imports_never_point_up():
    upward = [
        found
        for found in all_imports()
        if found.imported.startswith("envkit.")
        and member(found.importer)
        and floor(found.imported) > floor(found.importer)
    ]
    assert [] == upward


# The one module above the wall that names what is below: the public names of `envkit`.
FRONT_DOOR = "envkit"
BELOW = sorted(set().union(*(rooms for at, rooms in FLOORS.items() if at >= WALL)))
NAMES_A_ROOM = re.compile(rf"\benvkit[./]({'|'.join(BELOW)})\b")
# An example in a docstring needs an environment, or a wrapper around one.
EXAMPLE = re.compile(
    rf"^\s*(>>>|\.\.\.) .*\benvkit\.({'|'.join(sorted(FLOORS[WALL]))})\b"
)


def is_above_the_wall(module: str) -> bool:
    at = floor(module)
    return module != FRONT_DOOR and at is not None and at < WALL


def test_nothing_above_the_wall_imports_anything_below_it():
    downward = [
        (found.importer, found.imported)
        for module in SOURCES
        if is_above_the_wall(module)
        for found in imports_of(module, for_types=True)
        if found.imported in SOURCES and not is_above_the_wall(found.imported)
    ]
    assert [] == downward


def test_nothing_above_the_wall_names_anything_below_it():
    """Neither in a string nor in a comment: what is below attaches by entry points."""
    naming = [
        f"{module}, line {number}: {line.strip()}"
        for module, path in SOURCES.items()
        if is_above_the_wall(module)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if NAMES_A_ROOM.search(line) and not EXAMPLE.match(line)
    ]
    assert [] == naming


def test_extend_has_at_most_forty_names_from_above_the_wall():
    assert len(extend.__all__) <= 40
    assert [] == [
        home for home in extend._HOMES.values() if not is_above_the_wall(home)
    ]


def test_packages_below_the_wall_use_only_public_names_and_extend():
    crossing = Sources(ROOT.parent).crossing()
    assert [] == [name for name in crossing if not name.startswith("extend:")]


@pytest.mark.parametrize(
    ("line", "is_naming"),
    [
        ('_TF = "envkit.tf"', True),
        ('make = load("envkit.envs.cartpole:CartPole")', True),
        ("# As in envkit/remote/session.py.", True),
        ('"""See `envkit.testing`."""', True),
        ('    >>> register("Counted-v1", "envkit.testing:CountingEnv")', False),
        ('"envkit.envseeds"', False),
        ("import envkit", False),
    ],
)
def test_the_check_finds_a_line_that_names_a_lower_package(line, is_naming):
    found = NAMES_A_ROOM.search(line) is not None and EXAMPLE.match(line) is None
    assert is_naming == found


def test_the_package_init_imports_only_its_lazy_loader():
    eager = {found.imported for found in all_imports() if found.importer == "envkit"}
    expected = {
        "envkit._internal.lazy_names",
        "envkit._internal.namesake",
        "envkit._internal.other_registries",
        "__future__",
        "typing",
    }
    assert expected == eager


def test_no_module_imports_from_the_package_init():
    """It leads to every floor, so nobody could see which one was meant."""
    inside = [found for found in all_imports() if found.imported == "envkit"]
    assert [] == inside


def test_packages_of_the_doors_layer_do_not_import_each_other():
    doors = FLOORS[7]
    sideways = [
        found
        for found in all_imports()
        if {member(found.importer), member(found.imported)} <= doors
        and member(found.importer) != member(found.imported)
    ]
    assert [] == sideways


def test_adapters_tf_and_realtime_do_not_know_the_engine():
    knowing = [
        found
        for found in all_imports()
        if member(found.importer) in NO_ENGINE and member(found.imported) == "parallel"
    ]
    assert [] == knowing


# The folders of the engine, from the ground up. A folder imports itself, those below
# it, and what is named here; the pool, which is everything else, imports all.
ENGINE_FLOORS: dict[str, set[str]] = {
    "system": set(),
    "worker": {
        "constructor_texts",
        "messages",
        "row_sets",
        "serialize",
        "slab",
        "slab_layout",
    },
    "backends": {"failures"},
}


def test_engine_folders_import_only_lower_ones():
    allowed: set[str] = set()
    upward = set()
    for folder, parts in ENGINE_FLOORS.items():
        allowed |= {folder, *parts}
        for found in all_imports():
            importer, imported = found.importer.split("."), found.imported.split(".")
            is_inside = importer[1:3] == ["parallel", folder]
            is_engine = imported[1:2] == ["parallel"]
            if is_inside and is_engine and not allowed & set(imported[2:3]):
                upward.add((found.importer, found.imported))
    assert set() == upward


# Modules that turn bytes into objects of any class.
UNPICKLERS = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle"}
UNPICKLERS |= {"envkit.parallel.serialize"}
# It pickles exceptions between a pool and its own workers, and every error is made by
# it. What comes from a network never reaches it as bytes.
COPIES_EXCEPTIONS = "envkit._internal.exceptions"


def test_nothing_that_serves_or_connects_can_unpickle():
    """Neither itself nor by what is loaded with it, on any way."""
    at_once: dict[str, set[str]] = {module: set() for module in SOURCES}
    for found in all_imports():
        if not found.in_function:
            at_once[found.importer].add(found.imported)
    for module in [each for each in SOURCES if member(each) == "remote"]:
        own = {found.imported for found in imports_of(module)}
        assert not own & UNPICKLERS, module
        reached, waiting = set(), [module]
        while waiting:
            for other in at_once.get(waiting.pop(), set()) - reached:
                reached.add(other)
                if other != COPIES_EXCEPTIONS:
                    waiting.append(other)
        assert not reached & UNPICKLERS, module


# Circles of today, each until it is gone.
CIRCLES: list[list[str]] = []


def test_modules_have_no_import_cycles():
    """Imports in functions and for type checkers count: they are read with the rest."""
    graph = {
        module: {found.imported for found in imports_of(module, for_types=True)}
        & (SOURCES.keys() - {module})
        for module in SOURCES
    }
    assert CIRCLES == circles_in(graph)


def circles_in(graph: dict[str, set[str]]) -> list[list[str]]:
    """Lists the groups of modules of which each imports each, by some way."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            new = graph[waiting.pop()] - found
            found |= new
            waiting.extend(new)
        return found

    reach = {module: reached(module) for module in graph}
    groups = {
        tuple(sorted(other for other in reach[module] if module in reach[other]))
        for module in graph
        if module in reach[module]
    }
    return sorted(map(list, groups))


def test_the_check_finds_an_import_cycle():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert [["b", "c"]] == circles_in(graph)


def test_other_packages_are_imported_only_by_their_own_modules():
    strangers = []
    for found in all_imports():
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
HANDS_ON_VARIABLES = {"envkit.parallel.backends.launch"}
# So does this, for processes that end with this one.
HANDS_ON_VARIABLES |= {"envkit.parallel.system.interpreter"}
# It marks what a worker starts by the one thing that every program inherits.
HANDS_ON_VARIABLES |= {
    "envkit.parallel.system.guardian",
    "envkit.parallel.system.lifeline",
}
# It tells SDL what SDL can be told in no other way, and looks for a display.
HANDS_ON_VARIABLES |= {"envkit._shared.quiet_sdl"}
# It tells MuJoCo to draw without a display, in the only way that Gymnasium reads.
HANDS_ON_VARIABLES |= {"envkit.adapters.quiet"}
# It tells the program where to report, and finds that there.
HANDS_ON_VARIABLES |= {"envkit.desktop.supervisor", "envkit.desktop.rewards"}
# It tells pygame in the only way that there is not to greet.
HANDS_ON_VARIABLES |= {"envkit.adapters.pysc2.python3"}
# It has dm_control read its own variable later than when it is imported.
HANDS_ON_VARIABLES |= {"envkit.adapters.mujoco"}
# It finds the folder that the system has for what runs.
HANDS_ON_VARIABLES |= {"envkit._shared.secret_files"}
# It finds the folder that the user has for what can be found again.
HANDS_ON_VARIABLES |= {"envkit.cli.names_cache"}
# It takes the sockets that systemd hands over in the only way that there is.
HANDS_ON_VARIABLES |= {"envkit._shared.activation"}
# They look at Ray's own variables: to refuse what Ray would do because of one, and to
# find the cluster that Ray would find.
HANDS_ON_VARIABLES |= {"envkit.distributed.cluster", "envkit.distributed.ray"}


def test_no_behaviour_is_chosen_by_an_environment_variable():
    readers = [
        module
        for module in SOURCES
        if module not in HANDS_ON_VARIABLES
        and re.search("environ|getenv", SOURCES[module].read_text("utf-8"))
        and any(
            (isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"})
            or (isinstance(node, ast.alias) and node.name in {"environ", "getenv"})
            for node in ast.walk(parsed(module))
        )
    ]
    assert [] == readers


@pytest.mark.parametrize("extra", ["test", "test-all"])
def test_the_test_requirements_contain_one_pygame(extra):
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


# In a process of its own, as it imports TensorFlow: that has crashed a process in which
# other tests had loaded other libraries, EnvPool's among them.
@pytest.mark.own_process
def test_constant_arrays_are_read_only():
    writeable = []
    for name in importable_modules():
        module = importlib.import_module(name)
        classes = [
            value
            for value in vars(module).values()
            if isinstance(value, type) and value.__module__ == name
        ]
        writeable += [
            f"{holder.__name__}.{key}"
            for holder in (module, *classes)
            for key, value in vars(holder).items()
            if isinstance(value, np.ndarray) and value.flags.writeable
        ]

    assert [] == writeable


def test_no_test_module_is_imported():
    """What several of them need is in a module of its own, beside them."""
    pattern = re.compile(r"^\s*(from|import) tests\.(\w+\.)*test_.*", re.M)
    found = {
        str(path.relative_to(TESTS)): match[0].strip()
        for path in sorted(TESTS.rglob("*.py"))
        if (match := pattern.search(path.read_text("utf-8")))
    }
    assert {} == found
