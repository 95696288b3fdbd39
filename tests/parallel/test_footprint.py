"""What a pool costs: modules, memory, messages and round trips."""

from __future__ import annotations

import functools
import json
import os
import pickle
import subprocess
import sys
import tracemalloc
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from envkit.parallel import AsyncParallelPyEnvironment, ParallelPyEnvironment
from envkit.parallel.backends import thread
from envkit.parallel.slab_layout import RUNS, STEPS
from envkit.parallel.system.channel import Channel
from envkit.parallel.system.doorbell import Doorbell
from envkit.testing import CountingEnv
from tests import residue

only_linux = pytest.mark.skipif(
    not residue.ON_LINUX, reason="only Linux tells all about a process"
)
STEPS_TAKEN = 100

# The environment lives in a module of its own, so that a worker loads nothing for it
# but NumPy and envkit.
MODULE = """
import sys
import numpy as np
from envkit import PyEnvironment, restart, transition
from envkit.specs import ArraySpec, BoundedArraySpec

class Small(PyEnvironment):
    def __init__(self):
        super().__init__()
        self._blocks = np.zeros(1000, np.int64)
        self._calls = 0
        self._time_step = transition(np.zeros((4, 4), np.float32), reward=1.0)
    def observation_spec(self):
        return ArraySpec((4, 4), np.float32)
    def action_spec(self):
        return BoundedArraySpec((2,), np.int64, 0, 1)
    def modules(self):
        return sorted(sys.modules)
    def blocks(self):
        return self._blocks[:self._calls].tolist()
    def _reset(self):
        return restart(np.zeros((4, 4), np.float32))
    def _step(self, action):
        self._blocks[self._calls] = sys.getallocatedblocks()
        self._calls += 1
        return self._time_step
"""


def small_env(monkeypatch, folder):
    """Names a constructor of small environments, whose module lies in a folder."""
    (folder / "my_small_game.py").write_text(MODULE)
    monkeypatch.syspath_prepend(folder)
    return "my_small_game:Small"


def run_python(program, *arguments):
    """Runs a program that finds what this process finds, and returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "" == done.stderr
    return done.stdout.strip()


@functools.cache
def modules_of_numpy():
    """Returns the modules of a Python that has loaded NumPy."""
    program = "import json, sys, numpy.random; print(json.dumps(list(sys.modules)))"
    return json.loads(run_python(program))


def tops(modules):
    return {name.partition(".")[0] for name in modules}


# Promise 11: workers stay small.

# Nothing of the parent's side, and nothing large or slow to load.
UNNEEDED = {
    "absl",
    "asyncio",
    "cloudpickle",
    "ctypes.util",
    "envkit.adapters",
    "envkit.parallel.backends",
    "envkit.parallel.pool_environment",
    "envkit.parallel.backends.launch",
    "envkit.parallel.parallel_py_environment",
    "envkit.parallel.pool",
    "envkit.parallel.restarts",
    "gym",
    "gymnasium",
    "jax",
    "multiprocessing",
    "ssl",
    "subprocess",
    "tensorflow",
    "torch",
    "tree",
    "wrapt",
}


@only_linux
@pytest.mark.parametrize("start_method", ["spawn", "forkserver"])
def test_a_worker_loads_numpy_envkit_and_the_environments_module_only(
    monkeypatch, tmp_path, start_method
):
    """And it has little memory of its own."""
    small = small_env(monkeypatch, tmp_path)
    with ParallelPyEnvironment(
        [small] * 4, num_workers=2, start_method=start_method
    ) as env:
        env.reset()
        env.step(np.zeros((4, 2), np.int64))
        modules, *_ = env.call("modules")
        private = [private_bytes(worker.pid) / 2**20 for worker in env.workers]
    # What every Python here loads by itself, such as a tool that measures coverage.
    everywhere = tops(modules_of_numpy())

    assert {"pytest", "hypothesis", "numpy"} <= tops(sys.modules)
    assert {"envkit", "my_small_game"} == (
        tops(modules) - everywhere - sys.stdlib_module_names - {"__mp_main__"}
    )
    # A server has loaded what it takes to start workers, and NumPy loads subprocess on
    # Python 3.10.
    unneeded = UNNEEDED - set(modules_of_numpy())
    assert start_method == "forkserver" or set() == unneeded & set(modules)
    assert max(private) < 40, private


GAME = """
import sys
from envkit.envs import CartPole

class TellingCartPole(CartPole):
    def modules(self):
        return sorted(sys.modules)
"""


@only_linux
def test_a_worker_of_a_game_loads_no_other_game_and_no_wrappers(monkeypatch, tmp_path):
    (tmp_path / "my_cart_pole.py").write_text(GAME)
    monkeypatch.syspath_prepend(tmp_path)
    with ParallelPyEnvironment(
        ["my_cart_pole:TellingCartPole"], start_method="spawn"
    ) as env:
        env.reset()
        (modules,) = env.call("modules")

    assert "envkit.envs.cartpole" in modules
    others = ("bandit", "catch", "choice", "gridworld", "tictactoe")
    unneeded = {f"envkit.envs.{name}" for name in others} | {"numpy.typing"}
    assert set() == unneeded & set(modules)
    assert [] == [name for name in modules if name.startswith("envkit.wrappers")]


def private_bytes(pid):
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("Private_")]
    return sum(kilobytes) * 1024


# Never 1 and 5: what importing does.


@pytest.mark.parametrize(
    "statement",
    [
        "import envkit",
        "from envkit import ParallelPyEnvironment",
        "from envkit.parallel import *",
    ],
    ids=["envkit", "the pool", "all of parallel"],
)
def test_importing_starts_nothing_and_loads_nothing_heavy(statement):
    program = f"""
