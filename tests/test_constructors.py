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
    constructors,
    make,
    register,
    targets,
)
from envkit.constructors import Constructor, registered
from envkit.errors import ConstructorError, MissingDependencyError
from envkit.testing import CountingEnv

BUILT_IN = "Bandit, CartPole, Catch, GridWorld, TicTacToe"
SCHEMES = (
    "ale, bsuite, dm_control, envpool, gym, gymnasium, gymnax, minigrid, pettingzoo, "
    "ple, pysc2, vizdoom"
)


def told(call, *args, **kwargs):
    """Returns the kind and the whole message of what a call raises."""
    with pytest.raises(Exception) as raised:  # noqa: PT011  # the caller compares it
        call(*args, **kwargs)
    return type(raised.value), str(raised.value)


def written(tmp_path, monkeypatch, name, source):
    """Writes a user's module and makes it importable for one test."""
    (tmp_path / f"{name}.py").write_text(source, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()


def alone(monkeypatch):
    """Lets one test register names that the others do not see."""
    monkeypatch.setattr(constructors, "_registry", dict(constructors._registry))


class Shelf:
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


def test_a_built_in_environment_is_made_by_its_name():
    env = make("CartPole", batch_size=3)

    assert (3, 4) == env.reset().observation.shape


@pytest.mark.parametrize("name", BUILT_IN.split(", "))
def test_every_built_in_name_makes_an_environment(name):
    assert name == type(make(name)).__name__


def test_an_environment_is_made_by_its_place():
    env = make("envkit.testing:CountingEnv", steps_per_episode=2)

    assert [0, 1, 2] == [int(env.step(0).step_type) for _ in range(3)]


def test_a_place_may_be_an_attribute_of_an_attribute():
    env = make(f"{HERE}:Shelf.Inner.make")

    assert [0, 1, 1, 2] == [int(env.step(0).step_type) for _ in range(4)]


@pytest.mark.parametrize(
    "target",
    [
        CountingEnv,
        lambda steps_per_episode: CountingEnv(steps_per_episode),
        functools.partial(CountingEnv, dtype=np.int64),
    ],
    ids=["class", "lambda", "partial"],
)
def test_anything_that_makes_an_environment_will_do(target):
    env = make(target, steps_per_episode=1)

    assert [0, 2] == [int(env.step(0).step_type) for _ in range(2)]


def test_something_that_quacks_like_an_environment_is_one():
    duck = types.SimpleNamespace(time_step_spec=lambda: None)

    assert make(lambda: duck) is duck


def test_a_constructor_makes_a_new_environment_each_time():
    recipe = constructor("envkit.testing:CountingEnv")

    assert recipe() is not recipe()


def test_constructors_fill_a_batch():
    recipe = constructor("envkit.testing:CountingEnv", steps_per_episode=2)
    batch = BatchedPyEnvironment([recipe() for _ in range(3)], multithreading=False)

    assert [0, 0, 0] == batch.reset().observation.tolist()


def test_arguments_may_have_any_name():
    env = make(f"{HERE}:make_aimed", target=2, name="left")

    assert ("left", [0, 1, 2]) == (
        env.name,
        [int(env.step(0).step_type) for _ in range(3)],
    )


def test_nothing_is_imported_before_an_environment_is_made(tmp_path, monkeypatch):
    written(tmp_path, monkeypatch, "envkit_test_lazy", "raise RuntimeError('loaded')")
    recipe = constructor("envkit_test_lazy:make")

    assert (RuntimeError, "loaded") == told(recipe)


def test_an_argument_that_the_environment_does_not_know_is_its_own_error():
    kind, text = told(make, "envkit.testing:CountingEnv", speed=3)

    assert TypeError is kind
    assert "unexpected keyword argument 'speed'" in text


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


def test_a_recipe_keeps_apart_what_the_pool_would_take():
    recipe = constructor(f"{HERE}:make_painted", backend="x11", blocking=7)
    with make(recipe, num_envs=2, backend="inline") as env:
        painted = [(handle.backend, handle.blocking) for handle in env._envs]

    assert [("x11", 7)] * 2 == painted


def test_no_number_makes_no_pool():
    env = make(f"{HERE}:make_painted", num_envs=None, backend="x11")

    assert (CountingEnv, "x11") == (type(env), env.backend)


@pytest.mark.parametrize(
    ("num_envs", "error", "expected"),
    [
        (0, ValueError, "num_envs is 0; a pool has at least one environment."),
        (-2, ValueError, "num_envs is -2; a pool has at least one environment."),
        (
            2.0,
            TypeError,
            "num_envs is 2.0 of type float; it is an integer, or None for a single "
            "environment without workers.",
        ),
    ],
)
def test_a_number_of_environments_is_a_number(num_envs, error, expected):
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
    alone(monkeypatch)
    monkeypatch.setattr(
        constructors, "_registry", dict.fromkeys(BUILT_IN.split(", "), "a:b")
    )
    expected = (
        f"There is no environment named {name!r}.{suggestion} Known names are "
        f"{BUILT_IN}; an environment of your own is 'module:attribute'."
    )

    assert (ValueError, expected) == told(constructor, name)
    assert (ValueError, expected) == told(make, name)


@pytest.mark.parametrize("target", [":make", "my_module:", ":"])
def test_half_a_target_is_refused_at_once(target):
    expected = (
        f"{target!r} is not a target: write 'module:attribute' or 'scheme:environment'."
    )

    assert (ValueError, expected) == told(constructor, target)


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

    assert (ConstructorError, expected) == told(constructor(target))


@pytest.mark.parametrize("file", ["game_7.py", "./game_7.py", "/home/me/game_7.py"])
def test_a_file_is_told_from_a_module(file):
    target = f"{file}:Maze"
    expected = (
        f"{target!r} names a file, and a target names a module: 'game_7:Maze', "
        "where the file's folder is the current one or on sys.path."
    )

    assert (ConstructorError, expected) == told(constructor(target))


@pytest.mark.parametrize("target", [".envs:make", "..envs:make"])
def test_a_relative_module_is_refused_at_once(target):
    module = target.partition(":")[0]
    expected = (
        f"{target!r} names the relative module {module!r}; write its whole name, from "
        "the package on."
    )

    assert (ValueError, expected) == told(constructor, target)


def test_a_missing_module_keeps_the_import_error_as_its_cause():
    with pytest.raises(ConstructorError) as raised:
        make("no_such_thing:make")

    assert isinstance(raised.value.__cause__, ModuleNotFoundError)


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
def test_an_error_inside_a_module_arrives_as_it_is(
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
    source = "def make_maze(): ...\nclass Arena:\n    def build(): ...\n"
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
        ([CountingEnv], "a list of 1 element"),
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


def test_an_environment_in_place_of_a_constructor_is_shown_both():
    expected = (
        "The target is a CountingEnv object; a constructor is something to call that "
        "makes one.\n\n"
        "  constructor(CountingEnv(...))       # the finished dish\n"
        "  constructor(CountingEnv, ...)       # the recipe"
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
def test_what_a_constructor_must_not_return(name, what):
    expected = (
        f"constructor('{HERE}:{name}') returned {what}, not an environment. A "
        "constructor must return a PyEnvironment."
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


def test_recipes_for_the_same_are_equal():
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
def test_recipes_for_something_else_are_not_equal(other):
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
    assert [0, 1, 2] == [int(copy_step) for copy_step in _types(copy(), 3)]


def _types(env, steps):
    return [env.step(0).step_type for _ in range(steps)]


def test_a_pickled_place_holds_no_code_of_the_environment():
    data = pickle.dumps(constructor("my.envs:make", level=3))

    assert constructor("my.envs:make", level=3) == pickle.loads(data)


def test_a_recipe_of_a_registered_name_works_where_the_name_is_not_known(monkeypatch):
    alone(monkeypatch)
    register("Odd", "envkit.testing:CountingEnv")
    data = pickle.dumps(constructor("Odd", steps_per_episode=1))
    monkeypatch.undo()

    assert "Odd" not in registered()
    assert [0, 2] == [int(step) for step in _types(pickle.loads(data)(), 2)]


def test_a_recipe_cannot_be_given_new_attributes():
    with pytest.raises(AttributeError):
        constructor("CartPole").colour = "red"


def test_recipes_are_instances_of_a_class_that_can_be_asked_for():
    assert isinstance(constructor("CartPole"), Constructor)


# Names of one's own.


@pytest.mark.parametrize(
    "target",
    ["envkit.testing:CountingEnv", CountingEnv, functools.partial(CountingEnv)],
    ids=["place", "class", "partial"],
)
def test_a_registered_name_makes_its_environment(target, monkeypatch):
    alone(monkeypatch)
    register("Mine", target)

    assert isinstance(make("Mine", steps_per_episode=2), CountingEnv)
    assert "constructor('Mine', steps_per_episode=2)" == repr(
        constructor("Mine", steps_per_episode=2)
    )


def test_registered_names_are_listed_in_order(monkeypatch):
    alone(monkeypatch)
    register("Mine", CountingEnv)
    names = registered()

    assert sorted(names) == names
    built_in = {f"{name}-v1" for name in BUILT_IN.split(", ")}
    assert {"Mine", *built_in} <= set(names)


def test_a_registered_name_is_suggested(monkeypatch):
    alone(monkeypatch)
    register("Labyrinth", CountingEnv)

    assert "Did you mean 'Labyrinth'?" in told(make, "Labyrint")[1]


def test_registering_the_same_again_is_fine(monkeypatch):
    alone(monkeypatch)
    register("Mine", "envkit.testing:CountingEnv")
    register("Mine", "envkit.testing:CountingEnv")
    register("CartPole", "envkit.envs.cartpole:CartPole")

    assert isinstance(make("Mine"), CountingEnv)


def test_a_name_is_not_taken_from_another(monkeypatch):
    alone(monkeypatch)
    expected = (
        "The name 'CartPole' is taken by 'envkit.envs.cartpole:CartPole'; choose "
        "another."
    )

    assert (ValueError, expected) == told(register, "CartPole", "my.envs:CartPole")
    assert "CartPole" == type(make("CartPole")).__name__


@pytest.mark.parametrize("name", ["", "my:env", 3, None, b"Mine"], ids=repr)
def test_a_name_is_a_string_without_a_colon(name):
    expected = f"{name!r} is not a name: a string without a colon is."

    assert (ValueError, expected) == told(register, name, "my.envs:make")


@pytest.mark.parametrize("target", ["make", "", "my.envs:", ":make", ":"], ids=repr)
def test_only_whole_targets_are_registered(target, monkeypatch):
    alone(monkeypatch)
    expected = f"{target!r} is not a target to register: write 'module:attribute'."

    assert (ValueError, expected) == told(register, "Mine", target)
    assert "Mine" not in registered()


# Schemes.


@pytest.mark.parametrize(
    ("target", "package"),
    [
        ("bsuite:catch/0", "bsuite"),
        ("dm_control:a/b", "dm_control"),
        ("gym:CartPole-v0", "gym"),
        ("gymnasium:CartPole-v1", "gymnasium"),
    ],
)
def test_a_scheme_whose_package_is_missing_says_how_to_get_it(
    target, package, monkeypatch
):
    """None in sys.modules is how Python itself notes that a module cannot be had."""
    monkeypatch.setitem(sys.modules, package, None)
    expected = (
        f"The environment {target!r} needs the package {package}, which is not "
        f'installed. pip install "envkit[{package}]"'
    )
    with pytest.raises(MissingDependencyError) as raised:
        make(target)

    assert expected == str(raised.value)
    assert (package, package) == (raised.value.package, raised.value.extra)


def test_a_process_without_the_package_says_how_to_get_it():
    program = (
        "import sys\n"
        "sys.modules['gymnasium'] = None\n"
        "import envkit\n"
        "try:\n"
        "    envkit.make('gymnasium:CartPole-v1')\n"
        "except ImportError as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout

    assert (
        "MissingDependencyError The environment 'gymnasium:CartPole-v1' needs the "
        'package gymnasium, which is not installed. pip install "envkit[gymnasium]"\n'
    ) == output


def test_a_scheme_hands_its_loader_what_follows_the_colon(tmp_path, monkeypatch):
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
    scheme = targets._Scheme("envkit_test_suite:load", "numpy", "numpy")
    monkeypatch.setitem(targets._SCHEMES, "suite", scheme)

    assert ("arena:v2/hard", {"level": 3}) == make(
        "suite:arena:v2/hard", level=3
    ).loaded


def test_a_target_of_a_scheme_can_be_registered(monkeypatch):
    alone(monkeypatch)
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    register("Pole", "gymnasium:CartPole-v1")

    assert MissingDependencyError is told(make, "Pole")[0]


def test_a_recipe_can_be_a_target():
    recipe = constructor("CartPole", batch_size=2)

    assert "constructor('CartPole', batch_size=3)" == repr(
        constructor(recipe, batch_size=3)
    )


def test_a_registered_recipe_takes_arguments(monkeypatch):
    alone(monkeypatch)
    register("Mine", constructor("envkit.testing:CountingEnv", steps_per_episode=9))
    env = make("Mine", steps_per_episode=1)

    assert [0, 2] == [int(env.step(0).step_type) for _ in range(2)]


def test_the_suggestion_is_spelled_as_it_is_and_can_be_called():
    expected = (
        "'envkit.envs:CartPol': envkit.envs has no attribute 'CartPol'. Did you mean "
        "'CartPole'?"
    )

    assert (ConstructorError, expected) == told(make, "envkit.envs:CartPol")
