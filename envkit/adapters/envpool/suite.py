"""EnvPool: environments by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from envkit._shared.removed import removed_name
from envkit.adapters.envpool.wrapper import EnvPoolWrapper
from envkit.adapters.foreign import require
from envkit.py_environment import PyEnvironment
from envkit.time_step import AutoReset
from envkit.types import Seed

__all__ = ["load", "names"]

# Remove both with the version after the next.
AsyncEnvPool = removed_name(
    "AsyncEnvPool",
    "EnvPoolWrapper('Pong-v5', num_envs=64) steps the rows together",
)
load_async = removed_name(
    "load_async",
    "suite_envpool.load('Pong-v5', num_envs=64) steps the rows together",
)


def load(
    environment_name: str,
    num_envs: int = 1,
    discount: float = 1.0,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    *,
    autoreset: AutoReset | str = AutoReset.NEXT_STEP,
    seed: Seed = None,
    **kwargs: Any,
) -> PyEnvironment:
    """Makes a batch of an EnvPool environment.

    `envkit.make("envpool:CartPole-v1", num_envs=64)` calls this.

    Args:
        environment_name: EnvPool's name of the environment, including its version.
        num_envs: The number of rows.
        discount: The discount of steps that do not terminate the episode.
        env_wrappers: Wrappers for the batch, innermost first.
        autoreset: When the episode after a `LAST` begins.
        seed: The seed of EnvPool's generators; `None` for EnvPool's default.
        **kwargs: Arguments of `envpool.make_gymnasium`: `num_threads`,
            `max_episode_steps`, and those of the environment.

    Example:
        >>> env = load("CartPole-v1", num_envs=2, max_episode_steps=1)  # doctest: +SKIP
        >>> [env.step([0, 1]).step_type.tolist() for _ in range(3)]  # doctest: +SKIP
        [[0, 0], [2, 2], [0, 0]]
        >>> env.close()  # doctest: +SKIP
    """
    if seed is not None:
        kwargs["seed"] = seed
    env: PyEnvironment = EnvPoolWrapper(
        environment_name, discount, autoreset=autoreset, num_envs=num_envs, **kwargs
    )
    for wrap in env_wrappers:
        env = wrap(env)
    return env


def names() -> list[str]:
    """Lists all environments of EnvPool, with their versions.

    Example:
        >>> "CartPole-v1" in names()  # doctest: +SKIP
        True
    """
    require("envpool", needed_by="suite_envpool", extra="envpool")
    import envpool

    return sorted(envpool.list_all_envs())
