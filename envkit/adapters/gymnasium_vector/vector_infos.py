"""`VectorInfos`: the infos of a vector environment of Gymnasium, row by row.

There they are a dictionary of arrays. Beside the array `key` may stand a mask `_key` of
the rows that have it; without one all have it. Dictionaries within are made likewise.
`row_infos` is the other way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from envkit.stacked_infos import stacked_infos
from envkit.types import Array

__all__ = ["VectorInfos", "final_observations", "infos_by_row"]

Infos = dict[str, Any]

# What Gymnasium calls the end of an episode that has been left already; it had the
# longer name before 1.0.
_FINAL_OBSERVATIONS = ("final_obs", "final_observation")
_FINAL_INFO = "final_info"
_ENDS = (*_FINAL_OBSERVATIONS, _FINAL_INFO)


class VectorInfos:
    """Keeps what a vector environment says of its rows until somebody asks.

    Most of the time nobody does, so keeping costs nothing.
    """

    def __init__(self, rows: int) -> None:
        """Has nothing to say yet."""
        self._rows = rows
        self._infos: Mapping[str, Any] = {}
        # What it says of the next episode of rows that have begun it already.
        self._begun: Mapping[str, Any] | None = None
        # Where it has ended how, as the bytes of two masks. Before the first reset
        # there is nothing to tell.
        self._flags: tuple[bytes, bytes] | None = None
        none = bytes(rows)
        self._none = none, none
        # What it has said of single rows since.
        self._later: dict[int, Infos] = {}

    def reset_rows(self, infos: Mapping[str, Any], mask: Array) -> None:
        """Notes the infos of a reset of some rows."""
        by_row = _with_flags(infos_by_row(infos, self._rows))
        for row in np.flatnonzero(mask).tolist():
            self._later[row] = by_row[row]

    def step(
        self,
        infos: Mapping[str, Any],
        terminated: bytes | None = None,
        truncated: bytes | None = None,
    ) -> None:
        """Notes the infos of a step, or of a reset of all rows.

        Args:
            infos: What the vector environment has returned as such.
            terminated: Where episodes were terminated: the bytes of a mask. `None`
                for both if none has ended.
            truncated: Where they were truncated.
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
        """Notes infos that belong to the next episode of rows that have ended."""
        self._begun = infos

    def shown(self) -> Infos | list[Infos]:
        """Returns the infos of what the last call returned."""
        return stacked_infos(self._shown())

    def standing(self) -> Infos | list[Infos]:
        """Returns the infos of where the rows stand now."""
        by_row = self._shown()
        if self._begun is not None and self._flags is not None:
            begun = _with_flags(infos_by_row(self._begun, self._rows))
            for row in _rows_in(self._flags):
                by_row[row] = self._later.get(row, begun[row])
        return stacked_infos(by_row)

    def _shown(self) -> list[Infos]:
        by_row = infos_by_row(self._infos, self._rows)
        if self._flags is None:
            return by_row
        finals = _final_infos(self._infos, self._rows)
        if finals is not None:
            for row in _rows_in(self._flags):
                by_row[row] = finals[row]
        terminated, truncated = (list(map(bool, flags)) for flags in self._flags)
        by_row = _with_flags(by_row, terminated, truncated)
        return [self._later.get(row, info) for row, info in enumerate(by_row)]


def _rows_in(flags: tuple[bytes, bytes]) -> list[int]:
    """Returns the rows whose episode has ended."""
    return [row for row, pair in enumerate(zip(*flags, strict=True)) if any(pair)]


def infos_by_row(infos: Mapping[str, Any], rows: int) -> list[Infos]:
    """Returns a dictionary for each row, of what that row has.

    What belongs to the end of an episode that has been left already is not in it.

    Example:
        >>> infos = {"lives": np.array([3, 0]), "_lives": np.array([True, False])}
        >>> infos_by_row({**infos, "score": np.array([7, 8])}, rows=2)
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
    """Returns the infos of the ends of episodes that have been left already.

    There are some only where vector environments reset in the same step.
    """
    value = infos.get(_FINAL_INFO)
    if value is None:
        return None
    if isinstance(value, Mapping):
        return infos_by_row(value, rows)
    # Before 1.0 it is an array of dictionaries.
    return [dict(info or {}) for info in value]


def final_observations(infos: Mapping[str, Any]) -> Any:
    """Returns the final observations of episodes that have been left already."""
    for name in _FINAL_OBSERVATIONS:
        if name in infos:
            return infos[name]
    return None


def _with_flags(
    by_row: list[Infos],
    terminated: Sequence[bool] | None = None,
    truncated: Sequence[bool] | None = None,
) -> list[Infos]:
    """Says of each row whether its episode has ended, and how."""
    none = [False] * len(by_row)
    flags = zip(by_row, terminated or none, truncated or none, strict=True)
    return [{"terminated": one, "truncated": two, **row} for row, one, two in flags]


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
        return infos_by_row(value, rows)
    has_rows = isinstance(value, list | tuple) or np.ndim(value) > 0
    if has_rows and not isinstance(value, str | bytes) and len(value) == rows:
        is_boolean = getattr(value, "dtype", None) == np.bool_ and np.ndim(value) == 1
        # To Gymnasium a boolean of NumPy's is an object, so these were Python's.
        return value.tolist() if is_boolean else value  # type: ignore[no-any-return]  # it has one for each
    # Something that all rows have in common.
    return [value] * rows
