"""`ParallelPyEnvironment`: many environments in workers as one batch, in lockstep."""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import os
import pickle
import re
import sys

import numpy as np
import pytest

from envkit import (
    ArraySpec,
    AsyncParallelPyEnvironment,
    ParallelPyEnvironment,
    constructor,
    make,
)
from envkit.errors import (
    CallOrderError,
    ClosedError,
    EnvironmentRaised,
    SpecError,
    WorkerCrashed,
)
from envkit.parallel.system.channel import Channel
from envkit.parallel.worker import main as worker_main
from envkit.testing import check_environment
from envkit.testing.envs import (
    CountingEnv,
    CrashingEnv,
    NestedCountingEnv,
    TracingEnv,
    check_trace,
)
from envkit.time_step import StepType
from tests.parallel import environments, streams
from tests.parallel.environments import traced
from tests.parallel.fake_backend import Die, FakeBackend, Interrupt, Raise
from tests.parallel.streams import pool_of, row_of
from tests.waiting import until

Move = collections.namedtuple("Move", ["speed", "turn"])
FIRST, MID, LAST = int(StepType.FIRST), int(StepType.MID), int(StepType.LAST)


def faults(before, action, after, rows=None, *, was_reset=False):
    """Names what is wrong with the answers of a batch of `TracingEnv`."""
    rows = range(len(after.step_type)) if rows is None else rows
    return [
        text
        for row in rows
        if (
            text := check_trace(
                None if before is None else row_of(before, row),
                None if was_reset or action is None else action[row],
                row_of(after, row),
                env_id=row,
            )
        )
    ]


# Construction.


def test_constructors_are_classes_functions_partials_lambdas_and_names(backend):
    makers = [
        CountingEnv,
        environments.counting,
        functools.partial(CountingEnv, steps_per_episode=3),
        functools.partial(environments.counting_for, 4),
        lambda: CountingEnv(5),
        "envkit.testing:CountingEnv",
        "tests.parallel.environments:counting",
        constructor("envkit.testing.envs:CountingEnv", steps_per_episode=2),
        functools.partial(
            constructor("envkit.testing:CountingEnv"), steps_per_episode=1
        ),
    ]
    with pool_of(makers, backend, num_workers=2) as env:
        env.reset()
        ends = [env.step([0] * 9).is_last().tolist() for _ in range(5)]

    lengths = [
        next((n for n, end in enumerate(column, 1) if end), None)
        for column in zip(*ends, strict=True)
    ]
    assert [None, None, 3, 4, 5, None, None, 2, 1] == lengths


def test_a_class_that_cannot_be_imported_can_be_a_constructor():
    class Hidden(CountingEnv):
        def get_info(self):
            return {"length": length}

    length = 7
    with pool_of([Hidden], "process") as env:
        info = env.get_info()

    assert {"length": [7]} == {name: value.tolist() for name, value in info.items()}


def test_a_gymnasium_name_makes_its_environment():
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    with pool_of(["gymnasium:CartPole-v1"] * 3, "process", num_workers=2) as env:
        env.seed(3)
        time_steps = streams.play(env, [[0, 1, 1]] * 30)

    assert (3, 4) == time_steps[0].observation.shape
    assert all(
        streams.is_grammatical(column)
        for column in zip(*(ts.step_type.tolist() for ts in time_steps), strict=True)
    )


def test_make_with_a_number_gives_a_pool():
    with make("CartPole", num_envs=8) as env:
        kind, size = type(env), env.batch_size
        shape = env.reset().observation.shape
    assert (ParallelPyEnvironment, 8, (8, 4)) == (kind, size, shape)


