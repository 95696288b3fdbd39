"""What goes into a recording of an environment's info: arrays and lines of JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from envkit.errors import CallOrderError
from envkit.nest import Structure
from envkit.plain_data import Other, dumped, to_plain
from envkit.specs.info_spec import key_paths
from envkit.types import Array

__all__ = ["Infos"]

_NOTHING = object()


class Infos:
    """Asks an environment for its info, and takes it apart.

    What `info_spec()` describes becomes arrays; the rest becomes lines of JSON.
    """

    def __init__(self, env: Any, structure: Structure, pack: Other) -> None:
        """Takes the environment, the structure of its `info_spec()`, and a packer."""
        self._env, self._structure, self._pack = env, structure, pack
        self._names = [f"info{path}" for path in structure.paths]
        self._paths = list(key_paths(structure.template))
        self._has_some = True
        self._had_some = False
        self._rows: int | None = env.batch_size if env.batched else None

    def columns(self, rows: Sequence[int]) -> dict[str, Any]:
        """Returns the infos of some rows, by the names of columns."""
        if not self._has_some:
            return {}
        try:
            info = self._env.get_info()
            self._had_some = True
        except NotImplementedError:
            # A column has an element for each time step, or there is none.
            self._has_some = self._had_some
            if not self._has_some:
                return {}
            info = None
        except CallOrderError:
            # Blocking, for one, cannot ask while rows are under way.
            info = None
        infos = [_of_row(info, row, self._rows) for row in rows]
        typed: list[list[Array]] = [[] for _ in self._paths]
        lines = []
        for info in infos:
            for leaf, path, column in zip(
                self._structure.leaves, self._paths, typed, strict=True
            ):
                info, value = _taken(info, path)
                if value is _NOTHING:
                    value = np.zeros(leaf.shape, leaf.dtype)
                column.append(np.array(value, leaf.dtype))
            lines.append(dumped(to_plain(info, "info", self._pack)))
        columns: dict[str, Any] = dict(zip(self._names, typed, strict=True))
        return {**columns, "info": lines}


def _taken(info: Any, path: tuple[str, ...]) -> tuple[Any, Any]:
    """Returns an info without the value at a place, and that value."""
    if not isinstance(info, Mapping) or path[0] not in info:
        return info, _NOTHING
    if len(path) == 1:
        rest = {key: value for key, value in info.items() if key != path[0]}
        return rest, info[path[0]]
    inner, value = _taken(info[path[0]], path[1:])
    others = {key: value for key, value in info.items() if key != path[0]}
    return ({**others, path[0]: inner} if inner else others), value


def _of_row(info: Any, row: int, rows: int | None) -> Any:
    """Returns what an info says of one row: of a list the element, and so on."""
    if rows is None:
        return info
    if isinstance(info, list) and len(info) == rows:
        return info[row]
    return _row_of(info, row, rows)


def _row_of(value: Any, row: int, rows: int) -> Any:
    if isinstance(value, np.ndarray) and value.shape[:1] == (rows,):
        return value[row, ...]
    if isinstance(value, Mapping):
        return {key: _row_of(item, row, rows) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_row_of(item, row, rows) for item in value))
    return value
