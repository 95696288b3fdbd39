"""What becomes of environments and workers that raise, crash or misbehave."""

from __future__ import annotations

import builtins
import contextlib
import functools
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from envkit import ParallelPyEnvironment
from envkit.errors import (
    CallOrderError,
    ConstructorError,
    EnvironmentRaised,
    SpecMismatchError,
    WorkerCrashed,
)
from envkit.specs import ArraySpec
from envkit.testing import CountingEnv
from tests.parallel.trouble import (
    ENDS,
    PROMPTLY,
    Forking,
    Troubled,
    WithMultiprocessing,
    bytes_of_stderr,
    close_all_files,
    complain_a_lot,
    complain_with_a_program,
    failure_of,
    first_line,
    flood,
    masked,
    numbers,
    plan,
    pool_of,
    print_a_lot,
    raises,
    wrong_rows,
)
from tests.waiting import PATIENCE, is_running, until

# Python warns that a fork of a process with threads may hang; NumPy brings some.
pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="no worker processes there yet"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]

# Environments that raise.


class TwoArguments(Exception):
    def __init__(self, code, place):
        super().__init__(f"{code} at {place}")
        self.code, self.place = code, place


class KeywordOnly(Exception):
    def __init__(self, *, code):
        super().__init__(f"code {code}")
        self.code = code


class Unpicklable(Exception):
    def __init__(self):
        super().__init__("it holds a lock")
        self.lock = threading.Lock()


