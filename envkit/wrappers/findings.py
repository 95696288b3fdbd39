"""Messages about broken promises, for `PassiveChecker` and `check_environment`.

A `Finding` carries the name of the check in `check_environment` that finds it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from envkit.extend import describe
from envkit.types import Array

__all__ = [
    "AUTO_RESET",
    "CHANGED_ACTION",
    "CONTINUES",
    "OVERWRITTEN",
    "Finding",
    "after_last",
    "bad_discount",
    "bad_reward",
    "first_with",
    "is_short",
    "name_of",
    "not_first",
    "paragraphs",
    "show",
    "too_early",
]

_NAMES = {0: "FIRST", 1: "MID", 2: "LAST"}
# Arrays of up to this many elements are written out.
_FEW = 4

AUTO_RESET = "PyEnvironment does so if you pass it handle_auto_reset=True."
# Advice for environments that return a LAST in every step.
CONTINUES = (
    "If each step is an episode of its own, as with bandits, declare it in the class: "
    "continues_after_last = True."
)
# The advice for `unchanged_actions` and `kept_results`.
CHANGED_ACTION = (
    "The action belongs to the caller, who may store it. Copy it before changing it: "
    "np.clip(action, low, high) makes a new array."
)
OVERWRITTEN = (
    "Callers keep time steps, in a replay buffer for instance, and would find later "
    "values in them. Return copies of arrays you write to again: self._state.copy()."
)
_IN_FIRST = {
    "reward": "No action has earned a reward yet; the last action's reward belongs to "
    "the LAST. envkit.restart(observation) sets it to 0.",
    "discount": "envkit.restart(observation) sets it to 1.",
}


class Finding(NamedTuple):
    """Describes a broken promise.

    Attributes:
        check: The name of the check of `check_environment`.
        text: The message: the problem, labelled facts, advice.
    """

    check: str
    text: str


def paragraphs(problem: str, advice: str, **facts: str) -> str:
    """Builds a message of three paragraphs: problem, labelled facts, advice.

    Example:
        >>> print(paragraphs("It was late.", "Hurry.", expected="noon", got="one"))
        It was late.
        <BLANKLINE>
          expected   noon
          got        one
        <BLANKLINE>
        Hurry.
    """
    width = max(map(len, facts)) + 3
    lines = [f"  {label:<{width}}{fact}" for label, fact in facts.items()]
    return "\n".join([problem, "", *lines, "", advice])


def not_first(call: str, got: str, at: str = "", note: str = "") -> Finding:
    """Describes a reset that returned a step type other than `FIRST`."""
    text = paragraphs(
        f"{call} returned {got}{at}.",
        f"An episode begins with envkit.restart(observation).{note}",
        expected="FIRST",
        got=got,
    )
    return Finding("reset", text)


def after_last(
    call: str,
    got: str,
    place: str,
    advice: str = "The step after LAST must begin the next episode and ignore its "
    f"action. {AUTO_RESET}",
) -> Finding:
    """Describes a step after `LAST` that began no episode."""
    text = paragraphs(
        f"{call} after LAST returned {got}, after {place}.",
        advice,
        expected="FIRST",
        got=got,
    )
    return Finding("step_after_last", text)


def too_early(
    call: str, was: str, place: str, row: int, ended: int | None = None
) -> Finding:
    """Describes a `FIRST` in a row whose episode had not ended.

    `ended` is another row, whose episode had.
    """
    advice = (
        "An episode must end with a LAST, or learners miss its end: return "
        "envkit.termination or envkit.truncation before the next FIRST."
        if ended is None
        else f"Row {ended} had ended, and row {row} had not: begin an episode only in "
        "the rows that ended."
    )
    text = paragraphs(
        f"{call} went from {was} to FIRST, after {place}.",
        advice,
        expected="MID or LAST",
        got="FIRST",
    )
    return Finding("grammar", text)


def first_with(
    call: str, part: str, value: int, path: str, got: Any, place: str
) -> Finding:
    """Describes a `FIRST` whose reward is not 0 or whose discount is not 1."""
    text = paragraphs(
        f"{call} returned a FIRST whose {part} is not {value}, in {place}.",
        _IN_FIRST[part],
        expected=f"{path} = {value}",
        got=f"{path} = {show(got)}",
    )
    return Finding(f"first_{part}", text)


def bad_discount(call: str, path: str, got: Any, place: str) -> Finding:
    """Describes a discount below 0 or above 1."""
    text = paragraphs(
        f"{call} returned a discount that is not between 0 and 1, in {place}.",
        "It is the weight of later rewards: 0 after a termination, otherwise usually "
        "1. To allow other values, declare them in discount_spec().",
        expected=f"0 <= {path} <= 1",
        got=f"{path} = {show(got)}",
    )
    return Finding("discount", text)


def bad_reward(call: str, path: str, got: Any, place: str) -> Finding:
    """Describes a reward that is NaN or infinite."""
    text = paragraphs(
        f"{call} returned a reward that is not finite, in {place}.",
        "It spoils every sum, mean and gradient computed from it. "
        "numpy.seterr(all='raise') shows where it comes from.",
        expected="a finite number",
        got=f"{path} = {show(got)}",
    )
    return Finding("reward", text)


def name_of(step_type: Any) -> str:
    """Returns the name of a step type; an unknown number stands for itself.

    Example:
        >>> name_of(np.int32(1)), name_of(7)
        ('MID', '7')
    """
    return _NAMES.get(int(step_type), str(step_type))


def show(value: Any) -> str:
    """Summarises a value in one line; short arrays are written out.

    Example:
        >>> show(np.float32(0.5)), show(np.array([[2, 3]], np.int32))
        ('0.5 (float32)', '[[2, 3]] (int32)')
    """
    if isinstance(value, np.ndarray | np.generic) and is_short(value):
        return f"{_elements(np.asarray(value)):.100} ({value.dtype})"
    return describe(value)


def is_short(array: Array | np.generic) -> bool:
    """Returns True if `show` writes out every element."""
    return array.size <= _FEW


def _elements(array: Array) -> str:
    if array.dtype.hasobject:
        return repr(array.tolist())
    if array.ndim:
        return f"[{', '.join(map(_elements, array))}]"
    return str(array) if array.dtype.kind in "biufc" else repr(array.item())
