"""`RowStates`: which rows of an asynchronous pool owe an answer, and which may act."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from envkit.env_ids import check_env_ids
from envkit.errors import CallOrderError
from envkit.types import Array
from envkit.wording import counted, listed

__all__ = ["NEW", "OVER", "RowStates"]

# What a row is at: in an episode, at the end of one, busy, or before the first.
_GOING, OVER, _OWING, NEW = range(4)


class RowStates:
    """Knows what each row is at.

    Attributes:
        owing: How many rows owe an answer.
        new: How many rows have not been asked anything.
    """

    def __init__(self, rows: int) -> None:
        """Begins with rows that nobody has asked anything."""
        self._rows = rows
        self._states = np.full(rows, NEW, np.uint8)
        self._everyone = np.arange(rows)
        self.owing = 0
        self.new = rows
        # The rows that were told last: as they were told, and as EnvPool takes them.
        self._told = b""
        self._told_rows = np.zeros(0, np.int32)

    @property
    def owing_mask(self) -> Array:
        """Which rows owe an answer."""
        mask: Array = self._states == _OWING
        return mask

    def of(self, rows: Array, call: str) -> Array | None:
        """Returns what rows are at of which none owes an answer; `None` if all go on.

        Raises:
            CallOrderError: Some row owes an answer.
        """
        # Hot: called once per send.
        states: Array = self._states[rows]
        bits = states.tobytes()
        if not bits.strip(b"\0"):
            return None
        if _OWING in bits:
            late = rows[states == _OWING]
            one = late.size == 1
            raise CallOrderError(
                f"{call}() was called while {counted(late.size, 'environment')} "
                f"({listed(late)}) still {'owes' if one else 'owe'} an answer. Call "
                f"recv() until it returns {'it' if one else 'them'}."
            )
        return states

    def ask(self, rows: Array) -> None:
        """Notes that rows owe an answer."""
        if self.new:
            self.new -= int(np.count_nonzero(self._states[rows] == NEW))
        self._states[rows] = _OWING
        self.owing += rows.size

    def answer(self, rows: Array, ended: Array | None) -> Array:
        """Notes what rows have answered, and returns their numbers for whoever asked.

        Args:
            rows: The rows, as EnvPool has them.
            ended: Which of them have ended an episode; `None` if none has.
        """
        # Hot: called once per batch of any size.
        told: Array = rows.astype(np.intp)
        self._states[told] = _GOING if ended is None else ended.view(np.uint8)
        self.owing -= rows.size
        self._told, self._told_rows = told.tobytes(), rows
        return told

    def as_rows(self, env_ids: Sequence[int] | Array | None) -> tuple[Array, Array]:
        """Returns the numbers of rows that somebody names, and as EnvPool takes them.

        NumPy finds rows by numbers of its own kind soonest. EnvPool goes on reading
        the others, so these are not the caller's.
        """
        # Hot: called once per send. Most give back what they were told.
        if env_ids is None:
            return self._everyone, self._everyone.astype(np.int32)
        rows: Array = np.asarray(env_ids)
        if rows.dtype == np.intp and rows.tobytes() == self._told:
            return rows, self._told_rows
        check_env_ids(env_ids, rows, self._rows)
        return rows.astype(np.intp), rows.astype(np.int32)
