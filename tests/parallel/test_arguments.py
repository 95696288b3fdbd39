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
from envkit.parallel.system.cpus import available_cpus
from envkit.testing.envs import CountingEnv, CrashingEnv, EpisodeCountingEnv
from tests.comparing import told
from tests.parallel import environments, streams


def make(constructors, **options):
    """Makes a pool that must not come to be."""
    ParallelPyEnvironment(constructors, **{"backend": "inline", **options}).close()


# The list of constructors.

NEEDS_A_LIST = (
    "ParallelPyEnvironment needs a list with one constructor for each environment"
)
LISTS = (
    ':\n\n  ParallelPyEnvironment(["my_game.envs:make"] * 8)\n'
    "  ParallelPyEnvironment([MyEnv] * 8)"
)
NON_CALLABLE = (
    "which is non-callable; ParallelPyEnvironment needs something to call that makes "
    "an environment, or a name."
)
TWICE = (
    "returned an environment that another constructor has returned already. Each row "
    "needs an environment of its own: build it inside the constructor."
)
ONE = CountingEnv()
# What is given for constructors, and the error.
REFUSED = {
    "nothing": (
        [],
        ValueError,
        "env_constructors must hold at least one constructor, and it is empty.",
    ),
    "a class": (
        CountingEnv,
        TypeError,
        f"env_constructors is the class CountingEnv; {NEEDS_A_LIST}{LISTS}",
    ),
    "a name": (
        "CartPole",
        TypeError,
        f"env_constructors is the string 'CartPole'; {NEEDS_A_LIST}"
        + LISTS.replace("my_game.envs:make", "CartPole"),
    ),
    "a number": (
        8,
        TypeError,
        f"env_constructors is 8 of type int; {NEEDS_A_LIST}.",
    ),
    "an environment": (
        [CountingEnv, ONE],
        TypeError,
        "env_constructors[1] is a CountingEnv object; ParallelPyEnvironment needs "
        "something to call that makes one.\n\n"
        "Each environment is built inside its own worker, so pass the recipe:\n\n"
        "  ParallelPyEnvironment([CountingEnv(...)])                       "
        "# the finished dish\n"
        "  ParallelPyEnvironment([functools.partial(CountingEnv, ...)])    "
        "# the recipe\n"
        '  ParallelPyEnvironment(["my_game.envs:make"])                    '
        "# the recipe, by name",
    ),
    "None in the list": (
        [CountingEnv, None],
        TypeError,
        f"env_constructors[1] is None, {NON_CALLABLE}",
    ),
    "a number in the list": (
        [CountingEnv, 3],
        TypeError,
        f"env_constructors[1] is 3 of type int, {NON_CALLABLE}",
    ),
    "a list in the list": (
        [CountingEnv, [CountingEnv]],
        TypeError,
        f"env_constructors[1] is a list of 1 element, {NON_CALLABLE}",
    ),
    "it returns nothing": (
        [CountingEnv, environments.nothing],
        ConstructorError,
        "env_constructors[1] (tests.parallel.environments.nothing) returned None, not "
        "an environment. A constructor must return a PyEnvironment, "
        "or an environment of a library that envkit knows.",
    ),
    "it returns one twice": (
        [CountingEnv, lambda: ONE, lambda: ONE],
        ConstructorError,
        f"env_constructors[2] {TWICE}",
    ),
}


@pytest.mark.parametrize(
    ("constructors", "error", "expected"), REFUSED.values(), ids=REFUSED
)
@pytest.mark.parametrize("workers", [1, 3])
def test_anything_but_a_list_of_constructors_is_refused(
    message_of, constructors, error, expected, workers
):
    message = message_of(error, lambda: make(constructors, num_workers=workers))
    assert expected == message


# The same where more is told than the test is about.
ALSO_REFUSED = {
    "an unknown name": (
        ["CartPole", "Cartpol"],
        ValueError,
        "There is no environment named 'Cartpol'. Did you mean 'CartPole'? Known names "
        "are Bandit, CartPole, Catch, GridWorld, ",
    ),
    "a missing module": (
        [CountingEnv, "envkit.no_such:make"],
        ConstructorError,
        "'envkit.no_such:make' names the module 'envkit.no_such', and there is no "
        "module 'envkit.no_such' to import.",
    ),
    "it returns a class": (
        [lambda: CountingEnv],
        ConstructorError,
        "returned the class CountingEnv, not an environment.",
    ),
    "they disagree": (
        [CountingEnv, functools.partial(CountingEnv, dtype=np.int64)],
        SpecMismatchError,
        "env 0 and env 1 have different observation specs, so they cannot form one "
        "batch.\n\n",
    ),
}


