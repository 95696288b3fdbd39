"""Constructors and values on their way to another process, and what stops them."""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import envkit
from envkit import constructor
from envkit.errors import ConstructorError
from envkit.parallel.serialize import (
    dump_constructor,
    dump_value,
    load_constructor,
    load_value,
)
from envkit.testing import CountingEnv

ROOT = Path(envkit.__file__).parent.parent
FILE = Path(__file__).name

# What a worker does with a constructor, for a child that a test starts.
WORKER = """
import sys
from envkit.errors import ConstructorError
from envkit.parallel.serialize import load_constructor
payloads = __import__("pickle").load(sys.stdin.buffer)
try:
    print(*[load_constructor(payload)() for payload in payloads])
except ConstructorError as error:
    print(error)
"""

# What a script does with its constructors, in place of starting a pool.
POOL = f"""
import pickle, subprocess, sys
from envkit.parallel.serialize import dump_constructor, learn_programs
def pool(constructors):
    learn_programs()
    payloads = [dump_constructor(make, at) for at, make in enumerate(constructors)]
    print(subprocess.run(
        [sys.executable, "-c", {WORKER!r}], input=pickle.dumps(payloads),
        capture_output=True, check=True,
    ).stdout.decode(), end="")
"""


LOCK = threading.Lock()


class Maker:
    """Makes environments when called."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __call__(self):
        return "made"


def answers_of_a_worker(*constructors):
    """Returns what a fresh process prints that is sent constructors and calls them."""
    payloads = [dump_constructor(make, 0) for make in constructors]
    return run([sys.executable, "-c", WORKER], pickle.dumps(payloads)).stdout.decode()


def run(command, given=b""):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, input=given, capture_output=True, check=True, env=environment
    )


def said_by(script, tmp_path):
    """Returns what a script prints that is run from a file named train.py."""
    path = tmp_path / "train.py"
    path.write_text(POOL + script, "utf-8")
    return run([sys.executable, str(path)]).stdout.decode().replace(f"{tmp_path}/", "")


def run_as_main(source, tmp_path, monkeypatch):
    """Makes a script the main module of this process, for one test."""
    path = tmp_path / "train.py"
    path.write_text(source, "utf-8")
    main = types.ModuleType("__main__")
    main.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(compile(source, str(path), "exec"), vars(main))
    return main


@functools.cache
def line_of_file(name):
    return name


def line_of(function):
    return function.__code__.co_firstlineno


class TestTravelling:
    def test_importable_objects_are_sent_by_reference(self):
        payload = dump_constructor(CountingEnv, 0)
        assert CountingEnv is load_constructor(payload)
        assert len(payload) < 200

    def test_cached_functions_are_sent_without_their_cache(self, tmp_path):
        script = """
import functools
class Game:
    made = 0
    @functools.lru_cache(maxsize=7)
    def space(self, agent):
        type(self).made += 1
        return agent, self.made
    @functools.cached_property
    def board(self):
        type(self).made += 1
        return self.made
    def __str__(self):
        size = type(self).space.cache_parameters()["maxsize"]
        return f"{self.space(1)} {self.space(1)} {self.board} {self.board} {size}"
@functools.cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
def make(game):
    return game()
