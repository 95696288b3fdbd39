"""Gymnasium's vector environments: their kinds, reset orders and states.

| kind             | its environments are          | its state                    |
|------------------|-------------------------------|------------------------------|
| `SyncVectorEnv`  | objects in a list             | each one's, and its own      |
| `AsyncVectorEnv` | in Gymnasium's processes      | cannot be saved              |
| any other        | one object                    | a single environment's       |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from envkit.adapters.gymnasium.spaces import kind_of_space
from envkit.adapters.state import (
    Snapshot,
    layers_of,
    restore_snapshot,
    take_snapshot,
)
from envkit.errors import SpecError
from envkit.extend import describe
from envkit.time_step import AutoReset
from envkit.types import Array

__all__ = [
    "as_order",
    "check_shared_memory",
    "finish_resets",
    "kind_of_vector_env",
    "order_of",
    "restore_vector_state",
    "take_vector_state",
]

# An AsyncVectorEnv reads these from shared memory only once, when it is made.
_READ_ONCE = frozenset(["OneOf", "Text"])


def kind_of_vector_env(vector_env: Any) -> str:
    """Returns the name of one of Gymnasium's two classes, or "" for any other.

    These two have an environment with its own seed for each row.
    """
    for base in type(vector_env.unwrapped).__mro__:
        if base.__name__ in (
            "SyncVectorEnv",
            "AsyncVectorEnv",
        ) and base.__module__.startswith("gymnasium."):
            return base.__name__
    return ""


def as_order(mode: Any) -> AutoReset:
    """Returns envkit's name for one of Gymnasium's modes.

    Example:
        >>> as_order("SameStep")
        <AutoReset.SAME_STEP: 'same_step'>
    """
    value = getattr(mode, "value", mode)
    for order in AutoReset:
        # Gymnasium writes "NextStep" for "next_step".
        if isinstance(value, str) and _letters(value) == _letters(order.value):
            return order
    raise ValueError(
        "autoreset_mode must be 'NextStep', 'SameStep' or 'Disabled', or the "
        f"AutoresetMode of that name, got {describe(mode)}."
    )


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


def order_of(vector_env: Any, given: Any = None) -> AutoReset:
    """Returns the reset order of a vector environment.

    Since Gymnasium 1.1 its metadata has it. In 1.0, it resets in the next step.

    Args:
        vector_env: The vector environment.
        given: The `AutoresetMode`, or its value, that overrides its metadata.
    """
    metadata = getattr(vector_env, "metadata", None) or {}
    mode = metadata.get("autoreset_mode") if given is None else given
    if mode is not None:
        return as_order(mode)
    return AutoReset.NEXT_STEP


def finish_resets(vector_env: Any, rows: Array) -> None:
    """Resets rows of an `AsyncVectorEnv` that would reset in the next step.

    Without shared memory, its processes do not notice a `reset` in between, and would
    reset again in the following step.
    """
    env = vector_env.unwrapped
    if kind_of_vector_env(env) != "AsyncVectorEnv" or env.shared_memory:
        return
    if getattr(env, "worker", None) is not None:
        return  # a custom worker may behave differently
    pipes = [env.parent_pipes[row] for row in rows.tolist()]
    for pipe in pipes:
        pipe.send(("step", None))
    for pipe in pipes:
        pipe.recv()


class _VectorState(NamedTuple):
    """Holds the state of a vector environment with a list of environments.

    Attributes:
        content: The content of its wrappers and itself, and the object saved beside it.
        rows: The states of the environments.
    """

    content: Snapshot
    rows: tuple[Snapshot, ...]


def take_vector_state(vector_env: Any, name: str, beside: Any) -> Any:
    """Saves the state of a vector environment.

    One that steps a list of environments, such as `SyncVectorEnv`, is saved with all of
    them; one that is a single object is saved like a single environment.

    Args:
        vector_env: The vector environment, with or without wrappers.
        name: Its name in errors.
        beside: An object to save with it.

    Raises:
        NotImplementedError: It is in other processes, or holds something unpicklable.
    """
    kind = kind_of_vector_env(vector_env)
    if kind == "AsyncVectorEnv":
        raise NotImplementedError(
            f"{name} cannot save its state: its environments are in Gymnasium's "
            "processes. A SyncVectorEnv can save its environments, and so can "
            "envkit's ParallelPyEnvironment."
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
    """Restores a state, and returns the object that was saved beside it.

    Raises:
        ValueError: The state belongs to another kind of environment.
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
    """Returns the objects that a snapshot leaves out.

    The environments have their own snapshots, and their makers do not change.
    """
    unwrapped = vector_env.unwrapped
    return [*unwrapped.envs, *getattr(unwrapped, "env_fns", ())]


def _names_of(layers: list[Any]) -> tuple[str, ...]:
    return tuple(type(layer).__qualname__ for layer in layers)


def _text(names: tuple[str, ...], rows: int) -> str:
    return f"{' in '.join(reversed(names))}, {rows} rows"


def check_shared_memory(vector_env: Any, name: str) -> None:
    """Raises for observations that an `AsyncVectorEnv` would never update.

    Raises:
        SpecError: The observation has some.
    """
    if kind_of_vector_env(vector_env) != "AsyncVectorEnv":
        return
    if not getattr(vector_env.unwrapped, "shared_memory", False):
        return
    for path, space in _leaves(vector_env.unwrapped.single_observation_space):
        if kind_of_space(space) in _READ_ONCE:
            error = SpecError(
                f"{name} has {space!r:.120} at observation{path}, which an "
                "AsyncVectorEnv with shared memory never updates after it was made. "
                "Make it with shared_memory=False."
            )
            error.path = f"observation{path}"
            raise error


def _leaves(space: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if kind_of_space(space) not in ("Dict", "Tuple"):
        yield path, space
        return
    children = space.spaces
    for key, child in (
        children.items() if hasattr(children, "items") else enumerate(children)
    ):
        yield from _leaves(child, f"{path}[{key!r}]")
