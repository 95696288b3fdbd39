"""Packages that add a scheme, a backend, a protocol and a command by entry points."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import envkit
from envkit import BatchedPyEnvironment, ParallelPyEnvironment, make, registry
from envkit._internal import entry_points
from envkit.cli.main import main
from envkit.errors import ConstructorError, EnvkitError, MissingDependencyError
from tests.foreign_packages import Packages
from tests.waiting import PATIENCE

MAZES = """
from envkit.cli import Command
from envkit.parallel.backends.inline import InlineBackend
from envkit.extend import Scheme
from envkit.remote import ServeProtocol
from envkit.testing import CountingEnv

def load(name, num_envs=None):
    env = CountingEnv(steps_per_episode=3)
    if num_envs is None:
        env.name = name
        return env
    from envkit import BatchedPyEnvironment
    return BatchedPyEnvironment([CountingEnv(3) for _ in range(num_envs)])

def names():
    return ["small", "large"]

ROWS = Scheme("mazes:load", package="numpy", lister=names, batched_by="num_envs")
ALONE = Scheme(load, lister="mazes:names", is_alone=True)
FAR = Scheme(load, address="maze.example:7")
LOCKED = Scheme(load, package="no_such_package")

class MazeBackend(InlineBackend):
    name = "mazes"

class ServerBackend(InlineBackend):
    name = "maze servers"
    address = "maze://host"

    def __init__(self, given):
        super().__init__()
        self.given = given

class Service:
    line, invitation = "serving mazes at nowhere", ""

    def __init__(self, menu, options):
        self.port = options.port

    def ended(self):
        return f"port {self.port} is walled up"

    def close(self, reason):
        print("closed:", reason)

MAZE_PROTOCOL = ServeProtocol("mazes:Service", "serve mazes", has=("hz", "no_token"))
TIDY = Command("mazes_tidy", "tidies a maze up")
"""
TIDY = '''"""Tidies a maze up.

