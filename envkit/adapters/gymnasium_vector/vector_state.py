"""The state of a vector environment of Gymnasium as a token.

One that steps its environments itself, as `SyncVectorEnv` does, is saved with all of
them; one that is a single object, as those with an entry point of their own are, like a
single environment. What processes of Gymnasium's hold cannot be reached.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from envkit.adapters.gymnasium_vector.vector_kinds import kind_of_vector_env
from envkit.adapters.snapshot import (
    Snapshot,
    layers_of,
    restore_snapshot,
    take_snapshot,
)

__all__ = ["restore_vector_state", "take_vector_state"]


class _VectorState(NamedTuple):
    """The state of a vector environment that has its environments in a list.

    Attributes:
        content: What its wrappers and it hold, with what was to be saved beside that.
        rows: The states of the environments.
    """

    content: Snapshot
    rows: tuple[Snapshot, ...]


def take_vector_state(vector_env: Any, name: str, beside: Any) -> Any:
    """Saves the state of a vector environment.

    Args:
        vector_env: The vector environment, with or without wrappers.
        name: What to call it in an error.
        beside: Something that is to be saved with it.

    Raises:
        NotImplementedError: It is in other processes, or holds what does not pickle.
    """
    kind = kind_of_vector_env(vector_env)
    if kind == "AsyncVectorEnv":
        raise NotImplementedError(
            f"{name} cannot save its state: its environments are in processes of "
            "Gymnasium's. Those of a SyncVectorEnv can be saved, and those of envkit's "
            "ParallelPyEnvironment."
        )
    if kind != "SyncVectorEnv":
        return take_snapshot(vector_env, name, beside)
    content = take_snapshot(
        vector_env,
        name,
        beside,
        layers=layers_of(vector_env),
        kept=_kept(vector_env),
    )
    rows = tuple(
        take_snapshot(env, f"env {row} of {name}")
        for row, env in enumerate(vector_env.unwrapped.envs)
    )
    return _VectorState(content, rows)


def restore_vector_state(vector_env: Any, name: str, state: Any) -> Any:
    """Brings back a state, and returns what was saved beside it.

    Raises:
        ValueError: The state is one of another kind of environment.
    """
    if isinstance(state, Snapshot):
        return restore_snapshot(vector_env, name, state)
    layers = layers_of(vector_env)
    envs = getattr(vector_env.unwrapped, "envs", ())
    expected = _names_of(layers), len(envs)
    got = state.content.layers, len(state.rows)
    if expected != got:
        raise ValueError(
            f"{name} was given the state of another vector environment.\n\n"
            f"  expected   {_text(*expected)}\n"
            f"  got        {_text(*got)}\n\n"
            "A state fits the same environments in the same wrappers."
        )
    for row, (env, snapshot) in enumerate(zip(envs, state.rows, strict=True)):
        restore_snapshot(env, f"env {row} of {name}", snapshot)
    return restore_snapshot(
        vector_env, name, state.content, layers=layers, kept=_kept(vector_env)
    )


def _kept(vector_env: Any) -> list[Any]:
    """Lists what stays as it is.

    The environments have snapshots of their own, and what makes them does not change.
    """
    unwrapped = vector_env.unwrapped
    return [*unwrapped.envs, *getattr(unwrapped, "env_fns", ())]


def _names_of(layers: list[Any]) -> tuple[str, ...]:
    return tuple(type(layer).__qualname__ for layer in layers)


def _text(names: tuple[str, ...], rows: int) -> str:
    return f"{' in '.join(reversed(names))}, {rows} rows"
