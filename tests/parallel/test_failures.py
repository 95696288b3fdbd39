"""From what a worker says to the error that people read, and how that error travels."""

from __future__ import annotations

import builtins
import copy
import dataclasses
import errno
import gc
import os
import pickle
import sys
import threading
import traceback
import weakref

import cloudpickle
import numpy as np
import pytest

from envkit.errors import (
    ConstructorError,
    EnvironmentRaised,
    SpecError,
    WorkerCrashed,
)
from envkit.parallel import failures
from envkit.parallel.endings import Ending, gone
from envkit.parallel.messages import ExitReport, RemoteFailure

MAKER = "my_game.envs:make"


class Kept(RemoteFailure):
    """A failure whose exception is at hand, whether or not it could have travelled."""

    def original(self):
        return self.exception


def failure_of(error, *, exception=True, traceback="Traceback …\n", **facts):
    given = {"kind": "raised", "env": 21, "command": "step", "pid": 77}
    given |= {"type_name": type(error).__name__, "message": str(error)}
    failure = Kept(**(given | {"traceback": traceback} | facts))
    failure.exception = error if exception else None
    return failure


def raised(error, reason="", maker="", worker=5, envs=(21,), **facts):
    failure = failure_of(error, **facts)
    return failures.raised(worker, failure, maker, reason, envs=envs)


def built(error, **facts):
    """Returns the error for a constructor that raised."""
    facts = {"kind": "constructor", "env": 2, "command": "construct"} | facts
    return failures.construction(1, failure_of(error, **facts), lambda env: MAKER)


def crashed(**facts):
    given = {"command": "step", "env": 21, "envs": (20, 21, 22, 23), "makers": ()}
    given |= {"reason": ""} | facts
    report = {"worker": 5, "pid": 41822, "signal": "SIGSEGV"}
    report |= {name: given.pop(name) for name in ExitReport._fields if name in given}
    return Ending(report=ExitReport(**report), **given).error()


def late(**facts):
    given = {"envs": (7,), "env": 7, "command": "step", "timeout": 2.0, "makers": ()}
    report = {"worker": 3, "pid": 77}
    given |= facts
    report |= {name: given.pop(name) for name in ExitReport._fields if name in given}
    return Ending(report=ExitReport(**report), **given).error()


# From Python 3.11 on.
ExceptionGroup = getattr(builtins, "ExceptionGroup", None)


class SimulatorError(Exception):
    """A user's exception, as people write them."""

    def __init__(self, level, *, code):
        super().__init__(f"level {level} failed with code {code}")
        self.level = level
        self.code = code

    @property
    def advice(self):
        return f"see code {self.code}"


class SlottedError(ValueError):
    __slots__ = ("place", "unset")

    def __init__(self, place):
        super().__init__(place)
        self.place = place


class StatedError(Exception):
    """One that says itself how it is pickled."""

    def __init__(self, code, lock):
        super().__init__(code)
        self.code, self.lock = code, lock

    def __reduce__(self):
        return StatedError, (self.code, None)


class RuntimeErrorWithTwoArguments(RuntimeError):
    def __init__(self, one, two):
        super().__init__(one, two)


class WilfulError(Exception):
    """One that has everything its own way."""

    worker = property(lambda self: "theirs")

    def __init_subclass__(cls, *, code):
        raise AssertionError("nobody announced this class")

    def __setattr__(self, name, value):
        raise AttributeError(name)


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    code: int


class SecretiveError(Exception):
    @property
    def args(self):
        raise PermissionError("not even its args")


ALLOW = "To {} and go on, pass on_worker_failure=RestartPolicy()."