import json, os, sys, threading
import numpy.random
before = [dict(os.environ), threading.active_count(), len(os.listdir("/dev/fd"))]
{statement}
after = [dict(os.environ), threading.active_count(), len(os.listdir("/dev/fd"))]
print(json.dumps([before == after, list(sys.modules)]))
"""
    same, modules = json.loads(run_python(program))
    heavy = {
        "absl",
        "asyncio",
        "cloudpickle",
        "gym",
        "gymnasium",
        "multiprocessing",
        "socket",
        "ssl",
        "subprocess",
        "tensorflow",
        "torch",
        "tree",
        "wrapt",
    }

    assert same
    assert set() == heavy & set(modules) - set(modules_of_numpy())


# Never 7: a step does not pickle, does not allocate, and takes one round trip.


class Counts:
    """Counts calls of functions, which do their work all the same."""

    def __init__(self, monkeypatch):
        self._monkeypatch = monkeypatch
        self.calls = {}

    def of(self, owner, name):
        function = getattr(owner, name)
        key = f"{getattr(owner, '__name__', owner)}.{name}"
        self.calls[key] = 0

        def counted(*args, **kwargs):
            self.calls[key] += 1
            return function(*args, **kwargs)

        self._monkeypatch.setattr(owner, name, counted)


@pytest.mark.parametrize("zero_copy", [False, True])
def test_a_step_neither_pickles_nor_sends_a_message(monkeypatch, tmp_path, zero_copy):
    small = small_env(monkeypatch, tmp_path)
    counts = Counts(monkeypatch)
    actions = np.zeros((4, 2), np.int64)
    with ParallelPyEnvironment(
        [small] * 4, num_workers=2, zero_copy=zero_copy, start_method="fork"
    ) as env:
        env.reset()
        env.step(actions)
        for owner, name in (
            (pickle, "dumps"),
            (pickle, "loads"),
            (cloudpickle, "dumps"),
            (Channel, "send"),
            (Channel, "receive_available"),
            (Doorbell, "ring"),
        ):
            counts.of(owner, name)
        for _ in range(STEPS_TAKEN):
            env.step(actions)
        calls = dict(counts.calls)

    rings = calls.pop("Doorbell.ring")
    assert {0} == set(calls.values()), calls
    assert rings <= 2 * STEPS_TAKEN  # A worker that is awake is not rung for.


def test_a_step_is_one_round_trip_for_each_worker(monkeypatch, tmp_path):
    small = small_env(monkeypatch, tmp_path)
    actions = np.zeros((6, 2), np.int64)
    with ParallelPyEnvironment([small] * 6, num_workers=2, start_method="fork") as env:
        env.reset()
        before = env._pool.slab._meters.copy()
        for _ in range(STEPS_TAKEN):
            env.step(actions)
        made = env._pool.slab._meters - before
        # The last one is counted right after its rows have been marked.
        env.call("modules", env_ids=[0, 3])
        made = env._pool.slab._meters - before

    assert [STEPS_TAKEN] * 2 == made[:, RUNS].tolist()
    assert [3 * STEPS_TAKEN] * 2 == made[:, STEPS].tolist()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_does_not_grow_over_many_steps(monkeypatch, tmp_path, workers):
    small = small_env(monkeypatch, tmp_path)
    actions = np.zeros((4, 2), np.int64)
    with ParallelPyEnvironment([small] * 4, num_workers=workers) as env:
        env.reset()
        for _ in range(3 * STEPS_TAKEN):
            env.step(actions)
        blocks = np.array(env.call("blocks"))[:, STEPS_TAKEN:]

    # A leak takes a block a step, and Python may fill a cache once.
    assert np.ptp(blocks, axis=1).max() < STEPS_TAKEN


# The end.


@only_linux
def test_a_closed_pool_keeps_no_shared_memory():
    def shared():
        return [key for key in residue.Residue.now().things if key[0] == "mapping"]

    before = shared()
    env = ParallelPyEnvironment([CountingEnv], start_method="fork")
    env.reset()
    during = shared()
    env.close()

    assert len(before) < len(during)
    assert before == shared()


def test_threads_keep_no_memory_for_answers_that_nobody_waited_for():
    def play(steps):
        for _ in range(steps):
            env.send(np.zeros(4, np.int32))
            while env.owing.any():
                env.recv(timeout=0.0)

    def used():
        of_threads = tracemalloc.Filter(True, thread.__file__)
        found = tracemalloc.take_snapshot().filter_traces([of_threads])
        return sum(each.size for each in found.statistics("filename"))

    with AsyncParallelPyEnvironment([CountingEnv] * 4, backend="thread") as env:
        env.reset_async()
        env.recv()
        tracemalloc.start()
        try:
            play(100)
            before = used()
            play(1000)
            assert used() - before < 4096
        finally:
            tracemalloc.stop()
