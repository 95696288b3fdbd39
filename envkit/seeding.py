"""Derives one independent seed per environment from one seed."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit._internal.text import counted
from envkit.types import Array, ResetSeed

__all__ = [
    "checked_seeds",
    "derived_seed",
    "seed_per_row",
    "seed_words",
]

# NumPy's documentation of SeedSequence promises never to change these: the number of
# words in its pool, and its hash constants.
_POOL, _WORD, _LARGEST = 4, 32, 0xFFFFFFFF
_OF_POOL, _OF_OUTPUT = (0x43B0D7E5, 0x931E8875), (0x8B51F9DD, 0x58F38DED)
# For fewer seeds, NumPy's own objects are faster.
_MANY = 12
_LEFT, _RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)


def seed_per_row(seed: ResetSeed, rows: int) -> list[int | None]:
    """Returns a seed for each of `rows` environments.

    One integer gives every row its own stream. Row `i` gets the same one however many
    rows there are, so results do not depend on how rows are spread over workers. A
    sequence is used as it is and must have one seed per row. `None` gives every row
    fresh entropy.

    The derived seeds are distinct and below 2**32: `numpy.random.RandomState` and most
    simulators accept no more.

    Example:
        >>> seed_per_row(7, 3) == seed_per_row(7, 5)[:3]
        True
        >>> seed_per_row([4, 5], 2)
        [4, 5]
    """
    if seed is None:
        return [None] * rows
    if _is_sequence(seed):
        return checked_seeds(seed, rows)
    return _spawned(_as_seed(seed), rows)  # type: ignore[arg-type]  # it is not a sequence


def checked_seeds(seed: ResetSeed, rows: int) -> list[int | None]:
    """Returns seeds as a list: one seed for all, or one for each of `rows`.

    Example:
        >>> checked_seeds(7, 3), checked_seeds([4, 5], 2)
        ([7], [4, 5])
    """
    if _is_sequence(seed):
        return _given(seed, rows)  # type: ignore[arg-type]  # it is one
    return [None if seed is None else _as_seed(seed)]  # type: ignore[arg-type]  # it is not a sequence


def derived_seed(seed: Any, rebuilds: int) -> Any:
    """Derives the seed of an environment that replaces another."""
    if rebuilds == 0 or seed is None:
        return seed
    if isinstance(seed, list | tuple):
        return [derived_seed(part, rebuilds) for part in seed]
    return int(np.random.SeedSequence([seed, rebuilds]).generate_state(1)[0])


def _is_sequence(seed: Any) -> bool:
    return isinstance(seed, Sequence) or (
        isinstance(seed, np.ndarray) and seed.ndim == 1
    )


def _given(seeds: Sequence[int | None], rows: int) -> list[int | None]:
    if isinstance(seeds, str | bytes):
        raise TypeError(f"A seed is an integer, not {seeds!r}.")
    if len(seeds) != rows:
        come, wanted = counted(len(seeds), "seed"), counted(rows, "environment")
        raise ValueError(
            f"{come} for {wanted}. Pass one seed for each environment, or one integer "
            "from which each gets its own."
        )
    return [None if seed is None else _as_seed(seed) for seed in seeds]


def _as_seed(seed: int) -> int:
    try:
        number = operator.index(seed)
    except TypeError:
        raise TypeError(
            f"A seed is an integer, not {seed!r} of type {type(seed).__name__}."
        ) from None
    if number < 0:
        raise ValueError(f"A seed cannot be negative, and {number} is.")
    return number


def seed_words(seeds: Sequence[int], count: int) -> Array:
    """Returns the words that `numpy.random.SeedSequence` generates for many seeds.

    Args:
        seeds: The seeds, none of them negative.
        count: The number of 64-bit words for each.

    Example:
        >>> one = np.random.SeedSequence(7).generate_state(2, np.uint64)
        >>> bool((seed_words([5, 6, 7], 2)[2] == one).all())
        True
    """
    if len(seeds) < _MANY or any(seed >> _WORD * _POOL for seed in seeds):
        words: Array = np.empty((len(seeds), count), np.uint64)
        for row, seed in enumerate(seeds):
            words[row] = np.random.SeedSequence(seed).generate_state(count, np.uint64)
        return words
    mixer = _Mixer()
    pool = _pool_of(
        mixer,
        [
            np.array([seed >> _WORD * place & _LARGEST for seed in seeds], np.uint32)
            for place in range(_POOL)
        ],
    )
    mixer = _Mixer(*_OF_OUTPUT)
    halves = [mixer.hashed(pool[place % _POOL]) for place in range(2 * count)]
    low, high = (np.stack(halves[first::2], 1).astype(np.uint64) for first in (0, 1))
    words = low | high << np.uint64(_WORD)
    return words


def _spawned(seed: int, rows: int) -> list[int | None]:
    """Returns the first word of each child of `numpy.random.SeedSequence(seed)`.

    NumPy makes one object per child. Children differ only in the last word that is
    mixed in, so here one column goes through the same arithmetic, a hundred times as
    fast. The mixing is one-to-one in that word, so no two seeds are equal.
    """
    mixer = _Mixer()
    count = max(_POOL, -(-seed.bit_length() // _WORD))
    words = [
        np.full(1, seed >> _WORD * place & _LARGEST, np.uint32)
        for place in range(count)
    ]
    pool = _pool_of(mixer, words[:_POOL])
    for word in [*words[_POOL:], np.arange(rows, dtype=np.uint32)]:
        pool = [_mixed(part, mixer.hashed(word)) for part in pool]
    return _Mixer(*_OF_OUTPUT).hashed(pool[0]).tolist()  # type: ignore[no-any-return]  # of integers


class _Mixer:
    """Hashes words, each with the next constants of a series."""

    def __init__(self, constant: int = _OF_POOL[0], factor: int = _OF_POOL[1]) -> None:
        self._constant, self._factor = constant, factor

    def hashed(self, words: Array) -> Array:
        words = words ^ np.uint32(self._constant)
        self._constant = self._constant * self._factor & _LARGEST
        return _folded(words * np.uint32(self._constant))


def _pool_of(mixer: _Mixer, words: Sequence[Array]) -> list[Array]:
    """Returns the pool for the first words of entropy."""
    pool = [mixer.hashed(word) for word in words]
    for source in range(_POOL):
        for target in range(_POOL):
            if source != target:
                pool[target] = _mixed(pool[target], mixer.hashed(pool[source]))
    return pool


def _mixed(one: Array, other: Array) -> Array:
    return _folded(_LEFT * one - _RIGHT * other)


def _folded(words: Array) -> Array:
    folded: Array = words ^ (words >> np.uint32(16))
    return folded
