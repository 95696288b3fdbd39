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


def test_the_working_set_adds_at_most_sixty_modules_to_numpy_and_none_is_heavy():
    loaded = modules_after(WORKING_SET)
    added = loaded - modules_after("import numpy")
    assert len(added) <= 60, sorted(added)
    assert set() == HEAVY & loaded
    # Words are part of classes; the rest waits for a mistake or a first call.
    advice = {name for name in added if name.startswith("envkit.newcomers.")}
    assert {"envkit.newcomers.words"} == advice


def test_importing_envkit_loads_no_other_module():
    added = modules_after("import envkit") - modules_after("import typing")
    modules = ("entry_points", "lazy_names", "namesake", "other_registries")
    itself = {"", "._internal", *(f"._internal.{name}" for name in modules)}
    assert {f"envkit{name}" for name in itself} == {
        name for name in added if name.partition(".")[0] == "envkit"
    }
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


def test_the_watcher_of_a_linked_worker_does_not_load_numpy():
    """There is one of it beside every worker."""
    loaded = modules_after(
        "from envkit.cli.main import main; assert main(['worker', 'nowhere']) == 2"
    )
    assert "envkit.distributed.worker_host" in loaded
    assert "numpy" not in loaded


def test_importing_everything_is_light_and_has_no_effect():
    program = """
import atexit, json, logging, os, sys, threading
import numpy
def world():
    return [dict(os.environ), threading.active_count(), atexit._ncallbacks(),
            len(logging.root.handlers), len(os.listdir('/proc/self/fd'))
            if os.path.exists('/proc/self/fd') else 0]
before = world()
import envkit, envkit.testing, envkit.envs, envkit.registry
from envkit import *
print(json.dumps([before, world(), list(sys.modules)]))
"""
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    before, after, loaded = json.loads(output.stdout)

    assert before == after
    assert set() == HEAVY & set(loaded)
    assert "" == output.stderr
