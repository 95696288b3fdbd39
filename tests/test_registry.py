"""Environments by name, and the recipes that travel in their place."""

from __future__ import annotations

import functools
import importlib
import pickle
import subprocess
import sys
import types

import numpy as np
import pytest

from envkit import (
    BatchedPyEnvironment,
    constructor,
    make,
    register,
    registry,
)
from envkit.errors import ConstructorError, MissingDependencyError
from envkit.registry import registered
from envkit.testing import CountingEnv
from tests.comparing import told
from tests.foreign_packages import Packages
from tools.libraries import schemes

BUILT_IN = "Bandit, CartPole, Catch, GridWorld, TicTacToe"
SCHEMES = ", ".join(schemes())


def written(tmp_path, monkeypatch, name, source):
    """Writes a user's module and makes it importable for one test."""
    (tmp_path / f"{name}.py").write_text(source, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()


@pytest.fixture
def alone(monkeypatch):
    """Lets one test register names that the others do not see."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))


class Cupboard:
    """Holds a constructor as an attribute of an attribute."""

    class Inner:
        make = staticmethod(functools.partial(CountingEnv, steps_per_episode=3))


def make_nothing():
    """Is a constructor that lost its return statement."""


def make_class():
    """Is a constructor that returns the class instead of calling it."""
    return CountingEnv


def make_text():
    return "CountingEnv"


def make_aimed(target=1, name=""):
    """Takes an argument with the name of one of `make`."""
    env = CountingEnv(steps_per_episode=target)
    env.name = name
    return env


ready_made = CountingEnv()
number = 7
HERE = __name__


# Making.


@pytest.mark.parametrize("name", BUILT_IN.split(", "))
def test_every_built_in_name_makes_an_environment(name):
    assert name == type(make(name)).__name__


def test_an_environment_is_made_by_its_import_path():
    env = make("envkit.testing:CountingEnv", steps_per_episode=2)
    assert [0, 1, 2] == types_of(env, 3)


def test_an_import_path_can_name_a_nested_attribute():
    assert [0, 1, 1, 2] == types_of(make(f"{HERE}:Cupboard.Inner.make"), 4)


@pytest.mark.parametrize(
    "target",
    [
        CountingEnv,
        lambda steps_per_episode: CountingEnv(steps_per_episode),
        functools.partial(CountingEnv, dtype=np.int64),
    ],
    ids=["class", "lambda", "partial"],
)
def test_any_callable_that_returns_an_environment_is_accepted(target):
    assert [0, 2] == types_of(make(target, steps_per_episode=1), 2)


def test_duck_typed_environments_are_accepted():
    duck = types.SimpleNamespace(time_step_spec=lambda: None)
    assert make(lambda: duck) is duck


def test_constructors_fill_a_batch():
    recipe = constructor("envkit.testing:CountingEnv", steps_per_episode=2)
    batch = BatchedPyEnvironment([recipe() for _ in range(3)], multithreading=False)
    assert [0, 0, 0] == batch.reset().observation.tolist()


def test_arguments_can_have_any_name():
    env = make(f"{HERE}:make_aimed", target=2, name="left")
    assert ("left", [0, 1, 2]) == (env.name, types_of(env, 3))


def test_nothing_is_imported_before_an_environment_is_made(tmp_path, monkeypatch):
    written(tmp_path, monkeypatch, "envkit_test_lazy", "raise RuntimeError('loaded')")
    recipe = constructor("envkit_test_lazy:make")
    assert (RuntimeError, "loaded") == told(recipe)


def test_an_unknown_argument_raises_the_environments_own_error():
    kind, text = told(make, "envkit.testing:CountingEnv", speed=3)
    assert TypeError is kind
    assert "unexpected keyword argument 'speed'" in text


def test_a_pool_option_without_a_pool_is_explained():
    kind, text = told(make, "CartPole", eager_resets=True)
    assert TypeError is kind
    assert (
        "CartPole.__init__() got an unexpected keyword argument 'eager_resets'. "
        "eager_resets is an option of pools: pass num_envs as well, and there is one."
    ) == text
    with make("CartPole", num_envs=2, backend="inline", eager_resets=True) as env:
        assert env.reset().is_first().all()


# Pools.


def make_painted(backend="paint", blocking=0):
    """Takes arguments with the names of some of the pool."""
    env = CountingEnv()
    env.backend, env.blocking = backend, blocking
    return env


def test_a_number_makes_a_pool_of_recipes():
    with make("CartPole", num_envs=3, batch_size=2, backend="inline") as env:
        assert (6, 4) == env.reset().observation.shape


def test_a_pool_is_given_every_argument_that_it_knows():
    made = []

    def make_counted(steps_per_episode):
        made.append(steps_per_episode)
        return CountingEnv(steps_per_episode)

    with make(
        make_counted,
        num_envs=2,
        start_serially=False,
        blocking=True,
        num_workers=1,
        backend="inline",
        autoreset="same_step",
        steps_per_episode=1,
    ) as env:
        kinds = [env.step([0, 0]).step_type.tolist() for _ in range(3)]

    assert [[0, 0], [2, 2], [2, 2]] == kinds
    assert [1, 1] == made


def test_recipe_arguments_do_not_collide_with_pool_options():
    recipe = constructor(f"{HERE}:make_painted", backend="x11", blocking=7)
    with make(recipe, num_envs=2, backend="inline") as env:
        painted = [(handle.backend, handle.blocking) for handle in env._envs]
    assert [("x11", 7)] * 2 == painted


def test_without_num_envs_no_pool_is_made():
    env = make(f"{HERE}:make_painted", num_envs=None, backend="x11")
    assert (CountingEnv, "x11") == (type(env), env.backend)


@pytest.mark.parametrize(
    ("num_envs", "error", "expected"),
    [
        (0, ValueError, "num_envs must be at least 1, got 0."),
        (-2, ValueError, "num_envs must be at least 1, got -2."),
        (
            2.0,
            TypeError,
            "num_envs must be an integer, or None for a single environment without "
            "workers, got 2.0 of type float.",
        ),
    ],
)
def test_num_envs_must_be_a_number(num_envs, error, expected):
    assert (error, expected) == told(make, "CartPole", num_envs=num_envs)


# Names that are not known.


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("Cartpole", " Did you mean 'CartPole'?"),
        ("tic tac toe", " Did you mean 'TicTacToe'?"),
        ("Cach", " Did you mean 'Catch'?"),
        ("Pong", ""),
        ("", ""),
    ],
)
def test_an_unknown_name_gets_the_nearest_ones_suggested(name, suggestion, monkeypatch):
    monkeypatch.setattr(
        registry, "_registry", dict.fromkeys(BUILT_IN.split(", "), "a:b")
    )
    expected = (
        f"There is no environment named {name!r}.{suggestion} Known names are "
        f"{BUILT_IN}; an environment of your own is 'module:attribute'."
    )
    assert (ValueError, expected) == told(constructor, name)
    assert (ValueError, expected) == told(make, name)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        (
            "gymnasium/CartPole-v1",
            "A library's name follows its scheme and a colon: 'gymnasium:CartPole-v1'.",
        ),
        (
            "dm_control/cartpole/swingup",
            "A library's name follows its scheme and a colon: "
            "'dm_control:cartpole/swingup'.",
        ),
        ("envkit/Catch", "Did you mean 'Catch'?"),
        ("envkit/CartPole-v1", "Did you mean 'CartPole-v1'?"),
    ],
)
def test_a_slash_after_a_scheme_becomes_a_colon(name, advice):
    expected = f"There is no environment named {name!r}. {advice}"
    assert (ValueError, expected) == told(make, name)


@pytest.mark.parametrize("maker", ["env", "parallel_env"])
def test_a_module_in_the_place_of_a_target_names_its_function(maker):
    module = types.ModuleType("tictactoe_v3")
    setattr(module, maker, CountingEnv)
    error, text = told(make, module)
    assert error is TypeError
    assert text.endswith(f" Its function `{maker}` is.")


@pytest.mark.parametrize(
    ("name", "example", "pattern"),
    [
        ("Pendulum-v1", "Pendulum-v1", "Pendulum"),
        ("ALE/Pong-v5", "ALE/Pong-v5", "Pong"),
        ("cartpole/swingup", "Acrobot-v1", "swingup"),
    ],
)
def test_the_name_of_a_library_without_its_scheme_is_shown_with_one(
    name, example, pattern
):
    error, text = told(make, name)
    assert error is ValueError
    assert text.endswith(
        f" A library's name follows its scheme, as in 'gymnasium:{example}'; "
        f"`envkit list {pattern}` searches all libraries."
    )


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (
            target,
            "is not a target: write 'module:attribute' or 'scheme:environment'.",
        )
        for target in (":make", "my_module:", ":")
    ]
    + [
        (
            f"{module}:make",
            f"names the relative module {module!r}; write its whole name, from the "
            "package on.",
        )
        for module in (".envs", "..envs")
    ],
)
def test_an_incomplete_target_is_refused_at_once(target, problem):
    assert (ValueError, f"{target!r} {problem}") == told(constructor, target)


@pytest.mark.parametrize(
    ("target", "module", "missing", "suggestion"),
    [
        ("no_such_thing:make", "no_such_thing", "no_such_thing", ""),
        ("no.such.thing:make", "no.such.thing", "no", ""),
        ("envkit.games:make", "envkit.games", "envkit.games", ""),
        ("os.path.sub:make", "os.path.sub", "os.path.sub", ""),
        (
            "gymnasum:CartPole-v1",
            "gymnasum",
            "gymnasum",
            " Did you mean 'gymnasium' or 'gymnax'?",
        ),
    ],
)
def test_a_module_that_does_not_exist_is_named(target, module, missing, suggestion):
    expected = (
        f"{target!r} names the module {module!r}, and there is no module {missing!r} "
        f"to import.{suggestion} Schemes are {SCHEMES}; otherwise check the spelling, "
        "and that the package is installed."
    )
    with pytest.raises(ConstructorError) as raised:
        make(target)
    assert expected == str(raised.value)
    assert isinstance(raised.value.__cause__, ModuleNotFoundError)


@pytest.mark.parametrize("file", ["game_7.py", "./game_7.py", "/home/me/game_7.py"])
def test_files_and_modules_are_told_apart(file):
    target = f"{file}:Maze"
    expected = (
        f"{target!r} names a file, and a target names a module: 'game_7:Maze', "
        "where the file's folder is the current one or on sys.path."
    )
    assert (ConstructorError, expected) == told(constructor(target))


@pytest.mark.parametrize(
    ("source", "kind", "text"),
    [
        (
            "import package_that_is_not_there",
            ModuleNotFoundError,
            "No module named 'package_that_is_not_there'",
        ),
        ("from os import no_such_name", ImportError, "cannot import name"),
        ("1 / 0", ZeroDivisionError, "division by zero"),
        ("def broken(:", SyntaxError, "invalid syntax"),
    ],
    ids=["missing module", "missing name", "error", "syntax"],
)
def test_an_error_inside_a_module_is_raised_unchanged(
    source, kind, text, tmp_path, monkeypatch
):
    written(tmp_path, monkeypatch, "envkit_test_broken", source)
    actual, message = told(make, "envkit_test_broken:make")
    assert kind is actual
    assert text in message


@pytest.mark.parametrize(
    ("attribute", "owner", "missing", "suggestion"),
    [
        ("make_mase", "envkit_test_games", "make_mase", " Did you mean 'make_maze'?"),
        ("MAKE_MAZE", "envkit_test_games", "MAKE_MAZE", " Did you mean 'make_maze'?"),
        ("xyzzy", "envkit_test_games", "xyzzy", ""),
        ("Arena.bould", "Arena", "bould", " Did you mean 'build'?"),
        ("Arena..build", "Arena", "", ""),
        ("Arena:build", "envkit_test_games", "Arena:build", " Did you mean 'Arena'?"),
    ],
)
def test_an_attribute_that_does_not_exist_is_named(
    attribute, owner, missing, suggestion, tmp_path, monkeypatch
):
    # What cannot be called is not suggested.
    source = "def make_maze(): ...\nclass Arena:\n    def build(): ...\nmake_mass = 7"
    written(tmp_path, monkeypatch, "envkit_test_games", source)
    target = f"envkit_test_games:{attribute}"
    expected = f"{target!r}: {owner} has no attribute {missing!r}.{suggestion}"
    assert (ConstructorError, expected) == told(make, target)


@pytest.mark.parametrize(
    ("attribute", "what"),
    [
        ("ready_made", "a CountingEnv object"),
        ("number", "7 of type int"),
        ("HERE", f"the string {HERE!r:.40}"),
    ],
)
def test_an_attribute_that_cannot_be_called_is_refused(attribute, what):
    target = f"{HERE}:{attribute}"
    expected = f"{target!r} is {what}, which cannot be called to make an environment."
    assert (ConstructorError, expected) == told(make, target)


# Targets and results that are no environments.


@pytest.mark.parametrize(
    ("target", "what"),
    [
        (None, "None"),
        (7, "7 of type int"),
        (b"CartPole", "the string b'CartPole'"),
    ],
    ids=repr,
)
def test_a_target_that_cannot_be_called_is_refused(target, what):
    expected = (
        f"The target is {what}, which is non-callable. It must be a string or "
        "something to call that makes an environment."
    )
    assert (TypeError, expected) == told(constructor, target)
    assert (TypeError, expected) == told(register, "Name", target)


def test_a_list_of_constructors_belongs_to_a_pool():
    expected = (
        "The target is a list of 1 element, which is non-callable. It must be a string "
        "or something to call that makes an environment. ParallelPyEnvironment takes a "
        "list of constructors."
    )
    assert (TypeError, expected) == told(make, [CountingEnv])


def test_passing_an_environment_instead_of_its_constructor_is_explained():
    expected = (
        "The target is a CountingEnv object; a target is something to call that makes "
        "one, or a name.\n\n"
        "  CountingEnv(...)       # the finished dish\n"
        "  CountingEnv            # the recipe\n"
        '  "my_game.envs:make"    # the recipe, by name'
    )
    assert (TypeError, expected) == told(constructor, CountingEnv())
    assert (TypeError, expected) == told(make, CountingEnv())
    assert (TypeError, expected) == told(register, "Name", CountingEnv())


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("make_nothing", "None"),
        ("make_class", "the class CountingEnv"),
        ("make_text", "a str object"),
    ],
)
def test_constructors_must_return_an_environment(name, what):
    expected = (
        f"constructor('{HERE}:{name}') returned {what}, not an environment. A "
        "constructor must return a PyEnvironment, "
        "or an environment of a library that envkit knows."
    )
    assert (ConstructorError, expected) == told(make, f"{HERE}:{name}")
    assert (ConstructorError, expected) == told(make, globals()[name])


# Recipes are values.


@pytest.mark.parametrize(
    ("recipe", "text"),
    [
        (lambda: constructor("CartPole"), "constructor('CartPole')"),
        (
            lambda: constructor("CartPole", batch_size=2, seed=None),
            "constructor('CartPole', batch_size=2, seed=None)",
        ),
        (
            lambda: constructor("my.envs:make", level="a"),
            "constructor('my.envs:make', level='a')",
        ),
        (
            lambda: constructor(CountingEnv, steps_per_episode=3),
            "constructor('envkit.testing.envs:CountingEnv', steps_per_episode=3)",
        ),
        (
            lambda: constructor(functools.partial(CountingEnv, 3, dtype=int)),
            'constructor("functools.partial(envkit.testing.envs:CountingEnv, 3, '
            "dtype=<class 'int'>)\")",
        ),
    ],
    ids=["name", "arguments", "place", "class", "partial"],
)
def test_a_recipe_shows_what_it_makes(recipe, text):
    assert text == repr(recipe())


def test_recipes_of_the_same_environment_are_equal():
    recipe = constructor("CartPole", batch_size=2)
    assert constructor("CartPole", batch_size=2) == recipe
    assert hash(constructor("CartPole", batch_size=2)) == hash(recipe)
    assert constructor(CountingEnv) == constructor(CountingEnv)


@pytest.mark.parametrize(
    "other",
    [
        lambda: constructor("CartPole"),
        lambda: constructor("CartPole", batch_size=3),
        lambda: constructor("Catch", batch_size=2),
        lambda: "CartPole",
    ],
    ids=["fewer arguments", "other arguments", "other name", "text"],
)
def test_recipes_of_different_environments_differ(other):
    assert other() != constructor("CartPole", batch_size=2)


def test_recipes_with_arrays_can_be_compared():
    def recipe(*numbers):
        return constructor("my.envs:make", weights=np.array(numbers))

    assert recipe(1, 2) == recipe(1, 2)
    assert recipe(1, 2) != recipe(1, 3)
    assert recipe(1, 2) != recipe(1, 2, 3)


@pytest.mark.parametrize(
    "recipe",
    [
        lambda: constructor("envkit.testing:CountingEnv", steps_per_episode=2),
        lambda: constructor(CountingEnv, steps_per_episode=2),
        lambda: constructor(functools.partial(CountingEnv, 2)),
    ],
    ids=["place", "class", "partial"],
)
def test_a_recipe_pickles(recipe):
    copy = pickle.loads(pickle.dumps(recipe()))
    assert repr(recipe()) == repr(copy)
    assert [0, 1, 2] == types_of(copy(), 3)


def types_of(env, steps):
    return [int(env.step(0).step_type) for _ in range(steps)]


def test_a_recipe_works_in_processes_that_lack_the_registration(alone, monkeypatch):
    register("Odd", "envkit.testing:CountingEnv")
    data = pickle.dumps(constructor("Odd", steps_per_episode=1))
    monkeypatch.undo()
    assert "Odd" not in registered()
    assert [0, 2] == types_of(pickle.loads(data)(), 2)


def test_recipes_refuse_new_attributes():
    with pytest.raises(AttributeError):
        constructor("CartPole").colour = "red"


# Names of one's own.


@pytest.mark.parametrize(
    "target",
    ["envkit.testing:CountingEnv", CountingEnv, functools.partial(CountingEnv)],
    ids=["place", "class", "partial"],
)
def test_a_registered_name_makes_its_environment(target, alone):
    register("Mine", target)
    assert isinstance(make("Mine", steps_per_episode=2), CountingEnv)
    assert "constructor('Mine', steps_per_episode=2)" == repr(
        constructor("Mine", steps_per_episode=2)
    )


def test_registered_names_are_listed_in_order_and_suggested(alone):
    register("Labyrinth", CountingEnv)
    names = registered()
    assert sorted(names) == names
    built_in = {f"{name}-v1" for name in BUILT_IN.split(", ")}
    assert {"Labyrinth", *built_in} <= set(names)
    assert "Did you mean 'Labyrinth'?" in told(make, "Labyrint")[1]


def test_registering_the_same_constructor_twice_is_allowed(alone):
    register("Mine", "envkit.testing:CountingEnv")
    register("Mine", "envkit.testing:CountingEnv")
    register("CartPole", "envkit.envs.cartpole:CartPole")
    assert isinstance(make("Mine"), CountingEnv)


@pytest.mark.parametrize(
    ("name", "target", "expected"),
    [
        *(
            (
                name,
                "my.envs:make",
                f"{name!r} is not a name: a string without a colon is.",
            )
            for name in ("", "my:env", 3, None, b"Mine")
        ),
        *(
            (
                "Mine",
                target,
                f"{target!r} is not a target to register: write 'module:attribute'.",
            )
            for target in ("make", "", "my.envs:", ":make", ":")
        ),
        (
            "CartPole",
            "my.envs:CartPole",
            "The name 'CartPole' is taken by 'envkit.envs.cartpole:CartPole'; choose "
            "another.",
        ),
    ],
)
def test_invalid_registrations_are_refused(name, target, expected, alone):
    before = dict(registry._registry)
    assert (ValueError, expected) == told(register, name, target)
    assert before == registry._registry


def mazes() -> CountingEnv:
    return CountingEnv()


@pytest.mark.parametrize(
    ("args", "kwargs", "call", "rest"),
    [
        (
            (),
            {"id": "my/Maze-v0", "entry_point": "m:Maze"},
            "'my/Maze-v0', 'm:Maze'",
            "",
        ),
        (("Maze-v0",), {"entry_point": mazes}, "'Maze-v0', mazes", ""),
        (
            ("Maze-v0", "m:Maze"),
            {"max_episode_steps": 9},
            "'Maze-v0', 'm:Maze'",
            " For max_episode_steps, ",
        ),
    ],
)
def test_a_call_of_gymnasiums_register_is_answered_with_ours(args, kwargs, call, rest):
    kind, message = told(register, *args, **kwargs)
    assert TypeError is kind
    assert f" Write register({call}).{rest}" in message


# Schemes.


@pytest.mark.parametrize(
    ("target", "package", "libraries"),
    [
        ("bsuite:catch/0", "bsuite", '"bsuite>=0.3.6"'),
        ("dm_control:a/b", "dm_control", '"dm-control>=1.0.16" "mujoco<4"'),
        ("gym:CartPole-v0", "gym", '"gym>=0.22"'),
        ("gymnasium:CartPole-v1", "gymnasium", '"gymnasium>=1.0"'),
    ],
)
def test_a_scheme_whose_package_is_missing_says_how_to_get_it(
    target, package, libraries, monkeypatch
):
    """None in sys.modules is how Python itself notes that a module cannot be had."""
    monkeypatch.setitem(sys.modules, package, None)
    extra = package.replace("_", "-")
    expected = (
        f"The environment {target!r} needs the package {package}, which is not "
        f"installed. pip install {libraries}"
    )
    with pytest.raises(MissingDependencyError) as raised:
        make(target)
    assert expected == str(raised.value)
    assert (package, extra) == (raised.value.package, raised.value.extra)


def test_a_scheme_passes_the_text_after_the_colon_to_its_loader(
    tmp_path, monkeypatch, shelf
):
    written(
        tmp_path,
        monkeypatch,
        "envkit_test_suite",
        "from envkit.testing import CountingEnv\n"
        "def load(name, **kwargs):\n"
        "    env = CountingEnv()\n"
        "    env.loaded = name, kwargs\n"
        "    return env\n",
    )
    shelf.install(
        scheme="suite",
        value="maze_envs:SUITE",
        modules={
            "maze_envs": "from envkit.extend import Scheme\n"
            "SUITE = Scheme('envkit_test_suite:load', package='numpy')\n"
        },
    )
    env = make("suite:arena:v2/hard", level=3)
    assert ("arena:v2/hard", {"level": 3}) == env.loaded


def test_a_target_of_a_scheme_can_be_registered(alone, monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    register("Pole", "gymnasium:CartPole-v1")
    assert MissingDependencyError is told(make, "Pole")[0]


def test_a_recipe_can_be_a_target():
    recipe = constructor("CartPole", batch_size=2)
    assert "constructor('CartPole', batch_size=3)" == repr(
        constructor(recipe, batch_size=3)
    )


def test_a_registered_recipe_takes_arguments(alone):
    register("Mine", constructor("envkit.testing:CountingEnv", steps_per_episode=9))
    assert [0, 2] == types_of(make("Mine", steps_per_episode=1), 2)


LOADING = (
    "from envkit.testing import CountingEnv\n"
    "def load(name, steps_per_episode=3):\n"
    "    env = CountingEnv(steps_per_episode)\n"
    "    env.name = name\n"
    "    return env\n"
    "number = 7\n"
)


class Shelf(Packages):
    """Packages that bring one scheme each."""

    def install(
        self,
        package="maze-envs",
        scheme="maze",
        value="maze_envs:load",
        modules=None,
        version="1.2",
    ):
        """Does what pip does. Without `modules`, the package has one of its name."""
        modules = modules or {package.replace("-", "_"): LOADING}
        points = {"envkit.schemes": {scheme: value}}
        super().install(modules, points, package, version)


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    return Shelf(tmp_path, monkeypatch)


def refused(call, *args, **kwargs):
    """Returns the whole message of the ConstructorError that a call raises."""
    with pytest.raises(ConstructorError) as raised:
        call(*args, **kwargs)
    return str(raised.value)


def test_a_package_brings_a_scheme(shelf):
    shelf.install()
    env = make("maze:Small-v1", steps_per_episode=1)
    assert ("Small-v1", CountingEnv) == (env.name, type(env))
    assert [0, 2] == types_of(env, 2)


@pytest.mark.parametrize("package", ["maze-envs", "maze"])
@pytest.mark.parametrize("name", ["small", "small.north", "a:b", "7", "é/ö"])
def test_the_package_interprets_the_text_after_the_colon(name, package, shelf):
    """A package may have the name of its scheme."""
    shelf.install(package, value=f"{package.replace('-', '_')}:load")
    assert name == make(f"maze:{name}").name


def test_a_module_and_its_attribute_come_before_a_scheme(shelf):
    """What a target means must not change with what else is installed."""
    source = LOADING + "def make_env():\n    return load('of the module')\n"
    shelf.install("maze", value="maze:load", modules={"maze": source})
    assert "of the module" == make("maze:make_env").name


def test_plugins_cannot_replace_a_scheme_of_envkit(shelf, monkeypatch):
    shelf.install(scheme="gymnasium")
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ImportError, match="needs the package gymnasium"):
        make("gymnasium:CartPole-v1")


def test_an_id_that_cannot_be_an_attribute_imports_no_module_of_that_name(shelf):
    modules = {"maze": "raise RuntimeError('imported')", "maze_envs": LOADING}
    shelf.install(modules=modules)
    assert "Small-v1" == make("maze:Small-v1").name


def test_a_recipe_of_a_scheme_travels_as_its_string(shelf):
    shelf.install()
    data = pickle.dumps(constructor("maze:Small-v1", steps_per_episode=1))
    assert "Small-v1" == pickle.loads(data)().name
    assert b"maze_envs" not in data


def test_workers_look_schemes_up_themselves(shelf):
    shelf.install()
    with make("maze:Small-v1", num_envs=2, num_workers=1) as env:
        assert "Small-v1" == env._envs[1].name


def test_schemes_are_looked_up_only_when_needed():
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


def test_a_scheme_offered_by_two_packages_is_refused(shelf, tmp_path, monkeypatch):
    shelf.install()
    other = tmp_path / "other"
    other.mkdir()
    elsewhere = Shelf(other, monkeypatch)
    elsewhere.install()

    # A package that is found twice is one.
    assert "Small-v1" == make("maze:Small-v1").name

    elsewhere.install("amazed", value="amazed:load", version="3")
    assert (
        "The scheme 'maze' is offered by 2 packages: amazed 3 (amazed:load), maze-envs "
        "1.2 (maze_envs:load). Uninstall all but one of them."
    ) == refused(make, "maze:Small-v1")


@pytest.mark.parametrize(
    ("value", "source", "why", "cause"),
    [
        (
            "maze_envs.gone:load",
            LOADING,
            "cannot be loaded: ModuleNotFoundError: No module named 'maze_envs.gone'; "
            "'maze_envs' is not a package",
            ModuleNotFoundError,
        ),
        (
            "maze_envs:lode",
            LOADING,
            "cannot be loaded: AttributeError: module 'maze_envs' has no attribute "
            "'lode'",
            AttributeError,
        ),
        (
            "maze_envs:load",
            "import walls_that_are_not_there",
            "cannot be loaded: ModuleNotFoundError: No module named "
            "'walls_that_are_not_there'",
            ModuleNotFoundError,
        ),
        (
            "maze_envs:load",
            "1 / 0",
            "cannot be loaded: ZeroDivisionError: division by zero",
            ZeroDivisionError,
        ),
        (
            "maze_envs:number",
            LOADING,
            "is 7 of type int, which cannot be called to make an environment",
            type(None),
        ),
        (
            "maze_envs",
            LOADING,
            "is a module object, which cannot be called to make an environment",
            type(None),
        ),
    ],
    ids=["module", "attribute", "what it needs", "error", "number", "whole module"],
)
def test_a_broken_entry_point_names_its_package(value, source, why, cause, shelf):
    shelf.install(value=value, modules={"maze_envs": source})
    expected = (
        f"The scheme 'maze' is offered by maze-envs 1.2, whose entry point '{value}' "
        f"{why}. Reinstall or update maze-envs, or tell its authors."
    )
    for call in (lambda: make("maze:Small-v1"), lambda: registry.names_in("maze")):
        with pytest.raises(ConstructorError) as raised:
            call()
        assert expected == str(raised.value)
        assert isinstance(raised.value.__cause__, cause)


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        ("raise LookupError(f'no maze {name}')", LookupError, "no maze Small-v1"),
        (
            "pass",
            ConstructorError,
            "constructor('maze:Small-v1') returned None, not an environment. A "
            "constructor must return a PyEnvironment, "
            "or an environment of a library that envkit knows.",
        ),
    ],
    ids=["raises", "returns None"],
)
def test_a_failing_loader_is_reported(body, kind, expected, shelf):
    shelf.install(modules={"maze_envs": f"def load(name):\n    {body}\n"})
    assert (kind, expected) == told(make, "maze:Small-v1")


def test_installed_schemes_are_listed_and_suggested(shelf):
    shelf.install()
    schemes = SCHEMES.replace("minari", "maze, minari")
    assert (
        "'maize:Small-v1' names the module 'maize', and there is no module 'maize' to "
        f"import. Did you mean 'maze'? Schemes are {schemes}; otherwise check the "
        "spelling, and that the package is installed."
    ) == refused(make, "maize:Small-v1")


def test_a_package_can_list_its_names(shelf, monkeypatch):
    shelf.install()
    assert "maze" in registry.schemes()
    assert registry.names_in("maze") is None

    info = shelf.folder / "maze_envs-1.2.dist-info" / "entry_points.txt"
    info.write_text(f"{info.read_text('utf-8')}\n[envkit.names]\nmaze = maze_envs:tell")
    module = shelf.folder / "maze_envs.py"
    module.write_text(f"{LOADING}def tell():\n    return 'ab'\n", "utf-8")
    monkeypatch.delitem(sys.modules, "maze_envs", raising=False)
    importlib.invalidate_caches()
    assert ["a", "b"] == registry.names_in("maze")


def test_an_uninstalled_scheme_is_not_listed(monkeypatch):
    monkeypatch.setattr(registry, "schemes", lambda: ["ale", "gymnasium"])
    assert (
        "There is no scheme 'gymnasum'. Did you mean 'gymnasium'? Schemes are ale, "
        "gymnasium."
    ) == refused(registry.names_in, "gymnasum")


NAMES = (
    "import sys\n"
    "sys.path.extend(sys.argv[1:])\n"
    "from envkit.registry import main_script_names, module_named\n"
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
def test_the_main_script_is_known_by_its_import_names(tmp_path, command, names):
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


def test_a_module_earlier_on_the_path_wins_over_the_main_script(tmp_path):
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
