"""What environments declare of their infos comes in the slab, beside the time step."""

from __future__ import annotations

import copy
import functools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    AutoReset,
    BatchedPyEnvironment,
    Blocking,
    RestartPolicy,
)
from envkit.errors import CallOrderError, EnvironmentRaised
from envkit.parallel import AsyncParallelPyEnvironment
from envkit.testing import CountingEnv
from tests.parallel import streams
from tests.parallel.environments import COUNT, Telling, batch_of


def pool_of(*makers, backend="inline", **options):
    return streams.pool_of(makers, backend, **{"num_workers": 2, **options})


async_of = functools.partial(pool_of, kind=AsyncParallelPyEnvironment)


MIXED = [
    functools.partial(Telling, 2),
    functools.partial(Telling, 3, more=True),
    functools.partial(batch_of, (2, 4)),
    Telling,
]


@pytest.mark.parametrize("order", list(AutoReset))
@settings(max_examples=12)
@given(moves=st.lists(st.lists(st.booleans(), min_size=3, max_size=3), max_size=9))
def test_a_declared_info_belongs_to_the_last_time_step(order, moves):
    makers = MIXED[:2] + MIXED[3:]
    with pool_of(*makers, autoreset=order) as env:
        shown = env.reset()
        for mask in moves:
            ended = shown.is_last()
            if order is AutoReset.DISABLED and ended.any():
                shown = env.reset(ended)
            elif any(mask):
                shown = env.reset(mask)
            else:
                shown = env.step([0] * 3)

            np.testing.assert_array_equal(
                shown.observation, env.declared_info()["count"]
            )


@pytest.mark.parametrize("order", [AutoReset.NEXT_STEP, AutoReset.SAME_STEP])
def test_declared_infos_have_one_row_per_environment(backend, order):
    with pool_of(*MIXED, backend=backend, autoreset=order) as env:
        shown = env.reset()
        for _ in range(7):
            np.testing.assert_array_equal(
                shown.observation, env.declared_info()["count"]
            )
            np.testing.assert_array_equal(
                shown.observation[[4, 2, 3]], env.declared_info([3, 2])["count"]
            )
            shown = env.step([0] * 5)


def test_declared_infos_need_no_request_to_a_worker():
    with pool_of(Telling, Telling, backend="process") as env:
        env.reset()
        env.step([0, 0])
        asked = env.access("asked")
        env.step([0, 0])
        for _ in range(5):
            env.declared_info()
            env.get_info()

        assert [count + 1 for count in asked] == env.access("asked")


def test_a_purely_declared_info_equals_the_stacked_one():
    with pool_of(Telling, functools.partial(Telling, more=True)) as env:
        env.reset()
        whole = env.get_info()
        assert [False, True] == env.rows_with_more_info().tolist()
    with pool_of(Telling, Telling) as env:
        env.reset()
        declared = env.get_info()

    assert [{"count", "more"}, {"count"}] == [set(info) for info in whole[::-1]]
    np.testing.assert_array_equal([[0, 0], [0, 0]], declared["count"])


def test_returned_infos_belong_to_the_caller():
    with pool_of(Telling, Telling) as env:
        env.reset()
        env.declared_info()["count"][:] = 7
        env.get_info()["count"][:] = 7
        env.info_spec().clear()
        assert [[0, 0], [0, 0]] == env.declared_info()["count"].tolist()
        assert {"count": COUNT} == env.info_spec()


def test_an_environment_that_was_called_by_name_is_asked_again():
    with pool_of(Telling, Telling, backend="process") as env:
        env.reset()
        env.call("jump", env_ids=[1])
        assert [[0, 0], [100, 100]] == env.declared_info()["count"].tolist()
        assert [[0, 0], [100, 100]] == env.get_info()["count"].tolist()


@pytest.mark.parametrize("makers", [MIXED, MIXED[2:]])
def test_a_state_restores_the_declared_info(makers):
    with pool_of(*makers, backend="process") as env:
        shown = env.reset()
        shown = env.step([0] * env.batch_size)
        state = env.get_state()
        for _ in range(4):
            env.step([0] * env.batch_size)
        env.set_state(state)

        np.testing.assert_array_equal(shown.observation, env.declared_info()["count"])


