"""What importing envkit costs, counted in modules, and that it has no effects."""

from __future__ import annotations

import json
import subprocess
import sys

WORKING_SET = (
    "from envkit import PyEnvironment, TimeStep, ArraySpec, ParallelPyEnvironment"
)
HEAVY = {
    "tensorflow",
    "gymnasium",
    "gym",
    "ray",
    "tree",
    "asyncio",
    "ssl",
    "multiprocessing",
    "absl",
    "cloudpickle",
    "rich",
    "wrapt",
    "torch",
    "jax",
}


def modules_after(statements: str) -> set[str]:
    """Runs statements in a fresh interpreter and returns the names it has loaded."""
    return printed(
        f"{statements}\nimport sys, json; print(json.dumps(list(sys.modules)))"
    )


def printed(program: str) -> set[str]:
    """Runs a program in a fresh interpreter and returns the list that it prints."""
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    return set(json.loads(output.splitlines()[-1]))


def test_the_working_set_loads_nothing_heavy():
    assert set() == HEAVY & modules_after(WORKING_SET)


def test_the_working_set_adds_at_most_sixty_modules_to_numpy():
    added = modules_after(WORKING_SET) - modules_after("import numpy")

    assert len(added) <= 60, sorted(added)


def test_a_bare_import_loads_nothing_but_itself():
    added = modules_after("import envkit") - modules_after("import typing")

    assert {"envkit"} == {name for name in added if name.partition(".")[0] == "envkit"}
    assert "numpy" not in added


def test_making_and_stepping_an_environment_loads_nothing_heavy():
    program = (
        "import envkit, numpy as np\n"
        "env = envkit.make('TicTacToe', batch_size=4)\n"
        "for _ in range(20): env.step(np.arange(4) + 2)\n"
        "from envkit.testing import NestedCountingEnv\n"
        "batch = envkit.BatchedPyEnvironment([NestedCountingEnv()] + "
        "[NestedCountingEnv()], multithreading=False)\n"
        "batch.step([0, 0]); batch.step([0, 0])"
    )

    assert set() == HEAVY & modules_after(program)


def test_everything_that_a_star_import_brings_is_light():
    assert set() == HEAVY & modules_after("from envkit import *")


def test_whoever_names_a_tensorflow_environment_imports_tensorflow():
    assert "tensorflow" in modules_after("from envkit import TFPyEnvironment")


def test_workers_under_a_tensorflow_environment_do_not_load_tensorflow():
    in_worker = printed("""
import json, sys
from envkit import ParallelPyEnvironment, TFPyEnvironment
from envkit.testing import CountingEnv
class Telling(CountingEnv):
    def modules(self):
        return list(sys.modules)
with TFPyEnvironment(ParallelPyEnvironment([Telling] * 2, num_workers=1)) as env:
    env.step([0, 0])
    print(json.dumps(env.call("modules")[0]))
""")

    assert "numpy" in in_worker
    # The class travels by value.
    assert {"cloudpickle"} >= HEAVY & in_worker


def test_importing_envkit_has_no_effect():
    program = """
import atexit, json, logging, os, threading
import numpy
def world():
    return [dict(os.environ), threading.active_count(), atexit._ncallbacks(),
            len(logging.root.handlers), len(os.listdir('/proc/self/fd'))
            if os.path.exists('/proc/self/fd') else 0]
before = world()
import envkit, envkit.testing, envkit.envs, envkit.constructors
from envkit import *
print(json.dumps([before, world()]))
"""
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    before, after = json.loads(output.stdout)

    assert before == after
    assert "" == output.stderr
