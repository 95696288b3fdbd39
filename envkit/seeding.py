"""Derives one independent seed per environment from one seed for all."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.text import counted
from envkit.types import ResetSeed

__all__ = ["checked_seeds", "derived_seed", "seed_per_row"]


def seed_per_row(seed: ResetSeed, rows: int) -> list[int | None]:
    """Returns a seed for each of `rows` environments.

    One integer gives every row a stream of its own, the same for row `i` however many
    rows there are, so results do not depend on how rows are spread over workers. A
    sequence is used as it is and must have one seed per row. `None` leaves every row
    to fresh entropy.

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
    """Returns what was given as a list: one seed for all, or one for each of `rows`.

    Example:
        >>> checked_seeds(7, 3), checked_seeds([4, 5], 2)
        ([7], [4, 5])
    """
    if _is_sequence(seed):
        return _given(seed, rows)  # type: ignore[arg-type]  # it is one
    return [None if seed is None else _as_seed(seed)]  # type: ignore[arg-type]  # it is not a sequence


def derived_seed(seed: Any, rebuilds: int) -> Any:
    """Derives what to seed an environment with that replaces another."""
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


def _spawned(seed: int, rows: int) -> list[int | None]:
    # The children differ in the last word of their entropy alone, and NumPy's hash is
    # one-to-one in that word, so no two of these are equal.
    children = np.random.SeedSequence(seed).spawn(rows)
    return [int(child.generate_state(1)[0]) for child in children]