def test_a_crash_message_names_worker_cause_request_and_remedy():
    error = crashed(
        steps=10482,
        makers=["functools.partial(my_game.envs.make, level=3)"] * 4,
        reason='not allowed (on_worker_failure="raise")',
        stderr_tail="Fatal Python error: Segmentation fault\n"
        '  File "my_game/render.py", line 88 in draw\n',
        others=7,
        resident=10**9,
    )

    assert (
        "worker 5 (pid 41822) was killed by SIGSEGV while env 21 was in step(), "
        "10 482 steps after start.\n"
        "\n"
        "  environments    20, 21, 22, 23\n"
        "  constructor     functools.partial(my_game.envs.make, level=3)\n"
        '  restarts        not allowed (on_worker_failure="raise")\n'
        "  last stderr     Fatal Python error: Segmentation fault\n"
        '                    File "my_game/render.py", line 88 in draw\n'
        "\n"
        "Signal SIGSEGV comes from native code. The other 7 workers are idle and "
        "unharmed.\n"
        "To replace crashed workers and go on, pass on_worker_failure=RestartPolicy()."
    ) == str(error)
    assert (5, 41822, (20, 21, 22, 23)) == (error.worker, error.pid, error.envs)
    assert (None, "SIGSEGV") == (error.exitcode, error.signal)
    assert ("step", 21, 10482) == (error.command, error.env, error.steps)
    assert error.stderr_tail.startswith("Fatal Python error")
    assert 10**9 == error.resident


def test_a_crash_message_without_facts_says_only_that_it_happened():
    error = crashed(pid=0, signal=None, command="", env=None, envs=())
    assert "worker 5 ended." == str(error)
    assert error.resident is None


@pytest.mark.parametrize(
    ("facts", "first_line"),
    [
        (
            {"signal": None, "exitcode": 3, "command": "reset", "steps": 1},
            "exited with code 3 while env 21 was in reset(), 1 step after start.",
        ),
        (
            {"signal": None, "exitcode": 0, "command": None, "env": None},
            "exited with code 0 while it was idle.",
        ),
        (
            {"command": "construct"},
            "was killed by SIGSEGV while env 21 was being constructed.",
        ),
        (
            {"command": "rebuild", "steps": 0},
            "was killed by SIGSEGV while env 21 was being rebuilt, before its first "
            "step.",
        ),
        (
            {"command": "call('level')"},
            "was killed by SIGSEGV while it answered call('level').",
        ),
        (
            {"env": None},
            "was killed by SIGSEGV while an environment was in step().",
        ),
        (
            {"command": "", "steps": 1234567},
            "was killed by SIGSEGV, 1 234 567 steps after start.",
        ),
    ],
)
def test_the_first_line_of_a_crash_says_what_the_worker_was_doing(facts, first_line):
    line = str(crashed(**facts)).partition("\n")[0]
    assert f"worker 5 (pid 41822) {first_line}" == line


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        *[
            ({"signal": name}, f"Signal {name} comes from native code.")
            for name in ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL")
        ],
        (
            {"signal": "SIGKILL", "resident": 6_123_000_000},
            "envkit never sends SIGKILL during step(); on Linux the usual sender "
            "is the out-of-memory killer. This worker held 6.1 GB when last seen.",
        ),
        (
            {"signal": "SIGKILL", "resident": 87_000_000, "command": None},
            "envkit never sends SIGKILL to an idle worker; on Linux the usual "
            "sender is the out-of-memory killer. This worker held 87 MB when last "
            "seen.",
        ),
        (
            {"signal": "SIGKILL", "command": "construct"},
            "envkit never sends SIGKILL while an environment is being constructed; "
            "on Linux the usual sender is the out-of-memory killer.",
        ),
        (
            {"signal": "SIGKILL", "command": "render()"},
            "envkit never sends SIGKILL during render(); on Linux the usual sender "
            "is the out-of-memory killer.",
        ),
        (
            {"signal": "SIGKILL", "command": ""},
            "envkit never sends SIGKILL to a worker in use; on Linux the usual "
            "sender is the out-of-memory killer.",
        ),
        (
            {"signal": "SIGTERM"},
            "SIGTERM came from another program, a person, or the environment itself.",
        ),
        (
            {"signal": None, "exitcode": 0},
            "envkit did not ask it to: the environment, or native code under it, "
            "called os._exit() or exit().",
        ),
    ],
)
def test_the_last_paragraph_of_a_crash_names_the_usual_cause(facts, cause):
    assert cause == str(crashed(**facts)).rpartition("\n\n")[2]


