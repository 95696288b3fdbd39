"""Environments of gymnax by name."""

from __future__ import annotations

import ast
import functools
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envkit.adapters.dependencies import require
from envkit.adapters.gymnax_wrapper import GymnaxWrapper
from envkit.py_environment import PyEnvironment
from envkit.targets import suggestion
from envkit.types import Seed

__all__ = ["load", "names"]

# What these show leaves the bounds of their observation_space: by a rounding error, the
# last by a whole.
_BEYOND_BOUNDS = frozenset(
    ["MemoryChain-bsuite", "UmbrellaChain-bsuite", "GaussianBandit-misc"]
)


def load(
    environment_name: str,
    batch_size: int | None = None,
    *,
    params: Any = None,
    seed: Seed = None,
    discount: float = 1.0,
    reward_dtype: Any = np.float32,
    env_wrappers: Sequence[Callable[[PyEnvironment], PyEnvironment]] = (),
    **kwargs: Any,
) -> PyEnvironment:
    """Makes an environment of gymnax by its id, as an envkit environment.

    `envkit.make("gymnax:CartPole-v1", batch_size=64)` calls this. What was compiled for
    an id serves all environments that are made of it in this process.

    Args:
        environment_name: The id.
        batch_size: How many rows; `None` for a single environment.
        params: Parameters; a dictionary for those that differ from the default.
        seed: What is random depends on it, as if given to `seed()`.
        discount: What later rewards are worth.
        reward_dtype: What rewards become.
        env_wrappers: What to wrap the environment in, innermost first.
        **kwargs: What gymnax passes on to the environment.

    Raises:
        ValueError: gymnax has no such environment.

    Example:
        >>> env = load("CartPole-v1", 64, params={"max_steps_in_episode": 200})
        ... # doctest: +SKIP
        >>> env.reset().observation.shape  # doctest: +SKIP
        (64, 4)
    """
    _require(f"The environment {environment_name!r}")
    env: PyEnvironment = GymnaxWrapper(
        _made(environment_name, tuple(sorted(kwargs.items()))),
        params,
        batch_size=batch_size,
        seed=seed,
        discount=discount,
        reward_dtype=reward_dtype,
        observation_bounds=environment_name not in _BEYOND_BOUNDS,
    )
    for wrap in env_wrappers:
        env = wrap(env)
    return env


def names() -> list[str]:
    """Lists the ids of all environments of gymnax.

    Example:
        >>> "CartPole-v1" in names()  # doctest: +SKIP
        True
    """
    _require("suite_gymnax")
    # Importing gymnax imports JAX, SciPy and more: seconds, for a list of names.
    known = [] if "gymnax" in sys.modules else _ids_in_source()
    if not known:
        import gymnax

        known = gymnax.registered_envs
    return sorted(known)


def _ids_in_source() -> list[str]:
    """Reads the list of ids in the module that registers them; empty if not found."""
    spec = importlib.util.find_spec("gymnax")
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder, "registration.py")
        if not file.is_file():
            continue
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.List):
                ids = [getattr(element, "value", None) for element in node.elts]
                if "CartPole-v1" in ids:
                    return [name for name in ids if isinstance(name, str)]
    return []


def _require(needed_by: str) -> None:
    # gymnax imports six and does not ask for it.
    for package in ("gymnax", "jax", "six"):
        require(package, needed_by=needed_by, extra="gymnax")


def _made(name: str, kwargs: tuple[tuple[str, Any], ...]) -> Any:
    try:
        hash(kwargs)
    except TypeError:  # An array, for example: then it is made anew.
        return _make(name, kwargs)
    return _shared(name, kwargs)


def _make(name: str, kwargs: tuple[tuple[str, Any], ...]) -> Any:
    import gymnax

    if name not in gymnax.registered_envs:
        known = sorted(gymnax.registered_envs)
        raise ValueError(
            f"gymnax has no environment {name!r}.{suggestion(name, known)} It has "
            f"{', '.join(known)}."
        )
    try:
        env, _ = gymnax.make(name, **dict(kwargs))
    except TypeError as error:
        if not kwargs:
            raise
        names = ", ".join(key for key, _ in kwargs)
        raise TypeError(
            f"gymnax does not make {name!r} with {names}: {error}. What it calls "
            "parameters goes into params={...}."
        ) from error
    return env


# They have no state: one is enough for all, and what JAX compiled for it stays.
_shared = functools.lru_cache(maxsize=32)(_make)
