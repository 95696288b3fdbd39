"""What pools are given: refused with a sentence before anything has been started."""

from __future__ import annotations

import builtins
import functools
import io
import os
from collections import deque

import numpy as np
import pytest

from envkit import ParallelPyEnvironment
from envkit.errors import ConstructorError, SpecMismatchError
from envkit.parallel import AsyncParallelPyEnvironment, AutoReset, ProcessPyEnvironment
from envkit.parallel.backends.inline import InlineBackend
from envkit.parallel.cpus import available_cpus
from envkit.testing.envs import CountingEnv, CrashingEnv, EpisodeCountingEnv
from tests.parallel import environments, streams


def make(constructors, **options):
    """Makes a pool that must not come to be."""
    ParallelPyEnvironment(constructors, **{"backend": "inline", **options}).close()


# The list of constructors.


def test_an_empty_list_is_refused(message_of):
    message = message_of(ValueError, lambda: make([]))

    assert "env_constructors is empty; a pool has at least one environment." == message


def test_a_constructor_without_a_list_is_refused(message_of):
    message = message_of(TypeError, lambda: make(CountingEnv))

    assert (
        "env_constructors is the class CountingEnv; ParallelPyEnvironment needs a list "
        "with one constructor for each environment:\n\n"
        '  ParallelPyEnvironment(["my_game.envs:make"] * 8)\n'
        "  ParallelPyEnvironment([MyEnv] * 8)"
    ) == message


def test_a_name_without_a_list_is_not_taken_for_a_list_of_letters(message_of):
    message = message_of(TypeError, lambda: make("CartPole"))

    assert (
        "env_constructors is the string 'CartPole'; ParallelPyEnvironment needs a list "
        "with one "
        "constructor for each environment:\n\n"
        '  ParallelPyEnvironment(["my_game.envs:make"] * 8)\n'
        "  ParallelPyEnvironment([MyEnv] * 8)"
    ) == message


def test_a_number_instead_of_a_list_is_refused(message_of):
    message = message_of(TypeError, lambda: make(8))

    assert (
        "env_constructors is 8 of type int; ParallelPyEnvironment needs a list with "
        "one "
        "constructor for each environment."
    ) == message


def test_an_environment_instead_of_a_constructor_is_refused(message_of):
    message = message_of(TypeError, lambda: make([CountingEnv, CountingEnv()]))

    assert (
        "env_constructors[1] is a CountingEnv object; ParallelPyEnvironment needs "
        "something to call that makes one.\n\n"
        "Each environment is built inside its own worker, so pass the recipe:\n\n"
        "  ParallelPyEnvironment([CountingEnv(...)])                       "
        "# the finished dish\n"
        "  ParallelPyEnvironment([functools.partial(CountingEnv, ...)])    "
        "# the recipe\n"
        '  ParallelPyEnvironment(["my_game.envs:make"])               '
        "# the recipe, by name"
    ) == message


@pytest.mark.parametrize(
    ("entry", "what"),
    [(None, "None"), (3, "3 of type int"), ([CountingEnv], "a list of 1 element")],
    ids=["None", "number", "list"],
)
def test_what_cannot_be_called_is_refused_as_non_callable(message_of, entry, what):
    message = message_of(TypeError, lambda: make([CountingEnv, entry]))

    assert (
        f"env_constructors[1] is {what}, which is non-callable; ParallelPyEnvironment "
        "needs something to call that makes an environment, or a name."
    ) == message


def test_a_name_that_nobody_knows_is_refused_with_the_nearest(message_of):
    message = message_of(ValueError, lambda: make(["CartPole", "Cartpol"]))

    assert message.startswith(
        "There is no environment named 'Cartpol'. Did you mean 'CartPole'? Known names "
        "are Bandit, CartPole, Catch, GridWorld, "
    )


def test_a_missing_module_is_told_by_the_constructor_that_names_it(message_of):
    message = message_of(
        ConstructorError, lambda: make([CountingEnv, "envkit.no_such:make"])
    )

    assert (
        "'envkit.no_such:make' names the module 'envkit.no_such', and there is no "
        "module 'envkit.no_such' to import."
    ) in message


def test_a_constructor_that_returns_nothing_is_named(message_of):
    message = message_of(
        ConstructorError, lambda: make([CountingEnv, environments.nothing])
    )

    assert (
        "env_constructors[1] (tests.parallel.environments.nothing) returned None, not "
        "an environment. A constructor must return a PyEnvironment."
    ) == message


def test_a_constructor_that_returns_a_class_is_named(message_of):
    message = message_of(ConstructorError, lambda: make([lambda: CountingEnv]))

    assert "returned the class CountingEnv, not an environment." in message


def test_two_constructors_that_return_the_same_environment_are_refused(message_of):
    one = CountingEnv()
    message = message_of(
        ConstructorError, lambda: make([CountingEnv, *[lambda: one] * 2], num_workers=1)
    )

    assert (
        "env_constructors[2] returned an environment that another constructor has "
        "returned already. Each row needs an environment of its own: build it inside "
        "the constructor."
    ) == message