@pytest.mark.parametrize(
    ("constructors", "error", "expected"), ALSO_REFUSED.values(), ids=ALSO_REFUSED
)
def test_a_constructor_that_cannot_be_used_is_named(
    message_of, constructors, error, expected
):
    assert expected in message_of(error, lambda: make(constructors))


def test_environments_of_another_structure_raise_spec_mismatch():
    with pytest.raises(SpecMismatchError):
        make([CountingEnv, EpisodeCountingEnv])


def test_a_failed_constructor_closes_the_environments_already_built(tmp_path):
    makers = [
        functools.partial(environments.Marking, str(tmp_path), 0),
        functools.partial(CrashingEnv, where="init"),
    ]
    with pytest.raises(ConstructorError):
        make(makers, num_workers=2)

    lines = [
        line.split()[0] for line in (tmp_path / "journal").read_text().splitlines()
    ]
    assert ["begin", "built", "close"] == lines


@pytest.mark.parametrize(
    "container", [list, tuple, deque, iter], ids=lambda kind: kind.__name__
)
def test_constructors_can_be_any_iterable(container):
    with streams.pool_of(container([CountingEnv, environments.counting])) as env:
        size = env.batch_size
    assert 2 == size


# Numbers of workers.


@pytest.mark.parametrize(
    ("envs", "workers", "expected"),
    [
        (3, 50, [(0,), (1,), (2,)]),  # Never more than environments.
        (7, 3, [(0, 1, 2), (3, 4), (5, 6)]),
        (3, np.int64(2), [(0, 1), (2,)]),
    ],
)
def test_rows_are_spread_evenly_over_workers(envs, workers, expected):
    with streams.pool_of([CountingEnv] * envs, num_workers=workers) as env:
        blocks = [worker.rows for worker in env.workers]
        count = env.num_workers
    assert (expected, len(expected)) == (blocks, count)


def test_by_default_there_is_one_worker_per_cpu(monkeypatch):
    monkeypatch.setattr("envkit.parallel.backends.inline.available_cpus", lambda: 3)
    with streams.pool_of([CountingEnv] * 7) as many:
        workers = [many.num_workers]
    with streams.pool_of([CountingEnv] * 2) as few:
        workers.append(few.num_workers)
    assert [3, 2] == workers


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


def test_only_cpus_available_to_the_process_count(machine):
    assert 3 == machine(3, {})


@pytest.mark.parametrize(
    ("share", "cpus"),
    [("max 100000", 8), ("250000 100000", 3), ("50000 100000", 1), ("999999999 1", 8)],
)
def test_the_cpu_limit_of_a_container_counts(machine, share, cpus):
    assert cpus == machine(8, {"/sys/fs/cgroup/cpu.max": share + "\n"})


@pytest.mark.parametrize(("quota", "cpus"), [("-1", 8), ("200000", 2)])
def test_the_cpu_limit_of_an_older_container_counts(machine, quota, cpus):
    folder = "/sys/fs/cgroup/cpu"
    files = {
        f"{folder}/cpu.cfs_quota_us": f"{quota}\n",
        f"{folder}/cpu.cfs_period_us": "100000\n",
    }
    assert cpus == machine(8, files)


def test_an_unreadable_limit_file_is_ignored(machine):
    assert 4 == machine(4, {"/sys/fs/cgroup/cpu.max": "what is this\n"})


# Choices and times.

ONE_OF_AUTORESET = (
    "autoreset must be one of AutoReset.NEXT_STEP, AutoReset.SAME_STEP, "
    "AutoReset.DISABLED, got"
)
SECONDS = "must be a positive number of seconds, or None, got"
VARIABLES = (
    "worker_env must map names of environment variables to strings, such as "
    '{"CUDA_VISIBLE_DEVICES": "0"}, got'
)
WORKERS = (
    "num_workers must be an integer of at least 1, or None for one worker per "
    "available CPU, got"
)


