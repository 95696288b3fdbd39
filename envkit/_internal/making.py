"""Calls what makes an environment, with the arguments that `make` was given."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from envkit._internal.entry_points import advice, loaded, own
from envkit._internal.objects import as_environment, is_environment
from envkit._internal.text import listed, nearest
from envkit.specs.validation import describe

__all__ = ["built", "parameters_of", "pool_options", "seed_or_close"]

# Options of `make` that put a wrapper around the environment.
_OPTIONS = "envkit.options"
# A string, because the engine is a layer above this module.
_POOL = "envkit.parallel:ParallelPyEnvironment"
_REFUSED = re.compile(r"unexpected keyword argument '(\w+)'")


def built(build: Callable[..., Any], kwargs: Mapping[str, Any]) -> Any:
    """Calls what makes an environment, and wraps and seeds the environment.

    A `seed` that `build` does not take seeds the environment after it is made. Anything
    that is no environment is returned unchanged.

    Raises:
        TypeError: `build` does not take an argument; the message suggests another.
    """
    taken = parameters_of(build)
    rest = dict(kwargs)
    options = {name: rest.pop(name) for name in own(_OPTIONS) if name in rest}
    # Loaders of libraries that need an option take it themselves.
    rest.update({name: options.pop(name) for name in taken if name in options})
    if "seed" not in rest or "seed" in taken:
        return as_environment(_called(build, rest, options, taken))
    seed = rest.pop("seed")
    made = _NOTHING
    if "**" in taken:
        # It may hand the seed on to a constructor that takes it.
        with contextlib.suppress(_SeedRefusedError):
            made = _called(build, {**rest, "seed": seed}, options, taken, passes=True)
    is_taken = made is not _NOTHING
    env = as_environment(made if is_taken else _called(build, rest, options, taken))
    if is_environment(env) and seed is not None:
        seed_or_close(env, seed, may_refuse=is_taken)
    return env


_NOTHING = object()


class _SeedRefusedError(TypeError):
    """What makes an environment takes no seed."""


def seed_or_close(env: Any, seed: Any, *, may_refuse: bool = False) -> None:
    """Seeds a new environment; closes it if that raises.

    Args:
        env: The environment.
        seed: The seed.
        may_refuse: Whether an environment that cannot be seeded is accepted, because
            its constructor had the seed.
    """
    try:
        env.seed(seed)
    except NotImplementedError:
        if not may_refuse:
            env.close()
            raise
    except BaseException:
        env.close()
        raise


def _called(
    build: Callable[..., Any],
    kwargs: Mapping[str, Any],
    options: Mapping[str, Any],
    taken: Mapping[str, Any],
    *,
    passes: bool = False,
) -> Any:
    make = functools.partial(build, **kwargs)
    for name, value in options.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, got {describe(value)}.")
        if value:
            make = functools.partial(loaded(own(_OPTIONS)[name]), make)
    try:
        return make()
    except TypeError as error:
        found = _REFUSED.search(str(error))
        name = "" if found is None else found[1]
        place = error.__traceback__
        if found is None and place is not None and place.tb_next is None:
            # It lacks an argument; which line calls it is nobody's concern.
            raise error.with_traceback(None) from None
        if found is None or name not in kwargs:
            raise
        if passes and name == "seed":
            raise _SeedRefusedError from None
        is_made = getattr(build, "func", None) is as_environment
        hint = _hint("as_environment" if is_made else "make", name, kwargs, taken)
        if not hint:
            raise
        # Gymnasium and newer versions of Python add to the sentence.
        raise TypeError(f"{error!s:.{found.end()}}. {hint}") from None


def _hint(
    function: str, name: str, kwargs: Mapping[str, Any], taken: Mapping[str, Any]
) -> str:
    """Returns what to write instead of an argument that was refused, or ""."""
    pools = pool_options()
    if name in pools:
        alone = ": pass num_envs as well, and there is one"
        batch = ", and this library makes its rows itself"
        return (
            f"{name} is an option of pools{batch if 'num_envs' in kwargs else alone}."
        )
    instead: str = advice("arguments")(function, name, (), kwargs)
    if instead:
        return instead
    near = nearest(name, ["num_envs", "seed", *own(_OPTIONS), *pools, *taken], most=1)
    if not near:
        # If it takes this one too, the error is about a call inside.
        knows_all = bool(taken) and "**" not in taken and name not in taken
        return f"It takes {listed(taken)}." if knows_all else ""
    kind = ", which makes a pool" if near[0] == "num_envs" else ""
    return (
        f"Did you mean {near[0]}{', an option of pools' if near[0] in pools else kind}?"
    )


def parameters_of(build: Callable[..., Any]) -> dict[str, Any]:
    """Returns the parameters that may be given by name; `"**"` stands for any others.

    Example:
        >>> list(parameters_of(lambda size, **rest: None))
        ['size', '**']
    """
    try:
        found = inspect.signature(build).parameters.values()
    except (TypeError, ValueError):  # it has none that Python knows
        return {"**": None}
    names = {
        each.name: each
        for each in found
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }
    has_any = any(each.kind is each.VAR_KEYWORD for each in found)
    return {**names, **({"**": None} if has_any else {})}


def pool_options() -> list[str]:
    """Returns the names of the options of a `ParallelPyEnvironment`."""
    _, *known = parameters_of(loaded(_POOL))
    return known
