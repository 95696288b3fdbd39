"""Checks arguments that many constructors take: sizes, flags, numbers, dtypes."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from envkit.specs.validation import describe

__all__ = [
    "checked_flag",
    "checked_size",
]


def checked_size(name: str, size: Any, *, least: int = 1, hint: str = "") -> int:
    """Returns `size` if it is an integer of at least `least`; raises otherwise.

    Example:
        >>> checked_size("rows", 0)
        Traceback (most recent call last):
        ValueError: rows must be an integer of at least 1, got 0.
    """
    try:
        number = None if isinstance(size, bool) else operator.index(size)
    except TypeError:
        number = None
    if number is None or number < least:
        raise ValueError(
            f"{name} must be an integer of at least {least}{hint}, got {size!r}."
        )
    return number


def checked_flag(name: str, value: Any) -> bool:
    """Returns `value` as a boolean; raises for anything but a boolean, 0 or 1.

    Other values have no clear meaning.

    Example:
        >>> checked_flag("frozen", np.True_)
        True
        >>> checked_flag("frozen", "no")
        Traceback (most recent call last):
        TypeError: frozen must be True or False, got the string 'no'.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer) and value in (0, 1):
        return bool(value)
    raise TypeError(f"{name} must be True or False, got {describe(value)}.")
