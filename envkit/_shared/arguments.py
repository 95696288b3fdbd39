"""Checks arguments that constructors in several rooms take."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from envkit.extend import checked_size, describe

__all__ = [
    "as_discount",
    "checked_key",
    "checked_seconds",
    "is_number",
    "known_dtype",
    "limited_size",
]


def as_discount(discount: float) -> float:
    """Returns a discount as a float; raises unless it is between 0 and 1.

    Example:
        >>> as_discount(1)
        1.0
    """
    number = float(discount)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"discount must be between 0 and 1, got {discount}.")
    return number


def checked_key(name: str, key: Any) -> str:
    """Returns `key`; raises unless it is a string.

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
    """Returns `seconds` as a float; raises unless it is finite and not negative.

    Args:
        name: The name of the argument.
        seconds: The value.
        others: Other allowed values, for the message.
        above_zero: Whether 0 is refused too.
        hint: A text that the message adds to "a number of seconds".

    Raises:
        ValueError: The value is not allowed.

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


def is_number(value: Any) -> bool:
    """Returns True if a value is one finite Python or NumPy number.

    Example:
        >>> is_number(np.float32(0.5)), is_number(True), is_number("3")
        (True, False, False)
    """
    is_real = isinstance(value, int | float | np.integer | np.floating)
    return bool(
        is_real and not isinstance(value, bool) and -math.inf < value < math.inf
    )


def known_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    """Returns the NumPy dtype for `dtype`; raises if there is none.

    Example:
        >>> known_dtype("dtype", "float31")
        Traceback (most recent call last):
        TypeError: dtype must be a dtype of numbers or booleans, such as np.float32, got 'float31'.
    """  # noqa: E501  # a message is one line
    problem: Exception | None = None
    try:
        # NumPy reads None as float64, and {} as a dtype without fields.
        if dtype is not None and dtype != {}:
            known: np.dtype[Any] = np.dtype(dtype)
            return known
    # NumPy's parsing raises many kinds of errors.
    except (TypeError, ValueError, KeyError, OverflowError, SyntaxError) as error:
        problem = error
    raise TypeError(
        f"{name} must be a dtype of numbers or booleans, such as np.float32, got "
        f"{dtype!r:.80}."
    ) from problem


def limited_size(
    name: str, size: Any, *, most: int, least: int = 1, hint: str = ""
) -> int:
    """Returns `size`; raises unless it is an integer from `least` to `most`.

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
