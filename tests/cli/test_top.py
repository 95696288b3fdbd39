"""`envkit top`: pools of another process, looked at from this one."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import envkit
from envkit import ParallelPyEnvironment
from envkit._shared.running_pools import exists, running_pools
from envkit.cli.main import main
from envkit.cli.processes import pools_named
from envkit.cli.top import PoolReader
from envkit.testing import CountingEnv
from tests import residue
from tests.waiting import until

pytestmark = [
    pytest.mark.skipif(not residue.ON_LINUX, reason="only Linux has /proc"),
    pytest.mark.usefixtures("nothing_left_behind"),
]

ROOT = Path(envkit.__file__).parents[1]

# It does what it is told on standard input, and says when it is done.
PROGRAM = """
import functools, sys, threading
import envkit
from envkit import ParallelPyEnvironment, RestartPolicy
from envkit.testing import CountingEnv, CrashingEnv, SlowEnv

pools = {POOLS}
print("ready", flush=True)
for line in sys.stdin:
    try:
        exec(line)
    except envkit.errors.WorkerError as error:
        print(type(error).__name__, flush=True)
    else:
        print("done", flush=True)
"""
COUNTING = "[ParallelPyEnvironment([CountingEnv] * 3, num_workers=2)]"


class Program:
    """A program of its own that has pools."""

    def __init__(self, folder, pools):
        self.path = folder / f"train_{os.urandom(4).hex()}.py"
        self.path.write_text(PROGRAM.replace("{POOLS}", pools), "utf-8")
        self.process = subprocess.Popen(
            [sys.executable, self.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self.pid = str(self.process.pid)

    def begin(self, line):
        self.process.stdin.write(f"{line}\n")

    def do(self, line):
        self.begin(line)
        return self.process.stdout.readline().strip()

    def end(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait()

    def __enter__(self):
        self.process.stdout.readline()
        return self

    def __exit__(self, *unused):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        if self.process.returncode is None:
            self.end()
        self.process.stdout.close()


@pytest.fixture
def program(tmp_path):
    """Starts a program with pools, given as Python; ends it after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda pools=COUNTING: stack.enter_context(Program(tmp_path, pools))


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """Returns a program with a pool, for those who only look at it."""
    with Program(tmp_path_factory.mktemp("train"), COUNTING) as training:
        yield training