def test_the_same_environment_in_two_workers_is_refused_too(message_of):
    one = CountingEnv()
    message = message_of(
        ConstructorError, lambda: make([lambda: one] * 2, num_workers=2)
    )

    assert (
        "env_constructors[1] returned an environment that another constructor has "
        "returned already. Each row needs an environment of its own: build it inside "
        "the constructor."
    ) == message


def test_environments_that_disagree_are_told_apart(message_of):
    makers = [CountingEnv, functools.partial(CountingEnv, dtype=np.int64)]
    message = message_of(SpecMismatchError, lambda: make(makers))

    assert message.startswith(
        "env 0 and env 1 have different observation specs, so they cannot form one "
        "batch.\n\n"
    )


def test_environments_of_another_structure_are_a_spec_mismatch():
    with pytest.raises(SpecMismatchError):
        make([CountingEnv, EpisodeCountingEnv])


def test_environments_that_were_built_are_closed_when_another_cannot_be(tmp_path):
    makers = [
        functools.partial(environments.Marking, str(tmp_path), 0),
        functools.partial(CrashingEnv, where="init"),
    ]
    with pytest.raises(ConstructorError):
        make(makers, num_workers=2)

    told = [line.split()[0] for line in (tmp_path / "journal").read_text().splitlines()]
    assert ["begin", "built", "close"] == told


@pytest.mark.parametrize(
    "container", [list, tuple, deque, iter], ids=lambda kind: kind.__name__
)
def test_constructors_may_come_in_any_iterable(container):
    with streams.pool_of(container([CountingEnv, environments.counting])) as env:
        size = env.batch_size

    assert 2 == size


# Numbers of workers.


def test_there_are_never_more_workers_than_environments():
    with streams.pool_of([CountingEnv] * 3, num_workers=50) as env:
        workers = env.num_workers

    assert 3 == workers


def test_without_a_number_there_is_a_worker_for_each_cpu(monkeypatch):
    monkeypatch.setattr("envkit.parallel.arguments.available_cpus", lambda: 3)
    with streams.pool_of([CountingEnv] * 7) as many:
        workers = [many.num_workers]
    with streams.pool_of([CountingEnv] * 2) as few:
        workers.append(few.num_workers)

    assert [3, 2] == workers


@pytest.mark.parametrize("count", [0, -1])
def test_fewer_than_one_worker_is_refused(message_of, count):
    message = message_of(ValueError, lambda: make([CountingEnv], num_workers=count))

    assert (f"num_workers is {count}; a pool has at least one worker.") == message


@pytest.mark.parametrize(
    ("count", "what"),
    [(2.0, "2.0 of type float"), ("2", "the string '2'"), (True, "True of type bool")],
    ids=["float", "text", "bool"],
)
def test_a_number_of_workers_is_an_integer(message_of, count, what):
    message = message_of(TypeError, lambda: make([CountingEnv], num_workers=count))

    assert (
        f"num_workers is {what}; it is an integer, or None for one worker per "
        "available "
        "CPU."
    ) == message


def test_a_number_of_workers_may_be_an_integer_of_numpy():
    with streams.pool_of([CountingEnv] * 3, num_workers=np.int64(2)) as env:
        workers = env.num_workers

    assert 2 == workers


def test_workers_hold_blocks_of_rows_as_even_as_can_be():
    with streams.pool_of([CountingEnv] * 7, num_workers=3) as env:
        blocks = [worker.envs for worker in env.statistics().workers]

    assert [(0, 1, 2), (3, 4), (5, 6)] == blocks


# How many CPUs there are.


@pytest.fixture
def machine(monkeypatch):
    """Pretends to be a machine with so many CPUs, and files of cgroups."""

    def pretend(cpus, files):
        opened = builtins.open

        def open_file(path, *args, **kwargs):
            if not str(path).startswith("/sys/fs/cgroup"):
                return opened(path, *args, **kwargs)
            if path not in files:
                raise FileNotFoundError(path)
            return io.StringIO(files[path])

        monkeypatch.setattr(
            os, "sched_getaffinity", lambda pid: set(range(cpus)), raising=False
        )
        monkeypatch.setattr(builtins, "open", open_file)
        return available_cpus()

    return pretend


def test_cpus_are_those_that_this_process_may_run_on(machine):
    assert 3 == machine(3, {})


@pytest.mark.parametrize(
    ("share", "cpus"),
    [("max 100000", 8), ("250000 100000", 3), ("50000 100000", 1), ("999999999 1", 8)],
)
def test_the_share_of_a_container_counts(machine, share, cpus):
    assert cpus == machine(8, {"/sys/fs/cgroup/cpu.max": share + "\n"})


