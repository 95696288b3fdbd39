"""Independent random streams, one per row, drawn for many rows at once: `RowStreams`.

One `numpy.random.Generator` per row would cost one Python call per row. Here, a stream
is a key and a position, so drawing for hundreds of rows takes a handful of array
operations, and the state of thousands of streams is two arrays.

The numbers come from SplitMix64, a counter with scrambled output. A second word of the
row's key is mixed in, so streams differ even if their counters meet by chance.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.seeding import seed_words
from envkit.types import Array

__all__ = ["RowStreams", "drawn"]


def _word(value: int | np.uint64) -> Array:
    # Arrays without dimensions, because a Python number costs a conversion in each
    # operation; of this dtype, because NumPy turns uint64 with int64 into floats.
    word = np.array(value, np.uint64)
    word.setflags(write=False)
    return word


# The published increment and scrambler of SplitMix64.
_STEP = 0x9E3779B97F4A7C15
# As scalars for `drawn`, and as arrays for many rows at once.
_ONE_STEP = np.uint64(_STEP)
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_FIRST_FACTOR, _SECOND_FACTOR = map(_word, _FACTORS)
_FIRST_SHIFT, _SECOND_SHIFT, _THIRD_SHIFT, _TO_53_BITS = map(_word, _SHIFTS)
_UNIT = 2.0**-53


def drawn(position: Any, key: Any) -> tuple[Any, Any]:
    """Draws a float in [0, 1) from one stream, for kernels.

    Args:
        position: The position of the stream, a uint64.
        key: The key of the stream, a uint64.

    Returns:
        The new position of the stream, and the number.
    """
    # In plain Python, NumPy warns of each overflow, but counters overflow by design.
    position = position + _ONE_STEP
    word = position ^ (position >> _SHIFTS[0])
    word = word * _FACTORS[0]
    word = (word ^ (word >> _SHIFTS[1])) ^ key
    word = word * _FACTORS[1]
    word = (word ^ (word >> _SHIFTS[2])) >> _SHIFTS[3]
    return position, word * _UNIT


class RowStreams:
    """Holds one random stream per row; row `i` depends only on seed `i`.

    Every method takes indices of distinct rows, and advances only their streams. A
    row's draws do not depend on which other rows draw with it.

    Attributes:
        positions: The position of each stream. Together with `keys`, this is the state.
        keys: Distinguish streams at the same position.

    Example:
        >>> rows = np.arange(3)
        >>> three = RowStreams([1, 2, 3]).uniform(rows, 2)
        >>> bool((three[:, 1:2] == RowStreams([2]).uniform(np.array([0]), 2)).all())
        True
    """

    __slots__ = ("keys", "positions")

    def __init__(self, seeds: Sequence[int | None]) -> None:
        """Makes a stream for each seed; `None` uses fresh entropy."""
        words = np.empty((len(seeds), 2), np.uint64)
        if None in seeds:
            # Fresh entropy for all rows at once: asking for each row is slow.
            fresh = np.random.SeedSequence().generate_state(words.size, np.uint64)
            words[:] = fresh.reshape(words.shape)
        rows = [row for row, seed in enumerate(seeds) if seed is not None]
        words[rows] = seed_words([seed for seed in seeds if seed is not None], 2)
        self.positions: Array = words[:, 0].copy()
        self.keys: Array = words[:, 1].copy()

    def seed_rows(self, seeds: Sequence[int | None]) -> None:
        """Restarts the streams of some rows; rows whose seed is `None` continue."""
        fresh = RowStreams([0 if seed is None else seed for seed in seeds])
        rows = [row for row, seed in enumerate(seeds) if seed is not None]
        self.positions[rows] = fresh.positions[rows]
        self.keys[rows] = fresh.keys[rows]

    def uniform(self, rows: Array, count: int) -> Array:
        """Draws `count` floats in [0, 1) for each row.

        Returns:
            An array of shape `(count, len(rows))`: draws come first, so each draw is
            contiguous in memory.
        """
        numbers: Array = self._bits(rows, count) * _UNIT
        return numbers

    def integers(self, rows: Array, low: int | Array, high: int | Array) -> Array:
        """Draws one integer per row, including `low` and excluding `high`.

        The bounds are numbers, or arrays with one element per row. Ranges must be small
        compared with 2**53, so that no value is noticeably more likely.

        Example:
            >>> dice = RowStreams([7, 8]).integers(np.arange(2), 1, 7)
            >>> dice.shape, bool((dice >= 1).all() and (dice <= 6).all())
            ((2,), True)
        """
        share = self.uniform(rows, 1)[0]
        drawn: Array = (share * np.subtract(high, low)).astype(np.int64) + low
        return drawn

    def normal(self, rows: Array, count: int) -> Array:
        """Draws `count` normally distributed floats for each row; draws come first."""
        pairs = (count + 1) // 2
        share = self.uniform(rows, 2 * pairs)
        # Box-Muller: a point with uniform direction and exponentially distributed
        # squared length. 1 - share is never 0.
        length = np.sqrt(-2.0 * np.log1p(-share[:pairs]))
        angle = (2.0 * np.pi) * share[pairs:]
        both = np.concatenate([length * np.cos(angle), length * np.sin(angle)])
        return both[:count]

    def _bits(self, rows: Array, count: int) -> Array:
        """Draws `count` integers of 53 bits for each row; draws come first."""
        # Hot: called in every step in which an episode begins.
        ahead = _steps_ahead(count)
        words: Array = self.positions.take(rows) + ahead
        self.positions[rows] = words[-1]
        words ^= words >> _FIRST_SHIFT
        words *= _FIRST_FACTOR
        words ^= words >> _SECOND_SHIFT
        words ^= self.keys.take(rows)
        words *= _SECOND_FACTOR
        words ^= words >> _THIRD_SHIFT
        words >>= _TO_53_BITS
        return words


@functools.cache
def _steps_ahead(count: int) -> Array:
    """Returns how far positions advance for each of `count` draws, as a column."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_STEP)
    steps.setflags(write=False)
    return steps[:, np.newaxis]
