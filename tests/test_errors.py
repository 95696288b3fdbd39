"""The tree of errors: what they know, and that they travel with it."""

from __future__ import annotations

import copy
import pickle

import pytest

from envkit import errors
from envkit.errors import (
    CallOrderError,
    CheckpointError,
    ClosedError,
    CompileError,
    ConstructorError,
    EnvironmentRaised,
    EnvkitError,
    InsecureWarning,
    MissingDependencyError,
    RecordingEnded,
    RecordingError,
    RulesDiffer,
    SpecError,
    SpecMismatchError,
    WorkerCrashed,
    WorkerError,
    WorkerTimeout,
)


def environment_raised() -> EnvironmentRaised:
    error = EnvironmentRaised("it raised", worker=1, envs=[4, 5])
    error.remote_traceback = "Traceback …"
    return error


def spec_mismatch() -> SpecMismatchError:
    error = SpecMismatchError("they differ")
    error.envs, error.part = (0, 4), "action"
    return error


def worker_crashed() -> WorkerCrashed:
    error = WorkerCrashed("it crashed", worker=1, envs=(4,))
    error.exitcode, error.signal, error.stderr_tail = 3, "SIGSEGV", "Fatal …"
    return error


ONE_OF_EACH = [
    EnvkitError("what happened"),
    SpecError("what happened"),
    SpecError.does_not_fit(
        "The action", path="action['move']", expected="one", got="two", reason="Why."
    ),
    spec_mismatch(),
    CallOrderError("what happened"),
    ClosedError.used("CartPole", "step"),
    WorkerError("what happened", worker=3, envs=[1, 2]),
    ConstructorError("what happened", worker=0, envs=(1,)),
    ConstructorError.no_environment("makers[0]", None),
    environment_raised(),
    worker_crashed(),
    WorkerTimeout("what happened", worker=2, envs=(7,)),
    RecordingError("what happened"),
    CheckpointError("what happened"),
    RecordingEnded("what happened"),
    CompileError("what happened"),
    RulesDiffer("what happened"),
    MissingDependencyError.needed_by("X", package="gymnasium", extra="gymnasium"),
]


BASES = {
    EnvkitError: (Exception,),
    SpecError: (EnvkitError, ValueError),
    SpecMismatchError: (EnvkitError, ValueError),
    CallOrderError: (EnvkitError, RuntimeError, ValueError),
    ClosedError: (EnvkitError, RuntimeError),
    WorkerError: (EnvkitError, RuntimeError),
    ConstructorError: (WorkerError,),
    EnvironmentRaised: (WorkerError,),
    WorkerCrashed: (WorkerError,),
    WorkerTimeout: (WorkerError, TimeoutError),
    CheckpointError: (EnvkitError, ValueError),
    RecordingError: (EnvkitError, ValueError),
    RecordingEnded: (RecordingError,),
    CompileError: (EnvkitError, TypeError),
    RulesDiffer: (EnvkitError,),
    MissingDependencyError: (EnvkitError, ImportError),
}


def test_the_error_hierarchy_matches_the_drawing():
    listed = [getattr(errors, name) for name in errors.__all__]
    kinds = {kind for kind in listed if isinstance(kind, type)} - {InsecureWarning}
    assert BASES == {kind: kind.__bases__ for kind in kinds}
    assert (UserWarning,) == InsecureWarning.__bases__


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "clone",
    [
        *[
            lambda error, protocol=protocol: pickle.loads(pickle.dumps(error, protocol))
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
        ],
        copy.copy,
        copy.deepcopy,
    ],
)
def test_errors_keep_their_attributes_when_pickled(error, clone):
    arrived = clone(error)
    assert type(error) is type(arrived)
    assert str(error) == str(arrived)
    assert vars(error) == vars(arrived)


def test_the_pickling_test_covers_every_error_class():
    assert set(BASES) == {type(error) for error in ONE_OF_EACH}


@pytest.mark.parametrize("kind", BASES, ids=lambda kind: kind.__name__)
def test_the_text_of_an_error_is_its_message(kind):
    assert "what happened" == str(kind("what happened"))
    assert ("what happened",) == kind("what happened").args
    assert "" == str(kind())
    error = kind("what happened")
    error.args = ()
    assert "" == str(error)
    assert isinstance(error, EnvkitError)


def test_error_attributes_are_empty_by_default():
    assert ("", "") == (SpecError().path, SpecError().reason)
    assert ((), "") == (SpecMismatchError().envs, SpecMismatchError().part)
    told = WorkerError("what happened", worker=2, envs=[4, 5])
    assert (2, (4, 5)) == (told.worker, told.envs)
    worker_error = WorkerError()
    assert (None, ()) == (worker_error.worker, worker_error.envs)
    assert () == worker_error.also
    assert "" == EnvironmentRaised().remote_traceback
    assert None is EnvironmentRaised().command
    assert "" == ConstructorError().remote_traceback
    crashed = WorkerCrashed()
    assert (None, None, "") == (crashed.exitcode, crashed.signal, crashed.stderr_tail)
    assert (None, None, None) == (crashed.pid, crashed.command, crashed.env)
    assert (None, None) == (crashed.steps, crashed.resident)
    late = WorkerTimeout()
    assert (None, None, None) == (late.pid, late.command, late.env)
    assert (None, "") == (late.timeout, late.stderr_tail)
    missing = MissingDependencyError()
    assert ("", "") == (missing.package, missing.extra)


def test_a_spec_error_names_the_place_the_expected_spec_and_the_value():
    error = SpecError.does_not_fit(
        "env 3 returned an observation that",
        path="observation['camera']",
        root="observation",
        expected="the spec",
        got="the array",
        reason="This is why.",
        note="This was when.",
    )

    assert (
        "env 3 returned an observation that does not fit its spec at "
        "observation['camera'].\n"
        "\n"
        "  expected   the spec\n"
        "  got        the array\n"
        "\n"
        "This is why.\n"
        "This was when."
    ) == str(error)
    assert ("observation['camera']", "This is why.") == (error.path, error.reason)


NO_ENVIRONMENT = (
    "env_constructors[0] returned {}, not an environment. A constructor must return a "
    "PyEnvironment, or an environment of a library that envkit knows."
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            SpecError.does_not_fit(
                "The action",
                path="action",
                root="action",
                expected="the spec",
                got="the array",
                reason="This is why.",
            ),
            "The action does not fit its spec.\n\n"
            "  expected   the spec\n  got        the array\n\nThis is why.",
        ),
        (
            ClosedError.used("CartPole", "step"),
            "CartPole.step() was called after close(). A closed environment stays "
            "closed: make a new one.",
        ),
        *(
            (
                ConstructorError.no_environment("env_constructors[0]", got),
                NO_ENVIRONMENT.format(what),
            )
            for got, what in (
                (None, "None"),
                (3, "an int object"),
                ([], "a list object"),
                (EnvkitError, "the class EnvkitError"),
            )
        ),
        (
            MissingDependencyError.needed_by(
                "GymnasiumWrapper", package="gymnasium", extra="atari"
            ),
            "GymnasiumWrapper needs the package gymnasium, which is not installed. "
            'pip install "gymnasium>=1.0" "ale-py>=0.12.1"',
        ),
    ],
)
def test_errors_built_from_facts_state_them(error, text):
    assert text == str(error)


def test_a_missing_dependency_error_knows_its_package():
    error = MissingDependencyError.needed_by("X", package="gymnasium", extra="atari")
    assert ("gymnasium", "atari") == (error.package, error.extra)
