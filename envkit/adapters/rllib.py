"""`to_rllib`: environments of envkit, and pools of them, for RLlib's env runners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from envkit.adapters.foreign import require
from envkit.adapters.gymnasium.rows import check_infos
from envkit.adapters.gymnasium.to_gymnasium import PyToGymnasium
from envkit.adapters.gymnasium.to_gymnasium_vector import PyToGymnasiumVector
from envkit.registry import constructor, make, without_pool_options

__all__ = ["RLlibCreator", "to_rllib"]


def to_rllib(
    target: str | Callable[..., Any], /, *, infos: str = "all", **kwargs: Any
) -> RLlibCreator:
    """Returns an environment creator for `register_env` of Ray.

    With `gym_env_vectorize_mode="vector_entry_point"` each env runner steps one pool,
    of as many environments as `num_envs_per_env_runner` says. In the other modes an env
    runner makes single environments, which Gymnasium puts together.

    Args:
        target: What `make` takes: a name, `"module:attribute"`, `"scheme:id"`, or a
            callable.
        infos: Which infos RLlib gets: those of every step ("all"), those of the begins
            and ends of episodes ("final") or "none".
        **kwargs: What `make` takes besides: arguments of the environment, and of the
            pool, such as `num_workers`. RLlib's `env_config` adds to them, and replaces
            those of the same name.

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


class RLlibCreator:
    """Makes what an env runner of RLlib steps; `to_rllib` makes one.

    It pickles if its target and arguments do, and travels to env runners on other
    machines.
    """

    def __init__(
        self, target: str | Callable[..., Any], infos: str, kwargs: dict[str, Any]
    ) -> None:
        """Keeps what to make."""
        self._target = target
        self._infos = infos
        self._kwargs = kwargs

    def __call__(self, env_config: Mapping[str, Any]) -> Any:
        """Returns a vector environment if the configuration has `num_envs`.

        RLlib adds that to its `env_config` if it asks for a vector environment.
        """
        require("gymnasium", needed_by="to_rllib()", extra="rllib")
        kwargs = {**self._kwargs, **env_config}
        if "num_envs" not in kwargs:
            own, _ = without_pool_options(kwargs)
            return PyToGymnasium(make(self._target, **own))
        # RLlib's episodes have a begin of their own, so that it takes "NextStep" alone.
        return PyToGymnasiumVector(make(self._target, **kwargs), infos=self._infos)

    def __repr__(self) -> str:
        kwargs = "".join(f", {name}={value!r}" for name, value in self._kwargs.items())
        return f"to_rllib({self._target!r}, infos={self._infos!r}{kwargs})"