def test_no_environment_is_built_in_the_parent_or_twice(tmp_path):
    makers = [
        functools.partial(environments.Marking, str(tmp_path), row) for row in range(3)
    ]
    with pool_of(makers, "process", num_workers=2) as env:
        pids = [worker.pid for worker in env.workers]
        env.reset()
    told = [line.split() for line in (tmp_path / "journal").read_text().splitlines()]

    homes = [(str(row), str(pids[row // 2])) for row in range(3)]
    for what in ("begin", "built", "close"):
        assert homes == sorted(
            (number, pid) for name, number, pid in told if name == what
        )
    assert str(os.getpid()) not in {pid for _, _, pid in told}


@pytest.mark.parametrize("given", [(), (True,)], ids=["by default", "if asked for"])
def test_constructors_finish_before_the_next_process_starts(tmp_path, given):
    """TF-Agents' first flag, in its place."""
    makers = [
        functools.partial(environments.Marking, str(tmp_path), row) for row in range(2)
    ]
    with ParallelPyEnvironment(makers, *given, num_workers=2, start_method="fork"):
        told = (tmp_path / "journal").read_text().splitlines()

    assert [f"{what} {row}" for row in range(2) for what in ("begin", "built")] == [
        line.rpartition(" ")[0] for line in told
    ]


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_constructors_run_concurrently_if_allowed(tmp_path, backend):
    """Each of these two waits for the other."""
    ends = [str(tmp_path / name) for name in "ab"]
    makers = [
        functools.partial(environments.Meeting, *pair) for pair in (ends, ends[::-1])
    ]
    with pool_of(makers, backend, num_workers=2) as env:
        size = env.batch_size
    assert 2 == size


def flagged(*flags):
    """Makes pools with TF-Agents' flags in their places."""
    return lambda constructors, *, start_serially, **options: ParallelPyEnvironment(
        constructors, *flags, **options
    )


def test_blocking_steps_one_environment_after_the_other(tmp_path, backend):
    """TF-Agents' second flag, in its place."""
    makers = [
        functools.partial(environments.Marking, str(tmp_path), row) for row in range(3)
    ]
    with pool_of(makers, backend, kind=flagged(False, True), num_workers=3) as env:
        env.reset()
        (tmp_path / "journal").unlink()
        observation = env.step([0, 0, 0]).observation.tolist()
        told = (tmp_path / "journal").read_text().splitlines()

    assert [1, 1, 1] == observation
    assert [f"{what} {row}" for row in range(3) for what in ("step", "stepped")] == [
        line.rpartition(" ")[0] for line in told
    ]


def test_flatten_changes_nothing_about_nests(backend):
    """TF-Agents' third flag, in its place."""
    kind = flagged(False, False, True)
    with pool_of([NestedCountingEnv] * 2, backend, kind=kind, num_workers=1) as env:
        env.reset()
        observation = env.step([0, 0]).observation

    assert {"total_steps": [1, 1], "current_steps": [1, 1]} == {
        name: value.tolist() for name, value in observation.items()
    }


def test_specs_match_a_single_environment():
    single = environments.Rewarding()
    with pool_of([environments.Rewarding] * 2) as env:
        assert single.observation_spec() == env.observation_spec()
        assert single.action_spec() == env.action_spec()
        assert single.reward_spec() == env.reward_spec()
        assert single.discount_spec() == env.discount_spec()
        assert single.time_step_spec() == env.time_step_spec()


def test_rewards_and_discounts_of_any_kind_arrive(backend):
    with pool_of([environments.Rewarding] * 2, backend, num_workers=1) as env:
        first, second = streams.play(env, [[0, 0]])

    assert [] == streams.differences(
        {"players": np.array([[1 / 3, -1 / 3]] * 2), "move": np.array([5, 5], np.int8)},
        second.reward,
    )
    assert [] == streams.differences(np.array([1.0, 1.0]), first.discount)
    assert [] == streams.differences(np.array([1 / 3, 1 / 3]), second.discount)


@pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (ParallelPyEnvironment, "A ParallelPyEnvironment"),
        (AsyncParallelPyEnvironment, "An AsyncParallelPyEnvironment"),
    ],
)
def test_a_pool_cannot_be_copied_or_pickled(message_of, kind, name, copying):
    with kind([CountingEnv] * 2, backend="inline") as env:
        assert (
            f"{name} has workers and cannot be copied or pickled: pass what it was "
            "made of, and make another there."
        ) == message_of(TypeError, lambda: copying(env))


def test_a_pool_is_a_batch():
    with pool_of([CountingEnv] * 2) as env:
        assert (True, 2) == (env.batched, env.batch_size)


# Steps and resets of all rows.


@pytest.fixture(scope="module")
def lasting(backend):
    """Four environments on three workers, for many tests."""
    makers = traced(4, steps_per_episode=(9, 7))
    with pool_of(makers, backend, num_workers=3) as env:
        yield env


@pytest.fixture
def four(lasting):
    """The same four, whose next reset begins as if they were new."""
    lasting.seed(None)
    return lasting


def test_reset_begins_an_episode_in_every_row(four):
    before = four.reset()
    four.step([1, 2, 3, 4])
    after = four.reset()
    assert [0] * 4 == before.observation["episode"].tolist()
    assert [1] * 4 == after.observation["episode"].tolist()
    assert [] == faults(before, None, after, was_reset=True)


def test_the_first_step_is_a_reset():
    with pool_of(traced(2)) as env:
        first = env.step([5, 6])
    assert [] == faults(None, None, first)


def test_there_is_no_current_time_step_before_the_first_reset(message_of):
    with pool_of([CountingEnv]) as env:
        message = message_of(CallOrderError, env.current_time_step)
    assert (
        "Current timestep not initialized: ParallelPyEnvironment.current_time_step() "
        "was called before the first episode. Call reset() first."
    ) == message


def test_the_current_time_step_is_the_last_one_returned(four):
    for call in (four.reset, lambda: four.step([1, 2, 3, 4])):
        time_step = call()
        assert [] == streams.differences(time_step, four.current_time_step())
    now = four.current_time_step()
    assert [1, 2, 3, 4] == now.observation["action"].tolist()


def test_request_numbers_may_overflow(backend):
    """Two thousand million steps are made in a day or two."""
    with pool_of(traced(3, steps_per_episode=(2, 3)), backend, num_workers=2) as env:
        before = env.reset()
        slab = env._pool.slab
        slab.stand_at(slice(None), 2**32 - 6)
        before = env.step([0, 0, 0])
        for number in range(6):
            action = [number] * 3
            mask = [True, number % 2 == 0, True]
            after = env.step(action, mask)
            assert [] == faults(before, action, after, np.flatnonzero(mask))
            before = after
        before = env.current_time_step()
        after = env.reset()

    assert [] == faults(before, None, after, was_reset=True)


# Some rows only.


@pytest.mark.parametrize(
    ("backend", "workers"),
    [*itertools.product(["inline", "thread"], [1, 3, 9]), ("process", 3)],
)
def test_calls_for_any_rows_in_any_order_equal_a_batch_without_workers(
    backend, workers
):
    """The oracle steps single environments, one by one."""
    rng = np.random.default_rng(0)
    makers = traced(4, steps_per_episode=(1, 3))
    lone = [maker() for maker in makers]
    with pool_of(makers, backend, num_workers=workers) as env:
        env.reset()
        expected = [one.reset() for one in lone]
        for number in range(150):
            # All rows have several ways of being asked.
            mask = rng.random(4) < 1.5 * rng.random()
            given = None if mask.all() and number % 2 else mask
            action = rng.integers(1000, size=4)
            if rng.random() < 0.3:
                actual = env.reset(given)
                moved = [
                    one.reset() if chosen else None
                    for one, chosen in zip(lone, mask, strict=True)
                ]
            else:
                actual = env.step(action, given)
                moved = [
                    one.step(row) if chosen else None
                    for one, row, chosen in zip(lone, action, mask, strict=True)
                ]
            expected = [new or old for new, old in zip(moved, expected, strict=True)]

            assert [] == streams.differences(streams.stacked(expected), actual), number
            assert [] == streams.differences(actual, env.current_time_step()), number


def test_a_mask_may_be_a_list_or_a_tuple():
    with pool_of(traced(2)) as env:
        env.reset()
        env.step([1, 1], (True, False))
        steps = env.reset([False, True]).observation["episode"].tolist()
    assert [0, 1] == steps


def test_reset_of_some_rows_needs_a_first_reset_of_all(message_of):
    with pool_of([CountingEnv] * 2) as env:
        message = message_of(CallOrderError, lambda: env.reset([True, False]))
    assert (
        "ParallelPyEnvironment.reset(mask) was called before the first reset(): the "
        "rows outside the mask have no time step yet. Call reset() first."
    ) == message


def test_a_mask_of_all_rows_can_be_the_first_reset():
    with pool_of([CountingEnv] * 2) as env:
        first = env.reset([True, True])
    assert [FIRST, FIRST] == first.step_type.tolist()


@pytest.mark.parametrize(
    ("mask", "what"),
    [
        ([True], "a list of 1 element"),
        ([1, 0], "a list of 2 elements"),
        (
            np.ones((2, 1), bool),
            "array of shape (2, 1), dtype bool, values False … True",
        ),
        ("10", "the string '10'"),
    ],
    ids=["short", "integers", "deep", "text"],
)
def test_a_mask_must_have_one_boolean_for_each_row(mask, what):
    with pool_of([CountingEnv] * 2) as env:
        env.reset()
        with pytest.raises(SpecError) as resetting:
            env.reset(mask)
        with pytest.raises(SpecError) as stepping:
            env.step([0, 0], mask)
        observation = env.current_time_step().observation.tolist()

    for call, caught in (("reset", resetting), ("step", stepping)):
        assert str(caught.value).startswith(
            f"ParallelPyEnvironment.{call}() was given a mask that does not fit its "
            "spec.\n\n  expected   boolean array of shape (2,)\n"
        )
    assert [0, 0] == observation


def test_a_masked_step_checks_its_mask_before_the_first_reset():
    with pool_of([CountingEnv] * 2) as env, pytest.raises(SpecError):
        env.step([0, 0], "everybody")


def test_actions_outside_the_mask_are_neither_used_nor_checked():
    with pool_of([CountingEnv] * 2, validate="always") as env:
        env.reset()
        observation = env.step([1, 99], [True, False]).observation.tolist()
    assert [1, 0] == observation


# Constructors that build batches.


def test_batches_occupy_as_many_rows_as_they_have(backend):
    makers = [
        functools.partial(environments.pair_of, 2, 3),
        functools.partial(TracingEnv, 7, 7),
        functools.partial(environments.pair_of, 4, 5, 6),
    ]
    for workers in (2,) if backend == "process" else (1, 2, 3):
        with pool_of(makers, backend, num_workers=workers) as env:
            first = env.reset()
            blocks = [worker.rows for worker in env.workers]
            size = env.batch_size

        assert 6 == size
        assert [2, 3, 7, 4, 5, 6] == first.observation["env_id"].tolist()
        assert list(range(6)) == list(itertools.chain(*blocks))


@pytest.mark.parametrize(
    ("backend", "workers"),
    [*itertools.product(["inline", "thread"], [1, 3]), ("process", 2)],
)
def test_batches_and_single_environments_step_side_by_side(backend, workers):
    makers = [
        functools.partial(environments.pair_of, 1, 2),
        functools.partial(TracingEnv, 3, 3),
        functools.partial(environments.pair_of, 4),
    ]
    lone = [TracingEnv(length, length) for length in (1, 2, 3, 4)]
    with pool_of(makers, backend, num_workers=workers) as env:
        actual = streams.play(env, [np.arange(4) + 10 * n for n in range(30)])
    columns = [
        streams.play(one, [row + 10 * n for n in range(30)])
        for row, one in enumerate(lone)
    ]
    expected = [streams.stacked(rows) for rows in zip(*columns, strict=True)]

    assert [] == streams.differences(expected, actual)


def test_single_rows_of_a_batch_can_be_reset_while_others_are_held(backend):
    with pool_of([functools.partial(environments.pair_of, 5, 6, 7)], backend) as env:
        env.reset()
        before = env.step([1, 2, 3])
        after = env.reset([False, True, False])
    assert [0, 1, 0] == after.observation["episode"].tolist()
    for row in (0, 2):
        assert [] == streams.differences(row_of(before, row), row_of(after, row))


def test_some_rows_of_a_batch_cannot_step_without_the_others(message_of):
    makers = [TracingEnv, functools.partial(environments.pair_of, 5, 6)]
    with pool_of(makers) as env:
        env.reset()
        message = message_of(
            ValueError, lambda: env.step([1, 2, 3], [True, True, False])
        )
        steps = env.current_time_step().observation["step"].tolist()
        both = env.step([1, 2, 3], [False, True, True]).observation["step"].tolist()

    assert (
        "The mask steps only some of rows 1 to 2, which are one environment (env 1) "
        "that is a batch itself and moves together."
    ) == message
    assert ([0, 0, 0], [0, 1, 1]) == (steps, both)


# Actions.


def test_nested_actions_and_observations_keep_their_structure(backend):
    spec = {
        "move": Move(ArraySpec((), np.int16), (ArraySpec((2,), np.float32), [])),
        "say": ArraySpec((), "<U5"),
    }
    first = {
        "move": Move(np.array(0, np.int16), (np.zeros(2, np.float32), [])),
        "say": np.array("", "<U5"),
    }
    actions = {
        "move": Move(np.array([1, 2], np.int16), (np.eye(2, dtype=np.float32), [])),
        "say": np.array(["hello", "you"], "<U5"),
    }
    maker = functools.partial(environments.Repeating, spec, first)
    with pool_of([maker] * 2, backend, num_workers=1) as env:
        env.reset()
        observation = env.step(actions).observation

    assert [] == streams.differences(actions, observation)


class Tensor:
    """Stands for a tensor of another library that is on the CPU."""

    def __init__(self, values):
        self._values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self._values, dtype)

    def __int__(self):
        return int(self._values)


@pytest.mark.parametrize(
    "action",
    [
        [3, 4],
        (3, 4),
        [np.int64(3), np.int8(4)],
        np.array([3, 4], np.uint8),
        np.array([3, 4], ">i8"),
        np.arange(12)[3::1][:2],
        np.array([4, 0, 3])[::-2],
        [np.array(3), np.array(4)],
        [[3, 4]][0],
        Tensor([3, 4]),
        [Tensor(3), Tensor(4)],
        range(3, 5),
    ],
    ids=[
        "list",
        "tuple",
        "NumPy's integers",
        "bytes",
        "big-endian",
        "slice",
        "reversed",
        "arrays without dimensions",
        "nested list",
        "tensor",
        "list of tensors",
        "range",
    ],
)
def test_actions_can_be_arrays_lists_or_array_likes(action):
    with pool_of(traced(2)) as env:
        env.reset()
        observed = env.step(action).observation["action"]
    assert [] == streams.differences(np.array([3, 4], np.int64), observed)


BAD_ACTIONS = {
    "too few": (
        [1],
        "a list of 1 element",
        "1 action was given for 2 environments.",
    ),
    "too many": (
        np.zeros(3, np.int64),
        "array of shape (3,), dtype int64, values 0 … 0",
        "3 actions were given for 2 environments.",
    ),
    "below": (
        np.array([0, -1]),
        "array of shape (2,), dtype int64, values -1 … 0",
        "1 of 2 elements is below the minimum 0: -1 at index (1,).",
    ),
    "above": (
        np.array([0, 10]),
        "array of shape (2,), dtype int64, values 0 … 10",
        "1 of 2 elements is above the maximum 9: 10 at index (1,).",
    ),
}


@pytest.mark.parametrize(
    ("backend", "what"),
    [*itertools.product(["inline", "thread"], BAD_ACTIONS), ("process", "below")],
)
def test_an_action_that_does_not_fit_is_refused_and_nothing_steps(
    message_of, backend, what
):
    action, got, reason = BAD_ACTIONS[what]
    maker = functools.partial(
        environments.Showing, ArraySpec((), np.int64), [np.array(n) for n in range(9)]
    )
    with pool_of([maker] * 2, backend, num_workers=1) as env:
        env.reset()
        message = message_of(SpecError, lambda: env.step(action))
        now = env.current_time_step().observation.tolist()
        heard = [len(actions) for actions in env.access("heard")]
        after = env.step([1, 2]).observation.tolist()

    assert (
        "ParallelPyEnvironment.step() was given an action that does not fit its spec."
        "\n\n"
        "  expected   BoundedArraySpec(shape=(2,), dtype=int64, minimum=0, maximum=9)\n"
        f"  got        {got}\n\n"
        f"{reason}\n"
        "None of the environments has moved."
    ) == message
    assert ([0, 0], [0, 0], [1, 1]) == (now, heard, after)


@pytest.mark.parametrize(
    "action",
    [
        0,
        None,
        np.zeros((2, 1), np.int64),
        np.zeros((1, 2), np.int64),
        np.zeros((2, 2), np.int64),
        np.array([0.0, 1.0]),
        np.array([True, False]) * 1j,
        ["a", "b"],
        [[0], [0, 1]],
        [None, None],
        {"action": [0, 0]},
    ],
    ids=lambda action: (
        type(action).__name__
        + str(np.shape(action) if isinstance(action, np.ndarray) else "")
    ),
)
@pytest.mark.parametrize("validate", ["always", "first", "never"])
def test_actions_are_never_broadcast_or_altered(action, validate):
    with pool_of(traced(2), validate=validate) as env:
        env.reset()
        for _ in range(2):
            with pytest.raises(SpecError):
                env.step(action)
            with pytest.raises(SpecError):
                env.step(action, [True, True])
            env.step([1, 1])
        steps = env.current_time_step().observation["step"].tolist()

    assert [2, 2] == steps


@pytest.mark.parametrize("validate", ["always", "first"])
def test_an_integer_that_its_dtype_cannot_hold_is_refused_at_every_step(validate):
    with pool_of([CountingEnv] * 2, validate=validate) as env:
        env.reset()
        for _ in range(3):
            with pytest.raises(SpecError):
                env.step([2**40, 0])
            env.step([1, 1])
        observation = env.current_time_step().observation.tolist()

    assert [3, 3] == observation


@pytest.mark.parametrize(
    ("dtype", "action"),
    [
        ("<U3", np.array(["abcdef", "x"])),
        ("S2", np.array([b"abc", b"x"])),
        ("M8[D]", np.array(["2020-01-01T13", "2020-01-01"], "M8[h]")),
        ("m8[s]", np.array([1, 2], "m8[ms]")),
    ],
    ids=["text", "bytes", "date", "duration"],
)
def test_actions_are_never_silently_truncated(dtype, action):
    maker = functools.partial(
        environments.Showing,
        ArraySpec((), np.int64),
        [np.array(0)],
        ArraySpec((), dtype),
    )
    with pool_of([maker] * 2, validate="first") as env:
        env.reset()
        for _ in range(2):
            with pytest.raises(SpecError):
                env.step(action)
            env.step(np.zeros(2, dtype))
        heard = env.access("heard")

    assert [[np.zeros((), dtype)] * 2] * 2 == heard


def test_the_leaf_that_does_not_fit_is_named(message_of):
    with pool_of([functools.partial(NestedCountingEnv, nested_action=True)] * 2) as env:
        env.reset()
        message = message_of(
            SpecError, lambda: env.step({"foo": [0, 0], "bar": [0, 0, 0]})
        )

    assert message.startswith(
        "ParallelPyEnvironment.step() was given an action that does not fit its spec "
        "at action['bar'].\n\n"
    )


def test_the_action_of_an_ended_row_is_not_checked():
    with pool_of([functools.partial(CountingEnv, 1)] * 2, validate="always") as env:
        env.reset()
        env.step([0, 0])
        step_types = env.step([-5, 77]).step_type.tolist()
    assert [FIRST, FIRST] == step_types


def test_bounds_are_checked_only_in_the_first_batch_by_default(message_of):
    outcomes = {}
    for validate in ("always", "first", "never"):
        with pool_of([CountingEnv] * 2, validate=validate) as env:
            env.reset()
            calls = {
                "first": lambda env=env: env.step([0, 2]),
                "good": lambda env=env: env.step([0, 1]),
                "later": lambda env=env: env.step([0, 2]),
            }
            told = streams.messages_of(calls)
        outcomes[validate] = [text.partition(":")[0] for text in told.values()]

    assert {
        "always": ["SpecError", "no error", "SpecError"],
        "first": ["SpecError", "no error", "no error"],
        "never": ["no error", "no error", "no error"],
    } == outcomes


def test_the_callers_arrays_are_unchanged(backend):
    action = {"foo": np.array([0, 1], np.int32), "bar": np.array([1, 0], np.int32)}
    mask = np.array([True, False])
    before = pickle.dumps((action, mask))
    makers = [functools.partial(NestedCountingEnv, nested_action=True)] * 2
    given = list(makers)
    with pool_of(makers, backend, num_workers=1) as env:
        env.reset()
        for _ in range(3):
            env.step(action)
            env.step(action, mask)
            env.reset(mask)

    assert before == pickle.dumps((action, mask))
    assert given == makers


def test_actions_may_be_read_only(four):
    action = np.array([3, 4, 5, 6])
    action.flags.writeable = False
    four.reset()
    observed = four.step(action).observation["action"].tolist()
    assert [3, 4, 5, 6] == observed


@pytest.mark.parametrize("masked", [False, True])
def test_an_environment_can_keep_its_action(backend, masked):
    maker = functools.partial(
        environments.Showing,
        ArraySpec((), np.int64),
        [np.array(0)],
        {"grip": ArraySpec((), np.int64), "aim": ArraySpec((2,), np.int64)},
    )
    action = {"grip": np.zeros(3, np.int64), "aim": np.zeros((3, 2), np.int64)}
    with pool_of([maker] * 3, backend, num_workers=2) as env:
        env.reset()
        for number in range(4):
            action["grip"][:] = number
            action["aim"][:] = number
            env.step(action, [True, False, True] if masked else None)
        heard = env.access("heard")[2]

    assert [0, 1, 2, 3] == [int(each["grip"]) for each in heard]
    assert [[0, 0], [1, 1], [2, 2], [3, 3]] == [each["aim"].tolist() for each in heard]


# Observations.


def test_returned_arrays_never_change(backend):
    """Also where the environment writes into the array that it returned."""
    with pool_of([environments.Reusing] * 2, backend, num_workers=1) as env:
        kept = streams.play(env, [[0, 0]] * 50)
        env.call("spoil")
        kept.append(env.reset())
        env.reset([True, False])
        env.step([0, 0], [False, True])
        kept.append(env.current_time_step())
        env.call("spoil")

    assert [[[n] * 3] * 2 for n in range(51)] == [
        time_step.observation.tolist() for time_step in kept[:51]
    ]
    assert [[0] * 3, [0] * 3] == kept[51].observation.tolist()
    assert [[0] * 3, [1] * 3] == kept[52].observation.tolist()


def test_returned_arrays_belong_to_the_caller(four):
    before = four.reset()
    for number in range(20):
        after = four.step([number] * 4)
        assert [] == faults(before, [number] * 4, after)
        before = copy.deepcopy(after)
        for leaf in streams.leaves_of(after):
            leaf[...] = 1


@pytest.mark.parametrize("zero_copy", [False, True], ids=["arrays", "views"])
@pytest.mark.parametrize("backend", ["inline", "process"])
def test_returned_arrays_outlive_the_pool(backend, zero_copy):
    with pool_of(traced(2), backend, num_workers=1, zero_copy=zero_copy) as env:
        env.reset()
        time_step = env.step([8, 9])
    assert [8, 9] == time_step.observation["action"].tolist()


def test_views_stay_valid_until_the_call_after_the_next(backend):
    with pool_of(traced(3), backend, num_workers=2, zero_copy=True) as env:
        calls = [
            env.reset,
            lambda: env.step([1, 2, 3]),
            lambda: env.step([4, 5, 6], [True, False, False]),
            lambda: env.reset([False, True, False]),
            lambda: env.step([7, 8, 9]),
            lambda: env.step([7, 8, 9], [False, True, True]),
            lambda: env.step([7, 8, 9], [False, False, True]),
            env.reset,
        ]
        previous, copied = None, None
        for call in calls * 3:
            time_step = call()
            assert previous is None or streams.bits_of(previous) == copied
            assert not any(
                leaf.flags.writeable for leaf in streams.leaves_of(time_step)
            )
            previous, copied = time_step, streams.bits_of(time_step)


def test_an_environment_without_leaves_and_without_a_base_is_legal(backend):
    with pool_of([environments.Odd] * 2, backend, num_workers=1) as env:
        first = env.reset()
        second = env.step({})
        third = env.step({}, [True, False])
        steps = env.access("steps")

    assert ((), (), ()) == (first.observation, second.observation, third.observation)
    assert [0.0, 0.0] == first.reward.tolist()
    assert [1.0, 1.0] == second.reward.tolist()
    assert [2, 1] == steps


OBJECTS = [{"words": ["a"]}, None, ["x", 1], "text", np.array([1, 2])]


def test_objects_can_be_observations(backend):
    values = []
    for value in OBJECTS:
        array = np.empty((), object)
        array[()] = value
        values.append(array)
    spec = {"thing": ArraySpec((), object), "number": ArraySpec((), np.int64)}
    shown = [{"thing": value, "number": np.array(n)} for n, value in enumerate(values)]
    maker = functools.partial(environments.Showing, spec, shown)
    with pool_of([maker] * 2, backend, num_workers=1) as env:
        time_steps = streams.play(env, [[0, 0]] * (len(OBJECTS) - 1))
        masked = env.step([0, 0], [False, True]).observation["thing"]

    for value, time_step in zip(OBJECTS, time_steps, strict=True):
        things = time_step.observation["thing"]
        assert (np.dtype(object), (2,)) == (things.dtype, things.shape)
        assert repr([value, value]) == repr(things.tolist())
    assert repr([OBJECTS[-1], OBJECTS[0]]) == repr(masked.tolist())


def test_objects_can_be_actions(backend):
    maker = functools.partial(
        environments.Showing,
        ArraySpec((), np.int64),
        [np.array(0)],
        {"thing": ArraySpec((), object), "more": ArraySpec((2,), object)},
    )
    things = np.empty(2, object)
    things[0], things[1] = {"words": ["a"]}, [1, 2]
    more = np.array([["a", None], [{}, 5]], object)
    with pool_of([maker] * 2, backend, num_workers=1) as env:
        env.reset()
        env.step({"thing": things, "more": more})
        env.step({"thing": [["x"], "y"], "more": more[::-1]}, [False, True])
        heard = env.access("heard")

    told = [[(each["thing"], each["more"].tolist()) for each in row] for row in heard]
    assert [
        [({"words": ["a"]}, ["a", None])],
        [([1, 2], [{}, 5]), ("y", ["a", None])],
    ] == told


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_objects_never_belong_to_another_step(backend):
    spec = ArraySpec((), object)
    first = np.array(None, object)
    makers = [functools.partial(environments.Repeating, spec, first)] * 4
    found = []
    with pool_of(makers, backend, num_workers=2, validate="never") as env:
        env.reset()
        for number in range(150):
            action = [{"step": number, "row": row} for row in range(4)]
            observed = env.step(action).observation.tolist()
            if observed != action:
                found.append((action, observed))

    assert [] == found


def test_text_without_a_width_arrives_whole(backend):
    values = [np.array(word) for word in ("", "a", "a long sentence", "é😀")]
    maker = functools.partial(environments.Showing, ArraySpec((), "U"), values)
    with pool_of([maker] * 2, backend, num_workers=1, validate="never") as env:
        time_steps = streams.play(env, [[0, 0]] * 3)
    assert [[value.item()] * 2 for value in values] == [
        time_step.observation.tolist() for time_step in time_steps
    ]


# Observations that do not fit.

WRONG = {
    "another dtype": np.zeros(2, np.float64),
    "longer": np.zeros(3, np.float32),
    "one for all": np.zeros(1, np.float32),
    "no dimension": np.array(1, np.float32),
    "deeper": np.zeros((1, 2), np.float32),
    "nothing": None,
    "text": "ab",
}


@pytest.mark.parametrize(
    ("backend", "call"),
    [*itertools.product(["inline", "thread"], ["reset", "step"]), ("process", "step")],
)
def test_the_first_answer_that_does_not_fit_is_fully_reported(
    message_of, backend, call
):
    with pool_of([environments.Loose] * 2, backend, num_workers=1) as env:
        if call == "step":
            env.reset()
        env.call("show", np.zeros(2), env_ids=[1])
        move = env.reset if call == "reset" else functools.partial(env.step, [0, 0])
        message = message_of(EnvironmentRaised, move)

    assert (
        "env 1 returned a time step that does not fit its spec at observation.\n\n"
        "  expected   ArraySpec(shape=(2,), dtype=float32)\n"
        "  got        array of shape (2,), dtype float64, values 0.0 … 0.0\n\n"
        "dtype is float64; the spec says float32. NumPy makes float64 by default: add "
        ".astype(np.float32). The other 3 leaves fit.\n"
        f"This was the first observation after {call}() of "
        "tests.parallel.environments.Loose."
    ) == message


@pytest.mark.parametrize("validate", ["always", "first", "never"])
@pytest.mark.parametrize("what", [name for name in WRONG if name != "another dtype"])
def test_shapes_are_never_broadcast_whatever_is_validated(validate, what):
    with pool_of([environments.Loose] * 2, validate=validate) as env:
        env.reset()
        env.step([0, 0])
        env.call("show", WRONG[what], env_ids=[1])
        with pytest.raises(EnvironmentRaised) as caught:
            env.step([0, 0])
        row = env.current_time_step().observation[1].tolist()

    assert (1,) == caught.value.envs
    assert "env 1 returned a time step that does not fit its spec" in str(caught.value)
    assert [0.0, 0.0] == row


WRONG_BATCHES = {
    "more rows": (np.zeros((3, 3), np.float32), None),
    "one for all": (np.zeros((1, 3), np.float32), None),
    "no rows": (np.zeros(3, np.float32), None),
    "shorter": (np.zeros((2, 1), np.float32), None),
    "nothing": (None, None),
    "one reward": (np.zeros((2, 3), np.float32), np.float32(1)),
    "a list of rewards too many": (np.zeros((2, 3), np.float32), [1.0, 2.0, 3.0]),
}


@pytest.mark.parametrize("validate", ["always", "first", "never"])
@pytest.mark.parametrize("what", WRONG_BATCHES)
def test_shapes_of_a_batch_are_never_broadcast(validate, what):
    makers = [environments.LooseBatch, environments.LooseBatch]
    with pool_of(makers, validate=validate) as env:
        env.reset()
        env.step([0] * 4)
        env.call("show", *WRONG_BATCHES[what], env_ids=[1])
        with pytest.raises(EnvironmentRaised) as caught:
            env.step([0] * 4)
        rows = env.current_time_step().observation.tolist()

    assert str(caught.value).startswith("env 1 (rows 2 to 3) returned a time step ")
    assert "other failure" not in str(caught.value)
    assert [[0.0] * 3] * 4 == rows


def test_a_drifting_dtype_is_found_if_everything_is_checked():
    outcomes = {}
    for validate in ("always", "first", "never"):
        with pool_of([environments.Loose] * 2, validate=validate) as env:
            env.reset()
            env.step([0, 0])
            env.call("show", WRONG["another dtype"])
            told = streams.messages_of({"step": lambda env=env: env.step([0, 0])})
        outcomes[validate] = told["step"].partition("[")[0]

    assert {
        "always": "EnvironmentRaised",
        "first": "no error",
        "never": "no error",
    } == outcomes


def test_converted_values_have_the_dtype_of_the_spec():
    with pool_of([environments.Loose] * 2, validate="never") as env:
        env.reset()
        env.call("show", [1, 2.5])
        observation = env.step([0, 0]).observation
    assert [] == streams.differences(np.array([[1, 2.5]] * 2, np.float32), observation)


# Asking environments.


@pytest.fixture(scope="module")
def talkative(backend):
    """A pool to ask things; nobody changes for long what its environments are."""
    makers = [functools.partial(environments.Talkative, row) for row in range(3)]
    with pool_of(makers, backend, num_workers=2) as env:
        env.reset()
        yield env


def test_call_calls_each_environment_and_returns_a_list(talkative):
    assert [13, 14, 15] == talkative.call("add", 10, 3)
    assert [20, 22, 24] == talkative.call("add", 10, factor=2)


def test_call_can_address_some_environments_in_any_order(talkative):
    assert [12, 10] == talkative.call("add", 10, env_ids=[2, 0])
    assert [] == talkative.call("add", 10, env_ids=[])
    assert [11] == talkative.call("add", 10, env_ids=np.array([1]))


def test_access_returns_attributes(talkative):
    assert [0, 1, 2] == talkative.access("number")
    assert ["green"] == talkative.access("colour", env_ids=[1])


@pytest.mark.parametrize(
    ("env_ids", "text"),
    [
        ([3], "env_ids has 3; there are 3 environments, 0 to 2."),
        ([-1], "env_ids has -1; there are 3 environments, 0 to 2."),
        (
            [1, 1],
            "env_ids names an environment twice; there are 3 environments, 0 to 2.",
        ),
    ],
)
def test_missing_environments_are_refused(message_of, talkative, env_ids, text):
    for ask in (
        lambda: talkative.call("add", 1, env_ids=env_ids),
        lambda: talkative.access("number", env_ids=env_ids),
        lambda: talkative.render(env_ids=env_ids),
    ):
        assert text == message_of(ValueError, ask)


@pytest.mark.parametrize("env_ids", [[1.0], "01", [None], [[0], [1]]])
def test_environments_are_addressed_by_integers(talkative, env_ids):
    with pytest.raises(
        TypeError, match=r"must be a list of indices such as \[3\], got"
    ):
        talkative.call("add", 1, env_ids=env_ids)


@pytest.mark.parametrize("name", ["_secret", "__class__", "_get_state"])
def test_private_names_are_refused(message_of, talkative, name):
    expected = (
        f"{name!r} is private to the environment; only public names are forwarded."
    )

    for ask in (
        lambda: talkative.call(name),
        lambda: talkative.access(name),
        lambda: talkative.envs[0].call(name),
        lambda: talkative.envs[0].access(name),
    ):
        assert expected == message_of(AttributeError, ask)
    with pytest.raises(AttributeError):
        getattr(talkative.envs[0], name + "x")


@pytest.mark.parametrize("name", ["reset", "step"])
def test_call_cannot_step_or_reset_environments(message_of, talkative, name):
    assert (
        f"call({name!r}) would move environments behind the pool's back. Use "
        f"{name}(), with a mask for some of them."
    ) == message_of(ValueError, lambda: talkative.call(name, 0))


def test_missing_attributes_raise_attribute_error(talkative):
    for ask in (
        lambda: talkative.call("no_such_method"),
        lambda: talkative.access("no_such_attribute"),
        lambda: talkative.envs[1].no_such_attribute,
    ):
        with pytest.raises(AttributeError, match="has no attribute 'no_such") as caught:
            ask()
        assert isinstance(caught.value, EnvironmentRaised)


def test_errors_of_a_call_are_raised_and_name_all_environments(talkative):
    with pytest.raises(KeyError) as caught:
        talkative.call("complain", "enough", env_ids=[1, 2])

    error = caught.value
    assert isinstance(error, EnvironmentRaised)
    assert ((1,), ("enough",)) == (error.envs, error.args)
    assert [(2,)] == [other.envs for other in error.also]
    assert str(error).startswith("env 1 raised KeyError: 'enough' in call('complain').")
    assert str(error).endswith(
        "1 other failure in the same call:\n  - env 2 raised KeyError: 'enough' in "
        "call('complain')."
    )


def test_a_worker_survives_an_error_in_a_call(talkative):
    for method in ("fail_unsendably", "leave"):
        with pytest.raises(EnvironmentRaised):
            talkative.call(method)
        assert [1, 2, 3] == talkative.call("add", 1)


def test_infos_are_stacked(talkative):
    talkative.call("inform", {"number": 5, "place": np.zeros(2, np.float32)})
    info = talkative.get_info()
    assert [] == streams.differences(
        {"number": np.array([5] * 3), "place": np.zeros((3, 2), np.float32)}, info
    )


@pytest.mark.parametrize(
    "infos",
    [
        [None, None, None],
        [{}, {"a": 1}, {}],
        [{"a": 1}, {"a": "x"}, {"a": 2}],
        ["x", 1, 2],
    ],
    ids=["None", "other keys", "other kinds", "mixed"],
)
def test_infos_that_cannot_be_stacked_are_a_list(talkative, infos):
    for row, info in enumerate(infos):
        talkative.call("inform", info, env_ids=[row])
    assert infos == talkative.get_info()


def test_pictures_are_stacked(talkative):
    pictures = talkative.render()
    assert ((3, 2, 2, 3), np.uint8) == (pictures.shape, pictures.dtype)
    assert [0, 1, 2] == pictures[:, 0, 0, 0].tolist()


def test_some_environments_render_and_the_others_do_not(talkative):
    assert [2, 1] == talkative.render(env_ids=[2, 1])[:, 0, 0, 0].tolist()


def test_other_modes_are_listed(talkative):
    assert ["number 0", "number 2"] == talkative.render("ansi", env_ids=[0, 2])


def test_an_unknown_mode_raises_the_environments_error(talkative):
    with pytest.raises(NotImplementedError, match="Only rgb_array is rendered"):
        talkative.render("human")


def large_for(env):
    """Returns a size, large only where something has to travel."""
    elsewhere = env.access("pid")[0] != os.getpid()
    return 3 * 2**20 if elsewhere else 1000


def test_large_payloads_pass_in_every_direction(talkative):
    size = large_for(talkative)
    assert [size] == talkative.call("size_of", bytes(size), env_ids=[0])
    assert [size] * 3 == [len(part) for part in talkative.call("payload", size)]
    talkative.call("inform_of_size", size)
    infos = talkative.get_info()
    talkative.call("inform", {})
    assert (3, size) == infos["payload"].shape
    talkative.call("paint", 1200)
    pictures = talkative.render(env_ids=[1])
    talkative.call("paint", 2)
    assert (1, 1200, 1200, 3) == pictures.shape


def test_large_constructors_do_not_block(caplog):
    # No more of it than fits goes out at once.
    maker = functools.partial(environments.Talkative, ballast=bytes(5 * 2**20))
    with pool_of([maker] * 2, "process", num_workers=2) as env:
        env.reset()
    assert "still waiting" not in caplog.text


def test_a_large_exception_message_arrives(talkative):
    # More than a socket takes at once, and less than is cut.
    size = min(large_for(talkative), 500_000)
    with pytest.raises(KeyError) as caught:
        talkative.call("complain_of_size", size, env_ids=[0])
    talkative.call("plan_complaint", size, env_ids=[1])
    with pytest.raises(KeyError) as in_step:
        talkative.step([0, 0, 0])
    talkative.reset()

    assert size == len(caught.value.args[0]) == len(in_step.value.args[0])
    # The first line is what logs keep.
    assert len(str(caught.value).partition("\n")[0]) < 400


def test_a_large_state_arrives(talkative):
    size = large_for(talkative)
    talkative.call("keep", size, env_ids=[1])
    state = talkative.get_state()
    talkative.set_state(state)
    talkative.call("keep", 0, env_ids=[1])
    assert [False, True, False] == [len(token) > size for token in state.environments]


def test_an_unpicklable_result_fails_alone():
    makers = [functools.partial(environments.Talkative, row) for row in range(3)]
    with pool_of(makers, "process", num_workers=1) as env:
        env.reset()
        env.call("inform_of_lock", env_ids=[1])
        told = streams.messages_of(
            {
                "result": lambda: env.call("make_lock", env_ids=[0]),
                "attribute": lambda: env.access("lock", env_ids=[2]),
                "info": env.get_info,
                "argument": lambda: env.call("add", lambda: made, env_ids=[0]),
            }
        )
        pid = env.access("pid")
        observation = env.step([0, 0, 0]).observation.tolist()
        alive = [worker.pid for worker in env.workers]

    made = None
    assert [1, 1, 1] == observation
    assert pid == alive * 3
    assert "env 0 raised TypeError in answer: " in told["result"]
    assert "env 2 raised TypeError in answer: " in told["attribute"]
    assert "env 1 raised TypeError in answer: " in told["info"]
    assert "cannot be sent to another process" in told["info"]


@pytest.mark.parametrize(
    ("backend", "lines"), [("inline", 0), ("process", 1)], ids=["here", "elsewhere"]
)
def test_slow_transport_warns_once(caplog, backend, lines):
    spec = ArraySpec((), object)
    maker = functools.partial(environments.Repeating, spec, np.array(None, object))
    with pool_of([maker] * 2, backend, num_workers=1, validate="never") as env:
        streams.play(env, [[1, 2]] * 5)
    told = [text for text in caplog.messages if "cannot lie in shared memory" in text]
    assert lines == len([text for text in told if "observation" in text])
    assert lines == len([text for text in told if "the action cannot" in text])


@pytest.mark.parametrize(("backend", "lines"), [("inline", 0), ("process", 1)])
def test_needless_workers_warn_once(caplog, backend, lines):
    caplog.set_level("INFO", "envkit")
    with pool_of([CountingEnv], backend) as env:
        env.reset()
        for _ in range(1200):
            env.step([0])
    told = [text for text in caplog.messages if "one process would be as" in text]
    assert lines == len(told)


def test_large_objects_can_be_actions_and_observations():
    spec = ArraySpec((), object)
    maker = functools.partial(environments.Repeating, spec, np.array(None, object))
    with pool_of([maker] * 2, "process", num_workers=1, validate="never") as env:
        env.reset()
        action = [bytes(2 * 2**20), bytes(3 * 2**20)]
        observed = env.step(action).observation.tolist()
        again = env.step(action[::-1]).observation.tolist()

    assert action == observed
    assert action[::-1] == again


def test_an_unpicklable_argument_is_refused_before_any_call(
    message_of,
):
    import threading

    with pool_of([environments.Talkative] * 2, "process", num_workers=1) as env:
        message = message_of(TypeError, lambda: env.call("size_of", threading.Lock()))
        answer = env.call("add", 1)

    assert message.startswith("An argument cannot be sent to another process: ")
    assert [1, 1] == answer


# Handles on single environments, as code written for TF-Agents uses them.


def test_handles_step_and_reset_one_environment(four):
    before = four.reset()
    handle = four.envs[1]
    stepped = handle.step(42)
    again = handle.reset()
    now = four.current_time_step().observation

    assert "" == check_trace(row_of(before, 1), 42, stepped, env_id=1)
    assert "" == check_trace(stepped, None, again, env_id=1)
    assert [0, 1, 0, 0] == now["episode"].tolist()


def test_promises_can_be_resolved_in_any_order(four):
    """TF-Agents steps by `[promise() for promise in [env.step(a, False) ...]]`."""
    promises = [handle.call("reset") for handle in four._envs]
    before = [promise() for promise in promises]
    promises = [handle.call("step", 10 + row) for row, handle in enumerate(four._envs)]
    after = [promise() for promise in promises[::-1]][::-1]
    again = [promise() for promise in promises]

    assert [""] * 4 == [
        check_trace(old, 10 + row, new, env_id=row)
        for row, (old, new) in enumerate(zip(before, after, strict=True))
    ]
    assert [] == streams.differences(after, again)


def test_a_promise_belongs_to_its_action(four):
    four.reset()
    handle = four.envs[0]
    first, second = handle.step(1, blocking=False), handle.step(2, blocking=False)
    actions = [int(promise().observation["action"]) for promise in (first, second)]
    third = handle.step(3, blocking=False)
    batch = four.step([6, 7, 8, 9]).observation
    actions.append(int(third().observation["action"]))

    assert [1, 2, 3] == actions
    assert [6, 7, 8, 9] == batch["action"].tolist()
    assert [4, 1, 1, 1] == batch["step"].tolist()


def test_promised_steps_happen_even_if_nobody_waits(four):
    four.reset()
    four.envs[1].step(7, blocking=False)
    observation = four.step([1, 2, 3, 4]).observation
    assert [1, 2, 1, 1] == observation["step"].tolist()


def test_a_call_runs_before_later_steps(backend):
    """Also where a worker is awake, because it has just answered a step."""
    told, shown = range(1, 101), []
    with pool_of([environments.Told] * 2, backend, num_workers=1) as env:
        env.reset()
        for number in told:
            env.step([0, 0])
            for handle in env.envs:
                handle.call("tell", number)
            shown.append(env.step([0, 0]).observation.tolist())

    assert [[number] * 2 for number in told] == shown


@pytest.mark.skipif(sys.platform != "linux", reason="the worker is a fork")
def test_a_call_that_a_worker_looks_for_too_early_runs_before_later_steps(
    monkeypatch, tmp_path
):
    """The worker looks after the call was announced and before it has come."""
    gate, is_watched, has_looked = (tmp_path / name for name in "abc")
    os.mkfifo(gate)
    is_readable, send = worker_main.is_readable, Channel.send

    def looking(fd, timeout):
        found = is_readable(fd, timeout)
        if not found and is_watched.exists():
            is_watched.unlink()
            pipe = os.open(gate, os.O_RDWR)
            has_looked.touch()
            os.read(pipe, 1)
            os.close(pipe)
        return found

    def sending(channel, *message, **options):
        assert not is_watched.exists() or until(has_looked.exists)
        send(channel, *message, **options)

    monkeypatch.setattr(worker_main, "is_readable", looking)
    monkeypatch.setattr(Channel, "send", sending)
    with pool_of([environments.Told], "process") as env:
        env.reset()
        is_watched.touch()
        env.envs[0].call("tell", 7)
        step = env.begin_step([0])
        environments.open_gate(gate)
        assert [7] == step().observation.tolist()


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_promises_run_concurrently(tmp_path, backend):
    """The first environment waits at a gate; the second need not wait for it."""
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)
    makers = [functools.partial(environments.Gated, gate, row) for row in range(2)]
    with pool_of(makers, backend, num_workers=2) as env:
        env.reset()
        slow = env.envs[0].step(1, blocking=False)
        quick = env.envs[1].step(2, blocking=False)
        observed = [int(quick().observation["action"])]
        environments.open_gate(gate)
        observed.append(int(slow().observation["action"]))

    assert [2, 1] == observed


