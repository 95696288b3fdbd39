"""Programs of one file, without a guard: their classes and names reach workers.

Each program runs as people start theirs: from a file, through a pipe, with `-c`, `-m`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import envkit

pytestmark = pytest.mark.slow

ROOT = str(Path(envkit.__file__).parent.parent)

# An environment whose every answer holds a class of the program.
CLASSES = """
import enum, functools, os, sys, threading
from typing import NamedTuple
import attr
import numpy as np
import envkit
import envkit.errors
from envkit import ArraySpec, BoundedArraySpec, ParallelPyEnvironment, PyEnvironment
from envkit import RestartPolicy, restart, transition

print("running as", __name__)
METHOD = {method!r}

class Place(NamedTuple):
    x: object
    y: object
@attr.s(auto_attribs=True)
class Seen:
    place: object
class Push(NamedTuple):
    force: object
class Mine(ArraySpec):
    pass
class Colour(enum.Enum):
    RED = 1
class Thing:
    made = 0
    def __init__(self, number):
        self.number = number
class Fallen(Exception):
    depth = 0
    def __init__(self, thing):
        super().__init__("down")
        self.thing = thing

class E(PyEnvironment):
    def __init__(self, level=0):
        super().__init__()
        self._level = level
    def observation_spec(self):
        leaf = Mine((), np.float32)
        return Seen({{"place": Place(leaf, [leaf])}})
    def action_spec(self):
        return Push(BoundedArraySpec((), np.int32, 0, 1))
    def info_spec(self):
        return {{"level": Mine((), np.int64)}}
    def _seen(self):
        level = np.float32(self._level)
        return Seen({{"place": Place(level, [level])}})
    def _reset(self):
        return restart(self._seen())
    def _step(self, action):
        assert type(action) is Push, type(action)
        self._level += 1
        return transition(self._seen(), 1.0)
    def get_info(self):
        return {{"level": np.int64(self._level), "thing": Thing(self._level)}}
    def get_state(self):
        return Thing(self._level)
    def set_state(self, state):
        assert type(state) is Thing, type(state)
        self._level = state.number
        self._current_time_step = restart(self._seen())
    def swap(self, thing):
        assert type(thing) is Thing, type(thing)
        return [Thing(thing.number + 1), Colour.RED, Place]
    def fall(self):
        raise Fallen(Thing(3))
    def die(self):
        os._exit(1)

def make_env(level=7):
    return E(level)
def set_up():
    print("set up")
"""

PLAYED = """
def play(*makers, **options):
    with ParallelPyEnvironment(
        [*makers] * 2, num_workers=1, start_method=METHOD, **options
    ) as env:
        # Before any answer: a fork knows what was numbered before it, and no more.
        for thing, colour, place in env.call("swap", Thing(4)):
            assert (type(thing), thing.number) == (Thing, 5)
            assert colour is Colour.RED and place is Place
        first = env.reset()
        assert type(env.action_spec()) is Push
        assert type(env.observation_spec().place["place"].x) is Mine
        assert type(env.info_spec()["level"]) is Mine
        state = env.get_state()
        second = env.step(Push([0] * env.batch_size))
        for seen in first.observation, second.observation:
            assert type(seen) is Seen and type(seen.place["place"]) is Place
        assert all(type(info["thing"]) is Thing for info in env.get_info())
        env.set_state(state)
        Thing.made = Fallen.depth = 5
        try:
            env.call("fall")
        except Fallen as error:
            assert type(error.thing) is Thing
        # What comes back does not change what is here.
        assert (5, 5) == (Thing.made, Fallen.depth)
        print(second.observation.place["place"].y[0].tolist())
"""


def said(command, script="", *, folder=None, fails=False):
    """Returns what a program prints, or the last lines of its error."""
    environment = {**os.environ, "PYTHONPATH": ROOT, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        [sys.executable, *command],
        input=script,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env=environment,
    )
    assert bool(done.returncode) == fails, done.stderr
    return done.stderr if fails else done.stdout


def written(folder, name, *parts, method="spawn"):
    """Writes a program into a file."""
    classes = CLASSES.format(method=method)
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join([classes, PLAYED, *parts]), "utf-8")
    return path


@pytest.mark.parametrize(
    ("door", "method"),
    [
        ("file", "spawn"),
        ("file", "forkserver"),
        ("file", "fork"),
        ("pipe", "spawn"),
        ("argument", "forkserver"),
    ],
)
def test_classes_of_the_main_script_are_the_same_on_both_sides(tmp_path, door, method):
    path = written(tmp_path, "train.py", "play(E)\n", method=method)
    script = path.read_text("utf-8")
    printed = {
        "file": lambda: said([str(path)]),
        "pipe": lambda: said(["-"], script),
        "argument": lambda: said(["-c", script]),
    }[door]()

    assert "running as __main__\n[1.0, 1.0]\n" == printed


LOCKED = """
lock = threading.Lock()
class Locked(E):
    def _step(self, action):
        with lock:
            return super()._step(action)
{}
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("made", ["Locked", "functools.partial(Locked, level=3)"])
def test_a_class_that_uses_a_lock_of_the_script_is_an_error_with_a_remedy(
    tmp_path, made, method
):
    program = LOCKED.format(f"play({made})")
    path = written(tmp_path, "train.py", program, method=method)
    error = said([str(path)], fails=True)

    assert "envkit.errors.ConstructorError: env_constructors[0] cannot be sent" in error
    assert "  why    TypeError: cannot pickle '_thread.lock' object\n" in error
    assert (
        "  - move Locked into a module of its own, which train.py imports\n"
    ) in error


