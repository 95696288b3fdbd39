"""Nests that wrappers are given, and copies for them to hand out."""

from __future__ import annotations

from typing import Any

from envkit import nest
from envkit.extend import describe
from envkit.specs.arrays import ArraySpec
from envkit.types import NestedSpec

__all__ = ["fresh_nest", "given_specs"]


def fresh_nest(value: Any) -> Any:
    """Packs the leaves of a nest, mostly specs, into new containers.

    Example:
        >>> given = {"a": (1, 2)}
        >>> fresh = fresh_nest(given)
        >>> fresh == given, fresh is given
        (True, False)
    """
    return nest.map_structure(lambda leaf: leaf, value)


def given_specs(wrapper: str, argument: str, given: NestedSpec) -> NestedSpec:
    """Returns a copy of specs that a wrapper was given; raises if they are none.

    Example:
        >>> given_specs("TransformReward", "reward_spec", 3)
        Traceback (most recent call last):
        TypeError: TransformReward takes specs, and reward_spec is 3 of type int: use \
envkit.ArraySpec(shape, dtype).
    """
    for path, spec in nest.flatten_with_paths(given):
        if not isinstance(spec, ArraySpec):
            is_space = hasattr(spec, "contains") and hasattr(spec, "sample")
            maker = "envkit.ArraySpec(shape, dtype)"
            if is_space:
                maker = "envkit.adapters.spec_from_gym_space(space)"
            raise TypeError(
                f"{wrapper} takes specs, and {nest.join(argument, path)} is "
                f"{describe(spec)}: use {maker}."
            )
    # A copy, because the caller may change the given nest.
    return fresh_nest(given)
