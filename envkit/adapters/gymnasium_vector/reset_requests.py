"""What a reset of a vector environment is asked: which rows to begin, which seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from envkit.specs.validation import describe
from envkit.types import Array
from envkit.wording import counted

__all__ = ["as_reset_mask", "as_reset_seeds"]


def as_reset_mask(mask: Any, rows: int) -> Array:
    """Checks the mask of the rows to begin.

    Raises:
        TypeError: It is no array of booleans.
        ValueError: It is not one for each row, or true nowhere.
    """
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        raise TypeError(
            f"reset_mask is {describe(mask)}; it is a boolean array with one element "
            "for each row."
        )
    if mask.shape != (rows,) or not mask.any():
        what = "true nowhere" if mask.shape == (rows,) else describe(mask)
        raise ValueError(
            f"reset_mask is {what}; it is a boolean array of shape ({rows},) and true "
            "for the rows to begin."
        )
    return mask


def as_reset_seeds(seed: Any, rows: int) -> list[int | None]:
    """Returns a seed for each row, as Gymnasium's vector environments have them.

    Example:
        >>> as_reset_seeds(7, 3), as_reset_seeds([4, None], 2)
        ([7, 8, 9], [4, None])
    """
    if seed is None:
        return [None] * rows
    if isinstance(seed, int | np.integer):
        return [int(seed) + row for row in range(rows)]
    if len(seed) != rows:
        raise ValueError(
            f"{counted(len(seed), 'seed')} for {counted(rows, 'environment')}. Pass "
            "one seed for each environment, or one integer, to which each adds its "
            "number."
        )
    return [None if one is None else int(one) for one in seed]
