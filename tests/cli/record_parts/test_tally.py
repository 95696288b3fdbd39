"""Steps, episodes and returns, counted."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from envkit import BoundedArraySpec, make
from envkit.cli.record_parts.tally import Tally
from envkit.random_py_environment import RandomPyEnvironment


@given(
    episodes=st.integers(1, 3),
    rows=st.sampled_from([None, 1, 4]),
    seed=st.integers(0, 99),
)
def test_every_row_has_as_many_episodes_as_asked_for(episodes, rows, seed):
    spec = BoundedArraySpec((), np.int64, 0, 1)
    env = RandomPyEnvironment(spec, spec, batch_size=rows, seed=seed)
    tally = Tally(rows or 1, episodes=episodes)
    time_step = env.reset()
    tally.see(time_step)
    while not tally.complete:
        tally.see(env.step(np.zeros(rows or (), np.int64)))

    assert [episodes] * (rows or 1) == [len(row) for row in tally.returns]


def test_steps_are_those_that_somebody_acts_in():
    env, tally = make("Catch", rows=3), Tally(1, steps=5)
    while not tally.complete:
        tally.see(env.step(0))

    assert (5, 2) == (tally.steps, tally.episodes)
