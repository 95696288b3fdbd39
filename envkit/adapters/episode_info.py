"""Renames episode statistics in infos as Gymnasium and Stable-Baselines3 expect.

`envkit.wrappers.RecordEpisodeStatistics` reports an episode after every step. Other
libraries expect the key `episode` only when an episode ends, with other names inside.
So an info that leaves envkit is translated:

        return, length, time, ended       r, l, t, and only when the episode has ended
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
    """Returns the info of one environment with the other libraries' names.

    Args:
        info: The info; it is not changed.
        begun: Whether the info is from the beginning of an episode, when none has
            ended.

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
    """Removes episode statistics from infos that have an array element per row.

    Args:
        columns: The infos; the statistics are removed from them.
        rows: The number of rows.
        begun: Whether the infos are from the beginning of episodes.

    Returns:
        A name, the renamed statistics and a mask of the ended rows for each key.
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
    """Returns a Python number for a zero-dimensional array."""
    if isinstance(value, np.ndarray | np.generic) and value.ndim == 0:
        return value.item()
    return value
