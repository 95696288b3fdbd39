"""Workers note which rows have an info, and asking them would teach nobody else."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    ParallelPyEnvironment,
    PyEnvironment,
    RestartPolicy,
    restart,
    termination,
    transition,
    truncation,
)
from envkit.errors import EnvironmentRaised
from envkit.testing import CountingEnv, CrashingEnv
from tests.parallel import streams

NOWHERE = np.array(0.0)
BOTH = {"terminated": True, "truncated": True}
TERMINATED = {"terminated": True, "truncated": False}
TRUNCATED = {"terminated": False, "truncated": True}
GOES_ON = {"terminated": False, "truncated": False}


class Sayings(PyEnvironment):
    """Says one thing after the other, with each step; with the third an episode ends.

    What is an exception is raised. It counts how often it was asked.
    """

    def __init__(self, *sayings, end=termination):
        super().__init__(handle_auto_reset=True)
        self.sayings = sayings
        self.end = end
        self.asked = self.steps = 0

    def observation_spec(self):
        return ArraySpec((), np.float64)

    def action_spec(self):
        return ArraySpec((), np.int64)

    def get_info(self):
        self.asked += 1
        said = self.sayings[self.steps % len(self.sayings)]
        if isinstance(said, Exception):
            raise said
        return said

    def change(self, mood):
        self.sayings = ({"mood": mood},)

    def _reset(self):
        self.steps = 0
        return restart(np.array(0.0))

    def _step(self, action):
        self.steps += 1
        step = self.end if self.steps == 3 else transition
        return step(np.array(float(self.steps)), 1.0)


class SayingBatch(PyEnvironment):
    """A batch of two rows that says the same in each step."""

    batched, batch_size = True, 2

    def __init__(self, info, length=9):
        super().__init__(handle_auto_reset=True)
        self.info, self.length = info, length
        self.steps = 0

    def become(self, info):
        self.info = info

    def observation_spec(self):
        return ArraySpec((), np.float64)

    def action_spec(self):
        return ArraySpec((), np.int64)

    def get_info(self):
        return self.info

    def _reset(self):
        self.steps = 0
        return restart(np.zeros(2), batch_size=2)

    def _reset_rows(self, mask):
        return self._reset()

    def _step(self, action):
        self.steps += 1
        step = termination if self.steps == self.length else transition
        return step(np.full(2, float(self.steps)), np.ones(2))


def pool_of(*makers, backend="inline", **options):
    pool = streams.pool_of(makers, backend, **{"num_workers": 1, **options})
    pool.rows_with_info()
    return pool


def noted(*makers, steps=0, **options):
    """Returns which rows have an info after a reset and some steps."""
    with pool_of(*makers, **options) as pool:
        found = [pool.reset() and pool.rows_with_info().tolist()]
        for _ in range(steps):
            pool.step(np.zeros(pool.batch_size, np.int64))
            found.append(pool.rows_with_info().tolist())
    return found


# How an episode has ended.


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({}, False),
        ({"lives": 3}, True),
        (None, True),
        ("text", True),
        (GOES_ON, False),
        (TERMINATED, False),
        (BOTH, False),
        ({"terminated": True}, True),
        ({"terminated": 1, "truncated": 0}, True),
        ({**TERMINATED, "lives": 0}, True),
    ],
)
def test_flags_alone_are_no_info(info, expected):
    found = noted(functools.partial(Sayings, info), steps=3)
    assert [[expected]] * 4 == found


@pytest.mark.parametrize("backend", ["inline", "process"])
@pytest.mark.parametrize("end", [termination, truncation])
@pytest.mark.parametrize("said", [{}, GOES_ON, TERMINATED, TRUNCATED, BOTH])
def test_ends_are_reported_without_an_info(said, end, backend):
    make = functools.partial(Sayings, {}, {}, {}, said, end=end)
    with pool_of(make, make, backend=backend) as pool:
        pool.reset()
        pool.step([0, 0])
        before = [mask.tolist() for mask in pool.ends()]
        pool.step([0, 0])
        pool.step([0, 0], np.array([True, False]))

        of_its_own = TERMINATED if end is termination else TRUNCATED
        flags = said if any(said.values()) else of_its_own
        assert [[False, False], [False, False]] == before
        assert [[flags["terminated"], False], [flags["truncated"], False]] == [
            mask.tolist() for mask in pool.ends()
        ]
        assert [False, False] == pool.rows_with_info().tolist()


@pytest.mark.parametrize("end", [termination, truncation])
def test_discounts_decide_if_no_worker_has_checked(end):
    make = functools.partial(Sayings, BOTH, end=end)
    with ParallelPyEnvironment([make], backend="inline") as pool:
        for _ in range(4):
            pool.step([0])
        is_over = end is termination
        assert [[is_over], [not is_over]] == [mask.tolist() for mask in pool.ends()]


@settings(max_examples=30)
@given(data=st.data())
def test_ends_of_a_batch_are_reported_without_an_info(data):
    flags = st.lists(st.booleans(), min_size=2, max_size=2)
    terminated, truncated = data.draw(flags), data.draw(flags)
    info = {"terminated": np.array(terminated), "truncated": np.array(truncated)}
    with pool_of(functools.partial(SayingBatch, info, length=1)) as pool:
        pool.reset()
        pool.step([0, 0])
        expected = [
            (one, other) if one or other else (True, False)
            for one, other in zip(terminated, truncated, strict=True)
        ]
        assert expected == list(zip(*(m.tolist() for m in pool.ends()), strict=True))
        assert [False, False] == pool.rows_with_info().tolist()


def test_flags_of_another_length_count_as_an_info():
    flags = {name: np.zeros(3, bool) for name in TERMINATED}
    assert [[True, True]] * 2 == noted(functools.partial(SayingBatch, flags), steps=1)


# Rows.


def test_rows_with_an_info_are_marked_after_each_step(backend):
    found = noted(
        functools.partial(Sayings, {}, {"a": 1}, {}),
        functools.partial(Sayings, {"a": 1}, {}, {"a": 2}),
        steps=2,
        backend=backend,
    )
    assert [[False, True], [True, False], [False, True]] == found


def test_before_its_first_step_a_row_may_have_an_info():
    silent = functools.partial(Sayings, {})
    with ParallelPyEnvironment([silent] * 2, backend="inline") as pool:
        pool.reset()
        pool.rows_with_info()
        before = pool.rows_with_info().tolist()
        pool.step([0, 0], np.array([True, False]))

        assert [True, True] == before
        assert [False, True] == pool.rows_with_info().tolist()


def test_an_environment_is_asked_once_in_each_step():
    with pool_of(functools.partial(Sayings, {"a": 1})) as pool:
        pool.reset()
        pool.get_infos([0])
        pool.step([0])
        infos = pool.get_infos()
        assert ([{"a": 1}], [2]) == (infos, pool.access("asked"))


def test_get_infos_asks_again_in_each_call():
    with pool_of(functools.partial(Sayings, {"a": 1})) as pool:
        pool.reset()
        pool.get_infos()
        pool.get_infos()
        assert [2] == pool.access("asked")


def test_calls_that_may_change_an_environment_invalidate_its_info():
    with pool_of(functools.partial(Sayings, {"mood": "fine"})) as pool:
        pool.reset()
        pool.call("change", "sour")
        assert [{"mood": "sour"}] == pool.get_infos()


def test_get_infos_asks_only_the_given_environments():
    makers = [functools.partial(Sayings, {"a": number}) for number in range(3)]
    with pool_of(*makers) as pool:
        pool.reset()
        assert [{"a": 2}, {"a": 0}] == pool.get_infos([2, 0])
        assert [2, 1, 2] == [
            asked + (index != 1) for index, asked in enumerate(pool.access("asked"))
        ]


def test_an_environment_that_has_no_infos_has_none():
    assert [[False], [False]] == noted(
        functools.partial(Sayings, NotImplementedError("No infos.")), steps=1
    )


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_an_info_that_raises_does_so_when_requested(autoreset, message_of):
    makers = [functools.partial(Sayings, {}, ValueError("Too late."))]
    with pool_of(*makers, autoreset=autoreset) as pool:
        pool.reset()
        pool.step([0])

        assert [True] == pool.rows_with_info().tolist()
        assert (
            "env 0 raised ValueError in get_info(): Too late."
            == message_of(EnvironmentRaised, pool.get_infos).partition("\n")[0]
        )
        pool.step([0])
        assert [False] == pool.rows_with_info().tolist()


# What begins in the same step.


@pytest.mark.parametrize(
    ("sayings", "shown", "begun"),
    [
        (({}, {}, {}, {"a": 1}), True, False),
        (({"a": 1}, {}, {}, {}), False, True),
        (({"a": 1}, {}, {}, {"a": 2}), True, True),
        (({}, {}, {}, TERMINATED), False, False),
    ],
)
def test_an_end_and_the_next_beginning_have_their_own_infos(sayings, shown, begun):
    with pool_of(functools.partial(Sayings, *sayings), autoreset="same_step") as pool:
        pool.reset()
        for _ in range(3):
            pool.step([0])

        assert [shown] == pool.rows_with_info().tolist()
        assert [begun] == pool.rows_with_info(begun=True).tolist()
        assert [sayings[3]] == pool.get_infos()
        assert [sayings[0]] == pool.call("get_info")


class FailsToBegin(Sayings):
    """Begins only once."""

    def _reset(self):
        if self.steps:
            raise ValueError("Once is enough.")
        return super()._reset()


def test_the_info_of_an_end_is_kept_if_nothing_begins_after_it():
    makers = [functools.partial(FailsToBegin, {}, {}, {}, {"a": 1})]
    with pool_of(*makers, autoreset="same_step") as pool:
        pool.reset()
        for _ in range(3):
            pool.step([0])
        assert [True] == pool.rows_with_info().tolist()
        assert [{"a": 1}] == pool.get_infos()


# Batches.


def test_the_info_of_a_batch_covers_all_its_rows():
    found = noted(
        functools.partial(SayingBatch, {"a": np.zeros(2)}),
        functools.partial(SayingBatch, {}),
        functools.partial(SayingBatch, [{}, {}]),
        steps=1,
    )
    assert [[True, True, False, False, True, True]] * 2 == found


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_a_batch_alone_in_its_worker_is_checked(autoreset):
    makers = [functools.partial(SayingBatch, {}, length=2)]
    with pool_of(*makers, autoreset=autoreset) as pool:
        pool.reset()
        found = []
        for _ in range(2):
            pool.step([0, 0])
            found.append(pool.rows_with_info().tolist())

        assert [[False] * 2, [False] * 2] == found
        assert not any(pool.rows_with_info(begun=True))


def test_single_environments_among_batches_are_checked():
    with pool_of(
        functools.partial(SayingBatch, {}),
        functools.partial(Sayings, {}, {"a": 1}),
    ) as pool:
        pool.reset()
        pool.step([0, 0, 0])

        assert [False, False, True] == pool.rows_with_info().tolist()
        assert [{}, {"a": 1}] == pool.get_infos()


def test_held_rows_of_a_batch_are_part_of_its_info():
    with pool_of(functools.partial(SayingBatch, {})) as pool:
        pool.reset()
        pool.call("become", {"a": np.zeros(2)})
        pool.reset(np.array([True, False]))
        both = pool.rows_with_info().tolist()
        pool.call("become", {})
        pool.reset(np.array([True, False]))

        assert [True, True] == both
        assert [False, True] == pool.rows_with_info().tolist()


# What becomes of rows.


class Crashes(CrashingEnv):
    """Says something in its info."""

    def get_info(self):
        return {"a": 1}


def test_made_up_time_steps_have_no_info():
    pool = ParallelPyEnvironment(
        [functools.partial(Crashes, crash_at=2), CountingEnv],
        backend="inline",
        on_worker_failure=RestartPolicy(max_restarts=3),
    )
    with pool:
        pool.rows_with_info()
        pool.reset()
        pool.step([0, 0])
        before = pool.rows_with_info().tolist()
        pool.step([0, 0])

        assert [True, False] == before
        assert ([True, False], [False, False]) == (
            pool.repaired.tolist(),
            pool.rows_with_info().tolist(),
        )


def test_after_a_made_up_end_only_the_beginning_has_an_info():
    pool = ParallelPyEnvironment(
        [functools.partial(Crashes, crash_at=1)],
        backend="inline",
        autoreset="same_step",
        on_worker_failure=RestartPolicy(max_restarts=3),
    )
    with pool:
        pool.rows_with_info()
        pool.reset()
        pool.step([0])

        assert ([True], [False], [True]) == (
            pool.repaired.tolist(),
            pool.rows_with_info().tolist(),
            pool.rows_with_info(begun=True).tolist(),
        )


def test_after_restoring_a_state_any_row_may_have_an_info():
    with pool_of(CountingEnv, CountingEnv) as pool:
        pool.reset()
        token = pool.get_state()
        before = pool.rows_with_info().tolist()
        pool.set_state(token)
        assert [False, False] == before
        assert [True, True] == pool.rows_with_info().tolist()


class Written(PyEnvironment):
    """Goes on writing to the array that its infos hold."""

    def __init__(self):
        super().__init__()
        self.board = np.zeros(2)

    def observation_spec(self):
        return ArraySpec((), np.float64)

    def action_spec(self):
        return ArraySpec((), np.int64)

    def get_info(self):
        return {"board": self.board}

    def _reset(self):
        self.board[:] = 0
        return restart(NOWHERE)

    def _step(self, action):
        self.board[:] = 7
        return termination(NOWHERE, reward=1.0)


@pytest.mark.parametrize(
    "make", [Written, lambda: BatchedPyEnvironment([Written()], multithreading=False)]
)
def test_the_info_of_an_end_is_not_written_to_by_the_next_episode(make):
    with ParallelPyEnvironment([make], backend="inline", autoreset="same_step") as env:
        env.reset()
        env.step([0])
        (info,) = env.get_infos()
    assert [7, 7] == np.ravel(info["board"]).tolist()
