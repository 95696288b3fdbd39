"""Infos of a batch, made into what a vector environment of Gymnasium returns.

There they are one dictionary of arrays, and beside the array `key` stands a mask `_key`
of the rows that have it. `vector_infos` is the other way.

Environments of envkit have them in one of two forms. `ColumnInfos` are a dictionary of
arrays with an element for each row, as a batch returns that was written as one; nothing
in them is looked at row by row. `DictInfos` are a dictionary for each row that has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from envkit import nest
from envkit.adapters.episode_ends import FLAGS, as_info, take_flags
from envkit.arrays import as_array
from envkit.errors import SpecError
from envkit.types import Array

__all__ = [
    "ColumnInfos",
    "DictInfos",
    "Flags",
    "Infos",
    "InfosOfSome",
    "RowInfos",
    "block_infos",
    "row_infos",
]

Infos = dict[str, Any]


class Flags(NamedTuple):
    """What infos say about how episodes ended.

    Attributes:
        given: The rows whose info says it.
        terminated: Where it says terminated.
        truncated: Where it says truncated.
    """

    given: Array
    terminated: Array
    truncated: Array


class RowInfos(Protocol):
    """The infos of the rows of a batch."""

    def take_flags(self) -> Flags | None:
        """Takes the two flags out, where there are both; `None` if nowhere."""

    def add_to(self, infos: Infos, rows: Array) -> Infos:
        """Adds the infos of the masked rows to a dictionary, and returns it."""


class ColumnInfos:
    """Infos that are arrays with an element for each row.

    Example:
        >>> infos = ColumnInfos({"steps": np.array([4, 9])}, rows=2)
        >>> infos.add_to({}, np.array([False, True]))
        {'steps': array([0, 9]), '_steps': array([False,  True])}
    """

    def __init__(self, columns: Mapping[str, Any], rows: int) -> None:
        """Takes infos; what is no array has an element for each row all the same."""
        self._columns = dict(columns)
        self._rows = rows

    def take_flags(self) -> Flags | None:
        """Takes the two flags out, if both are there."""
        pair = [self._columns.get(name) for name in FLAGS]
        if not all(
            isinstance(flag, np.ndarray)
            and flag.dtype == np.bool_
            and flag.shape == (self._rows,)
            for flag in pair
        ):
            return None
        for name in FLAGS:
            del self._columns[name]
        return Flags(np.ones(self._rows, bool), *pair)  # type: ignore[arg-type]  # arrays

    def add_to(self, infos: Infos, rows: Array) -> Infos:
        """Adds the infos of the masked rows to a dictionary, and returns it."""
        if rows.any():
            for key, column in self._columns.items():
                self._add(infos, key, column, rows)
        return infos

    def _add(self, infos: Infos, key: str, column: Any, rows: Array) -> None:
        before = infos.get(f"_{key}")
        if isinstance(column, Mapping):
            nested = infos.get(key, {})
            for name, child in column.items():
                self._add(nested, name, child, rows)
            infos[key] = nested
        else:
            values = self._as_array(column)
            if not rows.all():
                old = infos.get(key)
                place = (
                    _empty(self._rows, values.shape[1:], values.dtype)
                    if old is None
                    else old
                )
                place[rows] = values[rows]
                values = place
            infos[key] = values
        infos[f"_{key}"] = rows.copy() if before is None else before | rows

    def _as_array(self, column: Any) -> Array:
        """Returns an array with an element for each row."""
        if isinstance(column, np.ndarray) and column.dtype.kind in "biufc":
            # Some batches have one number for all.
            has_rows = column.shape[:1] == (self._rows,)
            return column if has_rows else np.repeat(column[None], self._rows, axis=0)
        # To Gymnasium, texts and lists are objects like any other.
        values = np.empty(self._rows, object)
        for row in range(self._rows):
            values[row] = _row_of(column, row)
        return values


class InfosOfSome:
    """Infos of which only those of some rows count.

    Example:
        >>> discounts = ColumnInfos({"discount": np.array([0.5, 1.0])}, rows=2)
        >>> discounts = InfosOfSome(discounts, np.array([True, False]))
        >>> discounts.add_to({}, np.ones(2, bool))
        {'discount': array([0.5, 0. ]), '_discount': array([ True, False])}
    """

    def __init__(self, infos: RowInfos, rows: Array) -> None:
        """Takes infos, and a mask of the rows that have them."""
        self._infos = infos
        self._rows = rows

    def take_flags(self) -> Flags | None:
        """Takes the two flags out, where there are both; `None` if nowhere."""
        flags = self._infos.take_flags()
        return None if flags is None else flags._replace(given=flags.given & self._rows)

    def add_to(self, infos: Infos, rows: Array) -> Infos:
        """Adds what is masked both times to a dictionary, and returns it."""
        return self._infos.add_to(infos, rows & self._rows)


class DictInfos:
    """Infos that are a dictionary for each of some rows.

    They are put together as Gymnasium's `_add_info` does it, but nothing is cut off
    where one row has an integer and another a fraction.

    Example:
        >>> by_row = {0: {"lives": 3}, 2: {"lives": 2.5, "name": "Ada"}}
        >>> infos = DictInfos(by_row, rows=3)
        >>> for key, value in infos.add_to({}, np.ones(3, bool)).items():
        ...     print(key, value)
        lives [3.  0.  2.5]
        _lives [ True False  True]
        name [None None 'Ada']
        _name [False False  True]
    """

    def __init__(self, by_row: Mapping[int, dict[str, Any]], rows: int) -> None:
        """Takes infos.

        Args:
            by_row: For some rows, the info.
            rows: How many rows there are.
        """
        self._by_row = by_row
        self._rows = rows

    def take_flags(self) -> Flags | None:
        """Takes the two flags out, where there are both; `None` if nowhere."""
        taken = {row: take_flags(info) for row, info in self._by_row.items()}
        found = {row: flags for row, flags in taken.items() if flags is not None}
        if not found:
            return None
        flags = Flags(*(np.zeros(self._rows, bool) for _ in Flags._fields))
        for row, (terminated, truncated) in found.items():
            flags.given[row] = True
            flags.terminated[row] = terminated
            flags.truncated[row] = truncated
        return flags

    def add_to(self, infos: Infos, rows: Array) -> Infos:
        """Adds the infos of the masked rows to a dictionary, and returns it."""
        by_key: dict[str, dict[int, Any]] = {}
        for row, info in self._by_row.items():
            if rows[row]:
                for key, value in info.items():
                    by_key.setdefault(key, {})[row] = value
        for key, values in by_key.items():
            before = infos.get(key)
            are_dicts = all(isinstance(value, dict) for value in values.values())
            if are_dicts and not isinstance(before, np.ndarray):
                nested = DictInfos(values, self._rows)
                infos[key] = nested.add_to(before or {}, rows)
            else:
                infos[key] = self._array_of(values, before)
            mask = infos.setdefault(f"_{key}", np.zeros(self._rows, bool))
            mask[list(values)] = True
        return infos

    def _array_of(self, values: dict[int, Any], before: Any) -> Array:
        """Returns an array with the values of some rows, and of others those before."""
        shape, dtype = _common(list(values.values()))
        if isinstance(before, np.ndarray):
            if before.shape[1:] == shape and not before.dtype.hasobject:
                dtype = np.result_type(dtype, before.dtype)
            else:
                shape, dtype = (), np.dtype(object)
        array = _empty(self._rows, shape, dtype)
        if isinstance(before, np.ndarray):
            for row in range(self._rows):
                array[row] = before[row]
        for row, value in values.items():
            array[row] = value
        return array


def _common(values: list[Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Returns the shape and the dtype of an array's elements that hold these values."""
    are_numbers = all(
        type(value) in {int, float, bool} or isinstance(value, np.number)
        for value in values
    )
    if are_numbers:
        kinds = {np.dtype(type(value)) for value in values}
        return (), np.result_type(*kinds)
    are_arrays = all(isinstance(value, np.ndarray) for value in values)
    if are_arrays and len({value.shape for value in values}) == 1:
        kinds = {value.dtype for value in values}
        if len({kind.kind in "biufc" for kind in kinds}) == 1:
            return values[0].shape, np.result_type(*kinds)
    # To Gymnasium, texts and lists are objects like any other.
    return (), np.dtype(object)