here = Game()
here.space(3), here.board
pool([functools.partial(make, Game), functools.partial(fib, 50)])
"""

        assert "(1, 3) (1, 3) 4 4 7 12586269025\n" == said_by(script, tmp_path)

    def test_importable_cached_functions_are_sent_by_reference(self):
        payload = dump_value((lambda: 0, line_of_file, functools.cache(len)))
        _, found, made_again = load_value(payload)
        assert line_of_file is found
        assert len is made_again.__wrapped__

    def test_names_are_sent_as_names(self):
        recipe = constructor("GridWorld", size=5)
        assert recipe == load_constructor(dump_constructor(recipe, 0))

    def test_lambdas_closures_and_local_classes_reach_another_process(self):
        level = 3

        class Local:
            def __str__(self):
                return f"local {level}"

        def closure():
            return f"closure {level}"

        made = answers_of_a_worker(
            lambda: "lambda",
            closure,
            Local,
            functools.partial(lambda a, b: f"partial {a} {b}", 1, b=2),
        )

        assert "lambda closure 3 local 3 partial 1 2\n" == made

    def test_values_of_all_kinds_survive_the_round_trip(self):
        value = {"array": np.arange(3), "text": "__main__", "function": lambda x: x + 1}
        loaded = load_value(dump_value(value))
        assert [0, 1, 2] == loaded["array"].tolist()
        assert "__main__" == loaded["text"]
        assert 2 == loaded["function"](1)

    @given(
        value=st.recursive(
            st.none() | st.integers() | st.text() | st.binary() | st.just("__main__"),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        )
    )
    def test_values_are_equal_after_the_round_trip(self, value):
        assert value == load_value(dump_value(value))

    def test_a_returned_class_is_the_same_unchanged_class(self, tmp_path):
        """A worker that changes the class changes its own."""
        worker = """
import sys
from envkit.parallel.serialize import dump_value, load_value
value = load_value(sys.stdin.buffer.read())
type(value).level = 77
value.seen = value.level, value.method()
sys.stdout.buffer.write(dump_value(value))
"""
        script = f"""
from envkit.parallel.serialize import dump_value, load_value
class Config:
    level = 1
    def method(self):
        return self.level
class Color(__import__("enum").Enum):
    RED = 1
method = Config.method
config = Config()
config.color = Color.RED
config = load_value(subprocess.run(
    [sys.executable, "-c", {worker!r}], input=dump_value(config),
    capture_output=True, check=True,
).stdout)
print(type(config) is Config, config.color is Color.RED, config.seen)
print(Config.level, Config.method is method)
"""

        assert "True True (77, 77)\n1 True\n" == said_by(script, tmp_path)


LOCKED = """import functools
import threading

lock = threading.Lock()
def make(text="made"):
    with lock:
        return text
class Maker:
    def __init__(self):
        lock.acquire()
def give(lock):
    return lock
"""
SEES_NOTHING = (
    "A worker has the program's sys.path, but sees nothing of what the program has "
    "done: no registrations, no modules or attributes made at run time.\n"
)
# What a script cannot send, what is said of it, and what helps.
MOVED = "move {} into a module of its own, which train.py imports"
NAMED = 'name a function in an importable module:  "my_game.envs:make_cartpole"'
WITH_PARTIAL = "use functools.partial over a module-level class"
INSIDE = "make what cannot be sent inside the constructor"
IN_THREADS = 'backend="thread", if the environments release the GIL'
FROM_SCRIPTS = {
    "a function that uses a lock": (
        "make",
        "the function make defined in train.py, line 5",
        "its variable lock is a lock object",
        [MOVED.format("make"), INSIDE, IN_THREADS],
    ),
    "a class that uses a lock": (
        "Maker",
        "the class Maker defined in train.py, line 8",
        "",
        [MOVED.format("Maker"), IN_THREADS],
    ),
    "a partial of such a function": (
        "functools.partial(make, text='partial')",
        "a functools.partial of the function make defined in train.py, line 5",
        "its function, variable lock is a lock object",
        [MOVED.format("make"), INSIDE, IN_THREADS],
    ),
    "a partial with a lock as an argument": (
        "functools.partial(give, lock)",
        "a functools.partial of the function give defined in train.py, line 11",
        "its argument 0 is a lock object",
        [NAMED, INSIDE, IN_THREADS],
    ),
    "a lambda that uses a lock": (
        "lambda: lock",
        "a lambda",
        "its variable lock is a lock object",
        [NAMED, WITH_PARTIAL, INSIDE, IN_THREADS],
    ),
}


class TestScripts:
    @pytest.mark.parametrize(
        ("recipe", "kind", "where", "remedies"), FROM_SCRIPTS.values(), ids=FROM_SCRIPTS
    )
    def test_unpicklable_script_objects_say_where_to_move_them(
        self, message_of, tmp_path, monkeypatch, recipe, kind, where, remedies
    ):
        main = run_as_main(LOCKED, tmp_path, monkeypatch)
        make = eval(recipe, vars(main))
        told = message_of(ConstructorError, lambda: dump_constructor(make, 0))
        first, why, *rest = told.split("\n\n")

        head = f"env_constructors[0] cannot be sent to a worker process: it is {kind}"
        assert first.startswith(head)
        assert ["  why    TypeError: cannot pickle '_thread.lock' object"] + (
            [f"  where  {where}"] if where else []
        ) == why.splitlines()
        assert ["Any one of these helps:", *(f"  - {one}" for one in remedies)] == rest[
            0
        ].splitlines()

    def test_script_objects_can_be_sent_without_a_main_guard(self, tmp_path):
        assert "made made Maker\n" == said_by(
            """
