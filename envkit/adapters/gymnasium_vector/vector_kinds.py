"""What kind a vector environment of Gymnasium is, and in which order it resets rows."""

from __future__ import annotations

from typing import Any

from envkit.adapters.gymnasium_vector.autoreset_modes import as_order
from envkit.autoreset import AutoReset
from envkit.specs.validation import describe
from envkit.types import Array

__all__ = ["check_vector_env", "finish_resets", "kind_of_vector_env", "order_of"]

_KINDS = ("SyncVectorEnv", "AsyncVectorEnv")


_NEEDED = ("reset", "step", "num_envs", "single_observation_space", "action_space")


def check_vector_env(env: Any, adapter: str) -> None:
    """Refuses what is not a vector environment."""
    if not isinstance(env, type) and all(hasattr(env, name) for name in _NEEDED):
        return
    what = f"the class {env.__name__}" if isinstance(env, type) else describe(env)
    is_single = not isinstance(env, type) and hasattr(env, "observation_space")
    hint = (
        "GymnasiumWrapper takes a single environment."
        if is_single
        else "gymnasium.make_vec(...) makes one."
    )
    raise TypeError(
        f"{adapter} was given {what}, which is not a vector environment of Gymnasium. "
        f"{hint}"
    )


def kind_of_vector_env(vector_env: Any) -> str:
    """Names the class of Gymnasium's that a vector environment within is, or "".

    Those two have an environment for each row, which can be seeded by itself; others
    are known by what all vector environments have.
    """
    for base in type(vector_env.unwrapped).__mro__:
        if base.__name__ in _KINDS and base.__module__.startswith("gymnasium."):
            return base.__name__
    return ""


def order_of(vector_env: Any, given: Any = None) -> AutoReset:
    """Returns the order of a vector environment.

    Its metadata says so since Gymnasium 1.1. Those of 1.0 reset with the next step, and
    those before 1.0 with the same.

    Args:
        vector_env: The vector environment.
        given: The `AutoresetMode` that overrules its metadata, or the value of one.
    """
    metadata = getattr(vector_env, "metadata", None) or {}
    mode = metadata.get("autoreset_mode") if given is None else given
    if mode is not None:
        return as_order(mode)
    old = _is_before_1_0(vector_env)
    return AutoReset.SAME_STEP if old else AutoReset.NEXT_STEP


def _is_before_1_0(vector_env: Any) -> bool:
    # There a vector environment is an environment, too, or one of `experimental`.
    return any(
        (kind.__module__, kind.__name__) == ("gymnasium.core", "Env")
        or kind.__module__.startswith("gymnasium.experimental")
        for kind in type(vector_env).__mro__
    )


def finish_resets(vector_env: Any, rows: Array) -> None:
    """Has these rows of an `AsyncVectorEnv` reset, which are to do so with a step.

    Without shared memory its processes do not notice a `reset` in between, and reset
    once more with the step after it.
    """
    env = vector_env.unwrapped
    if kind_of_vector_env(env) != "AsyncVectorEnv" or env.shared_memory:
        return
    if getattr(env, "worker", None) is not None:
        return  # Processes that are somebody else's may do otherwise.
    pipes = [env.parent_pipes[row] for row in rows.tolist()]
    for pipe in pipes:
        pipe.send(("step", None))
    for pipe in pipes:
        pipe.recv()