def row_infos(given: Any, rows: int) -> RowInfos:
    """Takes what a batch's `get_info` returned, in whichever form it is.

    Args:
        given: A dictionary of arrays, or a list with an info for each row.
        rows: How many rows there are.
    """
    if isinstance(given, Mapping):
        return ColumnInfos(given, rows)
    if isinstance(given, list | tuple) and len(given) == rows:
        by_row = {row: as_info(info) for row, info in enumerate(given)}
        return DictInfos(by_row, rows)
    return ColumnInfos({"info": given}, rows)


def block_infos(given: Sequence[Any], blocks: Sequence[range], rows: int) -> RowInfos:
    """Takes the infos of some environments of a batch, of one or more rows each.

    Args:
        given: What the `get_info` of each has returned.
        blocks: The rows of each.
        rows: How many rows the batch has.
    """
    are_batches = all(len(block) > 1 for block in blocks)
    if are_batches and sum(map(len, blocks)) == rows:
        try:
            return ColumnInfos(nest.map_structure(_joined, *given), rows)
        except (SpecError, TypeError, ValueError):  # They are not alike.
            pass
    by_row = {
        row: as_info(info if len(block) == 1 else _row_of(info, index))
        for info, block in zip(given, blocks, strict=True)
        for index, row in enumerate(block)
    }
    return DictInfos(by_row, rows)


def _joined(*parts: Any) -> Array:
    return np.concatenate(parts)


def _row_of(column: Any, row: int) -> Any:
    """Returns one row of a nest of arrays."""
    if isinstance(column, Mapping):
        return {key: _row_of(value, row) for key, value in column.items()}
    if isinstance(column, list | tuple):
        return type(column)([_row_of(value, row) for value in column])
    array = as_array(column)
    if array.ndim == 0:  # It is the same for all.
        return column
    element = array[row]
    if isinstance(element, np.ndarray):
        return element.copy()
    return element.item() if array.dtype.kind in "SU" else element


def _empty(rows: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Returns what rows have that have no such info."""
    if dtype.hasobject:
        return np.full((rows, *shape), None, object)
    return np.zeros((rows, *shape), dtype)
