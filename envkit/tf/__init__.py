"""Connects envkit to TensorFlow: the only package that imports TensorFlow.

Names are loaded when they are first used. Without TensorFlow, importing the package or
one of its modules raises a `MissingDependencyError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from envkit._shared.installed import is_installed
from envkit.errors import MissingDependencyError
from envkit.extend import lazy_names

if TYPE_CHECKING:
    from envkit.tf import tensor_spec as tensor_spec
    from envkit.tf import tf_wrappers as tf_wrappers
    from envkit.tf.checkpoints import CheckpointedState
    from envkit.tf.datasets import Transition, dataset
    from envkit.tf.random_tf_environment import RandomTFEnvironment
    from envkit.tf.tf_cartpole import TFCartPole
    from envkit.tf.tf_environment import TFEnvironment
    from envkit.tf.tf_py_environment import TFPyEnvironment

_HOMES = {
    "CheckpointedState": "envkit.tf.checkpoints",
    "RandomTFEnvironment": "envkit.tf.random_tf_environment",
    "TFCartPole": "envkit.tf.tf_cartpole",
    "TFEnvironment": "envkit.tf.tf_environment",
    "TFPyEnvironment": "envkit.tf.tf_py_environment",
    "Transition": "envkit.tf.datasets",
    "dataset": "envkit.tf.datasets",
}
_MODULES = ("tensor_spec", "tf_wrappers")

__all__ = [
    "CheckpointedState",
    "RandomTFEnvironment",
    "TFCartPole",
    "TFEnvironment",
    "TFPyEnvironment",
    "Transition",
    "dataset",
    "tensor_spec",
    "tf_wrappers",
]


# Found but not imported here, because a broken installation raises its own error.
if not is_installed("tensorflow"):
    raise MissingDependencyError.needed_by(__name__, package="tensorflow", extra="tf")

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _MODULES)
