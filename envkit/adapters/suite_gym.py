"""Environments of the old Gym by name."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envkit.adapters.dependencies import require
from envkit.adapters.gym_environments import id_without_module, limited_and_wrapped
from envkit.adapters.gym_wrapper import GymWrapper
from envkit.py_environment import PyEnvironment
from envkit.wrappers import TimeLimit

__all__ = ["load", "names", "wrap_env"]


def load(
    environment_name: str,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    gym_env_wrappers: Sequence[Callable[[Any], Any]] = (),
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    spec_dtype_map: Mapping[type, Any] | None = None,
    gym_kwargs: Mapping[str, Any] | None = None,
    render_kwargs: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> PyEnvironment:
    """Makes an environment of Gym by its id, as an envkit environment.

    Gym's own limit of steps is left out: in most of its versions nobody can tell an
    episode that was cut from one that ended. `TimeLimit` takes its place.

    Args:
        environment_name: The id, with its module if that has to be imported first:
            `"my_package:Maze-v0"`.
        discount: What later rewards are worth.
        max_episode_steps: After how many steps an episode is truncated; `None` for
            what the id is registered with, 0 for no limit.
        gym_env_wrappers: What to wrap Gym's environment in, innermost first.
        env_wrappers: What to wrap envkit's environment in, innermost first.
        spec_dtype_map: Which dtypes to use in the specs, by class of space.
        gym_kwargs: Keyword arguments for the environment's constructor.
        render_kwargs: Keyword arguments for the environment's `render`.
        **kwargs: More of those for its constructor.
    """
    require("gym", needed_by=f"The environment {environment_name!r}", extra="gym")
    spec = _spec_of(environment_name)
    if max_episode_steps is None:
        max_episode_steps = spec.max_episode_steps
    return wrap_env(
        _make(spec, **(gym_kwargs or {}), **kwargs),
        discount=discount,
        max_episode_steps=max_episode_steps,
        gym_env_wrappers=gym_env_wrappers,
        env_wrappers=env_wrappers,
        spec_dtype_map=spec_dtype_map,
        render_kwargs=render_kwargs,
    )


def names() -> list[str]:
    """Lists the ids that are registered with Gym in this process.

    Example:
        >>> "CartPole-v1" in names()  # doctest: +SKIP
        True
    """
    require("gym", needed_by="suite_gym", extra="gym")
    import gym

    registry = gym.envs.registry
    # A dictionary since 0.26, and an object that holds one before.
    return sorted(getattr(registry, "env_specs", registry))


def wrap_env(
    gym_env: Any,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    gym_env_wrappers: Sequence[Callable[[Any], Any]] = (),
    time_limit_wrapper: Callable[[PyEnvironment, int], PyEnvironment] = TimeLimit,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    spec_dtype_map: Mapping[type, Any] | None = None,
    auto_reset: bool = True,
    render_kwargs: Mapping[str, Any] | None = None,
) -> PyEnvironment:
    """Makes an envkit environment of one of Gym's, with wrappers of both.

    Args:
        gym_env: The environment; Gym itself need not be installed.
        discount: What later rewards are worth.
        max_episode_steps: After how many steps an episode is truncated; `None` or 0
            for no limit.
        gym_env_wrappers: What to wrap Gym's environment in, innermost first.
        time_limit_wrapper: What limits the steps: `(env, max_episode_steps)`.
        env_wrappers: What to wrap envkit's environment in, innermost first.
        spec_dtype_map: Which dtypes to use in the specs, by class of space.
        auto_reset: Whether the step after the end of an episode begins the next.
        render_kwargs: Keyword arguments for the environment's `render`.
    """
    for wrap_gym in gym_env_wrappers:
        gym_env = wrap_gym(gym_env)
    env: PyEnvironment = GymWrapper(
        gym_env,
        discount=discount,
        spec_dtype_map=spec_dtype_map,
        auto_reset=auto_reset,
        render_kwargs=render_kwargs,
    )
    return limited_and_wrapped(env, max_episode_steps, time_limit_wrapper, env_wrappers)


def _spec_of(name: str) -> Any:
    """Returns what an id is registered with."""
    import gym

    return gym.spec(id_without_module(name))


def _make(spec: Any, **kwargs: Any) -> Any:
    """Makes an environment without what Gym puts around it by default."""
    # A copy, because the limit is not an argument: what a version takes differs.
    spec = copy.copy(spec)
    spec.max_episode_steps = None
    if hasattr(spec, "disable_env_checker"):
        # It fails with NumPy 2, where a name is missing that it uses.
        spec.disable_env_checker = True
    return spec.make(**kwargs)
