"""Chooses between arrays row by row; a single environment is a row without an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.types import Array

__all__ = ["beside", "complete", "where_rows"]


def beside(per_row: Any, leaf: Any) -> Array:
    """Reshapes an array of one element per row so that it broadcasts with `leaf`.

    Example:
        >>> beside(np.array([1, 2]), np.zeros((2, 5, 3))).shape
        (2, 1, 1)
        >>> beside(np.array(1), np.zeros((5, 3))).shape
        (1, 1)
    """
    per_row = np.asarray(per_row)
    missing = np.ndim(leaf) - per_row.ndim
    array: Array = per_row.reshape(per_row.shape + (1,) * missing)
    return array


def complete(env: Any, last: Array) -> Array:
    """Returns the rows of a `LAST` that an environment has returned.

    The others stand for an environment that was lost. Ask only if `may_lose`, because
    asking takes a while.

    Args:
        env: The environment that has returned the time step.
        last: A mask of the rows whose time step is a `LAST`.
    """
    if not last.any():
        return last
    return np.asarray(last & ~env.repaired)


def where_rows(rows: Any, chosen: Any, other: Any) -> Array:
    """Takes the rows where `rows` is true from one array, the others from another.

    Example:
        >>> where_rows(np.array([True, False]), np.ones((2, 2)), np.zeros((2, 2)))
        array([[1., 1.],
               [0., 0.]])
        >>> where_rows(np.array(True), np.ones(2), np.zeros(2))
        array([1., 1.])
    """
    # `chosen` may be one row for all.
    larger = chosen if np.ndim(chosen) >= np.ndim(other) else other
    picked: Array = np.where(beside(rows, larger), chosen, other)
    # The result has native byte order, whatever the inputs had.
    dtype = getattr(chosen, "dtype", None)
    if dtype is not None and dtype == getattr(other, "dtype", None):
        return picked.astype(dtype, copy=False)
    return picked
