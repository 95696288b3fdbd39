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
from envkit.adapters.gymnasium_vector.vector_infos import infos_by_row
from envkit.arrays import as_array, copied_arrays
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

# Integers beyond int64, such as seeds, are objects.
_MOST = 2**63
# The kinds of dtypes that are put together, each as the widest of them.
_NUMBERS = "biufc"


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

    def by_row(self) -> list[Infos]:
        """Returns a dictionary for each row, as it would be without the others."""


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

    def by_row(self) -> list[Infos]:
        """Returns a dictionary for each row."""
        everyone = np.ones(self._rows, bool)
        return infos_by_row(self.add_to({}, everyone), self._rows)

    def _add(self, infos: Infos, key: str, column: Any, rows: Array) -> None:
        before, mask = infos.get(key), infos.get(f"_{key}")
        if isinstance(column, Mapping) and not isinstance(before, np.ndarray):
            nested = before or {}
            for name, child in column.items():
                self._add(nested, name, child, rows)
            infos[key] = nested
        else:
            infos[key] = self._put_into(column, before, rows)
        infos[f"_{key}"] = rows.copy() if mask is None else mask | rows

    def _put_into(self, column: Any, before: Any, rows: Array) -> Array:
        """Returns an array of what the masked rows have, and the others had before."""
        values = self._as_array(column)
        if rows.all():
            return values
        place: Array = before
        if not isinstance(before, np.ndarray):
            place = _empty(self._rows, values.shape[1:], values.dtype)
        elif (before.shape, before.dtype) != (values.shape, values.dtype):
            own = {row: values[row] for row in np.flatnonzero(rows).tolist()}
            return _array_of(own, before, self._rows)
        place[rows] = values[rows]
        return place

    def _as_array(self, column: Any) -> Array:
        """Returns an array with an element for each row."""
        if isinstance(column, np.ndarray):
            has_rows = column.shape[:1] == (self._rows,)
            if column.dtype.kind in _NUMBERS:
                # Some batches have one number for all.
                return column if has_rows else np.repeat(column[None], self._rows, 0)
            if has_rows and column.ndim > 1 and not column.dtype.hasobject:
                return column
        # To Gymnasium, single texts and lists are objects like any other.
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

    def by_row(self) -> list[Infos]:
        """Returns a dictionary for each row, which is empty for the others."""
        pairs = zip(self._infos.by_row(), self._rows.tolist(), strict=True)
        return [info if counts else {} for info, counts in pairs]


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
                infos[key] = _array_of(values, before, self._rows)
            mask = infos.setdefault(f"_{key}", np.zeros(self._rows, bool))
            mask[list(values)] = True
        return infos

    def by_row(self) -> list[Infos]:
        """Returns copies of the dictionaries, and empty ones for the other rows."""
        # Environments go on writing to arrays that they have returned.
        return [copied_arrays(self._by_row.get(row, {})) for row in range(self._rows)]


def _array_of(values: dict[int, Any], before: Any, rows: int) -> Array:
    """Returns an array with the values of some rows, and of others those before."""
    shape, dtype = _common(list(values.values()))
    if isinstance(before, np.ndarray):
        if before.shape[1:] == shape and _go_together(before.dtype, dtype):
            dtype = np.result_type(dtype, before.dtype)
        else:
            shape, dtype = (), np.dtype(object)
    array = _empty(rows, shape, dtype)
    if isinstance(before, np.ndarray):
        for row in range(rows):
            array[row] = before[row]
    for row, value in values.items():
        array[row] = value
    return array


def _go_together(*dtypes: np.dtype[Any]) -> bool:
    """Says whether one array can hold both, and what was in it is what it was."""
    if any(dtype.hasobject for dtype in dtypes):
        return False
    kinds = {"n" if dtype.kind in _NUMBERS else dtype.kind for dtype in dtypes}
    return len(set(dtypes)) == 1 or (len(kinds) == 1 and kinds != {"V"})


def _common(values: list[Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Returns the shape and the dtype of an array's elements that hold these values."""
    are_numbers = all(
        type(value) in {float, bool}
        or isinstance(value, np.number)
        or (type(value) is int and -_MOST <= value < _MOST)
        for value in values
    )
    if are_numbers:
        kinds = {np.dtype(type(value)) for value in values}
        return (), np.result_type(*kinds)
    are_arrays = all(isinstance(value, np.ndarray) for value in values)
    if are_arrays and len({value.shape for value in values}) == 1:
        kinds = {value.dtype for value in values}
        if len(kinds) == 1 or _go_together(*kinds):
            return values[0].shape, np.result_type(*kinds)
    # To Gymnasium, texts and lists are objects like any other.
    return (), np.dtype(object)


def row_infos(given: Any, rows: int) -> RowInfos:
    """Takes what a batch's `get_info` returned, in whichever form it is.

    Args:
        given: A dictionary of arrays, or a list with an info for each row.
        rows: How many rows there are.
    """
    if isinstance(given, list | tuple) and len(given) == rows:
        by_row = {row: as_info(info) for row, info in enumerate(given)}
        return DictInfos(by_row, rows)
    return ColumnInfos(as_info(given), rows)


def block_infos(
    given: Sequence[Any], blocks: Sequence[range], rows: int, batched: Sequence[bool]
) -> RowInfos:
    """Takes the infos of some environments of a batch, of one or more rows each.

    Args:
        given: What the `get_info` of each has returned.
        blocks: The rows of each.
        rows: How many rows the batch has.
        batched: For each, whether it is a batch itself, perhaps of one row.
    """
    are_columns = all(batched) and all(isinstance(info, Mapping) for info in given)
    if are_columns and sum(map(len, blocks)) == rows:
        try:
            return ColumnInfos(nest.map_structure(_joined, *given), rows)
        except (SpecError, TypeError, ValueError):  # They are not alike.
            pass
    by_row = {
        row: as_info(_info_of_row(info, index, len(block)) if is_batch else info)
        for info, block, is_batch in zip(given, blocks, batched, strict=True)
        for index, row in enumerate(block)
    }
    return DictInfos(by_row, rows)


def _info_of_row(info: Any, row: int, rows: int) -> Any:
    """Returns one row's part of a batch's info, in whichever form that is."""
    if isinstance(info, list | tuple) and len(info) == rows:
        return info[row]
    return _row_of(info, row)


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
