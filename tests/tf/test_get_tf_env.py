"""`utils.get_tf_env`: whatever it is, as a TensorFlow environment."""

from __future__ import annotations

import pytest
import tensorflow as tf

from envkit.testing import CountingEnv
from envkit.tf import TFCartPole, TFPyEnvironment
from envkit.utils import get_tf_env


def test_a_tensorflow_environment_is_returned_unchanged():
    env = TFCartPole()
    assert env is get_tf_env(env)


def test_a_python_environment_is_wrapped():
    env = CountingEnv()

    tf_env = get_tf_env(env)

    assert isinstance(tf_env, TFPyEnvironment)
    assert env is tf_env.pyenv.envs[0]


@pytest.mark.parametrize(
    ("value", "described"),
    [(None, "None"), ("CartPole", "the string 'CartPole'"), (tf.constant(1), "")],
)
def test_anything_else_is_refused(message_of, value, described):
    message = message_of(ValueError, lambda: get_tf_env(value))
    assert message.startswith(f"get_tf_env() was given {described}")
    assert message.endswith("it takes an environment of Python or of TensorFlow.")
