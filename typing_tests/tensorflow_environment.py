"""An environment in TensorFlow, which has no types for mypy."""

from __future__ import annotations

from typing_extensions import assert_type

import envkit
from envkit import TFPyEnvironment, TimeStep
from envkit.testing import CountingEnv
from envkit.tf import TFEnvironment


def total_reward(env: TFEnvironment, action: object, steps: int) -> float:
    """Plays any environment in TensorFlow."""
    env.reset()
    return sum(float(env.step(action).reward[0]) for _ in range(steps))


def main() -> None:
    """Steps environments of every kind that `TFPyEnvironment` takes."""
    for given in (CountingEnv(), CountingEnv, "CartPole"):
        with TFPyEnvironment(given) as env:
            assert_type(env, TFPyEnvironment)
            assert_type(env.batch_size, int | None)
            assert_type(env.reset(), TimeStep)
            assert_type(total_reward(env, [0], steps=3), float)
    isolated = TFPyEnvironment(envkit.make("CartPole", batch_size=2), isolation=True)
    assert_type(isolated.time_step_spec(), TimeStep)
    isolated.close()


def mistakes() -> None:
    """Does what mypy has to find."""
    TFPyEnvironment(17)  # type: ignore[arg-type]
    TFPyEnvironment(CountingEnv(), isolated=True)  # type: ignore[call-arg]


if __name__ == "__main__":
    main()
