"""`stacked_infos`: the infos of the rows of a batch as one nest of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from envkit import nest
from envkit.errors import SpecError
from envkit.types import Array

__all__ = ["stacked_infos"]

Info = TypeVar("Info")


def stacked_infos(infos: Sequence[Info]) -> Info | list[Info]:
    """Stacks infos of the same structure; returns a list of them where they are not.

    Nor are they stacked where one array cannot hold the values without changing them.

    Example:
        >>> stacked_infos([{"lives": 3}, {"lives": 2}])
        {'lives': array([3, 2])}
        >>> stacked_infos([{"lives": 3}, {}])
        [{'lives': 3}, {}]
    """
    try:
        return nest.map_structure(_stacked_alike, *infos)  # type: ignore[no-any-return]  # a nest like them
    except (SpecError, TypeError, ValueError):
        return list(infos)


def _stacked_alike(*column: Any) -> Array:
    """Stacks what one array can hold without changing it."""
    arrays = [np.asarray(value) for value in column]
    if len({array.dtype.kind for array in arrays}) > 1 or arrays[0].dtype.hasobject:
        raise ValueError("One array cannot hold values of several kinds.")
    return np.stack(arrays)
