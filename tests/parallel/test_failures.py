"""From what a worker says to the error that people read."""

from __future__ import annotations

import os

import numpy as np
import pytest

from envkit.errors import (
    ConstructorError,
    EnvironmentRaised,
    SpecError,
    WorkerCrashed,
    WorkerTimeout,
)
from envkit.parallel import failures
from envkit.parallel.messages import ExitReport, RemoteFailure

MAKER = "my_game.envs.make"


def failure_of(error, **facts):
    """Takes an exception down, with a traceback that is the same always."""
    facts = {"kind": "raised", "env": 5, "command": "step", "pid": 77} | facts
    failure = RemoteFailure.of(error, **facts)
    text = f"Traceback\n  {type(error).__name__}: {error}\n"
    return failure._replace(traceback=text)


def raised(error, reason="", **facts):
    return failures.raised(1, failure_of(error, **facts), MAKER, reason, envs=(5,))


# What an environment raised.


def test_what_an_environment_raises_is_said_with_all_there_is_to_know():
    error = raised(ValueError("no fuel"), "not allowed")

    assert isinstance(error, EnvironmentRaised)
    assert isinstance(error, ValueError)
    assert (1, (5,), "step") == (error.worker, error.envs, error.command)
    assert "Traceback\n  ValueError: no fuel\n" == error.remote_traceback
    assert (
        "env 5 raised ValueError: no fuel in step().\n\n"
        "  worker          1\n"
        f"  constructor     {MAKER}\n"
        "  restarts        not allowed\n\n"
        "Traceback\n  ValueError: no fuel\n\n"
        "Worker 1 lives on. reset(), or reset(mask) for this row alone, begins a new "
        "episode.\n"
        "To have such environments built anew and go on, pass "
        "on_worker_failure=RestartPolicy()."
    ) == str(error)


def test_the_exception_that_was_raised_is_the_cause():
    error = raised(FileNotFoundError(2, "No such file", "level.xml"))

    assert (2, "level.xml") == (error.errno, error.filename)
    assert FileNotFoundError is type(error.__cause__)


def test_a_failure_of_a_whole_worker_is_told_of_its_first_environment():
    assert (5,) == raised(ValueError("no fuel"), env=-1).envs


def test_a_misfit_says_what_does_not_fit_and_nothing_else():
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


# What a constructor raised.


@pytest.mark.parametrize("through", ["construction", "raised"])
def test_a_constructor_that_raised_is_said_by_its_place_in_the_list(through):
    failure = failure_of(OSError("no level"), kind="constructor", command="construct")
    if through == "construction":
        error = failures.construction(1, failure, lambda env: f"{MAKER} of {env}")
    else:
        error = failures.raised(1, failure, f"{MAKER} of 5", "", envs=(5,))

    assert (
        "env_constructors[5] raised OSError: no level in worker 1 (pid 77).\n\n"
        "  environment     5\n"
        f"  constructor     {MAKER} of 5\n\n"
        "Traceback\n  OSError: no level\n\n"
        "To look at it without a worker, call the constructor yourself or pass "
        'backend="inline".'
    ) == str(error)
    assert isinstance(error, ConstructorError)
    assert (1, (5,)) == (error.worker, error.envs)
    assert OSError is type(error.__cause__)


def test_a_constructor_in_this_process_is_said_without_its_number():
    failure = failure_of(OSError("no level"), kind="constructor", pid=os.getpid())
    error = failures.construction(1, failure, lambda env: MAKER)

    assert "pid" not in str(error)


def test_the_setup_of_a_worker_is_called_so():
    failure = failure_of(OSError("no level"), kind="setup", command="setup", env=-1)
    error = failures.construction(1, failure, lambda env: MAKER)

    assert str(error).startswith("worker_setup raised OSError")
    assert () == error.envs
    assert MAKER not in str(error)


def test_specs_that_cannot_be_asked_for_are_called_so():
    failure = failure_of(OSError("no level"), kind="constructor", env=-1)
    error = failures.construction(1, failure, lambda env: MAKER)

    assert str(error).startswith("The specs of an environment raised OSError")


