"""Environments of EnvPool by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from envkit.adapters.envpool.async_pool import AsyncEnvPool
from envkit.adapters.envpool.wrapper import EnvPoolWrapper
from envkit.adapters.foreign import require
from envkit.py_environment import PyEnvironment
from envkit.time_step import AutoReset

__all__ = ["load", "load_async", "names"]


def load(
    environment_name: str,
    num_envs: int = 1,
    discount: float = 1.0,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    *,
    autoreset: AutoReset | str = AutoReset.NEXT_STEP,
    **kwargs: Any,
) -> PyEnvironment:
    """Makes a batch of an environment of EnvPool.

    `envkit.make("envpool:CartPole-v1", num_envs=64)` calls this.

    Args:
        environment_name: EnvPool's name of the environment, with its version.
        num_envs: How many rows the batch has.
        discount: What later rewards are worth.
        env_wrappers: What to wrap the batch in, innermost first.
        autoreset: When the episode after a `LAST` begins.
        **kwargs: What `envpool.make_gymnasium` takes: `seed`, `num_threads`,
            `max_episode_steps` and what the environment knows.

    Example:
        >>> env = load("CartPole-v1", num_envs=2, max_episode_steps=1)  # doctest: +SKIP
        >>> [env.step([0, 1]).step_type.tolist() for _ in range(3)]  # doctest: +SKIP
        [[0, 0], [2, 2], [0, 0]]
        >>> env.close()  # doctest: +SKIP
    """
    env: PyEnvironment = EnvPoolWrapper(
        environment_name, discount, autoreset=autoreset, num_envs=num_envs, **kwargs
    )
    for wrap in env_wrappers:
        env = wrap(env)
    return env


def load_async(
    environment_name: str,
    num_envs: int,
    batch_size: int | None = None,
    discount: float = 1.0,
    *,
    autoreset: AutoReset | str = AutoReset.NEXT_STEP,
    **kwargs: Any,
) -> AsyncEnvPool:
    """Makes rows of an environment of EnvPool that take their own time.

    Args:
        environment_name: EnvPool's name of the environment, with its version.
        num_envs: How many rows there are.
        batch_size: How many of them EnvPool answers at a time; `None` for half.
        discount: What later rewards are worth.
        autoreset: When the episode after a `LAST` begins: NEXT_STEP or DISABLED.
        **kwargs: What `AsyncEnvPool` and `envpool.make_gymnasium` take.

    Example:
        >>> env = load_async("CartPole-v1", num_envs=4, batch_size=2)  # doctest: +SKIP
        >>> env.reset_async()  # doctest: +SKIP
        >>> env.recv(count=2).time_step.is_first().tolist()  # doctest: +SKIP
        [True, True]
        >>> env.close()  # doctest: +SKIP
    """
    return AsyncEnvPool(
        environment_name,
        discount,
        autoreset=autoreset,
        num_envs=num_envs,
        batch_size=batch_size,
        **kwargs,
    )


def names() -> list[str]:
    """Lists all environments of EnvPool, with their versions.

    Example:
        >>> "CartPole-v1" in names()  # doctest: +SKIP
        True
    """
    require("envpool", needed_by="suite_envpool", extra="envpool")
    import envpool

    return sorted(envpool.list_all_envs())
