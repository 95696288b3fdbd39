"""Environments in a `tf.train.Checkpoint`: their streams go on exactly."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest
import tensorflow as tf

import envkit
from envkit import ArraySpec, BatchedPyEnvironment, PyEnvironment, nest, restart
from envkit.errors import ClosedError
from envkit.parallel import AutoReset, ParallelPyEnvironment
from envkit.provenance import VersionWarning
from envkit.testing.envs import CountingEnv, TracingEnv
from envkit.tf import CheckpointedState, TFPyEnvironment
from envkit.tf.checkpoints import restore_state, state_bytes


class Stateless(PyEnvironment):
    """Cannot save its state."""

    def observation_spec(self):
        return ArraySpec((), np.float32)

    def action_spec(self):
        return ArraySpec((), np.int64)

    def _reset(self):
        return restart(np.zeros((), np.float32))

    def _step(self, action):
        return self._reset()


def cartpoles(rows):
    return [functools.partial(envkit.make, "CartPole", seed=row) for row in range(rows)]


def pool(backend="inline", workers=1, order=AutoReset.NEXT_STEP, rows=4):
    env = ParallelPyEnvironment(
        cartpoles(rows), backend=backend, num_workers=workers, autoreset=order
    )
    env.seed(3)
    return env


KINDS = {
    "single": lambda seed=3: envkit.make("CartPole", seed=seed),
    "native batch": lambda seed=3: envkit.make("CartPole", batch_size=4, seed=seed),
    "Batched": lambda seed=3: BatchedPyEnvironment(
        [envkit.make("CartPole", seed=seed + row) for row in range(4)]
    ),
    "inline pool": lambda seed=3: pool(),
    "SAME_STEP pool": lambda seed=3: pool(order=AutoReset.SAME_STEP),
}
of_each_kind = pytest.mark.parametrize("kind", KINDS)


def stream(env, seed, steps=30):
    """Plays on from where the environment stands; returns all that comes."""
    rng = np.random.default_rng(seed)
    came = []
    rows = env.batch_size or 1
    for _ in range(steps):
        came += [env.current_time_step()]
        action = rng.integers(0, 2, rows)
        came += [env.step(action if env.batched else action[0])]
    return [
        [np.asarray(leaf).tolist() for leaf in nest.flatten(time_step)]
        for time_step in came
    ]


@of_each_kind
def test_a_restored_environment_continues_as_the_saved_one(kind, tmp_path):
    with TFPyEnvironment(KINDS[kind]()) as env:
        stream(env, seed=1, steps=7)
        checkpoint = tf.train.Checkpoint(env=env)
        path = checkpoint.save(tmp_path / "state")
        expected = stream(env, seed=2)
        checkpoint.restore(path).assert_consumed()

        assert expected == stream(env, seed=2)
    with TFPyEnvironment(KINDS[kind](seed=99), isolation=True) as env:
        tf.train.Checkpoint(env=env).restore(path).assert_consumed()
        step = tf.function(env.current_time_step)

        assert expected[0] == [
            leaf.numpy().tolist() for leaf in tf.nest.flatten(step())
        ]
        assert expected == stream(env, seed=2)


def test_a_restored_pool_continues_with_another_number_of_workers(
    tmp_path, nothing_left_behind
):
    with TFPyEnvironment(pool("process", workers=2)) as env:
        stream(env, seed=1, steps=7)
        path = tf.train.Checkpoint(env=env).save(tmp_path / "state")
        expected = stream(env, seed=2)
    for backend, workers in [("process", 1), ("thread", 3)]:
        with TFPyEnvironment(pool(backend, workers)) as env:
            tf.train.Checkpoint(env=env).restore(path).assert_consumed()

            assert expected == stream(env, seed=2)


@of_each_kind
def test_checkpointed_state_saves_environments_without_tensors(kind, tmp_path):
    with KINDS[kind]() as env:
        env.reset()
        stream(env, seed=1, steps=7)
        checkpoint = tf.train.Checkpoint(env=CheckpointedState(env))
        path = checkpoint.save(tmp_path / "state")
        expected = stream(env, seed=2)
        checkpoint.restore(path).assert_consumed()

        assert expected == stream(env, seed=2)


def test_a_pool_and_its_wrapper_save_the_same(tmp_path):
    with TFPyEnvironment(pool()) as env:
        stream(env, seed=1, steps=7)
        path = tf.train.Checkpoint(it=env).save(tmp_path / "state")
        expected = stream(env, seed=2)
    with pool("thread", workers=2) as env:
        tf.train.Checkpoint(it=CheckpointedState(env)).restore(path).assert_consumed()
        assert expected == stream(env, seed=2)


def test_environments_are_saved_beside_variables_and_inside_modules(tmp_path):
    class Trainer(tf.Module):
        def __init__(self):
            super().__init__()
            self.weight = tf.Variable(1.0)
            self.environments = [TFPyEnvironment(CountingEnv())]

    trainer = Trainer()
    (env,) = trainer.environments
    env.reset()
    env.step([0])
    trainer.weight.assign(2.0)
    checkpoint = tf.train.Checkpoint(trainer=trainer)
    path = checkpoint.save(tmp_path / "state")
    env.step([0])
    trainer.weight.assign(3.0)
    checkpoint.restore(path).assert_consumed()

    assert 2.0 == float(trainer.weight)
    assert [1] == env.current_time_step().observation.numpy().tolist()


def test_an_environment_can_be_attached_after_restoring(tmp_path):
    env = TFPyEnvironment(CountingEnv())
    env.reset()
    env.step([0])
    path = tf.train.Checkpoint(env=env).save(tmp_path / "state")
    checkpoint = tf.train.Checkpoint()
    status = checkpoint.restore(path)
    checkpoint.env = other = TFPyEnvironment(CountingEnv())

    status.assert_consumed()
    assert [1] == other.current_time_step().observation.numpy().tolist()


def test_a_manager_keeps_several_states(tmp_path):
    env = TFPyEnvironment(CountingEnv())
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(env=env), tmp_path, max_to_keep=2
    )
    env.reset()
    for _ in range(3):
        env.step([0])
        manager.save()
    older, newest = manager.checkpoints
    manager.checkpoint.restore(older).assert_consumed()
    before = env.current_time_step().observation
    manager.checkpoint.restore(newest).assert_consumed()

    assert [2] == before.numpy().tolist()
    assert [3] == env.current_time_step().observation.numpy().tolist()


def test_later_steps_do_not_change_what_was_saved(tmp_path):
    env = TFPyEnvironment(TracingEnv(steps_per_episode=4))
    env.reset()
    checkpoint = tf.train.Checkpoint(env=env)
    path = checkpoint.write(str(tmp_path / "state"))
    streams = []
    for _ in range(3):
        checkpoint.read(path).assert_consumed()
        streams.append(stream(env, seed=2, steps=9))

    assert streams[0] == streams[1] == streams[2]


@pytest.mark.parametrize("kind", [*KINDS, "fresh"])
def test_an_environment_restored_to_before_its_first_episode_begins_one(kind, tmp_path):
    with TFPyEnvironment(KINDS.get(kind, KINDS["single"])()) as env:
        path = tf.train.Checkpoint(env=env).save(tmp_path / "state")
        expected = stream(env, seed=2)
        tf.train.Checkpoint(env=env).restore(path).assert_consumed()
        assert expected == stream(env, seed=2)


def test_an_environment_without_state_says_so(tmp_path, message_of):
    env = TFPyEnvironment(Stateless())
    env.reset()
    checkpoint = tf.train.Checkpoint(env=env)
    expected = (
        "Stateless cannot save its state: override _get_state() and _set_state()."
    )

    actual = message_of(
        NotImplementedError, lambda: checkpoint.save(tmp_path / "state")
    )

    assert expected in actual


def test_the_state_of_another_kind_of_environment_is_refused(tmp_path):
    env = TFPyEnvironment(BatchedPyEnvironment([CountingEnv(), CountingEnv()]))
    env.reset()
    path = tf.train.Checkpoint(env=env).save(tmp_path / "state")
    other = TFPyEnvironment(CountingEnv())
    other.reset()
    other.step([0])

    with pytest.raises(ValueError, match="one state for each of 1"):
        tf.train.Checkpoint(env=other).restore(path)

    assert [1] == other.current_time_step().observation.numpy().tolist()


def test_a_closed_environment_has_no_state_to_save(tmp_path):
    env = TFPyEnvironment(CountingEnv())
    env.close()
    with pytest.raises(ClosedError, match="a new one"):
        tf.train.Checkpoint(env=env).save(tmp_path / "state")


@pytest.mark.parametrize(
    ("given", "described"),
    [
        (None, "None"),
        (3, "3 of type int"),
        ("CartPole", "the string 'CartPole'"),
        (CountingEnv, "an ABCMeta object"),
    ],
)
def test_only_an_environment_has_a_state_to_save(given, described, message_of):
    expected = f"CheckpointedState must be given an environment, got {described}."
    assert expected == message_of(TypeError, lambda: CheckpointedState(given))


@of_each_kind
def test_a_checkpoint_contains_the_provenance(kind):
    with KINDS[kind]() as env:
        env.reset()
        saved = pickle.loads(state_bytes(env))
        expected = env.provenance()
    assert expected == saved.provenance
    found = expected.get("environments", [expected])
    assert {"CartPole-v1"} == {one["id"] for one in found}


def test_a_checkpoint_of_another_version_of_the_environment_is_refused(message_of):
    env = envkit.make("CartPole-v1")
    env.reset()
    saved = pickle.loads(state_bytes(env))
    other = saved._replace(provenance={**saved.provenance, "id": "CartPole-v2"})
    assert message_of(
        ValueError, lambda: restore_state(env, pickle.dumps(other))
    ).startswith("CartPole.set_state() was given a state of CartPole-v2")


@of_each_kind
def test_a_checkpoint_of_another_envkit_warns_once(kind):
    with KINDS[kind]() as env:
        env.reset()
        saved = pickle.loads(state_bytes(env))
        other = saved._replace(provenance={**saved.provenance, "envkit": "0.0.1"})
        with pytest.warns(VersionWarning) as warned:
            restore_state(env, pickle.dumps(other))
    assert 1 == len(warned)


def test_a_checkpoint_without_a_provenance_is_accepted():
    env = envkit.make("CartPole-v1", seed=1)
    expected = env.reset()
    data = pickle.dumps(env.get_state())
    env.step(0)
    restore_state(env, data)
    assert (expected.observation == env.current_time_step().observation).all()
