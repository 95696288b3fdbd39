"""Converts infos of a batch's rows between Gymnasium's form and envkit's.

A Gymnasium vector environment has one dictionary of arrays. An array `key` may have a
mask `_key` of the rows it applies to; without a mask it applies to all rows. Nested
dictionaries work the same way. `VectorInfos` splits them.

An envkit batch has infos in one of two forms, both of which convert to Gymnasium's.
`ColumnInfos` are a dictionary of arrays with an element per row, handled without a loop
over rows. `DictInfos` are a dictionary for each row that has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from envkit import nest
from envkit.adapters.episode_info import take_ended_columns, with_ended_alone
from envkit.adapters.foreign import as_info, take_flags, with_flags
from envkit.adapters.losses import LOSS, loss_in, without_loss
from envkit.errors import SpecError
from envkit.extend import FLAGS, as_array, copied_arrays
from envkit.losses import Loss
from envkit.specs.batching import stacked_infos
from envkit.types import Array

__all__ = [
    "FINAL_OBSERVATION",
    "ColumnInfos",
    "DictInfos",
    "Flags",
    "Infos",
    "InfosOfSome",
    "RowInfos",
    "VectorInfos",
    "block_infos",
    "row_infos",
]


Infos = dict[str, Any]

# Integers beyond int64, such as seeds, are objects.
_MOST = 2**63
# Kinds of dtypes that are joined, each to the widest of them.
_NUMBERS = "biufc"


class Flags(NamedTuple):
    """The flags in infos.

    Attributes:
        given: The rows whose info has both.
        terminated: The rows with a true `terminated`.
        truncated: The rows with a true `truncated`.
    """

    given: Array
    terminated: Array
    truncated: Array


class RowInfos(Protocol):
    """The infos of a batch's rows."""

    def take_flags(self) -> Flags | None:
        """Removes the two flags from infos with both; `None` if there are none."""

    def add_to(self, infos: Infos, rows: Array) -> Infos:
        """Adds the infos of the masked rows to a dictionary and returns it."""

    def by_row(self) -> list[Infos]:
        """Returns each row's dictionary, as if the row were alone."""


class ColumnInfos:
    """Infos in arrays with an element for each row.

    Example:
        >>> infos = ColumnInfos({"steps": np.array([4, 9])}, rows=2)
        >>> infos.add_to({}, np.array([False, True]))
        {'steps': array([0, 9]), '_steps': array([False,  True])}
    """

    def __init__(
        self, columns: Mapping[str, Any], rows: int, *, begun: bool = False
    ) -> None:
        """Takes infos; values other than arrays also have an element for each row.

        Args:
            columns: The infos.
            rows: The number of rows.
            begun: Whether the infos are from the beginning of episodes.
        """
        self._columns = dict(columns)
        self._rows = rows
        self._episodes = take_ended_columns(self._columns, rows, begun=begun)

    def take_flags(self) -> Flags | None:
        """Removes the two flags and returns them, if there are both."""
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
        """Adds the infos of the masked rows to a dictionary and returns it."""
        if rows.any():
            for key, column in self._columns.items():
                self._add(infos, key, column, rows)
        for key, statistics, ended in self._episodes:
            own = rows & ended
            if own.any():
                self._add(infos, key, statistics, own)
        return infos

    def by_row(self) -> list[Infos]:
        """Returns a dictionary for each row."""
        everyone = np.ones(self._rows, bool)
        return _infos_by_row(self.add_to({}, everyone), self._rows)

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
        """Returns an array with new values in masked rows and old ones elsewhere."""
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
                # Some batches have one number for all rows.
                return column if has_rows else np.repeat(column[None], self._rows, 0)
            if has_rows and column.ndim > 1 and not column.dtype.hasobject:
                return column
        # Gymnasium treats single texts and lists like any other object.
        values = np.empty(self._rows, object)
        for row in range(self._rows):
            values[row] = _row_of(column, row)
        return values


class InfosOfSome:
    """Infos that are valid only in some rows.

    Example:
        >>> discounts = ColumnInfos({"discount": np.array([0.5, 1.0])}, rows=2)
        >>> discounts = InfosOfSome(discounts, np.array([True, False]))
        >>> discounts.add_to({}, np.ones(2, bool))
        {'discount': array([0.5, 0. ]), '_discount': array([ True, False])}
    """

    def __init__(self, infos: RowInfos, rows: Array) -> None:
        """Takes infos, and a mask of the rows where they are valid."""
        self._infos = infos
        self._rows = rows

    def take_flags(self) -> Flags | None:
        """Removes the two flags from infos with both; `None` if there are none."""
        flags = self._infos.take_flags()
        return None if flags is None else flags._replace(given=flags.given & self._rows)

    def add_to(self, infos: Infos, rows: Array) -> Infos:
        """Adds the infos of rows in both masks to a dictionary and returns it."""
        return self._infos.add_to(infos, rows & self._rows)

    def by_row(self) -> list[Infos]:
        """Returns a dictionary for each row; empty where the infos are not valid."""
        pairs = zip(self._infos.by_row(), self._rows.tolist(), strict=True)
        return [info if counts else {} for info, counts in pairs]