@pytest.mark.parametrize(
    ("others", "sentence"),
    [
        (0, "No other worker is left."),
        (1, "The other worker is idle and unharmed."),
        (2, "The other 2 workers are idle and unharmed."),
    ],
)
def test_a_crash_message_reports_on_the_other_workers(others, sentence):
    assert (
        f"Signal SIGSEGV comes from native code. {sentence}"
        == (str(crashed(others=others)).rpartition("\n\n")[2])
    )


@pytest.mark.parametrize(
    ("restarts", "remedy"),
    [
        ("not allowed (max_reason=0)", ALLOW.format("replace crashed workers")),
        (
            "3 of 3 within 60 s used up",
            "Its RestartPolicy allows no further restart: 3 of 3 within 60 s used up. "
            "What fails so often has a cause that a restart does not cure.",
        ),
    ],
)
def test_a_crash_advises_a_policy_unless_its_restarts_are_used_up(restarts, remedy):
    assert (
        "worker 5 (pid 41822) was killed by SIGSEGV while env 21 was in step().\n"
        "\n"
        "  environments    20, 21, 22, 23\n"
        f"  restarts        {restarts}\n"
        "\n"
        "Signal SIGSEGV comes from native code.\n"
        f"{remedy}"
    ) == str(crashed(reason=restarts))


def test_only_the_first_constructors_of_a_crashed_worker_are_named():
    error = crashed(envs=range(40), makers=[*"aabbc", "", *"def"])

    assert (
        "  environments    0, 1, 2, 3, 4, 5, 6, 7 and 32 more\n"
        "  constructors    a\n"
        "                  b\n"
        "                  c\n"
        "                  d\n"
        "                  and 2 more"
    ) == str(error).split("\n\n")[1]


def test_long_crash_reports_show_their_first_lines():
    """They have the cause and the innermost calls."""
    report = ["Fatal Python error: Aborted", *(f"  line {n}" for n in range(100))]
    error = crashed(stderr_tail="\n".join(["noise", *report, ""]))
    assert (
        "  environments    20, 21, 22, 23\n"
        "  last stderr     Fatal Python error: Aborted\n"
        + "\n".join(f"                    line {n}" for n in range(11))
    ) == str(error).split("\n\n")[1]


def test_other_output_shows_its_last_lines_shortened():
    error = crashed(stderr_tail="\n".join([*map(str, range(30)), "x" * 300]))
    assert (
        "  environments    20, 21, 22, 23\n"
        "  last stderr     19\n"
        + "".join(f"                  {n}\n" for n in range(20, 30))
        + f"                  {'x' * 200} …"
    ) == str(error).split("\n\n")[1]


def test_a_worker_lost_earlier_is_reported_with_all_facts():
    error = gone(crashed(steps=3), "reset")

    assert (
        "reset() needs worker 5 (pid 41822), which was lost in an earlier call; it was "
        "killed by SIGSEGV while env 21 was in step(), 3 steps after start.\n"
        "\n"
        "  environments    20, 21, 22, 23\n"
        "\n"
        "Signal SIGSEGV comes from native code."
    ) == str(error)
    assert vars(crashed(steps=3)) == vars(error)


def test_a_worker_killed_earlier_for_a_timeout_is_reported():
    error = gone(late(), "step")

    assert (
        "step() needs worker 3 (pid 77), which was lost in an earlier call; it did not "
        "answer within 2 s: env 7 was in step().\n"
        "\n"
        "  environment     7\n"
        "\n"
        "The worker was killed, and every process that it had started.\n"
        "If it may take longer, pass a larger step_timeout."
    ) == str(error)
    assert (3, (7,), 77) == (error.worker, error.envs, error.pid)
    assert ("step", 7, "") == (error.command, error.env, error.stderr_tail)


