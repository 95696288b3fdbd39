"""A pool of workers."""

from __future__ import annotations

import functools
from typing import Any

from typing_extensions import assert_type

import envkit
from envkit import AutoReset, ParallelPyEnvironment, RestartPolicy, TimeStep, errors
from envkit.parallel import PoolStatistics
from envkit.testing import CountingEnv
from envkit.types import EnvConstructor


def make_env() -> CountingEnv:
    """Makes an environment, in a worker."""
    return CountingEnv(steps_per_episode=3)


class Marked(CountingEnv):
    """An environment of one's own, with an attribute."""

    marks = 3


def main() -> None:
    """Steps a pool of every kind of constructor."""
    constructors: list[EnvConstructor | str] = [
        make_env,
        CountingEnv,
        functools.partial(CountingEnv, steps_per_episode=2),
        "envkit.testing:CountingEnv",
    ]
    with ParallelPyEnvironment(
        constructors,
        backend="inline",
        autoreset=AutoReset.SAME_STEP,
        on_worker_failure=RestartPolicy(max_restarts=3),
        step_timeout=10.0,
    ) as env:
        assert_type(env, ParallelPyEnvironment)
        assert_type(env.batch_size, int)
        env.seed(7)
        try:
            time_step = env.reset()
        except errors.WorkerError as error:
            assert_type(error.worker, int | None)
            raise
        assert_type(time_step, TimeStep)
        assert_type(env.step([0, 0, 0, 0]), TimeStep)
        assert_type(env.statistics(), PoolStatistics)
        assert_type(env.statistics().workers[0].seconds_per_step, float)
        env.autoreset = "disabled"
        assert_type(env.autoreset, AutoReset)

    # A name may be that of a library that makes its own batches, such as EnvPool; an
    # annotation says what is expected.
    named = envkit.make("CartPole", num_envs=2, backend="inline", seed=7)
    assert_type(named, ParallelPyEnvironment | Any)
    named.close()
    with envkit.make(make_env, num_envs=2, backend="inline") as pool:
        assert_type(pool, ParallelPyEnvironment)
        assert_type(pool.statistics(), PoolStatistics)
    batch: envkit.PyEnvironment = envkit.make("CartPole", num_envs=2, backend="inline")
    assert_type(batch.reset(), TimeStep)
    batch.close()
    assert_type(envkit.make(make_env), CountingEnv)
    assert_type(envkit.make(Marked, steps_per_episode=2).marks, int)
    assert_type(envkit.make("CartPole"), envkit.PyEnvironment)


def mistakes() -> None:
    """Does what mypy has to find."""
    # The dish instead of the recipe.
    ParallelPyEnvironment([CountingEnv()])  # type: ignore[list-item]
    ParallelPyEnvironment([CountingEnv], workers=2)  # type: ignore[call-arg]
    envkit.make("CartPole", num_envs="2")  # type: ignore[call-overload]
    RestartPolicy(max_restarts="3")  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
