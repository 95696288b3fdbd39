"""Numbers that commands take, each with its limits."""

from __future__ import annotations

import argparse
from collections.abc import Callable

__all__ = ["at_least_one", "number_within"]


def at_least_one(text: str) -> int:
    """Reads a count."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 1")
    return int(text)


def number_within(
    most: float, what: str, *, zero: bool = False
) -> Callable[[str], float]:
    """Returns what reads a number above 0.

    Args:
        most: The largest that will do.
        what: What it is to be, for the message.
        zero: Whether 0 will do, too.
    """

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if 0.0 < number <= most or (zero and number == 0.0):
            return number
        raise argparse.ArgumentTypeError(f"{text!r} is no {what}")

    return read
