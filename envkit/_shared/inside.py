"""Finds the environments inside wrappers, adapters and batches: `inside`."""

from __future__ import annotations

from typing import Any

from envkit.extend import Internals

__all__ = ["inside"]

# Where adapters, and the wrappers of Gymnasium, Stable-Baselines3 and PettingZoo, have
# the inner environment.
_PLACES = ("wrapped_env", "pyenv", "environment", "venv", "env")


def inside(env: Any) -> list[Any]:
    """Returns the environments directly inside another one, of any library.

    Example:
        >>> from envkit.testing import CountingEnv
        >>> from envkit.wrappers import TimeLimit
        >>> env = CountingEnv()
        >>> inside(TimeLimit(env, 5)) == [env], inside(env)
        (True, [])
    """
    if isinstance(getattr(type(env), "_envkit", None), Internals):
        found: list[Any] = env._envkit.inside(env)
        return found
    for name in _PLACES:
        inner = getattr(env, name, None)
        if inner is not None:
            return [inner() if name == "wrapped_env" else inner]
    return []
