"""A pool that is not in lockstep."""

from __future__ import annotations

from typing_extensions import assert_type

from envkit import (
    AsyncBatch,
    AsyncEnvironment,
    AsyncParallelPyEnvironment,
    Blocking,
    TimeStep,
)
from envkit.testing import CountingEnv
from envkit.types import Array


def collect(env: AsyncEnvironment, batches: int) -> list[TimeStep]:
    """Collects from anything with `send` and `recv`."""
    collected = []
    env.reset_async()
    for _ in range(batches):
        env_ids, time_step = env.recv(count=2)
        collected.append(time_step)
        env.send([0] * len(env_ids), env_ids)
    env.recv()
    return collected


def main() -> None:
    """Collects from a pool, and makes a batch of it again."""
    with AsyncParallelPyEnvironment([CountingEnv] * 4, backend="inline") as env:
        assert_type(env, AsyncParallelPyEnvironment)
        assert_type(env.num_envs, int)
        assert_type(collect(env, batches=3), list[TimeStep])
        env.reset_async()
        batch = env.recv(timeout=5.0)
        assert_type(batch, AsyncBatch)
        assert_type(batch.time_step, TimeStep)
        assert_type(batch.env_ids, Array)
    lockstep = Blocking(AsyncParallelPyEnvironment([CountingEnv] * 2, backend="inline"))
    assert_type(lockstep.reset(), TimeStep)
    lockstep.close()


def mistakes() -> None:
    """Does what mypy has to find."""
    env = AsyncParallelPyEnvironment([CountingEnv], backend="inline")
    env.recv("all")  # type: ignore[arg-type]
    env.step([0])  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
