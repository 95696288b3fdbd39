"""Each autoreset mode is made of what a batch can do, or refused."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from envkit import (
    BatchedPyEnvironment,
    BoundedArraySpec,
    ParallelPyEnvironment,
    PyEnvironment,
    TimeStep,
)
from envkit.adapters.gymnasium_vector.autoreset_modes import (
    as_order,
    check_begun,
    reset_mode,
)
from envkit.autoreset import AutoReset
from envkit.testing import CountingEnv
from envkit.time_step import StepType
from envkit.wrappers import FixedLength, TimeLimit

NEXT, SAME, DISABLED = AutoReset.NEXT_STEP, AutoReset.SAME_STEP, AutoReset.DISABLED
FIRST, MID, LAST = (int(kind) for kind in (StepType.FIRST, StepType.MID, StepType.LAST))
# Rows whose episodes have different lengths.
LENGTHS = (2, 3)


class Counters(PyEnvironment):
    """Counts the steps of rows, written as one batch; can no more than it has to."""

    autoreset = NEXT

    def __init__(self, lengths=LENGTHS):
        super().__init__()
        self._lengths = np.array(lengths)

    @property
    def batched(self):
        return True

    @property
    def batch_size(self):
        return len(self._lengths)

    def observation_spec(self):
        return BoundedArraySpec((), np.int64, 0, 99)

    def action_spec(self):
        return BoundedArraySpec((), np.int64, 0, 1)

    def _reset(self):
        self._counts = np.zeros_like(self._lengths)
        return self._time_step(self._counts * FIRST)

    def _step(self, action):
        begun = self._counts == self._lengths
        self._counts = np.where(begun, 0, self._counts + 1)
        return self._time_step(self._kinds())

    def _kinds(self):
        kinds = np.where(self._counts == self._lengths, LAST, MID)
        return np.where(self._counts == 0, FIRST, kinds)

    def _time_step(self, kinds):
        zeros = np.zeros(len(kinds), np.float32)
        return TimeStep(kinds.astype(np.int32), zeros, zeros + 1, self._counts.copy())


class Leaving(Counters):
    """Begins in some rows alone, and leaves rows that ended as they are."""

    autoreset = DISABLED

    def _step(self, action):
        assert not (self._counts == self._lengths).any()
        return super()._step(action)

    def _reset_rows(self, mask):
        self._counts = np.where(mask, 0, self._counts)
        return self._time_step(self._kinds())


class Holding(Leaving):
    """Holds rows, too."""

    def _step_rows(self, action, stepping, beginning):
        self._counts = np.where(stepping, self._counts + 1, self._counts)
        self._counts = np.where(beginning, 0, self._counts)
        return self._time_step(self._kinds())


class Rushing(Counters):
    """Has begun anew before anybody asks."""

    autoreset = SAME


def counting(lengths=LENGTHS):
    return [lambda n=n: CountingEnv(n, np.int64) for n in lengths]


def batch(lengths=LENGTHS):
    envs = [make() for make in counting(lengths)]
    return BatchedPyEnvironment(envs, multithreading=False)


def pool(lengths=LENGTHS):
    return ParallelPyEnvironment(counting(lengths), backend="inline")


def play(env, mode, steps):
    """Returns what each step shows, and where the rows stand afterwards."""
    ways = reset_mode(env, mode, "This test")
    env.reset()
    ended = np.zeros(env.batch_size, bool)
    shown, standing = [], []
    for _ in range(steps):
        time_step = ways.step(np.zeros(env.batch_size, np.int64), ended)
        ended = np.asarray(time_step.step_type) == LAST
        shown.append((time_step.step_type % 9).tolist())
        if mode is SAME and ended.any():
            time_step = ways.begin(ended)
            ended = np.zeros_like(ended)
        elif mode is DISABLED and ended.any():
            time_step = env.reset(ended)
            ended = np.zeros_like(ended)
        standing.append((np.asarray(time_step.observation) % 10).tolist())
    env.close()
    return shown, standing


AT_ONCE = (
    [[MID, MID], [LAST, MID], [MID, LAST], [LAST, MID], [MID, MID], [LAST, LAST]],
    [[1, 1], [0, 2], [1, 0], [0, 1], [1, 2], [0, 0]],
)
LATER = (
    [[MID, MID], [LAST, MID], [FIRST, LAST], [MID, FIRST], [LAST, MID], [FIRST, MID]],
    [[1, 1], [2, 2], [0, 3], [1, 0], [2, 1], [0, 2]],
)


@pytest.mark.parametrize(
    "make", [batch, pool, Leaving, Holding], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("mode", [SAME, DISABLED])
def test_episodes_begin_in_the_step_that_ends_the_ones_before(make, mode):
    assert AT_ONCE == play(make(), mode, steps=6)


@pytest.mark.parametrize(
    "make", [batch, pool, Counters, Holding], ids=lambda f: f.__name__
)
def test_episodes_begin_with_the_next_step(make):
    assert LATER == play(make(), NEXT, steps=6)


@pytest.mark.parametrize("mode", [NEXT, SAME, DISABLED])
@pytest.mark.parametrize(
    "make", [batch, pool, Counters, Leaving], ids=lambda f: f.__name__
)
def test_a_batch_of_one_row_can_all(make, mode):
    shown, standing = play(make((2,)), mode, steps=4)

    if mode is NEXT:
        assert ([[MID], [LAST], [FIRST], [MID]], [[1], [2], [0], [1]]) == (
            shown,
            standing,
        )
    else:
        assert ([[MID], [LAST]] * 2, [[1], [0]] * 2) == (shown, standing)


def test_a_wrapped_batch_can_what_the_batch_can():
    assert AT_ONCE == play(TimeLimit(batch(), 9), SAME, steps=6)


@pytest.mark.parametrize("mode", [NEXT, SAME, DISABLED])
def test_a_pool_is_put_into_the_order(mode):
    with pool() as env:
        reset_mode(env, mode, "This test")

        assert mode is env.autoreset


def test_what_a_wrapper_forwards_is_not_set_on_the_wrapper():
    with pool() as inner:
        wrapped = TimeLimit(inner, 9)
        reset_mode(wrapped, SAME, "This test")

        assert (NEXT, False) == (inner.autoreset, "autoreset" in vars(wrapped))


@pytest.mark.parametrize(
    ("make", "mode", "why"),
    [
        (
            Counters,
            SAME,
            "Counters the autoreset_mode 'SameStep': it cannot begin episodes in some "
            "rows alone (resets_rows). Its own is 'NextStep'.",
        ),
        (
            Counters,
            DISABLED,
            "Counters the autoreset_mode 'Disabled': it cannot begin episodes in some "
            "rows alone (resets_rows). Its own is 'NextStep'.",
        ),
        (
            Leaving,
            NEXT,
            "Leaving the autoreset_mode 'NextStep': its own order is DISABLED, and it "
            "cannot leave rows where they are while others step (holds_rows). Its own "
            "is 'Disabled'.",
        ),
        (
            Rushing,
            NEXT,
            "Rushing the autoreset_mode 'NextStep': its own order is SAME_STEP, in "
            "which the end of an episode is left at once. Its own is 'SameStep'.",
        ),
        (
            Rushing,
            DISABLED,
            "Rushing the autoreset_mode 'Disabled': its own order is SAME_STEP, in "
            "which the end of an episode is left at once. Its own is 'SameStep'.",
        ),
    ],
)
def test_what_a_batch_cannot_is_refused(make, mode, why, message_of):
    assert (
        f"Adapter cannot give {why} A ParallelPyEnvironment, and a "
        "BatchedPyEnvironment of single environments, can all modes."
    ) == message_of(ValueError, lambda: reset_mode(make(), mode, "Adapter"))


def test_a_batch_that_pads_its_episodes_is_refused(message_of):
    env = FixedLength(batch(), 5)

    assert (
        "Adapter was given FixedLength, which repeats the LAST of an episode to give "
        "all episodes the same length. In Gymnasium an episode ends once. Leave the "
        "padding off, or use autoreset_mode 'SameStep' or 'Disabled'."
    ) == message_of(ValueError, lambda: reset_mode(env, NEXT, "Adapter"))


def test_rows_that_end_wait_until_they_are_reset(message_of):
    ended = np.array([False, True, True])

    assert (
        "Adapter.step() was called after the episode of rows 1, 2 ended. Call "
        "reset(options={'reset_mask': mask}) for them first; none of the environments "
        "has moved."
    ) == message_of(gymnasium.error.ResetNeeded, lambda: check_begun(ended, "Adapter"))
    assert check_begun(np.zeros(3, bool), "Adapter") is None


@pytest.mark.parametrize(
    ("mode", "order"),
    [
        ("NextStep", NEXT),
        ("same_step", SAME),
        (gymnasium.vector.AutoresetMode.DISABLED, DISABLED),
        (AutoReset.DISABLED, DISABLED),
    ],
)
def test_modes_have_several_names(mode, order):
    assert order is as_order(mode)


def test_other_words_are_no_modes(message_of):
    assert (
        "autoreset_mode is the string 'later'; it is 'NextStep', 'SameStep' or "
        "'Disabled', or the AutoresetMode of that name."
    ) == message_of(ValueError, lambda: as_order("later"))