class DictInfos:
    """Infos in a dictionary for each of some rows.

    They are joined as in Gymnasium's `_add_info`, except that fractions are kept if
    another row has an integer.

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
            by_row: The infos of some rows.
            rows: The number of rows.
        """
        self._by_row = by_row
        self._rows = rows

    def take_flags(self) -> Flags | None:
        """Removes the two flags from infos with both; `None` if there are none."""
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
        """Adds the infos of the masked rows to a dictionary and returns it."""
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
        # Environments may keep writing to arrays that they have returned.
        return [copied_arrays(self._by_row.get(row, {})) for row in range(self._rows)]


def _array_of(values: dict[int, Any], before: Any, rows: int) -> Array:
    """Returns an array with new values for some rows and old ones for the others."""
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
    """Returns True if one array can hold the values of all these dtypes unchanged."""
    if any(dtype.hasobject for dtype in dtypes):
        return False
    kinds = {"n" if dtype.kind in _NUMBERS else dtype.kind for dtype in dtypes}
    return len(set(dtypes)) == 1 or (len(kinds) == 1 and kinds != {"V"})


def _common(values: list[Any]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Returns the shape and dtype of array elements that can hold these values."""
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
    # Gymnasium treats texts and lists like any other object.
    return (), np.dtype(object)


def row_infos(given: Any, rows: int, *, begun: bool = False) -> RowInfos:
    """Returns the infos of a batch, in either form.

    Args:
        given: A dictionary of arrays, or a list with an info for each row.
        rows: The number of rows.
        begun: Whether the infos are from the beginning of episodes.
    """
    if isinstance(given, list | tuple) and len(given) == rows:
        by_row = {
            row: with_ended_alone(as_info(info), begun=begun)
            for row, info in enumerate(given)
        }
        return DictInfos(by_row, rows)
    return ColumnInfos(as_info(given), rows, begun=begun)


def block_infos(
    given: Sequence[Any],
    blocks: Sequence[range],
    rows: int,
    batched: Sequence[bool],
    *,
    begun: bool = False,
) -> RowInfos:
    """Returns the infos of a batch whose environments have one or more rows each.

    Args:
        given: The result of each environment's `get_info`.
        blocks: The rows of each environment.
        rows: The number of rows of the batch.
        batched: Whether each environment is itself a batch, possibly of one row.
        begun: Whether the infos are from the beginning of episodes.
    """
    are_columns = all(batched) and all(isinstance(info, Mapping) for info in given)
    if are_columns and sum(map(len, blocks)) == rows:
        try:
            joined = nest.map_structure(_joined, *given)
            return ColumnInfos(joined, rows, begun=begun)
        except (SpecError, TypeError, ValueError):  # their infos differ
            pass
    by_row = {
        row: with_ended_alone(
            as_info(_info_of_row(info, index, len(block)) if is_batch else info),
            begun=begun,
        )
        for info, block, is_batch in zip(given, blocks, batched, strict=True)
        for index, row in enumerate(block)
    }
    return DictInfos(by_row, rows)


def _info_of_row(info: Any, row: int, rows: int) -> Any:
    """Returns one row's part of a batch's info, in either form."""
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
    if array.ndim == 0:  # one value for all rows
        return column
    element = array[row]
    if isinstance(element, np.ndarray):
        return element.copy()
    return element.item() if array.dtype.kind in "SU" else element


def _empty(rows: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Returns an array of placeholders for rows without this info."""
    if dtype.hasobject:
        return np.full((rows, *shape), None, object)
    return np.zeros((rows, *shape), dtype)


# Keys for the final step of an episode whose row has already begun the next one.
FINAL_OBSERVATION = "final_obs"
_FINAL_INFO = "final_info"
_ENDS = (FINAL_OBSERVATION, _FINAL_INFO)


class VectorInfos:
    """Keeps a vector environment's infos, and splits them only when they are read.

    Keeping them costs nothing; most of the time nobody reads them.
    """

    def __init__(self, rows: int) -> None:
        """Starts without infos."""
        self._rows = rows
        self._infos: Mapping[str, Any] = {}
        # Infos of the next episode, for rows in which it has begun.
        self._begun: Mapping[str, Any] | None = None
        # Masks of the terminated and of the truncated rows, as bytes; `None` before the
        # first reset.
        self._flags: tuple[bytes, bytes] | None = None
        none = bytes(rows)
        self._none = none, none
        # The infos of rows that were reset alone since then.
        self._later: dict[int, Infos] = {}

    def reset_rows(self, infos: Mapping[str, Any], mask: Array) -> None:
        """Keeps the infos of a reset of some rows."""
        by_row = _with_flags(_infos_by_row(infos, self._rows))
        for row in np.flatnonzero(mask).tolist():
            self._later[row] = by_row[row]

    def step(
        self,
        infos: Mapping[str, Any],
        terminated: bytes | None = None,
        truncated: bytes | None = None,
    ) -> None:
        """Keeps the infos of a step, or of a reset of all rows.

        Args:
            infos: The infos of the vector environment.
            terminated: The terminated rows, as the bytes of a mask; both are `None` if
                no episode has ended.
            truncated: The rows that were truncated.
        """
        # Hot: called once per batch step.
        self._infos = infos
        self._begun = None
        self._flags = self._none
        if terminated is not None and truncated is not None:
            self._flags = terminated, truncated
        if self._later:
            self._later = {}

    def begin(self, infos: Mapping[str, Any]) -> None:
        """Keeps infos of the next episode, for rows that have ended."""
        self._begun = infos

    def shown(self) -> Infos | list[Infos]:
        """Returns the infos of the time step returned last."""
        return stacked_infos(self._shown())

    def losses(self) -> dict[int, Loss]:
        """Returns the losses behind the ends in the time step returned last, by row."""
        told = self._infos.get(_FINAL_INFO, self._infos)
        if self._flags is None or not isinstance(told, Mapping) or LOSS not in told:
            return {}
        infos = _infos_by_row(told, self._rows)
        found = {row: loss_in(infos[row]) for row in _rows_in(self._flags)}
        return {
            row: loss._replace(row=row)
            for row, loss in found.items()
            if loss is not None and row not in self._later
        }

    def standing(self) -> Infos | list[Infos]:
        """Returns the infos of the current time step."""
        by_row = self._shown()
        if self._begun is not None and self._flags is not None:
            begun = _with_flags(_infos_by_row(self._begun, self._rows))
            for row in _rows_in(self._flags):
                by_row[row] = self._later.get(row, begun[row])
        return stacked_infos(by_row)

    def _shown(self) -> list[Infos]:
        by_row = _infos_by_row(self._infos, self._rows)
        if self._flags is None:
            return by_row
        finals = _final_infos(self._infos, self._rows)
        if finals is not None:
            for row in _rows_in(self._flags):
                by_row[row] = finals[row]
        for row in self.losses():
            by_row[row] = without_loss(by_row[row])
        terminated, truncated = (list(map(bool, flags)) for flags in self._flags)
        by_row = _with_flags(by_row, terminated, truncated)
        return [self._later.get(row, info) for row, info in enumerate(by_row)]


def _rows_in(flags: tuple[bytes, bytes]) -> list[int]:
    """Returns the rows whose episode has ended."""
    return [row for row, pair in enumerate(zip(*flags, strict=True)) if any(pair)]


def _infos_by_row(infos: Mapping[str, Any], rows: int) -> list[Infos]:
    """Returns each row's infos as a dictionary.

    Infos about the end of an episode that the row has left are excluded.

    Example:
        >>> infos = {"lives": np.array([3, 0]), "_lives": np.array([True, False])}
        >>> _infos_by_row({**infos, "score": np.array([7, 8])}, rows=2)
        [{'lives': np.int64(3), 'score': np.int64(7)}, {'score': np.int64(8)}]
    """
    found: list[Infos] = [{} for _ in range(rows)]
    for key, value in infos.items():
        if key in _ENDS or _is_mask(key, infos, rows):
            continue
        values = _values(value, rows)
        for row in _rows_that_have(key, infos, rows):
            item = values[row]
            found[row][key] = item.copy() if isinstance(item, np.ndarray) else item
    return found


def _final_infos(infos: Mapping[str, Any], rows: int) -> list[Infos] | None:
    """Returns the final infos of rows that have already begun their next episode.

    Only vector environments that reset in the same step have some.
    """
    value = infos.get(_FINAL_INFO)
    return None if value is None else _infos_by_row(value, rows)


def _with_flags(
    by_row: list[Infos],
    terminated: Sequence[bool] | None = None,
    truncated: Sequence[bool] | None = None,
) -> list[Infos]:
    """Adds the two flags to the info of each row."""
    none = [False] * len(by_row)
    flags = zip(by_row, terminated or none, truncated or none, strict=True)
    return [with_flags(*each) for each in flags]


def _is_mask(key: Any, infos: Mapping[str, Any], rows: int) -> bool:
    return (
        isinstance(key, str)
        and key.startswith("_")
        and key[1:] in infos
        and getattr(infos[key], "shape", None) == (rows,)
    )


def _rows_that_have(key: Any, infos: Mapping[str, Any], rows: int) -> Sequence[int]:
    mask = f"_{key}"
    if mask in infos and _is_mask(mask, infos, rows):
        return np.flatnonzero(infos[mask]).tolist()
    return range(rows)


def _values(value: Any, rows: int) -> Sequence[Any]:
    """Returns the value of each row."""
    if isinstance(value, Mapping):
        return _infos_by_row(value, rows)
    has_rows = isinstance(value, list | tuple) or np.ndim(value) > 0
    if has_rows and not isinstance(value, str | bytes) and len(value) == rows:
        is_boolean = getattr(value, "dtype", None) == np.bool_ and np.ndim(value) == 1
        # Python's booleans, because NumPy's would make an array of objects.
        return value.tolist() if is_boolean else value  # type: ignore[no-any-return]  # it has one for each
    # One value for all rows.
    return [value] * rows
