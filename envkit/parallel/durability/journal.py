"""`Journal`: the requests that rows were given of late, to be made once more if needed.

It is a ring with a place for each of the last requests of every row, found by the
number of the request. What stands there under another number is older, or of a number
that was never a request.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from envkit.parallel.slab import Slab, bytes_of, view_of
from envkit.parallel.slab_layout import REBUILD, RESET
from envkit.types import Array

__all__ = ["Journal", "Moves"]

_LARGEST = 2**32 - 1
_TWO = np.uint32(2)
# A request is kept as its number, in these bits; its command; and the order of resets.
_COMMAND, _ORDER = 32, 36
_BITS = 15


class Moves(NamedTuple):
    """Requests of some rows, in the order in which they were made.

    Attributes:
        times: When each was made.
        rows: Whose it was, counted from the first of the rows.
        numbers: Its number.
        commands: What was asked.
        orders: The order of resets under which it was.
        actions: For each leaf, the action.
    """

    times: Array
    rows: Array
    numbers: Array
    commands: Array
    orders: Array
    actions: tuple[Array, ...]


class Journal:
    """Keeps the last requests of every row.

    Attributes:
        time: The time of the next request; it grows with each.
        length: How many requests of each row are kept.
    """

    def __init__(self, slab: Slab, least: int) -> None:
        """Takes the rows of a pool.

        Args:
            slab: The rows.
            least: How many requests of each row must be kept at least.
        """
        # Numbers that begin anew find the same places, because it is a power of two.
        self.length = length = 1 << least.bit_length()
        self.time = 0
        rows = slab.layout.rows
        self._slab, self._rows = slab, rows
        self._private = slab.private_actions
        self._mask = length - 1
        # Requests of all rows together stand in one line for all, of single rows apart.
        self._all_times = np.full(length, -1, np.int64)
        self._all_requests = np.zeros(length, np.int64)
        self._times = np.full((length, rows), -1, np.int64)
        self._requests = np.zeros((length, rows), np.int64)
        self._actions = [
            np.empty((length, *array.shape), array.dtype)
            for array in slab.action_columns()
        ]
        self._pairs = list(zip(self._actions, slab.action_columns(), strict=True))
        # The same as bytes: with the size of a line, where it goes and where it is.
        self._lines = [
            (array.nbytes, bytes_of(ring), bytes_of(array))
            for ring, array in self._pairs
            if array.nbytes and not self._private
        ]
        self._time_views = view_of(self._all_times)
        self._request_views = view_of(self._all_requests)
        self._sequence = slab.words.numbers
        self._sequence_bytes = bytes_of(slab.numbers)
        self._order = slab.order

    def adopt(self, other: Journal) -> None:
        """Continues another journal, of rows of which this one has some or more."""
        self.time, places = other.time, np.arange(self.length)
        # Requests of all rows become those of each: here there may be further rows.
        for row in range(min(self._rows, other._rows)):
            requests, times = other._read(places, row)
            self._requests[:, row], self._times[:, row] = requests, times
            for mine, theirs in zip(self._actions, other._actions, strict=True):
                mine[:, row] = theirs[:, row]

    def numbers(self, rows: range) -> Array:
        """Returns the numbers of the last requests of some rows."""
        return self._slab.numbers[rows.start : rows.stop].copy()

    def write_all(self, command: int) -> bool:
        """Writes down what all rows are about to be asked, if their numbers agree.

        Returns:
            Whether they do; if not, nothing has been written.
        """
        # Hot: called once per batch step.
        number = self._sequence[0]
        same = number.to_bytes(4, sys.byteorder) * self._rows
        if self._private or self._sequence_bytes.tobytes() != same:
            return False
        number = number + 2 & _LARGEST
        place = number >> 1 & self._mask
        self._request_views[place] = (
            number | command << _COMMAND | self._order[0] << _ORDER
        )
        self._time_views[place] = self.time
        for size, ring, actions in self._lines:
            ring[place * size : (place + 1) * size] = actions
        self.time += 1
        return True

    def write(self, rows: Array, commands: Array) -> None:
        """Writes down what rows are about to be asked, with their actions."""
        slab = self._slab
        numbers = slab.numbers[rows] + _TWO
        places = self._places(numbers)
        # A new environment is reset, and so will be the one that stands in for it.
        plain = np.where(commands == REBUILD, RESET, commands).astype(np.int64)
        self._requests[places, rows] = (
            numbers | plain << _COMMAND | slab.autoreset << _ORDER
        )
        self._times[places, rows] = self.time
        for leaf, (ring, actions) in enumerate(self._pairs):
            column = actions[rows]
            # Arrays of objects hold what the caller may change.
            ring[places, rows] = (
                copy.deepcopy(column) if leaf in self._private else column
            )
        self.time += 1

    def _places(self, numbers: Array) -> Array:
        return ((numbers >> 1) & self._mask).astype(np.intp)

    def since(self, rows: Sequence[int], numbers: Array) -> Moves | None:
        """Returns what rows were asked after the requests of some numbers.

        `None` if that is not all there any more.
        """
        found: list[tuple[Array, Array, Array, Array]] = []
        for index, row in enumerate(rows):
            span = (int(self._sequence[row]) - int(numbers[index]) & _LARGEST) >> 1
            if span > self.length:
                return None
            steps = np.arange(1, span + 1, dtype=np.int64) * 2
            asked = (int(numbers[index]) + steps & _LARGEST).astype(np.uint32)
            places = self._places(asked)
            requests, times = self._read(places, row)
            # The pool has moved rows to the other numbers without a request.
            is_request = requests & _LARGEST == asked
            places = places[is_request]
            owners = np.full(len(places), row)
            found.append((times[is_request], owners, places, requests[is_request]))
        times, owners, places, requests = map(np.concatenate, zip(*found, strict=True))
        order = np.lexsort((owners, times))
        owners, places, requests = owners[order], places[order], requests[order]
        return Moves(
            times[order],
            (owners - rows[0]).astype(np.int64),
            (requests & _LARGEST).astype(np.uint32),
            (requests >> _COMMAND & _BITS).astype(np.uint8),
            (requests >> _ORDER).astype(np.uint8),
            tuple(ring[places, owners] for ring in self._actions),
        )

    def _read(self, places: Array, row: int) -> tuple[Array, Array]:
        """Returns the requests of a row at some places, and their times."""
        times, requests = self._times[places, row], self._requests[places, row]
        of_all = self._all_times[places]
        # The later request has taken the place: one of the row alone, or of all rows.
        is_of_all = of_all > times
        return (
            np.where(is_of_all, self._all_requests[places], requests),
            np.where(is_of_all, of_all, times),
        )
