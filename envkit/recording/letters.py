"""What `Record` tells its writer, and how much memory that takes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from envkit.types import Array

__all__ = ["Annotation", "Dropped", "End", "Event", "Moved", "Opening"]

# Bytes, about: a letter beside its arrays, and any object of Python's.
_LETTER, _OBJECT = 512, 112


class Opening(NamedTuple):
    """An episode that begins: its row, its number, and what is kept of it."""

    row: int
    episode: int
    kind: str


class Moved(NamedTuple):
    """What came of one call, in the rows that are kept.

    Attributes:
        call: The number of the call.
        rows: Which rows these are.
        step_types: Their step types.
        openings: The episodes that begin with it.
        actions: The columns of the actions, by name: of all these rows an array with
            an element for each, or a line for each.
        whole: The rows of which everything is kept.
        columns: The columns of everything else; of these rows.
    """

    call: int
    rows: Array
    step_types: Array
    openings: list[Opening]
    actions: dict[str, Any]
    whole: Array
    columns: dict[str, Any]

    @property
    def size(self) -> int:
        """How many bytes it takes, about."""
        rows = self.rows.nbytes + self.whole.nbytes + self.step_types.nbytes
        openings = len(self.openings) * _OBJECT
        columns = [*self.actions.values(), *self.columns.values()]
        return _LETTER + rows + openings + sum(map(_size_of, columns))


class Annotation(NamedTuple):
    """What the agent notes about the latest time step of some rows, as JSON."""

    rows: list[int]
    values: str

    @property
    def size(self) -> int:
        """How many bytes it takes, about, with a line for each row."""
        return _LETTER + len(self.values) * len(self.rows)


class End(NamedTuple):
    """Rows whose episodes are left where they are."""

    rows: list[int]
    why: str


class Dropped(NamedTuple):
    """Rows and episodes that are thrown away, as there was no room for them."""

    episodes: list[tuple[int, int]]


class Event(NamedTuple):
    """A line for the log."""

    facts: dict[str, Any]


def _size_of(column: Any) -> int:
    if isinstance(column, np.ndarray):
        return column.nbytes
    return sum(
        _OBJECT + (len(value) if isinstance(value, str) else value.nbytes)
        for value in column
    )
