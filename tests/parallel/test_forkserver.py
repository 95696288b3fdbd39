"""A process that has everything loaded forks workers, and looks after their ends."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from envkit import ParallelPyEnvironment, RestartPolicy
from envkit.errors import WorkerError
from envkit.parallel import serialize
from envkit.parallel.backends import forkserver
from envkit.parallel.messages import Packed, PackedJob, WorkerJob
from envkit.parallel.system.doorbell import is_readable
from envkit.testing import CountingEnv
from tests import residue
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
SECONDS = PATIENCE

pytestmark = pytest.mark.skipif(
    not residue.ON_LINUX, reason="the tests ask /proc who is whose child"
)


@contextlib.contextmanager
def launching(worker_env=None):
    """Makes a launcher, and ends it with all that it starts."""
    launcher = forkserver.ForkserverLauncher(worker_env or {})
    try:
        with starting(launcher) as start:
            yield start
    finally:
        launcher.close()


@contextlib.contextmanager
def starting(launcher):
    """Ends the workers that a test starts."""
    workers = []

    def start():
        workers.append(launcher.start())
        return workers[-1]

    start.launcher = launcher
    try:
        yield start
    finally:
        for worker in workers:
            if not worker.has_ended():
                worker.signal_group(signal.SIGKILL)
                see_out(worker)
            worker.close()


@pytest.fixture(scope="module")
def launcher():
    """The launcher of all tests that leave its server as it is."""
    launcher = forkserver.ForkserverLauncher({})
    # Now, or the server would be left behind by the first test.
    with starting(launcher) as start:
        start()
    yield launcher
    launcher.close()


@pytest.fixture
def start(launcher):
    """Starts workers of the common server."""
    with starting(launcher) as start:
        yield start


def see_out(worker):
    """Waits until a worker is known to be gone."""
    deadline = time.monotonic() + SECONDS
    assert is_readable(worker.life_fd, SECONDS)
    while not worker.has_ended():
        assert time.monotonic() < deadline
    return worker.report(0)


def tell(worker, setup):
    """Lets a worker run something."""
    job = WorkerJob(worker=0, first_env=0, constructors=())
    worker.channel.send(PackedJob(job, (), serialize.dump_value(setup, "setup")))


def said_by(worker, setup):
    """Lets a worker run something, and returns what it wrote to standard error."""
    tell(worker, setup)
    assert isinstance(worker.channel.receive(SECONDS), Packed)
    worker.forward_stderr()
    return worker.stderr_tail


def process(pid):
    return residue.Process.read(f"/proc/{pid}")


def server_of(worker):
    return process(worker.pid).parent


def kill(pid):
    """Kills a process and waits until it is gone."""
    life = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    is_gone = is_readable(life, SECONDS)
    os.close(life)
    assert is_gone


def see_gone(pid):
    """Waits until a process has been waited for."""
    deadline = time.monotonic() + SECONDS
    while process(pid) is not None:
        assert time.monotonic() < deadline


# Starting.


def test_a_worker_has_its_own_session_and_process_group(start):
    worker = start()
    said_by(worker, lambda: None)
    parents = server_of(worker)
    assert (worker.pid, worker.pid) == process(worker.pid)[-2:]
    assert (os.getpid(), parents, parents) == process(parents)[-3:]


def test_one_server_forks_all_workers_and_has_one_thread(start):
    parents = {server_of(start()) for _ in range(3)}
    assert 1 == len(parents)
    assert 1 == len(os.listdir(f"/proc/{parents.pop()}/task"))


def test_a_worker_finds_preloaded_modules(start):
    said = said_by(
        start(),
        lambda: print(
            "numpy.random" in sys.modules,
            "envkit.py_environment" in sys.modules,
            "envkit.testing" in sys.modules,
            "tests" in sys.modules,
            file=sys.stderr,
        ),
    )

    assert "True True False False" == said


def test_a_worker_has_no_descriptors_but_its_own(start):
    def links():
        for fd in map(int, os.listdir("/proc/self/fd")):
            # The one that lists them is gone by now.
            with contextlib.suppress(FileNotFoundError):
                target = os.readlink(f"/proc/self/fd/{fd}").partition(":")[0]
                if fd > 2 and target != os.devnull:
                    print(target, file=sys.stderr)

    start()
    said = said_by(start(), links)

    # What its standard error is written to, the lifeline and the channel.
    assert ["/memfd", "pipe", "socket"] == sorted(said.split())


def test_the_variables_are_set_before_anything_is_loaded(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import os; os.environ['SEEN'] = os.environ['PLAYERS']", "utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with launching({"PLAYERS": "4"}) as start:
        said = said_by(start(), lambda: print(os.environ["SEEN"], file=sys.stderr))
        assert "4" == said


def test_a_worker_starts_with_the_current_directory_and_path(
    start, tmp_path, monkeypatch
):
    (tmp_path / "arrived_later.py").write_text("name = 'here'", "utf-8")

    def look():
        import arrived_later

        print(arrived_later.name, os.getcwd(), file=sys.stderr)

    start()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path), tmp_path])
    worker = start()

    assert f"here {tmp_path}" == said_by(worker, look)


def test_a_deleted_working_directory_stops_no_worker(start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    assert "" == said_by(start(), lambda: None)


def test_workers_draw_different_numbers_from_the_global_generators(start):
    def draw():
        import random

        print(np.random.rand(), random.random(), file=sys.stderr)  # noqa: NPY002

    drawn = [said_by(start(), draw).split() for _ in range(2)]

    assert 4 == len({number for numbers in drawn for number in numbers})


def test_a_refused_process_is_reported(tmp_path, monkeypatch):
    """That is the worker's failure; the server goes on."""
    (tmp_path / "sitecustomize.py").write_text(
        """
import errno, os

def refuse_once():
    os.fork = fork
    raise BlockingIOError(errno.EAGAIN, "No room")

fork, os.fork = os.fork, refuse_once
""",
        "utf-8",
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with launching() as start:
        with pytest.raises(BlockingIOError) as refused:
            start()

        assert "[Errno 11] No room" == str(refused.value)
        assert "" == said_by(start(), lambda: None)


NO_START = {
    "it exits": (
        "raise SystemExit('This is not\\nthat envkit.')",
        "exited with code 1 before it had started a worker.\n\n"
        "  last stderr     This is not\n"
        "                  that envkit.",
    ),
    "it is killed": (
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "was killed by SIGKILL before it had started a worker.",
    ),
    "it does not answer": (
        "import signal; signal.pause()",
        "started no worker within 0 s.",
    ),
}


@pytest.mark.parametrize(("module", "end"), NO_START.values(), ids=NO_START)
def test_a_server_that_cannot_start_says_why(
    tmp_path, monkeypatch, message_of, module, end
):
    (tmp_path / "envkit.py").write_text(module, "utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    if "within 0 s" in end:
        monkeypatch.setattr(forkserver, "_START_TIMEOUT", 0.0)
    with launching() as start:
        message = message_of(WorkerError, start)

    assert (
        f"the fork server (pid N) {end}\n\n"
        "It loads NumPy and envkit, then forks the workers. "
        'start_method="spawn" does without it.'
    ) == re.sub(r"pid \d+", "pid N", message)


class StoodStill:
    """A channel on which an answer comes after a wait that was over much too late."""

    def __init__(self, waits):
        self.life_fd, self.channel = -1, self
        self.waits, self.waited = waits, 0.0

    def receive(self, timeout, *, life):
        self.waited += timeout
        if self.waits:
            self.waits -= 1
            raise TimeoutError
        return "answer"


def test_a_suspended_machine_does_not_give_up_the_server():
    # One wait may have taken an hour, for all that the clock says.
    assert "answer" == forkserver._ForkServer(StoodStill(waits=50))._receive(None)

    silent = StoodStill(waits=1000)
    with pytest.raises(TimeoutError):
        forkserver._ForkServer(silent)._receive(None)
    assert forkserver._START_TIMEOUT == silent.waited


@pytest.mark.own_process
def test_an_interrupted_start_leaves_nothing(start):
    def interrupt(number, frame):
        raise KeyboardInterrupt

    first = start()
    os.kill(server_of(first), signal.SIGSTOP)
    before = signal.signal(signal.SIGALRM, interrupt)

    def start_with_an_alarm():
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        start()

    with pytest.raises(KeyboardInterrupt):
        start_with_an_alarm()
    signal.signal(signal.SIGALRM, before)
    os.kill(server_of(first), signal.SIGCONT)
    second = start()

    said = said_by(second, lambda: print(os.getpid(), file=sys.stderr))
    assert str(second.pid) == said
    assert server_of(first) == server_of(second)


# How workers end.


def test_a_worker_whose_channel_closes_ends(start):
    worker = start()
    worker.channel.close()
    report = see_out(worker)
    assert (worker.pid, 0, None) == (report.pid, report.exitcode, report.signal)


def test_each_worker_has_its_own_exit_status(start):
    workers = [start() for _ in range(4)]
    tell(workers[3], lambda: os._exit(7))
    tell(workers[1], lambda: os.kill(os.getpid(), signal.SIGSEGV))
    os.kill(workers[0].pid, signal.SIGKILL)
    reports = [see_out(workers[which]) for which in (1, 0, 3)]

    assert [(None, "SIGSEGV"), (None, "SIGKILL"), (7, None)] == [
        (report.exitcode, report.signal) for report in reports
    ]
    assert not workers[2].has_ended()


def test_ended_workers_leave_no_zombies(start):
    worker, other = start(), start()
    os.kill(worker.pid, signal.SIGKILL)
    see_gone(worker.pid)
    assert process(other.pid) is not None


# How the server ends.


def test_a_killed_server_kills_no_worker():
    with launching() as start:
        worker = start()
        kill(server_of(worker))
        assert not worker.has_ended()
        assert "" == said_by(worker, lambda: None)


def test_the_end_of_a_killed_servers_worker_is_noticed():
    with launching() as start:
        worker = start()
        kill(server_of(worker))
        os.kill(worker.pid, signal.SIGKILL)
        report = see_out(worker)
        assert (None, None) == (report.exitcode, report.signal)


def test_reports_of_a_server_survive_its_kill():
    with launching() as start:
        worker = start()
        os.kill(worker.pid, signal.SIGKILL)
        see_gone(worker.pid)
        # It says one thing after the other.
        kill(server_of(start()))
        assert "SIGKILL" == see_out(worker).signal


def test_the_next_worker_gets_a_new_server():
    with launching() as start:
        worker = start()
        killed = server_of(worker)
        kill(killed)
        other = start()
        assert server_of(other) not in (killed, 1)
        assert "" == said_by(other, lambda: None)


def test_a_stopped_server_hides_no_workers_end(monkeypatch):
    monkeypatch.setattr(forkserver, "_STATUS_TIMEOUT", 0.05)
    monkeypatch.setattr(forkserver, "_GRACE", 0.05)
    with launching() as start:
        worker = start()
        os.kill(server_of(worker), signal.SIGSTOP)
        os.kill(worker.pid, signal.SIGKILL)
        report = see_out(worker)

        assert (None, None) == (report.exitcode, report.signal)


def test_close_kills_a_server_that_does_not_end(monkeypatch):
    monkeypatch.setattr(forkserver, "_GRACE", 0.05)
    with launching() as start:
        worker = start()
        parent = server_of(worker)
        os.kill(parent, signal.SIGSTOP)
        start.launcher.close()
        assert process(parent) is None


def test_a_launcher_without_workers_needs_no_server():
    launcher = forkserver.ForkserverLauncher({})
    launcher.forget()
    launcher.close()


# Python warns that a fork of a process with threads may hang; NumPy brings some.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_of_the_parent_forgets_the_server(start):
    worker = start()
    before = set(os.listdir("/proc/self/fd"))
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            worker.forget()
            start.launcher.forget()
            left = set(os.listdir("/proc/self/fd"))
            # Of the worker: channel, lifeline, output, pidfd; of the server too.
            os._exit(len(before - left))
        os._exit(99)
    _, status = os.waitpid(child, 0)

    assert 8 == os.waitstatus_to_exitcode(status)
    assert "" == said_by(worker, lambda: None)
    assert server_of(worker) == server_of(start())


# With everything else.


def pids(env):
    return [worker.pid for worker in env.workers]


def test_a_worker_killed_with_its_server_is_replaced():
    policy = RestartPolicy(max_restarts=1)
    with ParallelPyEnvironment(
        [CountingEnv] * 4,
        num_workers=2,
        start_method="forkserver",
        on_worker_failure=policy,
    ) as env:
        env.reset()
        before = pids(env)
        kill(process(before[0]).parent)
        env.step(np.zeros(4, np.int32))
        os.kill(before[1], signal.SIGKILL)
        deadline = time.monotonic() + SECONDS
        while env.statistics().restarts == 0 or None in pids(env):
            assert time.monotonic() < deadline
            env.step(np.zeros(4, np.int32))
        after = pids(env)

        assert before[0] == after[0]
        assert before[1] != after[1]


PARENT = """
import os, sys
from envkit import ParallelPyEnvironment
from envkit.testing import CountingEnv

env = ParallelPyEnvironment([CountingEnv] * 2, num_workers=2, start_method="forkserver")
env.reset()
workers = [worker.pid for worker in env.workers]
with open(f"/proc/{workers[0]}/stat") as file:
    server = int(file.read().rpartition(")")[2].split()[1])
print(server, *workers, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("stopped", [False, True])
def test_nothing_outlives_a_killed_parent(stopped):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with parent:
        children = [int(word) for word in parent.stdout.readline().split()]
        lives = [os.pidfd_open(pid) for pid in children]
        if stopped:
            for pid in children:
                os.kill(pid, signal.SIGSTOP)
        parent.kill()
        poller = select.poll()
        for life in lives:
            poller.register(life, select.POLLIN)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and len(poller.poll(20)) < len(lives):
            pass
        gone = [is_readable(life, 0.0) for life in lives]
        for life in lives:
            os.close(life)

    assert [True, True, True] == gone
