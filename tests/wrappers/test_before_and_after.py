"""Wrapping environments before they become a batch, and wrapping the batch."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from envkit import BatchedPyEnvironment, ParallelPyEnvironment
from envkit.seeding import seed_per_row
from envkit.specs.sampling import sample_spec_nest
from envkit.testing.contract.recording import first_difference, snapshot
from tests.wrappers.all_cases import CASES, pairs
from tests.wrappers.environments import ENVIRONMENTS

ROWS = 3


def batched(make):
    return BatchedPyEnvironment([make() for _ in range(ROWS)], multithreading=False)


def pooled(make):
    return ParallelPyEnvironment([make] * ROWS, backend="inline")


def play(env, actions):
    """Plays with resets of single rows and held rows in between."""
    env.seed(seed_per_row(3, ROWS))
    yield snapshot(env.reset())
    for number, action in enumerate(actions):
        if number % 11 == 5:
            yield snapshot(env.reset(np.array([False, True, False])))
        if number % 7 == 3:
            yield snapshot(env.step(action, np.array([True, False, True])))
        yield snapshot(env.step(action))


def streams(before, after):
    """Returns two streams of the same actions, moment by moment."""
    rng = np.random.default_rng(5)
    spec = before.action_spec()
    actions = [sample_spec_nest(spec, rng, (ROWS,)) for _ in range(30)]
    return zip(play(before, actions), play(after, actions), strict=True)


COMMUTING = [case for case in CASES if case.batched and case.commutes]


@pytest.mark.parametrize(("case", "name"), pairs(COMMUTING))
def test_wrapped_rows_and_a_wrapped_batch_have_the_same_stream(case, name):
    check_streams(case, name, batched)


@pytest.mark.parametrize(("case", "name"), pairs(COMMUTING, turn=1))
def test_wrapped_rows_and_a_wrapped_pool_have_the_same_stream(case, name):
    check_streams(case, name, pooled)


def check_streams(case, name, batch):
    make = functools.partial(ENVIRONMENTS[name], None)

    with (
        batch(lambda: case.wrap(make())) as before,
        case.wrap(batch(make)) as after,
    ):
        for moment, (ours, theirs) in enumerate(streams(before, after)):
            assert first_difference(ours, theirs) is None, f"at moment {moment}"


@pytest.mark.parametrize("wrapper", ["time_limit", "action_repeat", "frame_stack"])
def test_wrappers_in_worker_processes_have_the_same_stream(wrapper):
    case = next(case for case in CASES if case.name == wrapper)
    make = functools.partial(ENVIRONMENTS["drive"], None)
    options = {"num_workers": 2, "start_method": "fork"}
    with (
        ParallelPyEnvironment([lambda: case.wrap(make())] * ROWS, **options) as before,
        case.wrap(ParallelPyEnvironment([make] * ROWS, **options)) as after,
    ):
        differences = [first_difference(*pair) for pair in streams(before, after)]
    assert [None] * len(differences) == differences
