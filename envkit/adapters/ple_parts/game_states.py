"""What a game of PLE shows of its state, as arrays of fixed shapes.

| in the state           | in the observation                                          |
|------------------------|-------------------------------------------------------------|
| a number of any type   | an array without dimensions, of one dtype for all           |
| a tuple of numbers     | an array                                                    |
| an array               | an array of the same dtype                                  |
| a list, of any length  | `{"length": n, "values": array}`, padded with zeros         |
| a dictionary           | a dictionary, with its keys in alphabetical order           |

What is an integer in one frame is a float in the next in most games, hence one dtype.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from envkit.adapters.spaces.values import Leaf, array_leaf
from envkit.errors import SpecError
from envkit.specs.array_spec import ArraySpec, BoundedArraySpec
from envkit.specs.validation import describe
from envkit.types import Array, NestedSpec

__all__ = ["MaxLengths", "StateReader", "explained", "state_reader"]

MaxLengths: TypeAlias = Mapping[str, "int | tuple[int, ...] | None"]

# How many elements there is room for where nobody says, unless there are many already.
_ROOM = 100
_TIMES = 4


@dataclasses.dataclass(frozen=True, slots=True)
class StateReader:
    """The specs of a state, and a nest of functions that read one."""

    spec: NestedSpec
    leaves: Any


def state_reader(
    state: Any, *, name: str, dtype: Any, max_lengths: MaxLengths
) -> StateReader:
    """Looks at the first state of a game, and returns what reads all of them.

    Args:
        state: What `getGameState` returned.
        name: What to call the game in errors.
        dtype: What numbers are made of.
        max_lengths: How many elements lists have at most: by the key in the state, or
            by a path such as `"creep_pos/GOOD"`. A tuple is the whole shape, and
            `None` says that a list always has the same length.
    """
    makers = _Makers(name, np.dtype(dtype), max_lengths)
    reader = makers.make(state, (), None)
    makers.check_all_used()
    return reader


def explained(error: SpecError) -> SpecError:
    """Adds to an error what to do, unless it says so itself."""
    if not error.reason:
        return error
    longer = SpecError(
        f"{error}\n\nThe specs are those of the first state of the game. Where later "
        "ones differ, give PLE a state_preprocessor, which makes an array of the state."
    )
    longer.path, longer.reason = error.path, error.reason
    return longer


class _Makers:
    """Makes readers of the parts of a state."""

    def __init__(self, name: str, dtype: Any, max_lengths: MaxLengths) -> None:
        self._name = name
        self._dtype = dtype
        self._max_lengths = dict(max_lengths)
        self._unused = set(max_lengths)
        self._lists: list[str] = []
        for path, length in self._max_lengths.items():
            _check_length(path, length)

    def make(
        self, value: Any, path: tuple[Any, ...], element: tuple[int, ...] | None
    ) -> StateReader:
        if isinstance(value, Mapping):
            return self._dict(value, path)
        if isinstance(value, list):
            return self._list(value, path, element)
        leaf_name = _text(path) or "state"
        array = _as_numbers(value, self._name, _text(path))
        if isinstance(value, np.ndarray):
            spec = ArraySpec(array.shape, array.dtype, leaf_name)
        else:
            spec = ArraySpec(array.shape, self._dtype, leaf_name)
        return StateReader(spec, array_leaf(spec))

    def _dict(self, value: Mapping[Any, Any], path: tuple[Any, ...]) -> StateReader:
        keys = sorted(value, key=str)
        # Lists side by side are of one kind, as the creeps of WaterWorld are: one that
        # is empty at first takes its elements' shape from another.
        elements = {
            _as_numbers(child, self._name, _text((*path, key))).shape[1:]
            for key, child in value.items()
            if isinstance(child, list) and child
        }
        alike = elements.pop() if len(elements) == 1 and path else None
        parts = {key: self.make(value[key], (*path, key), alike) for key in keys}
        return StateReader(
            {key: part.spec for key, part in parts.items()},
            {key: part.leaves for key, part in parts.items()},
        )

    def _list(
        self, value: list[Any], path: tuple[Any, ...], alike: tuple[int, ...] | None
    ) -> StateReader:
        place = _text(path)
        self._lists.append(place)
        array = _as_numbers(value, self._name, place)
        element = array.shape[1:] if value else alike or ()
        said = self._said(path)
        if said is None:
            spec = ArraySpec(array.shape, self._dtype, place or "state")
            return StateReader(spec, array_leaf(spec))
        if isinstance(said, tuple):
            room, *rest = said
            element = tuple(rest)
        else:
            room = said or max(_ROOM, _TIMES * len(value))
        values = ArraySpec((room, *element), self._dtype, f"{place}/values")
        length = BoundedArraySpec((), np.int64, 0, room, f"{place}/length")
        return StateReader(
            {"length": length, "values": values},
            _padding_leaf(self._name, place, values),
        )

    def _said(self, path: tuple[Any, ...]) -> int | tuple[int, ...] | None:
        """Returns what `max_lengths` says of a list; 0 if it says nothing."""
        for place in _places(path):
            if place in self._max_lengths:
                self._unused.discard(place)
                return self._max_lengths[place]
        return 0

    def check_all_used(self) -> None:
        for path in sorted(self._unused):
            lists = ", ".join(map(repr, self._lists)) or "none"
            raise ValueError(
                f"max_lengths has {path!r}, and there is no list of that name in the "
                f"state of {self._name}. Its lists are: {lists}."
            )


def _padding_leaf(name: str, place: str, spec: ArraySpec) -> Leaf:
    room, *rest = spec.shape
    element = tuple(rest)
    dtype = spec.dtype

    def convert(value: Any) -> dict[str, Any]:
        # Hot: called once per list and step.
        if not isinstance(value, list | tuple | np.ndarray):
            raise SpecError
        count = len(value)
        if count > room:
            bigger = (2 * count, *element) if element else 2 * count
            raise SpecError(
                f"{name} has a state with {count} elements at {place!r}, and there is "
                f"room for {room}. Make room with "
                f"max_lengths={{{place!r}: {bigger}}}."
            )
        values = np.zeros(spec.shape, dtype)
        if count:
            values[:count] = _elements(value, count)
        return {"length": np.array(count, np.int64), "values": values}

    def _elements(value: Any, count: int) -> Array:
        array = _as_numbers(value, name, place)
        if array.shape != (count, *element):
            shape = array.shape[1:]
            raise SpecError(
                f"{name} has a state with elements of shape {shape} at {place!r}, and "
                f"its first state said {element}. Say it with "
                f"max_lengths={{{place!r}: {(room, *shape)}}}, or give PLE a "
                "state_preprocessor."
            )
        return array

    return convert


def _as_numbers(value: Any, name: str, place: str) -> Array:
    try:
        array = np.asarray(value)
    except ValueError:  # Rows that differ in length.
        array = np.empty((), object)
    if array.dtype.kind not in "biuf":
        where = f" at {place!r}" if place else ""
        raise SpecError(
            f"{name} has a state with {describe(value)}{where}, which is not made of "
            "numbers. Give PLE a state_preprocessor, which makes an array of the "
            'state, or observe the "screen".'
        )
    return array


def _text(path: tuple[Any, ...]) -> str:
    return "/".join(map(str, path))


def _places(path: tuple[Any, ...]) -> Iterator[str]:
    """Yields the names that a list goes by, its own first."""
    for end in range(len(path), 0, -1):
        yield _text(path[:end])


def _check_length(path: str, length: Any) -> None:
    sizes = length if isinstance(length, tuple) else (length,)
    if length is not None and not all(
        isinstance(size, numbers.Integral) and int(size) > 0 for size in sizes or (0,)
    ):
        raise ValueError(
            f"max_lengths[{path!r}] is {length!r}; it is a number of elements, a "
            "shape, or None for a list that always has the same length."
        )
