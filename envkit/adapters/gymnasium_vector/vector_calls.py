"""Attributes and methods of the environments in a vector environment of Gymnasium.

Those of a `SyncVectorEnv` are at hand. The processes of an `AsyncVectorEnv` are asked
all together. Any other is one object, which answers for all of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envkit.adapters.gymnasium_vector.vector_kinds import kind_of_vector_env

__all__ = ["access_envs", "call_envs"]

# Whoever keeps the time steps has to know of these.
_MOVES = frozenset(["reset", "step", "close"])


def call_envs(
    vector_env: Any,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    env_ids: Sequence[int] | None,
) -> list[Any]:
    """Calls a method of environments; an attribute that is no method is returned."""
    if name in _MOVES:
        raise ValueError(
            f"call({name!r}) would move environments behind the wrapper's back. Use "
            f"{name}() itself."
        )
    _check_public(name)
    env, ids = vector_env.unwrapped, _as_ids(vector_env, env_ids)
    kind = kind_of_vector_env(env)
    if kind == "SyncVectorEnv":
        found = [_attribute(env.envs[row], name) for row in ids]
        return [one(*args, **kwargs) if callable(one) else one for one in found]
    if ids != list(range(vector_env.num_envs)):
        raise ValueError(
            f"call() was given env_ids, and {type(env).__name__} can only be asked as "
            "a whole: leave them out."
        )
    if kind == "AsyncVectorEnv":
        return list(env.call(name, *args, **kwargs))
    answer = getattr(env, name)
    return [answer(*args, **kwargs) if callable(answer) else answer] * len(ids)


def access_envs(vector_env: Any, name: str, env_ids: Sequence[int] | None) -> list[Any]:
    """Returns an attribute of environments."""
    _check_public(name)
    env, ids = vector_env.unwrapped, _as_ids(vector_env, env_ids)
    kind = kind_of_vector_env(env)
    if kind == "SyncVectorEnv":
        return [_attribute(env.envs[row], name) for row in ids]
    if kind == "AsyncVectorEnv":
        values = env.get_attr(name)
        return [values[row] for row in ids]
    return [getattr(env, name)] * len(ids)


def _check_public(name: str) -> None:
    if name.startswith("_"):
        raise AttributeError(
            f"{name!r} is private to the environment; only public names are forwarded."
        )


def _as_ids(vector_env: Any, env_ids: Sequence[int] | None) -> list[int]:
    rows = int(vector_env.num_envs)
    ids = list(range(rows) if env_ids is None else env_ids)
    wrong = [env for env in ids if not 0 <= env < rows]
    if wrong:
        raise ValueError(
            f"env_ids has {wrong[0]}; there are {rows} environments, 0 to {rows - 1}."
        )
    return ids


def _attribute(env: Any, name: str) -> Any:
    # Before 0.29 wrappers forward by themselves.
    getter = getattr(env, "get_wrapper_attr", None)
    return getattr(env, name) if getter is None else getter(name)