def top(*arguments):
    """Runs the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "envkit", "top", *arguments],
        capture_output=True,
        text=True,
    )


def looked(capsys, name):
    """Returns what the command tells programs of a pool."""
    assert 0 == main(["top", name, "--json", "--interval=0.02"])
    return json.loads(capsys.readouterr().out)


def test_another_process_sees_the_workers_counters(program):
    training = program()
    training.do("pools[0].reset()")
    training.do("for _ in range(4): pools[0].step([0, 0, 0])")

    seen = top(training.pid, "--once", "--json", "--interval=0.02")

    assert (0, "") == (seen.returncode, seen.stderr)
    (pool,) = json.loads(seen.stdout)
    assert (
        int(training.pid),
        training.path.name,
        ["envkit.testing.envs:CountingEnv"],
        3,
        "ParallelPyEnvironment",
    ) == (
        pool["pid"],
        pool["program"],
        pool["targets"],
        pool["environments"],
        pool["class"],
    )
    assert [([0, 1], 10, 2, 0), ([2], 5, 1, 0)] == [
        (worker["rows"], worker["steps"], worker["resets"], worker["restarts"])
        for worker in pool["per_worker"]
    ]
    assert all(worker["memory"]["own"] > 0 for worker in pool["per_worker"])


def test_a_pool_answers_to_the_name_of_its_program(training, capsys):
    for name in (training.path.name, training.path.stem):
        (pool,) = looked(capsys, name)
        assert int(training.pid) == pool["pid"]


def test_a_pool_answers_to_the_name_of_its_environments(program):
    training = program("[envkit.make('Bandit', num_envs=2, num_workers=1)]")
    for name in ("Bandit", "Bandit-v1"):
        assert training.pid in {str(pool.pid) for pool in pools_named(name)}


def test_pools_are_listed(training, capsys):
    assert 0 == main(["top"])
    assert training.path.name in capsys.readouterr().out
    assert 0 == main(["top", "--json"])
    listed = {pool["pid"]: pool for pool in json.loads(capsys.readouterr().out)}
    assert 2 == listed[int(training.pid)]["workers"]


def test_two_pools_of_one_process_are_both_shown(program, capsys):
    training = program(
        "[ParallelPyEnvironment([recipe] * 2, num_workers=1) for recipe in "
        "(CountingEnv, envkit.constructor('CartPole', batch_size=3))]"
    )
    pools = looked(capsys, training.pid)
    assert [2, 2] == [pool["environments"] for pool in pools]
    assert [2, 6] == [pool["rows"] for pool in pools]


def test_a_replaced_worker_is_shown_with_its_new_process(program, capsys):
    training = program(
        "[ParallelPyEnvironment([CountingEnv] * 2, num_workers=2,"
        " on_worker_failure=RestartPolicy())]"
    )
    training.do("pools[0].reset()")
    (before,) = looked(capsys, training.pid)
    os.kill(before["per_worker"][0]["pid"], signal.SIGKILL)
    training.do("for _ in range(3): pools[0].step([0, 0])")

    (after,) = looked(capsys, training.pid)

    assert [1, 0] == [worker["restarts"] for worker in after["per_worker"]]
    pids = [worker["pid"] for worker in after["per_worker"]]
    assert before["per_worker"][0]["pid"] != pids[0]
    assert before["per_worker"][1]["pid"] == pids[1]
    assert os.path.exists(f"/proc/{pids[0]}")


def test_a_rebuilt_environment_counts_as_a_restart(program, capsys):
    training = program(
        "[ParallelPyEnvironment([CountingEnv, functools.partial(CrashingEnv, "
        "crash_at=2, how='raise')], num_workers=2, on_worker_failure=RestartPolicy())]"
    )
    training.do("pools[0].reset()")
    training.do("for _ in range(4): pools[0].step([0, 0])")
    (pool,) = looked(capsys, training.pid)
    assert [0, 1] == [worker["restarts"] for worker in pool["per_worker"]]


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_dead_worker_is_shown_as_gone(is_noticed, program, capsys):
    training = program()
    (before,) = looked(capsys, training.pid)
    pid = before["per_worker"][1]["pid"]
    os.kill(pid, signal.SIGKILL)
    if is_noticed:
        assert "WorkerCrashed" == training.do("pools[0].reset()")
    while exists(pid):
        pass

    (after,) = looked(capsys, training.pid)
    assert 0 == main(["top", training.pid, "--once", "--interval=0.02"])

    assert [False, True] == [worker["pid"] is None for worker in after["per_worker"]]
    assert "gone" in capsys.readouterr().out


LINKED = """
from envkit.distributed.links import linked
pools = [ParallelPyEnvironment([CountingEnv] * 4, start_serially=False,
    backend=linked(["envkit worker {address}", %r]))]
