"""How long a pool takes from its construction to the first reset, and its memory.

    python benchmarks/startup.py

Each start has a fresh interpreter, which imports TensorFlow first where it is
installed, as a training program does. Start methods are compared with the same method.
envkit spawns by default: few workers import their libraries anew and hold many
environments. Gymnasium forks by default on Linux, a process for each environment, which
can hang in a program with threads. No pair of workers can start faster than two
interpreters that import NumPy. Memory is what a worker shares with no other process.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from environments import Working
from side_by_side import Figures, Report, options

HERE = Path(__file__).resolve()
# Of which pool and which contender starts are compared, and how many times as fast the
# pool is to be.
COMPARED = [
    ("envkit, spawn", "Gymnasium AsyncVectorEnv, spawn", 5.0),
    ("envkit, forkserver", "Gymnasium AsyncVectorEnv, forkserver", 5.0),
    ("envkit, fork", "Gymnasium AsyncVectorEnv, fork", None),
    ("envkit, spawn", "Gymnasium AsyncVectorEnv, fork", None),
    ("envkit, spawn", "TF-Agents ParallelPyEnvironment", 20.0),
]
NEEDED = {"TF-Agents ParallelPyEnvironment": "tf_agents"}
MEBIBYTE = 2**20


def start_envkit(
    num_envs: int, start_method: str, start_serially: bool = True
) -> dict[str, Any]:
    """Starts a pool; says how long it took, and what its workers hold."""
    from envkit import ParallelPyEnvironment

    start = time.perf_counter()
    env = ParallelPyEnvironment(
        [Working] * num_envs,
        start_serially,
        num_workers=min(2, num_envs),
        start_method=start_method,
    )
    env.reset()
    seconds = time.perf_counter() - start
    workers = [worker.pid for worker in env.workers]
    result: dict[str, Any] = {
        "seconds": seconds,
        "private": [private_bytes(pid) for pid in workers],
    }
    # Who is forked has whatever the parent imported.
    if start_method != "fork":
        result["foreign"] = foreign(env.call("modules")[0])
    env.close()
    return result


def start_gymnasium(num_envs: int, context: str) -> dict[str, Any]:
    import gymnasium
    import peers

    start = time.perf_counter()
    env = gymnasium.vector.AsyncVectorEnv(
        [peers.TheirWorking] * num_envs, context=context
    )
    env.reset()
    seconds = time.perf_counter() - start
    private = [private_bytes(process.pid) for process in env.processes]
    env.close()
    return {"seconds": seconds, "private": private}


def start_floor(num_envs: int) -> dict[str, Any]:
    """Starts two interpreters that import NumPy, and waits for their end."""
    start = time.perf_counter()
    # As workers do, they leave out the threads of linear algebra.
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "import numpy"]
    processes = [subprocess.Popen(command, env=env) for _ in range(min(2, num_envs))]
    for process in processes:
        process.wait()
    return {"seconds": time.perf_counter() - start}


def start_tf_agents(num_envs: int) -> dict[str, Any]:
    import peers
    import tf_agents.environments.parallel_py_environment  # noqa: F401

    start = time.perf_counter()
    contender = peers.tf_agents(
        [peers.TheirWorking] * num_envs,
        [np.zeros(num_envs, np.int64)],
        start_serially=True,
    )
    seconds = time.perf_counter() - start
    contender.close()
    return {"seconds": seconds}


METHODS = ("spawn", "forkserver", "fork")
FLOOR = "floor: two interpreters that import NumPy"
STARTERS: dict[str, Callable[[int], dict[str, Any]]] = {
    "envkit, spawn, start_serially=False": functools.partial(
        start_envkit, start_method="spawn", start_serially=False
    ),
    **{
        f"envkit, {method}": functools.partial(start_envkit, start_method=method)
        for method in METHODS
    },
    **{
        f"Gymnasium AsyncVectorEnv, {method}": functools.partial(
            start_gymnasium, context=method
        )
        for method in METHODS
    },
    "TF-Agents ParallelPyEnvironment": start_tf_agents,
    FLOOR: start_floor,
}


def private_bytes(pid: int) -> int:
    """Returns the memory that this process shares with no other."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(
        int(line.split()[1]) for line in lines if line.startswith("Private_")
    )