It takes a while.
"""
EXAMPLE = "envkit tidy small"

def add_arguments(parser):
    parser.add_argument("name")

def run(arguments):
    print("tidied", arguments.name)
    return 1
'''
MODULES = {"mazes": MAZES, "mazes_tidy": TIDY}
POINTS = {
    "envkit.schemes": {
        "rows": "mazes:ROWS",
        "mazes": "mazes:ALONE",
        "far": "mazes:FAR",
        "locked": "mazes:LOCKED",
        "plain": "mazes:load",
    },
    "envkit.backends": {"mazes": "mazes:MazeBackend", "maze": "mazes:ServerBackend"},
    "envkit.protocols": {"maze": "mazes:MAZE_PROTOCOL", "bare": "mazes:Service"},
    "envkit.commands": {"tidy": "mazes:TIDY", "sweep": "mazes_tidy"},
}


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    return Packages(tmp_path, monkeypatch)


@pytest.fixture
def mazes(shelf):
    shelf.install(MODULES, POINTS)
    return shelf


@pytest.mark.usefixtures("mazes")
class TestSchemes:
    def test_a_scheme_loads_its_environment(self):
        assert "small" == make("mazes:small").name

    def test_a_plain_loader_is_a_scheme(self):
        assert "small" == make("plain:small").name

    def test_a_scheme_whose_library_makes_batches_gets_the_count(self):
        env = make("rows:small/7", num_envs=3)
        assert (BatchedPyEnvironment, 3) == (type(env), env.batch_size)

    def test_each_environment_that_is_alone_gets_a_worker(self):
        with make("mazes:small", num_envs=2, start_method="fork") as env:
            assert 2 == len({worker.pid for worker in env.workers})

    def test_a_missing_package_is_named_with_its_command(self):
        with pytest.raises(MissingDependencyError) as raised:
            make("locked:small")
        assert (
            "The environment 'locked:small' needs the package no_such_package, which "
            "is not installed. pip install no_such_package"
        ) == str(raised.value)

    @pytest.mark.parametrize(
        ("scheme", "names", "address"),
        [
            ("rows", ["small", "large"], ""),
            ("mazes", ["small", "large"], ""),
            ("far", None, "maze.example:7"),
            ("plain", None, ""),
        ],
    )
    def test_a_scheme_lists_its_names_or_shows_an_address(self, scheme, names, address):
        assert names == registry.names_in(scheme)
        assert address == registry.address_in(scheme)

    def test_the_list_shows_a_plugins_scheme(self, capsys):
        assert 0 == main(["list", "mazes:"])
        assert "mazes:large" in capsys.readouterr().out


@pytest.mark.usefixtures("mazes")
class TestBackends:
    @pytest.mark.parametrize("backend", ["mazes", "maze://host:7"])
    def test_a_backend_runs_a_pool(self, backend):
        with ParallelPyEnvironment(["CartPole"] * 2, backend=backend) as env:
            env.seed(1)
            assert (2, 4) == env.reset().observation.shape
            assert [1, 1] == env.step(np.array([0, 1])).step_type.tolist()

    def test_make_accepts_a_plugins_backend(self):
        with make("CartPole", num_envs=2, backend="mazes") as env:
            assert (2, 4) == env.reset().observation.shape

    @pytest.mark.parametrize("backend", ["maze", "mazes://host"])
    def test_addresses_and_names_are_told_apart(self, backend):
        with pytest.raises(ValueError, match=r"There is no backend named") as raised:
            ParallelPyEnvironment(["CartPole"], backend=backend)
        assert (
            f"There is no backend named {backend!r}; the names are 'inline', 'thread', "
            "'process', 'mazes', 'ray', and 'maze://host' or 'tcp://host:port' is a "
            "server's."
        ) == str(raised.value)


@pytest.mark.usefixtures("mazes")
class TestProtocols:
    @pytest.mark.parametrize("flag", ["maze", "bare"])
    def test_a_plugins_protocol_serves_environments(self, flag, capsys):
        assert 1 == main(["serve", "CartPole", f"--{flag}", "--port=7"])
        printed = capsys.readouterr()
        assert (
            "serving mazes at nowhere\nclosed: the server is stopping\n" == printed.out
        )
        assert "serving mazes at nowhere: port 7 is walled up" in printed.err

    def test_a_plugins_protocol_flag_has_help(self, capsys):
        with pytest.raises(SystemExit):
            main(["serve", "--help"])
        assert "--maze                serve mazes\n" in capsys.readouterr().out

    def test_a_plugins_protocol_has_its_options(self, capsys):
        assert 1 == main(["serve", "CartPole", "--maze", "--hz=5"])
        assert 2 == main(["serve", "CartPole", "--maze", "--token-file=x"])
        assert "--token-file has no effect with --maze" in capsys.readouterr().err


@pytest.mark.usefixtures("mazes")
class TestCommands:
    @pytest.mark.parametrize("name", ["tidy", "sweep"])
    def test_a_plugins_command_runs(self, name, capsys):
        assert 1 == main([name, "small"])
        assert "tidied small\n" == capsys.readouterr().out

    def test_the_help_lists_a_plugins_command(self, capsys):
        assert 0 == main([])
        printed = capsys.readouterr().out
        assert "    tidy      tidies a maze up\n" in printed
        assert "    sweep     Tidies a maze up\n" in printed

    def test_a_plugins_command_has_help_like_any_other(self, capsys):
        with pytest.raises(SystemExit):
            main(["tidy", "--help"])
        printed = capsys.readouterr().out
        assert "Tidies a maze up.\n" in printed
        assert "example:\n  envkit tidy small\n" in printed


BROKEN = {"envkit.commands": {"dig": "gone:DIG"}, "envkit.protocols": {"dig": "gone:x"}}


def test_a_broken_plugin_breaks_only_its_own_entries(shelf, capsys):
    shelf.install({}, BROKEN)
    why = (
        "is offered by maze-envs 1.2, whose entry point 'gone:DIG' cannot be loaded: "
        "ModuleNotFoundError: No module named 'gone'. Reinstall or update maze-envs, "
        "or tell its authors."
    )

    assert 2 == main(["dig"])
    assert f"envkit: The command 'dig' {why}\n" == capsys.readouterr().err
    assert 0 == main([])
    assert "maze-envs 1.2" in capsys.readouterr().out
    assert 2 == main(["serve", "CartPole", "--dig"])
    assert "The protocol 'dig' is offered by maze-envs 1.2" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["serve", "--help"])


LAZY = """
from envkit.cli import Command
DIG = Command("gone_for_good", "digs a maze")
"""
HASTY = "import sys; sys.exit(7)"
PARTIAL = "EXAMPLE = 'envkit dig'"
CLASHING = """
EXAMPLE = "envkit dig"
def add_arguments(parser): parser.add_argument("--debug")
def run(arguments): return 0
"""


@pytest.mark.parametrize(
    ("source", "value", "why"),
    [
        (LAZY, "dig_maze:DIG", "cannot be loaded: ModuleNotFoundError: No module"),
        (HASTY, "dig_maze", "cannot be loaded: SystemExit: 7."),
        (CLASHING, "dig_maze", "has arguments that cannot be added: ArgumentError: "),
        (
            PARTIAL,
            "dig_maze",
            "is neither a Command nor a module with EXAMPLE, add_arg",
        ),
    ],
)
def test_a_broken_command_is_reported_and_the_others_run(
    source, value, why, shelf, capsys
):
    shelf.install({"dig_maze": source}, {"envkit.commands": {"dig": value}})

    assert 2 == main(["dig"])
    told = capsys.readouterr().err
    assert told.startswith("envkit: The command 'dig' is offered by maze-envs 1.2, ")
    assert why in told
    assert "Reinstall or update maze-envs, or tell its authors.\n" in told
    assert 0 == main([])
    printed = capsys.readouterr().out
    assert "dig" in printed
    assert "finds the fastest way" in printed
    assert 0 == main(["check", "CartPole", "--steps=20"])


@pytest.mark.usefixtures("mazes")
@pytest.mark.parametrize(("wrong", "meant"), [("tdiy", "tidy"), ("seep", "sweep")])
def test_a_plugins_command_is_suggested_for_a_typo(wrong, meant, capsys):
    assert 2 == main([wrong, "small"])
    assert f"Did you mean '{meant}'" in capsys.readouterr().err


def test_a_backend_offered_by_two_packages_is_refused(shelf):
    points = {"envkit.backends": {"mazes": "mazes:MazeBackend"}}
    shelf.install(MODULES, points)
    other = {"envkit.backends": {"mazes": "mazes:ServerBackend"}}
    shelf.install({}, other, "amazed", "3")
    with pytest.raises(EnvkitError) as raised:
        ParallelPyEnvironment(["CartPole"], backend="mazes")
    assert (
        "The backend 'mazes' is offered by 2 packages: amazed 3 "
        "(mazes:ServerBackend), maze-envs 1.2 (mazes:MazeBackend). Uninstall all but "
        "one of them."
    ) == str(raised.value)


def test_plugins_cannot_replace_envkits_own_entries(shelf, capsys):
    taken = {
        "envkit.commands": {"list": "gone:x"},
        "envkit.backends": {"ray": "gone:x"},
    }
    shelf.install({}, taken)
    assert 0 == main(["list", "gymnasium:CartPole-v1"])
    assert "float32" in capsys.readouterr().out


def test_a_scheme_named_like_its_module_is_resolved_as_by_make(shelf):
    """The module's attributes come first, with a count as without."""
    source = f"{MAZES}\ndef single():\n    return load('single')\n"
    shelf.install(
        {"rows": source, "mazes": MAZES}, {"envkit.schemes": {"rows": "rows:ROWS"}}
    )
    assert isinstance(make("rows:small", num_envs=2), BatchedPyEnvironment)
    with make("rows:single", num_envs=2, backend="inline") as env:
        assert isinstance(env, ParallelPyEnvironment)


