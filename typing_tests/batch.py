"""Batches in one process: built in, and of environments of one's own."""

from __future__ import annotations

from typing_extensions import assert_type

from envkit import BatchedPyEnvironment, PyEnvironment, TimeStep
from envkit.envs import CartPole
from envkit.testing import CountingEnv


def mean_return(env: PyEnvironment, steps: int) -> float:
    """Plays any environment; a batch, a pool and a wrapper are ones, too."""
    time_step, total = env.reset(), 0.0
    for _ in range(steps):
        time_step = env.step([0] * (env.batch_size or 1))
        total += float(time_step.reward.sum())
    return total / (env.batch_size or 1)


def main() -> None:
    """Steps both."""
    assert_type(mean_return(CartPole(batch_size=4), steps=5), float)

    with BatchedPyEnvironment([CountingEnv(), CountingEnv()]) as env:
        assert_type(env, BatchedPyEnvironment)
        assert_type(env.batch_size, int)
        assert_type(env.envs, list[PyEnvironment])
        assert_type(env.reset(mask=None), TimeStep)
        token = env.get_state()
        env.set_state(token)
        assert_type(mean_return(env, steps=5), float)


def mistakes() -> None:
    """Does what mypy has to find."""
    mean_return(CountingEnv, steps=5)  # type: ignore[arg-type]
    CountingEnv().step()  # type: ignore[call-arg]


if __name__ == "__main__":
    main()
