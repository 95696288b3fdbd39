from __future__ import annotations

import copy
import pickle

import pytest

from envkit import errors
from envkit.errors import (
    CallOrderError,
    ClosedError,
    ConstructorError,
    EnvironmentRaised,
    EnvkitError,
    MissingDependencyError,
    SpecError,
    SpecMismatchError,
    TransportError,
    WorkerCrashed,
    WorkerError,
    WorkerTimeout,
)


def environment_raised() -> EnvironmentRaised:
    error = EnvironmentRaised("it raised", worker=1, envs=[4, 5])
    error.remote_traceback = "Traceback …"
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
    SpecMismatchError.between(
        first=0,
        second=4,
        part="action",
        specs=("this", "that"),
        makers=("", ""),
        difference="They differ.",
        agreement="The others agree.",
    ),
    CallOrderError("what happened"),
    ClosedError.used("CartPole", "step"),
    WorkerError("what happened", worker=3, envs=[1, 2]),
    ConstructorError("what happened", worker=0, envs=(1,)),
    ConstructorError.no_environment("makers[0]", None),
    environment_raised(),
    worker_crashed(),
    WorkerTimeout("what happened", worker=2, envs=(7,)),
    WorkerTimeout.waiting("step", envs=[1, 2], total=4, timeout=1.5),
    TransportError("what happened"),
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
    TransportError: (EnvkitError, ConnectionError),
    MissingDependencyError: (EnvkitError, ImportError),
}


def test_the_tree_of_errors_is_as_drawn():
    listed = [getattr(errors, name) for name in errors.__all__]

    assert BASES == {kind: kind.__bases__ for kind in listed if isinstance(kind, type)}


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
def test_an_error_survives_a_journey_with_all_it_knows(error, clone):
    arrived = clone(error)

    assert type(error) is type(arrived)
    assert str(error) == str(arrived)
    assert vars(error) == vars(arrived)


def test_every_class_of_error_is_among_the_travellers():
    assert set(BASES) == {type(error) for error in ONE_OF_EACH}


@pytest.mark.parametrize("kind", BASES, ids=lambda kind: kind.__name__)
def test_the_text_of_an_error_is_its_message(kind):
    assert "what happened" == str(kind("what happened"))
    assert ("what happened",) == kind("what happened").args
    assert "" == str(kind())


def test_the_text_of_an_error_without_arguments_is_empty():
    error = EnvkitError("what happened")
    error.args = ()

    assert "" == str(error)


@pytest.mark.parametrize("kind", BASES, ids=lambda kind: kind.__name__)
def test_an_error_of_each_class_can_be_caught_as_an_error_of_envkit(kind):
    with pytest.raises(EnvkitError):
        raise kind("what happened")


def test_what_an_error_knows_is_empty_unless_it_was_told():
    assert ("", "") == (SpecError().path, SpecError().reason)
    assert ((), "") == (SpecMismatchError().envs, SpecMismatchError().part)
    assert (None, ()) == (WorkerError().worker, WorkerError().envs)
    assert "" == EnvironmentRaised().remote_traceback
    crashed = WorkerCrashed()
    assert (None, None, "") == (crashed.exitcode, crashed.signal, crashed.stderr_tail)
    missing = MissingDependencyError()
    assert ("", "") == (missing.package, missing.extra)


def test_environments_of_a_worker_are_kept_as_a_tuple():
    assert (2, (4, 5)) == (
        WorkerError("m", worker=2, envs=[4, 5]).worker,
        WorkerError("m", worker=2, envs=[4, 5]).envs,
    )


def test_a_misfit_says_where_what_was_expected_and_what_came():
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


def test_a_misfit_of_the_whole_leaves_out_the_place():
    error = SpecError.does_not_fit(
        "The action",
        path="action",
        root="action",
        expected="the spec",
        got="the array",
        reason="This is why.",
    )

    assert (
        "The action does not fit its spec.\n"
        "\n"
        "  expected   the spec\n"
        "  got        the array\n"
        "\n"
        "This is why."
    ) == str(error)


def test_a_mismatch_shows_both_environments_in_columns():
    error = SpecMismatchError.between(
        first=4,
        second=10,
        part="action",
        specs=("this spec", "that spec"),
        makers=("my_game:make, level=1", ""),
        difference="The maximum differs: 5 and 17.",
        agreement="Observation, reward and discount specs agree.",
    )

    assert (
        "env 4 and env 10 have different action specs, so they cannot form one batch.\n"
        "\n"
        "  env 4     this spec    my_game:make, level=1\n"
        "  env 10    that spec\n"
        "\n"
        "The maximum differs: 5 and 17. Observation, reward and discount specs agree."
    ) == str(error)
    assert ((4, 10), "action") == (error.envs, error.part)


def test_a_call_after_close_says_that_closed_is_closed():
    assert (
        "CartPole.step() was called after close(). A closed environment stays closed: "
        "make a new one."
    ) == str(ClosedError.used("CartPole", "step"))


@pytest.mark.parametrize(
    ("got", "what"),
    [
        (None, "None"),
        (3, "an int object"),
        ([], "a list object"),
        (EnvkitError, "the class EnvkitError"),
    ],
)
def test_a_constructor_that_returned_no_environment_says_what_it_returned(got, what):
    assert (
        f"env_constructors[0] returned {what}, not an environment. A constructor must "
        "return a PyEnvironment."
    ) == str(ConstructorError.no_environment("env_constructors[0]", got))


@pytest.mark.parametrize(
    ("envs", "message"),
    [
        (
            [2],
            "step() waited 0.5 s for environment 2; 3 of 4 answered. Their answers are "
            "kept: call wait() for the rest, or reset() to start over.",
        ),
        (
            [0, 2],
            "step() waited 0.5 s for environments 0, 2; 2 of 4 answered. Their answers "
            "are kept: call wait() for the rest, or reset() to start over.",
        ),
    ],
)
def test_a_timeout_names_those_who_did_not_answer(envs, message):
    error = WorkerTimeout.waiting("step", envs=envs, total=4, timeout=0.5)

    assert (message, tuple(envs)) == (str(error), error.envs)


def test_a_missing_package_comes_with_the_command_that_installs_it():
    error = MissingDependencyError.needed_by(
        "GymnasiumWrapper", package="gymnasium", extra="gymnasium"
    )

    assert (
        "GymnasiumWrapper needs the package gymnasium, which is not installed. "
        'pip install "envkit[gymnasium]"'
    ) == str(error)
    assert ("gymnasium", "gymnasium") == (error.package, error.extra)
