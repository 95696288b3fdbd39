"""Prints the way of a regular step and of a killed worker through envkit.

    python tools/ways.py
    python tools/ways.py --list

A **regular step** is one batch step of a pool of processes while nothing special is
going on. The tool counts the calls of Python functions in the calling process, from
`step` to the last one before it returns. A step that sleeps until the answers come
makes a few calls more than one that finds them at the first look; both are printed.

The **way of a killed worker**: a worker is killed between two steps of a pool with
`RestartPolicy(recover="replay")`. The next step replaces it and replays its
environments. The tool counts the files of envkit in which a function runs in the
calling process between the kill and the answer to that step, and of these the files of
`parallel/backends` and `parallel/system`, which start and stop processes and decide
nothing. The files that run in the new worker, from its setup to that answer, are
counted apart; functions that run while a module is imported are left out.
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np

import envkit
from envkit import ParallelPyEnvironment, RestartPolicy
from envkit.testing import CountingEnv

ROOT = Path(envkit.__file__).parent
ENVS, WORKERS = 4, 2
# As many steps as it takes until nothing happens for the first time; and so many more.
WARM_UP, STEPS = 20, 101
BELOW = ("parallel/backends/", "parallel/system/")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="list calls and files")
    told = parser.parse_args()

    fewest, calls = regular_step()
    print(f"a regular step: {len(calls)} calls, {fewest} if it need not sleep")
    if told.list:
        print(*(f"  {call}" for call in calls), sep="\n")

    parent, worker = killed_worker()
    below = [file for file in parent if file.startswith(BELOW)]
    print(f"a killed worker: {len(parent)} files, {len(below)} of them below the pool")
    if told.list:
        print(*(f"  {file}" for file in parent), sep="\n")
    print(f"in its new worker: {len(worker)} files")
    if told.list:
        print(*(f"  {file}" for file in worker), sep="\n")


def regular_step() -> tuple[int, list[str]]:
    """Returns how many calls a step makes, and which one that sleeps once makes."""
    steps: list[list[str]] = []
    actions = np.zeros(ENVS, np.int32)
    with pool_of(functools.partial(CountingEnv, 10_000)) as env:
        env.reset()
        for _ in range(WARM_UP):
            env.step(actions)
        for _ in range(STEPS):
            steps.append([])
            watch(lambda frame: steps[-1].append(name_of(frame)))
            env.step(actions)
            sys.setprofile(None)
    threading.setprofile(None)  # type: ignore[arg-type]  # None ends it
    fewest = min(map(len, steps))
    sleeping = [calls for calls in steps if sum("_poll" in call for call in calls) == 1]
    return fewest, min(sleeping, key=len)


def killed_worker() -> tuple[list[str], list[str]]:
    """Returns the files on the way of a killed worker, here and in the new one."""
    actions = np.zeros(ENVS, np.int32)
    parent: set[str] = set()
    with (
        tempfile.TemporaryDirectory() as folder,
        pool_of(
            functools.partial(CountingEnv, 10_000),
            worker_setup=functools.partial(watch_worker, folder),
            on_worker_failure=RestartPolicy(recover="replay"),
        ) as env,
    ):
        env.seed(0)
        env.reset()
        for _ in range(WARM_UP):
            env.step(actions)
        earlier = set(os.listdir(folder))
        os.kill(env.statistics().workers[0].pid, signal.SIGKILL)
        watch(lambda frame: parent.add(file_of(frame)))
        env.step(actions)
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # None ends it
        assert env.statistics().recovered == ENVS // WORKERS
        (new,) = set(os.listdir(folder)) - earlier
        worker = set(Path(folder, new).read_text("utf-8").splitlines())
    return sorted(parent - {""}), sorted(worker - {""})


def pool_of(maker: Callable[[], CountingEnv], **how: object) -> ParallelPyEnvironment:
    return ParallelPyEnvironment([maker] * ENVS, num_workers=WORKERS, **how)  # type: ignore[arg-type]


def watch(note: Callable[[FrameType], None]) -> None:
    """Calls a function with the frame of each function that is called from now on."""

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and not is_import(frame):
            note(frame)

    threading.setprofile(profile)
    sys.setprofile(profile)


def watch_worker(folder: str) -> None:
    """Lists the files in which this process runs, in a file of the folder."""
    seen: set[str] = set()
    path = Path(folder, str(os.getpid()))

    def note(frame: FrameType) -> None:
        if (file := file_of(frame)) not in seen:
            seen.add(file)
            with path.open("a", encoding="utf-8") as out:
                print(file, file=out)

    watch(note)


def is_import(frame: FrameType | None) -> bool:
    """Returns whether a function is called while a module is imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_back is not None:
            return True
        frame = frame.f_back
    return False


def name_of(frame: FrameType) -> str:
    return f"{file_of(frame) or frame.f_code.co_filename}: {frame.f_code.co_name}"


def file_of(frame: FrameType) -> str:
    """Returns the file of a function, from envkit's folder on; "" if it is another."""
    path = Path(frame.f_code.co_filename)
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""


if __name__ == "__main__":
    main()
