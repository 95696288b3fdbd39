"""A pool of workers."""

from __future__ import annotations

import functools

from typing_extensions import assert_type

import envkit
from envkit import AutoReset, ParallelPyEnvironment, RestartPolicy, TimeStep, errors
from envkit.parallel import PoolStatistics
from envkit.testing import CountingEnv
from envkit.types import EnvConstructor


def make_env() -> CountingEnv:
    """Makes an environment, in a worker."""
    return CountingEnv(steps_per_episode=3)


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

    # What `make` returns depends on a string: an annotation says what is expected.
    batch: envkit.PyEnvironment = envkit.make("CartPole", num_envs=2, backend="inline")
    assert_type(batch.reset(), TimeStep)
    batch.close()


def mistakes() -> None:
    """Does what mypy has to find."""
    # The dish instead of the recipe.
    ParallelPyEnvironment([CountingEnv()])  # type: ignore[list-item]
    ParallelPyEnvironment([CountingEnv], workers=2)  # type: ignore[call-arg]
    RestartPolicy(max_restarts="3")  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
