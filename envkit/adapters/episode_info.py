"""The statistics of episodes in infos, as Gymnasium and Stable-Baselines3 know them.

`envkit.wrappers.RecordEpisodeStatistics` tells of an episode after every step. Other
libraries take an info with the key `episode` for that of an episode's end, and call
what is in it by other names. So where an info leaves envkit:

    return, length, time, ended       r, l, t, and only if it has ended
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from envkit.types import Array

__all__ = ["take_ended_columns", "with_ended_alone"]

_NAMES = {"return": "r", "length": "l", "time": "t"}
_KEYS = frozenset([*_NAMES, "ended"])


def with_ended_alone(info: dict[str, Any], *, begun: bool = False) -> dict[str, Any]:
    """Returns the info of one environment with the names of the others.

    Args:
        info: The info, which stays as it is.
        begun: Whether it is that of an episode's begin, where none has ended.

    Example:
        >>> episode = {"return": 9.0, "length": 9, "time": 0.5, "ended": True}
        >>> with_ended_alone({"lives": 3, "episode": episode})
        {'lives': 3, 'episode': {'r': 9.0, 'l': 9, 't': 0.5}}
        >>> with_ended_alone({"episode": {**episode, "ended": False}})
        {}
    """
    # Hot: called once per step of a single environment.
    found = [key for key, value in info.items() if _are_statistics(value)]
    if not found:
        return info
    kept = dict(info)
    for key in found:
        del kept[key]
        if info[key]["ended"] and not begun:
            kept[key] = _renamed(info[key])
    return kept


def take_ended_columns(
    columns: dict[str, Any], rows: int, *, begun: bool = False
) -> list[tuple[str, dict[str, Any], Array]]:
    """Takes statistics out of infos that are arrays with an element for each row.

    Args:
        columns: The infos, from which they are removed.
        rows: How many rows there are.
        begun: Whether they are those of begins.

    Returns:
        For each key: its name, the renamed statistics, and a mask of the ended rows.
    """
    taken = []
    for key in [key for key, value in columns.items() if _are_statistics(value)]:
        statistics = columns.pop(key)
        ended = np.asarray(statistics["ended"])
        if not begun and ended.shape == (rows,) and ended.any():
            taken.append((key, _renamed(statistics), ended))
    return taken


def _are_statistics(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == _KEYS


def _renamed(statistics: Mapping[str, Any]) -> dict[str, Any]:
    return {new: _plain(statistics[old]) for old, new in _NAMES.items()}


def _plain(value: Any) -> Any:
    """Returns a number of Python for an array that is one."""
    if isinstance(value, np.ndarray | np.generic) and value.ndim == 0:
        return value.item()
    return value
