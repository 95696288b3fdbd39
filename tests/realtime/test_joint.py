"""Several batches as one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envkit import BatchedPyEnvironment, BoundedArraySpec, ParallelPyEnvironment
from envkit.envs import CartPole
from envkit.errors import ClosedError, SpecError
from envkit.realtime import Joint
from envkit.testing import CountingEnv, NestedCountingEnv, check_environment


def counters(*lengths):
    return BatchedPyEnvironment([CountingEnv(length) for length in lengths], False)


class Echoes(CountingEnv):
    """Observes the action."""

    def action_spec(self):
        return BoundedArraySpec((), np.int32, 0, 99)

    def _step(self, action):
        return super()._step(action)._replace(observation=np.int32(action)[()])


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_every_row_gets_its_own_action_in_batches_of_any_size(sizes):
    parts = [BatchedPyEnvironment([Echoes(99) for _ in range(n)]) for n in sizes]
    with Joint(parts) as env:
        env.reset()
        actions = np.arange(sum(sizes))
        assert actions.tolist() == env.step(actions).observation.tolist()


def test_rows_end_their_episodes_by_themselves():
    with Joint([counters(1), counters(2, 3)]) as env:
        stream = [env.reset()] + [env.step(np.zeros(3, int)) for _ in range(3)]
    assert [[0, 0, 0], [2, 1, 1], [0, 2, 1], [2, 0, 2]] == [
        time_step.step_type.tolist() for time_step in stream
    ]


def test_some_rows_may_be_reset():
    with Joint([counters(9, 9), counters(9)]) as env:
        env.reset()
        env.step(np.zeros(3, int))
        time_step = env.reset(np.array([False, True, False]))
    assert [1, 0, 1] == time_step.step_type.tolist()


def test_seeds_do_not_depend_on_how_rows_are_split():
    with Joint([CartPole(batch_size=1), CartPole(batch_size=3)]) as env:
        env.seed(7)
        joined = env.reset().observation
    whole = CartPole(batch_size=4)
    whole.seed(7)

    np.testing.assert_array_equal(whole.reset().observation, joined)


def test_infos_and_pictures_of_all_rows_come_together():
    with Joint([CartPole(batch_size=1), CartPole(batch_size=2)]) as env:
        env.reset()
        infos, pictures = env.get_info(), env.render()
    assert (3,) == infos["episode_steps"].shape
    assert 3 == len(pictures)


def test_an_action_of_another_size_steps_no_row():
    with Joint([counters(9), counters(9)]) as env:
        env.reset()
        with pytest.raises(SpecError, match=r"must have 2 rows, got shape \(3,\)"):
            env.step(np.zeros(3, int))
        assert [0, 0] == env.current_time_step().observation.tolist()


def test_a_closed_environment_stays_closed():
    env = Joint([counters(9)])
    env.close()
    env.close()
    with pytest.raises(ClosedError):
        env.reset()


@pytest.mark.slow
def test_the_environment_keeps_the_contract():
    def make():
        pool = ParallelPyEnvironment([CartPole] * 2, backend="inline")
        return Joint([CartPole(batch_size=1), pool])

    check_environment(make, steps=60)
    nested = [NestedCountingEnv, NestedCountingEnv]
    check_environment(
        lambda: Joint([BatchedPyEnvironment([make() for make in nested])] * 1), steps=60
    )
