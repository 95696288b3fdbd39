"""Lists of varying length as arrays of a fixed one, with the number that counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit import nest
from envkit.adapters.spaces.values import Converter, Leaf, array_leaf, map_specs
from envkit.errors import SpecError
from envkit.specs.validation import describe
from envkit.types import NestedSpec

__all__ = ["padded_leaf"]


def padded_leaf(
    element_spec: NestedSpec, leaves: Any, most: int, name: str, path: str
) -> Leaf:
    """Returns a function that makes `{"length": ..., "values": ...}` of a list.

    Args:
        element_spec: The specs of an element.
        leaves: What converts an element; `None` for what its specs say.
        most: How many elements there are at most.
        name: Whose lists they are, for messages.
        path: Where in an observation they are.

    Example:
        >>> from envkit.specs import ArraySpec
        >>> pad = padded_leaf(ArraySpec((), np.int64), None, 3, "Game", "observation")
        >>> pad([7, 8])
        {'length': array(2), 'values': array([7, 8, 0])}
    """
    if leaves is None:
        leaves = map_specs(array_leaf, element_spec)
    convert = Converter(
        element_spec,
        leaves,
        subject=f"{name} returned an element of a list that",
        root=path,
        path=f"{path}[...]",
    )

    def empty(spec: Any) -> Any:
        return np.zeros((most, *spec.shape), spec.dtype)

    def pad(value: Any) -> dict[str, Any]:
        if not hasattr(value, "__len__") or isinstance(value, str):
            raise SpecError(
                f"{name} returned {describe(value)} at {path}, where it returned a "
                "list before."
            )
        if len(value) > most:
            raise SpecError(
                f"{name} returned a list of {len(value)} elements at {path}; "
                f"max_lengths says that there are at most {most}."
            )
        rows = map_specs(empty, element_spec)
        arrays = nest.flatten(rows)
        for index, element in enumerate(value):
            for array, part in zip(arrays, nest.flatten(convert(element)), strict=True):
                array[index] = part
        return {"length": np.array(len(value), np.int64), "values": rows}

    return pad