def test_a_program_without_a_file_gets_the_same_error(tmp_path):
    path = written(tmp_path, "train.py", LOCKED.format("play(Locked)"))
    error = said(["-"], path.read_text("utf-8"), fails=True)

    assert (
        "  - move Locked into a module of its own, which this program imports\n"
    ) in error


def test_a_separate_module_may_use_a_lock(tmp_path):
    script = written(tmp_path, "train.py", LOCKED.format("play(Locked)"))
    classes = script.read_text("utf-8").partition("play(Locked)")[0]
    (tmp_path / "levels.py").write_text(classes, "utf-8")
    path = tmp_path / "train.py"
    path.write_text(
        "from levels import *\nimport levels\nlevels.play(Locked)\n", "utf-8"
    )

    assert said([str(path)]).endswith("\n[1.0, 1.0]\n")


def test_a_forked_worker_has_unpicklable_objects(tmp_path):
    program = LOCKED.format("play(Locked)")
    path = written(tmp_path, "train.py", program, method="fork")

    assert said([str(path)]).endswith("\n[1.0, 1.0]\n")


# Those that are forked know what the program did before, those of a server do not.
@pytest.mark.parametrize("method", ["forkserver", "fork"])
def test_classes_are_the_same_in_a_worker_that_was_replaced(tmp_path, method):
    path = written(
        tmp_path,
        "train.py",
        """
with ParallelPyEnvironment(
    [E], start_method=METHOD, on_worker_failure=RestartPolicy(backoff=0.0)
) as env:
    env.reset()
    try:
        env.call("die")
    except envkit.errors.WorkerCrashed:
        pass
    last, first = env.step(Push([0])), env.step(Push([0]))
    print(type(first.observation) is Seen, env.call("swap", Thing(1))[0][1])
""",
        method=method,
    )

    assert "running as __main__\nTrue Colour.RED\n" == said([str(path)])


def test_classes_that_a_constructor_makes_reach_the_parent(tmp_path):
    path = written(
        tmp_path,
        "train.py",
        """
def make_local():
    class Local(NamedTuple):
        only: object
    class OfLocal(E):
        def observation_spec(self):
            return Local(ArraySpec((), np.float32))
        def _seen(self):
            return Local(np.float32(self._level))
    return OfLocal()
with ParallelPyEnvironment([make_local] * 2, num_workers=2) as env:
    print(env.reset().observation)
""",
    )

    assert "Local(only=array([0., 0.], dtype=float32))\n" in said([str(path)])


def test_unpicklable_specs_raise_an_error_that_says_why(tmp_path):
    path = written(
        tmp_path,
        "train.py",
        """
def make_held():
    class Held(ArraySpec):
        pass
    Held.lock = threading.Lock()
    class OfHeld(E):
        def observation_spec(self):
            return Held((), np.float32)
    return OfHeld()
ParallelPyEnvironment([make_held])
""",
    )
    error = said([str(path)], fails=True)

    assert (
        "envkit.errors.ConstructorError: The specs of the environments cannot be sent "
        "to another process: its element 0 is a Held object."
        "\n\n  why    TypeError: cannot pickle '_thread.lock' object\n"
    ) in error


def test_specs_only_importable_in_a_worker_are_explained(tmp_path):
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "far.py").write_text(
        "from envkit import ArraySpec\nclass Far(ArraySpec):\n    pass\n"
    )
    path = written(
        tmp_path,
        "train.py",
        f"""
def show():
    sys.path.append({str(tmp_path / "hidden")!r})
class OfFar(E):
    def observation_spec(self):
        from far import Far
        return Far((), np.float32)
ParallelPyEnvironment([OfFar], worker_setup=show)
""",
    )
    error = said([str(path)], fails=True)

    assert (
        "envkit.errors.ConstructorError: The specs of an environment, which its worker "
        "has sent, cannot be loaded in this process: ModuleNotFoundError: No module "
        "named 'far'. Their classes must be importable here, too, or be defined in the "
        "main script.\n"
    ) in error