@pytest.mark.parametrize(("quota", "cpus"), [("-1", 8), ("200000", 2)])
def test_the_share_of_an_older_container_counts_too(machine, quota, cpus):
    folder = "/sys/fs/cgroup/cpu"
    files = {
        f"{folder}/cpu.cfs_quota_us": f"{quota}\n",
        f"{folder}/cpu.cfs_period_us": "100000\n",
    }

    assert cpus == machine(8, files)


def test_a_file_that_nobody_understands_changes_nothing(machine):
    assert 4 == machine(4, {"/sys/fs/cgroup/cpu.max": "what is this\n"})


# Choices and times.


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"backend": "proces"},
            "There is no backend named 'proces'; the names are 'inline', 'thread', "
            "'process'.",
        ),
        (
            {"start_method": "clone"},
            "start_method is 'clone'; it is one of 'spawn', 'forkserver', 'fork'.",
        ),
        (
            {"autoreset": "never"},
            "autoreset is 'never'; it must be one of AutoReset.NEXT_STEP, "
            "AutoReset.SAME_STEP, AutoReset.DISABLED.",
        ),
        (
            {"autoreset": None},
            "autoreset is None; it must be one of AutoReset.NEXT_STEP, "
            "AutoReset.SAME_STEP, AutoReset.DISABLED.",
        ),
        (
            {"on_worker_failure": "restart"},
            "on_worker_failure is 'restart'; it is \"raise\" or a RestartPolicy(...).",
        ),
        (
            {"validate": True},
            "validate is True; it is one of 'always', 'first', 'never'.",
        ),
        (
            {"step_timeout": 0},
            "step_timeout is 0; it is a positive number of seconds, or None.",
        ),
        (
            {"reset_timeout": -1.5},
            "reset_timeout is -1.5; it is a positive number of seconds, or None.",
        ),
        (
            {"start_timeout": float("nan")},
            "start_timeout is nan; it is a positive number of seconds, or None.",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_value_that_is_no_choice_is_refused(message_of, options, expected):
    message = message_of(ValueError, lambda: make([CountingEnv], **options))

    assert expected == message


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"backend": 3},
            "backend is 3 of type int; it is a name ('inline', 'thread', 'process') or "
            "a "
            "Backend.",
        ),
        (
            {"step_timeout": "5"},
            "step_timeout is the string '5'; it is seconds, or None.",
        ),
        (
            {"step_timeout": True},
            "step_timeout is True of type bool; it is seconds, or None.",
        ),
        (
            {"worker_env": {"CUDA_VISIBLE_DEVICES": 0}},
            "worker_env is a dict of 1 element; it maps names of environment variables "
            'to strings, such as {"CUDA_VISIBLE_DEVICES": "0"}.',
        ),
        (
            {"worker_env": "A=B"},
            "worker_env is the string 'A=B'; it maps names of environment variables to "
            'strings, such as {"CUDA_VISIBLE_DEVICES": "0"}.',
        ),
    ],
    ids=["backend", "text", "bool", "number", "no mapping"],
)
def test_a_value_of_the_wrong_kind_is_refused(message_of, options, expected):
    message = message_of(TypeError, lambda: make([CountingEnv], **options))

    assert expected == message


@pytest.mark.parametrize("order", list(AutoReset))
def test_an_order_may_be_given_by_its_name(order):
    with streams.pool_of([CountingEnv], autoreset=order.value) as env:
        given = env.autoreset

    assert order is given


def test_times_may_be_infinite_and_of_numpy():
    options = {"step_timeout": float("inf"), "reset_timeout": np.float32(3)}
    with streams.pool_of([CountingEnv], **options) as env:
        first = env.reset()

    assert first.is_first().all()


def test_a_backend_may_be_an_object():
    with streams.pool_of([CountingEnv], InlineBackend()) as env:
        observation = env.reset().observation

    assert [0] == observation.tolist()


def test_nothing_is_built_before_all_arguments_have_been_looked_at(tmp_path):
    maker = functools.partial(environments.Marking, str(tmp_path), 0)
    for wrong in [
        {"validate": "x"},
        {"autoreset": "x"},
        {"step_timeout": 0},
        {"num_workers": 0},
        {"backend": "x"},
        {"on_worker_failure": "x"},
    ]:
        with pytest.raises(ValueError, match=next(iter(wrong)).split("_")[0]):
            make([maker], **wrong)

    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "given", "name"),
    [
        (AsyncParallelPyEnvironment, [3], "AsyncParallelPyEnvironment"),
        (ProcessPyEnvironment, 3, "ProcessPyEnvironment"),
    ],
    ids=["asynchronous", "process"],
)
def test_the_other_pools_speak_of_themselves(message_of, kind, given, name):
    message = message_of(TypeError, lambda: kind(given))

    assert (
        f"env_constructors[0] is 3 of type int, which is non-callable; {name} needs "
        "something "
        "to call that makes an environment, or a name."
    ) == message
