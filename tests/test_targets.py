"""Schemes that other packages bring."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys

import pytest

from envkit import constructor, make, targets
from envkit.errors import ConstructorError
from envkit.testing import CountingEnv

LOADING = (
    "from envkit.testing import CountingEnv\n"
    "def load(name, steps_per_episode=3):\n"
    "    env = CountingEnv(steps_per_episode)\n"
    "    env.name = name\n"
    "    return env\n"
    "number = 7\n"
)


class Shelf:
    """A folder on the path, where packages are put with their entry points."""

    def __init__(self, folder, monkeypatch):
        folder.mkdir(exist_ok=True)
        monkeypatch.syspath_prepend(folder)
        self._folder = folder
        self._monkeypatch = monkeypatch

    def install(self, package, entry_points, modules=None, version="1.2"):
        """Does what pip does. Without `modules`, the package has one of its name."""
        module = package.replace("-", "_")
        info = self._folder / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n", "utf-8"
        )
        points = [f"{name} = {value}" for name, value in entry_points.items()]
        text = "\n".join(["[envkit.schemes]", *points, ""])
        (info / "entry_points.txt").write_text(text, "utf-8")
        for name, source in (modules or {module: LOADING}).items():
            (self._folder / f"{name}.py").write_text(source, "utf-8")
            self._monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()


def told(call, *args, **kwargs):
    """Returns the whole message of the ConstructorError that a call raises."""
    with pytest.raises(ConstructorError) as raised:
        call(*args, **kwargs)
    return str(raised.value)


def test_a_package_brings_a_scheme(tmp_path, monkeypatch):
    shelf = Shelf(tmp_path, monkeypatch)
    shelf.install("maze-envs", {"maze": "maze_envs:load"})
    env = make("maze:Small-v1", steps_per_episode=1)

    assert ("Small-v1", CountingEnv) == (env.name, type(env))
    assert [0, 2] == [int(env.step(0).step_type) for _ in range(2)]


@pytest.mark.parametrize("name", ["small", "small.north", "a:b", "7", "é/ö"])
def test_what_follows_the_colon_is_the_packages_business(name, tmp_path, monkeypatch):
    shelf = Shelf(tmp_path, monkeypatch)
    shelf.install("maze-envs", {"maze": "maze_envs:load"})

    assert name == make(f"maze:{name}").name


def test_a_scheme_may_have_the_name_of_its_package(tmp_path, monkeypatch):
    shelf = Shelf(tmp_path, monkeypatch)
    shelf.install("maze", {"maze": "maze:load"})

    assert ["small", "Small-v1"] == [
        make(f"maze:{name}").name for name in ("small", "Small-v1")
    ]


def test_a_module_and_its_attribute_come_before_a_scheme(tmp_path, monkeypatch):
    """What a target means must not change with what else is installed."""
    shelf = Shelf(tmp_path, monkeypatch)
    source = LOADING + "def make_env():\n    return load('of the module')\n"
    shelf.install("maze", {"maze": "maze:load"}, {"maze": source})

    assert "of the module" == make("maze:make_env").name


def test_a_scheme_of_envkit_is_not_taken_over(tmp_path, monkeypatch):
    shelf = Shelf(tmp_path, monkeypatch)
    shelf.install("maze-envs", {"gymnasium": "maze_envs:load"})
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ImportError, match="needs the package gymnasium"):
        make("gymnasium:CartPole-v1")


def test_an_id_that_cannot_be_an_attribute_imports_no_module_of_that_name(
    tmp_path, monkeypatch
):
    shelf = Shelf(tmp_path, monkeypatch)
    modules = {"maze": "raise RuntimeError('imported')", "maze_envs": LOADING}
    shelf.install("maze-envs", {"maze": "maze_envs:load"}, modules)

    assert "Small-v1" == make("maze:Small-v1").name


def test_a_recipe_of_a_scheme_travels_as_its_string(tmp_path, monkeypatch):
    shelf = Shelf(tmp_path, monkeypatch)
    shelf.install("maze-envs", {"maze": "maze_envs:load"})
    recipe = constructor("maze:Small-v1", steps_per_episode=1)

    assert "Small-v1" == pickle.loads(pickle.dumps(recipe))().name
    assert b"maze_envs" not in pickle.dumps(recipe)


def test_workers_look_schemes_up_themselves(tmp_path, monkeypatch):
    shelf = Shelf(tmp_path, monkeypatch)
    shelf.install("maze-envs", {"maze": "maze_envs:load"})
    with make("maze:Small-v1", num_envs=2, num_workers=1) as env:
        assert "Small-v1" == env._envs[1].name


def test_nothing_is_looked_up_before_it_has_to_be():
    """Looking into every installed package takes time."""
    program = (
        "import sys, envkit\n"
        "envkit.make('CartPole')\n"
        "envkit.make('envkit.testing:CountingEnv')\n"
        "print('importlib.metadata' in sys.modules)\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout

    assert "False\n" == output


def test_a_scheme_that_two_packages_offer_is_neithers(tmp_path, monkeypatch):
    shelf = Shelf(tmp_path, monkeypatch)
    shelf.install("maze-envs", {"maze": "maze_envs:load"})
    shelf.install("amazed", {"maze": "amazed:load"}, version="3")

    assert (
        "The scheme 'maze' is offered by 2 packages: amazed 3 (amazed:load), maze-envs "
        "1.2 (maze_envs:load). Uninstall all but one of them."
    ) == told(make, "maze:Small-v1")


def test_a_package_that_is_found_twice_is_one(tmp_path, monkeypatch):
    shelf = Shelf(tmp_path, monkeypatch)
    shelf.install("maze-envs", {"maze": "maze_envs:load"})
    other = Shelf(tmp_path / "other", monkeypatch)
    other.install("maze-envs", {"maze": "maze_envs:load"})

    assert "Small-v1" == make("maze:Small-v1").name


@pytest.mark.parametrize(
    ("value", "modules", "why"),
    [
        (
            "maze_envs.gone:load",
            {"maze_envs": LOADING},
            "ModuleNotFoundError: No module named 'maze_envs.gone'; 'maze_envs' is not "
            "a package",
        ),
        (
            "maze_envs:lode",
            {"maze_envs": LOADING},
            "AttributeError: module 'maze_envs' has no attribute 'lode'",
        ),
        (
            "maze_envs:load",
            {"maze_envs": "import walls_that_are_not_there"},
            "ModuleNotFoundError: No module named 'walls_that_are_not_there'",
        ),
        (
            "maze_envs:load",
            {"maze_envs": "1 / 0"},
            "ZeroDivisionError: division by zero",
        ),
    ],
    ids=["module", "attribute", "what it needs", "error"],
)
def test_an_entry_point_that_is_broken_names_its_package(
    value, modules, why, tmp_path, monkeypatch
):
    shelf = Shelf(tmp_path, monkeypatch)
    shelf.install("maze-envs", {"maze": value}, modules)
    with pytest.raises(ConstructorError) as raised:
        make("maze:Small-v1")

    assert (
        "The scheme 'maze' is offered by maze-envs 1.2, whose entry point "
        f"'{value}' cannot be loaded: {why}. Reinstall or update maze-envs, or tell "
        "its authors."
    ) == str(raised.value)
    assert why.startswith(type(raised.value.__cause__).__name__)


@pytest.mark.parametrize(
    ("value", "what"),
    [("maze_envs:number", "7 of type int"), ("maze_envs", "a module object")],
)
def test_an_entry_point_that_cannot_be_called_names_its_package(
    value, what, tmp_path, monkeypatch
):
    shelf = Shelf(tmp_path, monkeypatch)
    shelf.install("maze-envs", {"maze": value})

    assert (
        "The scheme 'maze' is offered by maze-envs 1.2, whose entry point "
        f"'{value}' is {what}, which cannot be called to make an environment. "
        "Reinstall or update maze-envs, or tell its authors."
    ) == told(make, "maze:Small-v1")


def test_a_loader_that_returns_no_environment_is_told_of(tmp_path, monkeypatch):
    shelf = Shelf(tmp_path, monkeypatch)
    source = "def load(name):\n    pass\n"
    shelf.install("maze-envs", {"maze": "maze_envs:load"}, {"maze_envs": source})

    assert (
        "constructor('maze:Small-v1') returned None, not an environment. A constructor "
        "must return a PyEnvironment."
    ) == told(make, "maze:Small-v1")


def test_what_a_loader_raises_arrives_as_it_is(tmp_path, monkeypatch):
    shelf = Shelf(tmp_path, monkeypatch)
    source = "def load(name):\n    raise LookupError(f'no maze {name}')\n"
    shelf.install("maze-envs", {"maze": "maze_envs:load"}, {"maze_envs": source})
    with pytest.raises(LookupError, match=r"^no maze Small-v1$"):
        make("maze:Small-v1")


def test_installed_schemes_are_listed_and_suggested(tmp_path, monkeypatch):
    shelf = Shelf(tmp_path, monkeypatch)
    shelf.install("maze-envs", {"maze": "maze_envs:load"})

    assert (
        "'maize:Small-v1' names the module 'maize', and there is no module 'maize' to "
        "import. Did you mean 'maze'? Schemes are ale, bsuite, dm_control, envpool, "
        "gym, gymnasium, gymnax, maze, minigrid, pettingzoo, ple, pysc2, vizdoom; "
        "otherwise check the spelling, and that the package is installed."
    ) == told(make, "maize:Small-v1")


def test_a_package_may_list_what_may_stand_after_the_colon(tmp_path, monkeypatch):
    shelf = Shelf(tmp_path, monkeypatch)
    shelf.install("maze-envs", {"maze": "maze_envs:load"})

    assert "maze" in targets.schemes()
    assert targets.names_in("maze") is None

    info = tmp_path / "maze_envs-1.2.dist-info" / "entry_points.txt"
    info.write_text(f"{info.read_text('utf-8')}\n[envkit.names]\nmaze = maze_envs:tell")
    (tmp_path / "maze_envs.py").write_text(f"{LOADING}def tell():\n    return 'ab'\n")
    monkeypatch.delitem(sys.modules, "maze_envs", raising=False)
    importlib.invalidate_caches()

    assert ["a", "b"] == targets.names_in("maze")


def test_a_scheme_whose_package_is_broken_is_not_listed(tmp_path, monkeypatch):
    shelf = Shelf(tmp_path, monkeypatch)
    shelf.install("maze-envs", {"maze": "maze_envs:number"})

    assert told(targets.names_in, "maze").startswith(
        "The scheme 'maze' is offered by maze-envs 1.2, whose entry point "
        "'maze_envs:number' is "
    )


def test_a_scheme_that_there_is_not_is_not_listed(monkeypatch):
    monkeypatch.setattr(targets, "schemes", lambda: ["ale", "gymnasium"])

    assert (
        "There is no scheme 'gymnasum'. Did you mean 'gymnasium'? Schemes are ale, "
        "gymnasium."
    ) == told(targets.names_in, "gymnasum")


NAMES = (
    "import sys\n"
    "sys.path.extend(sys.argv[1:])\n"
    "from envkit.targets import main_script_names, module_named\n"
    "print(sorted(main_script_names()), module_named('train') is sys.modules[__name__])"
)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (["train.py"], "['train'] True"),
        (["train.py", "{folder}"], "['mine.train', 'train'] True"),
        (["-m", "train"], "['train'] True"),
        (["-c", NAMES], "[] False"),
    ],
    ids=["a script", "a script in a package", "a module", "no file"],
)
def test_the_main_script_has_the_names_that_an_import_would_find_it_by(
    tmp_path, command, names
):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.py").write_text(NAMES, "utf-8")
    said = subprocess.run(
        [sys.executable, *(part.format(folder=tmp_path) for part in command)],
        capture_output=True,
        text=True,
        cwd=folder,
    )

    assert names == said.stdout.splitlines()[-1], said.stderr


def test_a_module_that_comes_before_the_main_script_is_imported(tmp_path):
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text(NAMES, "utf-8")
    (tmp_path / "second" / "train.py").write_text(
        f"import sys; sys.path.insert(0, {str(tmp_path / 'first')!r})\n{NAMES}", "utf-8"
    )
    said = subprocess.run(
        [sys.executable, tmp_path / "second" / "train.py"],
        capture_output=True,
        text=True,
    ).stdout

    # The one that is imported prints first, of itself.
    assert ["[] True", "[] False"] == said.splitlines()