BY_NAME = """
import helper
play("{module}:E")
play(functools.partial(envkit.make, "{module}:E", level=3))
play("{module}:make_env", worker_setup="{module}:set_up")
"""
BY_NAME_SOMEHOW = """
play(functools.partial(envkit.constructor("{module}:E"), level=2))
play(helper.called(envkit.constructor("{module}:E")))
envkit.register("Mine-v1", "{module}:E")
play("Mine")
with envkit.make("{module}:make_env", num_envs=2, level=9, start_method=METHOD) as env:
    print(env.reset().observation.place["place"].x.tolist())
for backend in "thread", "inline":
    with ParallelPyEnvironment(["{module}:E"], backend=backend) as env:
        print(type(env.reset().observation) is Seen)
"""
PLAYED_BY_NAME = """\
running as __main__
[1.0, 1.0]
[4.0, 4.0]
set up
[8.0, 8.0]
"""
PLAYED_SOMEHOW = """\
[3.0, 3.0]
[1.0, 1.0]
[1.0, 1.0]
[9.0, 9.0]
True
True
"""
HELPER = """
import functools
def called(make_env):
    return functools.partial(calls, make_env)
def calls(make_env):
    return make_env()
"""


@pytest.mark.parametrize(
    ("start", "method"),
    [("a file", "forkserver"), ("a file", "fork"), ("a module", "spawn")],
)
def test_constructors_can_be_named_in_the_main_script(tmp_path, method, start):
    """A worker that imported the script would make pools of its own."""
    in_file = start == "a file"
    module = "train" if in_file else "mine.train"
    name = "train.py" if in_file else "mine/train.py"
    somehow = method == "fork"
    program = (BY_NAME + BY_NAME_SOMEHOW * somehow).format(module=module)
    path = written(tmp_path, name, program, method=method)
    (tmp_path / "helper.py").write_text(HELPER, "utf-8")
    command = [str(path)] if in_file else ["-m", module]

    assert PLAYED_BY_NAME + PLAYED_SOMEHOW * somehow == said(command, folder=tmp_path)


def test_a_module_can_make_a_pool_during_its_import(tmp_path):
    written(
        tmp_path,
        "training.py",
        "play(E)\nplay('training:E')\nplay(functools.partial(make_env, 2))\n",
        method="forkserver",
    )

    assert "running as training\n[1.0, 1.0]\n[1.0, 1.0]\n[3.0, 3.0]\n" == said(
        ["-c", "import training"], folder=tmp_path
    )


def test_a_script_that_imports_itself_runs_only_twice(tmp_path):
    program = """
import train
with ParallelPyEnvironment([train.make_env] * 2, start_method=METHOD) as env:
    # The classes are those of the imported one.
    print(type(env.reset().observation) is train.Seen)
"""
    path = written(tmp_path, "train.py", program, method="forkserver")

    assert "running as __main__\nrunning as train\nTrue\nTrue\n" == said(
        [str(path)], folder=tmp_path
    )


@pytest.mark.parametrize(
    ("maker", "method"),
    [('lambda: envkit.make("train:E")', "spawn"), ("importing.make", "forkserver")],
    ids=["a lambda", "a module"],
)
def test_a_worker_that_imports_the_script_does_not_make_pools(tmp_path, maker, method):
    """Neither is seen before it is called, in the worker."""
    (tmp_path / "importing.py").write_text(
        "def make():\n    import train\n    return train.E()\n", "utf-8"
    )
    path = written(
        tmp_path, "train.py", f"import importing\nplay({maker})\n", method=method
    )
    error = said([str(path)], folder=tmp_path, fails=True)

    assert error.endswith(
        "envkit.errors.ConstructorError: A pool of worker processes was made by "
        "train.py while a worker process was importing that module, so every worker "
        "would start workers of its own.\n\n"
        "Any one of these helps:\n"
        '  - put what train.py does when it is run below  if __name__ == "__main__":\n'
        "  - move what makes the environments into a module of its own, which train.py "
        "imports\n"
    )


def test_a_guarded_script_may_be_imported_by_its_workers(tmp_path):
    path = written(
        tmp_path,
        "train.py",
        """
if __name__ == "__main__":
    with ParallelPyEnvironment([lambda: envkit.make("train:E")] * 2) as env:
        print(env.reset().is_first().tolist())
""",
    )

    assert said([str(path)], folder=tmp_path).endswith("[True, True]\n")


def test_a_worker_may_make_a_pool_in_a_constructor(tmp_path):
    path = written(
        tmp_path,
        "train.py",
        """
def make_pool():
    return ParallelPyEnvironment([E] * 2, num_workers=1)
with ParallelPyEnvironment([make_pool], num_workers=1) as env:
    print(env.reset().is_first().tolist())
""",
    )

    assert "running as __main__\n[True, True]\n" == said([str(path)])


def test_names_not_yet_defined_in_the_script_are_an_error(tmp_path):
    path = written(tmp_path, "train.py", 'play("train:Zzz")\nclass Zzz(E): pass\n')
    assert said([str(path)], fails=True).endswith(
        "envkit.errors.ConstructorError: 'train:Zzz': train is the script that is "
        "running, and it has not defined 'Zzz' yet. Define it above.\n"
    )
