"""Wrappers around batches in the three orders of episodes: the same transitions."""

from __future__ import annotations

import functools
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import AutoReset, BatchedPyEnvironment, ParallelPyEnvironment, nest
from envkit.seeding import seed_per_row
from envkit.specs.sampling import sample_spec_nest
from envkit.testing.contract.recording import snapshot
from envkit.wrappers import (
    NormalizeObservation,
    PyEnvironmentBaseWrapper,
    RunningStatistics,
)
from tests.wrappers.all_cases import CASES, pairs
from tests.wrappers.environments import ENVIRONMENTS

ROWS = 3
LAST = 2
NEXT_STEP, SAME_STEP, DISABLED = AutoReset


def batched(make):
    return BatchedPyEnvironment([make() for _ in range(ROWS)], multithreading=False)


def pooled(make):
    return ParallelPyEnvironment([make] * ROWS, backend="inline")


def row_of(value, row):
    return nest.map_structure(lambda leaf: np.asarray(leaf)[row, ...], value)


def bytes_of(value):
    return b"".join(leaf.tobytes() for _, leaf in snapshot(value))


class Play:
    """Plays a batch, and lists the transitions (s, a, r, discount, s') of each row.

    Actions depend on the row and on where it stands, whatever the order.
    """

    def __init__(self, env):
        self.env = env
        self.made = [[] for _ in range(ROWS)]
        spec = env.action_spec()
        rng = np.random.default_rng(5)
        self.actions = [sample_spec_nest(spec, rng) for _ in range(97)]
        self.counts = [0] * ROWS
        env.seed(seed_per_row(3, ROWS))
        env.reset()

    def action(self, standing, row):
        seen = zlib.crc32(bytes_of(row_of(standing.observation, row)))
        return self.actions[(seen + 31 * row + len(self.made[row])) % 97]

    def step(self, order):
        env = self.env
        if env.autoreset is not order:
            env.autoreset = order
        standing = env.current_time_step()
        if order is DISABLED and standing.is_last().any():
            standing = env.reset(standing.is_last())
        actions = [self.action(standing, row) for row in range(ROWS)]
        after = env.step(nest.map_structure(lambda *leaves: np.stack(leaves), *actions))
        for row in np.flatnonzero(standing.step_type != LAST).tolist():
            one, other = row_of(standing, row), row_of(after, row)
            self.made[row].append(
                (
                    bytes_of(one.observation),
                    bytes_of(actions[row]),
                    bytes_of(other.reward),
                    bytes_of(other.discount),
                    bytes_of(other.observation),
                    bool(other.is_last()),
                )
            )
        return self


@functools.cache
def transitions(case, name):
    """Returns what wrapped rows do under NEXT_STEP, in a batch without an order."""
    with batched(lambda: case.wrap(ENVIRONMENTS[name](None))) as env:
        play = Play(env)
        for _ in range(48):
            play.step(NEXT_STEP)
    return play.made


orders = st.lists(
    st.tuples(st.sampled_from([SAME_STEP, DISABLED, NEXT_STEP]), st.integers(3, 12)),
    min_size=2,
    max_size=4,
)


def check_transitions(case, name, batch, orders):
    expected = transitions(case, name)
    with case.wrap(batch(functools.partial(ENVIRONMENTS[name], None))) as env:
        play = Play(env)
        for order, count in orders:
            for _ in range(count):
                play.step(order)

    for made, whole in zip(play.made, expected, strict=True):
        assert whole[: len(made)] == made[: len(whole)]


ORDERED = [case for case in CASES if case.batched and case.commutes]


@pytest.mark.parametrize(("case", "name"), pairs(ORDERED, turn=0))
@settings(max_examples=2)
@given(orders=orders)
def test_a_wrapped_batch_has_the_transitions_of_wrapped_rows(case, name, orders):
    check_transitions(case, name, batched, orders)


# One class begins episodes around every batch, so a few will do in `make test`.
QUICK = ("time_limit", "episode_limit", "fixed_length", "frame_stack", "action_repeat")


@pytest.mark.parametrize(
    ("case", "name"),
    [
        pytest.param(
            *pair.values,
            id=pair.id,
            marks=pair.marks if pair.values[0].name in QUICK else pytest.mark.heavy,
        )
        for pair in pairs(ORDERED)
        if pair.values[1] in ("drive", "camera", "wheel", "catch")
    ],
)
@settings(max_examples=2)
@given(orders=orders)
def test_a_wrapped_pool_has_the_transitions_of_wrapped_rows(case, name, orders):
    check_transitions(case, name, pooled, orders)


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_a_wrapped_pool_of_workers_has_the_same_transitions(backend):
    case = next(case for case in CASES if case.name == "time_limit")
    pool = functools.partial(ParallelPyEnvironment, backend=backend, num_workers=2)
    check_transitions(
        case,
        "catch",
        lambda make: pool([make] * ROWS),
        [(SAME_STEP, 12), (DISABLED, 12), (NEXT_STEP, 12), (SAME_STEP, 12)],
    )


class Seen(PyEnvironmentBaseWrapper):
    """Keeps the observations of rows that have moved."""

    def __init__(self, env):
        super().__init__(env)
        self.observations = []

    def _see(self, time_step, rows):
        moved = slice(None) if rows is None else rows
        self.observations.extend(time_step.observation[moved].copy())
        return time_step


@pytest.mark.parametrize("batch", [batched, pooled])
@pytest.mark.parametrize("order", list(AutoReset), ids=lambda order: order.value)
def test_normalization_learns_from_each_observation_once(batch, order):
    inner = Seen(batch(functools.partial(ENVIRONMENTS["catch"], None)))
    with NormalizeObservation(inner) as env:
        play = Play(env)
        for _ in range(39):
            play.step(order)
        learnt = env.statistics
    seen = RunningStatistics(learnt.shape)
    seen.update(np.stack(inner.observations))

    # Under NEXT_STEP some steps are resets, and the others make as many transitions.
    made = sum(map(len, play.made))
    begun = sum(transition[-1] for column in play.made for transition in column)
    assert {NEXT_STEP: 120}.get(order, 3 + made + begun) == seen.count == learnt.count
    np.testing.assert_allclose(seen.mean, learnt.mean)
    np.testing.assert_allclose(seen.variance, learnt.variance)
