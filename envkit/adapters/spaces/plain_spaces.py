"""`plain_spec`: the parts of a space that are arrays, and the others as they are.

Where both sides know Gymnasium, its members may travel as what they are: arrays in
shared memory, and everything else as objects. Nothing has to be converted then, and
what an environment returns is what its user gets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from envkit.adapters.spaces.space_kinds import kind_of_space
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec
from envkit.specs.object_spec import ObjectSpec
from envkit.specs.validation import describe
from envkit.types import Array, NestedArray, NestedSpec

__all__ = ["Places", "plain_spec"]

_ARRAYS = ("Box", "Discrete", "MultiBinary", "MultiDiscrete")


def plain_spec(space: Any) -> NestedSpec:
    """Returns the shapes and dtypes of a space's members, without bounds.

    Example:
        >>> from gymnasium import spaces
        >>> plain_spec(spaces.Tuple((spaces.Discrete(3), spaces.Text(4))))
        (ArraySpec(shape=(), dtype=int64), ObjectSpec(shape=(), dtype=object))
    """
    kind = kind_of_space(space)
    if kind == "Dict":
        return {key: plain_spec(child) for key, child in space.spaces.items()}
    if kind == "Tuple":
        return tuple(plain_spec(child) for child in space.spaces)
    if kind in _ARRAYS:
        return ArraySpec(space.shape, space.dtype)
    return ObjectSpec()


class Places:
    """Where the observations of some rows go.

    Example:
        >>> places = Places(ArraySpec((2,), np.float32), rows=3)
        >>> places.put(1, np.array([5.0, 6.0]))
        >>> places.copy().tolist()
        [[0.0, 0.0], [5.0, 6.0], [0.0, 0.0]]
    """

    def __init__(self, spec: NestedSpec, rows: int) -> None:
        """Makes places for what fits a plain spec."""
        self._arrays = _zeros(spec, rows)
        # What an observation is that is one array.
        is_array = isinstance(spec, ArraySpec) and not isinstance(spec, ObjectSpec)
        self._shape = spec.shape if is_array else None
        self._put = _putter(spec, self._arrays, "observation")

    def put(self, row: int, value: Any) -> None:
        """Puts a member into a row."""
        # Hot: called once per row and step.
        if type(value) is np.ndarray and value.shape == self._shape:
            self._arrays[row] = value
        else:
            self._put(row, value)

    def copy(self) -> NestedArray:
        """Returns the arrays of all rows, as they are now."""
        return _copied(self._arrays)


def _zeros(spec: NestedSpec, rows: int) -> Any:
    if isinstance(spec, dict):
        return {key: _zeros(child, rows) for key, child in spec.items()}
    if isinstance(spec, tuple):
        return tuple(_zeros(child, rows) for child in spec)
    if isinstance(spec, ObjectSpec):
        return np.full(rows, None, object)
    return np.zeros((rows, *spec.shape), spec.dtype)


def _copied(arrays: Any) -> Any:
    if isinstance(arrays, dict):
        return {key: _copied(child) for key, child in arrays.items()}
    if isinstance(arrays, tuple):
        return tuple(_copied(child) for child in arrays)
    return arrays.copy()


def _putter(spec: NestedSpec, arrays: Any, path: str) -> Callable[[int, Any], None]:
    if isinstance(spec, dict):
        parts = {
            key: _putter(child, arrays[key], f"{path}[{key!r}]")
            for key, child in spec.items()
        }

        def put_dict(row: int, value: Any) -> None:
            for key, put in parts.items():
                put(row, value[key])

        return put_dict
    if isinstance(spec, tuple):
        items = [
            _putter(child, arrays[index], f"{path}[{index}]")
            for index, child in enumerate(spec)
        ]

        def put_tuple(row: int, value: Any) -> None:
            for put, item in zip(items, value, strict=True):
                put(row, item)

        return put_tuple
    if isinstance(spec, ObjectSpec):
        return arrays.__setitem__  # type: ignore[no-any-return]  # an array's
    return _array_putter(spec, arrays, path)


def _array_putter(
    spec: ArraySpec, array: Array, path: str
) -> Callable[[int, Any], None]:
    shape = spec.shape

    def put(row: int, value: Any) -> None:
        # Nothing is broadcast into a row.
        if np.shape(value) != shape:
            raise SpecError.does_not_fit(
                "The observation",
                path=path,
                root="observation",
                expected=repr(spec),
                got=describe(value),
                reason="The shape is not that of the observation_space.",
            )
        array[row] = value

    return put
