"""Makes what the ids in envkit's namespace stand for: Gymnasium calls it by name."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from envkit import registry
from envkit.adapters.gymnasium.suite import spec_of
from envkit.adapters.gymnasium.to_gymnasium import PyToGymnasium
from envkit.adapters.gymnasium.to_gymnasium_vector import PyToGymnasiumVector
from envkit.adapters.gymnasium.vectorize import vectorize
from envkit.extend import checked_size
from envkit.registry import Constructor
from envkit.wrappers.limits import TimeLimit

__all__ = ["make", "make_unlimited", "make_vec"]

_LIMIT = "max_episode_steps"
_SCHEME = "gymnasium:"


def make(target: Any = None, *, render_mode: str | None = None, **kwargs: Any) -> Any:
    """Makes a Gymnasium environment; `gymnasium.make` calls this for envkit's ids.

    Args:
        target: As for `envkit.make`.
        render_mode: The mode of `render`. As with Gymnasium's own environments, "human"
            shows a window, and a mode such as "rgb_array_list" collects.
        **kwargs: Arguments for the environment.

    Example:
        >>> make("Catch", rows=3).observation_space
        Box(0.0, 1.0, (3, 5), float32)
    """
    recipe = _recipe(target)
    if name := _gymnasium_id(recipe):
        import gymnasium

        # `gymnasium.make`, which calls this, adds both.
        spec = dataclasses.replace(spec_of(name), order_enforce=False)
        kwargs = {**recipe.arguments, **_given(render_mode), **kwargs}
        return gymnasium.make(spec, disable_env_checker=True, **kwargs)
    if render_mode is None:
        return PyToGymnasium(recipe(**kwargs))
    mode, wrap = _displayed(render_mode)
    return wrap(PyToGymnasium(recipe(**_mode_for(recipe, mode), **kwargs), mode))


def make_unlimited(target: Any, **kwargs: Any) -> Any:
    """Makes an environment without its own limit of steps: Gymnasium applies one.

    Example:
        >>> make_unlimited("CartPole").observation_space.shape
        (4,)
    """
    is_theirs = _gymnasium_id(registry.constructor(target))
    return make(target, **kwargs, max_episode_steps=-1 if is_theirs else None)


def make_vec(
    target: Any = None,
    num_envs: int = 1,
    *,
    autoreset_mode: Any = "NextStep",
    infos: str = "all",
    render_mode: str | None = None,
    **kwargs: Any,
) -> Any:
    """Makes a vector environment; `gymnasium.make_vec` calls this for envkit's ids.

    An environment with the argument `batch_size` becomes one batch in this process.
    Other environments run in a pool, and all do if `kwargs` has options of a pool.

    Args:
        target: As for `envkit.make`.
        num_envs: The number of environments.
        autoreset_mode: When the next episode of a row begins.
        infos: When infos are read, as for `PyToGymnasiumVector`.
        render_mode: The mode of `render`.
        **kwargs: Arguments for the environments, and options of a
            `ParallelPyEnvironment`, such as `num_workers` and `backend`. For a target
            of Gymnasium, options of `vectorize`.

    Example:
        >>> envs = make_vec("Catch", 2, autoreset_mode="SameStep")
        >>> envs.action_space
        MultiDiscrete([3 3])
        >>> envs.close()
    """
    recipe = _recipe(target)
    checked_size("num_envs", num_envs)
    if name := _gymnasium_id(recipe):
        own, options = _for_vectorize(kwargs)
        own = {**recipe.arguments, **_given(render_mode), **own}
        # With the specification, because workers do not know this program's ids.
        one = functools.partial(_make_spec, spec_of(name), own)
        return vectorize(
            [one] * num_envs, autoreset_mode=autoreset_mode, infos=infos, **options
        )
    return PyToGymnasiumVector(
        _batch_of(recipe, num_envs, {**_mode_for(recipe, render_mode), **kwargs}),
        autoreset_mode,
        infos=infos,
        render_mode=render_mode,
    )


def _batch_of(recipe: Constructor, num_envs: int, kwargs: dict[str, Any]) -> Any:
    """Makes a batch in this process, or a pool."""
    parameters = _parameters(recipe)
    limit = kwargs.pop(_LIMIT, None)
    if limit is not None and _LIMIT in parameters:
        kwargs[_LIMIT] = _no_limit(recipe) if limit == -1 else limit
        limit = None
    _, options = registry.without_pool_options(kwargs)
    is_batch = "batch_size" in parameters and not options
    env = registry.make(
        recipe, **{"batch_size" if is_batch else "num_envs": num_envs}, **kwargs
    )
    return env if limit in (None, -1) else TimeLimit(env, limit)


def _recipe(target: Any) -> Constructor:
    if target is None:
        raise TypeError(
            "envkit/Make-v0 needs target=..., which is what envkit.make takes: "
            "gymnasium.make('envkit/Make-v0', target='dm_control:cartpole/balance')."
        )
    return registry.constructor(target)


def _gymnasium_id(recipe: Constructor) -> str:
    """Returns the id of an environment of Gymnasium; "" for any other."""
    build = recipe.build
    is_theirs = isinstance(build, str) and build.startswith(_SCHEME)
    return str(build).removeprefix(_SCHEME) if is_theirs else ""


def _parameters(recipe: Constructor) -> Mapping[str, Any]:
    """Returns the parameters that the environment is known to have."""
    build = recipe.build
    if isinstance(build, str):
        build = registry.load(recipe.name, build)
    try:
        return inspect.signature(build).parameters
    except (TypeError, ValueError):  # made by something without a signature
        return {}


def _given(render_mode: str | None) -> dict[str, Any]:
    return {} if render_mode is None else {"render_mode": render_mode}


def _mode_for(recipe: Constructor, render_mode: str | None) -> dict[str, Any]:
    """Returns the argument of an environment that is made for one render mode."""
    return _given(render_mode) if "render_mode" in _parameters(recipe) else {}


def _no_limit(recipe: Constructor) -> int | None:
    """Returns the value of `max_episode_steps` for no limit."""
    scheme = str(recipe.build).partition(":")[0]
    return 0 if scheme in registry.schemes() else None


def _displayed(render_mode: str) -> tuple[str, Callable[[Any], Any]]:
    """Returns the environment's mode, and Gymnasium's wrapper for it."""
    from gymnasium import wrappers

    if render_mode == "human":
        return "rgb_array", wrappers.HumanRendering
    if render_mode.endswith("_list"):
        return render_mode.removesuffix("_list"), wrappers.RenderCollection
    return render_mode, lambda env: env


def _for_vectorize(
    kwargs: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits keyword arguments into the environment's and those of `vectorize`."""
    _, *known = inspect.signature(vectorize).parameters
    options = {name: kwargs[name] for name in known if name in kwargs}
    return {name: kwargs[name] for name in kwargs if name not in options}, options


def _make_spec(spec: Any, kwargs: Mapping[str, Any]) -> Any:
    import gymnasium

    return gymnasium.make(spec, **kwargs)