def test_a_made_up_row_has_zeros(backend):
    crashing = functools.partial(Telling, crash_at=2)
    with pool_of(
        Telling, crashing, backend=backend, on_worker_failure=RestartPolicy()
    ) as env:
        env.reset()
        env.step([0, 0])
        env.step([0, 0])

        assert [False, True] == env.repaired.tolist()
        assert [[0, 2], [0, 0]] == env.declared_info()["count"].tolist()
        assert [{"count"}, set()] == [set(info) for info in env.get_info()]

        env.step([0, 0])
        shown = env.step([0, 0])
        np.testing.assert_array_equal(shown.observation, env.declared_info()["count"])


def test_a_pool_declares_only_what_all_environments_declare():
    class Silent(Telling):
        def info_spec(self):
            return {}

    with pool_of(Telling, Silent) as env:
        env.reset()

        assert {} == env.info_spec()
        assert {} == env.declared_info()
        assert [[0, 0], [0, 0]] == env.get_info()["count"].tolist()


def test_infos_that_memory_cannot_hold_are_requested():
    class Thoughtful(Telling):
        def info_spec(self):
            return {**super().info_spec(), "thought": ArraySpec((), object)}

        def get_info(self):
            return {**super().get_info(), "thought": {"of": "you"}}

    with pool_of(Thoughtful, Thoughtful) as env:
        env.reset()

        assert {"count": COUNT} == env.info_spec()
        assert ["thought" in info for info in env.get_infos()] == [True, True]


class Lying(Telling):
    def get_info(self):
        return {"count": 3} if self.count[1] == 2 else super().get_info()


@pytest.mark.parametrize("make", [Lying, lambda: BatchedPyEnvironment([Lying()])])
def test_an_info_that_does_not_fit_raises_in_the_asking_call(make):
    with pool_of(Telling, make) as env:
        env.reset()
        env.step([0, 0])
        shown = env.step([0, 0])  # Which is no concern of a step.

        assert [2, 2] == shown.observation[:, 1].tolist()
        for ask in (env.declared_info, env.get_info):
            with pytest.raises(EnvironmentRaised, match=r"info of .*1.*\['count'\]"):
                ask()


def test_a_shape_is_never_broadcast_into_a_row():
    class Short(Telling):
        def get_info(self):
            return {"count": np.array([3])}

    with pool_of(Short, Telling) as env:
        env.reset()

        with pytest.raises(EnvironmentRaised, match="Axis 0 has size 1 instead of 2"):
            env.declared_info()


@pytest.mark.parametrize("order", [AutoReset.NEXT_STEP, AutoReset.SAME_STEP])
def test_an_asynchronous_pool_has_infos_of_idle_rows(backend, order):
    with async_of(*[Telling] * 3, backend=backend, autoreset=order) as env:
        env.reset_async()
        for _ in range(12):
            got = env.recv(count=1)
            rows = got.env_ids
            np.testing.assert_array_equal(
                got.time_step.observation, env.declared_info(rows)["count"]
            )
            env.send(np.zeros(len(rows), np.int64), rows)
            with pytest.raises(CallOrderError, match="still owe"):
                env.declared_info(rows)


@pytest.mark.parametrize("order", [AutoReset.NEXT_STEP, AutoReset.SAME_STEP])
def test_recv_returns_infos_in_the_order_of_rows(backend, order):
    with async_of(*MIXED, backend=backend, autoreset=order) as env:
        env.reset_async()
        got = env.recv()
        for _ in range(6):
            np.testing.assert_array_equal(got.time_step.observation, got.info["count"])
            env.send(np.zeros(5, np.int64))
            halves = [env.recv(count=2), env.recv(count=3)]
            for got in halves:
                assert len(got.env_ids) == len(got.info["count"])
                np.testing.assert_array_equal(
                    got.time_step.observation, got.info["count"]
                )


@settings(max_examples=12)
@given(
    counts=st.lists(st.integers(1, 4), max_size=12),
    lengths=st.lists(st.integers(1, 4), min_size=4, max_size=4),
)
def test_recv_returns_infos_for_any_number_of_rows(counts, lengths):
    with async_of(*(functools.partial(Telling, length) for length in lengths)) as env:
        env.reset_async()
        for count in counts:
            got = env.recv(count)
            np.testing.assert_array_equal(got.time_step.observation, got.info["count"])
            env.send(np.zeros(len(got.env_ids), np.int64), got.env_ids)


