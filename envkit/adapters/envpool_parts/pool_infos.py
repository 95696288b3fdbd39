"""`PoolInfos`: what EnvPool says of each row besides, kept until somebody asks."""

from __future__ import annotations

from typing import Any

from envkit.adapters.envpool_parts.pool_rows import Answer, PoolRows
from envkit.types import Array

__all__ = ["PoolInfos"]


class PoolInfos:
    """Puts together what a pool has said of its rows.

    Most of the time nobody asks, so keeping costs nearly nothing.
    """

    def __init__(self, reader: PoolRows) -> None:
        """Has nothing to say yet; `reader` knows what answers say."""
        self._reader = reader
        self._whole: Answer | None = None
        # What has been said of single rows since, and where in which answer.
        self._later: dict[int, tuple[Answer, int]] = {}
        # What belongs to the next episode of rows that have begun it already.
        self._begun: dict[int, tuple[Answer, int]] = {}

    def whole(self, answer: Answer) -> None:
        """Notes what was said of all rows."""
        self._whole = answer
        if self._later:
            self._later = {}
        if self._begun:
            self._begun = {}

    def some(self, answer: Answer) -> None:
        """Notes what was said of some rows."""
        for place, row in enumerate(answer.rows.tolist()):
            self._later[row] = answer, place
            self._begun.pop(row, None)

    def begin(self, answer: Answer) -> None:
        """Notes what was said of rows that have begun their next episode."""
        for place, row in enumerate(answer.rows.tolist()):
            self._begun[row] = answer, place

    def arrive(self, mask: Array) -> None:
        """Notes that the masked rows are told of the episode which they had begun."""
        for row in mask.nonzero()[0].tolist():
            self._later[row] = self._begun.pop(row)

    def shown(self) -> dict[str, Any]:
        """Returns the infos of what the last call returned."""
        return self._put_together(self._later)

    def standing(self) -> dict[str, Any]:
        """Returns the infos of where the rows stand now."""
        return self._put_together({**self._later, **self._begun})

    def _put_together(self, later: dict[int, tuple[Answer, int]]) -> dict[str, Any]:
        if self._whole is None:
            return {}
        infos_of = self._reader.infos_of
        infos = infos_of(self._whole)
        for row, (answer, place) in later.items():
            _put(infos, row, infos_of(answer), place)
        return infos


def _put(infos: dict[str, Any], row: int, others: dict[str, Any], place: int) -> None:
    for key, value in infos.items():
        if isinstance(value, dict):
            _put(value, row, others[key], place)
        else:
            value[row] = others[key][place]
