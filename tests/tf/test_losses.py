"""Lost environments in TensorFlow: `repaired` in graphs, and datasets without them."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf

from envkit import ParallelPyEnvironment, RestartPolicy
from envkit.parallel import AutoReset
from envkit.testing import CountingEnv, CrashingEnv, chaos
from envkit.tf import TFPyEnvironment, dataset
from envkit.tf.tf_wrappers import TFTimeLimit

POLICY = RestartPolicy(max_restarts=1000, within=None, backoff=0)

in_each_order = pytest.mark.parametrize("order", list(AutoReset), ids=str)
eagerly_and_in_a_graph = pytest.mark.parametrize(
    "through", [lambda function: function, tf.function], ids=["eagerly", "graph"]
)


def pool(order=AutoReset.NEXT_STEP, backend="inline"):
    """A pool whose first row is lost in its second step, again and again."""
    how = "raise" if backend == "inline" else "exit"
    lost = functools.partial(CrashingEnv, crash_at=2, how=how)
    return ParallelPyEnvironment(
        [lost, functools.partial(CountingEnv, 3)],
        backend=backend,
        num_workers=2,
        on_worker_failure=POLICY,
        autoreset=order,
    )


def nothing(time_step):
    return tf.zeros(time_step.step_type.shape, tf.int32)


@eagerly_and_in_a_graph
@pytest.mark.parametrize("isolation", [False, True])
def test_repaired_is_the_mask_of_the_step_before_it(through, isolation):
    in_processes = functools.partial(pool, backend="process")
    with TFPyEnvironment(in_processes, isolation=isolation) as env:
        env.reset()

        @through
        def two_steps():
            env.step([0, 0])
            before = env.repaired
            time_step = env.step([0, 0])
            return before, env.repaired, time_step.step_type

        before, repaired, step_type = two_steps()
        assert repaired.shape == [2]
        assert before.numpy().tolist() == [False, False]
        assert repaired.numpy().tolist() == [True, False]
        assert step_type.numpy().tolist() == [2, 1]
        assert env.current_losses()[0].kind == "crashed"
        assert [(loss.row, loss.kind) for loss in env.losses()] == [(0, "crashed")]
        env.step([0, 0])
        assert not env.repaired.numpy().any()


def test_the_size_of_the_mask_is_known_in_a_graph():
    with TFPyEnvironment(CountingEnv()) as env:
        shapes = []

        @tf.function
        def trace():
            env.reset()
            shapes.append(env.repaired.shape)
            return env.repaired

        assert trace().numpy().tolist() == [False]
    assert shapes == [[1]]


def test_wrappers_tell_the_losses_of_their_environment():
    with TFTimeLimit(TFPyEnvironment(pool), 20) as env:
        env.reset()
        env.step([0, 0])
        assert env.step([0, 0]).is_last().numpy().tolist() == [True, False]
        assert env.repaired.numpy().tolist() == [True, False]
        assert [loss.kind for loss in env.losses()] == ["raised"]


@in_each_order
def test_transitions_with_a_made_up_end_are_marked(order):
    with pool(order) as env:
        steps = list(dataset(env, nothing, prefetch=0).take(20))
    marked = [step for step in steps if step.repaired]
    # A lost environment shows the observation before: nothing has been counted.
    same = [
        step
        for step in steps
        if step.next_time_step.observation == step.time_step.observation
    ]
    assert marked
    assert [int(step.time_step.observation) for step in marked] == [1] * len(marked)
    assert all(step.next_time_step.is_last() for step in marked)
    assert len(same) == len(marked)


@in_each_order
def test_drop_lost_leaves_made_up_transitions_out(order):
    with pool(order) as env:
        steps = list(dataset(env, nothing, drop_lost=True, prefetch=0).take(30))
    assert not any(step.repaired for step in steps)
    moved = [
        int(step.next_time_step.observation - step.time_step.observation)
        for step in steps
    ]
    assert moved == [1] * 30
    # The first step of each lost episode is real.
    assert sum(int(step.time_step.observation) == 0 for step in steps) > 5


@in_each_order
def test_drop_lost_leaves_lost_episodes_out(order):
    with pool(order) as env:
        episodes = list(
            dataset(env, nothing, whole_episodes=True, drop_lost=True, prefetch=0).take(
                4
            )
        )
    assert [len(episode.action) for episode in episodes] == [3] * 4
    assert not any(episode.repaired.numpy().any() for episode in episodes)


def test_a_lost_episode_is_marked_at_its_end():
    with pool() as env:
        (episode,) = dataset(env, nothing, whole_episodes=True, prefetch=0).take(1)
    assert episode.repaired.numpy().tolist() == [False, True]


def test_amid_kills_a_dataset_has_only_episodes_that_were_played():
    makers = [functools.partial(CountingEnv, 5)] * 2
    with (
        ParallelPyEnvironment(makers, num_workers=2, on_worker_failure=POLICY) as env,
        chaos(env, seed=3, every_steps=8) as trouble,
    ):
        episodes = dataset(
            env, nothing, whole_episodes=True, drop_lost=True, prefetch=0
        )
        for episode in episodes.take(10):
            begin = int(episode.time_step.observation[0])
            seen = episode.next_time_step.observation.numpy() - begin
            np.testing.assert_array_equal(np.arange(1, 6), seen)
            np.testing.assert_array_equal(
                [0, 0, 0, 0, 1], episode.next_time_step.reward.numpy()
            )
    assert trouble.log
