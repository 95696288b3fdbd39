"""TF-Agents' TFPyEnvironment, timed in the interpreter that has it.

    python benchmarks/tf_agents_steps.py nothing

`tf_environment.py` runs it where TF-Agents is installed, which is seldom beside today's
TensorFlow. Each line that it reads is how many seconds to take, each that it writes the
microseconds of a step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf
from side_by_side import microseconds
from tf_agents.environments import (
    batched_py_environment,
    py_environment,
    tf_py_environment,
)
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts


class Nothing(py_environment.PyEnvironment):
    """Returns the same time step over and over."""

    def __init__(self) -> None:
        super().__init__()
        self._answer = ts.transition(np.zeros(4, np.float32), 1.0)

    def observation_spec(self) -> Any:
        return array_spec.ArraySpec((4,), np.float32)

    def action_spec(self) -> Any:
        return array_spec.BoundedArraySpec((), np.int64, 0, 1)

    def _reset(self) -> Any:
        return ts.restart(np.zeros(4, np.float32))

    def _step(self, action: Any) -> Any:
        return self._answer


class CartPole(Nothing):
    """The thinnest way from Gymnasium's CartPole to TF-Agents."""

    def __init__(self) -> None:
        super().__init__()
        self._env = gymnasium.make("CartPole-v1")

    def _reset(self) -> Any:
        return ts.restart(self._env.reset()[0])

    def _step(self, action: Any) -> Any:
        if self._current_time_step.is_last():
            return self.reset()
        shown, reward, terminated, truncated, _ = self._env.step(int(action))
        if terminated:
            return ts.termination(shown, reward)
        if truncated:
            return ts.truncation(shown, reward)
        return ts.transition(shown, reward)


def nothing() -> tf_py_environment.TFPyEnvironment:
    return tf_py_environment.TFPyEnvironment(Nothing())


def cartpoles() -> tf_py_environment.TFPyEnvironment:
    batch = batched_py_environment.BatchedPyEnvironment(
        [CartPole() for _ in range(64)], multithreading=False
    )
    return tf_py_environment.TFPyEnvironment(batch)


MAKERS: dict[str, Callable[[], tf_py_environment.TFPyEnvironment]] = {
    "nothing": nothing,
    "cartpoles": cartpoles,
}


def main() -> None:
    env = MAKERS[sys.argv[1]]()
    env.reset()
    action = tf.ones([env.batch_size], tf.int64)
    print("ready", flush=True)
    for line in sys.stdin:
        print(microseconds(lambda: env.step(action), float(line)), flush=True)


if __name__ == "__main__":
    main()