def test_a_timeout_message_names_request_outcome_and_remedy():
    error = late(
        makers=["my_game.envs:make"],
        reason='not allowed (on_worker_failure="raise")',
        stderr_tail="waiting for the licence server\n",
    )

    assert (
        "worker 3 (pid 77) did not answer within 2 s: env 7 was in step().\n"
        "\n"
        "  environment     7\n"
        "  constructor     my_game.envs:make\n"
        '  restarts        not allowed (on_worker_failure="raise")\n'
        "  last stderr     waiting for the licence server\n"
        "\n"
        "The worker was killed, and every process that it had started.\n"
        "If it may take longer, pass a larger step_timeout.\n"
        "To replace late workers and go on, pass on_worker_failure=RestartPolicy()."
    ) == str(error)
    assert (3, 77, (7,)) == (error.worker, error.pid, error.envs)
    assert ("step", 7, 2.0) == (error.command, error.env, error.timeout)
    assert "waiting for the licence server\n" == error.stderr_tail


def test_a_late_thread_says_that_it_cannot_be_killed():
    assert (
        "worker 3 did not answer within 0.5 s: env 7 was in reset().\n"
        "\n"
        "  environment     7\n"
        "\n"
        "A thread cannot be killed: it was given up, and runs on until the environment "
        "returns.\n"
        "If it may take longer, pass a larger reset_timeout."
    ) == str(late(killed=False, command="reset", timeout=0.5))


@pytest.mark.parametrize(
    ("command", "during", "remedy"),
    [
        (
            "construct",
            ": env 7 was being constructed",
            "\nIf it may take longer, pass a larger start_timeout.",
        ),
        (
            "rebuild",
            ": env 7 was being rebuilt",
            "\nIf it may take longer, pass a larger reset_timeout.",
        ),
        ("render()", ": it answered render()", ""),
        ("", "", ""),
    ],
)
def test_a_timeout_message_names_the_option_for_more_time(command, during, remedy):
    assert (
        f"worker 3 (pid 77) did not answer within 2 s{during}.\n"
        "\n"
        "  environment     7\n"
        "\n"
        f"The worker was killed, and every process that it had started.{remedy}"
    ) == str(late(command=command))


@pytest.mark.parametrize("through", ["construction", "raised"])
def test_a_constructor_error_names_constructor_place_and_remedy(through):
    original = KeyError("level")
    if through == "construction":
        error = built(original)
    else:
        error = raised(original, maker=MAKER, worker=1, kind="constructor", env=2)

    assert (
        "env_constructors[2] raised KeyError: 'level' in worker 1 (pid 77).\n"
        "\n"
        "  environment     2\n"
        "  constructor     my_game.envs:make\n"
        "\n"
        "Traceback …\n"
        "\n"
        "To look at it without a worker, call the constructor yourself or pass "
        'backend="inline".'
    ) == str(error)
    assert isinstance(error, ConstructorError)
    assert (1, (2,), "Traceback …\n") == (
        error.worker,
        error.envs,
        error.remote_traceback,
    )
    assert original is error.__cause__


@pytest.mark.parametrize(
    ("facts", "beginning"),
    [
        ({"pid": os.getpid()}, "env_constructors[2] raised OSError: no in worker 1."),
        ({"kind": "setup", "env": -1}, "worker_setup raised OSError: no in worker 1 ("),
        ({"env": -1}, "The specs of an environment raised OSError: no in worker 1 ("),
    ],
)
def test_requests_before_construction_have_a_name(facts, beginning):
    error = built(OSError("no"), **facts)
    assert str(error).startswith(beginning)
    assert ("env" in facts) == (error.envs == ()) == (MAKER not in str(error))


