"""Gymnasium: environments by name."""

from __future__ import annotations

import contextlib
import copy
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envkit.adapters.foreign import limited_and_wrapped, require
from envkit.adapters.gymnasium.registration import NAMESPACE
from envkit.adapters.gymnasium.wrapper import GymnasiumWrapper
from envkit.adapters.quiet import prepare_module
from envkit.py_environment import PyEnvironment
from envkit.wrappers.limits import TimeLimit

__all__ = ["id_without_module", "load", "names", "preload", "spec_of", "wrap_env"]


def load(
    environment_name: str,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    gym_env_wrappers: Sequence[Callable[[Any], Any]] = (),
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    gym_kwargs: Mapping[str, Any] | None = None,
    render_kwargs: Mapping[str, Any] | None = None,
    max_lengths: Any = None,
    **kwargs: Any,
) -> PyEnvironment:
    """Makes a Gymnasium environment by its id.

    `envkit.make("gymnasium:CartPole-v1")` calls this. Envkit's `TimeLimit` replaces
    Gymnasium's own limit of steps.

    Args:
        environment_name: The id, with the module to import first, if any:
            `"ale_py:ALE/Pong-v5"`.
        discount: The discount of steps that do not terminate the episode.
        max_episode_steps: The number of steps after which an episode is truncated;
            `None` for the registered limit, 0 for no limit.
        gym_env_wrappers: Wrappers for the Gymnasium environment, innermost first.
        env_wrappers: Wrappers for the envkit environment, innermost first.
        gym_kwargs: Keyword arguments for `gymnasium.make`.
        render_kwargs: More of them, about rendering.
        max_lengths: The maximum lengths of members of `Sequence` and `Graph` spaces, as
            for `GymnasiumWrapper`.
        **kwargs: More keyword arguments for `gymnasium.make`.

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
    spec = spec_of(environment_name)
    if max_episode_steps is None:
        max_episode_steps = spec.max_episode_steps
    options = {**(gym_kwargs or {}), **(render_kwargs or {}), **kwargs}
    prepare_module(spec.entry_point, options.get("render_mode"))
    return wrap_env(
        _make_without_limit(spec, options),
        discount=discount,
        max_episode_steps=max_episode_steps,
        gym_env_wrappers=gym_env_wrappers,
        env_wrappers=env_wrappers,
        max_lengths=max_lengths,
    )


def names() -> list[str]:
    """Lists the ids registered with Gymnasium in this process, without envkit's.

    Example:
        >>> "CartPole-v1" in names()
        True
    """
    require("gymnasium", needed_by="suite_gymnasium", extra="gymnasium")
    import gymnasium

    return sorted(
        name for name, spec in gymnasium.registry.items() if spec.namespace != NAMESPACE
    )


def wrap_env(
    gym_env: Any,
    discount: float = 1.0,
    max_episode_steps: int | None = None,
    gym_env_wrappers: Sequence[Callable[[Any], Any]] = (),
    time_limit_wrapper: Callable[[PyEnvironment, int], PyEnvironment] = TimeLimit,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    auto_reset: bool = True,
    *,
    max_lengths: Any = None,
) -> PyEnvironment:
    """Wraps a Gymnasium environment, with both libraries' wrappers.

    Args:
        gym_env: The environment.
        discount: The discount of steps that do not terminate the episode.
        max_episode_steps: The number of steps after which an episode is truncated;
            `None` or 0 keeps only the environment's own limit.
        gym_env_wrappers: Wrappers for the Gymnasium environment, innermost first.
        time_limit_wrapper: Makes the time limit: `(env, max_episode_steps)`.
        env_wrappers: Wrappers for the envkit environment, innermost first.
        auto_reset: Whether the step after the end of an episode begins the next.
        max_lengths: As for `GymnasiumWrapper`.

    Example:
        >>> import gymnasium
        >>> env = wrap_env(gymnasium.make("Pendulum-v1"), max_episode_steps=3)
        >>> type(env).__name__, env.duration
        ('TimeLimit', 3)
        >>> env.close()
    """
    for wrap_gym in gym_env_wrappers:
        gym_env = wrap_gym(gym_env)
    env: PyEnvironment = GymnasiumWrapper(
        gym_env, discount, auto_reset, max_lengths=max_lengths
    )
    return limited_and_wrapped(env, max_episode_steps, time_limit_wrapper, env_wrappers)


def preload(environment_name: str) -> None:
    """Imports an environment's module, the slow part of making it."""
    import gymnasium

    point = gymnasium.spec(_newest(id_without_module(environment_name))).entry_point
    if isinstance(point, str):
        importlib.import_module(point.partition(":")[0])


def spec_of(name: str) -> Any:
    """Returns the registered specification of an id.

    Example:
        >>> spec_of("CartPole-v1").max_episode_steps
        500
    """
    import gymnasium

    bare_name = id_without_module(name)
    try:
        return gymnasium.spec(_newest(bare_name))
    except gymnasium.error.Error:
        return _spec_of_made(bare_name)


def _spec_of_made(name: str) -> Any:
    import gymnasium

    # This gives the best explanation of a wrong name; how it was found out is nobody's.
    try:
        env = gymnasium.make(name)
    except gymnasium.error.UnregisteredEnv as error:
        raise error.with_traceback(None) from None
    env.close()
    return env.spec


def _newest(name: str) -> str:
    """Returns an id with its version, by default the newest."""
    from gymnasium.envs import registration

    space, bare, version = registration.parse_env_id(name)
    if version is None:
        version = registration.find_highest_version(space, bare)
    return registration.get_env_id(space, bare, version)


def _make_without_limit(spec: Any, kwargs: Mapping[str, Any]) -> Any:
    import gymnasium

    # Not max_episode_steps=-1, which `env.spec` would show as the limit.
    spec = copy.deepcopy(spec)
    spec.max_episode_steps = None
    return gymnasium.make(spec, **kwargs)


def id_without_module(name: str) -> str:
    """Imports the module named before an id, if any; returns the id."""
    module, _, bare_name = name.rpartition(":")
    if not module and bare_name.startswith("ALE/"):
        # Gymnasium does not import ale-py itself, and explains it if it is missing.
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module("ale_py")
    if module:
        importlib.import_module(module)
    return bare_name