def test_one_handle_can_play_before_the_others_begin(message_of):
    with pool_of(traced(2)) as env:
        handle = env.envs[0]
        time_steps = [handle.reset(), handle.step(1), handle.step(2)]
        told = message_of(CallOrderError, env.current_time_step)
        everybody = env.reset()

    assert [0, 1, 2] == [int(ts.observation["step"]) for ts in time_steps]
    assert told.startswith("Current timestep not initialized: ")
    assert [FIRST, FIRST] == everybody.step_type.tolist()
    assert [1.0, 1.0] == everybody.discount.tolist()
    assert [0, 1] == everybody.observation["env_id"].tolist()


def test_a_handle_that_begins_with_a_step_resets():
    with pool_of(traced(2)) as env:
        time_step = env.envs[1].step(5)
    assert "" == check_trace(None, None, time_step, env_id=1)


def test_handles_address_their_own_environment(talkative):
    handles = talkative.envs

    assert [0, 1, 2] == [handle.number for handle in handles]
    assert [5, 6, 7] == [handle.call("add", 5)() for handle in handles]
    assert 1 == handles[1].access("number")
    assert (2, 2, 3) == handles[1].render().shape
    assert (2, 2, 3) == handles[1].render("rgb_array", blocking=False)().shape
    assert talkative.observation_spec() == handles[0].observation_spec()
    assert talkative.action_spec() == handles[0].action_spec()
    assert talkative.time_step_spec() == handles[0].time_step_spec()
    assert "EnvHandle(env=1, rows=1:2)" == repr(handles[1])