PROGRAM = """
import sys
import envkit
from envkit import registry
env = envkit.make("CartPole", num_envs=2, backend="inline")
print(len(registry.schemes()), envkit.__file__)
"""


def test_envkit_in_an_archive_without_metadata_has_its_own(tmp_path):
    package = Path(envkit.__file__).parent
    archive = tmp_path / "lib.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in package.rglob("*"):
            if path.suffix in {".py", ".txt"}:
                file.write(path, path.relative_to(package.parent))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    count, _, place = done.stdout.strip().partition(" ")
    assert len(registry.schemes()) == int(count)
    assert place.startswith(str(archive))


def test_the_metadata_come_from_the_file_that_envkit_reads():
    tomllib = pytest.importorskip("tomllib", reason="tomllib is there since 3.11")
    project = Path(envkit.__file__).parents[1] / "pyproject.toml"
    settings = tomllib.loads(project.read_text("utf-8"))
    assert "entry-points" in settings["project"]["dynamic"]
    tool = settings["tool"]["setuptools"]
    (file,) = tool["dynamic"]["entry-points"]["file"]
    assert Path(file).name in tool["package-data"]["envkit"]

    text = (project.parent / file).read_text("utf-8")
    parsed = metadata.EntryPoints._from_text_for(text, None)
    assert {point.group: {} for point in parsed} == {
        group: {} for group in entry_points._own()
    }
    for group, points in entry_points._own().items():
        assert points == {each.name: each.value for each in parsed.select(group=group)}


# What the others name loads TensorFlow.
WITHOUT_TENSORFLOW = {*entry_points._own()} - {"envkit.converters", "envkit.tensorflow"}


@pytest.mark.parametrize("group", sorted(WITHOUT_TENSORFLOW))
def test_every_entry_point_of_envkit_resolves(group):
    points = entry_points.own(group)
    found = {name: entry_points.loaded(value) for name, value in points.items()}
    assert [] == [name for name, value in found.items() if value is None]


def test_a_scheme_that_cannot_be_called_is_broken(shelf):
    shelf.install(
        {"mazes": "SCHEME = 7\n"}, {"envkit.schemes": {"maze": "mazes:SCHEME"}}
    )
    with pytest.raises(
        ConstructorError, match=r"is 7 of type int, which cannot be cal"
    ):
        make("maze:small")


EXITING = """
import sys
from envkit.extend import Scheme
from envkit.testing import CountingEnv

def load(name):
    return CountingEnv() if name == "open" else sys.exit(3)

ROOMS = Scheme(load, lister=lambda: ["open", "trap"])
PITS = Scheme(load, lister=lambda: sys.exit(0))
"""


def test_a_plugin_that_exits_takes_one_line_of_the_list(shelf, capsys):
    points = {"rooms": "exiting:ROOMS", "pits": "exiting:PITS"}
    shelf.install({"exiting": EXITING}, {"envkit.schemes": points})

    assert 0 == main(["list", "rooms:", "--specs"])
    printed = capsys.readouterr().out
    assert "rooms:open   int32" in printed
    assert "rooms:trap   it called sys.exit(3)" in printed
    assert 1 == main(["list", "pits:"])
    assert "it called sys.exit(0)" in capsys.readouterr().out