def test_recv_needs_no_extra_request_for_infos():
    with async_of(Telling, Telling, backend="process") as env:
        env.reset_async()
        env.recv()
        asked = env.access("asked")
        env.send(np.zeros(2, np.int64))
        env.recv().info["count"][:] = 7  # It belongs to the caller.

        assert [count + 1 for count in asked] == env.access("asked")
        assert [[0, 1], [0, 1]] == env.declared_info()["count"].tolist()


def test_infos_of_recv_belong_to_their_step_and_never_change():
    with async_of(Telling, Telling) as env:
        env.reset_async()
        first = env.recv()
        env.send(np.zeros(2, np.int64))
        env.recv()
        assert [[0, 0], [0, 0]] == first.info["count"].tolist()


def test_without_a_declaration_recv_returns_no_info():
    with async_of(CountingEnv, CountingEnv) as env:
        env.reset_async()
        got = env.recv()
        env_ids, time_step = got
        assert {} == got.info == env.declared_info()
        assert (got.env_ids is env_ids, got.time_step is time_step) == (True, True)


def test_an_empty_batch_has_no_infos():
    with async_of(Telling, Telling) as env:
        env.reset_async()
        env.recv()
        env.send(np.zeros(1, np.int64), [1])
        env.recv()
        env.send(np.zeros(2, np.int64))
        got = env.recv(timeout=0.0)

        assert (len(got.env_ids), 2) == got.info["count"].shape


def test_recv_returns_zeros_for_a_made_up_row(backend):
    crashing = functools.partial(Telling, crash_at=2)
    options = {"backend": backend, "on_worker_failure": RestartPolicy()}
    with async_of(Telling, crashing, **options) as env:
        env.reset_async()
        env.recv()
        for _ in range(2):
            env.send(np.zeros(2, np.int64))
            got = env.recv()
        by_row = dict(
            zip(got.env_ids.tolist(), got.info["count"].tolist(), strict=True)
        )

        assert {0: [0, 2], 1: [0, 0]} == by_row
        assert [False, True] == env.repaired.tolist()


@pytest.mark.parametrize("make", [Lying, lambda: BatchedPyEnvironment([Lying()])])
def test_an_info_that_does_not_fit_loses_no_answer(make):
    with async_of(Telling, make) as env:
        env.reset_async()
        env.recv()
        for _ in range(2):
            env.send(np.zeros(2, np.int64))
            got = env.recv()

        assert [2, 2] == got.time_step.observation[:, 1].tolist()
        for _ in range(2):
            with pytest.raises(EnvironmentRaised, match=r"info of .*1.*\['count'\]"):
                _ = got.info
        env.send(np.zeros(2, np.int64))
        assert [3, 3] == env.recv().info["count"][:, 1].tolist()


def test_a_batch_of_answers_is_copied_whole():
    with async_of(Telling) as env:
        env.reset_async()
        got = env.recv()

    for copied in (copy.deepcopy(got), pickle.loads(pickle.dumps(got))):
        assert [[0, 0]] == copied.info["count"].tolist()
    changed = got._replace(env_ids=np.array([5]))
    assert ([5], [[0, 0]]) == (changed.env_ids.tolist(), changed.info["count"].tolist())
    assert "info={'count': array([[0, 0]])}" in repr(got)


def test_a_blocking_batch_of_an_asynchronous_pool_declares_infos():
    with Blocking(async_of(Telling, Telling)) as env:
        assert {"count": COUNT} == env.info_spec()


def test_a_batch_declares_its_environments_infos():
    assert {"count": COUNT} == batch_of((1, 2)).info_spec()
    mixed = BatchedPyEnvironment([CountingEnv(), CountingEnv()])
    assert {} == mixed.info_spec()


def test_before_the_first_reset_infos_are_requested():
    with pool_of(Telling, Telling) as env:
        assert [[-1, 0], [-1, 0]] == env.declared_info()["count"].tolist()