def test_a_promise_raises_what_the_environment_raised_each_time(talkative):
    promise = talkative.envs[2].call("complain", "no")
    for _ in range(2):
        with pytest.raises(KeyError, match="no"):
            promise()


def test_a_handle_on_a_batch_has_several_rows():
    makers = [TracingEnv, functools.partial(environments.pair_of, 5, 6)]
    with pool_of(makers) as env:
        env.reset()
        handle = env.envs[1]
        stepped = handle.step([7, 8])
        now = env.current_time_step().observation["action"].tolist()

    assert range(1, 3) == handle.rows
    assert [7, 8] == stepped.observation["action"].tolist()
    assert [-1, 7, 8] == now


def test_actions_are_unstacked_as_in_tf_agents():
    batch = Move(np.array([1, 2]), {"turn": np.array([[3, 4], [5, 6]])})
    with pool_of([CountingEnv] * 2) as env:
        rows = env._unstack_actions(batch)
    assert [Move, Move] == [type(row) for row in rows]
    assert [(1, [3, 4]), (2, [5, 6])] == [
        (int(row.speed), row.turn["turn"].tolist()) for row in rows
    ]


# The contract, and the end.


PAIR = functools.partial(constructor("CartPole"), batch_size=2)


@pytest.mark.parametrize(
    ("makers", "backend", "steps", "required"),
    [
        (
            [environments.Walk] * 3,
            "inline",
            60,
            ["episodes", "info", "masked_reset", "seed", "state"],
        ),
        ([environments.Walk] * 3, "thread", 30, []),
        ([PAIR, PAIR], "inline", 40, ["masked_reset", "seed"]),
    ],
    ids=["inline", "threads", "batches"],
)
def test_a_pool_keeps_the_contract(makers, backend, steps, required):
    """Those of processes return the same; some dozens of pools are made here."""
    report = check_environment(
        lambda: pool_of(makers, backend, num_workers=2), steps=steps, require=required
    )
    assert () == report.failed


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_every_call_after_close_raises_closed_error(backend):
    env = pool_of([environments.Talkative] * 2, backend, num_workers=1)
    env.reset()
    state = env.get_state()
    handle = env.envs[0]
    env.close()
    env.close()
    calls = {
        "start": env.start,
        "reset": env.reset,
        "reset with a mask": lambda: env.reset([True, False]),
        "step": lambda: env.step([0, 0]),
        "step with a mask": lambda: env.step([0, 0], [True, False]),
        "step begun": lambda: env.begin_step([0, 0]),
        "seed": lambda: env.seed(3),
        "get_info": env.get_info,
        "render": env.render,
        "call": lambda: env.call("add"),
        "access": lambda: env.access("number"),
        "get_state": env.get_state,
        "set_state": lambda: env.set_state(state),
        "statistics": env.statistics,
        "autoreset": lambda: setattr(env, "autoreset", "same_step"),
        "rows_with_more_info": env.rows_with_more_info,
    }
    of_handle = {
        "reset": handle.reset,
        "step": lambda: handle.step(0),
        "promised step": lambda: handle.step(0, blocking=False),
        "call": lambda: handle.call("add"),
        "access": lambda: handle.number,
        "render": handle.render,
    }
    told = streams.messages_of(calls)
    told_by_handle = streams.messages_of(of_handle)

    assert {
        name: f"ClosedError: ParallelPyEnvironment.{name.split()[0]}() was called "
        "after close(). A closed environment stays closed: make a new one."
        for name in calls
    } == told
    assert set(of_handle) == {
        name
        for name, text in told_by_handle.items()
        if text.startswith("ClosedError: ")
    }


