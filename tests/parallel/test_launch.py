"""How a worker's process starts, what it inherits, and what is seen of it."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import select
import signal
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

from envkit.parallel.backends import launch
from envkit.parallel.backends.launch import (
    ForkLauncher,
    SpawnLauncher,
    environment_for,
    search_path,
)
from envkit.parallel.system.interpreter import start_interpreter
from envkit.parallel.system.lifeline import close_lifeline, open_lifeline
from tests import residue
from tests.waiting import PATIENCE, is_running

only_linux = pytest.mark.skipif(
    not residue.ON_LINUX, reason="only Linux tells all about a process"
)

# A worker that does what it is told in Python, and knows no environments.
PUPPET = """
import os, sys
from envkit.parallel.system.channel import Channel

def main(channel_fd, lifeline_fd):
    channel = Channel.attach(channel_fd)
    while (program := channel.receive()) is not None:
        channel.send(eval(program, {"os": os, "sys": sys}))
"""


@contextlib.contextmanager
def puppet(monkeypatch, folder, **env):
    """Starts a worker that answers in Python; its module lies in a folder."""
    (folder / "my_puppet.py").write_text(PUPPET)
    monkeypatch.syspath_prepend(folder)
    process = SpawnLauncher(env, "my_puppet").start()
    try:
        yield process
    finally:
        with contextlib.suppress(OSError, ValueError):  # It may be gone, or closed.
            process.channel.send(None, life=process.life_fd)
        ended(process)
        process.close()


def ask(process, program):
    process.channel.send(program)
    return process.channel.receive(PATIENCE, life=process.life_fd)


def ended(process):
    """Waits until a process has ended."""
    select.select([process.life_fd], [], [], PATIENCE) if process.life_fd >= 0 else None
    assert process.has_ended()


# What a worker inherits.

THREADS = [
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
]


@pytest.mark.parametrize(
    ("name", "unset", "inherited"),
    [
        *((name, "1", "4") for name in THREADS),
        ("CUDA_VISIBLE_DEVICES", "-1", "-1"),  # It is there only for who asks.
        ("MY_LEVEL", None, "4"),
    ],
)
def test_a_worker_computes_with_one_thread_and_without_a_gpu_unless_told(
    monkeypatch, name, unset, inherited
):
    monkeypatch.delenv(name, raising=False)
    assert unset == environment_for({}).get(name)
    monkeypatch.setenv(name, "4")
    before = dict(os.environ)

    assert inherited == environment_for({})[name]
    assert "2" == environment_for({name: "2"})[name]
    assert environment_for({}).keys() >= before.keys()
    assert before == dict(os.environ)


def test_entries_of_the_search_path_that_are_no_strings_are_left_out(monkeypatch):
    paths = ["", "/a'b", "/ü\udcff", 'c"d\n']
    monkeypatch.setattr(sys, "path", [*paths, b"/bytes", io])
    assert paths == eval(search_path())
    assert search_path().isascii()


@only_linux
def test_a_search_path_may_be_longer_than_an_argument(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)  # remembers the path that comes back
    paths = [f"/{number}/{'x' * 100}" for number in range(3000)]
    monkeypatch.setattr(sys, "path", [*sys.path, *paths])
    with puppet(monkeypatch, tmp_path) as process:
        found = ask(process, "sys.path[-3000:]")
    assert paths == found


@only_linux
def test_a_worker_is_started_with_these_settings(monkeypatch, tmp_path):
    with puppet(monkeypatch, tmp_path, MY_LEVEL="3") as process:
        answers = {
            program: ask(process, program)
            for program in (
                "os.environ['MY_LEVEL']",
                "os.environ['CUDA_VISIBLE_DEVICES']",
                "sys.path",
                "os.getsid(0) == os.getpgrp() == os.getpid()",
                "os.readlink('/proc/self/fd/0')",
                "hasattr(sys.modules['__main__'], '__file__')",
                "'json' in sys.modules",
            )
        }
        stdout = ask(process, "os.fstat(1)[:3]"), tuple(os.fstat(1)[:3])

    assert [
        "3",
        "-1",
        [entry for entry in sys.path if isinstance(entry, str)],
        True,
        "/dev/null",
        False,
        False,
    ] == list(answers.values())
    assert stdout[1] == stdout[0]


@only_linux
def test_a_worker_inherits_only_what_it_needs(monkeypatch, tmp_path):
    stray = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(stray, True)
    with puppet(monkeypatch, tmp_path) as process:
        fds = ask(process, "sorted(int(fd) for fd in os.listdir('/proc/self/fd'))")
    os.close(stray)

    assert [0, 1, 2] == fds[:3]
    # The channel, the lifeline, and the directory that is being listed.
    assert 6 == len(fds)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], []),
        (["-I", "-OO"], ["-OO", "-I"]),
        (["-s", "-W", "error::UserWarning"], ["-s", "-Werror::UserWarning"]),
        (["-O", "-E", "-X", "dev"], ["-O", "-E", "-X", "dev", "-Wdefault"]),
    ],
    ids=lambda flags: " ".join(flags) or "none",
)
def test_a_worker_has_the_flags_of_its_parents_interpreter(flags, expected):
    program = (
        "import sys; sys.path[:] = eval(sys.argv[1])\n"
        "from envkit.parallel.system.interpreter import _interpreter_flags\n"
        "print(_interpreter_flags())"
    )
    env = {name: os.environ[name] for name in os.environ if name != "PYTHONWARNINGS"}
    output = subprocess.run(
        [sys.executable, *flags, "-c", program, search_path()],
        capture_output=True,
        text=True,
        check=True,
        env=env,
    ).stdout

    assert expected == eval(output)


def test_a_module_in_the_current_directory_does_not_shadow_others(
    monkeypatch, tmp_path
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("json", "ast", "types", "enum"):
        (elsewhere / f"{name}.py").write_text("raise RuntimeError('the wrong one')")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])

    with puppet(monkeypatch, tmp_path) as process:
        assert 5 == ask(process, "2 + 3")


def test_a_process_that_cannot_be_started_leaves_nothing(monkeypatch):
    before = len(os.listdir("/dev/fd"))
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(FileNotFoundError):
        SpawnLauncher({}).start()
    assert before == len(os.listdir("/dev/fd"))


def test_an_interpreter_gets_exactly_its_descriptors():
    read, write = os.pipe()
    process = start_interpreter(
        [f"import os; os.write({write}, b'here')"],
        env=os.environ,
        fds=(write,),
        stderr=2,
    )
    process.wait()
    os.close(write)

    assert b"here" == os.read(read, 10)
    os.close(read)


def test_a_fork_in_another_thread_keeps_no_program_from_starting(
    monkeypatch, in_thread
):
    """A fork that holds the pipe by which a program tells that it has begun."""
    make, forked, children = os.pipe, threading.Event(), []

    def fork():
        with warnings.catch_warnings():
            # Python warns that a fork of a process with threads may hang.
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            signal.pause()
        children.append(pid)
        forked.set()

    def pipe():
        monkeypatch.setattr(os, "pipe", make)
        ends = make()
        forks.append(in_thread(fork))
        # It waits for the program. One that did not would have come by then.
        forked.wait(0.5)
        return ends

    forks = []
    read, write = open_lifeline()  # From now on forks are looked after.
    os.close(read)
    close_lifeline(write)
    monkeypatch.setattr(os, "pipe", pipe)
    starting = in_thread(
        functools.partial(start_interpreter, ["0"], env=os.environ, fds=(), stderr=2)
    )
    try:
        assert starting().wait() == 0
    finally:
        forks[0]()
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)


# What is seen of a worker.


@only_linux
def test_stderr_of_a_worker_is_passed_on_and_its_end_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stderr", shown := io.StringIO())
    with puppet(monkeypatch, tmp_path) as process:
        ask(process, "[print(line, file=sys.stderr) for line in range(1000)] and 1")
        process.forward_stderr()
        first = shown.getvalue()
        ask(process, "print('more', file=sys.stderr)")
        process.forward_stderr()
        process.forward_stderr()

    assert "".join(f"{line}\n" for line in range(1000)) == first
    assert "more\n" == shown.getvalue().removeprefix(first)
    assert process.stderr_tail.endswith("\n998\n999\nmore")
    assert len(process.stderr_tail.splitlines()) <= 200


@only_linux
def test_characters_are_not_cut_in_two(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stderr", shown := io.StringIO())
    with puppet(monkeypatch, tmp_path) as process:
        ask(process, "os.write(2, b'x' + 'é'.encode() * 40_000)")
        ask(process, "os.write(2, 'é'.encode()[:1])")
        process.forward_stderr()
        ask(process, "os.write(2, 'é'.encode()[1:])")
        process.forward_stderr()

    assert "x" + "é" * 40_001 == shown.getvalue()


@only_linux
@pytest.mark.parametrize("stderr", [None, "closed", "of bytes"])
def test_a_blocked_stderr_does_no_harm(monkeypatch, tmp_path, stderr):
    closed = io.StringIO()
    closed.close()
    places = {None: None, "closed": closed, "of bytes": object()}
    monkeypatch.setattr(sys, "stderr", places[stderr])
    with puppet(monkeypatch, tmp_path) as process:
        ask(process, "print('hello', file=sys.stderr)")
        process.forward_stderr()

    assert "hello" == process.stderr_tail


@only_linux
@pytest.mark.parametrize(
    ("program", "exitcode", "name"),
    [
        ("os._exit(3)", 3, None),
        ("sys.exit()", 0, None),
        ("os.kill(os.getpid(), 11)", None, "SIGSEGV"),
        ("os.kill(os.getpid(), 9)", None, "SIGKILL"),
        ("os.kill(os.getpid(), 40)", None, "signal 40"),
    ],
)
def test_how_a_process_ended_is_reported(
    monkeypatch, tmp_path, program, exitcode, name
):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with puppet(monkeypatch, tmp_path) as process:
        running = process.has_ended()
        ask(process, "print('last words', file=sys.stderr)")
        process.channel.send(program)
        ended(process)
        report = process.report(4)

    assert not running
    assert (4, process.pid, exitcode, name) == (
        report.worker,
        report.pid,
        report.exitcode,
        report.signal,
    )
    assert "last words" == report.stderr_tail


@only_linux
def test_memory_usage_is_known_after_the_end(monkeypatch, tmp_path):
    with puppet(monkeypatch, tmp_path) as process:
        ask(process, "None")
        seen = process.measure_resident()
        process.signal_group(signal.SIGKILL)
        ended(process)
    assert seen > 2**20
    assert seen == process.measure_resident() == process.report(0).resident


@only_linux
def test_a_signal_reaches_a_workers_children(monkeypatch, tmp_path):
    with puppet(monkeypatch, tmp_path) as process:
        child = ask(
            process,
            "__import__('subprocess').Popen([sys.executable, '-c', 'input()'],"
            " stdin=__import__('subprocess').PIPE).pid",
        )
        life = os.pidfd_open(child)
        process.signal_group(signal.SIGKILL)
        gone = select.select([life], [], [], PATIENCE)[0]
        os.close(life)

    assert [life] == gone


def test_signalling_a_dead_process_is_no_error(monkeypatch, tmp_path):
    with puppet(monkeypatch, tmp_path) as process:
        process.channel.send(None)
        ended(process)
        process.signal_group(signal.SIGTERM)
    assert 0 == process.report(0).exitcode


def test_a_fork_forgets_what_belongs_to_its_parent(monkeypatch, tmp_path):
    before = len(os.listdir("/dev/fd"))
    with puppet(monkeypatch, tmp_path) as process:
        process.channel.send(None)
        ended(process)
        process.forget()
        process.forget()
        after = len(os.listdir("/dev/fd"))
        process.forward_stderr()

    assert before == after


# Workers that are forks.


@only_linux
def test_a_forked_worker_has_its_own_session(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    read, write = os.pipe()

    def facts(*unused):
        told = {
            "session": os.getsid(0) == os.getpid(),
            "stdin": os.readlink("/proc/self/fd/0"),
            "level": os.environ["MY_LEVEL"],
            "stdout": sys.stdout is sys.__stdout__,
            "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
            "random": np.random.get_state()[1][:4].tolist(),  # noqa: NPY002  # what many use
        }
        os.write(write, json.dumps(told).encode())
        print("from the fork", file=sys.stderr)

    monkeypatch.setattr("envkit.parallel.worker.main.main", facts)
    with contextlib.redirect_stdout(io.StringIO()):
        process = ForkLauncher({"MY_LEVEL": "3"}).start()
    ended(process)
    told = json.loads(os.read(read, 10_000))
    report = process.report(0)
    process.close()
    os.close(read)
    os.close(write)

    assert told.pop("random") != np.random.get_state()[1][:4].tolist()  # noqa: NPY002
    assert {
        "session": True,
        "stdin": "/dev/null",
        "level": "3",
        "stdout": True,
        "interrupt": True,
    } == told
    assert (0, "from the fork") == (report.exitcode, report.stderr_tail)
    assert "MY_LEVEL" not in os.environ


@only_linux
def test_a_fork_that_fails_says_why_and_does_not_come_back(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())

    def fail(*unused):
        raise ValueError("no worker")

    monkeypatch.setattr("envkit.parallel.worker.main.main", fail)
    process = ForkLauncher({}).start()
    ended(process)
    report = process.report(0)
    process.close()

    assert 1 == report.exitcode
    assert report.stderr_tail.endswith("ValueError: no worker")


@only_linux
def test_the_status_of_a_process_reaped_elsewhere_is_unknown(monkeypatch):
    monkeypatch.setattr("envkit.parallel.worker.main.main", lambda *unused: None)
    process = ForkLauncher({}).start()
    os.waitpid(process.pid, 0)
    ended(process)
    report = process.report(0)
    process.close()
    assert (None, None) == (report.exitcode, report.signal)


def test_a_launcher_works_without_stdout(monkeypatch):
    monkeypatch.setattr(launch.sys, "stdout", None)
    monkeypatch.setattr("envkit.parallel.worker.main.main", lambda *unused: None)
    process = ForkLauncher({}).start()
    ended(process)
    process.close()
    assert process.has_ended()


def test_a_prepared_process_is_used_for_the_next_start(monkeypatch, tmp_path):
    (tmp_path / "my_puppet.py").write_text(PUPPET)
    monkeypatch.syspath_prepend(tmp_path)
    launcher = SpawnLauncher({}, "my_puppet")
    launcher.prepare(1)
    launcher.prepare(1)
    (waiting,) = launcher._prepared
    process = launcher.start()
    assert process is waiting
    process.channel.send("os.getpid()", life=process.life_fd)
    assert process.pid == process.channel.receive()
    process.channel.send(None, life=process.life_fd)
    ended(process)
    process.close()
    launcher.close()


def test_unused_prepared_processes_end(monkeypatch, tmp_path):
    (tmp_path / "my_puppet.py").write_text(PUPPET)
    monkeypatch.syspath_prepend(tmp_path)
    launcher = SpawnLauncher({}, "my_puppet")
    launcher.prepare(1)
    (waiting,) = launcher._prepared
    launcher.close()
    assert not is_running(waiting.pid)
    assert not launcher._prepared
