"""`Column`: values of one leaf, time step after time step, packed into few arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.types import Array

__all__ = ["Column"]

# Python's own share of a string or an array, about.
_OBJECT = 112
# A block grows with its column up to so many bytes; values that are larger have their
# own.
_FIRST_VALUES, _LARGEST_BLOCK = 8, 2**18


class Column:
    """Collects values, and copies them: what they were parts of can go.

    Example:
        >>> column = Column()
        >>> taken = [column.add(np.float32(value)) for value in range(20)]
        >>> [block.tolist() for block in column.blocks()][1]
        [8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0]
        >>> len(column), sum(taken)
        (20, 464)
    """

    def __init__(self) -> None:
        """Begins with nothing."""
        self._full: list[Array] = []
        self._block: Array | None = None
        self._used = 0
        self._length = 0
        self.lines: list[str] = []

    def __len__(self) -> int:
        return self._length + len(self.lines)

    def add(self, value: Any) -> int:
        """Adds an array or a line; returns by how many bytes it has grown."""
        # Hot: called once per row, step and column.
        if isinstance(value, str):
            self.lines.append(value)
            return len(value) + _OBJECT
        grown = 0
        block = self._block
        if (
            block is None
            or self._used == len(block)
            or value.dtype != block.dtype
            or value.shape != block.shape[1:]
        ):
            block, grown = self._next(value)
        block[self._used] = value
        self._used += 1
        self._length += 1
        return grown

    def _next(self, value: Any) -> tuple[Array, int]:
        if self._block is not None:
            self._full.append(self._block[: self._used])
        most = _LARGEST_BLOCK // max(1, value.nbytes)
        length = max(1, min(max(_FIRST_VALUES, self._length), most))
        self._block = np.empty((length, *value.shape), value.dtype)
        self._used = 0
        return self._block, self._block.nbytes + _OBJECT

    def blocks(self) -> list[Array]:
        """Returns the arrays, each with an element for each value."""
        if self._block is None:
            return []
        return [*self._full, self._block[: self._used]]