def test_starting_a_running_pool_does_nothing(backend):
    with pool_of([environments.Talkative] * 2, backend, num_workers=2) as env:
        env.reset()
        before = env.access("pid"), env.current_time_step().observation.tolist()
        env.start()

        assert before == (
            env.access("pid"),
            env.current_time_step().observation.tolist(),
        )


def test_the_constructor_calls_start_as_in_tf_agents():
    class Noting(ParallelPyEnvironment):
        def start(self):
            notes.append("starts")
            super().start()
            notes.append(self.batch_size)

    notes = []
    with Noting([CountingEnv] * 2, backend="inline") as env:
        first = env.reset()

    assert ["starts", 2] == notes
    assert [0, 0] == first.observation.tolist()


def test_a_promise_after_close_does_not_wait_for_ever(backend):
    env = pool_of(traced(2), backend, num_workers=1)
    env.reset()
    promises = [
        env.envs[0].step(0, blocking=False),
        env.envs[1].call("get_info"),
    ]
    env.close()
    told = streams.messages_of(dict(zip(["step", "call"], promises, strict=True)))

    assert all(
        text == "no error" or text.startswith("ClosedError: ") for text in told.values()
    ), told


def test_a_with_statement_closes_even_if_its_body_raises():
    with pytest.raises(ZeroDivisionError), pool_of([CountingEnv]) as env:
        raise ZeroDivisionError
    with pytest.raises(ClosedError):
        env.reset()


