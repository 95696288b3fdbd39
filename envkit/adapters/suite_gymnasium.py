"""Environments of Gymnasium by name."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envkit.adapters.dependencies import require
from envkit.adapters.gymnasium_wrapper import GymnasiumWrapper
from envkit.py_environment import PyEnvironment

__all__ = ["load"]


def load(
    environment_name: str,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    gym_env_wrappers: Sequence[Callable[[Any], Any]] = (),
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    gym_kwargs: Mapping[str, Any] | None = None,
    render_kwargs: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> PyEnvironment:
    """Makes an environment of Gymnasium by its id, as an envkit environment.

    `envkit.make("gymnasium:CartPole-v1")` calls this.

    Args:
        environment_name: The id, with its module if that has to be imported first:
            `"ale_py:ALE/Pong-v5"`.
        discount: What later rewards are worth.
        max_episode_steps: After how many steps an episode is truncated; `None` for
            what the id is registered with, 0 for no limit.
        gym_env_wrappers: What to wrap Gymnasium's environment in, innermost first.
        env_wrappers: What to wrap envkit's environment in, innermost first.
        gym_kwargs: Keyword arguments for `gymnasium.make`.
        render_kwargs: More of them, for those that concern pictures.
        **kwargs: Still more of them.

    Example:
        >>> env = load("CartPole-v1", max_episode_steps=2)
        >>> [int(env.step(0).step_type) for _ in range(4)]
        [0, 1, 2, 0]
        >>> env.close()
    """
    require(
        "gymnasium",
        needed_by=f"The environment {environment_name!r}",
        extra="gymnasium",
    )
    gym_env = _make(
        environment_name,
        max_episode_steps,
        **(gym_kwargs or {}),
        **(render_kwargs or {}),
        **kwargs,
    )
    for wrap_gym in gym_env_wrappers:
        gym_env = wrap_gym(gym_env)
    env: PyEnvironment = GymnasiumWrapper(gym_env, discount)
    for wrap in env_wrappers:
        env = wrap(env)
    return env


def _make(name: str, max_episode_steps: int | None, **kwargs: Any) -> Any:
    import gymnasium

    if max_episode_steps != 0:
        return gymnasium.make(name, max_episode_steps=max_episode_steps, **kwargs)
    # Before 1.0 Gymnasium had no number that means no limit.
    module, _, bare_name = name.rpartition(":")
    if module:
        importlib.import_module(module)
    spec = copy.deepcopy(gymnasium.spec(bare_name))
    spec.max_episode_steps = None
    return gymnasium.make(spec, **kwargs)