def test_a_failed_restart_names_the_likely_shortage():
    lacking = OSError(errno.EMFILE, "Too many open files")
    error = built(lacking, kind="start", env=-1)
    assert str(error).startswith(
        "worker 1 could not be started again: [Errno 24] Too many open files. A pool "
    )
    assert (1, ()) == (error.worker, error.envs)
    other = built(OSError("There is no such command."), kind="start", env=-1)
    assert str(other) == (
        "worker 1 could not be started again: There is no such command."
    )


@pytest.mark.parametrize("command", ["construct", "rebuild"])
def test_envkits_own_messages_are_kept_unchanged(command):
    said = ConstructorError.no_environment("env_constructors[5] (make)", None)
    if command == "construct":
        error = built(said, env=5)
    else:
        error = raised(said, worker=1, env=5, command=command)

    assert (
        "env_constructors[5] (make) returned None, not an environment. "
        "A constructor must return a PyEnvironment, "
        "or an environment of a library that envkit knows."
    ) == str(error)
    assert (1, (5,)) == (error.worker, error.envs)


def test_an_environment_rebuilt_with_other_specs_is_reported():
    error = failures.differs(1, 5, MAKER, "The shape differs: () and (2,).")
    assert (
        "env 5, built anew in worker 1 by my_game.envs:make, is unlike the one before. "
        "The shape differs: () and (2,). A constructor must build the same kind of "
        "environment each time."
    ) == str(error)
    assert (1, (5,)) == (error.worker, error.envs)


def test_an_environment_error_names_error_place_and_remedy():
    error = raised(
        ZeroDivisionError("division by zero"),
        'not allowed (on_worker_failure="raise")',
        MAKER,
        exception=False,
        traceback="Traceback (most recent call last):\n"
        '  File "my_game/envs.py", line 7, in step\n'
        "    1 / 0\n"
        "ZeroDivisionError: division by zero\n",
    )

    assert (
        "env 21 raised ZeroDivisionError: division by zero in step().\n"
        "\n"
        "  worker          5\n"
        "  constructor     my_game.envs:make\n"
        '  restarts        not allowed (on_worker_failure="raise")\n'
        "\n"
        "Traceback (most recent call last):\n"
        '  File "my_game/envs.py", line 7, in step\n'
        "    1 / 0\n"
        "ZeroDivisionError: division by zero\n"
        "\n"
        "Worker 5 lives on. reset(), or reset(mask) for this row alone, begins a new "
        "episode.\n"
        "To have such environments built anew and go on, pass "
        "on_worker_failure=RestartPolicy()."
    ) == str(error)
    assert EnvironmentRaised is type(error)
    assert (5, (21,), "step", ()) == (
        error.worker,
        error.envs,
        error.command,
        error.also,
    )
    assert error.remote_traceback.startswith("Traceback (most")
    assert (str(error),) == error.args


@pytest.mark.parametrize(
    ("facts", "first_line", "remedy"),
    [
        (
            {"command": "reset", "env": -1},
            "env 21 raised ValueError: no in reset().",
            "Worker 5 lives on. reset(), or reset(mask) for this row alone, begins a "
            "new episode.",
        ),
        (
            {"command": "rebuild"},
            "env 21 raised ValueError: no while it was being rebuilt.",
            "Worker 5 lives on.",
        ),
        (
            {"command": "render()"},
            "env 21 raised ValueError: no in render().",
            "Worker 5 lives on.",
        ),
        ({"command": ""}, "env 21 raised ValueError: no.", "Worker 5 lives on."),
        (
            {"command": None, "message": ""},
            "env 21 raised ValueError.",
            "Worker 5 lives on.",
        ),
        (
            {"message": "The first sentence.\nThe second.", "command": "render()"},
            "env 21 raised ValueError in render(): The first sentence. …",
            "Worker 5 lives on.",
        ),
        (
            {"message": "It is over.", "command": "render()"},
            "env 21 raised ValueError in render(): It is over.",
            "Worker 5 lives on.",
        ),
        (
            {"message": "There is no action 7."},
            "env 21 raised ValueError in step(): There is no action 7.",
            "If the action was wrong, send another: an environment built anew would "
            "refuse it too.",
        ),
        (
            {"message": "x" * 201, "command": "render()"},
            f"env 21 raised ValueError in render(): {'x' * 200} …",
            "Worker 5 lives on.",
        ),
    ],
)
def test_the_first_and_the_last_line_suit_what_the_environment_was_doing(
    facts, first_line, remedy
):
    lines = str(raised(ValueError("no"), **facts)).splitlines()
    assert (first_line, remedy) == (lines[0], lines[-1])