def test_each_environment_is_closed_once(tmp_path, backend):
    makers = [
        functools.partial(environments.Marking, str(tmp_path), row) for row in range(3)
    ]
    env = pool_of(makers, backend, num_workers=2)
    env.close()
    env.close()
    told = [
        line.rpartition(" ")[0]
        for line in (tmp_path / "journal").read_text().splitlines()
    ]

    assert ["close 0", "close 1", "close 2"] == sorted(
        line for line in told if line.startswith("close")
    )


def test_an_error_in_one_close_does_not_stop_the_others(tmp_path, caplog):
    makers = [
        functools.partial(CrashingEnv, where="close"),
        functools.partial(environments.Marking, str(tmp_path), 1),
    ]
    pool_of(makers, num_workers=1).close()

    assert "close 1" in (tmp_path / "journal").read_text()
    (record,) = caplog.records
    assert re.fullmatch(
        r"close\(\) of an environment raised RuntimeError: CrashingEnv was told to "
        r"raise in close 1\. \(envs\.py, line \d+, in .*\)",
        record.message,
    )
    assert record.exc_info is None


# What comes at the worst moment.


@pytest.fixture
def fake():
    return FakeBackend()


@pytest.fixture
def pair(fake):
    """Two environments that say whose answers theirs are, where a test decides."""
    with pool_of(traced(2), fake, num_workers=1) as env:
        yield env


