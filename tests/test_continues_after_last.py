"""Environments of which no `FIRST` follows a `LAST`: each step reaches them."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from envkit import (
    AsyncParallelPyEnvironment,
    AutoReset,
    BatchedPyEnvironment,
    Blocking,
    ParallelPyEnvironment,
    PyEnvironment,
)
from envkit.errors import ConstructorError, SpecError
from envkit.parallel import ProcessPyEnvironment
from envkit.testing import CountingEnv, check_environment
from envkit.wrappers import (
    EpisodeLimit,
    FixedLength,
    PassiveChecker,
    RecordEpisodeStatistics,
    RunStats,
    TimeLimit,
    wrap,
)
from tests.bandits import Bandit, BanditBatch, Guess

FIRST, MID, LAST = 0, 1, 2
ORDERS = list(AutoReset)

BATCHES = {
    "batched": lambda **kw: BatchedPyEnvironment([Bandit(), Bandit()], False, **kw),
    "inline": lambda **kw: ParallelPyEnvironment(
        [Bandit] * 2, backend="inline", num_workers=1, **kw
    ),
    "thread": lambda **kw: ParallelPyEnvironment([Bandit] * 2, backend="thread", **kw),
    "process": lambda **kw: ParallelPyEnvironment(
        [Bandit] * 2, num_workers=1, start_method="fork", eager_resets=True, **kw
    ),
    "batch in a pool": lambda **kw: ParallelPyEnvironment(
        [BanditBatch], backend="inline", **kw
    ),
    "blocking": lambda **kw: Blocking(
        AsyncParallelPyEnvironment([Bandit] * 2, backend="inline", **kw)
    ),
    "not waiting": lambda **kw: Blocking(
        AsyncParallelPyEnvironment([Bandit] * 2, backend="inline", **kw), wait=False
    ),
}


def answers(env, steps=4):
    """Guesses right in row 0 and wrong in the others; returns types and rewards."""
    time_step, seen = env.reset(), []
    for _ in range(steps):
        action = np.array(time_step.observation)
        if action.ndim:
            action[1:] = (action[1:] + 1) % 10
        time_step = env.step(action)
        seen.append((time_step.step_type.tolist(), time_step.reward.tolist()))
    return seen


ALONE = [(LAST, 1.0)] * 4
TWO = [([LAST, LAST], [1.0, 0.0])] * 4


def test_each_step_of_a_single_environment_takes_its_action():
    env = Bandit()
    assert ALONE == answers(env)
    assert [3, 4, 5, 6] == env.taken


def test_the_declaration_overrides_handle_auto_reset():
    env = Bandit()
    PyEnvironment.__init__(env, handle_auto_reset=True)
    assert ALONE == answers(env)
    assert TWO == answers(BanditBatch(2, handle_auto_reset=True))


def test_a_reset_begins_an_episode_at_any_time():
    env = Bandit()
    answers(env, 2)
    assert (FIRST, 3) == env.reset()[::3]
    assert ALONE == answers(env)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", BATCHES)
def test_each_step_of_every_row_takes_its_action_in_every_order(kind, order):
    with BATCHES[kind](autoreset=order) as env:
        assert env.continues_after_last
        assert order is env.autoreset
        assert TWO == answers(env)
        standing = env.current_time_step()
        assert ([LAST, LAST], [7, 7]) == (
            standing.step_type.tolist(),
            standing.observation.tolist(),
        )


@pytest.mark.parametrize("kind", ["batched", "process", "blocking"])
def test_changing_the_order_changes_no_time_step(kind):
    with BATCHES[kind]() as env:
        for order in [*ORDERS, *ORDERS]:
            env.autoreset = order
            assert order is env.autoreset
            assert TWO == answers(env)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", ["batched", "inline"])
def test_a_reset_of_some_rows_leaves_the_others(kind, order):
    with BATCHES[kind](autoreset=order) as env:
        answers(env, 2)
        time_step = env.reset(np.array([True, False]))
        assert ([FIRST, LAST], [3, 5]) == (
            time_step.step_type.tolist(),
            time_step.observation.tolist(),
        )
        assert [1.0, 1.0] == env.step([3, 5]).reward.tolist()
        masked = env.step([4, 0], np.array([True, False]))
        assert ([5, 6], [LAST, LAST]) == (
            masked.observation.tolist(),
            masked.step_type.tolist(),
        )


@pytest.mark.parametrize("order", ORDERS)
# With wait=False a reset may show rows that are not there yet.
@pytest.mark.parametrize("kind", [*sorted(BATCHES.keys() - {"not waiting"}), "alone"])
@pytest.mark.parametrize(
    "layer",
    [
        lambda env: TimeLimit(env, 2),
        PassiveChecker,
        RecordEpisodeStatistics,
        lambda env: TimeLimit(RunStats(env), 1, handle_auto_reset=True),
    ],
    ids=["TimeLimit", "PassiveChecker", "statistics", "two"],
)
def test_wrappers_keep_the_declaration(layer, kind, order):
    inside = Bandit() if kind == "alone" else BATCHES[kind](autoreset=order)
    with layer(inside) as env:
        assert env.continues_after_last
        assert (ALONE if kind == "alone" else TWO) == answers(env)


def test_each_step_is_an_episode_to_statistics():
    env = RecordEpisodeStatistics(RunStats(Bandit()))
    answers(env, 3)
    assert [1.0, 1.0, 1.0] == list(env.return_queue)
    assert [1, 1, 1] == list(env.length_queue)
    assert (3, 1, 3) == (env.episodes, env.episode_steps, env.total_steps)


def test_a_time_limit_restarts_after_each_last():
    env = TimeLimit(Bandit(), 2)
    answers(env, 5)
    assert {"asked": 8} == env.get_info()


def test_a_limit_of_episodes_counts_each_step():
    env = EpisodeLimit(Bandit(), 2)
    env.reset()
    assert [1.0, 1.0, 0.0] == [float(env.step(action).reward) for action in (3, 4, 5)]
    assert env.is_over


def test_fixed_length_begins_its_own_episodes():
    env = FixedLength(Bandit(), 2)
    env.reset()
    assert not env.continues_after_last
    assert [LAST, LAST, FIRST] == [int(env.step(3).step_type) for _ in range(3)]


def test_a_process_environment_keeps_the_declaration():
    env = ProcessPyEnvironment(Bandit, start_method="fork")
    env.start()
    try:
        assert env.continues_after_last
        assert ALONE == answers(env)
    finally:
        env.close()


def test_an_asynchronous_pool_uses_each_action():
    with AsyncParallelPyEnvironment([Bandit] * 2, backend="inline") as env:
        env.reset_async()
        env.recv()
        rewards = []
        for asked in (3, 4, 5):
            env.send(np.array([asked, 0]))
            rewards.append(env.recv().time_step.reward.tolist())
    assert [[1.0, 0.0]] * 3 == rewards


def test_actions_after_a_last_have_to_fit():
    for kind in ("batched", "inline"):
        with BATCHES[kind]() as env:
            env.reset()
            env.step([3, 3])
            with pytest.raises(SpecError):
                env.step([0.5, 3])


def test_a_state_restores_the_episode():
    with BATCHES["process"]() as env:
        answers(env, 2)
        state = env.get_state()
        first = env.step([5, 5])
        env.set_state(copy.deepcopy(state))
        again = env.step([5, 5])
    assert first.reward.tolist() == again.reward.tolist() == [1.0, 1.0]


def test_a_batch_of_both_kinds_is_refused(message_of):
    why = (
        "continues after its LAST, and env {} ({}) begins a new episode then. "
        "continues_after_last must be the same for all environments of a batch: "
        "declare it in all of them, or make two batches."
    )
    one = f"env 1 (Bandit) {why.format(0, 'Guess')}"
    assert one == message_of(
        ValueError, lambda: BatchedPyEnvironment([Guess(), Bandit()])
    )
    with pytest.raises(ConstructorError, match="continues after its LAST"):
        ParallelPyEnvironment([Guess, Bandit], backend="inline")


@pytest.mark.parametrize("make_env", [Bandit, BanditBatch, BATCHES["batched"]])
def test_the_checker_accepts_environments_with_the_declaration(make_env):
    check_environment(make_env)


def test_the_checker_names_the_declaration():
    with pytest.raises(AssertionError, match="continues_after_last = True"):
        check_environment(Guess)


def test_the_checker_refuses_a_false_declaration():
    class Untrue(CountingEnv):
        continues_after_last = True

        def _step(self, action):
            if self._current_time_step.is_last():
                return self._reset()
            return super()._step(action)

    with pytest.raises(AssertionError, match="after LAST returned FIRST"):
        check_environment(Untrue)


def test_a_pool_takes_the_declaration_of_its_environments():
    with wrap(BATCHES["inline"](), [TimeLimit, 3]) as env:
        assert env.continues_after_last
    with ParallelPyEnvironment([CountingEnv], backend="inline") as env:
        assert not env.continues_after_last