"""
# A worker on this machine that takes it for another one.
ELSEWHERE = [
    sys.executable,
    "-c",
    "import socket, sys; socket.gethostname = lambda: 'node-7';"
    "import envkit.distributed.worker_host as host;"
    "host._PROGRAM = 'import socket; socket.gethostname = lambda: \"node-7\"; '"
    " + host._PROGRAM; sys.exit(host.host_worker(sys.argv[1]))",
    "{address}",
]


def test_a_remote_worker_is_shown_without_a_local_process(program, capsys):
    training = program("[]")
    assert "done" == training.do(f"exec({LINKED % ELSEWHERE!r})")
    training.do("[pools[0].reset() for _ in range(9)]")
    (view,) = looked(capsys, training.pid)
    assert 0 == main(["top", training.pid, "--once", "--interval=0.02"])
    here, there = view["per_worker"]

    assert exists(here["pid"])
    assert None is there["pid"] is there["memory"]
    assert here["is_there"]
    assert there["is_there"]
    assert 0 < there["steps"] == here["steps"]
    assert None is view["slowest"]
    assert "gone" not in capsys.readouterr().out


def test_a_hanging_environment_is_named(program):
    training = program(
        "[ParallelPyEnvironment([CountingEnv, CountingEnv, functools.partial(SlowEnv,"
        " 3600.0), CountingEnv], num_workers=2)]"
    )
    training.do("pools[0].reset()")
    training.begin("pools[0].step([0, 0, 0, 0])")
    (pool,) = pools_named(training.pid)

    with contextlib.closing(PoolReader(pool)) as reader:
        running = None
        while running != [None, 2]:
            reader.sample()
            running = [worker.running for worker in reader.view().workers]


@pytest.mark.slow
def test_the_slowest_environment_is_found_in_the_middle_of_a_worker(program):
    training = program(
        "[ParallelPyEnvironment([functools.partial(SlowEnv, 0.02 if i == 4 else 0.001)"
        " for i in range(6)], num_workers=2)]"
    )
    training.do("pools[0].reset()")
    training.begin("while True: pools[0].step([0] * 6)")
    (pool,) = pools_named(training.pid)

    with contextlib.closing(PoolReader(pool)) as reader:
        pause = threading.Event()

        def is_found():
            for _ in range(50):
                reader.sample()
                pause.wait(0.003)
            slowest = reader.view().slowest
            return slowest and slowest[:2] == (4, 1) and slowest.times > 2

        # It is an estimate, which gets better the longer it is made.
        assert until(is_found)


def test_a_process_without_pools_and_a_missing_process_get_different_messages(
    program, training, capsys
):
    idle = program("[]").pid
    assert 1 == main(["top", idle, "--once"])
    assert (
        f"envkit top: Process {idle} runs no pool of worker processes that this "
        "envkit can read. The backends thread and inline cannot be seen from outside. "
        "Pools run in "
    ) in capsys.readouterr().err
    assert 1 == main(["top", "no_such_program.py"])
    error = capsys.readouterr().err
    assert error.startswith("envkit top: There is no pool 'no_such_program.py'. ")
    assert f"{training.path.name} (pid {training.pid})" in error
    assert 1 == len(error.splitlines())


def test_a_killed_program_leaves_nothing_behind(program, capsys):
    training = program()
    training.end(signal.SIGKILL)
    assert 1 == main(["top", training.pid])
    assert f"envkit top: There is no process {training.pid}." in capsys.readouterr().err
    assert int(training.pid) not in {pool.pid for pool in running_pools()}


def test_another_users_process_is_reported(capsys, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: os.stat("/proc/1").st_uid + 1)
    assert 1 == main(["top", "1"])
    assert (
        "envkit top: Process 1 belongs to another user, and only that user can see its "
        "pools. "
    ) in capsys.readouterr().err


@contextlib.contextmanager
def on_a_terminal(*arguments):
    """Runs the command on a terminal; yields its process and what reads from it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "envkit", "top", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""

    def read_until(text):
        nonlocal shown
        while text not in shown:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # It has ended.
                break
        return shown.decode()

    try:
        yield process, read_until
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_resized_pool_is_shown_at_its_new_size(program):
    training = program("[ParallelPyEnvironment([CountingEnv] * 4, num_workers=2)]")
    training.do("pools[0].reset()")
    (pool,) = pools_named(training.pid)

    with contextlib.closing(PoolReader(pool)) as reader:
        training.do("pools[0].resize(6)")
        training.do("pools[0].step([0] * 6)")
        reader.follow()
        view = reader.view()
        assert [worker.rows for worker in view.workers] == [(0, 2), (2, 4), (4, 6)]
        assert [worker.is_there for worker in view.workers] == [True] * 3
        assert [worker.steps for worker in view.workers] == [4, 4, 4]
        training.do("pools[0].resize(1)")
        reader.follow()
        assert [worker.rows for worker in reader.view().workers] == [(0, 1)]
        assert reader.has_ended() is None
    assert [found.facts.envs for found in pools_named(training.pid)] == [1]


