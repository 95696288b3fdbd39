"""`Journal`: the recent requests of every row, for replaying them.

It is a ring buffer with a place for each of the last requests of every row, found by
the request's number. A place with a different number is older, or the number was never
a request.
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
# An entry is the request's number in the lower bits, then, from these bits up, its
# command and its autoreset order.
_COMMAND, _ORDER = 32, 36
_BITS = 15


class Moves(NamedTuple):
    """Requests of some rows, in the order in which they were made.

    Attributes:
        times: The time of each.
        rows: The row of each, counted from the first of the rows.
        numbers: The number of each.
        commands: The command of each.
        orders: The autoreset order of each.
        actions: The actions, for each leaf.
    """

    times: Array
    rows: Array
    numbers: Array
    commands: Array
    orders: Array
    actions: tuple[Array, ...]


class Journal:
    """Records the last requests of every row.

    Attributes:
        time: The time of the next request; each request increases it.
        length: How many requests it keeps for each row.
    """

    def __init__(self, slab: Slab, least: int) -> None:
        """Makes an empty journal.

        Args:
            slab: The rows.
            least: The least number of requests to keep for each row.
        """
        # A power of two, so numbers that wrap around find the same places.
        self.length = length = 1 << least.bit_length()
        self.time = 0
        rows = slab.layout.rows
        self._slab, self._rows = slab, rows
        self._private = slab.private_actions
        self._mask = length - 1
        # A request of all rows is one entry for all; requests of some rows have entries
        # of their own.
        self._all_times = np.full(length, -1, np.int64)
        self._all_requests = np.zeros(length, np.int64)
        self._times = np.full((length, rows), -1, np.int64)
        self._requests = np.zeros((length, rows), np.int64)
        self._actions = [
            np.empty((length, *array.shape), array.dtype)
            for array in slab.action_columns()
        ]
        self._pairs = list(zip(self._actions, slab.action_columns(), strict=True))
        # The actions as bytes: the size of an entry, the ring and the source.
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
        """Continues another journal that has more or fewer rows."""
        self.time, places = other.time, np.arange(self.length)
        # Requests of all rows become requests of each, because this journal may have
        # further rows.
        for row in range(min(self._rows, other._rows)):
            requests, times = other._read(places, row)
            self._requests[:, row], self._times[:, row] = requests, times
            for mine, theirs in zip(self._actions, other._actions, strict=True):
                mine[:, row] = theirs[:, row]

    def numbers(self, rows: range) -> Array:
        """Returns the numbers of the last requests of some rows."""
        return self._slab.numbers[rows.start : rows.stop].copy()

    def write_all(self, command: int) -> bool:
        """Records a request of all rows, if their numbers agree.

        Returns:
            Whether they agree; if not, nothing was recorded.
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
        """Records a request of some rows, with their actions."""
        slab = self._slab
        numbers = slab.numbers[rows] + _TWO
        places = self._places(numbers)
        # Rebuilding includes a reset; a replayed environment is new already and needs
        # only the reset.
        plain = np.where(commands == REBUILD, RESET, commands).astype(np.int64)
        self._requests[places, rows] = (
            numbers | plain << _COMMAND | slab.autoreset << _ORDER
        )
        self._times[places, rows] = self.time
        for leaf, (ring, actions) in enumerate(self._pairs):
            column = actions[rows]
            # Copy objects, because the caller may change them.
            ring[places, rows] = (
                copy.deepcopy(column) if leaf in self._private else column
            )
        self.time += 1

    def _places(self, numbers: Array) -> Array:
        return ((numbers >> 1) & self._mask).astype(np.intp)

    def since(self, rows: Sequence[int], numbers: Array) -> Moves | None:
        """Returns the requests of rows after the given numbers.

        It returns `None` if some of them are gone already.
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
            # Other numbers were no requests: the pool itself moved the rows to them.
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
        """Returns a row's requests at some places, with their times."""
        times, requests = self._times[places, row], self._requests[places, row]
        of_all = self._all_times[places]
        # The later one counts: a request of the row alone, or of all rows.
        is_of_all = of_all > times
        return (
            np.where(is_of_all, self._all_requests[places], requests),
            np.where(is_of_all, of_all, times),
        )
