"""Specs of envkit before the real TF-Agents: run by `test_tf_agents.py`.

Takes which of both is imported first, "envkit" or "tf_agents", and prints the sentence
of each check that holds.
"""

from __future__ import annotations

import copy
import pickle
import sys

import numpy as np

if __name__ == "__main__" and sys.argv[1] == "tf_agents":
    import tf_agents.specs  # noqa: F401  # what comes first is the subject

import envkit
from envkit import ArraySpec, BoundedArraySpec
from envkit.envs import CartPole
from envkit.specs import ObjectSpec

PLAIN = ArraySpec((2,), np.float32, "plain")
BOUNDED = BoundedArraySpec((2,), np.int32, 0, 3, "bounded")
OBJECT = ObjectSpec()
SPECS = {"plain": PLAIN, "bounded": BOUNDED}
CART_POLE = CartPole(seed=3)
BEFORE = CART_POLE.time_step_spec()


def check_classes() -> None:
    """Specs of envkit are of TF-Agents' classes, those made before included."""
    assert isinstance(BOUNDED, array_spec.BoundedArraySpec)
    assert isinstance(BOUNDED, array_spec.ArraySpec)
    assert isinstance(PLAIN, array_spec.ArraySpec)
    assert isinstance(OBJECT, array_spec.ArraySpec)
    assert not isinstance(PLAIN, array_spec.BoundedArraySpec)
    assert not isinstance(PLAIN, dict)
    assert issubclass(BoundedArraySpec, array_spec.BoundedArraySpec)
    assert issubclass(BoundedArraySpec, ArraySpec)
    assert array_spec.is_bounded(BOUNDED)
    assert [ArraySpec, BoundedArraySpec] == [PLAIN.__class__, BOUNDED.__class__]


def check_copies() -> None:
    """They stay envkit's: copied, pickled, replaced and printed."""
    for spec in (PLAIN, BOUNDED, OBJECT):
        for again in (copy.deepcopy(spec), pickle.loads(pickle.dumps(spec))):
            assert spec == again
            assert type(spec) is type(again)
    assert BoundedArraySpec((2,), np.int32, 0, 2) == BOUNDED.replace(maximum=2)
    assert "ArraySpec(shape=(2,), dtype=float32, name='plain')" == repr(PLAIN)
    assert [4, 4] == BOUNDED.num_values.tolist()


def check_equality() -> None:
    """A spec equals one of TF-Agents' that says the same, either way round."""
    plain = array_spec.ArraySpec((2,), np.float32)
    bounded = array_spec.BoundedArraySpec((2,), np.int32, 0, 3)
    narrow = array_spec.BoundedArraySpec((2,), np.int32, 0, 2)
    wide = array_spec.ArraySpec((2,), np.int32)
    for same in [(plain, PLAIN), (bounded, BOUNDED)]:
        assert same[0] == same[1]
        assert same[1] == same[0]
    for other in (plain, narrow, wide, None, 3):
        assert BOUNDED != other
        assert other != BOUNDED


def check_functions() -> None:
    """Functions of TF-Agents take them."""
    assert tf.TensorSpec((2,), tf.float32, "plain") == tensor_spec.from_spec(PLAIN)
    (least, most) = (tensor_spec.from_spec(BOUNDED).minimum, BOUNDED.maximum)
    assert (0, 3) == (int(least), int(most))
    sample = array_spec.sample_spec_nest(SPECS, np.random.RandomState(0))
    assert array_spec.check_arrays_nest(sample, SPECS)
    assert (5, 2) == array_spec.add_outer_dims_nest(SPECS, (5,))["bounded"].shape


def check_random_policies() -> None:
    """Random policies of TF-Agents act on envkit's time steps and specs."""
    action_spec = CART_POLE.action_spec()
    policy = random_py_policy.RandomPyPolicy(CART_POLE.time_step_spec(), action_spec)
    time_step = CART_POLE.reset()
    for _ in range(5):
        time_step = CART_POLE.step(policy.action(time_step).action)
    assert not time_step.is_first()

    tensors = tensor_spec.from_spec((BEFORE, action_spec))
    acting = random_tf_policy.RandomTFPolicy(*tensors)
    batch = tf.nest.map_structure(lambda array: tf.constant(array)[None], time_step)
    assert int(acting.action(batch).action[0]) in (0, 1)


def check_replay_buffers() -> None:
    """Replay buffers of TF-Agents keep what envkit's specs describe."""
    env = envkit.make("CartPole", batch_size=2)
    spec = trajectory.from_transition(
        env.time_step_spec(),
        policy_step.PolicyStep(env.action_spec()),
        env.time_step_spec(),
    )
    in_python = py_uniform_replay_buffer.PyUniformReplayBuffer(spec, capacity=20)
    in_tensors = tf_uniform_replay_buffer.TFUniformReplayBuffer(
        tensor_spec.from_spec(spec), batch_size=2, max_length=10
    )
    before = env.reset()
    for _ in range(6):
        action = np.array([0, 1], np.int64)
        after = env.step(action)
        kept = trajectory.from_transition(before, policy_step.PolicyStep(action), after)
        in_tensors.add_batch(tf.nest.map_structure(tf.constant, kept))
        one = tf.nest.map_structure(lambda array: array[:1], kept)
        in_python.add_batch(one)
        before = after
    assert 12 == int(in_tensors.num_frames())
    assert 6 == in_python.size
    sampled, _ = in_tensors.get_next(sample_batch_size=4, num_steps=2)
    assert (4, 2, 4) == sampled.observation.shape
    assert isinstance(sampled, trajectory.Trajectory)


CHECKS = [
    check_classes,
    check_copies,
    check_equality,
    check_functions,
    check_random_policies,
    check_replay_buffers,
]

if __name__ == "__main__":
    loaded = {name.partition(".")[0] for name in sys.modules}
    if sys.argv[1] == "envkit":
        assert not loaded & {"tensorflow", "tf_agents"}
    import tensorflow as tf
    from tf_agents.policies import random_py_policy, random_tf_policy
    from tf_agents.replay_buffers import (
        py_uniform_replay_buffer,
        tf_uniform_replay_buffer,
    )
    from tf_agents.specs import array_spec, tensor_spec
    from tf_agents.trajectories import policy_step, trajectory

    for check in CHECKS:
        check()
        print(check.__doc__)
