"""`to_rllib`: envkit environments and pools for RLlib's env runners."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from envkit.adapters.foreign import require
from envkit.adapters.gymnasium.rows import check_infos
from envkit.adapters.gymnasium.to_gymnasium import PyToGymnasium
from envkit.adapters.gymnasium.to_gymnasium_vector import PyToGymnasiumVector
from envkit.registry import constructor, make, without_pool_options

__all__ = ["RLlibCreator", "to_rllib"]


def to_rllib(
    target: str | Callable[..., Any], /, *, infos: str = "all", **kwargs: Any
) -> RLlibCreator:
    """Returns an environment creator for Ray's `register_env`.

    With `gym_env_vectorize_mode="vector_entry_point"`, each env runner steps one pool
    of `num_envs_per_env_runner` environments. In the other modes, an env runner makes
    single environments, and Gymnasium combines them.

    Args:
        target: As for `make`: a name, `"module:attribute"`, `"scheme:id"`, or a
            callable.
        infos: When RLlib gets infos: in every step ("all"), only in the
            first and last steps of episodes ("final"), or never ("none").
        **kwargs: More arguments for `make`: the environment's, and the pool's, such as
            `num_workers`. RLlib's `env_config` adds to them and overrides them.

    Example:
        >>> creator = to_rllib("Catch-v1", backend="inline")
        >>> creator({"rows": 5}).observation_space.shape
        (5, 5)
        >>> envs = creator({"rows": 5, "num_envs": 3})
        >>> envs.reset(seed=7)[0].shape
        (3, 5, 5)
        >>> envs.close()
    """
    check_infos(infos)
    constructor(target)
    return RLlibCreator(target, infos, kwargs)


def _failure(env: Any) -> Exception:
    """Returns the error that makes RLlib drop the running episodes."""
    from ray.rllib.env.env_errors import StepFailedRecreateEnvError

    losses = env.current_losses().values()
    said = "; ".join(f"row {loss.row}: {loss.kind}, {loss.error}" for loss in losses)
    return StepFailedRecreateEnvError(  # type: ignore[no-any-return]  # Ray has no types
        f"An environment was lost, and its episode is no sample ({said}). With "
        "config.fault_tolerance(restart_failed_sub_environments=True), RLlib drops the "
        "running episodes and goes on."
    )


def _kept_pool() -> Any:
    """Returns the pool that had the loss that RLlib is handling; else `None`."""
    return getattr(sys.exc_info()[1], "envkit_pool", None)


class _RLlibEnv(PyToGymnasium):
    """Raises where its environment has made up an end."""

    def step(self, action: Any) -> Any:
        result = super().step(action)
        if result[3] and self._env.repaired.any():
            raise _failure(self._env)
        return result


class _RLlibVectorEnv(PyToGymnasiumVector):
    """Raises where a pool has made up an end, and keeps the pool for the next vector.

    RLlib closes the vector and has another one made, while it handles the error. The
    pool has replaced the lost environment already, so it goes on in the next one, with
    its other environments and the count of its restarts.
    """

    def step(self, actions: Any) -> Any:
        # Hot: called once per batch step.
        result = super().step(actions)
        if np.count_nonzero(result[3]) and self._env.repaired.any():
            error: Any = _failure(self._env)
            error.envkit_pool = self._env
            raise error
        return result

    def close_extras(self, *args: Any, **kwargs: Any) -> None:
        # A runner that ends handles another error, or none.
        if _kept_pool() is not self._env:
            super().close_extras(*args, **kwargs)


class RLlibCreator:
    """Makes the environments of an RLlib env runner; `to_rllib` makes one.

    It pickles if its target and arguments do, so it can travel to env runners on other
    machines.
    """

    def __init__(
        self, target: str | Callable[..., Any], infos: str, kwargs: dict[str, Any]
    ) -> None:
        """Keeps the target and its arguments."""
        self._target = target
        self._infos = infos
        self._kwargs = kwargs

    def __call__(self, env_config: Mapping[str, Any]) -> Any:
        """Returns a vector environment if the configuration has `num_envs`.

        RLlib adds `num_envs` to its `env_config` when it wants a vector environment.
        """
        require("gymnasium", needed_by="to_rllib()", extra="rllib")
        kwargs = {**self._kwargs, **env_config}
        if "num_envs" not in kwargs:
            own, _ = without_pool_options(kwargs)
            return _RLlibEnv(make(self._target, **own))
        pool = _kept_pool() or make(self._target, **kwargs)
        # RLlib begins episodes in a step of their own, so it needs "NextStep".
        return _RLlibVectorEnv(pool, infos=self._infos)

    def __repr__(self) -> str:
        kwargs = "".join(f", {name}={value!r}" for name, value in self._kwargs.items())
        return f"to_rllib({self._target!r}, infos={self._infos!r}{kwargs})"
