"""The actions of a PySC2 agent: functions and their arguments.

A structured action is a dictionary with a function's number and every argument that any
function takes. The function uses those it needs; the others are ignored.

```
PySC2                                      envkit, bounded integers
function 331, "Move_screen"                "function": from 0 to 572
screen, a point                            "screen": [x, y]
queued, one of two                         "queued": 0 or 1
unit_tags, up to 30 of the units           "unit_tags": indices in `raw_units`, and
                                           "unit_tags_length": how many of them count
```
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from envkit.extend import listed
from envkit.specs.arrays import ArraySpec, BoundedArraySpec
from envkit.types import Array, RandomSource

__all__ = ["Calls", "Function", "Functions", "as_pysc2", "functions_of", "unwrapped"]

_FUNCTION = "function"
_UNITS = "unit_tags"
_UNIT = "target_unit_tag"
_COUNT = f"{_UNITS}_length"
# At most this many legal functions are named in an error; there are hardly ever more.
_NAMED = 40


class Function(NamedTuple):
    """Describes one function of an agent.

    Attributes:
        name: PySC2's name for it.
        arguments: The names of its arguments, in order.
    """

    name: str
    arguments: tuple[str, ...]


class Functions(NamedTuple):
    """Describes all functions of an agent, without needing PySC2's own objects.

    Attributes:
        functions: The functions; a function's index is its number.
        sizes: The number of values of each argument, in each of its dimensions.
        units: The number of units that observations have room for, if units are
            arguments.
    """

    functions: tuple[Function, ...]
    sizes: dict[str, tuple[int, ...]]
    units: int = 0

    def spec(self) -> dict[str, ArraySpec]:
        """Returns the specs of a structured action."""
        specs = {_FUNCTION: _up_to([len(self.functions)])}
        for name, sizes in self.sizes.items():
            if name == _UNITS:
                most = sizes[0]
                specs[name] = BoundedArraySpec((most,), np.int32, 0, self.units - 1)
                specs[_COUNT] = BoundedArraySpec((), np.int32, 1, most)
            else:
                specs[name] = _up_to([self.units] if name == _UNIT else sizes)
        return {name: spec.replace(name=name) for name, spec in specs.items()}

    def call(self, action: Mapping[str, Array]) -> tuple[int, list[list[int]]]:
        """Returns the function's number and arguments for an action that fits.

        Example:
            >>> spots = Functions((Function("wait", ()), Function("go", ("at",))), {})
            >>> spots.call({"function": np.array(1), "at": np.array([3, 4])})
            (1, [[3, 4]])
        """
        number = int(action[_FUNCTION])
        arguments = []
        for name in self.functions[number].arguments:
            values = np.ravel(action[name]).tolist()
            count = int(action[_COUNT]) if name == _UNITS else len(values)
            arguments.append(values[:count])
        return number, arguments

    def named(self, number: int) -> str:
        """Returns a function's number and name in PySC2's notation."""
        return f"{number}/{self.functions[number].name}"

    def refusal(self, number: int, legal: Collection[int]) -> str:
        """Returns the error message for a function that is not available now."""
        names = listed([self.named(int(other)) for other in sorted(legal)], most=_NAMED)
        return (
            f"Function {self.named(number)} cannot be called now. The available ones "
            f"are {names}. Choose among them with the observation's "
            '"action_mask", or pass illegal="noop".'
        )

    def sample(self, rng: RandomSource) -> tuple[int, list[list[int]]]:
        """Draws a call of any function, with any of its arguments."""
        number = _below(rng, len(self.functions))
        arguments = []
        for name in self.functions[number].arguments:
            sizes = self.sizes[name]
            if name in (_UNITS, _UNIT):
                sizes = (max(self.units, 1),)
            arguments.append([_below(rng, size) for size in sizes])
        return number, arguments


def functions_of(action_spec: Any, *, units: int = 0) -> Functions | None:
    """Reads an agent's part of PySC2's `action_spec`.

    Args:
        action_spec: PySC2's `ValidActions`.
        units: The number of units that observations have room for.

    Returns:
        The functions; `None` for an agent that sends messages instead.
    """
    if not hasattr(action_spec, "functions"):
        return None
    return Functions(
        functions=tuple(
            Function(str(function.name), tuple(kind.name for kind in function.args))
            for function in action_spec.functions
        ),
        sizes={kind.name: tuple(map(int, kind.sizes)) for kind in action_spec.types},
        units=units,
    )


def _up_to(sizes: Collection[int]) -> BoundedArraySpec:
    highest = [size - 1 for size in sizes]
    if len(highest) == 1:
        return BoundedArraySpec((), np.int32, 0, highest[0])
    return BoundedArraySpec((len(highest),), np.int32, 0, highest)


def _below(rng: RandomSource, size: int) -> int:
    # Both kinds of NumPy generators have this method.
    return int(rng.random() * size)


class Calls:
    """Defines the actions that an agent of PySC2 accepts.

    An action is a `FunctionCall`, which is a pair of a function's number and a list of
    arguments; a message of the game; or a list of these, for several at once.

    Example:
        >>> calls = Calls(None)
        >>> calls.contains((331, [[0], [23, 38]])), calls.contains([(0, []), (0, [])])
        (True, True)
        >>> calls.contains(331)
        False
    """

    __slots__ = ("_functions",)

    def __init__(self, functions: Functions | None) -> None:
        """Takes the functions; `None` if the agent only accepts messages."""
        self._functions = functions

    def contains(self, value: Any) -> bool:
        """Returns True if a value is an action of the agent."""
        if isinstance(value, list):
            return all(map(_is_one, value))
        return _is_one(value)

    def sample(self, rng: RandomSource) -> Any:
        """Draws a call of any function; an empty list if there are none."""
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
    """Returns the object in an `ObjectSpec`'s array; anything else unchanged."""
    if isinstance(action, np.ndarray) and action.shape == () and action.dtype == object:
        return action[()]
    return action


def as_pysc2(value: Any, make_call: Callable[[int, Any], Any]) -> Any:
    """Converts pairs to PySC2's own calls.

    Args:
        value: A value that `Calls` contains.
        make_call: PySC2's `FunctionCall`.
    """
    if isinstance(value, list):
        return [as_pysc2(item, make_call) for item in value]
    return make_call(*value) if _is_call(value) else value