def test_no_restart_is_advised_for_what_an_environments_code_does_wrong():
    error = raised(
        SpecError("Maze._step() returned None, not a TimeStep."),
        'not allowed (on_worker_failure="raise")',
    )
    assert "RestartPolicy" not in str(error)


def test_environment_errors_are_caught_as_the_class_raised():
    original = FileNotFoundError(2, "No such file", "level.xml")
    try:
        raise raised(original)
    except FileNotFoundError as error:
        caught = error

    assert isinstance(caught, EnvironmentRaised)
    assert (2, "level.xml", "No such file") == (
        caught.errno,
        caught.filename,
        caught.strerror,
    )
    assert (2, "No such file") == caught.args
    assert str(caught).startswith(
        "env 21 raised FileNotFoundError: [Errno 2] No such file: 'level.xml' in step()"
    )
    assert original is caught.__cause__
    assert "EnvironmentRaised[FileNotFoundError]" == type(caught).__name__
    assert EnvironmentRaised.__doc__ == type(caught).__doc__


def test_errors_of_one_user_class_share_one_class():
    assert type(raised(KeyError(1))) is type(raised(KeyError(2)))


def test_attributes_of_the_users_exception_are_kept():
    original = SimulatorError(3, code=7)
    original.envs = "theirs"
    original.__notes__ = ["try again"]
    error = raised(original)

    assert isinstance(error, SimulatorError)
    assert (3, 7, "see code 7") == (error.level, error.code, error.advice)
    assert ((21,), "theirs") == (error.envs, error.__cause__.envs)
    # Shown with the cause, and nothing is shown twice.
    assert not hasattr(error, "__notes__")


def test_an_unusual_user_class_keeps_what_is_possible():
    original = BaseException.__new__(WilfulError)
    error = raised(original)
    assert isinstance(error, WilfulError)
    assert 5 == error.worker


def test_an_opaque_user_class_is_only_the_cause():
    original = SecretiveError()
    error = raised(original, message="secret")
    assert EnvironmentRaised is type(error)
    assert original is error.__cause__
    assert str(error).startswith("env 21 raised SecretiveError: secret in step().")


def test_a_final_class_is_only_the_cause():
    class Final(type):
        def __new__(cls, name, bases, body):
            if any(isinstance(base, cls) for base in bases):
                raise TypeError("final")
            return super().__new__(cls, name, bases, body)

    class FinalError(Exception, metaclass=Final):
        pass

    original = FinalError("no")
    original.code = 7
    error = raised(original)

    assert EnvironmentRaised is type(error)
    assert (7, original, ("no",)) == (error.code, error.__cause__, error.args)


@pytest.mark.parametrize(
    "original",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        StopIteration(4),
        StopAsyncIteration(),
        SyntaxError("bad", ("f.py", 1, 2, "x")),
    ],
    ids=lambda original: type(original).__name__,
)
def test_exceptions_that_python_acts_on_are_only_the_cause(original):
    error = raised(original)
    assert EnvironmentRaised is type(error)
    assert original is error.__cause__


