"""What batches do with some of their rows: `step(action, mask)` and `step_rows`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envkit import (
    ArraySpec,
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
    PyEnvironment,
    RandomPyEnvironment,
)
from envkit.envs import Bandit, CartPole, Catch, GridWorld, TicTacToe
from envkit.errors import CallOrderError, SpecError
from envkit.testing import CountingEnv
from envkit.testing.contract.recording import first_difference, snapshot
from envkit.time_step import StepType, TimeStep
from tests import strategies
from tests.comparing import told

ROWS = 3


def counters(length=4):
    return BatchedPyEnvironment([CountingEnv(length) for _ in range(ROWS)], False)


def pool(length=4):
    return ParallelPyEnvironment([lambda: CountingEnv(length)] * ROWS, backend="inline")


class Clocks(PyEnvironment):
    """A batch that begins the next episodes with its hook, and cannot hold rows."""

    def __init__(self):
        super().__init__(handle_auto_reset=True)
        self._clock = np.zeros(ROWS, np.int32)

    @property
    def batched(self):
        return True

    @property
    def batch_size(self):
        return ROWS

    def observation_spec(self):
        return ArraySpec((), np.int32)

    def action_spec(self):
        return BoundedArraySpec((), np.int32, 0, 1)

    def _show(self, step_type):
        return TimeStep(
            np.asarray(step_type, np.int32),
            np.zeros(ROWS, np.float32),
            np.ones(ROWS, np.float32),
            self._clock.copy(),
        )

    def _reset(self):
        return self._reset_rows(np.ones(ROWS, bool))

    def _reset_rows(self, mask):
        self._clock[mask] = 0
        return self._show(np.zeros(ROWS))

    def _step(self, action):
        self._clock += 1
        return self._show(np.where(self._clock == 4, StepType.LAST, StepType.MID))


@pytest.mark.parametrize("make", [counters, pool])
def test_a_masked_step_steps_only_the_masked_rows(make):
    with make() as env:
        env.reset()
        env.step([0, 0, 0])
        time_step = env.step([0, 0, 0], np.array([True, False, True]))
        assert [2, 1, 2] == time_step.observation.tolist()
        assert [3, 2, 3] == env.step([0, 0, 0]).observation.tolist()


@pytest.mark.parametrize("make", [counters, pool])
def test_one_call_steps_some_rows_and_resets_others(make):
    with make() as env:
        env.reset()
        env.step([0, 0, 0])
        time_step = env.step_rows(
            [0, 0, 0], np.array([True, False, False]), np.array([False, True, False])
        )
        assert [2, 0, 1] == time_step.observation.tolist()
        assert [1, 0, 1] == time_step.step_type.tolist()
        assert [3, 1, 2] == env.step([0, 0, 0]).observation.tolist()


@pytest.mark.parametrize("make", [counters, pool, Clocks])
def test_rows_are_reset_while_all_others_step(make):
    with make() as env:
        env.reset()
        env.step([0, 0, 0])
        time_step = env.step_rows(
            [0, 0, 0], np.array([True, True, False]), np.array([False, False, True])
        )
        assert [2, 2, 0] == time_step.observation.tolist()
        assert [2, 2, 0] == env.current_time_step().observation.tolist()


@pytest.mark.parametrize("make", [counters, pool])
def test_a_row_that_has_ended_begins_with_its_next_step_and_not_before(make):
    with make(2) as env:
        env.reset()
        env.step([0, 0, 0])
        env.step([0, 0, 0], np.array([True, True, False]))
        held = env.step([0, 0, 0], np.array([False, True, False]))
        assert [2, 0, 1] == held.step_type.tolist()
        assert [0, 1, 2] == env.step([0, 0, 0]).step_type.tolist()


def test_a_row_that_has_ended_may_be_held_in_an_environment_for_whole_batches():
    env = Catch(batch_size=2, seed=1)
    env.reset()
    while not env.current_time_step().is_last().any():
        env.step([1, 1])
    end = snapshot(env.current_time_step())
    # Both have ended, for every game of Catch is as long.
    held = env.step([1, 1], np.array([True, False]))
    assert [0, 2] == held.step_type.tolist()
    assert end[3][1][1].tolist() == held.observation[1].tolist()


def test_actions_of_held_rows_may_be_anything():
    env = CartPole(batch_size=2, seed=1)
    env.reset()
    time_step = env.step([1, 99], np.array([True, False]))
    assert [1, 0] == time_step.step_type.tolist()


MAKERS = {
    "bandit": lambda: Bandit(batch_size=ROWS),
    "cartpole": lambda: CartPole(batch_size=ROWS),
    "catch": lambda: Catch(batch_size=ROWS),
    "gridworld": lambda: GridWorld(batch_size=ROWS),
    "tictactoe": lambda: TicTacToe(batch_size=ROWS),
    "batched": lambda: BatchedPyEnvironment([Catch() for _ in range(ROWS)], False),
    "pool": lambda: ParallelPyEnvironment([Catch] * ROWS, backend="inline"),
}
MOVES = st.lists(
    st.lists(st.sampled_from(["step", "reset", "hold"]), min_size=ROWS, max_size=ROWS),
    max_size=20,
)


@pytest.mark.parametrize("name", MAKERS)
@given(moves=MOVES)
@settings(max_examples=15)
def test_a_row_is_independent_of_the_others(name, moves):
    """Row 0 alone makes the same moves, while the others do as they like."""
    streams = []
    for rows in (moves, [[move[0], "hold", "hold"] for move in moves]):
        with MAKERS[name]() as env:
            env.seed([1, 2, 3])
            stream = [row_of(env.reset(), 0)]
            for number, move in enumerate(rows):
                moves_of = np.array(move)
                action = np.full(ROWS, number % 2)
                moved = env.step_rows(action, moves_of == "step", moves_of == "reset")
                stream.append(row_of(moved, 0))
        streams.append(stream)

    for expected, got in zip(*streams, strict=True):
        assert first_difference(expected, got) is None


def row_of(time_step, row):
    return tuple((path, leaf[row]) for path, leaf in snapshot(time_step))


def test_a_batch_declares_whether_its_rows_step_and_reset_alone():
    class Whole(Clocks):
        _reset_rows = PyEnvironment._reset_rows

    abilities = [
        (env.resets_rows, env.holds_rows)
        for env in (Whole(), Clocks(), counters(), CartPole(batch_size=2), CartPole())
    ]
    assert [
        (False, False),
        (True, False),
        (True, True),
        (True, True),
        (False, False),
    ] == abilities


def test_a_pool_holds_rows_unless_its_environments_are_batches():
    singles = ParallelPyEnvironment([Catch] * 2, backend="inline")
    batches = ParallelPyEnvironment([lambda: Catch(batch_size=2)], backend="inline")
    with singles, batches:
        assert (True, True) == (singles.resets_rows, singles.holds_rows)
        assert (True, False) == (batches.resets_rows, batches.holds_rows)


def test_a_batch_in_a_worker_resets_rows_without_stepping_them():
    """The random numbers of a slippery world would tell."""

    def make():
        return GridWorld(batch_size=ROWS)

    mask = np.array([False, True, False])
    streams = []
    for env in (ParallelPyEnvironment([make], backend="inline"), make()):
        with env:
            env.seed([5, 6, 7])
            env.reset()
            stream = [snapshot(env.step_rows(np.ones(ROWS, int), ~mask, mask))]
            stream += [snapshot(env.step(np.ones(ROWS, int))) for _ in range(9)]
        streams.append(stream)

    for expected, got in zip(*streams, strict=True):
        assert first_difference(expected, got) is None


def test_a_step_of_all_rows_before_the_first_reset_is_a_reset():
    env = counters()
    assert env.step([0, 0, 0], np.ones(ROWS, bool)).is_first().all()


REFUSED = {
    "Clocks cannot leave rows 1, 2 where they are while others step: override "
    "_step_rows(action, stepping, beginning).": (
        *(Clocks, NotImplementedError),
        lambda env: (env.reset(), env.step([0, 0, 0], np.array([True, False, False]))),
    ),
    "BatchedPyEnvironment.step_rows() was asked to step and to reset rows 0, 2. A row "
    "does one of the two in a call.": (
        *(counters, ValueError),
        lambda env: (
            env.reset(),
            env.step_rows([0, 0, 0], [True, False, True], [True] * 3),
        ),
    ),
    "BatchedPyEnvironment.step_rows() was called before the first reset(): the rows "
    "that are to stay have no time step yet. Call reset() first.": (
        *(counters, CallOrderError),
        lambda env: env.step([0, 0, 0], np.array([True, False, True])),
    ),
    "BatchedPyEnvironment.step() was given a mask that does not fit its spec.\n\n"
    "  expected   boolean array of shape (3,)\n"
    "  got        array of shape (1,), dtype bool, values True … True\n\n"
    "A mask has one boolean for each row: true where a row is to take its action.": (
        *(counters, SpecError),
        lambda env: (env.reset(), env.step([0, 0, 0], np.array([True]))),
    ),
    "CountingEnv is not batched, so it has no rows to choose from: call step() without "
    "a mask.": (
        *(CountingEnv, ValueError),
        lambda env: (env.reset(), env.step(0, np.array([True]))),
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_unsupported_row_operations_are_refused(message):
    make, kind, call = REFUSED[message]
    assert (kind, message) == told(call, make())


def test_a_random_batch_counts_the_steps_of_each_row():
    env = RandomPyEnvironment(ArraySpec((), np.float32), None, 0.0, batch_size=2)
    env.reset()
    env.step(())
    env.step((), np.array([True, False]))
    assert [2, 1] == env.get_info()["num_steps"].tolist()


@given(spec=strategies.specs(any_byte_order=True))
def test_a_row_that_is_reset_keeps_its_exact_dtype(spec):
    rows = [RandomPyEnvironment(spec, ()) for _ in range(2)]
    env = BatchedPyEnvironment(rows, multithreading=False)
    env.reset()
    assert spec.dtype == env.reset(np.array([True, False])).observation.dtype
