"""What a system without room for another file or process does to a pool."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from envkit import ParallelPyEnvironment, RestartPolicy
from envkit.parallel.endings import Ending
from envkit.testing import CountingEnv
from tests import residue
from tests.parallel.fake_backend import Die, FakeBackend

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    not residue.ON_LINUX, reason="only Linux lists what a process has open"
)

PREAMBLE = """
import gc, os, resource, signal, sys, warnings
import numpy as np
from envkit import ParallelPyEnvironment, RestartPolicy
from envkit.errors import WorkerError
from envkit.testing import CountingEnv

# Python warns that a fork of a process with threads may hang.
warnings.simplefilter("ignore", DeprecationWarning)
method = sys.argv[1]
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

def opened():
    gc.collect()
    fds = map(int, os.listdir("/proc/self/fd"))
    return {fd for fd in fds if os.path.lexists(f"/proc/self/fd/{fd}")}

def allow(number):
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))

def pool(**options):
    return ParallelPyEnvironment([CountingEnv] * 2, start_method=method, **options)
"""


def run(program, method):
    """Runs a program and returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(program), method],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_pool_that_cannot_be_started_leaves_nothing(method):
    program = """
        with pool() as env:
            env.reset()
        before = opened()
        for room in range(0, 60, 3):
            allow(max(before) + 1 + room)
            try:
                pool().close()
            except WorkerError as error:
                text = str(error)
                del error
            else:
                break
            finally:
                allow(soft)
            assert text.startswith("The pool could not be started: "), text
            assert text.endswith("or raise the limits (ulimit -n, ulimit -u)."), text
            assert before == opened(), (room, before, opened())
            children = open(f"/proc/self/task/{os.getpid()}/children").read()
            assert not children, (room, children)
        print(room > 8)
    """

    assert "True\n" == run(program, method)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_failed_restart_is_reported_or_retried(method):
    program = """
        policy = RestartPolicy(max_restarts=2, backoff=0.0)
        with pool(num_workers=2, on_worker_failure=policy) as env:
            env.reset()
            env.step([0, 0])
            first, second = env.statistics().workers
            os.kill(first.pid, signal.SIGKILL)
            held = [os.dup(0) for _ in range(100)]
            allow(max(opened()) + 1)
            try:
                for _ in range(100):
                    env.step([0, 0])
            except WorkerError as error:
                print(str(error).partition(". ")[0])
            for fd in held:
                os.close(fd)
            allow(soft)
            print(env.statistics().workers[1].is_alive)
    """

    assert (
        "worker 0 could not be started again: [Errno 24] Too many open files\nTrue\n"
        == run(program, method)
    )


def test_a_fork_that_fails_leaves_no_descriptors():
    """Neither when a pool is started nor when a worker is to be replaced."""
    program = """
        fork = os.fork

        def fails():
            raise BlockingIOError(11, "Resource temporarily unavailable")

        policy = RestartPolicy(max_restarts=5, within=None, backoff=0.0)
        with pool(num_workers=2, on_worker_failure=policy) as env:
            env.reset()
            os.fork = fails
            before = opened()
            for _ in range(3):
                try:
                    pool()
                except WorkerError as error:
                    del error
            print(opened() - before)
            os.kill(env.workers[0].pid, signal.SIGKILL)
            try:
                for _ in range(100):
                    env.step([0, 0])
            except WorkerError as error:
                print(str(error).partition(". ")[0])
            print(opened() - before)
            os.fork = fork
    """
    told = "worker 0 could not be started again: [Errno 11] Resource temporarily"
    assert f"set()\n{told} unavailable\nset()\n" == run(program, "fork")


# A worker that hangs is killed, by which time it is as lost as one of the first.
@pytest.mark.parametrize(
    ("trouble", "method"),
    [
        ("killed", "spawn"),
        ("killed", "forkserver"),
        ("killed", "fork"),
        ("hung", "fork"),
        ("raised", "fork"),
        *(
            pytest.param(trouble, method, marks=pytest.mark.heavy)
            for trouble in ("hung", "raised")
            for method in ("spawn", "forkserver")
        ),
    ],
)
def test_a_loss_is_handled_while_no_file_can_be_opened(method, trouble):
    """Not even a module can be imported then; once there is room, the pool goes on."""
    program = f"""
        signal.alarm(90)
        trouble = {trouble!r}

        class Weak(CountingEnv):
            def _step(self, action):
                if action == 1 and trouble == "raised":
                    raise ValueError("weak")
                if action == 1:
                    os.kill(os.getpid(), signal.SIGSTOP)
                return super()._step(action)

        policy = RestartPolicy(max_restarts=100, within=None, backoff=0.0)
        # In this time what does not hang answers on a busy machine, too.
        options = {{"step_timeout": 5.0}} if trouble == "hung" else {{}}
        with ParallelPyEnvironment(
            [Weak] * 2,
            start_method=method,
            num_workers=2,
            on_worker_failure=policy,
            **options,
        ) as env:
            env.reset()
            env.step([0, 0])
            pid = env.workers[0].pid
            assert "numpy.ma" not in sys.modules
            allow(3)
            if trouble == "killed":
                os.kill(pid, signal.SIGKILL)
            shown = env.step([int(trouble != "killed"), 0]).step_type.tolist()
            allow(soft)
            print(shown, env.repaired.tolist())
            # The second step begins a new episode, so it counts to 1 in the third.
            print([env.step([0, 0]).observation.tolist() for _ in range(2)][-1][0])
    """
    assert "[2, 1] [True, False]\n1\n" == run(program, method)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_an_unreplaced_worker_is_reported_without_opening_a_file(method):
    program = """
        signal.alarm(90)
        with pool(num_workers=2) as env:
            env.reset()
            pid = env.workers[0].pid
            allow(3)
            os.kill(pid, signal.SIGKILL)
            for _ in range(2):
                try:
                    env.step([0, 0])
                except WorkerError as error:
                    print(type(error).__name__)
            allow(soft)
    """
    assert "WorkerCrashed\nWorkerCrashed\n" == run(program, method)


def test_a_loss_interrupted_by_an_error_is_handled_by_the_next_call(monkeypatch):
    backend, sentence = FakeBackend(), Ending.sentence

    def fails(ending):
        monkeypatch.setattr(Ending, "sentence", sentence)
        raise OSError(errno.EMFILE, "Too many open files")

    with ParallelPyEnvironment(
        [CountingEnv] * 2,
        num_workers=2,
        backend=backend,
        on_worker_failure=RestartPolicy(),
    ) as env:
        env.reset()
        backend.plan(Die(0))
        monkeypatch.setattr(Ending, "sentence", property(fails))
        with pytest.raises(OSError, match="Too many open files"):
            env.step([0, 0])
        # Where the first step left off, the row has ended its episode.
        assert [0, 2] == env.step([0, 0]).observation.tolist()
        assert 1 == env.statistics().restarts