def test_a_sentence_of_envkits_own_stays_as_it_is():
    said = ConstructorError.no_environment("env_constructors[5] (make)", None)
    failure = failure_of(said, kind="constructor")
    error = failures.construction(1, failure, lambda env: MAKER)

    assert (
        "env_constructors[5] (make) returned None, not an environment. "
        "A constructor must return a PyEnvironment."
    ) == str(error)
    assert (1, (5,)) == (error.worker, error.envs)


def test_a_rebuilt_environment_that_is_none_is_a_constructors_fault():
    said = ConstructorError.no_environment("env_constructors[5] (make)", None)

    assert str(said) == str(raised(said, command="rebuild"))


def test_a_rebuilt_environment_that_raises_is_the_environments_fault():
    error = raised(OSError("no level"), command="rebuild")

    assert isinstance(error, EnvironmentRaised)
    assert "rebuild" == error.command


# What became of a process.


def report(**facts):
    return ExitReport(worker=1, pid=77, **facts)


def crash(given, **facts):
    known = {
        "command": "step",
        "env": 5,
        "envs": (4, 5),
        "makers": (MAKER, MAKER),
        "reason": "not allowed",
    }
    return failures.crash(given, **(known | facts))


def test_a_crash_says_who_how_and_where():
    given = report(signal="SIGSEGV", stderr_tail="Fatal Python error", resident=2**30)
    error = crash(given, steps=12, others=3)
    facts = WorkerCrashed.ended(
        worker=1,
        pid=77,
        envs=(4, 5),
        signal="SIGSEGV",
        command="step",
        env=5,
        steps=12,
        constructors=(MAKER, MAKER),
        restarts="not allowed",
        stderr_tail="Fatal Python error",
        others=3,
        resident=2**30,
    )

    assert str(facts) == str(error)
    assert vars(facts) == vars(error)


def test_memory_that_nobody_saw_is_not_talked_about():
    assert None is crash(report(signal="SIGKILL")).resident


@pytest.mark.parametrize("killed", [True, False])
def test_a_late_worker_has_a_process_only_if_it_could_be_killed(killed):
    error = failures.timeout(
        worker=1,
        pid=77,
        env=5,
        envs=(4, 5),
        command="step",
        timeout=2.5,
        makers=(MAKER, MAKER),
        reason="",
        killed=killed,
        stderr_tail="waiting",
    )

    assert isinstance(error, WorkerTimeout)
    assert (77 if killed else None) == error.pid
    assert ("step", 5, 2.5, "waiting") == (
        error.command,
        error.env,
        error.timeout,
        error.stderr_tail,
    )
    assert ("(pid 77)" in str(error)) == killed


def test_a_call_that_needs_a_lost_worker_repeats_how_it_was_lost():
    earlier = crash(report(exitcode=3))
    error = failures.gone(earlier, "reset")

    assert str(error).startswith(
        "reset() needs worker 1 (pid 77), which was lost in an earlier call; it exited "
        "with code 3"
    )
    assert (1, (4, 5), 3) == (error.worker, error.envs, error.exitcode)


def test_what_was_no_end_of_a_process_is_said_again_as_it_was():
    earlier = raised(ValueError("no fuel"))

    assert earlier is failures.gone(earlier, "reset")


def test_an_environment_that_came_back_different_is_said_so():
    error = failures.differs(1, 5, MAKER, "The shape differs: () and (2,).")

    assert (
        f"env 5, built anew in worker 1 by {MAKER}, is unlike the one before. "
        "The shape differs: () and (2,). A constructor must build the same kind of "
        "environment each time."
    ) == str(error)
    assert (1, (5,)) == (error.worker, error.envs)


def test_several_failures_are_one_error_that_tells_of_the_others():
    first, second = raised(ValueError("no fuel")), crash(report(exitcode=3))
    error = failures.joined([first, second])

    assert isinstance(error, ValueError)
    assert (second,) == error.also
    assert str(error).startswith(str(first))
    assert first is failures.joined([first])
