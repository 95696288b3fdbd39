"""The spaces of a vector environment of Gymnasium: one spec for all of its rows."""

from __future__ import annotations

from typing import Any

from envkit.adapters.gymnasium_vector.vector_kinds import kind_of_vector_env
from envkit.adapters.spaces.one_of import OneOf
from envkit.adapters.spaces.space_kinds import kind_of_space
from envkit.errors import SpecError
from envkit.specs.array_spec import BoundedArraySpec
from envkit.types import Array, NestedSpec

__all__ = ["check_shared_memory", "spec_of_all_rows"]

# What Gymnasium reads from the shared memory only once, when the environment is made.
_READ_ONCE = frozenset(["OneOf", "Text"])


def check_shared_memory(vector_env: Any, name: str) -> None:
    """Refuses observations that an `AsyncVectorEnv` would never change.

    Raises:
        SpecError: There are some.
    """
    if kind_of_vector_env(vector_env) != "AsyncVectorEnv":
        return
    if not getattr(vector_env.unwrapped, "shared_memory", False):
        return
    for path, space in _leaves(vector_env.unwrapped.single_observation_space):
        if kind_of_space(space) in _READ_ONCE:
            error = SpecError(
                f"{name} has {space!r:.120} at observation{path}, which an "
                "AsyncVectorEnv with shared memory shows as it was when it was made, "
                "and never as it is. Make it with shared_memory=False."
            )
            error.path = f"observation{path}"
            raise error


def _leaves(space: Any, path: str = "") -> list[tuple[str, Any]]:
    kind = kind_of_space(space)
    if kind == "Dict":
        children = [(f"[{key!r}]", child) for key, child in space.spaces.items()]
    elif kind == "Tuple":
        children = [(f"[{index}]", child) for index, child in enumerate(space.spaces)]
    else:
        return [(path, space)]
    return [
        leaf for place, child in children for leaf in _leaves(child, f"{path}{place}")
    ]


def spec_of_all_rows(spec: NestedSpec, batch_space: Any) -> NestedSpec:
    """Widens the bounds of one row's spec to those of all rows, where they differ.

    Args:
        spec: The specs of the first row.
        batch_space: The space of the whole batch.

    Example:
        >>> import numpy as np
        >>> from gymnasium import spaces
        >>> spec = BoundedArraySpec((), np.float32, 0.0, 1.0)
        >>> both = spaces.Box(np.float32([0, -5]), np.float32([1, 2]))
        >>> spec_of_all_rows(spec, both)
        BoundedArraySpec(shape=(), dtype=float32, minimum=-5.0, maximum=2.0)
    """
    if isinstance(spec, dict):
        return {
            key: spec_of_all_rows(child, batch_space.spaces[key])
            for key, child in spec.items()
        }
    if isinstance(spec, tuple) and not isinstance(spec, OneOf):
        pairs = zip(spec, batch_space.spaces, strict=True)
        return tuple(spec_of_all_rows(*pair) for pair in pairs)
    bounds = _bounds_of_rows(batch_space)
    if not isinstance(spec, BoundedArraySpec) or bounds is None:
        return spec
    low, high = bounds
    if low.shape[1:] != spec.shape:
        return spec
    wide = spec.replace(
        minimum=_simplified(low.min(axis=0), spec.minimum),
        maximum=_simplified(high.max(axis=0), spec.maximum),
    )
    return spec if wide == spec else wide


def _bounds_of_rows(space: Any) -> tuple[Array, Array] | None:
    kind = kind_of_space(space)
    if kind == "Box":
        return space.low, space.high
    if kind == "MultiDiscrete":
        return space.start, space.start + (space.nvec - 1)
    return None


def _simplified(bound: Array, like: Array) -> Any:
    """Makes a single number of a bound where it was one and can still be one."""
    if like.ndim == 0 and (bound == bound.flat[0]).all():
        return bound.flat[0]
    return bound
