"""Checks of arguments that many constructors take: sizes, flags, numbers, dtypes."""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any

import numpy as np

from envkit.specs.validation import describe

__all__ = [
    "as_discount",
    "checked_flag",
    "checked_key",
    "checked_seconds",
    "checked_size",
    "is_number",
    "known_dtype",
    "limited_size",
]


def checked_size(name: str, size: Any, *, least: int = 1, hint: str = "") -> int:
    """Returns `size` if it is an integer of at least `least`, and raises otherwise.

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


def limited_size(
    name: str, size: Any, *, most: int, least: int = 1, hint: str = ""
) -> int:
    """Returns `size` if it is an integer from `least` to `most`, and raises otherwise.

    Example:
        >>> limited_size("width", 70_000, most=2**15)
        Traceback (most recent call last):
        ValueError: width must be an integer of at most 32768, got 70000.
    """
    number = checked_size(name, size, least=least, hint=hint)
    if number > most:
        raise ValueError(
            f"{name} must be an integer of at most {most}{hint}, got {size!r}."
        )
    return number


def checked_flag(name: str, value: Any) -> bool:
    """Returns whether `value` is true, if it is a boolean, and raises otherwise.

    The numbers 0 and 1 will do. Of other values the meaning is not known.

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


def checked_key(name: str, key: Any) -> str:
    """Returns `key` if it is a string, and raises otherwise.

    Example:
        >>> checked_key("render_key", 3)
        Traceback (most recent call last):
        TypeError: render_key must be a string, for it becomes a key of the observation, got 3 of type int.
    """  # noqa: E501  # a message is one line
    if not isinstance(key, str):
        raise TypeError(
            f"{name} must be a string, for it becomes a key of the observation, "
            f"got {describe(key)}."
        )
    return key


def checked_seconds(
    name: str,
    seconds: Any,
    *others: str,
    above_zero: bool = False,
    hint: str = "",
) -> float:
    """Returns `seconds` as a float, if it is a finite number that is not negative.

    Args:
        name: The name of the argument.
        seconds: The value.
        others: Other values that the argument may have, for the message.
        above_zero: Whether 0 is refused, too.
        hint: What the message adds to "a number of seconds".

    Raises:
        ValueError: It is none.

    Example:
        >>> checked_seconds("think_time", 1)
        1.0
        >>> checked_seconds("pause", "short", hint=", 0 for none")
        Traceback (most recent call last):
        ValueError: pause must be a number of seconds, 0 for none, got the string 'short'.
    """  # noqa: E501  # a message is one line
    is_real = isinstance(seconds, numbers.Real) and not isinstance(seconds, bool)
    if is_real and 0 <= seconds < math.inf and not (above_zero and seconds == 0):
        return float(seconds)
    allowed = "a positive number of seconds" if above_zero else "a number of seconds"
    if others:
        allowed = f"{', '.join(map(repr, others))} or {allowed}"
    raise ValueError(f"{name} must be {allowed}{hint}, got {describe(seconds)}.")


def known_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    """Returns what NumPy makes of `dtype`, and raises if it makes nothing of it.

    Example:
        >>> known_dtype("dtype", "float31")
        Traceback (most recent call last):
        TypeError: dtype must be a dtype of numbers or booleans, such as np.float32, got 'float31'.
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
        f"{name} must be a dtype of numbers or booleans, such as np.float32, got "
        f"{dtype!r:.80}."
    ) from problem


def is_number(value: Any) -> bool:
    """Returns True if a value is one finite number, of Python or NumPy.

    Example:
        >>> is_number(np.float32(0.5)), is_number(True), is_number("3")
        (True, False, False)
    """
    is_real = isinstance(value, int | float | np.integer | np.floating)
    return bool(
        is_real and not isinstance(value, bool) and -math.inf < value < math.inf
    )


def as_discount(discount: float) -> float:
    """Returns a discount as a number, if it is between 0 and 1, and raises otherwise.

    Example:
        >>> as_discount(1)
        1.0
    """
    number = float(discount)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"discount must be between 0 and 1, got {discount}.")
    return number
