"""What a check can end with besides success: `Broken` or `Skipped`, and their texts."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from envkit.specs.validation import describe
from envkit.types import Array

__all__ = ["Broken", "Skipped", "broken", "is_short", "name_of", "raised", "show"]

_NAMES = {0: "FIRST", 1: "MID", 2: "LAST"}

# Frames of these are not the environment's.
_CONTRACT = Path(__file__).parent
_HELPERS = (_CONTRACT.parent / "checks.py", Path(functools.__file__))


class Broken(Exception):
    """An environment does not keep the promise that was looked at."""


class Skipped(Exception):
    """A promise could not be looked at.

    Attributes:
        feature: What the environment would need to have for it, such as "seed"; empty
            if the check simply does not concern it.
    """

    def __init__(self, reason: str, feature: str = "") -> None:
        """Keeps the reason, for the report."""
        super().__init__(reason)
        self.feature = feature


def broken(problem: str, facts: Sequence[tuple[str, str]], advice: str) -> Broken:
    """Builds a `Broken` of three paragraphs.

    Example:
        >>> facts = [("expected", "noon"), ("got", "one")]
        >>> print(broken("It was late.", facts, "Hurry."))
        It was late.
        <BLANKLINE>
          expected   noon
          got        one
        <BLANKLINE>
        Hurry.
    """
    width = max((len(label) for label, _ in facts), default=0) + 3
    lines = [f"  {label:<{width}}{fact}" for label, fact in facts]
    return Broken("\n".join([problem, "", *lines, "", advice]))


def show(value: Any) -> str:
    """Summarises a value in one line; a few elements are shown as they are.

    Example:
        >>> show(np.float32(0.5)), show(np.array([[2, 3]], np.int32))
        ('0.5 (float32)', '[[2, 3]] (int32)')
    """
    if isinstance(value, np.ndarray | np.generic) and is_short(value):
        return f"{_elements(np.asarray(value)):.100} ({value.dtype})"
    return describe(value)


def is_short(array: Array | np.generic) -> bool:
    """Says whether `show` writes out every element."""
    return array.size <= 4


def _elements(array: Array) -> str:
    if array.dtype.hasobject:
        return repr(array.tolist())
    if array.ndim:
        return f"[{', '.join(map(_elements, array))}]"
    return str(array) if array.dtype.kind in "biufc" else repr(array.item())


def name_of(step_type: Any) -> str:
    """Returns the name of a step type; a number that is none is its own name."""
    return _NAMES.get(int(step_type), str(step_type))


def raised(error: Exception, call: str = "") -> Broken:
    """Builds the `Broken` for an exception that nobody expected.

    `call` names what was called, where the traceback would not tell.
    """
    entered, where = _places(error)
    subject = call or (f"{entered}()" if entered else "The environment")
    lines = str(error).splitlines() or [""]
    problem = f"{subject} raised {type(error).__name__}: {lines[0]}".rstrip(": ")
    rest = "\n".join(lines[1:]).strip("\n")
    paragraphs = [problem, rest, f"It was raised in {where}." if where else ""]
    return Broken("\n\n".join(filter(None, paragraphs)))


def _places(error: Exception) -> tuple[str, str]:
    """Finds which function the checks called, and where it went wrong in the end."""
    entered = ""
    last: tuple[FrameType, int] | None = None
    step = error.__traceback__
    while step is not None:
        frame = step.tb_frame
        if not _is_ours(frame):
            entered = entered or frame.f_code.co_name
            last = frame, step.tb_lineno
        step = step.tb_next
    if last is None:
        return "", ""
    code = last[0].f_code
    return entered, f"{Path(code.co_filename).name}, line {last[1]}, in {code.co_name}"


def _is_ours(frame: FrameType) -> bool:
    path = Path(frame.f_code.co_filename)
    return path.parent == _CONTRACT or path in _HELPERS