@pytest.mark.parametrize(
    ("name", "value", "error", "expected"),
    [
        ("num_workers", 0, ValueError, f"{WORKERS} 0."),
        ("num_workers", -1, ValueError, f"{WORKERS} -1."),
        ("num_workers", 2.0, TypeError, f"{WORKERS} 2.0 of type float."),
        ("num_workers", "2", TypeError, f"{WORKERS} the string '2'."),
        ("num_workers", True, TypeError, f"{WORKERS} True of type bool."),
        (
            "backend",
            "proces",
            ValueError,
            "There is no backend named 'proces'; the names are 'inline', 'thread', "
            "'process', 'ray', and 'tcp://host:port' is a server's.",
        ),
        (
            "backend",
            3,
            TypeError,
            "backend must be a name ('inline', 'thread', 'process', 'ray') or a "
            "Backend, got 3 of type int.",
        ),
        (
            "start_method",
            "clone",
            ValueError,
            "start_method must be one of 'spawn', 'forkserver', 'fork', got 'clone'.",
        ),
        ("autoreset", "never", ValueError, f"{ONE_OF_AUTORESET} 'never'."),
        ("autoreset", None, ValueError, f"{ONE_OF_AUTORESET} None."),
        (
            "on_worker_failure",
            "restart",
            ValueError,
            'on_worker_failure must be "raise" or a RestartPolicy(...), got '
            "'restart'.",
        ),
        (
            "validate",
            True,
            ValueError,
            "validate must be one of 'always', 'first', 'never', got True.",
        ),
        ("step_timeout", 0, ValueError, f"step_timeout {SECONDS} 0."),
        ("reset_timeout", -1.5, ValueError, f"reset_timeout {SECONDS} -1.5."),
        ("start_timeout", float("nan"), ValueError, f"start_timeout {SECONDS} nan."),
        ("step_timeout", "5", TypeError, f"step_timeout {SECONDS} the string '5'."),
        ("step_timeout", True, TypeError, f"step_timeout {SECONDS} True of type bool."),
        (
            "worker_env",
            {"CUDA_VISIBLE_DEVICES": 0},
            TypeError,
            f"{VARIABLES} a dict of 1 element.",
        ),
        ("worker_env", "A=B", TypeError, f"{VARIABLES} the string 'A=B'."),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 18 else "",
)
def test_a_useless_option_is_refused_before_anything_is_built(
    message_of, tmp_path, name, value, error, expected
):
    maker = functools.partial(environments.Marking, str(tmp_path), 0)
    assert expected == message_of(error, lambda: make([maker], **{name: value}))
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("order", list(AutoReset))
def test_an_order_can_be_given_by_name(order):
    with streams.pool_of([CountingEnv], autoreset=order.value) as env:
        given = env.autoreset
    assert order is given


def test_timeouts_may_be_infinite_or_numpy_numbers():
    options = {"step_timeout": float("inf"), "reset_timeout": np.float32(3)}
    with streams.pool_of([CountingEnv], **options) as env:
        first = env.reset()
    assert first.is_first().all()


def test_a_backend_can_be_an_object():
    with streams.pool_of([CountingEnv], InlineBackend()) as env:
        observation = env.reset().observation
    assert [0] == observation.tolist()


@pytest.mark.parametrize(
    ("kind", "given", "name"),
    [
        (AsyncParallelPyEnvironment, [3], "AsyncParallelPyEnvironment"),
        (ProcessPyEnvironment, 3, "ProcessPyEnvironment"),
    ],
    ids=["asynchronous", "process"],
)
def test_errors_name_the_class_of_the_pool(message_of, kind, given, name):
    message = message_of(TypeError, lambda: kind(given))
    assert (
        f"env_constructors[0] is 3 of type int, which is non-callable; {name} needs "
        "something "
        "to call that makes an environment, or a name."
    ) == message


@pytest.mark.parametrize("pool", [ParallelPyEnvironment, AsyncParallelPyEnvironment])
@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("num_worker", "Did you mean num_workers?"),
        ("autoreset_mode", "Did you mean autoreset?"),
        (
            "shared_memory",
            "The environments of a pool always write into shared memory.",
        ),
        (
            "num_envs",
            "It takes a list with a constructor for each environment, such as "
            "[make_env] * 8; make(target, num_envs=8) makes the list.",
        ),
    ],
)
def test_an_option_that_pools_lack_is_answered_with_what_to_write(
    pool, option, instead
):
    assert (
        TypeError,
        f"{pool.__name__}() got an unexpected keyword argument {option!r}. {instead}",
    ) == told(pool, [CountingEnv], **{option: 2})
