"""A wrapper of one's own, around a single environment and around a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import assert_type

import envkit
from envkit import PyEnvironmentBaseWrapper, TimeStep
from envkit.types import Array, NestedArray
from envkit.wrappers import FrameStack, TimeLimit, wrap


class Doubled(PyEnvironmentBaseWrapper):
    """Doubles rewards, row by row, and counts the steps that it has seen."""

    seen: int

    def __init__(self, env: Any) -> None:
        """Wraps an environment."""
        self.seen = 0
        super().__init__(env)

    def _act(self, action: NestedArray) -> NestedArray:
        return np.asarray(action)

    def _see(self, time_step: TimeStep, rows: Array | None) -> TimeStep:
        self.seen += 1
        return time_step._replace(reward=2 * time_step.reward)


class Confused(Doubled):
    """Returns the observation instead of the time step."""

    def _see(  # type: ignore[override]
        self, time_step: TimeStep, rows: Array | None
    ) -> Array:
        return np.asarray(time_step.observation)


def main() -> None:
    """Wraps a single environment and a batch."""
    single = Doubled(envkit.make("CartPole"))
    assert_type(single.reset(), TimeStep)
    assert_type(single.seen, int)

    limited = TimeLimit(Doubled(envkit.make("CartPole", batch_size=3)), duration=10)
    assert_type(limited, TimeLimit)
    assert_type(limited.batch_size, int | None)
    limited.reset()
    limited.step([0, 1, 0])

    # Whatever `wrap` returns, it is an environment.
    stacked: envkit.PyEnvironment = wrap(limited, [FrameStack, 4], Doubled)
    assert_type(stacked.reset(), TimeStep)


def mistakes() -> None:
    """Does what mypy has to find."""
    FrameStack(envkit.make("CartPole"))  # type: ignore[call-arg]
    TimeLimit(envkit.make("CartPole"), duration="10")  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