def test_python_shows_the_message_and_the_cause():
    try:
        raise raised(KeyError("x"))
    except KeyError as error:
        shown = "".join(traceback.format_exception(error))

    assert "KeyError: 'x'\n\nThe above exception was the direct cause" in shown
    assert (
        "envkit.errors.EnvironmentRaised[KeyError]: env 21 raised KeyError: 'x' in "
        "step().\n" in shown
    )


def test_combined_classes_are_freed_with_the_users_classes():
    class Passing(Exception):
        pass

    made = weakref.ref(type(raised(Passing())))
    gc.collect()

    assert made() is None


def test_an_error_of_a_nested_pool_keeps_its_class():
    inner = raised(SimulatorError(3, code=7), env=1, worker=0)
    outer = raised(inner, message="short")

    assert type(inner) is type(outer)
    assert (5, (21,), 3, inner) == (
        outer.worker,
        outer.envs,
        outer.level,
        outer.__cause__,
    )
    assert str(outer).startswith("env 21 raised EnvironmentRaised[SimulatorError]: sh")


def test_a_crash_in_a_nested_pool_is_caught_as_a_crash():
    error = raised(crashed())
    assert isinstance(error, WorkerCrashed)
    assert isinstance(error, EnvironmentRaised)
    assert ("SIGSEGV", (21,)) == (error.signal, error.envs)


def test_plain_runtime_errors_need_no_combined_class():
    assert EnvironmentRaised is type(raised(RuntimeError("no")))


def user_exceptions():
    decode_error = UnicodeDecodeError("utf-8", b"abc", 1, 2, "no")
    os_error = OSError(13, "Permission denied", "a", None, "b")
    name_error = NameError("no", name="x")
    listed = [
        ValueError("plain"),
        KeyError("key"),
        os_error,
        FileNotFoundError(2, "No such file"),
        decode_error,
        name_error,
        ImportError("no", name="n", path="p"),
        SystemExit(3),
        StopIteration(4),
        SimulatorError(3, code=7),
        SlottedError("here"),
        FrozenError(3),
        StatedError(3, None),
        RuntimeErrorWithTwoArguments(1, 2),
        SpecError.does_not_fit("It", path="p", expected="e", got="g", reason="r"),
        crashed(),
    ]
    if ExceptionGroup:
        listed.append(ExceptionGroup("two", [SimulatorError(3, code=7), KeyError(1)]))
    return listed


