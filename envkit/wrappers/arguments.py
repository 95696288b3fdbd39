"""What the constructors of several wrappers ask of their arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from envkit.envs.base import checked_size
from envkit.specs.validation import describe

__all__ = ["checked_flag", "checked_key", "is_number", "known_dtype", "limited_size"]


def limited_size(
    name: str, size: Any, *, most: int, least: int = 1, hint: str = ""
) -> int:
    """Returns `size` if it is an integer from `least` to `most`, and raises otherwise.

    Example:
        >>> limited_size("width", 70_000, most=2**15)
        Traceback (most recent call last):
        ValueError: width is 70000; it must be an integer of at most 32768.
    """
    number = checked_size(name, size, least=least, hint=hint)
    if number > most:
        raise ValueError(
            f"{name} is {size!r}; it must be an integer of at most {most}{hint}."
        )
    return number


def checked_flag(name: str, value: Any) -> bool:
    """Returns whether `value` is true, if it is a boolean, and raises otherwise.

    Numbers 0 and 1 will do. Of anything else nobody knows what was meant.

    Example:
        >>> checked_flag("frozen", np.True_)
        True
        >>> checked_flag("frozen", "no")
        Traceback (most recent call last):
        TypeError: frozen is the string 'no'; it must be True or False.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer) and value in (0, 1):
        return bool(value)
    raise TypeError(f"{name} is {describe(value)}; it must be True or False.")


def checked_key(name: str, key: Any) -> str:
    """Returns `key` if it is a string, and raises otherwise.

    Example:
        >>> checked_key("render_key", 3)
        Traceback (most recent call last):
        TypeError: render_key is 3 of type int; it must be a string, for it becomes a key of the observation.
    """  # noqa: E501  # a message is one line
    if not isinstance(key, str):
        raise TypeError(
            f"{name} is {describe(key)}; it must be a string, for it becomes a key of "
            "the observation."
        )
    return key


def known_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    """Returns what NumPy makes of `dtype`, and raises if it makes nothing of it.

    Example:
        >>> known_dtype("dtype", "float31")
        Traceback (most recent call last):
        TypeError: dtype is 'float31', which NumPy does not know as a dtype. It must be one of numbers or booleans, such as np.float32.
    """  # noqa: E501  # a message is one line
    problem: Exception | None = None
    try:
        # NumPy takes None for float64, and {} for a dtype of no fields.
        if dtype is not None and dtype != {}:
            known: np.dtype[Any] = np.dtype(dtype)
            return known
    # What it parses raises many things.
    except (TypeError, ValueError, KeyError, OverflowError, SyntaxError) as error:
        problem = error
    raise TypeError(
        f"{name} is {dtype!r:.80}, which NumPy does not know as a dtype. It must be "
        "one of numbers or booleans, such as np.float32."
    ) from problem


def is_number(value: Any) -> bool:
    """Says whether a value is one finite number, of Python or NumPy.

    Example:
        >>> is_number(np.float32(0.5)), is_number(True), is_number("3")
        (True, False, False)
    """
    is_real = isinstance(value, int | float | np.integer | np.floating)
    return bool(
        is_real and not isinstance(value, bool) and -math.inf < value < math.inf
    )
