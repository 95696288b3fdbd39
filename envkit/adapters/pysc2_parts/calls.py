"""Actions as PySC2 has them, passed through as objects."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from envkit.adapters.pysc2_parts.functions import Functions
from envkit.types import RandomSource

__all__ = ["Calls", "as_pysc2", "unwrapped"]


class Calls:
    """Knows what an agent of PySC2 can be told to do.

    That is a `FunctionCall`, which is a pair of a function's number and a list of
    arguments; a message of the game; or a list of these, to do several things at once.

    Example:
        >>> calls = Calls(None)
        >>> calls.contains((331, [[0], [23, 38]])), calls.contains([(0, []), (0, [])])
        (True, True)
        >>> calls.contains(331)
        False
    """

    __slots__ = ("_functions",)

    def __init__(self, functions: Functions | None) -> None:
        """Takes what can be called; `None` if only messages are understood."""
        self._functions = functions

    def contains(self, value: Any) -> bool:
        """Says whether a value is such an action."""
        if isinstance(value, list):
            return all(map(_is_one, value))
        return _is_one(value)

    def sample(self, rng: RandomSource) -> Any:
        """Draws a call of any function; an empty list where there are none."""
        return [] if self._functions is None else self._functions.sample(rng)

    def __repr__(self) -> str:
        functions = None if self._functions is None else len(self._functions.functions)
        return f"Calls({functions})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Calls) and self._functions == other._functions

    def __hash__(self) -> int:
        return hash(repr(self))


def _is_one(value: Any) -> bool:
    return _is_call(value) or hasattr(value, "SerializeToString")


def _is_call(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], numbers.Integral)
    )


def unwrapped(action: Any) -> Any:
    """Returns what an `ObjectSpec` has put into an array; anything else as it is."""
    if isinstance(action, np.ndarray) and action.shape == () and action.dtype == object:
        return action[()]
    return action


def as_pysc2(value: Any, make_call: Callable[[int, Any], Any]) -> Any:
    """Makes PySC2's own calls of pairs.

    Args:
        value: What `Calls` contains.
        make_call: PySC2's `FunctionCall`.
    """
    if isinstance(value, list):
        return [as_pysc2(item, make_call) for item in value]
    return make_call(*value) if _is_call(value) else value