ENDINGS = {
    "closed": (
        lambda training: training.do("pools[0].close()"),
        "The pool of {name} was closed.",
    ),
    "killed": (
        lambda training: training.end(signal.SIGKILL),
        "{name} has ended, and its pool with it.",
    ),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_a_live_view_ends_with_the_pool_and_says_so(how, program):
    training = program()
    end, text = ENDINGS[how]
    name = f"{training.path.name} (pid {training.pid})"

    with on_a_terminal(training.pid, "--interval=0.05") as (process, read_until):
        read_until(b"calls/s")
        end(training)
        shown = read_until(b"no such text")

        assert 0 == process.wait()
    assert text.format(name=name) in " ".join(shown.split())
    assert "Traceback" not in shown


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_signal_ends_a_live_view_and_not_the_pool(number, status, training):
    with on_a_terminal(training.pid, "--interval=0.05") as (process, read_until):
        read_until(b"calls/s")
        process.send_signal(number)
        shown = read_until(b"no such text")

        assert status == process.wait()
    assert shown.endswith("\x1b[?25h")  # The cursor is there again.
    assert "Traceback" not in shown
    assert "done" == training.do("pools[0].reset()")


def test_a_pipe_gets_one_view(training, capsys):
    assert 0 == main(["top", training.pid, "--interval=0.02"])
    assert f"{training.path.name} (pid {training.pid})" in capsys.readouterr().out


def test_pools_of_threads_and_inline_are_not_seen():
    mine = [
        ParallelPyEnvironment([CountingEnv], backend=backend)
        for backend in ("inline", "thread")
    ]

    found = {pool.pid for pool in running_pools()}
    for env in mine:
        env.close()

    assert os.getpid() not in found


# Memory that only says that it is a pool's.


@pytest.fixture
def pretended():
    """Makes memory as a pool of this process would have it, with facts; closes it."""
    from envkit.parallel.durability.published import PublishedPool

    places = {"modes": 0, "sequence": 64, "command": 80, "answered": 96}
    numbers = []

    def make(content=None, **facts):
        facts = PublishedPool(
            **{
                "kind": "Pool",
                "program": "pretended.py",
                "pid": os.getpid(),
                "targets": ["B-v1"],
                "envs": 2,
                "blocks": [[0, 2]],
                "first_rows": [0, 1],
                "places": {**places, "meters": 128, "worker_facts": 192},
                "are_linked": False,
                "began": 0.5,
                "envkit": "9.9",
                **facts,
            }
        )
        number = os.memfd_create("envkit")
        numbers.append(number)
        written = facts.packed(512)
        if content is not None:
            written = content + written[-16:]
        os.write(number, bytes([127]) * 512 + written)
        return number

    yield make
    for number in numbers:
        os.close(number)


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[1]", b'{"format": 2}'])
def test_memory_with_broken_facts_is_left_out(content, pretended, training, capsys):
    pretended(content)
    assert 0 == main(["top"])
    assert training.path.name in capsys.readouterr().out
    (pool,) = looked(capsys, training.pid)
    assert int(training.pid) == pool["pid"]
    assert 1 == main(["top", str(os.getpid())])


def test_facts_that_fit_may_count_anything(pretended, capsys):
    """Its counters are larger than any pool's."""
    pretended()
    (pool,) = looked(capsys, "pretended.py")
    assert "pretended.py" == pool["program"]
    assert 0 == main(["top", "pretended", "--once", "--interval=0.02"])


@pytest.mark.parametrize("arguments", [[], ["--json"], ["B", "--once"]])
def test_escape_sequences_of_facts_are_written_out(arguments, pretended, capsys):
    evil = "\x1b]0;owned\x07\x9b2J"
    pretended(kind=evil, program=evil, targets=["B-v1", evil], envkit=evil)
    assert 0 == main(["top", *arguments, "--interval=0.02"])
    told = capsys.readouterr().out
    assert r"\u001b]0;o" in told
    assert not set("\x1b\x07\x9b") & set(told)


def test_memory_that_shrinks_ends_the_view_and_not_the_command(pretended):
    number = pretended()
    (pool,) = pools_named("pretended.py")
    reader = PoolReader(pool)
    os.ftruncate(number, 100)
    reader.sample()
    reader.view()
    said = reader.has_ended()
    reader.close()

    assert (
        f"The memory of the pool of pretended.py (pid {os.getpid()}) can no longer be "
        "read."
    ) == said