import functools
def make(text="made"):
    return text
class Maker:
    def __str__(self):
        return "Maker"
pool([make, lambda: make("made"), Maker])
""",
            tmp_path,
        )


class TestRefusals:
    def test_a_lambda_with_an_unpicklable_closure_is_explained(self, message_of):
        lock = threading.Lock()
        make = lambda: lock  # noqa: E731

        assert (
            "env_constructors[2] cannot be sent to a worker process: it is a lambda "
            f"defined in {FILE}, line {line_of(make)}.\n\n"
            "  why    TypeError: cannot pickle '_thread.lock' object\n"
            "  where  its variable lock is a lock object\n\n"
            "Any one of these helps:\n"
            '  - name a function in an importable module:  "my_game.envs:make_cartpole"'
            "\n"
            "  - use functools.partial over a module-level class\n"
            "  - make what cannot be sent inside the constructor\n"
            '  - backend="thread", if the environments release the GIL'
        ) == message_of(ConstructorError, lambda: dump_constructor(make, 2))

    @pytest.mark.parametrize(
        "file", ["/tmp/ipykernel_123/456.py", "<ipython-input-3-0123456789ab>"]
    )
    def test_a_notebook_cell_is_named_as_such(self, message_of, file):
        names = {"lock": LOCK}
        exec(compile("make = lambda: lock", file, "exec"), names)
        told = message_of(ConstructorError, lambda: dump_constructor(names["make"], 0))
        assert "it is a lambda defined in a notebook cell, line 1." in told

    def test_a_partial_with_an_unpicklable_argument_is_explained(self, message_of):
        config = {"render": {"lock": threading.Lock()}}
        recipe = functools.partial(CountingEnv, config=config)
        told = message_of(ConstructorError, lambda: dump_constructor(recipe, 0))
        line = told.splitlines()[0].rpartition(" ")[2]

        assert (
            "env_constructors[0] cannot be sent to a worker process: it is a "
            "functools.partial of the class CountingEnv defined in envs.py, line "
            f"{line}\n\n"
            "  why    TypeError: cannot pickle '_thread.lock' object\n"
            "  where  its argument config, key 'render', key 'lock' is a lock object"
            "\n\n"
            "Any one of these helps:\n"
            '  - name a function in an importable module:  "my_game.envs:make_cartpole"'
            "\n"
            "  - make what cannot be sent inside the constructor\n"
            '  - backend="thread", if the environments release the GIL'
        ) == told

    def test_the_error_knows_the_constructor_and_its_cause(self):
        with pytest.raises(ConstructorError) as caught:
            dump_constructor(Maker(lock=threading.Lock()), 5)
        assert (5,) == caught.value.envs
        assert isinstance(caught.value.__cause__, TypeError)
        assert str(caught.value) == str(pickle.loads(pickle.dumps(caught.value)))

    @pytest.mark.parametrize(
        ("recipe", "place"),
        [
            (Maker(lock=threading.Lock()), "its attribute lock is a lock object"),
            (
                Maker(lock=threading.Lock()).__call__,
                "its object, attribute lock is a lock object",
            ),
            (
                functools.partial(CountingEnv, [1, (n for n in [])]),
                "its argument 0, element 1 is a generator object",
            ),
            (
                lambda: LOCK,
                "its variable LOCK is a lock object",
            ),
            (
                lambda lock=LOCK: lock,
                "its default argument is a lock object",
            ),
        ],
    )
    def test_the_unpicklable_part_is_found(self, message_of, recipe, place):
        told = message_of(ConstructorError, lambda: dump_constructor(recipe, 0))
        assert f"  where  {place}" in told.splitlines()

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (threading.Lock(), "it is a lock object"),
            ({"a": [0, threading.Lock()]}, "its key 'a', element 1 is a lock object"),
        ],
    )
    def test_an_unpicklable_value_names_its_part(self, message_of, value, expected):
        assert (
            f"The argument of call() cannot be sent to another process: {expected}.\n\n"
            "  why    TypeError: cannot pickle '_thread.lock' object"
        ) == message_of(TypeError, lambda: dump_value(value, "The argument of call()"))

    def test_a_value_that_contains_itself_is_searched_once(self, message_of):
        value = [threading.Lock()]
        value.insert(0, value)
        assert message_of(TypeError, lambda: dump_value(value)).startswith(
            "The value cannot be sent to another process: its element 1 is a lock"
        )


def made_at_run_time(monkeypatch, name="made_at_run_time"):
    """Puts a function into a module that only this process has."""
    module = types.ModuleType(name)
    exec("def make(): pass", vars(module))
    monkeypatch.setitem(sys.modules, name, module)
    return module.make


class TestLoading:
    def test_a_missing_module_is_named(self, message_of, monkeypatch):
        payload = dump_constructor(made_at_run_time(monkeypatch), 0)
        monkeypatch.delitem(sys.modules, "made_at_run_time")

        assert (
            "made_at_run_time.make could not be loaded in the worker process: there is "
            "no module 'made_at_run_time' to import.\n\n"
            "  why    ModuleNotFoundError: No module named 'made_at_run_time'\n\n"
            f"{SEES_NOTHING}"
            "Any one of these helps:\n"
            "  - install the package, or put its folder on sys.path before making the "
            "environments\n"
            "  - do in worker_setup=... what the program did to make it importable"
        ) == message_of(ConstructorError, lambda: load_constructor(payload))

    def test_a_missing_attribute_is_named(self, message_of, monkeypatch):
        payload = dump_constructor(made_at_run_time(monkeypatch), 0)
        monkeypatch.delattr(sys.modules["made_at_run_time"], "make")

        assert (
            "made_at_run_time.make could not be loaded in the worker process: there is "
            f"no make in made_at_run_time.\n\n{SEES_NOTHING}"
            "Any one of these helps:\n"
            "  - define it at the top level of its module\n"
            "  - define it in worker_setup=... as the program did"
        ) == message_of(ConstructorError, lambda: load_constructor(payload))

    def test_any_error_while_loading_is_reported(
        self, message_of, monkeypatch, tmp_path
    ):
        payload = dump_constructor(made_at_run_time(monkeypatch, "raises_here"), 0)
        monkeypatch.delitem(sys.modules, "raises_here")
        (tmp_path / "raises_here.py").write_text("raise OSError('no\\n  display')")
        monkeypatch.syspath_prepend(tmp_path)

        assert (
            "raises_here.make could not be loaded in the worker process: OSError was "
            "raised.\n\n  why    OSError: no display\n\n"
            f"{SEES_NOTHING}"
            "This helps:\n"
            "  - do in worker_setup=... what has to be done before it is loaded"
        ) == message_of(ConstructorError, lambda: load_constructor(payload))
