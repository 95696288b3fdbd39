"""Keeps the seeds and options of resets, until the episodes have begun.

If an environment is lost in a reset, the pool replaces it, and the new one begins with
neither the seed nor the options of that reset. The pool then gives it both again
and repeats the reset, so the caller gets the episode that it asked for, or an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.parallel import asking
from envkit.types import Array

__all__ = ["GivenResets"]


class GivenResets:
    """The seeds and options with which rows' next episodes will begin.

    Attributes:
        are_any: Whether any are pending.
    """

    def __init__(self, facade: Any) -> None:
        """Takes a pool in which no seeds or options are pending."""
        self._facade = facade
        self.are_any = False
        self._seeds: dict[int, int] = {}
        self._options: dict[int, Any] = {}

    def seed(self, seeds: Sequence[int | None]) -> None:
        """Records the seeds that rows were given; `None` for none."""
        self._record(self._seeds, _given(seeds))

    def set_options(self, options: Sequence[Any], rows: Array | None) -> None:
        """Records the options that were given to all rows, or to those of a mask."""
        given = _given(options)
        if rows is not None:
            given = {row: one for row, one in given.items() if rows[row]}
        self._record(self._options, given)

    def _record(self, known: dict[int, Any], given: dict[int, Any]) -> None:
        self._facade._pool.rows.losses.take_resets(given)  # Those are earlier ones.
        known.update(given)
        self._count()

    def _count(self) -> None:
        self.are_any = bool(self._seeds or self._options)

    def take(self, rows: Array) -> GivenResets:
        """Removes and returns the seeds and options of rows that have moved."""
        taken = GivenResets(self._facade)
        for row in rows.tolist():
            if row in self._seeds:
                taken._seeds[row] = self._seeds.pop(row)
            if row in self._options:
                taken._options[row] = self._options.pop(row)
        self._count()
        return taken

    def put_back(self, other: GivenResets, rows: Array) -> None:
        """Records seeds and options again, for rows that will move after all."""
        taken = other.take(rows)
        self._seeds.update(taken._seeds)
        self._options.update(taken._options)
        self._count()

    def lost(self) -> Array:
        """Returns the rows whose environment was lost before it used them."""
        pool = self._facade._pool
        lost = pool.rows.losses.take_resets(self._seeds.keys() | self._options.keys())
        return np.array(sorted(lost.difference(pool.errors)), np.intp)

    def give(self, rows: Array) -> None:
        """Gives the new environments of these rows the same seeds and options again."""
        facade = self._facade
        chosen = range(facade._rows)
        seeds, options = (
            [given.get(row) if row in rows else None for row in chosen]
            for given in (self._seeds, self._options)
        )
        mask = np.zeros(facade._rows, bool)
        mask[rows] = True
        if self._options:
            asking.send_options(facade, options, mask)
        if self._seeds:
            asking.seed_rows(facade, seeds)


def _given(values: Sequence[Any]) -> dict[int, Any]:
    return {row: one for row, one in enumerate(values) if one is not None}
