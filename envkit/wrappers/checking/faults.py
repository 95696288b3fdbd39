"""How `PassiveChecker` says what it has found: errors, warnings, and their words."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from envkit.errors import SpecError
from envkit.specs.validation import describe
from envkit.types import Array

__all__ = [
    "EnvironmentWarning",
    "fault",
    "name_of",
    "same_values",
    "show",
    "unlike",
    "warn_of",
]

_NAMES = {0: "FIRST", 1: "MID", 2: "LAST"}
# How many elements are written out.
_FEW = 4


class EnvironmentWarning(UserWarning):
    """Something about an environment is allowed, and most likely not meant."""


def fault(problem: str, facts: Sequence[tuple[str, str]], advice: str) -> SpecError:
    """Builds the error for a broken promise: what, expected and got, what to do.

    Example:
        >>> facts = [("expected", "noon"), ("got", "one")]
        >>> print(fault("It was late.", facts, "Hurry."))
        It was late.
        <BLANKLINE>
          expected   noon
          got        one
        <BLANKLINE>
        Hurry.
    """
    width = max(len(label) for label, _ in facts) + 3
    lines = "\n".join(f"  {label:<{width}}{fact}" for label, fact in facts)
    return SpecError(f"{problem}\n\n{lines}\n\n{advice}")


def warn_of(text: str) -> None:
    """Warns the one who called the environment, wherever that was."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and _is_ours(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, EnvironmentWarning, stacklevel=level)


def _is_ours(module: str) -> bool:
    return module == "envkit" or module.startswith("envkit.")


def name_of(step_type: Any) -> str:
    """Returns the name of a step type; a number that is none is its own name.

    Example:
        >>> name_of(np.int32(1)), name_of(7)
        ('MID', '7')
    """
    return _NAMES.get(int(step_type), str(step_type))


def show(value: Any) -> str:
    """Summarises a value in one line; a few elements are shown as they are.

    Example:
        >>> show(np.array([0.5, 2.0], np.float32)), show(np.zeros(9))
        ('[0.5, 2.0] (float32)', 'array of shape (9,), dtype float64, values 0.0 … 0.0')
    """
    array = np.asarray(value)
    if array.size > _FEW or array.dtype.hasobject:
        return describe(value)
    return f"{_elements(array):.100} ({array.dtype})"


def _elements(array: Array) -> str:
    if array.ndim:
        return f"[{', '.join(map(_elements, array))}]"
    return str(array)


def same_values(first: Array, second: Array) -> bool:
    """Says whether two arrays of one dtype hold the same; NaN equals NaN.

    Of objects nothing is known, so they count as the same.
    """
    if first.dtype.hasobject:
        return True
    if np.array_equal(first, second):
        return True
    return first.dtype.kind in "fc" and np.array_equal(first, second, equal_nan=True)


def unlike(first: Array, second: Array) -> tuple[str, str]:
    """Says in what two arrays of one shape and dtype differ first.

    Example:
        >>> unlike(np.array([0, 1, 2]), np.array([0, 1, 5]))
        ('2 at index (2,)', '5 at index (2,)')
    """
    if first.ndim == 0:
        return str(first), str(second)
    differs = (first != second) & ((first == first) | (second == second))
    index = tuple(int(i) for i in np.argwhere(differs)[0])
    return f"{first[index]!s} at index {index}", f"{second[index]!s} at index {index}"