CLONES = {
    "pickle": lambda error: pickle.loads(pickle.dumps(error)),
    "oldest pickle": lambda error: pickle.loads(pickle.dumps(error, 0)),
    "cloudpickle": lambda error: pickle.loads(cloudpickle.dumps(error)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("original", user_exceptions(), ids=lambda o: type(o).__name__)
@pytest.mark.parametrize("clone", CLONES.values(), ids=CLONES)
def test_every_environment_error_can_be_pickled(original, clone):
    error = raised(original)
    names = set(vars(original)) | {
        "errno",
        "strerror",
        "filename",
        "filename2",
        "encoding",
        "object",
        "start",
        "end",
        "reason",
        "message",
    }

    arrived = clone(error)

    assert type(error) is type(arrived)
    assert str(error) == str(arrived)
    assert error.args[:1] == arrived.args[:1]
    assert type(original) is type(arrived.__cause__)
    assert str(original) == str(arrived.__cause__)
    for name in names:
        assert getattr(error, name, None) == getattr(arrived, name, None)
    for name in names - {"worker", "envs", "pid", "command", "also"}:
        if hasattr(original, name):
            assert getattr(original, name) == getattr(error, name)


@pytest.mark.skipif(not ExceptionGroup, reason="groups came with Python 3.11")
def test_a_group_of_exceptions_stays_a_group():
    group = ExceptionGroup("two", [SimulatorError(3, code=7), KeyError(1)])
    error = pickle.loads(pickle.dumps(raised(group)))
    assert isinstance(error, ExceptionGroup)
    assert [SimulatorError, KeyError] == [type(part) for part in error.exceptions]
    assert 7 == error.exceptions[0].code
    assert isinstance(error.split(KeyError)[0], ExceptionGroup)


def test_only_what_cannot_be_pickled_is_lost():
    original = SimulatorError(3, code=7)
    original.lock = threading.Lock()
    error = raised(original)

    arrived = pickle.loads(pickle.dumps(error))

    assert isinstance(arrived, SimulatorError)
    assert (7, False) == (arrived.code, hasattr(arrived, "lock"))
    assert (7, False) == (arrived.__cause__.code, hasattr(arrived.__cause__, "lock"))
    assert str(error) == str(arrived)
    assert hasattr(copy.deepcopy(error), "lock")


def test_errors_of_local_classes_arrive_by_cloudpickle():
    """As in a notebook, or in the main module of somebody else."""

    class LocalError(Exception):
        pass

    arrived = pickle.loads(pickle.dumps(raised(LocalError("no"))))

    assert isinstance(arrived, LocalError)
    assert isinstance(arrived.__cause__, LocalError)


def test_an_error_with_an_unpicklable_class_arrives_with_its_message(monkeypatch):
    class LocalError(Exception):
        pass

    monkeypatch.delitem(sys.modules, "cloudpickle")
    original = LocalError("no")
    original.code = 7
    error = raised(original)

    arrived = pickle.loads(pickle.dumps(error))

    assert EnvironmentRaised is type(arrived)
    assert (str(error), None, 7, ("no",)) == (
        str(arrived),
        arrived.__cause__,
        arrived.code,
        arrived.args,
    )


def test_the_cause_of_raise_from_is_kept():
    error = built(SimulatorError(3, code=7))

    arrived = pickle.loads(pickle.dumps(error))

    assert 7 == arrived.__cause__.code
    assert not copy.copy(late()).__suppress_context__


def test_several_failures_raise_the_first_and_mention_the_others():
    first = raised(KeyError("x"))
    others = [crashed(), late()]

    error = failures.joined([first, *others])

    assert type(first) is type(error)
    assert (
        f"{first}\n"
        "\n"
        "2 other failures in the same call:\n"
        "  - worker 5 (pid 41822) was killed by SIGSEGV while env 21 was in step().\n"
        "  - worker 3 (pid 77) did not answer within 2 s: env 7 was in step()."
    ) == str(error)
    assert tuple(others) == error.also
    assert ((21,), first.__cause__) == (error.envs, error.__cause__)
    assert () == first.also


def test_eight_of_many_failures_are_shown_and_all_are_kept():
    error = failures.joined([crashed(), *(late(worker=n) for n in range(10))])

    assert 10 == len(error.also)
    assert (
        "10 other failures in the same call:\n"
        + "".join(
            f"  - worker {n} (pid 77) did not answer within 2 s: env 7 was in step().\n"
            for n in range(8)
        )
        + "  - and 2 more"
    ) == str(error).rpartition("\n\n")[2]


def test_joined_failures_are_pickled_together():
    error = failures.joined([raised(SimulatorError(3, code=7)), crashed()])

    arrived = pickle.loads(pickle.dumps(error))

    assert str(error) == str(arrived)
    assert [str(crashed())] == [str(other) for other in arrived.also]


def test_a_spec_error_says_only_what_does_not_fit():
    said = SpecError.does_not_fit(
        "env 5 returned an observation that",
        path="observation",
        expected=repr(np.zeros(2)),
        got="None",
        reason="None is not an array.",
    )
    error = raised(said, "not allowed", kind="misfit")

    assert str(said) == str(error)
    assert isinstance(error, EnvironmentRaised)
    assert isinstance(error, SpecError)
    assert "observation" == error.path


def test_a_single_failure_is_unchanged():
    error = raised(ValueError("no"))
    assert error is failures.joined([error])
    assert error is gone(error, "reset")
