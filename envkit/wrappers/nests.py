"""Copies of nests, for wrappers to hand out."""

from __future__ import annotations

from typing import Any

from envkit import nest

__all__ = ["fresh_nest"]


def fresh_nest(value: Any) -> Any:
    """Packs the leaves of a nest, mostly specs, into new containers.

    Example:
        >>> given = {"a": (1, 2)}
        >>> fresh = fresh_nest(given)
        >>> fresh == given, fresh is given
        (True, False)
    """
    return nest.map_structure(lambda leaf: leaf, value)
