"""Lost episodes in TensorFlow: step by step, and as a dataset."""

from __future__ import annotations

import pytest

from envkit import ParallelPyEnvironment
from envkit.testing import chaos
from tests.lost.ledger import Ledger, episodes_to_play
from tests.lost.numbered import RAISING, NumberedEnv, action_of
from tests.lost.players import FAULTS, OPTIONS

tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")

from envkit.tf import TFPyEnvironment, dataset  # noqa: E402  # it needs the library


def pool():
    made = ParallelPyEnvironment([NumberedEnv] * 4, **OPTIONS)
    made.seed([RAISING + row for row in range(4)])
    return made


def test_repaired_marks_every_lost_episode():
    ledger = Ledger(4)
    with TFPyEnvironment(pool()) as env, chaos(env, **FAULTS):
        shown = env.reset()
        for row in range(4):
            ledger.begin(shown.observation[row], row)
        while ledger.resolved < episodes_to_play(60):
            shown = env.step(tf.constant(ledger.actions))
            repaired = env.repaired.numpy()
            step_type, rewards, discounts, observations = (
                leaf.numpy() for leaf in shown
            )
            for row in range(4):
                if step_type[row] == 0:
                    ledger.begin(observations[row], row)
                elif repaired[row]:
                    ledger.lose(env.current_losses()[row].kind, row)
                else:
                    ledger.step(observations[row], rewards[row], row)
                    if step_type[row] == 2:
                        ledger.end(row, is_terminated=discounts[row] == 0)
    ledger.close("crashed", "raised")


def act(time_step):
    return tf.cast((time_step.observation[:, 1] + 1) % 16, tf.int32)


def test_a_dataset_marks_every_lost_episode():
    assert [action_of(step) for step in (1, 15, 16)] == [1, 15, 0]
    ledger, rows = Ledger(4), {}
    with pool() as env, chaos(env, **FAULTS):
        for step in dataset(env, act, prefetch=0):
            # Transitions of all rows follow one another; their seeds tell them apart.
            row = rows.get(int(step.time_step.observation[0]))
            if row is None:
                playing = filter(ledger.is_playing, range(4))
                row = min({0, 1, 2, 3}.difference(playing))
                rows[int(step.time_step.observation[0])] = row
                ledger.begin(step.time_step.observation, row)
            if step.repaired:
                ledger.lose("lost", row)
            else:
                end = step.next_time_step
                ledger.step(end.observation, end.reward, row)
                if end.is_last():
                    ledger.end(row, is_terminated=bool(end.discount == 0))
            if ledger.resolved >= episodes_to_play(60):
                break
    ledger.close("lost")