def foreign(modules: Sequence[str]) -> list[str]:
    """Returns those that are none of Python's, NumPy's, envkit's or the benchmark's."""
    # What an installation loads into every interpreter is nobody's doing.
    program = "import sys; print(*sys.modules)"
    bare = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    known = {*sys.stdlib_module_names, "numpy", "envkit", Working.__module__}
    # NumPy gives its Cython modules a second name.
    known |= {"_cython", "cython_runtime"}
    return [
        name
        for name in modules
        if name not in bare
        and name.partition(".")[0] not in known
        and not name.startswith("_cython_")
    ]


def in_fresh_interpreter(name: str, num_envs: int, heavy: str | None) -> dict[str, Any]:
    command = [sys.executable, str(HERE), "--start", name, "--num-envs", str(num_envs)]
    command += ["--import", heavy] if heavy else []
    # TensorFlow's notices, and warnings of forking with threads: not the subject.
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
    output = subprocess.run(
        command, env=env, capture_output=True, text=True, check=False
    )
    if output.returncode:
        sys.exit(f"{name} did not start:\n{output.stderr}")
    result: dict[str, Any] = json.loads(output.stdout.splitlines()[-1])
    return result


def is_installed(package: str | None) -> bool:
    return package is None or importlib.util.find_spec(package) is not None


def compare(report: Report, told: argparse.Namespace) -> None:
    heavy = None if told.without_tensorflow else "tensorflow"
    if not is_installed(heavy):
        heavy = None
    report.fact("imported by the parent", heavy or "no TensorFlow")
    seconds: Figures = {name: [] for name in STARTERS}
    memory: Figures = {name: [] for name in STARTERS}
    unexpected: set[str] = set()
    for _ in range(told.rounds):
        for name in STARTERS:
            if not is_installed(NEEDED.get(name)):
                continue
            result = in_fresh_interpreter(name, told.num_envs, heavy)
            seconds[name].append(1e3 * result["seconds"])
            memory[name].extend(held / MEBIBYTE for held in result.get("private", ()))
            unexpected.update(result.get("foreign", ()))
    title = f"{told.num_envs} environments, from construction to the first reset"
    report.table(title, seconds, "ms")
    measured = {name: values for name, values in memory.items() if values}
    report.table("private memory of a worker", measured, "MiB")
    for ours, theirs, bar in COMPARED:
        title = f"{ours} starts as fast as {theirs}"
        report.ratio(title, seconds[theirs], seconds[ours], at_least=bar)
    ours = "envkit, spawn"
    title = f"{ours}: starting takes this much of the floor"
    report.ratio(title, seconds[ours], seconds[FLOOR])
    report.ratio(
        "private memory of a worker, MiB",
        memory[ours],
        [1.0] * len(memory[ours]),
        at_most=40.0,
    )
    report.fact("modules in a worker beyond those it needs", sorted(unexpected))


def main() -> None:
    parser = options(__doc__, rounds=3, seconds=0.0, num_envs=64)
    parser.add_argument("--without-tensorflow", action="store_true")
    parser.add_argument("--start", choices=STARTERS, help=argparse.SUPPRESS)
    parser.add_argument("--import", dest="heavy", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.start:
        with contextlib.redirect_stdout(sys.stderr):
            if told.heavy:
                importlib.import_module(told.heavy)
            result = STARTERS[told.start](told.num_envs)
        print(json.dumps(result))
        return
    report = Report("startup", ["gymnasium", "tensorflow"])
    compare(report, told)
    report.finish(told.json)


if __name__ == "__main__":
    main()