class Silent(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Slotted(ValueError):
    __slots__ = ("place",)

    def __init__(self, place):
        super().__init__(place)
        self.place = place

    def __str__(self):
        return f"at {self.place}"


class Refuses(Exception):
    def __reduce__(self):
        raise RuntimeError("no")


def local_kind():
    class Local(Exception):
        pass

    return Local


def recurse():
    recurse()


def stop():
    next(iter(()))


def throw_local():
    raise local_kind()("here only")


def throw_huge():
    raise ValueError("x" * 1_000_000)


def throw_chained():
    try:
        recurse()
    except RecursionError as error:
        raise KeyError("level") from error


# What an environment raises, and the first line of what the caller sees.
RAISED = {
    "plain": (raises(ValueError, "no"), ValueError, "ValueError: no"),
    "key": (raises(KeyError, "level"), KeyError, "KeyError: 'level'"),
    "fields": (
        raises(FileNotFoundError, 2, "No such file", "level.xml"),
        FileNotFoundError,
        "FileNotFoundError: [Errno 2] No such file: 'level.xml'",
    ),
    "two arguments": (
        raises(TwoArguments, 7, "left"),
        TwoArguments,
        "TwoArguments: 7 at left",
    ),
    "keyword": (raises(KeywordOnly, code=7), KeywordOnly, "KeywordOnly: code 7"),
    "unpicklable": (raises(Unpicklable), Unpicklable, "Unpicklable: it holds a lock"),
    "silent": (
        raises(Silent),
        Silent,
        "Silent: (its message cannot be shown: str(Silent) raised)",
    ),
    "slots": (raises(Slotted, "left"), Slotted, "Slotted: at left"),
    "refuses": (raises(Refuses, "x"), EnvironmentRaised, "Refuses: x"),
    "local": (
        throw_local,
        EnvironmentRaised,
        "local_kind.<locals>.Local: here only",
    ),
    "chained": (throw_chained, KeyError, "KeyError: 'level'"),
    "recursion": (
        recurse,
        RecursionError,
        "RecursionError: maximum recursion depth exceeded",
    ),
    "memory": (raises(MemoryError), MemoryError, "MemoryError"),
    "stop": (stop, EnvironmentRaised, "StopIteration"),
    "exit": (raises(SystemExit, 3), EnvironmentRaised, "SystemExit: 3"),
    "huge": (throw_huge, ValueError, f"ValueError: {'x' * 200} …"),
}
if hasattr(builtins, "ExceptionGroup"):
    RAISED["group"] = (
        raises(builtins.ExceptionGroup, "both", [KeyError("a"), OSError("b")]),
        builtins.ExceptionGroup,
        "ExceptionGroup: both (2 sub-exceptions)",
    )


def test_errors_of_an_environment_arrive_with_their_class(backend):
    rows = len(RAISED)
    with pool_of(rows, workers=2, backend=backend) as pool:
        before = pool.reset()
        told, lost = {}, []
        for row, (name, (trouble, kind, _)) in enumerate(RAISED.items()):
            plan(pool, row, "step", trouble)
            error = failure_of(pool.step, numbers(*range(rows)), masked(rows, row))
            told[name] = first_line(error)
            if not isinstance(error, EnvironmentRaised) or not isinstance(error, kind):
                lost.append((name, type(error)))
            if ("step", (row,)) != (error.command, error.envs):
                lost.append((name, error.command, error.envs))
            if "in _meet" not in error.remote_traceback:
                lost.append((name, error.remote_traceback))
        after = pool.reset()

    assert {
        name: f"env {row} raised {line} in step()."
        if name != "huge"
        else f"env {row} raised {line.replace(':', ' in step():', 1)}"
        for row, (name, (_, _, line)) in enumerate(RAISED.items())
    } == told
    assert [] == lost
    assert [] == wrong_rows(before, None, after)


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_the_cause_has_the_class_the_arguments_and_the_text(backend):
    with pool_of(1, backend=backend) as pool:
        pool.reset()
        plan(pool, 0, "step", raises(Slotted, "left"))
        cause = failure_of(pool.step, numbers(1)).__cause__

    assert isinstance(cause, Slotted)
    assert (("left",), "at left") == (cause.args, str(cause))


QUESTIONS = {
    "render": (lambda pool: pool.render(), "render()"),
    "get_info": (lambda pool: pool.get_info(), "get_info()"),
    "get_state": (lambda pool: pool.get_state(), "get_state()"),
    "seed": (lambda pool: pool.seed(3), "seed()"),
    "meet": (lambda pool: pool.call("meet"), "call('meet')"),
}


def test_an_error_in_a_call_disturbs_no_episode(backend):
    with pool_of(3, workers=2, backend=backend) as pool:
        before = pool.reset()
        told = {}
        for where, (ask, _) in QUESTIONS.items():
            plan(pool, 1, where, raises(TwoArguments, 7, "left"))
            error = failure_of(ask, pool)
            told[where] = first_line(error), isinstance(error, TwoArguments)
        after = pool.step(numbers(5, 6, 7))

    assert {
        where: (f"env 1 raised TwoArguments: 7 at left in {name}.", True)
        for where, (_, name) in QUESTIONS.items()
    } == told
    assert [] == wrong_rows(before, numbers(5, 6, 7), after)


def test_an_error_in_one_row_affects_no_other_row_or_later_call(backend):
    actions = numbers(*range(10, 15))
    wrong = []
    with pool_of(5, workers=2, backend=backend) as pool:
        for row in range(5):
            others = [other for other in range(5) if other != row]
            batches = [pool.reset()]
            plan(pool, row, "step", raises(ValueError, "no"), at=2)
            batches.append(pool.step(actions))
            failure_of(pool.step, actions)
            batches.append(pool.current_time_step())
            batches.append(pool.step(actions, ~masked(5, row)))
            again = pool.reset(masked(5, row))
            batches.append(pool.step(actions))
            wrong += wrong_rows(batches[0], actions, batches[1])
            wrong += wrong_rows(batches[1], actions, batches[2], others)
            wrong += wrong_rows(batches[2], actions, batches[3], others)
            wrong += wrong_rows(again, actions, batches[4])
            assert 0 == int(again.observation["step"][row])
            assert again.is_first().tolist() == masked(5, row).tolist()

    assert [] == wrong


def test_all_errors_of_one_step_are_reported():
    with pool_of(4, workers=2) as pool:
        pool.reset()
        for row, text in [(0, "a"), (2, "b"), (3, "c")]:
            plan(pool, row, "step", raises(KeyError, text))
        error = failure_of(pool.step, numbers(1, 2, 3, 4))

    assert "env 0 raised KeyError: 'a' in step()." == first_line(error)
    assert ["'b'", "'c'"] == [repr(other.args[0]) for other in error.also]
    assert str(error).endswith(
        "2 other failures in the same call:\n"
        "  - env 2 raised KeyError: 'b' in step().\n"
        "  - env 3 raised KeyError: 'c' in step()."
    )


def test_a_row_that_raised_waits_for_a_reset():
    with pool_of(3, workers=2) as pool:
        before = pool.reset()
        plan(pool, 1, "step", raises(ValueError, "no"))
        failure_of(pool.step, numbers(1, 2, 3), masked(3, 1))
        with pytest.raises(CallOrderError) as caught:
            pool.step(numbers(1, 2, 3))
        after = pool.step(numbers(4, 5, 6), masked(3, 0, 2))

    assert (
        "step() was called after environment 1 raised. Call reset(), or reset(mask) "
        "for these rows alone, to begin new episodes. None of the environments has "
        "moved."
    ) == str(caught.value)
    assert [] == wrong_rows(before, numbers(4, 5, 6), after, [0, 2])


class Broke(BaseException):
    """Is no `Exception`, as asyncio's `CancelledError` is none."""


BASE_EXCEPTIONS = [KeyboardInterrupt, GeneratorExit, Broke]


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_base_exceptions_are_reported_and_end_no_worker(backend):
    with pool_of(3, workers=2, backend=backend) as pool:
        for kind in BASE_EXCEPTIONS:
            pool.reset()
            plan(pool, 0, "step", raises(kind, "no"))
            plan(pool, 1, "meet", raises(kind, "no"))
            asked = failure_of(pool.call, "meet")
            stepped = failure_of(pool.step, numbers(1, 2, 3))

            name = kind.__name__
            assert f"env 1 raised {name}: no in call('meet')." == first_line(asked)
            assert f"env 0 raised {name}: no in step()." == first_line(stepped)
            assert pool.reset().is_first().all()


@pytest.mark.parametrize("backend", ["thread", "process"])
@pytest.mark.parametrize("kind", [*BASE_EXCEPTIONS, SystemExit])
def test_base_exceptions_of_constructors_are_reported(backend, kind):
    trouble = raises(kind, "no")
    error = failure_of(
        ParallelPyEnvironment,
        [Troubled, functools.partial(Troubled, 1, "constructor", trouble)],
        backend=backend,
        num_workers=1,
        start_method="fork",
    )

    assert isinstance(error, ConstructorError)
    assert f"env_constructors[1] raised {kind.__name__}: no in worker 0" in str(error)


# Workers that crash.


def ask_to_step(pool, row):
    pool.step(numbers(*range(pool.batch_size)), masked(pool.batch_size, row))


# Where a worker may crash; what makes it; what the error calls it.
MOMENTS = {
    "step": (ask_to_step, "step"),
    "after step": (ask_to_step, "step"),
    "reset": (lambda pool, row: pool.reset(masked(pool.batch_size, row)), "reset"),
    "render": (lambda pool, row: pool.render(env_ids=[row]), "render()"),
    "meet": (lambda pool, row: pool.call("meet", env_ids=[row]), "call('meet')"),
    "get_state": (
        lambda pool, row: pool.envs[row].call("get_state")(),
        "call('get_state')",
    ),
}


def crashes(pool, how):
    """Crashes a worker at each of the moments; returns what is wrong with the errors.

    Row `i` is of worker `i`, and crashes at the `i`-th moment.
    """
    trouble, known, _ = ENDS[how]
    wrong = []
    for row, (where, (ask, command)) in enumerate(MOMENTS.items()):
        plan(pool, row, where, trouble)
        pid = pool.workers[row].pid
        began = time.monotonic()
        error = failure_of(ask, pool, row)
        took = time.monotonic() - began
        facts = (type(error), error.worker, error.envs, error.command, error.pid)
        due = (WorkerCrashed, row, (row,), command, pid)
        if facts != due or (error.exitcode, error.signal) != known:
            wrong.append((where, facts, due, error.exitcode, error.signal))
        if took > PROMPTLY:
            wrong.append((where, took))
    return wrong


@pytest.mark.parametrize(
    ("how", "start_method"),
    [*((how, "fork") for how in ENDS), ("SIGSEGV", "spawn")],
)
def test_a_crash_is_reported_at_once_in_every_phase(how, start_method):
    rows = len(MOMENTS) + 1
    last = rows - 1
    with pool_of(rows, start_method=start_method) as pool:
        before = pool.reset()
        wrong = crashes(pool, how)
        # Whoever is left goes on as if nothing had been.
        after = pool.step(numbers(*range(rows)), masked(rows, last))
        gone = [
            failure_of(pool.step, numbers(*range(rows))),
            failure_of(pool.reset),
            failure_of(pool.call, "meet"),
            failure_of(pool.render, env_ids=[0]),
        ]

    assert [] == wrong
    assert [] == wrong_rows(before, numbers(*range(rows)), after, [last])
    assert [WorkerCrashed] * 4 == [type(error) for error in gone]
    assert [
        f"{call}() needs worker 0 (pid {gone[0].pid}), which was lost in an earlier "
        f"call; it {ENDS[how][2]} while env 0 was in step(), "
        for call in ("step", "reset", "call", "render")
    ] == [first_line(error).partition(f"{error.steps} step")[0] for error in gone]


@pytest.mark.parametrize("how", ["SIGKILL", "exit 0"])
def test_an_idle_worker_that_was_killed_is_found_by_the_next_call(how):
    with pool_of(2) as pool:
        pool.reset()
        pid = pool.workers[0].pid
        plan(pool, 0, "meet", ENDS[how][0])
        # Nobody waits for the answer, so nobody looks.
        pool.envs[0].call("meet")
        assert until(lambda: not is_running(pid))
        began = time.monotonic()
        error = failure_of(pool.step, numbers(1, 2))
        took = time.monotonic() - began
        between = pool.current_time_step()
        after = pool.step(numbers(3, 4), masked(2, 1))

    assert (WorkerCrashed, 0, pid) == (type(error), error.worker, error.pid)
    assert took < PROMPTLY
    assert [] == wrong_rows(between, numbers(3, 4), after, [1])


def test_several_crashes_in_one_step_are_all_reported():
    with pool_of(4) as pool:
        pool.reset()
        for row, how in [(0, "SIGSEGV"), (1, "exit 3"), (3, "SIGKILL")]:
            plan(pool, row, "step", ENDS[how][0])
        error = failure_of(pool.step, numbers(1, 2, 3, 4))

    ended = {each.worker: (each.exitcode, each.signal) for each in (error, *error.also)}
    assert {0: (None, "SIGSEGV"), 1: (3, None), 3: (None, "SIGKILL")} == ended


def test_a_crash_message_contains_all_known_facts():
    with pool_of(4, workers=2) as pool:
        pool.reset()
        plan(pool, 1, "step", ENDS["exit 3"][0])
        pid = pool.workers[0].pid
        error = failure_of(pool.step, numbers(1, 2, 3, 4))

    assert (
        f"worker 0 (pid {pid}) exited with code 3 while env 1 was in step(), "
        f"{error.steps} steps after start.\n\n"
        "  environments    0, 1\n"
        "  constructors    functools.partial(tests.parallel.trouble.Troubled, 0)\n"
        "                  functools.partial(tests.parallel.trouble.Troubled, 1)\n"
        '  restarts        not allowed (on_worker_failure="raise")\n\n'
        "envkit did not ask it to: the environment, or native code under it, called "
        "os._exit() or exit(). The other worker is idle and unharmed.\n"
        "To replace crashed workers and go on, pass on_worker_failure=RestartPolicy()."
    ) == str(error)


def test_a_crash_in_native_code_shows_where_it_was():
    with pool_of(1) as pool:
        pool.reset()
        plan(pool, 0, "step", ENDS["SIGSEGV"][0])
        error = failure_of(pool.step, numbers(1))

    assert "  last stderr     Fatal Python error: Segmentation fault\n" in str(error)
    assert "in send_myself\n" in str(error)
    assert "Signal SIGSEGV comes from native code. No other worker is left." in str(
        error
    )


def test_a_crash_while_closing_does_not_stop_close():
    with pool_of(len(ENDS)) as pool:
        pool.reset()
        pids = [worker.pid for worker in pool.workers]
        for row, (trouble, _, _) in enumerate(ENDS.values()):
            plan(pool, row, "close", trouble)
    assert [] == [pid for pid in pids if is_running(pid)]


@pytest.mark.parametrize("how", ["SIGSEGV", "exit 0"])
def test_a_constructor_that_crashes_is_named(how):
    trouble, known, text = ENDS[how]
    began = time.monotonic()
    error = failure_of(
        ParallelPyEnvironment,
        [Troubled, functools.partial(Troubled, 1, "constructor", trouble), Troubled],
        num_workers=3,
        start_method="fork",
        start_serially=False,
    )

    assert time.monotonic() - began < PROMPTLY
    assert (WorkerCrashed, 1, (1,)) == (type(error), error.worker, error.envs)
    assert known == (error.exitcode, error.signal)
    assert (
        f"worker 1 (pid {error.pid}) {text} while an environment was being constructed."
    ) == first_line(error)


# Workers that misbehave.


def test_printing_disturbs_nothing(capfd):
    with pool_of(2, start_method="spawn") as pool:
        before = pool.reset()
        plan(pool, 0, "step", print_a_lot)
        after = pool.step(numbers(1, 2))
    out = capfd.readouterr().out
    assert [] == wrong_rows(before, numbers(1, 2), after)
    assert 20 * 100_001 + 27 == len(out)


def test_much_output_on_standard_error_disturbs_nothing(capfd):
    with pool_of(2) as pool:
        before = pool.reset()
        plan(pool, 0, "step", complain_a_lot)
        after = pool.step(numbers(1, 2))
    told = capfd.readouterr().err
    assert [] == wrong_rows(before, numbers(1, 2), after)
    assert 10 * 100_003 == len(told)


@pytest.mark.skipif(sys.platform != "linux", reason="frees memory on Linux only")
def test_forwarded_standard_error_is_freed(capfd):
    with pool_of(1, start_method="spawn") as pool:
        pool.reset()
        pool.call("do", flood)
        # The parent looks at intervals: all hundred megabytes may stand there for one.
        assert until(lambda: pool.call("do", bytes_of_stderr)[0] < 20_000_000)
    told = capfd.readouterr().err
    assert "were skipped; it writes faster than they can be shown]" in told


def test_a_standard_error_without_a_reader_delays_no_step(tmp_path):
    read, write = os.pipe()
    program = textwrap.dedent(
        """
        import functools, os, sys
        import envkit
        from envkit.testing import CountingEnv

        class Loud(CountingEnv):
            def _step(self, action):
                os.write(2, b"x" * 1_000_000)
                return super()._step(action)

        with envkit.ParallelPyEnvironment([Loud] * 2, step_timeout=30.0) as env:
            env.reset()
            for _ in range(20):
                env.step([0, 0])
        print("done")
        """
    )
    try:
        finished = subprocess.run(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=write,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    finally:
        os.close(read)
        os.close(write)

    assert (0, "done\n") == (finished.returncode, finished.stdout)


def test_the_last_lines_of_standard_error_are_in_the_error():
    with pool_of(1) as pool:
        pool.reset()
        pool.call("do", complain_a_lot)
        pool.call("do", functools.partial(os.write, 2, b"\xff\xfe no text\nlast words"))
        plan(pool, 0, "step", ENDS["exit 3"][0])
        error = failure_of(pool.step, numbers(1))

    assert "\ufffd\ufffd no text\nlast words" == "\n".join(
        error.stderr_tail.splitlines()[-2:]
    )
    assert len(str(error)) < 5000


def test_output_appended_to_standard_error_is_not_overwritten():
    with pool_of(1) as pool:
        pool.reset()
        pool.call("do", complain_with_a_program)
        plan(pool, 0, "step", ENDS["exit 3"][0])
        error = failure_of(pool.step, numbers(1))
    assert "first\nsecond\nthird" == error.stderr_tail


def test_a_constructor_that_closes_its_descriptors_counts_as_crashed():
    error = failure_of(
        ParallelPyEnvironment,
        [functools.partial(Troubled, 0, "constructor", close_all_files)],
        start_method="spawn",
    )
    assert (WorkerCrashed, 0) == (type(error), error.worker)
    assert "Bad file descriptor" in str(error)


def test_a_worker_that_closes_its_descriptors_counts_as_crashed():
    with pool_of(2, start_method="spawn") as pool:
        pool.reset()
        for row, where in enumerate(["step", "meet"]):
            plan(pool, row, where, close_all_files)
            ask = MOMENTS[where][0]
            if where == "step":
                # Its answer was written before the descriptors were missed.
                with contextlib.suppress(WorkerCrashed):
                    ask(pool, row)
            error = failure_of(ask, pool, row)

            assert (WorkerCrashed, row) == (type(error), error.worker)
            assert "Bad file descriptor" in str(error)


def start_helpers(folder):
    """Starts what simulators start: children, with children, and a pool of them."""
    import subprocess

    child = "import os, sys, time; os.fork(); " + (
        "open(sys.argv[1] + str(os.getpid()), 'w').close(); time.sleep(600)"
    )
    subprocess.Popen([sys.executable, "-S", "-c", child, folder])
    context = multiprocessing.get_context("fork")
    context.Process(target=help_out, args=(folder,)).start()
    if not os.fork():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        help_out(folder)


def help_out(folder):
    Path(f"{folder}{os.getpid()}").touch()
    time.sleep(600)


def helpers(folder):
    return [int(path.name) for path in Path(folder).iterdir()]


HELPERS = 4


@pytest.mark.parametrize("end", ["close", "crash", "kill", "timeout"])
def test_child_processes_of_a_worker_end_with_it(end, tmp_path):
    with pool_of(2, workers=1, step_timeout=30.0) as pool:
        pool.reset()
        pool.call("do", start_helpers, f"{tmp_path}/", env_ids=[1])
        assert until(lambda: len(helpers(tmp_path)) == HELPERS)
        pids = helpers(tmp_path)
        running = [pid for pid in pids if is_running(pid)]
        if end == "crash":
            plan(pool, 0, "step", ENDS["SIGSEGV"][0])
            failure_of(pool.step, numbers(1, 2))
        elif end == "kill":
            os.kill(pool.workers[0].pid, signal.SIGKILL)
            failure_of(pool.step, numbers(1, 2))
        elif end == "timeout":
            pool._pool._backend.kill(0)
            failure_of(pool.step, numbers(1, 2))
        if end != "close":
            assert until(lambda: not any(map(is_running, pids)), PROMPTLY)

    assert pids == running
    assert until(lambda: not any(map(is_running, pids)), PROMPTLY)


def ignore_terminate():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def hang():
    while True:
        time.sleep(600)


def test_close_ends_a_worker_that_hangs_and_ignores_sigterm():
    pool = pool_of(3)
    pool.reset()
    pids = [worker.pid for worker in pool.workers]
    pool.call("do", ignore_terminate)
    plan(pool, 0, "close", hang)
    # Asked, and never answered: nobody waits for it.
    plan(pool, 1, "meet", hang)
    pool.envs[1].call("meet")
    began = time.monotonic()
    pool.close(grace=0.3)
    took = time.monotonic() - began

    assert [] == [pid for pid in pids if is_running(pid)]
    assert took < 0.3 + PROMPTLY


# Constructors.


class Other(CountingEnv):
    """Has another observation spec."""

    def observation_spec(self):
        return ArraySpec((2,), np.float32)


def nothing():
    return None


def a_class():
    return CountingEnv


SHARED = CountingEnv()


def shared():
    return SHARED


@pytest.mark.parametrize("backend", ["inline", "process"])
@pytest.mark.parametrize(
    ("second", "kind", "line"),
    [
        (
            raises(TwoArguments, 7, "left"),
            ConstructorError,
            "env_constructors[1] raised TwoArguments: 7 at left in worker 0.",
        ),
        (
            nothing,
            ConstructorError,
            "env_constructors[1] (tests.parallel.test_life_and_death.nothing) returned "
            "None, not an environment. A constructor must return a PyEnvironment, "
            "or an environment of a library that envkit knows.",
        ),
        (
            a_class,
            ConstructorError,
            "env_constructors[1] (tests.parallel.test_life_and_death.a_class) returned "
            "the class CountingEnv, not an environment. A constructor must return a "
            "PyEnvironment, or an environment of a library that envkit knows.",
        ),
        (
            shared,
            ConstructorError,
            "env_constructors[1] returned an environment that another constructor has "
            "returned already. Each row needs an environment of its own: build it "
            "inside the constructor.",
        ),
        (
            Other,
            SpecMismatchError,
            "env 0 and env 1 have different observation specs, so they cannot form one "
            "batch.",
        ),
    ],
    ids=["raises", "nothing", "class", "same", "specs"],
)
def test_a_constructor_that_does_not_fit_is_named(backend, second, kind, line):
    with pytest.raises(kind) as caught:
        ParallelPyEnvironment(
            [shared, second], num_workers=1, backend=backend, start_method="fork"
        )
    error = caught.value
    told = re.sub(r" \(pid \d+\)", "", first_line(error))

    assert line == told
    if kind is ConstructorError:
        assert (0, (1,)) == (error.worker, error.envs)


class MetByBoth(CountingEnv):
    """Two threads look at it at the same time, before a pool accepts it."""

    def __init__(self):
        super().__init__()
        self.both = threading.Barrier(2)
        self.seen_by = set()

    @property
    def autoreset(self):
        if threading.get_ident() not in self.seen_by:
            self.seen_by.add(threading.get_ident())
            self.both.wait(PATIENCE)
        return super().autoreset


def test_threads_that_return_one_environment_at_the_same_time_are_refused():
    one = MetByBoth()
    with pytest.raises(ConstructorError, match="has returned already"):
        ParallelPyEnvironment([lambda: one] * 2, backend="thread", start_serially=False)


def test_failing_constructors_in_several_workers_are_all_reported():
    error = failure_of(
        ParallelPyEnvironment,
        [raises(KeyError, "a"), CountingEnv, raises(KeyError, "b")],
        num_workers=3,
        start_method="fork",
        start_serially=False,
    )

    assert {0, 2} == {error.worker, *(other.worker for other in error.also)}


def test_serial_starts_stop_at_the_first_failing_constructor(tmp_path):
    def build():
        (tmp_path / "built").touch()
        return CountingEnv()

    error = failure_of(
        ParallelPyEnvironment,
        [raises(KeyError, "a"), build],
        num_workers=2,
        start_method="fork",
        start_serially=True,
    )

    assert (0, (0,)) == (error.worker, error.envs)
    assert not (tmp_path / "built").exists()


def test_when_one_constructor_fails_the_environments_of_the_others_are_closed(
    tmp_path,
):
    mark = functools.partial(Path.touch, tmp_path / "closed")
    failure_of(
        ParallelPyEnvironment,
        [functools.partial(Troubled, 0, "close", mark), raises(ValueError, "no")],
        num_workers=2,
        start_method="fork",
    )

    assert (tmp_path / "closed").exists()


def test_environments_are_built_and_closed_once_and_in_their_workers(tmp_path):
    def note(name):
        with (tmp_path / name).open("a") as file:
            print(os.getpid(), threading.get_native_id(), file=file)

    def make(env):
        env = Troubled(env, "close", functools.partial(note, f"{env} closed"))
        note(f"{env.env_id} built")
        return env

    with pool_of(3, workers=2, make=make) as pool:
        pool.reset()
        pids = [worker.pid for worker in pool.workers]

    assert {
        f"{env} {what}": f"{pids[env // 2]} {pids[env // 2]}\n"
        for env in range(3)
        for what in ("built", "closed")
    } == {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()}


# An environment's fork that comes back.


@pytest.mark.parametrize(
    ("where", "how", "start_method"),
    [
        ("constructor", "returns", "fork"),
        ("reset", "returns", "fork"),
        ("step", "returns", "fork"),
        ("render", "returns", "fork"),
        ("step", "raises", "fork"),
        ("step", "returns", "spawn"),
        ("constructor", "raises", "forkserver"),
    ],
)
def test_a_fork_that_returns_from_user_code_ends_silently(
    where, how, start_method, capfd
):
    makers = [functools.partial(Forking, where, how), CountingEnv]
    with ParallelPyEnvironment(
        makers, num_workers=1, start_method=start_method
    ) as pool:
        pool.reset()
        seen = [
            pool.step([0, 0], mask).observation.tolist()
            for mask in (None, None, [True, False])
        ]
        pool.call("render", env_ids=[0])
        worker = pool.workers[0].pid
    told = capfd.readouterr().err

    assert [[1, 1], [2, 2], [3, 2]] == seen
    assert (
        f"which an environment has forked, came back into worker process {worker} and "
        "ends here." in told
    )


def test_an_environment_may_use_multiprocessing():
    with ParallelPyEnvironment([WithMultiprocessing] * 2, num_workers=1) as pool:
        pool.reset()
        seen = [pool.step([0, 0]).observation.tolist() for _ in range(2)]
    assert [[1, 1], [2, 2]] == seen


# Exceptions that are too large.


def raise_at_length():
    try:
        raise KeyError("k" * 6_000_000)
    except KeyError as error:
        raise OSError(5, "x" * 6_000_000, "level.xml") from error


def test_a_large_exception_is_cut_and_its_size_named():
    with pool_of(1) as pool:
        pool.reset()
        plan(pool, 0, "step", raise_at_length)
        error = failure_of(pool.step, numbers(1))

    assert isinstance(error, OSError)
    assert "x … (6,000,000 characters long)" in str(error.__cause__)
    assert (5, "level.xml") == (error.__cause__.errno, error.__cause__.filename)
    assert "k … (6,000," in error.remote_traceback
    assert len(str(error)) < 100_000
    assert len(pickle.dumps(error)) < 200_000


def chained(count, link):
    """Returns an exception before which there were others, one after the other."""
    error = None
    for number in range(count):
        before, error = error, ValueError(f"number {number}")
        setattr(error, link, before)
    return error


def groups_of(*errors):
    return builtins.ExceptionGroup("several", list(errors))


def told_of(error):
    """Returns which exceptions a traceback names, how many it leaves out, and all."""

    def throw():
        raise error

    with pool_of(1, backend="inline") as pool:
        pool.reset()
        plan(pool, 0, "step", throw)
        text = failure_of(pool.step, numbers(1)).remote_traceback
    named = [int(number) for number in re.findall(r"ValueError: number (\d+)", text)]
    return named, re.findall(r"… ([0-9,]+) more exceptions", text), text


@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_a_long_chain_of_exceptions_is_shown_by_its_ends(link):
    named, more, text = told_of(chained(3000, link))
    assert ([0, 1, 2, *range(2995, 3000)], ["2,992"]) == (named, more)
    assert len(text) < 4000


@pytest.mark.parametrize("link", ["__cause__", "__context__"])
def test_a_short_chain_of_exceptions_is_shown_whole(link):
    assert (list(range(9)), []) == told_of(chained(9, link))[:2]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there are no groups")
def test_long_chains_in_exception_groups_are_shown_by_their_ends():
    inner = groups_of(chained(3000, "__context__"))
    named, more, _ = told_of(groups_of(inner, chained(4, "__cause__")))
    assert [0, 1, 2, *range(2995, 3000), 0, 1, 2, 3] == named
    assert ["2,992"] == more


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there are no groups")
def test_a_traceback_is_never_longer_than_can_be_read():
    groups = [
        groups_of(*[ValueError(f"number {number}" + "x" * 500)] * 15)
        for number in range(15)
    ]
    text = told_of(groups_of(*groups))[2]
    assert len(text) < 61_000
    assert "characters are left out here" in text