def fail_to_begin(env, fake):
    """Lets environment 0 raise in the first reset."""
    fake.plan(Raise(0))
    with pytest.raises(EnvironmentRaised):
        env.reset()


def test_a_worker_that_dies_as_a_call_begins_is_reported_at_once(pair, fake):
    fail_to_begin(pair, fake)
    # The call looks what has happened since before it asks anybody.
    fake.plan(Die(0))
    with pytest.raises(WorkerCrashed):
        pair.reset()


def test_a_row_that_raised_in_the_first_reset_is_reset_by_itself(pair, fake):
    fail_to_begin(pair, fake)
    with pytest.raises(CallOrderError, match="environment 0 raised"):
        pair.step([1, 1])
    both = pair.reset(np.array([True, False]))
    assert [0, 1] == both.observation["env_id"].tolist()
    assert both.is_first().all()
    assert [1, 1] == pair.step([5, 5]).observation["step"].tolist()


def test_rows_outside_of_the_mask_of_a_reset_have_begun(pair, fake):
    fail_to_begin(pair, fake)
    with pytest.raises(CallOrderError, match="before the first reset"):
        pair.reset(np.array([False, True]))


def test_after_ctrl_c_the_current_time_step_matches_the_rows(pair, fake):
    pair.reset()
    fake.plan(Interrupt("wait"))
    with pytest.raises(KeyboardInterrupt):
        pair.step([7, 8])
    assert [7, 8] == pair.current_time_step().observation["action"].tolist()
