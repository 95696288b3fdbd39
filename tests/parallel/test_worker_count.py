"""`num_workers="auto"`: the ways that are tried, the one that is taken, and the log."""

from __future__ import annotations

import functools
import logging

import numpy as np
import pytest

from envkit import AsyncParallelPyEnvironment, AutoReset, ParallelPyEnvironment, make
from envkit.errors import ConstructorError
from envkit.parallel import worker_count
from envkit.parallel.worker_count import chosen, fastest, simplest_of, ways
from envkit.testing import CountingEnv

USUAL = {
    "on_worker_failure": "raise",
    "start_timeout": None,
    "reset_timeout": None,
    "step_timeout": None,
    "worker_setup": None,
    "worker_env": None,
    "autoreset": "next_step",
}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Which way is the fastest is no question here."""
    monkeypatch.setattr(worker_count, "_SECONDS", 0.01)


@pytest.mark.parametrize(
    ("backend", "cpus", "num_envs", "inline", "expected"),
    [
        ("inline", 8, 4, False, [("inline", 1)]),
        ("thread", 2, 64, False, [("thread", 1), ("thread", 2), ("thread", 3)]),
        ("process", 1, 1, True, [("inline", 1), ("process", 1)]),
        ("process", 4, 3, False, [("process", 1), ("process", 2), ("process", 3)]),
    ],
)
def test_the_ways_that_are_tried(backend, cpus, num_envs, inline, expected):
    assert expected == ways(backend, cpus, num_envs, inline=inline)


@pytest.mark.parametrize(
    ("speeds", "expected"),
    [
        ([100.0, 105.0, 109.0], 0),
        ([100.0, 120.0, 125.0], 1),
        ([50.0, 100.0, 200.0], 2),
    ],
)
def test_more_workers_are_taken_where_they_pay(speeds, expected):
    tried = [("inline", 1), ("process", 1), ("process", 2)]
    assert tried[expected] == simplest_of(dict(zip(tried, speeds, strict=True)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("on_worker_failure", "restart"),
        ("step_timeout", 5.0),
        ("worker_setup", "os:getpid"),
        ("worker_env", {"A": "b"}),
    ],
)
def test_options_about_workers_keep_them(name, value):
    tried = []

    def refuse(constructors, *, backend, num_workers, **options):
        tried.append(backend)
        raise ConstructorError("not now")

    for options in (USUAL, {**USUAL, name: value}):
        with pytest.raises(ConstructorError, match="not now"):
            chosen(refuse, [CountingEnv] * 2, "process", options)
    usual = tried.count("process") // 2
    assert ["inline", *["process"] * (2 * usual)] == tried


def test_a_way_that_cannot_be_tried_is_left_out(caplog):
    def open_pool(backend, count):
        if backend == "inline":
            raise ConstructorError("one in a process")
        return ParallelPyEnvironment(
            [CountingEnv] * 2, backend=backend, num_workers=count
        )

    with caplog.at_level(logging.INFO, worker_count.__name__):
        assert ("thread", 1) == fastest(open_pool, [("inline", 1), ("thread", 1)])
    (record,) = caplog.records
    text = record.getMessage()
    assert text.startswith('num_workers="auto" takes 1 worker (thread). Steps per ')
    assert text.endswith("inline ConstructorError.")


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_streams_do_not_depend_on_what_was_taken(backend, caplog):
    rng = np.random.default_rng(5)
    actions = [rng.integers(0, 2, 3) for _ in range(30)]
    streams = []
    with caplog.at_level(logging.INFO, worker_count.__name__):
        for count in ("auto", 1):
            with make(
                "CartPole", num_envs=3, backend=backend, num_workers=count
            ) as env:
                env.seed(7)
                streams.append([env.reset(), *map(env.step, actions)])
    assert 1 == len(caplog.records)
    for mine, theirs in zip(*streams, strict=True):
        for leaf, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(leaf, other)


@pytest.mark.parametrize("order", AutoReset)
def test_every_order_of_resets_can_be_measured(order):
    with ParallelPyEnvironment(
        [functools.partial(CountingEnv, 2)] * 2,
        backend="thread",
        num_workers="auto",
        autoreset=order,
    ) as env:
        assert order is env.autoreset


def test_constructors_may_come_from_an_iterator():
    given = iter([CountingEnv] * 2)
    with ParallelPyEnvironment(given, backend="thread", num_workers="auto") as env:
        assert (2,) == env.reset().observation.shape


def test_an_asynchronous_pool_chooses_likewise():
    with AsyncParallelPyEnvironment(
        [CountingEnv] * 2, backend="thread", num_workers="auto"
    ) as env:
        assert env.num_workers in (1, 2)
        env.reset_async()
        assert [0, 1] == sorted(env.recv().env_ids.tolist())


def test_a_backend_that_is_no_name_is_refused():
    with pytest.raises(ValueError, match="with the backend the string 'ray', got 'au"):
        ParallelPyEnvironment([CountingEnv], backend="ray", num_workers="auto")


def test_what_keeps_all_from_starting_is_raised():
    def broken():
        raise ValueError("no game")

    with pytest.raises(ConstructorError, match="no game"):
        ParallelPyEnvironment([broken] * 2, backend="thread", num_workers="auto")
